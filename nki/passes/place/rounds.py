"""Rotations that begin anew in rounds, so that places repeat where live ranges do.

What Python unrolls has live ranges that repeat, once for each time round a loop. Their places do
so too where a rotation comes round with the loop, or each time by as many bytes further on. Where
it wraps at ever other places of the loop they never do, nor do then the reuse of bytes, the
schedule that follows from it, and the program.

So the rotations of SBUF and PSUM begin anew together every few times round the loop: the fewest
times that leave each rotation at least half a memory from its beginning. Once the same is live as
at the beginning of an earlier round, the rest is a copy (`nki.passes.place.sweep`). Kernels whose
places repeat by themselves are placed as before, and so are bodies of less than 256 tensors.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from isa.columns import Integers, joined
from isa.columns.repetition import Repetition, repetition

if TYPE_CHECKING:
    from nki.passes.place.sweep import Sweep

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


def repeat(sweeps: list[Sweep], placed: list[list[int]]) -> bool:
    """Sweeps over each memory so that places repeat where live ranges do, and tells whether it has.
    It has not where live ranges do not repeat, where the places that plain rotations found do so
    already (they are `placed`), where a round would be too long, or where something does not fit.

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


def _in_rounds(sweeps: list[Sweep], found: Repetition, end: int, memory: Integers) -> bool:
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


def _periods(turning: list[tuple[Sweep, int]], most: int) -> int | None:
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
