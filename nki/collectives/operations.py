"""The collective operations, over ranks that run in one process (`simulator.ranks`).

Reductions go in the order of the ranks in their group, in fp32 (integers: exactly), and round once
at the end. Source of all: SDK nki/api/nki/collectives/__init__.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.control import CoreBarrier
from isa.operations.dma import DmaCopy
from nki.collectives.checks import (
    check_counts,
    check_dimension,
    check_displacements,
    check_group,
    check_memory,
    check_metadata,
    check_op,
    check_pairs,
    check_priority,
    check_sizes,
    check_variable_gather,
    one,
)
from nki.errors import USER_FRAMES
from nki.ir.builder.emission import emit
from nki.ir.builder.registers import VirtualRegister
from nki.ir.context import Location, caller, current
from nki.ir.views.tensor import NkiTensor
from nki.ranks.group import ReplicaGroup
from simulator.ranks import place

Array = np.ndarray[Any, Any]
Messages = dict[int, list[Array]]


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
            return _reduced([messages[r][index] for r in group], combine)

        _run("all_reduce", srcs, dsts, replica_group, priority, result, caller())


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

        _run("all_gather", srcs, dsts, replica_group, priority, result, caller())


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
            whole = _reduced([messages[r][index] for r in group], combine)
            return np.split(whole, len(group), axis=0)[group.index(rank)]

        _run("reduce_scatter", srcs, dsts, replica_group, priority, result, caller())


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

        _run("all_to_all", srcs, dsts, replica_group, priority, result, caller())


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
            _run("collective_permute", srcs, dsts, ranks, priority, result, caller())


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
        _run(
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
            sent = messages[_predecessor(group, rank)]
            return _reduced([sent[index], sent[index + len(left)]], combine)

        _run(what, [*left, *right], dsts, replica_group, priority, result, caller())


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


def all_gather_v(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Every rank's chunk src[displacement : displacement + count] goes to all ranks of the group.

    `metadata_tensor` (uint32) has a column per rank: row 0 the count and row 1 the displacement
    (first column only), row 2 gets the received counts unless `recv_counts_known`; dst has equal
    slots. For groups of four ranks with two cores each (LNC=2), without `has_rdispls`.

    Source: SDK nki/api/nki/collectives/__init__.py (all_gather_v).

    >>> import numpy as np, nki, nki.collectives as ncc, nki.language as nl
    >>> @nki.jit(platform_target="trn2")
    ... def kernel(a, table, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray((4, 2), dtype=a.dtype, buffer=nl.shared_hbm)
    ...     metadata = nl.ndarray(table.shape, dtype=nl.uint32, buffer=nl.shared_hbm)
    ...     for tensor, given in ((src, a), (metadata, table)):
    ...         nl.store(tensor, nl.load(given))
    ...     nl.store(dst, nl.zeros(dst.shape, dtype=a.dtype, buffer=nl.sbuf))
    ...     ncc.all_gather_v([src], [dst], group, metadata)
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1, 2, 3]])
    >>> counts, starts = (2, 1, 0, 2), (1, 0, 0, 2)
    >>> arguments = [
    ...     {"a": np.arange(4, dtype=np.float32).reshape(2, 2) + 10 * rank, "group": group,
    ...      "table": np.array([[counts[rank]] * 4, [starts[rank]] * 4, [0] * 4], np.uint32)}
    ...     for rank in range(4)
    ... ]
    >>> print(ncc.simulate_ranks(kernel[2], arguments)[0].ravel())
    [ 1.  2. 10.  0.  0.  0. 32. 33.]
    """
    with USER_FRAMES:
        cores = current("nki.collectives.all_gather_v").cores
        check_variable_gather(replica_group, has_rdispls, cores)
        _run_v("all_gather_v", srcs, dsts, replica_group, metadata_tensor, recv_counts_known,
               has_rdispls, priority, True, caller())  # fmt: skip


def all_to_all_v(
    srcs: list[NkiTensor],
    dsts: list[NkiTensor],
    replica_group: ReplicaGroup,
    metadata_tensor: NkiTensor,
    recv_counts_known: bool = False,
    has_rdispls: bool = False,
    priority: int | None = None,
    name: str | None = None,
) -> None:
    """Every rank sends each other one a chunk of its own length; see `all_gather_v`, with a count
    and a displacement for every destination in rows 0 and 1.

    Source: SDK nki/api/nki/collectives/__init__.py (all_to_all_v).

    >>> import numpy as np, nki.collectives as ncc, nki.language as nl
    >>> def kernel(a, table, group):
    ...     src = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     dst = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     metadata = nl.ndarray(table.shape, dtype=nl.uint32, buffer=nl.shared_hbm)
    ...     for tensor, given in ((src, a), (metadata, table)):
    ...         nl.store(tensor, nl.load(given))
    ...     nl.store(dst, nl.zeros(a.shape, dtype=a.dtype, buffer=nl.sbuf))
    ...     ncc.all_to_all_v([src], [dst], group, metadata)
    ...     return dst
    >>> group = ncc.ReplicaGroup([[0, 1]])
    >>> tables = [[1, 2], [0, 1]], [[2, 1], [1, 3]]  # counts, displacements
    >>> arguments = [
    ...     {"a": np.arange(4, dtype=np.float32).reshape(2, 2) + 10 * rank, "group": group,
    ...      "table": np.array([*table, [0, 0]], np.uint32)}
    ...     for rank, table in enumerate(tables)
    ... ]
    >>> for result in ncc.simulate_ranks(kernel, arguments):
    ...     print(result.ravel())
    [ 0.  0. 11. 12.]
    [ 1.  2. 13.  0.]
    """
    with USER_FRAMES:
        _run_v("all_to_all_v", srcs, dsts, replica_group, metadata_tensor, recv_counts_known,
               has_rdispls, priority, False, caller())  # fmt: skip


