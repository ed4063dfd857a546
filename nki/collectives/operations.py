"""The collective operations with chunks of one size, over ranks that run in one process
(`simulator.ranks`). Source of all: SDK nki/api/nki/collectives/__init__.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki.collectives.checks import (
    check_counts,
    check_dimension,
    check_group,
    check_memory,
    check_op,
    check_pairs,
    check_sizes,
    one,
)
from nki.collectives.exchange import Array, Messages, exchange, predecessor, reduced
from nki.errors import USER_FRAMES
from nki.ir.builder.registers import VirtualRegister
from nki.ir.context import caller, current
from nki.ir.views.tensor import NkiTensor
from nki.ranks.group import ReplicaGroup
from simulator.ranks import place


def all_reduce(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Every dst becomes the reduction (nl.add, nl.minimum or nl.maximum) of the group's srcs.

    Several tensors (HBM only) go together; sources and destinations are of one memory. Raises
    value-not-allowed, wrong-memory, shape-mismatch, deadlock.

    Source: SDK nki/api/nki/collectives/__init__.py (all_reduce).

    >>> import numpy as np, nki.collectives as ncc, nki.language as nl
    >>> def kernel(a, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(src, nl.load(a))
    ...     ncc.all_reduce([src], [dst], group, nl.add)
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1, 2]])
    >>> parts = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    >>> for result in ncc.simulate_ranks(kernel, [{"a": a, "group": group} for a in parts]):
    ...     print(result.ravel())
    [6. 9.]
    [6. 9.]
    [6. 9.]
    """
    with USER_FRAMES:
        combine = check_op(op)
        check_memory("all_reduce", srcs, dsts)
        check_sizes("all_reduce", srcs, dsts, 1, 1)

        def result(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Array:
            return reduced([messages[r][index] for r in group], combine)

        exchange("all_reduce", srcs, dsts, replica_group, priority, result, caller())


def all_gather(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Every dst becomes the group's srcs one behind the other along `collective_dim` (0; of SBUF
    tensors, which have two dimensions, 0 or 1).

    Raises value-not-allowed, wrong-memory, shape-mismatch, deadlock.

    Source: SDK nki/api/nki/collectives/__init__.py (all_gather).

    >>> import numpy as np, nki.collectives as ncc, nki.language as nl
    >>> def kernel(a, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray((3 * a.shape[0], a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(src, nl.load(a))
    ...     ncc.all_gather([src], [dst], group, 0)
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1, 2]])
    >>> parts = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    >>> for result in ncc.simulate_ranks(kernel, [{"a": a, "group": group} for a in parts]):
    ...     print(result.ravel())
    [0. 1. 2. 3. 4. 5.]
    [0. 1. 2. 3. 4. 5.]
    [0. 1. 2. 3. 4. 5.]
    """
    with USER_FRAMES:
        check_memory("all_gather", srcs, dsts)
        check_dimension("all_gather", srcs, collective_dim, on_chip=(0, 1))
        check_sizes("all_gather", srcs, dsts, 1, check_group("all_gather", replica_group).size)

        def result(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Array:
            return np.concatenate([messages[r][index] for r in group], axis=collective_dim)

        exchange("all_gather", srcs, dsts, replica_group, priority, result, caller())


def reduce_scatter(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    op: Any,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """dst becomes this rank's part, along dimension 0, of the reduction of the group's srcs.

    Raises value-not-allowed, wrong-memory, shape-mismatch, deadlock.

    Source: SDK nki/api/nki/collectives/__init__.py (reduce_scatter).

    >>> import numpy as np, nki.collectives as ncc, nki.language as nl
    >>> def kernel(a, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray((a.shape[0] // 3, a.shape[1]), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(src, nl.load(a))
    ...     ncc.reduce_scatter([src], [dst], group, 0, nl.add)
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1, 2]])
    >>> parts = np.arange(9, dtype=np.float32).reshape(3, 3, 1)
    >>> for result in ncc.simulate_ranks(kernel, [{"a": a, "group": group} for a in parts]):
    ...     print(result.ravel())
    [9.]
    [12.]
    [15.]
    """
    with USER_FRAMES:
        combine = check_op(op)
        check_memory("reduce_scatter", srcs, dsts)
        check_dimension("reduce_scatter", srcs, collective_dim, on_chip=(0,))
        parts = check_group("reduce_scatter", replica_group).size
        check_sizes("reduce_scatter", srcs, dsts, parts, 1)

        def result(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Array:
            whole = reduced([messages[r][index] for r in group], combine)
            return np.split(whole, len(group), axis=0)[group.index(rank)]

        exchange("reduce_scatter", srcs, dsts, replica_group, priority, result, caller())


def all_to_all(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    collective_dim: int,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Part i of src, along dimension 0, goes to the i-th rank of the group; dst becomes what came,
    in the order of the ranks.

    Raises value-not-allowed, wrong-memory, shape-mismatch, deadlock.

    Source: SDK nki/api/nki/collectives/__init__.py (all_to_all).

    >>> import numpy as np, nki.collectives as ncc, nki.language as nl
    >>> def kernel(a, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(src, nl.load(a))
    ...     ncc.all_to_all([src], [dst], group, 0)
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1, 2]])
    >>> parts = np.arange(9, dtype=np.float32).reshape(3, 3, 1)
    >>> for result in ncc.simulate_ranks(kernel, [{"a": a, "group": group} for a in parts]):
    ...     print(result.ravel())
    [0. 3. 6.]
    [1. 4. 7.]
    [2. 5. 8.]
    """
    with USER_FRAMES:
        check_memory("all_to_all", srcs, dsts, hbm_only=True)
        check_dimension("all_to_all", srcs, collective_dim, on_chip=())
        parts = check_group("all_to_all", replica_group).size
        check_sizes("all_to_all", srcs, dsts, 1, 1, parts=parts)

        def result(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Array:
            mine = group.index(rank)
            return np.concatenate([np.split(messages[r][index], len(group))[mine] for r in group])

        exchange("all_to_all", srcs, dsts, replica_group, priority, result, caller())


def collective_permute(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    source_target_pairs: list[tuple[int, int]],
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """For each pair (source, target) the target's dst becomes the source's src. A rank that is no
    target keeps its dst.

    Raises value-not-allowed, wrong-memory, shape-mismatch, deadlock.

    Source: SDK nki/api/nki/collectives/__init__.py (collective_permute).

    >>> import numpy as np, nki.collectives as ncc, nki.language as nl
    >>> def kernel(a, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(src, nl.load(a))
    ...     ncc.collective_permute([src], [dst], [(0, 2), (2, 1), (1, 0)])
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1, 2]])
    >>> parts = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    >>> for result in ncc.simulate_ranks(kernel, [{"a": a, "group": group} for a in parts]):
    ...     print(result.ravel())
    [2. 3.]
    [4. 5.]
    [0. 1.]
    """
    with USER_FRAMES:
        one("collective_permute", srcs, dsts)
        check_memory("collective_permute", srcs, dsts, hbm_only=True)
        check_sizes("collective_permute", srcs, dsts, 1, 1)
        sources = check_pairs(source_target_pairs)
        ranks = ReplicaGroup([sorted({rank for pair in source_target_pairs for rank in pair})])

        def result(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Any:
            return messages[sources[rank]][index] if rank in sources else None

        if place().rank in ranks.groups[0]:
            exchange("collective_permute", srcs, dsts, ranks, priority, result, caller())


def collective_permute_implicit(
    srcs_by_channel: list[list[NkiTensor]],
    dsts_by_channel: list[list[NkiTensor]],
    replica_group: ReplicaGroup,
    channel_ids: list[int] = [0],  # noqa: B006 (the documented default)
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Around the ring of the group: src goes to the next rank's dst, on every channel.

    Raises value-not-allowed, wrong-memory, shape-mismatch, deadlock.

    Source: SDK nki/api/nki/collectives/__init__.py (collective_permute_implicit).

    >>> import numpy as np, nki.collectives as ncc, nki.language as nl
    >>> def kernel(a, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(src, nl.load(a))
    ...     ncc.collective_permute_implicit([[src]], [[dst]], group)
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1, 2]])
    >>> parts = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    >>> for result in ncc.simulate_ranks(kernel, [{"a": a, "group": group} for a in parts]):
    ...     print(result.ravel())
    [4. 5.]
    [0. 1.]
    [2. 3.]
    """
    with USER_FRAMES:
        check_counts("collective_permute_implicit", channel_ids, srcs_by_channel, dsts_by_channel)
        srcs, dsts = [s[0] for s in srcs_by_channel], [d[0] for d in dsts_by_channel]
        check_memory("collective_permute_implicit", srcs, dsts)
        check_sizes("collective_permute_implicit", srcs, dsts, 1, 1)
        location = caller()
        exchange(
            "collective_permute_implicit", srcs, dsts, replica_group, priority, _previous, location
        )


def collective_permute_implicit_reduce(
    srcs0_by_channel: list[list[NkiTensor]],
    srcs1_by_channel: list[list[NkiTensor]],
    dsts_by_channel: list[list[NkiTensor]],
    replica_group: ReplicaGroup,
    op: Any,
    channel_ids: list[int] = [0],  # noqa: B006 (the documented default)
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Around the ring of the group: op(src0, src1) goes to the next rank's dst, on every channel.

    Raises value-not-allowed, wrong-memory, shape-mismatch, deadlock.

    Source: SDK nki/api/nki/collectives/__init__.py (collective_permute_implicit_reduce).

    >>> import numpy as np, nki.collectives as ncc, nki.language as nl
    >>> def kernel(a, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(src, nl.load(a))
    ...     ncc.collective_permute_implicit_reduce([[src]], [[src]], [[dst]], group, nl.add)
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1, 2]])
    >>> parts = np.arange(6, dtype=np.float32).reshape(3, 1, 2)
    >>> for result in ncc.simulate_ranks(kernel, [{"a": a, "group": group} for a in parts]):
    ...     print(result.ravel())
    [ 8. 10.]
    [0. 2.]
    [4. 6.]
    """
    what = "collective_permute_implicit_reduce"
    with USER_FRAMES:
        combine = check_op(op)
        channels = srcs0_by_channel, srcs1_by_channel, dsts_by_channel
        check_counts(what, channel_ids, *channels)
        left, right, dsts = ([tensors[0] for tensors in channel] for channel in channels)
        for srcs in (left, right):
            check_memory(what, srcs, dsts)
            check_sizes(what, srcs, dsts, 1, 1)

        def result(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Array:
            sent = messages[predecessor(group, rank)]
            return reduced([sent[index], sent[index + len(left)]], combine)

        exchange(what, [*left, *right], dsts, replica_group, priority, result, caller())


def collective_permute_implicit_current_processing_rank_id(
    iteration_id: int,
    replica_group: ReplicaGroup,
    channel_id: int = 0,
    name: str | None = None,
) -> VirtualRegister:
    """A register with the rank whose data this one processes in step `iteration_id` of a ring:
    its own at 0, then those of its predecessors.

    Raises value-not-allowed.

    Source: SDK nki/api/nki/collectives/__init__.py (the function of this name).

    >>> import numpy as np, nki.collectives as ncc, nki.isa as nisa, nki.language as nl
    >>> def kernel(table, group):
    ...     tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    ...     rank = ncc.collective_permute_implicit_current_processing_rank_id(1, group)
    ...     row = table.ap([[1, 1], [1, 1]], scalar_offset=rank, indirect_dim=0)
    ...     nisa.dma_copy(dst=tile, src=row)
    ...     out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> arguments = {"table": np.array([[10], [11], [12]], np.int32)}
    >>> arguments["group"] = ncc.ReplicaGroup([[0, 1, 2]])
    >>> [result.item() for result in ncc.simulate_ranks(kernel, [arguments] * 3)]
    [12, 10, 11]
    """
    with USER_FRAMES:
        rank = place().rank
        what = "collective_permute_implicit_current_processing_rank_id"
        group = check_group(what, replica_group).group_of(rank)
        position = group.index(rank) - iteration_id.__index__()
        context = current("nki.collectives")
        return context.register_alloc(group[position % len(group)], caller())


def rank_id(name: str | None = None) -> VirtualRegister:
    """A register with the number of this rank; 0 unless `simulate_ranks` runs the kernel.

    Raises no-tracer outside a kernel.

    Source: SDK nki/api/nki/collectives/__init__.py (rank_id).

    >>> import numpy as np, nki.collectives as ncc, nki.isa as nisa, nki.language as nl
    >>> def kernel(table, group):
    ...     tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    ...     rank = ncc.rank_id()
    ...     row = table.ap([[1, 1], [1, 1]], scalar_offset=rank, indirect_dim=0)
    ...     nisa.dma_copy(dst=tile, src=row)
    ...     out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> arguments = {"table": np.array([[10], [11], [12]], np.int32)}
    >>> arguments["group"] = ncc.ReplicaGroup([[0, 1, 2]])
    >>> [result.item() for result in ncc.simulate_ranks(kernel, [arguments] * 3)]
    [10, 11, 12]
    """
    with USER_FRAMES:
        return current("nki.collectives.rank_id").register_alloc(place().rank, caller())


def _previous(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Array:
    return messages[predecessor(group, rank)][index]
