"""Dependences within an engine: from which of its earlier instructions one takes data.

An engine streams: an instruction may start while the last elements of the one before are on their
way, unless it needs them (SDK nki/guides/architecture/trainium_inferentia2_arch.rst: instructions
that depend on the one before start later). Other engines and queues are semaphores' business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.columns import Flags, Integers, Lists, ordered, starts_of
from isa.columns.jit import jit_when_long
from isa.cost_formula import elements
from isa.spec import Instruction
from simulator.timing import events as e
from simulator.timing.boxes import TemplateBoxes
from simulator.timing.templates import TimedTemplate

LOOK_BACK = 4
"""Earlier instructions of its engine that an instruction is checked against for its operands;
after that many issues their results are there."""

_LAST, _FIRST = 1, 1 << LOOK_BACK
"""Bits of what a walk finds: the n-th candidate's last, or first, result is needed."""


@dataclass(slots=True)
class OwnResults:
    """Earlier instructions of the same engine that each instruction waits for: until their last
    result is there (`results`), or their first one (`firsts`). `noted`: the instructions in any
    such list."""

    results: Lists
    firsts: Lists
    noted: Flags


def own_results(
    templates: Sequence[TimedTemplate],
    boxes: TemplateBoxes,
    streams: Sequence[int],
    kinds: Integers,
    of: Integers,
    base: Integers,
    numbers: Integers,
    independent: Integers,
) -> OwnResults:
    """What instructions of a program take from earlier ones of their own engine.

    `streams`: where each stream begins, and the last ends. `kinds`, `of` and `base`: of each
    instruction its kind, its template, and where its `numbers` begin. The `independent` ones are
    taken to need nothing.
    """
    computing = kinds == e.COMPUTE
    computes = np.flatnonzero(computing)
    consumers, begin, end = _candidates(streams, kinds, computing, computes)
    kept = begin < end
    if independent.size:
        kept &= ~(np.isin(consumers, independent) & computing[consumers])
    consumers, begin, end = consumers[kept], begin[kept], end[kept]
    flags = np.zeros_like(consumers)
    transfers = [int(t.kind == e.DMA) for t in templates]
    reduces = [int(t.kind == e.COMPUTE and _reduces(t.instruction)) for t in templates]
    lingers = [int(t.drain > t.interval) for t in templates]
    by_template = [np.array(column, np.int64) for column in (transfers, reduces, lingers)]
    _look_back(
        numbers.size, consumers, begin, end, computes, of, base, numbers, *by_template, boxes.at,
        *boxes.columns, flags,
    )  # fmt: skip
    size = kinds.size
    noted = np.zeros(size, np.bool_)
    results = _lists(size, flags, _LAST, consumers, begin, computes, noted)
    firsts = _lists(size, flags, _FIRST, consumers, begin, computes, noted)
    return OwnResults(results, firsts, noted)


def _candidates(
    streams: Sequence[int], kinds: Integers, computing: Flags, computes: Integers
) -> tuple[Integers, Integers, Integers]:
    """Instructions that may take data from others: which, and from where to where in `computes`
    those are. What the end of one round of a loop gives to the beginning of the next comes last."""
    consumers = np.flatnonzero(computing | (kinds == e.DMA))
    end: Integers = np.cumsum(computing)[consumers] - computing[consumers]
    edges = np.searchsorted(computes, np.asarray(streams))
    own = np.searchsorted(np.asarray(streams), consumers, "right") - 1
    begin = np.maximum(end - LOOK_BACK, edges[own])
    extra: list[tuple[int, int, int]] = []
    for loop_begin, loop_end in _loops(kinds):
        low, high = np.searchsorted(consumers, (loop_begin, loop_end)).tolist()
        for position in range(min(high - low, LOOK_BACK)):
            consumer = int(consumers[low + position])
            earliest = int(consumers[low + max(0, high - low + position - LOOK_BACK)])
            first, last = np.searchsorted(computes, (max(consumer, earliest), loop_end)).tolist()
            extra.append((consumer, first, last))
    if not extra:
        return consumers, begin, end
    more = np.array(extra, np.int64).T
    return (
        np.append(consumers, more[0]),
        np.append(begin, more[1]),
        np.append(end, more[2]),
    )


