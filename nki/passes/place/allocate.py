"""Allocates on-chip memory: next-fit over live ranges in the author's order.

So a tensor gets the bytes that have been free for longest, and seldom waits for who used them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import product
from operator import attrgetter

import numpy as np

from isa.enums import Memory
from isa.errors import NeuronError
from isa.memory import start_partitions
from isa.target import TARGETS, Target
from nki.ir.locations import resolve
from nki.ir.nodes import Node, Tensor, TracedKernel
from nki.ir.rewrite import Numbering
from nki.passes.place import quadrants
from nki.passes.place.live_ranges import Life, LiveRanges, ranges_of
from nki.passes.place.packing import (
    ALIGNMENT,
    largest_first,
    side_by_side,
    solve,
    solver_is_installed,
)
from nki.passes.place.pressure import relieved
from nki.passes.place.rounds import repeat
from nki.passes.place.spill import spilled
from nki.passes.place.sweep import OffsetSweep


@dataclass(frozen=True)
class Allocate:
    """Give every SBUF and PSUM tensor a start partition and a byte offset
    (`TracedKernel.placement`).

    The author's order of operations stays, unless only another one leaves room for all that is
    live (`nki.passes.place.pressure`). Where none does, tensors wait in the next memory for a
    while, with a `SpillWarning` (`nki.passes.place.spill`).

    A tensor lives from its first to its last access; one that is allocated outside a loop and used
    inside lives for the whole loop. `storage_begin` moves down to the first access. Space is taken
    round robin, so that a new tensor gets the space that has been free for longest and waits for
    nobody. Where live ranges repeat, as those of a loop do that Python unrolls, their places do so
    too: if they do not by themselves, the round robin begins anew every few times round the loop
    (`nki.passes.place.rounds`). Tensors with an address of the author's keep it.

    Before:

        storage %t1 "tile": sbuf float32[128, 512]

    After:

        storage %t1 "tile": sbuf float32[128, 512] placed=(0, 2048)

    Raises sbuf-overflow, psum-overflow (with what is live), address-overlap and
    address-out-of-range.
    """

    name = "allocate"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        target = TARGETS[kernel.target]
        bodies = []
        placed: Places = {}
        numbering = Numbering(kernel.tensors, [])
        for body in kernel.bodies:
            nodes, places = allocate(ranges_of(kernel, body), body, target, numbering)
            bodies.append(nodes)
            placed.update(places)
        tensors = [t for t in numbering.tensors if not t.memory.on_chip or t in placed]
        return kernel.with_bodies(bodies, tensors, placed)


def allocate(
    ranges: LiveRanges, body: list[Node], target: Target, numbering: Numbering
) -> Allocation:
    """The nodes of a body with some live ranges, and where its tensors go, in the author's order if
    that fits."""
    try:
        return _in_order(ranges, body, target)
    except NeuronError as error:
        lacking = _lacking(error)
        found = _reordered(body, target) or _with_spills(body, lacking, target, numbering)
        if found is None:
            raise
        return found


def _reordered(body: list[Node], target: Target) -> Allocation | None:
    """In another order, in which less is live at once."""
    for part in _PARTS:
        nodes = relieved(body, target, part)
        if nodes is None:
            return None
        try:
            return in_order(nodes, target, search=False)
        except NeuronError as error:
            _lacking(error)
    return None


def _with_spills(
    body: list[Node], lacking: Memory, target: Target, numbering: Numbering
) -> Allocation | None:
    """In the author's order, with tensors of the memories that are too small in others for a
    while. `lacking` is the memory that is too small first."""
    known = len(numbering.tensors)
    narrow = {t for t in quadrants.movable(body, target) if len(start_partitions(t.shape[0])) > 1}
    shares: list[Collection[Tensor]] = [narrow, ()] if narrow else [()]
    ways = {Memory.psum: product([()], _PARTS), Memory.sbuf: product(shares, _PARTS)}
    taken: dict[Memory, tuple[Collection[Tensor], float]] = {}
    while way := next(ways[lacking], None):
        taken[lacking] = way
        del numbering.tensors[known:]
        nodes = body
        moved = []
        for memory in filter(taken.__contains__, (Memory.psum, Memory.sbuf)):
            movable, part = taken[memory]
            capacity = int(part * _geometry(memory, target)[0])
            rewritten = spilled(nodes, memory, capacity, target, numbering, movable)
            if rewritten is None:
                lacking = memory
                break
            nodes, spills = rewritten
            moved.append(spills)
        else:
            try:
                found = in_order(nodes, target, search=False)
            except NeuronError as error:
                lacking = _lacking(error)
                continue
            for spills in moved:
                spills.warn()
            return found
    return None


def _lacking(error: NeuronError) -> Memory:
    """The memory that is too small; raises an error that says anything else."""
    memory = _OVERFLOWS.get(error.code)
    if memory is None:
        raise error
    return memory


Places = dict[Tensor, tuple[int, int]]
"""(start partition, byte offset) of tensors."""

Allocation = tuple[list[Node], Places]
"""The nodes of a body, and the places of its tensors."""

_OVERFLOWS = {"sbuf-overflow": Memory.sbuf, "psum-overflow": Memory.psum}

_PARTS = (1.0, 0.97, 0.94, 0.9, 0.8)
"""How much of a memory another order may fill at most: what fits tightly may leave no gap that is
large enough."""


def in_order(body: list[Node], target: Target, search: bool = True) -> Allocation:
    """The nodes of a body and where its tensors go in its order."""
    return _in_order(LiveRanges(body), body, target, search)


def _in_order(
    ranges: LiveRanges, body: list[Node], target: Target, search: bool = True
) -> Allocation:
    movable = partial(quadrants.movable, body, target)
    return ranges.nodes, place_all(ranges.lives(), target, movable, search)


def turns(ranges: LiveRanges, target: Target) -> bool:
    """Whether the tensors of a body have places by round robin, so that each has those that have
    been free for longest: others may wait for one another."""
    return all(
        OffsetSweep(_moving(lives), _fixed(lives), *_geometry(memory, target), rotate=True).run()
        is None
        for memory, lives in ranges.lives().items()
    )


_MANY = 256
"""Tensors from which on looking for repetitions takes less than 2 % of the time of compiling
(measured with the matmul kernels of the tutorials)."""


def place_all(
    lives: dict[Memory, list[Life]],
    target: Target,
    movable: Callable[[], Collection[Tensor]] = tuple,
    search: bool = True,
) -> Places:
    """The places of the tensors of all memories: what `place` finds for each, or, where live ranges
    repeat and those places do not, others that do."""
    placed: Places = {}
    for memory, own in lives.items():
        placed.update(place(own, memory, target, movable, search))
    if len(placed) >= _MANY:
        placed.update(_repeating(lives, placed, target))
    return placed


def _repeating(lives: dict[Memory, list[Life]], placed: Places, target: Target) -> Places:
    """Places that repeat (`nki.passes.place.rounds`), of the tensors that have no address; none
    where those that are `placed` stay."""
    sweeps = [
        OffsetSweep(_moving(own), _fixed(own), *_geometry(memory, target), rotate=True)
        for memory, own in lives.items()
    ]
    offsets = [[placed[life.tensor][1] for life in sweep.moving] for sweep in sweeps]
    if not repeat(sweeps, offsets):
        return {}
    return {
        life.tensor: (0, offset)
        for sweep in sweeps
        for life, offset in zip(sweep.moving, sweep.offsets)
    }


def place(
    lives: list[Life],
    memory: Memory,
    target: Target,
    movable: Callable[[], Collection[Tensor]] = tuple,
    search: bool = True,
) -> Places:
    """(start partition, byte offset) of the tensors of one memory.

    Round robin in the author's order where that fits. Else whatever fits: lowest gap first, then
    all live ranges in view, largest first, then tensors of few rows beside each other. The last way
    is an exact search, if `search` is set and the `solver` extra is there. `movable()` are the
    tensors that may start at any partition that engines can address; the others start at 0.
    """
    capacity, bank = _geometry(memory, target)
    fixed = _fixed(lives)
    _check_fixed(fixed, memory, capacity)
    moving = _moving(lives)
    sweep = OffsetSweep(moving, fixed, capacity, bank, rotate=True)
    failed = sweep.run()
    if failed is not None:
        sweep = OffsetSweep(moving, fixed, capacity, bank, rotate=False)
        failed = sweep.run()
    if failed is None:
        result = {life.tensor: (0, offset) for life, offset in zip(moving, sweep.offsets)}
    else:
        result = _packed(failed, lives, memory, target, movable, search)
    result.update({life.tensor: life.address for life in fixed})
    return result


def _packed(
    culprit: Life,
    lives: list[Life],
    memory: Memory,
    target: Target,
    movable: Callable[[], Collection[Tensor]],
    search: bool,
) -> Places:
    """Places with all live ranges in view, where a sweep found none for `culprit`."""
    capacity, bank = _geometry(memory, target)
    fixed = _fixed(lives)
    moving = _moving(lives)
    crowded = _overfull(lives, capacity)
    found = None
    if crowded is None:
        found = largest_first(moving, fixed, capacity, bank, ALIGNMENT)
    if found is None and not bank:
        beside = side_by_side(moving, fixed, capacity, ALIGNMENT, movable())
        if beside is not None:
            return {life.tensor: where for life, where in beside.items()}
    if found is None and crowded is None and search and solver_is_installed():
        found = solve(moving, fixed, capacity, bank, ALIGNMENT)
    if found is None:
        raise _overflow(crowded or culprit, lives, memory, capacity)
    return {life.tensor: (0, offset) for life, offset in found.items()}


def _fixed(lives: list[Life]) -> list[Life]:
    """Those that have an address of the author's."""
    return [life for life in lives if life.tensor.address is not None]


