"""Collective operations whose chunks differ in length, which a table of metadata gives.

Source: SDK nki/api/nki/collectives/__init__.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from isa.errors import NeuronError
from nki.collectives.checks import (
    check_displacements,
    check_group,
    check_memory,
    check_metadata,
    check_variable_gather,
    one,
)
from nki.collectives.exchange import Array, Messages, exchange
from nki.errors import USER_FRAMES
from nki.ir.context import Location, caller, current
from nki.ir.views.tensor import NkiTensor
from nki.ranks.group import ReplicaGroup


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

    Raises not-supported (other groups, cores or has_rdispls), shape-mismatch (metadata),
    out-of-bounds (counts and displacements), value-not-allowed, wrong-memory, deadlock.

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

    Raises generation (has_rdispls before trn3), shape-mismatch (metadata), out-of-bounds (counts
    and displacements), value-not-allowed, wrong-memory, deadlock.

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
    exchange(what, given, targets, replica_group, priority, result, location)