def _loops(kinds: Integers) -> list[tuple[int, int]]:
    """Where loops begin and end, inner ones first."""
    found, opened = [], list[int]()
    for index in np.flatnonzero((kinds == e.LOOP_BEGIN) | (kinds == e.LOOP_END)).tolist():
        if kinds[index] == e.LOOP_BEGIN:
            opened.append(index)
        elif opened:
            found.append((opened.pop(), index))
    return found


def _lists(
    size: int,
    flags: Integers,
    bits: int,
    consumers: Integers,
    begin: Integers,
    computes: Integers,
    noted: Flags,
) -> Lists:
    """Of each of `size` instructions the producers whose flags are set from bit `bits` on, which
    are `noted`."""
    needing, needed = [], []
    for candidate in range(LOOK_BACK):
        rows = np.flatnonzero(flags & (bits << candidate))
        if rows.size:
            needing.append(consumers[rows])
            needed.append(computes[begin[rows] + candidate])
    if not needing:
        return Lists(np.zeros(size + 1, np.int64), np.zeros(0, np.int64))
    consumer, producer = np.concatenate(needing), np.concatenate(needed)
    noted[producer] = True
    order = ordered(consumer)
    return Lists(starts_of(np.bincount(consumer, minlength=size)), producer[order])


def _reduces(instruction: Instruction) -> bool:
    """Whether an instruction writes less than it reads, so that its first result comes last."""
    row, values = instruction.row, instruction.values
    read, written = (
        [elements(values[i]) for i in positions if isinstance(values[i], AccessPattern)]
        for positions in (row.reads, row.writes)
    )
    return min(written, default=0) < max(read, default=0)


@jit_when_long("flags")
def _look_back(
    consumers: Any, begin: Any, end: Any, computes: Any, of: Any, base: Any, numbers: Any,
    transfers: Any, reduces: Any, lingers: Any, at: Any, memory: Any, first: Any, last: Any,
    start: Any, stop: Any, moved_by: Any, flags: Any,
) -> None:  # fmt: skip
    """Enter into `flags` which of its candidates each consumer needs the last, or the first result
    of."""
    for row in range(len(consumers)):
        consumer = consumers[row]
        mine = of[consumer]
        for candidate in range(begin[row], end[row]):
            producer = computes[candidate]
            other = of[producer]
            # The first elements need the last ones of a producer that reduces, or that wrote what
            # the consumer broadcasts. Others matter where results come later than the next issue.
            whole = transfers[mine] != 0 or reduces[other] != 0
            if whole or lingers[other] != 0:
                from_box = at[3 * mine]
            else:
                from_box = at[3 * mine + 1]
            found = 0
            for box in range(from_box, at[3 * mine + 2]):
                if found == 1:
                    break
                column = whole or box >= at[3 * mine + 1]
                if found and not column:
                    continue
                low, high = start[box], stop[box]
                if moved_by[box] >= 0:
                    low += numbers[base[consumer] + moved_by[box]]
                    high += numbers[base[consumer] + moved_by[box]]
                for written in range(at[3 * other + 2], at[3 * other + 3]):
                    if memory[written] != memory[box]:
                        continue
                    if first[written] >= last[box] or first[box] >= last[written]:
                        continue
                    move = 0
                    if moved_by[written] >= 0:
                        move = numbers[base[producer] + moved_by[written]]
                    if start[written] + move < high and low < stop[written] + move:
                        found = 1 if column else 2
                        break
            if found == 1:
                flags[row] |= _LAST << (candidate - begin[row])
            elif found == 2:
                flags[row] |= _FIRST << (candidate - begin[row])
