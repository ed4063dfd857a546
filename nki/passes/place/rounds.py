"""Restarts the round-robin allocation of on-chip memory every few iterations of an unrolled loop.

Allocation is next-fit: each tensor is placed after the one before, and wraps round at the end of
the memory (`nki.passes.place.sweep`). In a loop that Python unrolled the live ranges repeat with
each iteration, but the addresses do not where allocation wraps at another point of each. Then
nothing that follows from addresses repeats either: dependences, schedule, program.

So the allocation of SBUF and PSUM restarts at address 0 every few iterations: after the fewest in
which each memory has been gone through by half. Iterations one such round apart then have equal
addresses, and can be re-rolled. Code whose addresses repeat anyway, or that has less than 256
tensors, is left alone.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from isa.columns import Integers, joined
from isa.columns.repetition import Repetition, repetition

if TYPE_CHECKING:
    from nki.passes.place.sweep import OffsetSweep

_MOST = 0.5
"""The part of all live ranges from which on a repetition is worth it."""

_ALIKE = 0.7
"""The part of a repetition whose places repeat too, if they do."""

_ROUNDS = 4
"""How many rounds a repetition has at least: the first is not like the others."""

_GONE = 0.5
"""The part of a memory that a rotation goes through at least before it begins anew. With a quarter,
matrix products in fp32 take up to 14 % longer by the cost model, with a half no longer than without
rounds."""


def repeat(sweeps: list[OffsetSweep], placed: list[list[int]]) -> bool:
    """Sweeps over each memory so that places repeat where live ranges do, and tells whether it has.
    It has not where live ranges do not repeat, or where the places that plain rotations found do so
    already (they are `placed`). Nor where a round would be too long, or something does not fit.

    All rotations begin anew at the same positions of the body: after the fewest times round the
    loop that leave each at least half a memory from where it begins. What is overwritten then has
    been there for about as long as otherwise, so that nobody has to wait for it.
    """
    lives = [life for sweep in sweeps for life in sweep.moving]
    first, last, size = (
        np.fromiter(map(attrgetter(name), lives), np.int64, len(lives))
        for name in ("first", "last", "size")
    )
    memory = np.repeat(np.arange(len(sweeps)), [len(sweep.moving) for sweep in sweeps])
    order = np.argsort(first, kind="stable")
    columns = [last - first, size, memory]
    keys = joined([np.diff(first[order], prepend=0), *(column[order] for column in columns)])
    found = repetition(keys)
    if found is None or _rows(found) < _MOST * len(lives):
        return False

    def places_repeat(offsets: list[list[int]]) -> bool:
        columns = [np.array(at, np.int64) for at in offsets]
        steps = [np.diff(at, prepend=0) % sweep.capacity for sweep, at in zip(sweeps, columns)]
        again = repetition(joined([keys, np.concatenate(steps)[order]]))
        return again is not None and _rows(again) >= _ALIKE * _rows(found)

    if places_repeat(placed):
        return False
    rest = keys[found.end :][: found.period]
    alike = np.append(rest == keys[found.start :][: rest.size], False)
    end = found.end + int(np.argmin(alike))
    return _in_rounds(sweeps, found, end, memory[order]) and places_repeat(
        [sweep.offsets for sweep in sweeps]
    )


def _rows(found: Repetition) -> int:
    return found.period * found.times


def _in_rounds(sweeps: list[OffsetSweep], found: Repetition, end: int, memory: Integers) -> bool:
    """Sweeps in rounds up to the live range `end`, where the last period may break off. `memory`
    are the numbers of the memories of all live ranges, in order."""
    before, counts, repeated = (
        np.bincount(memory[part], minlength=len(sweeps)).tolist()
        for part in (
            slice(found.start),
            slice(found.start, found.start + found.period),
            slice(found.start, end),
        )
    )
    if any(sweep.run(count) is not None for sweep, count in zip(sweeps, before)):
        return False
    turning = [(sweep, count) for sweep, count in zip(sweeps, counts) if count]
    periods = _periods(turning, found.times // _ROUNDS)
    if periods is None:
        return False
    for sweep, count, whole in zip(sweeps, counts, repeated):
        if count and sweep.rounds(periods * count, whole - periods * count) is not None:
            return False
    return all(sweep.run() is None for sweep in sweeps)


def _periods(turning: list[tuple[OffsetSweep, int]], most: int) -> int | None:
    """Sweeps over the first round, and says how many periods it has; None where it would have more
    than `most`, or something does not fit. `turning` has the live ranges of a period."""
    lowest = [sweep.capacity for sweep, _ in turning]
    for sweep, _ in turning:
        sweep.cursor = 0
    for periods in range(1, most + 1):
        gone = True
        for number, (sweep, count) in enumerate(turning):
            if sweep.run(count) is not None:
                return None
            low = lowest[number] = min(lowest[number], min(sweep.offsets[-count:]))
            gone &= sweep.cursor - low >= _GONE * (sweep.capacity - low)
        if gone:
            return periods
    return None
