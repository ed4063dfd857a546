"""Packs the streams of a program into the records that the native loop walks.

Instructions with equal rows, attributes and operands share everything but their waits, updates and
locations. What native code does not do (yet) for an instruction is left to `Preparation.action`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.access import AccessPattern
from isa.alu import Activation, AluOperator
from isa.enums import Condition, RegisterOperation
from isa.errors import NeuronError
from isa.machine import control
from isa.program import RegisterReference
from isa.spec import Instruction
from simulator import native
from simulator.checks.marks import Box, Region, States, covers
from simulator.native.draft import ANYWHERE, Drafting, Members
from simulator.native.loop import BEGIN, CONDITIONS, KINDS, OPERATIONS, RECORD
from simulator.native.meetings import Meetings, exchanged
from simulator.native.operands import OPERAND, REFERENCE
from simulator.native.plan import Bound
from simulator.native.shared import Shared
from simulator.native.structure import Memory
from simulator.native.table import PLANNERS, Touch, touch
from simulator.native.template import Computation, Placed, Template
from simulator.native.text import WORD
from simulator.views import Indirect, Window

if TYPE_CHECKING:
    from simulator.checks.engine_marks import EngineMarks
    from simulator.checks.initialised import Shadow
    from simulator.prepare import Preparation

_OFFSET, _REGION, _LOWEST, _HIGHEST, _FULL, _SPACE, _UNIT, _BOX = (
    OPERAND.indices[name]
    for name in (
        *("offset", "region", "region_lowest", "region_highest", "full", "space", "unit", "box"),
    )
)
_STORAGE_BEGIN = KINDS.index("storage_begin")
_FETCHES = RECORD.indices["fetches"]
_WAITS, _UPDATES = (slice(RECORD.indices[n], RECORD.indices[n] + 2) for n in ("waits", "updates"))


class Packing:
    """The records of one stream. `marks` are those of its core's engines.
    `threads` may share jobs; whether there are any to share is in `shares`, and the work of those
    that are queued in `queued_work`. `tensors` are the `TENSOR`s of all streams by their buffer,
    `meetings` those of all cores.

    `locate(index)` looks for the regions in which the operands of an instruction lie now, before
    Python executes it; `learn(index)` takes over behind it what began there.
    """

    def __init__(
        self,
        preparation: Preparation,
        memory: Memory,
        states: States,
        marks: EngineMarks,
        shared: Shared,
        tensors: dict[int, int],
        threads: int,
        meetings: Meetings,
    ) -> None:
        self._preparation = preparation
        self._meetings = meetings
        self._stream = preparation.stream
        self._memory = memory
        self._states = states
        self._marks = marks
        self._common = shared
        self._tensors = tensors
        self._threads = threads
        self.shares = False
        self.queued_work = 0
        self._shared: list[Computation | None] = []
        # Windows and their layouts by the pattern.
        self._placed: dict[tuple[int, bool], tuple[tuple[Window, ...], list[Box | None], int]] = {}
        self._lists: dict[Any, tuple[int, int]] = {(): (0, 0)}
        # What instructions with these very values do.
        self._known: dict[tuple[Any, ...], Computation | None] = {}
        self._starts: dict[int, tuple[Window, int]] = {}
        # Instructions with operands of their own.
        self._separated: set[int] = set()
        self._begun: dict[int, tuple[Any, Window]] = {}
        # Where addresses are, and which instructions know one, by the buffer.
        self._addresses: dict[int, list[tuple[Any, int]]] = {}
        self._users: dict[int, list[int]] = {}
        self.words = self._pack()

    # Records

    def _pack(self) -> Any:
        words: list[int] = []
        instructions = self._stream.instructions
        for index, instruction in enumerate(instructions):
            try:
                words += self._record(index, instruction)
            except NeuronError:
                self._stream.pc, self._stream.failed = index, True
                raise
        # A stream that ends without Halt halts there.
        words += RECORD.words(kind=KINDS.index("halt"))
        return self._memory.words(words)

    def _record(self, index: int, instruction: Instruction) -> list[int]:
        row = instruction.row
        computation = None
        replicated = self._preparation.replicated
        pack = Packing._nothing if self._idle(instruction) else _CONTROL.get(row.name)
        members: dict[str, int] = {}
        if index in self._preparation.unset:
            pass  # Python sees to it that the registers hold values.
        elif pack is not None:
            members = pack(self, index, instruction)
        elif (not row.control or row.meets or row.name in PLANNERS) and (
            replicated is None or not replicated.takes(instruction)
        ):
            computation = self._computation(instruction)
        if not members and computation is None:
            # What it looks at is checked now, as for the others.
            self._preparation.action(index)
        self._shared.append(computation)
        if computation is None:
            return self._in_order(instruction, RECORD.words(**members))
        for buffer in computation.buffers:
            self._users.setdefault(buffer, []).append(index)
        return self._in_order(instruction, computation.record)

    def _idle(self, instruction: Instruction) -> bool:
        return id(instruction) in self._common.foresight.idle

    def _in_order(self, instruction: Instruction, words: list[int]) -> list[int]:
        """The words of a record with the instruction's waits and updates."""
        words = words.copy()
        words[_WAITS] = self._amounts(instruction.waits)
        words[_UPDATES] = self._amounts(instruction.updates)
        words[_FETCHES] = self._stream.fetches(instruction)
        return words

    def _amounts(self, amounts: tuple[tuple[int, int], ...]) -> tuple[int, int]:
        """Where a table of amounts is, and how many there are."""
        found = self._lists.get(amounts)
        if found is None:
            place = self._memory.table([word for pair in amounts for word in pair])
            found = self._lists[amounts] = place, len(amounts)
        return found

    # Computing instructions

    def _computation(self, instruction: Instruction) -> Computation | None:
        # Programs share values between instructions, and keep them alive.
        foresight = self._common.foresight
        values = (
            *(instruction.row, instruction.engine, *foresight.about(instruction)),
            *map(id, instruction.values),
        )
        if values not in self._known:
            self._known[values] = self._equal_computation(instruction)
        return self._known[values]

    def _equal_computation(self, instruction: Instruction) -> Computation | None:
        """The computation of the instructions that are equal to this one."""
        key, windows, holders = self._identity(instruction)
        offsets = [window.offset for window in windows]
        identity = key, tuple(offsets), tuple(holders)
        computations = self._common.computations
        if identity not in computations:
            computations[identity] = self._new_computation(instruction, key, windows, holders)
        return computations[identity]

    def _identity(
        self, instruction: Instruction
    ) -> tuple[tuple[Any, ...], list[Window], list[Box | None]]:
        """What an instruction does but for the offsets of its operands, their windows, and the
        allocations that they lie in."""
        about = self._common.foresight.about(instruction)
        key: list[Any] = [instruction.row, instruction.engine, *about]
        windows: list[Window] = []
        holders: list[Box | None] = []
        part = touch(instruction)
        partly = None if part is None else part.position
        for position, value in enumerate(instruction.values):
            if type(value) is AccessPattern:
                use = id(value), position == partly
                placed = self._placed.get(use)
                if placed is None:
                    window = self._preparation.window(instruction, value)
                    apart = tuple([each for _, each in _touched(part, [(position, window)])])
                    holder = self._common.foresight.holders.get(id(value))
                    layout = self._common.layout(window)
                    placed = self._placed[use] = apart, [holder] * len(apart), layout
                windows += placed[0]
                holders += placed[1]
                key.append((AccessPattern, placed[2]))
            elif isinstance(value, (AluOperator, Activation)):
                key.append(value.name)
            else:
                key += (type(value), value)
        return tuple(key), windows, holders

    def _new_computation(
        self,
        instruction: Instruction,
        key: tuple[Any, ...],
        windows: Sequence[Window],
        holders: Sequence[Box | None],
    ) -> Computation | None:
        """Words of their own for the operands of an instruction; None where Python executes it."""
        identity = key, _arrangement(windows)
        templates = self._common.templates
        if identity not in templates:
            templates[identity] = self._template(instruction)
        template = templates[identity]
        if template is None:
            return None
        computation = template.place(windows, holders)
        self._memory.keep(computation.words)
        self.queued_work += template.work
        for operand, indices in template.noted:
            noted = self._addresses.setdefault(id(windows[operand].buffer), [])
            noted += [(computation.words, index) for index in indices]
        return computation

    def _template(self, instruction: Instruction) -> Template | None:
        row, preparation = instruction.row, self._preparation
        operands = preparation.operands(instruction)
        # Where registers are, and not what they hold, is for good.
        if (operands.numbers and not row.control) or operands.stages:
            return None
        values = list(operands.values)
        for position, window in operands.windows:
            if window.dynamic:
                values[position] = _stand_in(window)
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
        placed = list(_touched(touch(instruction), operands.windows))
        spared, unread = self._common.foresight.about(instruction)
        drafting = Drafting(self._memory, state, self._threads, self._tensors, placed, unread)
        if not spared:
            members |= drafting.jobs(bound)
        self.shares |= drafting.shares
        checks = self._checks(instruction, values, drafting)
        if checks is None:
            return None
        members |= checks
        return drafting.template(members)

    def computes(self, index: int) -> bool:
        """Whether native code does all that the instruction at `index` does."""
        return self._shared[index] is not None or self._idle(self._stream.instructions[index])

    def move(self, old: Any, new: Any) -> None:
        """A tensor is in another buffer from now on."""
        self._common.forget(old)
        self._placed.clear()
        noted = self._addresses.pop(id(old), None)
        users = self._users.pop(id(old), None)
        if noted:
            distance = new.ctypes.data - old.ctypes.data
            for words, index in noted:
                words[index] += distance
            self._addresses[id(new)] = noted
        if users:
            for index in users:
                self._preparation.forget(index)
                computation = self._shared[index]
                for operand in () if computation is None else computation.operands:
                    if operand.window.buffer is old:  # of rows that indices pick from
                        operand.window.move(new)
            self._users[id(new)] = users

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

    def locate(self, index: int) -> bool:
        """Look for the living regions of what the instruction at `index` computes with, as of
        allocations that take turns in a place one knows only now which it is. Whether they are
        others than was known, so that native code can go on."""
        computation, shadow = self._shared[index], self._preparation.shadow
        if computation is None or shadow is None:
            return False
        found = [_living(operand, shadow) for operand in computation.operands]
        known = [operand.words[_REGION] for operand in computation.operands]
        numbers = [0 if region is None else region.number for region in found]
        if 0 in numbers or numbers == known:
            return False
        if index not in self._separated and any(
            before not in (0, now) for before, now in zip(known, numbers)
        ):
            computation = self._separate(index, computation)
        picked = {~operand.position for operand in computation.operands}
        for operand, region in zip(computation.operands, found):
            assert region is not None
            _, words, window, _ = operand
            full = operand.position not in picked and covers(
                window.dtype.itemsize, window.shape, window.strides, region
            )
            _lies_in(words, window, region, words[_UNIT] or 1, full)
        return True

    def learn(self, index: int) -> None:
        """An allocation has begun at `index` where Python saw to it."""
        begun = self._preparation.begun.get(index)
        if begun is not None:
            self._learn_begin(index, begun)

    def _separate(self, index: int, shared: Computation) -> Computation:
        """Operands of its own for an instruction: others with equal ones find them in other
        regions, as allocations take turns in the same memory."""
        self._separated.add(index)
        instruction = self._stream.instructions[index]
        own = self._new_computation(instruction, *self._identity(instruction))
        shadow = self._preparation.shadow
        if own is None or shadow is None:
            return shared
        mark([own], shadow)
        self._shared[index] = own
        size = len(RECORD.names)
        words = self._in_order(instruction, own.record)
        self.words[index * size : (index + 1) * size] = (ctypes.c_int64 * size)(*words)
        return own

    # Control instructions

    def _address(self, value: int | RegisterReference) -> int:
        """Where the value of an attribute is: its register, or a constant."""
        if isinstance(value, RegisterReference):
            return ctypes.addressof(self._stream.registers) + WORD * value.number
        return self._memory.table([value])

    def _nothing(self, index: int, instruction: Instruction) -> dict[str, int]:
        return {"kind": KINDS.index("nothing")}

    def _halt(self, index: int, instruction: Instruction) -> dict[str, int]:
        return {"kind": KINDS.index("halt")}

    def _move(self, index: int, instruction: Instruction) -> dict[str, int]:
        dst, src = instruction.values
        return {
            "kind": KINDS.index("move"),
            "target": self._address(dst),
            "left": self._address(src),
        }

    def _alu(self, index: int, instruction: Instruction) -> dict[str, int]:
        dst, operation, left, right = instruction.values
        return {
            "kind": KINDS.index("alu"),
            "code": list[RegisterOperation](OPERATIONS).index(operation),
            "target": self._address(dst),
            "left": self._address(left),
            "right": self._address(right),
        }

    def _loop_begin(self, index: int, instruction: Instruction) -> dict[str, int]:
        self._preparation.action(index)
        register, lower, upper, step, leave = instruction.values
        return {
            "kind": KINDS.index("loop_begin"),
            "target": self._address(register),
            "left": self._address(lower),
            "right": self._address(upper),
            "step": step,
            "bound": ctypes.addressof(self._preparation.loop_bound(index)),
            "to": leave,
        }

    def _loop_end(self, index: int, instruction: Instruction) -> dict[str, int]:
        (begin,) = instruction.values
        register, _, _, step, _ = self._stream.instructions[begin].values
        return {
            "kind": KINDS.index("loop_end"),
            "target": self._address(register),
            "step": step,
            "bound": ctypes.addressof(self._preparation.loop_bound(begin)),
            "to": begin + 1,
        }

    def _barrier(self, index: int, instruction: Instruction) -> dict[str, int]:
        core, barriers = self._preparation.state.number, self._preparation.barriers
        attendance = barriers.attendance(instruction.row.meeting(instruction.values, core))
        return {
            "kind": KINDS.index("barrier"),
            "target": self._meetings.barrier(attendance, core),
        }

    def _branch(self, index: int, instruction: Instruction) -> dict[str, int]:
        condition, left, right, to = instruction.values
        codes = [*CONDITIONS, Condition.always]
        return {
            "kind": KINDS.index("branch"),
            "code": codes.index(condition),
            "left": self._address(left),
            "right": self._address(right),
            "to": to,
        }

    def _storage_begin(self, index: int, instruction: Instruction) -> dict[str, int]:
        (pattern,) = instruction.values
        found = self._starts.get(id(pattern))
        if found is None:
            window = self._preparation.window(instruction, pattern)
            if window.dynamic:
                return {}
            found = self._starts[id(pattern)] = window, self._states.view(window.view(()))
        window, number = found
        words = self._memory.words(BEGIN.words(fill=number))
        self._begun[index] = words, window
        return {"kind": _STORAGE_BEGIN, "target": ctypes.addressof(words)}

    def _learn_begin(self, index: int, region: Region) -> None:
        if index in self._begun:
            self._common.begins(self._begun[index][0], region)
        # A region that is new is a rival of those that it meets.
        for other in (region, *region.rivals):
            self._common.name_rivals(other)

    def expect_begins(self, shadow: Shadow) -> None:
        """Make the regions of all allocations of the stream, before any of them begins."""
        for words, window in self._begun.values():
            region = shadow.spaces[id(window.buffer)].expect(
                window.origin + window.offset, window.dtype.itemsize, window.shape, window.strides
            )
            if region is not None:
                self._common.begins(words, region)


