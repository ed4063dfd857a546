"""Which accesses of an expanded program conflict, and whether the clocks order them.

All accesses are compared at once: their memories are cut into cells (`isa.cells`), and in each cell
every access must come after the last write before it, and every write after the reads since the one
before. As "comes after" is transitive, so do all conflicting accesses then. Boxes stand for what
they hold, and where there are many of them for somewhat more; so a cell in which that fails is
looked at again, region by region, with the bytes that each of them really has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from isa.cells import Grid, coarsened, decisive_pairs
from isa.columns import Flags, Integers, counted, distinct, elements, joined, ordered, starts_of
from simulator.checks.boxes import Boxes
from simulator.checks.clocks import Clocks, Steps
from simulator.checks.prepare import OperandColumns, Prepared
from simulator.checks.regions import OverlapCache

_PAIRS = 1 << 22
"""Pairs that are compared at a time."""


class Pairs(NamedTuple):
    """Conflicting accesses without an order: the earlier and the later one of each pair."""

    earlier: Integers
    later: Integers


class Accesses:
    """The accesses of the steps of an expansion.

    By access: its `step`, number `box` among `boxes`, whether it writes, and which `operand` of
    `operands` it is: those of `prepared` that may race, or others.
    """

    def __init__(
        self, prepared: Prepared, steps: Steps, operands: OperandColumns | None = None
    ) -> None:
        self._prepared = prepared
        self._steps = steps
        starts, pattern, column, write = operands or prepared.operands_of
        which, operand = elements(starts, steps.template)
        instruction = steps.instruction[which]
        offset = prepared.offsets(instruction, column[operand])
        number = pattern[operand]
        offset, known = self._moved(which, number, offset)
        key = joined([number, offset - offset.min(initial=0), known])
        _, first, box = distinct(key)
        self.boxes = Boxes(
            prepared.layout, prepared.patterns, number[first], offset[first], known[first] != 0
        )
        kept = ~self.boxes.empty[box]
        self.step, self.box, self.operand = which[kept], box[kept], operand[kept]
        self.write = write[self.operand] != 0
        self.same_writes: dict[Any, bool] = {}
        """Of writes that several cores make, by key, whether these write the same."""
        self._cache = OverlapCache(prepared.layout)

    def _moved(
        self, step: Integers, number: Integers, offset: Integers
    ) -> tuple[Integers, Integers]:
        """Offsets with what registers add to them, and whether that is known; where it is not, the
        offset alone."""
        moved, known = offset.copy(), np.ones_like(number)
        patterns = [pattern.registers for pattern, _ in self._prepared.patterns]
        most = max(map(len, patterns), default=0)
        padded = [registers + ((-1, 0),) * (most - len(registers)) for registers in patterns]
        table = np.array(padded, np.int64).reshape(len(patterns), most, 2)
        for at in range(most):
            register, factor = table[number, at].T
            mine = np.flatnonzero(register >= 0)
            value, told = self._steps.expansion.registers(step[mine], register[mine])
            moved[mine] += value * factor[mine]
            known[mine] &= told
        return np.where(known, moved, offset), known

    def unordered(self, clocks: Clocks) -> Iterator[Pairs]:
        """Conflicting accesses that nothing orders: of those to one region the last, in the order
        in which they were found; those of many cells in several batches."""
        if not self.step.size:
            return
        turn = clocks.by_step(clocks.turn)
        self._row = clocks.by_step(clocks.row)
        self._rows = clocks.rows
        time = joined([turn + 1, np.arange(turn.size)])
        ran = np.flatnonzero(turn[self.step] >= 0)
        order = ran[ordered(time[self.step[ran]])]
        columns = coarsened(self.boxes.columns, np.bincount(self.box))
        entry, cell = Grid(columns).entries(self.box[order])
        access = order[entry]
        old, new = decisive_pairs(cell, self.write[access])
        late = self._late(self.step[access[old]], self.step[access[new]])
        if late.any():
            doubtful = np.zeros(int(cell[-1]) + 1, np.bool_)
            doubtful[cell[old[late]]] = True
            kept = doubtful[cell]
            yield from self._exactly(cell[kept], access[kept], time)

    def _late(self, old: Integers, new: Integers) -> Flags:
        """Whether steps come in no order: the engine of the newer one does not know of the end of
        the older one."""
        steps = self._steps
        stream = steps.stream[old]
        apart = stream != steps.engine[new]
        unknown = self._rows[self._row[new], stream] < steps.epoch[old]
        return apart & unknown & (old != new)

    def _exactly(self, cell: Integers, access: Integers, time: Integers) -> Iterator[Pairs]:
        """Unordered conflicting accesses of some cells. Accesses are of one class that have the
        same region, are of one stream of events, and both write or both read."""
        steps = self._steps
        one, which = distinct(access)[::2]
        key = joined([self.box[one], steps.stream[self.step[one]], self.write[one] * 1])
        _, first, kind = distinct(key)
        # The accesses of each class in their order; of a class the last before each of another.
        now = distinct(time[self.step[one]]).which
        span = int(now.max()) + 2
        sequence = ordered(kind * span + now)
        rank = (kind * span + now)[sequence]
        starts = starts_of(np.bincount(kind, minlength=first.size))
        for left, right in self._classes(cell, kind[which], one[first], np.diff(starts)):
            pair, member = elements(starts, right)
            newer = sequence[member]
            place = np.searchsorted(rank, left[pair] * span + now[newer]) - 1
            there = np.flatnonzero(place >= starts[left[pair]])
            older, newer = one[sequence[place[there]]], one[newer[there]]
            late = self._late(self.step[older], self.step[newer])
            late[late] = self._meet(self.box[older[late]], self.box[newer[late]])
            older, newer = older[late], newer[late]
            found = np.lexsort((time[self.step[older]], time[self.step[newer]]))
            yield Pairs(older[found], newer[found])

    def _classes(
        self, cell: Integers, kind: Integers, sample: Integers, uses: Integers
    ) -> Iterator[tuple[Integers, Integers]]:
        """Pairs of classes that have a cell in common and may be in no order, both ways around, in
        batches; `sample` is an access of each class, `uses` how many it has."""
        kinds = sample.size
        cells, member = np.divmod(distinct(cell * kinds + kind).values, kinds)
        sizes = np.diff(starts_of(np.bincount(distinct(cells).which)))
        starts = starts_of(sizes)
        batch = np.cumsum(sizes * sizes) // _PAIRS
        for part in distinct(batch).values.tolist():
            mine = np.flatnonzero(batch == part)
            number, within = counted(sizes[mine] * sizes[mine])
            a, b = np.divmod(within, sizes[mine][number])
            base = starts[mine][number]
            left, right = np.divmod(
                distinct(self._conflicting(member[base + a], member[base + b], sample)).values,
                kinds,
            )
            ends = np.flatnonzero(np.diff(np.cumsum(uses[right]) // _PAIRS, append=-1))
            for begin, end in pairwise([0, *(ends + 1).tolist()]):
                yield left[begin:end], right[begin:end]

    def _conflicting(self, left: Integers, right: Integers, sample: Integers) -> Integers:
        """Pairs of classes of which one writes, and whose streams do not order them."""
        steps = self._steps
        a, b = sample[left], sample[right]
        conflict = self.write[a] | self.write[b]
        apart = steps.stream[self.step[a]] != steps.engine[self.step[b]]
        kept = conflict & apart
        return left[kept] * sample.size + right[kept]

    def _meet(self, left: Integers, right: Integers) -> Flags:
        """Whether regions share a byte."""
        boxes = self.boxes
        _, row0, row1, column0, column1 = boxes.columns.T
        meet = (row0[left] < row1[right]) & (row0[right] < row1[left])
        meet &= (column0[left] < column1[right]) & (column0[right] < column1[left])
        meet &= boxes.columns[left, 0] == boxes.columns[right, 0]
        unclear = np.flatnonzero(meet & ~(boxes.exact[left] & boxes.exact[right]))
        if not unclear.size:
            return meet
        # Moved alike, regions meet as before.
        _, first, which = distinct(boxes.distances(left[unclear], right[unclear]))
        outcome = np.zeros(first.size, np.bool_)
        for number, place in enumerate(unclear[first].tolist()):
            one, other = boxes.region(int(left[place])), boxes.region(int(right[place]))
            assert one is not None and other is not None
            outcome[number] = self._cache.meet(one, other)
        meet[unclear] = outcome[which]
        return meet