def _moving(lives: list[Life]) -> list[Life]:
    """Those that have none, by their first position."""
    found = [life for life in lives if life.tensor.address is None]
    return sorted(found, key=attrgetter("first"))


def _geometry(memory: Memory, target: Target) -> tuple[int, int]:
    if memory is Memory.sbuf:
        return target.sbuf_bytes_per_partition.value, 0
    return target.psum_bytes_per_partition.value, target.psum_bank_bytes.value


def check_addresses(kernel: TracedKernel) -> None:
    """Raise address-overlap or address-out-of-range for tensors with an address of the author's."""
    if all(tensor.address is None for tensor in kernel.tensors):
        return
    target = TARGETS[kernel.target]
    for body in kernel.bodies:
        ranges = LiveRanges(body)
        for memory, lives in ranges.lives().items():
            _check_fixed(_fixed(lives), memory, _geometry(memory, target)[0])


def _check_fixed(fixed: list[Life], memory: Memory, capacity: int) -> None:
    for life in fixed:
        partition, offset = life.address
        rows = life.tensor.shape[0]
        if offset + life.size > capacity or partition + rows > 128 or min(partition, offset) < 0:
            raise NeuronError(
                "address-out-of-range",
                f"{life.tensor.name} needs partitions {partition} to {partition + rows} and bytes "
                f"{offset} to {offset + life.size} of {memory.value}, which has 128 partitions of "
                f"{capacity} bytes",
                location=resolve(life.tensor.location),
            )
    clash = _clash(sorted(fixed, key=attrgetter("first")))
    if clash is not None:
        one, other = clash
        raise NeuronError(
            "address-overlap",
            f"{one.tensor.name} at {one.address} and {other.tensor.name} at "
            f"{other.address} share bytes of {memory.value} while both are in use",
            location=resolve(other.tensor.location),
        )