def _touched(
    part: Touch | None, windows: Iterable[tuple[int, Window]]
) -> Iterator[tuple[int, Window]]:
    """What an instruction touches, by position as of `plan.view_at`: indices apart from what they
    pick."""
    for position, window in windows:
        partly = part is not None and position == part.position
        yield position, part.part(window) if part is not None and partly else window.base
        if window.index is not None:
            yield ~position, window.index


def _living(operand: Placed, shadow: Shadow) -> Region | None:
    """The living region that an operand lies in where it was last."""
    window = operand.window
    offset = window.origin + (operand.words[_OFFSET] if window.dynamic else window.offset)
    space = shadow.spaces[id(window.buffer)]
    return space.living(offset, window.dtype.itemsize, window.shape, window.strides)


def _lies_in(words: Any, window: Window, region: Region, unit: int, full: bool) -> None:
    """An operand lies in a region, and may be all of it; a mark stands for `unit` bytes."""
    first, last, low, high = region.box
    words[_REGION], words[_FULL] = region.number, int(full)
    words[_BOX : _BOX + 4] = (
        region.start // unit,
        last - first,
        region.space.pitch // unit,
        (high - low) // unit,
    )
    if window.dynamic:
        words[_LOWEST], words[_HIGHEST] = low - window.low, high - window.high