# Execution

Result = Callable[[Messages, tuple[int, ...], int, int], Any]
"""What dst number `index` of `rank` becomes (None: it stays), from everyone's sources."""


def _run(
    what: str,
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    priority: int | None,
    result: Result,
    location: Location,
) -> None:
    """Exchange the sources within this rank's group and write the destinations.

    The cores of a rank meet before and after, where any of the tensors is theirs in common. The
    first of them works for all where the destinations are in shared HBM. What each core has its own
    of, it exchanges with the same core of the other ranks.
    """
    context: Any = current(f"nki.collectives.{what}")
    check_priority(priority, context.target)
    if not hasattr(context, "array"):
        raise NeuronError(
            "not-supported",
            what=f"nki.collectives.{what} in a compiled program",
            why="A program is for one rank; ranks meet in eager runs.",
            hint="Run the kernel with nki.collectives.simulate_ranks, or give nki.simulate a "
            "ReplicaGroup among the arguments.",
        )
    rank, world = place()
    group = check_group(what, replica_group).group_of(rank)
    _meet_cores(context, (*dsts, *srcs), location)
    shared = all(dst.storage.memory is Memory.shared_hbm for dst in dsts)
    if context.core == 0 or not shared:
        sources = [context.array(src) for src in srcs]
        meeting = f"{what} on core {context.core}" if context.core else what
        messages = world.meet(rank, group, meeting, sources)
        for index, dst in enumerate(dsts):
            _write(context, dst, result(messages, group, rank, index), location)
    _meet_cores(context, (*dsts, *srcs), location)


def _meet_cores(context: Any, tensors: Sequence[NkiTensor], location: Location) -> None:
    common = [tensor for tensor in tensors if tensor.storage.memory is Memory.shared_hbm]
    if context.cores > 1 and common:
        emit(context, CoreBarrier, {"data": common[0], "cores": (0, 1)}, location)


def _write(context: Any, dst: NkiTensor, values: Any, location: Location) -> None:
    if values is None:
        return
    if values.size != dst.size:
        raise NeuronError(
            "shape-mismatch",
            what=f"{dst.name!r} has {dst.size} elements, {values.size} come",
            location=None,
        )
    data = np.ascontiguousarray(values).reshape(dst.shape)
    source = context.allocate(dst.shape, dst.dtype, Memory.private_hbm, "", None, location, data)
    emit(context, DmaCopy, {"dst": dst, "src": source}, location)


def _run_v(
    what: str,
    srcs: Sequence[NkiTensor],
    dsts: Sequence[NkiTensor],
    replica_group: ReplicaGroup,
    metadata: NkiTensor,
    counts_known: bool,
    has_displacements: bool,
    priority: int | None,
    gather: bool,
    location: Location,
) -> None:
    one(what, srcs, dsts)
    check_memory(what, srcs, dsts, hbm_only=True)
    size = check_group(what, replica_group).size
    rows = 4 if has_displacements else 3
    check_metadata(metadata, rows, size)
    check_displacements(what, has_displacements, current(f"nki.collectives.{what}").target)

    def received(messages: Messages, group: tuple[int, ...], rank: int) -> tuple[Array, list[int]]:
        """dst and row 2 of the metadata, flat."""
        mine = group.index(rank)
        out = np.array(messages[rank][2]).reshape(-1)
        table = messages[rank][1].reshape(rows, size)
        counts = []
        for position, sender in enumerate(group):
            plan = messages[sender][1].reshape(rows, size)
            column = 0 if gather else mine
            count, start = int(plan[0, column]), int(plan[1, column])
            slot = out.size // size * position
            begin = int(table[3, position]) if has_displacements else slot
            source = messages[sender][0].reshape(-1)
            room = out.size if has_displacements else slot + out.size // size
            if start + count > source.size or begin + count > room:
                raise NeuronError(
                    "out-of-bounds",
                    what=f"rank {sender} sends {count} elements from {start} of {source.size} to "
                    f"element {begin} of rank {rank}, which has room up to {room}",
                )
            out[begin : begin + count] = source[start : start + count]
            counts.append(count)
        return out, counts

    def result(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Any:
        out, counts = received(messages, group, rank)
        if index == 0:
            return out
        table = np.array(messages[rank][1]).reshape(rows, size)
        table[2] = counts
        return table

    given = [*srcs, metadata, *dsts]
    targets = list(dsts) if counts_known else [*dsts, metadata]
    _run(what, given, targets, replica_group, priority, result, location)


def _previous(messages: Messages, group: tuple[int, ...], rank: int, index: int) -> Array:
    return messages[_predecessor(group, rank)][index]


def _predecessor(group: tuple[int, ...], rank: int) -> int:
    return group[group.index(rank) - 1]


def _reduced(parts: Sequence[Array], combine: Callable[[Array, Array], Array]) -> Array:
    """The parts combined from the first to the last, rounded to their dtype at the end."""
    first = parts[0]
    row = DTYPES[str(first.dtype)]
    wide = np.int64 if row.is_integer else np.float32
    total = first.astype(wide)
    for part in parts[1:]:
        total = combine(total, part.astype(wide))
    if row.is_integer:
        total = np.clip(total, row.lowest, row.largest)
    return total.astype(first.dtype)
