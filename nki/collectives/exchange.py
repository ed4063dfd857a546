"""Exchanges between the ranks of a group: what a rank sends, and what its destinations become.

Reductions go in the order of the ranks in their group, in fp32 (integers: exactly), and round once
at the end.
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
from nki.collectives.checks import check_group, check_priority
from nki.ir.builder.emission import emit
from nki.ir.context import Location, current
from nki.ir.views.tensor import NkiTensor
from nki.ranks.group import ReplicaGroup
from simulator.ranks import place

Array = np.ndarray[Any, Any]
Messages = dict[int, list[Array]]

Result = Callable[[Messages, tuple[int, ...], int, int], Any]
"""What dst number `index` of `rank` becomes (None: it stays), from everyone's sources."""


def exchange(
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


def predecessor(group: tuple[int, ...], rank: int) -> int:
    return group[group.index(rank) - 1]


def reduced(parts: Sequence[Array], combine: Callable[[Array, Array], Array]) -> Array:
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