def mark(computations: Iterable[Computation | None], shadow: Shadow) -> None:
    """Tell the operands of computations where their marks are, and those that stay where they are
    in which region they lie. If another one that holds them should live, Python finds it."""
    known: dict[tuple[int, Box | None], list[int]] = {}
    for computation in computations:
        for _, words, window, holder in () if computation is None else computation.operands:
            key = id(window), holder
            found = known.get(key)
            if found is None:
                found = known[key] = _marks(window, holder, shadow)
            words[_REGION:] = found


def _marks(window: Window, holder: Box | None, shadow: Shadow) -> list[int]:
    """The members of an operand from `region` on."""
    space = shadow.spaces[id(window.buffer)]
    size, shape, strides = window.dtype.itemsize, window.shape, window.strides
    words: list[int] = OPERAND.words(
        region_lowest=-ANYWHERE, region_highest=ANYWHERE, low=window.low, high=window.high
    )
    if not window.dynamic:
        region = None if holder is None else space.region_at(holder)
        if region is None:
            region = space.holding(window.origin + window.offset, size, shape, strides)
        if region is not None:
            _lies_in(words, window, region, space.unit, covers(size, shape, strides, region))
    counts, steps = space.units(size, shape, strides)
    if len(counts) <= 3 and all(counts):
        counts, steps = [1] * (3 - len(counts)) + counts, [0] * (3 - len(steps)) + steps
        words[_SPACE : _SPACE + 8] = (
            ctypes.addressof(space.cells),
            space.unit,
            window.origin,
            *counts,
            *steps[:2],
        )
    return words[_REGION:]


