"""Conflicting accesses of an expanded program, and whether the clocks order them.

All accesses are compared at once: their memories are cut into cells (`isa.columns.cells`). In each
cell every access must come after the last write before it, and every write after the reads since
the one before. As "comes after" is transitive, so do all conflicting accesses then. Boxes stand for
what they hold, and where there are many of them for somewhat more. So a cell in which that fails is
looked at again, region by region, with the bytes that each of them really has.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Flags, Integers, counted, distinct, elements, joined, ordered, starts_of
from isa.columns.cells import Grid, coarsened, decisive_pairs
from simulator.races.boxes import RegionColumns
from simulator.races.clocks import Clocks, ExpansionSteps
from simulator.races.prepare import Prepared, TemplateOperands
from simulator.races.regions import OverlapCache

_PAIRS = 1 << 22
"""Pairs that are compared at a time."""


class Pairs(NamedTuple):
    """Conflicting accesses without an order: the earlier and the later one of each pair."""

    earlier: Integers
    later: Integers


class StepAccesses:
    """The accesses of the steps of an expansion.

    By access: its `step`, number `box` among `boxes`, whether it writes, and which `operand` of
    `operands` it is: those of `prepared` that may race, or others.
    """

    def __init__(
        self, prepared: Prepared, steps: ExpansionSteps, operands: TemplateOperands | None = None
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
        self.boxes = RegionColumns(
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
        """Unordered conflicting accesses of some cells, as the newer ones come. Of those of one
        stream to one region, all writes or all reads, the last before each newer access."""
        steps = self._steps
        for older, newer in self._candidates(cell, access, time):
            meet = self._meet(self.box[older], self.box[newer])
            older, newer = older[meet], newer[meet]
            before, after = time[self.step[older]], time[self.step[newer]]
            stream = steps.stream[self.step[older]]
            latest = np.argsort(-before, kind="stable")
            alike = joined([newer, self.box[older], stream, self.write[older] * 1])[latest]
            last = latest[distinct(alike).first]
            found = last[np.lexsort((before[last], after[last]))]
            yield Pairs(older[found], newer[found])

    def _candidates(
        self, cell: Integers, access: Integers, time: Integers
    ) -> Iterator[tuple[Integers, Integers]]:
        """Pairs of accesses to one cell that are in no order, and of which one writes; in batches.

        Of a stream an engine knows all events up to one. Those to a cell that it does not know, and
        that come before an access, stand together in their order: two searches find where.
        """
        steps, step = self._steps, self.step[access]
        stream, epoch, write = steps.stream[step], steps.epoch[step], self.write[access]
        now = distinct(time[step]).which
        ticks, epochs = int(now.max()) + 1, int(epoch.max()) + 1
        in_order = np.lexsort((now, cell))
        runs = []
        for source in distinct(stream).values.tolist():
            events = in_order[stream[in_order] == source]
            for writes in (False, True):
                old = events if writes else events[write[events]]
                new = np.flatnonzero((steps.engine[step] != source) & (write == writes))
                known = np.minimum(self._rows[self._row[step[new]], source], epochs - 1)
                begin = np.searchsorted(
                    cell[old] * epochs + epoch[old], cell[new] * epochs + known, "right"
                )
                end = np.searchsorted(cell[old] * ticks + now[old], cell[new] * ticks + now[new])
                some = np.flatnonzero(end > begin)
                runs.append((old, new[some], begin[some], (end - begin)[some]))
        bases = starts_of(np.array([run[0].size for run in runs], np.int64)).tolist()
        old = np.concatenate([run[0] for run in runs])
        new = np.concatenate([run[1] for run in runs])
        begin = np.concatenate([run[2] + base for run, base in zip(runs, bases)])
        many = np.concatenate([run[3] for run in runs])
        rows = ordered(now[new])
        ends = np.flatnonzero(np.diff(np.cumsum(many[rows]) // _PAIRS, append=-1)) + 1
        for first, last in pairwise([0, *ends.tolist()]):
            mine = rows[first:last]
            row, within = counted(many[mine])
            yield access[old[begin[mine][row] + within]], access[new[mine][row]]

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
