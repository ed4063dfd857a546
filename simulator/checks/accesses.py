"""Which accesses of an expanded program conflict, and whether the clocks order them.

All accesses are compared at once: their memories are cut into cells (`isa.cells`), and in each cell
every access must come after the last write before it, and every write after the reads since the one
before. As "comes after" is transitive, so do all conflicting accesses then. Boxes stand for what
they hold, and where there are many of them for somewhat more; so a cell in which that fails is
looked at again, region by region, with the bytes that each of them really has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from isa.cells import Grid, coarsened, decisive_pairs
from isa.columns import Flags, Integers, counted, distinct, elements, joined, ordered, starts_of
from simulator.checks.boxes import Boxes
from simulator.checks.clocks import Clocks, Steps
from simulator.checks.prepare import Prepared
from simulator.checks.regions import OverlapCache

_CLASSES = 1 << 22
"""Pairs of regions that are compared at a time."""


class Pairs(NamedTuple):
    """Conflicting accesses without an order: the earlier and the later one of each pair."""

    earlier: Integers
    later: Integers


class Accesses:
    """The accesses of the steps of an expansion.

    By access: its `step`, number `box` among `boxes`, and whether it writes.
    """

    def __init__(self, prepared: Prepared, steps: Steps) -> None:
        self._prepared = prepared
        self._steps = steps
        starts, pattern, column, write = prepared.operands_of
        which, operand = elements(starts, steps.template)
        instruction = steps.instruction[which]
        offset = prepared.offsets(instruction, column[operand])
        number = pattern[operand]
        known = self._move(which, number, offset)
        key = joined([number, offset - offset.min(initial=0), known])
        _, first, box = distinct(key)
        self.boxes = Boxes(
            prepared.layout, prepared.patterns, number[first], offset[first], known[first] != 0
        )
        kept = ~self.boxes.empty[box]
        self.step, self.box, self.write = which[kept], box[kept], write[operand][kept] != 0
        self._cache = OverlapCache(prepared.layout)
        self._meetings: dict[tuple[int, int], bool] = {}

    def _move(self, step: Integers, number: Integers, offset: Integers) -> Integers:
        """Add registers to offsets; whether each is known then."""
        known = np.ones_like(number)
        patterns = [pattern.registers for pattern, _ in self._prepared.patterns]
        most = max(map(len, patterns), default=0)
        padded = [registers + ((-1, 0),) * (most - len(registers)) for registers in patterns]
        table = np.array(padded, np.int64).reshape(len(patterns), most, 2)
        for at in range(most):
            register, factor = table[number, at].T
            mine = np.flatnonzero(register >= 0)
            value, told = self._steps.expansion.registers(step[mine], register[mine])
            offset[mine] += value * factor[mine]
            known[mine] &= told
        offset[known == 0] = 0
        return known

    def unordered(self, clocks: Clocks) -> Pairs:
        """Conflicting accesses that nothing orders: of those to one region the last, in the order
        in which they were found."""
        if not self.step.size:
            return Pairs(self.step, self.step)
        turn = clocks.by_step(clocks.turn)
        self._row = clocks.by_step(clocks.row)
        self._rows = clocks.rows
        key = joined([turn + 1, np.arange(turn.size)])
        ran = np.flatnonzero(turn[self.step] >= 0)
        order = ran[ordered(key[self.step[ran]])]
        columns = coarsened(self.boxes.columns, np.bincount(self.box))
        entry, cell = Grid(columns).entries(self.box[order])
        access = order[entry]
        old, new = decisive_pairs(cell, self.write[access])
        late = self._late(self.step[access[old]], self.step[access[new]])
        if not late.any():
            return Pairs(old[:0], new[:0])
        doubtful = np.zeros(int(cell[-1]) + 1, np.bool_)
        doubtful[cell[old[late]]] = True
        kept = doubtful[cell]
        return self._exactly(cell[kept], access[kept], key)

    def _late(self, old: Integers, new: Integers) -> Flags:
        """Whether steps come in no order: no event of the newer one's engine's knowledge is the end
        of the older one."""
        steps = self._steps
        stream = steps.stream[old]
        apart = stream != steps.engine[new]
        unknown = self._rows[self._row[new], stream] < steps.epoch[old]
        return apart & unknown & (old != new)

    def _exactly(self, cell: Integers, access: Integers, key: Integers) -> Pairs:
        """Unordered conflicting accesses of some cells. Accesses are of one class that have the
        same region, are of one stream of events, and both write or both read."""
        steps = self._steps
        one, which = np.unique(access, return_inverse=True)
        _, first, kind = distinct(
            joined([self.box[one], steps.stream[self.step[one]], self.write[one] * 1])
        )
        left, right = self._classes(cell, kind[which], one[first])
        # The accesses of each class in their order; of a class the last before each of another.
        rank = np.empty(one.size, np.int64)
        time = distinct(key[self.step[one]]).which
        rank[:] = kind * (int(time.max()) + 2) + time
        sequence = np.argsort(rank, kind="stable")
        ends = starts_of(np.bincount(kind, minlength=first.size))
        pair, member = elements(ends, right)
        newer = sequence[member]
        wanted = left[pair] * (int(time.max()) + 2) + time[newer]
        place = np.searchsorted(rank[sequence], wanted) - 1
        there = place >= ends[left[pair]]
        older, newer = one[sequence[place[there]]], one[newer[there]]
        late = self._late(self.step[older], self.step[newer])
        older, newer = older[late], newer[late]
        found = np.lexsort((key[self.step[older]], key[self.step[newer]]))
        return Pairs(older[found], newer[found])

    def _classes(
        self, cell: Integers, kind: Integers, sample: Integers
    ) -> tuple[Integers, Integers]:
        """Pairs of classes that meet in a cell and may be in no order, both ways around; `sample`
        is an access of each."""
        kinds = sample.size
        members = np.unique(cell * kinds + kind)
        cells, member = np.divmod(members, kinds)
        starts = starts_of(np.unique(cells, return_counts=True)[1])
        sizes = np.diff(starts)
        found = [np.zeros(0, np.int64)]
        batch = np.cumsum(sizes * sizes) // _CLASSES
        for part in np.unique(batch).tolist():
            mine = np.flatnonzero(batch == part)
            number, within = counted(sizes[mine] * sizes[mine])
            a, b = np.divmod(within, sizes[mine][number])
            base = starts[mine][number]
            a, b = member[base + a], member[base + b]
            found.append(np.unique(self._conflicting(a, b, sample, kinds)))
        left, right = np.divmod(np.unique(np.concatenate(found)), max(kinds, 1))
        meet = self._meet(self.box[sample[left]], self.box[sample[right]])
        return left[meet], right[meet]

    def _conflicting(
        self, left: Integers, right: Integers, sample: Integers, kinds: int
    ) -> Integers:
        """Pairs of classes of which one writes, and whose streams do not order them."""
        steps = self._steps
        a, b = sample[left], sample[right]
        conflict = self.write[a] | self.write[b]
        apart = steps.stream[self.step[a]] != steps.engine[self.step[b]]
        kept = conflict & apart
        return left[kept] * kinds + right[kept]

    def _meet(self, left: Integers, right: Integers) -> Flags:
        """Whether two regions share a byte."""
        boxes = self.boxes
        _, row0, row1, column0, column1 = boxes.columns.T
        meet = (row0[left] < row1[right]) & (row0[right] < row1[left])
        meet &= (column0[left] < column1[right]) & (column0[right] < column1[left])
        meet &= boxes.columns[left, 0] == boxes.columns[right, 0]
        unclear = np.flatnonzero(meet & ~(boxes.exact[left] & boxes.exact[right]))
        for number, a, b in zip(unclear.tolist(), left[unclear].tolist(), right[unclear].tolist()):
            pair = (a, b) if a < b else (b, a)
            outcome = self._meetings.get(pair)
            if outcome is None:
                one, other = boxes.region(a), boxes.region(b)
                assert one is not None and other is not None
                outcome = self._meetings[pair] = self._cache.meet(one, other)
            meet[number] = outcome
        return meet