def _arrangement(windows: Sequence[Window]) -> Any:
    """Equal where operands of the same layouts share bytes in the same way: for two of one memory
    None if no partition has bytes of both, else how far apart they are."""
    if any(window.dynamic for window in windows):
        return tuple([window.offset for window in windows])
    return tuple(
        [
            None
            if one.buffer is not other.buffer
            or one.offset + one.high <= other.offset + other.low
            or other.offset + other.high <= one.offset + one.low
            else other.offset - one.offset
            for one, other in combinations(windows, 2)
        ]
    )


def _stand_in(window: Window) -> Any:
    """A view of the layout that an operand has wherever registers put it, in memory that nothing
    else uses."""
    if window.index is not None:
        return Indirect(_stand_in(window.base), _stand_in(window.index), window.skip)
    memory = np.empty(_reach(window), np.uint8)
    low = -sum(min((n - 1) * s, 0) for n, s in zip(window.shape, window.strides))
    return np.ndarray(window.shape, window.dtype, memory, low, window.strides)


def _reach(window: Window) -> int:
    reach = sum(abs((n - 1) * s) for n, s in zip(window.shape, window.strides))
    return max(reach + window.dtype.itemsize, 1)


_CONTROL: dict[str, Callable[[Packing, int, Instruction], dict[str, int]]] = {
    control.Nop.name: Packing._nothing,
    control.DrainQueue.name: Packing._nothing,
    control.Halt.name: Packing._halt,
    control.RegisterMove.name: Packing._move,
    control.RegisterAlu.name: Packing._alu,
    control.LoopBegin.name: Packing._loop_begin,
    control.LoopEnd.name: Packing._loop_end,
    control.Branch.name: Packing._branch,
    control.CoreBarrier.name: Packing._barrier,
    control.StorageBegin.name: Packing._storage_begin,
}
"""By row name: the members of the record of a control instruction; none where Python executes."""

CONTROL_RECORDS = frozenset(_CONTROL) | {control.SendReceive.name}
"""The rows that control a stream and that the loop executes; exchanges have operands, too."""

__all__ = ["CONTROL_RECORDS", "Computation", "Packing", "mark"]
