"""Packs the streams of a program into the records that the native loop walks.

The uses of a template, which differ in offsets and in waits and updates alone, are rows of one
block; equal ones share a row. What native code does not do for an instruction is left to
`Preparation.action`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.access import AccessPattern
from isa.alu import AluOperator, ScalarEngineFunction
from isa.columns import Flags, Integers
from isa.columns import places as grouped
from isa.errors import NeuronError
from isa.files.stream import Pairs
from isa.machine import control
from isa.spec import Instruction
from simulator import native
from simulator.by_identity import ByIdentity
from simulator.checks.engine_marks import EngineMarks
from simulator.checks.initialised import Shadow
from simulator.checks.regions import States
from simulator.native.codegen.structure import WordMemory
from simulator.native.loop.arrangement import (
    OperandLayout,
    arrangement,
    distinct_rows,
    picked,
    stand_in,
    touched,
)
from simulator.native.loop.block import RecordBlock, found_region, known_region, living, whole_of
from simulator.native.loop.control_records import FORMS, ControlRecords
from simulator.native.loop.draft import ANYWHERE, Drafting, Members
from simulator.native.loop.meetings import MeetingTable, exchanged
from simulator.native.loop.operands import OPERAND, REFERENCE
from simulator.native.loop.shared import SharedTemplates
from simulator.native.loop.template import RecordTemplate
from simulator.native.loop.walk import KINDS, RECORD
from simulator.native.plans.plan import Bound
from simulator.native.plans.table import touch
from simulator.native.rows.meaning import planner_of
from simulator.straight_line import UseKind
from simulator.views import Window

if TYPE_CHECKING:
    from simulator.prepare import Preparation


_FETCHES = RECORD.indices["fetches"]

_SEMAPHORES = slice(RECORD.indices["waits"], RECORD.indices["updates_count"] + 1)
"""Where a record has waits and updates, each with its count."""


class RecordPacking:
    """The records of one stream. `marks` are those of its core's engines. `threads` may share jobs;
    whether there are any to share is in `shares`, and the work of those that are queued in
    `queued_work`. `tensors` are the `TENSOR`s of all streams by their buffer, `meetings` those of
    all cores. `native` says of each instruction whether native code does all that it computes or
    moves.

    `locate(index)` looks for the regions in which the operands of an instruction lie now, before
    Python executes it; `learn(index)` takes over behind it what began there.
    """

    def __init__(
        self,
        preparation: Preparation,
        memory: WordMemory,
        states: States,
        marks: EngineMarks,
        shared: SharedTemplates,
        tensors: ByIdentity[int],
        threads: int,
        meetings: MeetingTable,
    ) -> None:
        self._preparation = preparation
        self._meetings = meetings
        self._stream = preparation.stream
        self._uses = preparation.uses
        self._memory = memory
        self._states = states
        self._marks = marks
        self._common = shared
        self._elision = preparation.elision
        self._tensors = tensors
        self._threads = threads
        self.shares = False
        self.queued_work = 0
        self._blocks: list[RecordBlock] = []
        # By instruction, where its computation is: the number of a block, and which use of it.
        self._block, self._use = np.full((2, len(self._uses)), -1)
        self.native = np.zeros(len(self._uses), np.bool_)
        # Instructions with words of their own.
        self._separated: set[int] = set()
        self.control = ControlRecords(preparation, memory, states, shared, meetings)
        self._begin = np.full(len(self._uses), -1)
        # Where addresses are, by the buffer.
        self._addresses: ByIdentity[list[tuple[Integers, list[int]]]] = ByIdentity()
        # The first instruction of each group of them that is refused, and why.
        self._refused: list[tuple[int, NeuronError]] = []
        self.words = np.zeros((len(self._uses) + 1, len(RECORD.names)), np.int64)
        memory.keep(self.words)
        self._pack()

    # Records

    def _pack(self) -> None:
        for key in range(len(self._uses.templates)):
            self._pack_template(key)
        if self._refused:
            self._stream.pc, error = min(self._refused, key=itemgetter(0))
            self._stream.failed = True
            self._refused.clear()
            try:
                raise error
            finally:
                del error  # else the error's traceback and this frame hold each other
        amounts = np.array(
            [[*self._amounts(w), *self._amounts(u)] for w, u in self._uses.columns.semaphores]
        ).reshape(-1, 4)
        self.words[:-1, _SEMAPHORES] = amounts[self._uses.semaphores()]
        fetches = np.array([self._stream.fetches(one) for one in self._uses.templates], np.int64)
        self.words[:-1, _FETCHES] = fetches[self._uses.columns.order]
        # A stream that ends without Halt halts there.
        self.words[-1] = RECORD.words(kind=KINDS.index("halt"))

    def _amounts(self, amounts: Pairs) -> tuple[int, int]:
        """Where a table of amounts is, and how many there are."""
        return self._memory.table([word for pair in amounts for word in pair]), len(amounts)

    def _pack_template(self, key: int) -> None:
        """The records of the uses of a template."""
        template, places = self._uses.templates[key], self._uses.places[key]
        row = template.row
        unset = self._preparation.unset
        if unset:
            # Python sees to it that the registers hold values.
            held = np.isin(places, [*unset])
            self._leave_to_python(places[held])
            uses = np.flatnonzero(~held)
        else:
            uses = np.arange(places.size)
        if not uses.size:
            return
        if self._elision.kinds[key].idle:
            self.words[places] = RECORD.words(kind=KINDS.index("nothing"))
            self.native[places] = True
        elif row.name in FORMS:
            self._pack_control(key, uses)
        elif not row.control or row.meets or planner_of(row) is not None:
            self._pack_computations(key, uses)
        else:
            self._leave_to_python(places[uses])

    def _leave_to_python(self, places: Integers) -> None:
        """Python executes these instructions: what it looks at is checked now, as for others."""
        for index in places.tolist():
            try:
                self._preparation.action(index)
            except NeuronError as error:
                self._refused.append((index, error))
                return

    def _pack_control(self, key: int, uses: Integers) -> None:
        places, row = self._uses.places[key], self._uses.templates[key].row
        if row is control.LoopBegin or row is control.LoopEnd:
            groups = [[use] for use in uses.tolist()]  # each is told from the others
        else:
            which = distinct_rows(self._uses.offsets(key)[uses]).which
            groups = [uses[alike].tolist() for alike in grouped(which, int(which.max()) + 1)]
        for alike in groups:
            index = int(places[alike[0]])
            try:
                members = self.control.members(index, self._uses.instruction(key, alike[0]))
            except NeuronError as error:
                self._refused.append((index, error))
                continue
            if not members:
                self._leave_to_python(places[alike])
                continue
            self.words[places[alike]] = RECORD.words(**members)
            if row is control.StorageBegin:
                self._begin[places[alike]] = self.control.last_begin

    # Computing instructions

    def _pack_computations(self, key: int, uses: Integers) -> None:
        """The records of the uses of a template that computes or moves data."""
        places, offsets = self._uses.places[key], self._uses.offsets(key)
        holders = self._elision.holders[key]
        found = distinct_rows(np.concatenate([offsets[uses], holders[uses]], axis=1))
        # One use for each of those that are equal, and all of them.
        first = uses[found.first]
        equal = [places[uses[alike]] for alike in grouped(found.which, first.size)]
        try:
            layout = self._layout(self._uses.instruction(key, int(first[0])))
        except NeuronError as error:
            self._refused.append((int(places[first[0]]), error))
            return
        inside = self._inside(key, first, layout)
        taken = self._taken(key, first)
        for use in np.flatnonzero(taken).tolist():
            self._leave_to_python(equal[use])
        rest = np.flatnonzero(inside & ~taken)
        if not rest.size:
            return
        columns = self._columns(key, layout)
        where = picked(offsets[first], columns, [window.offset for window in layout.windows])
        held = picked(holders[first], columns, [-1] * len(columns))
        if any(window.dynamic for window in layout.windows):
            groups = [rest[at : at + 1] for at in range(rest.size)]
        else:
            alike = distinct_rows(arrangement(layout.windows, where[rest]))
            groups = [rest[one] for one in grouped(alike.which, alike.first.size)]
        for group in groups:
            index, use = int(equal[group[0]][0]), int(first[group[0]])
            try:
                block = self._new_block(key, use, where[group], held[group])
            except NeuronError as error:
                self._refused.append((index, error))
                continue
            members = [equal[number] for number in group.tolist()]
            its = np.concatenate(members)
            if block is None:
                self._leave_to_python(its)
                continue
            use_of = np.repeat(np.arange(group.size), [one.size for one in members])
            self._block[its], self._use[its] = len(self._blocks), use_of
            self._blocks.append(block)
            self.words[its] = block.records[use_of]
            self.native[its] = True

    def _layout(self, instruction: Instruction) -> OperandLayout:
        """What an instruction does but for the offsets of its operands, and their windows. Raises
        NeuronError for one outside its memory."""
        whole: list[tuple[int, Window]] = []
        key: list[Any] = [instruction.row, instruction.engine]
        for position, value in enumerate(instruction.values):
            if type(value) is AccessPattern:
                window = self._preparation.window(instruction, value)
                whole.append((position, window))
                key.append((AccessPattern, self._common.layout(window)))
            elif isinstance(value, (AluOperator, ScalarEngineFunction)):
                key.append(value.name)
            else:
                key += (type(value), value)
        positions, windows = [], []
        for position, window in touched(touch(instruction), whole):
            positions.append(position)
            windows.append(window)
        return OperandLayout(tuple(key), whole, positions, windows)

    def _inside(self, key: int, uses: Integers, layout: OperandLayout) -> Flags:
        """Which uses have all operands inside their memories; of others the first is refused."""
        inside = np.ones(uses.size, np.bool_)
        moving, offsets = self._uses.moving[key], self._uses.offsets(key)[uses]
        for position, window in layout.whole:
            if position in moving and not window.dynamic and 0 not in window.shape:
                offset = offsets[:, moving.index(position)]
                inside &= offset + window.low >= window.floor
                inside &= offset + window.high <= window.limit
        if not inside.all():
            first = uses[~inside].min()
            try:
                self._layout(self._uses.instruction(key, int(first)))
            except NeuronError as error:
                self._refused.append((int(self._uses.places[key][first]), error))
        return inside

    def _taken(self, key: int, uses: Integers) -> Flags:
        """Which uses are compared with those of other cores, by Python."""
        replicated = self._preparation.replicated
        if replicated is None or not (replicated.keys or replicated.accesses.tensors):
            return np.zeros(uses.size, np.bool_)
        takes = (replicated.takes(self._uses.instruction(key, use)) for use in uses.tolist())
        return np.fromiter(takes, np.bool_, uses.size)

    def _columns(self, key: int, layout: OperandLayout) -> list[int]:
        """By operand that is touched, its place among those that move, -1 for others."""
        moving = self._uses.moving[key]
        return [moving.index(p) if p in moving else -1 for p in layout.positions]

    def _new_block(
        self, key: int, use: int, offsets: Integers, holders: Integers
    ) -> RecordBlock | None:
        """The block of uses that are arranged as one of them; None where Python executes them."""
        instruction, kind = self._uses.instruction(key, use), self._elision.kinds[key]
        layout = self._layout(instruction)
        identity = layout.key, kind, *arrangement(layout.windows, offsets[:1])[0].tolist()
        templates = self._common.templates
        if identity not in templates:
            templates[identity] = self._template(instruction, kind)
        template = templates[identity]
        if template is None:
            return None
        block = RecordBlock(template, layout.windows, offsets, holders, self._memory)
        self.queued_work += template.work * len(offsets)
        for window, indices in block.noted():
            noted = self._addresses.setdefault(window.buffer, [])
            noted.append((block.words, indices))
        return block

    def _template(self, instruction: Instruction, kind: UseKind) -> RecordTemplate | None:
        """What instructions of a kind have in common that are laid out as this one; None where
        Python executes them."""
        row, preparation = instruction.row, self._preparation
        operands = preparation.operands(instruction)
        # Where registers are, and not what they hold, is for good.
        if (operands.numbers and not row.control) or operands.stages:
            return None
        if any(window.moved for _, window in operands.windows):
            return None
        values = list(operands.values)
        for position, window in operands.windows:
            if window.dynamic:
                values[position] = stand_in(window)
        state = self._stream.state
        # Control instructions are about the registers of whoever fetches them.
        engine = self._stream.engine if row.control else instruction.engine
        state.engine, state.start_partition = engine, preparation.first_partition(instruction)
        if row.meets:
            brought = exchanged(preparation, instruction, values, self._meetings)
            if brought is None:
                return None
            bound: Any = brought.bound
            members: Members = {"kind": KINDS.index("exchange"), "target": brought.place}
        else:
            found = native.plan(row, engine, values)
            bound = None if found is None else found.bind(state, values)
            if not isinstance(bound, Bound):
                return None
            members = {
                "kind": KINDS.index("compute"),
                "event": found.result if found and row.asynchronous and operands.recorded else -1,
            }
        self._memory.keep(bound)
        placed = list(touched(touch(instruction), operands.windows))
        given = self._memory, state, self._threads, self._tensors, placed, kind.unread
        drafting = Drafting(*given)
        if not kind.spared:
            members |= drafting.jobs(bound)
        self.shares |= drafting.shares
        checks = self._checks(instruction, values, drafting)
        if checks is None:
            return None
        members |= checks
        return drafting.template(members)

    def move(self, old: Any, new: Any) -> None:
        """A tensor is in another buffer from now on."""
        noted = self._addresses.pop(old, [])
        if noted:
            distance = new.ctypes.data - old.ctypes.data
            for words, indices in noted:
                words[:, indices] += distance
            self._addresses[new] = noted
        for block in self._blocks:
            block.move(old, new)
        self._preparation.forget(self._block >= 0)

    def _checks(
        self, instruction: Instruction, values: Sequence[Any], drafting: Drafting
    ) -> Members | None:
        """What has to be initialised, and what then is; None where Python has to follow."""
        row = instruction.row
        reads, writes = [], []
        overwrites = False
        if row.state:
            first = (*row.writes, *row.reads)[0]
            start = self._preparation.first_partition(instruction)
            used = self._marks.use(
                row, instruction.engine, values, start, instruction.values[first].partitions
            )
            if used is None:
                return None
            region, effect = used
            overwrites = effect.overwrites
            words = self._memory.words(
                OPERAND.words(
                    region=region, region_lowest=-ANYWHERE, region_highest=ANYWHERE, full=1
                )
            )
            reference = REFERENCE.words(operand=ctypes.addressof(words))
            reads += reference * effect.reads
            writes += reference * effect.writes
        written = [position for position in drafting.operands if position in row.writes]
        part = touch(instruction)
        over = written if overwrites else [] if part is None else [part.position]
        # Where rows are written that indices pick, the others have to be initialised already.
        picked = {~position for position in drafting.operands}
        seen = [
            position
            for position in drafting.operands
            if (position in row.reads and not (position in written and position in over))
            or position < 0
            or position in picked
        ]
        return {
            **drafting.table("reads", [*reads, *drafting.references(seen)], REFERENCE),
            **drafting.table("writes", [*writes, *drafting.references(written)], REFERENCE),
        }

    def mark(self, shadow: Shadow) -> None:
        """Tell all operands where their marks are."""
        for block in self._blocks:
            block.mark(self._common.boxes, shadow)

    def locate(self, index: int) -> bool:
        """Look for the living regions of what the instruction at `index` computes with, as of
        allocations that take turns in a place one knows only now which it is. Whether they are
        others than was known, so that native code can go on."""
        number, shadow = self._block[index], self._preparation.shadow
        if number < 0 or shadow is None:
            return False
        block, use = self._blocks[number], int(self._use[index])
        places = block.operands(use)
        found = [living(place, shadow) for place in places]
        known = [known_region(place) for place in places]
        numbers = [0 if region is None else region.number for region in found]
        if 0 in numbers or numbers == known:
            return False
        if any(before not in (0, now) for before, now in zip(known, numbers)):
            # Others with equal operands find them in other regions, as allocations take turns in
            # the same memory.
            if index not in self._separated:
                block = self._separate(index, block, use)
                places = block.operands()
        picked = {~place.position for place in places}
        for place, region in zip(places, found):
            assert region is not None
            full = place.position not in picked and whole_of(place.window, region)
            found_region(place, region, full)
        return True

    def learn(self, index: int) -> None:
        """An allocation has begun at `index` where Python saw to it."""
        begun = self._preparation.begun.get(index)
        if begun is None:
            return
        if self._begin[index] >= 0:
            self.control.begins(int(self._begin[index]), begun)
        # A region that is new is a rival of those that it meets.
        for other in (begun, *begun.rivals):
            self._common.name_rivals(other)

    def _separate(self, index: int, block: RecordBlock, use: int) -> RecordBlock:
        """Words of its own for an instruction."""
        self._separated.add(index)
        own = block.apart(use, self._memory)
        for window, indices in own.noted():
            self._addresses.setdefault(window.buffer, []).append((own.words, indices))
        kept = self.words[index, _SEMAPHORES].copy(), self.words[index, _FETCHES]
        self.words[index] = own.records[0]
        self.words[index, _SEMAPHORES], self.words[index, _FETCHES] = kept
        self._block[index], self._use[index] = len(self._blocks), 0
        self._blocks.append(own)
        return own