def _clash(lives: list[Life]) -> tuple[Life, Life] | None:
    """The first two live ranges, which come by their first position, that share bytes."""
    rows = [(life.first, life.last, *life.address, life.rows, life.size) for life in lives]
    first, last, top, low, height, size = np.array(rows, np.int64).reshape(-1, 6).T
    bottom, high = top + height, low + size
    ends = np.searchsorted(first, last, side="right").tolist()
    for one, end in enumerate(ends):
        others = slice(one + 1, end)
        shared = (low[others] < high[one]) & (low[one] < high[others])
        shared &= (top[others] < bottom[one]) & (top[one] < bottom[others])
        if shared.any():
            return lives[one], lives[one + 1 + int(shared.argmax())]
    return None


def _overfull(lives: list[Life], capacity: int) -> Life | None:
    """The first tensor with which more bytes are live than there are; None where all fit."""
    total = 0
    ends: list[tuple[int, int]] = []  # a heap of (last position, size)
    for life in sorted(lives, key=lambda one: one.first):
        while ends and ends[0][0] < life.first:
            total -= heappop(ends)[1]
        total += life.size
        heappush(ends, (life.last, life.size))
        if total > capacity:
            return life
    return None


def _overflow(life: Life, lives: list[Life], memory: Memory, capacity: int) -> NeuronError:
    """The overflow error with the live set at the first position that does not fit."""
    live = [other for other in lives if other.first <= life.first <= other.last]
    total = sum(other.size for other in live)
    rows = sorted(live, key=lambda other: -other.size)
    notes = [f"in use in {memory.value} here ({total} bytes a partition):"]
    for other in rows[:12]:
        place = resolve(other.tensor.location)
        line = f" line {place.line}" if place is not None else ""
        notes.append(
            f"  {other.size:>8} B  {other.tensor.name} {other.tensor.dtype}"
            f"{list(other.tensor.shape)}{line}"
        )
    if len(rows) > 12:
        rest = sum(other.size for other in rows[12:])
        notes.append(f"  {rest:>8} B  in {len(rows) - 12} smaller tensors")
    notes += _owners(live)
    hint = ""
    if total <= capacity:
        notes.append("  it would fit, but no free bytes in one piece were found")
        if not solver_is_installed():
            hint = "Install opennki[solver], which searches for an arrangement exactly."
    return NeuronError(
        "sbuf-overflow" if memory is Memory.sbuf else "psum-overflow",
        f"{life.tensor.name} needs {life.size} bytes a partition; with what is in use that makes "
        f"{total} of {capacity}",
        hint=hint,
        location=resolve(life.tensor.location),
        notes=tuple(notes),
    )


def _owners(live: list[Life]) -> list[str]:
    """What inlined kernels have of the live set."""
    sizes: dict[str, int] = {}
    for life in live:
        owner = life.tensor.owner
        if owner:
            sizes[owner] = sizes.get(owner, 0) + life.size
    rows = sorted(sizes.items(), key=lambda row: -row[1])
    return [f"  {size:>8} B  of these are tensors of {owner}" for owner, size in rows]
