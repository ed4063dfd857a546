"""Packs the streams of a program into the records that the native loop walks.

Instructions with equal rows, attributes and operands share everything but their waits, updates and
locations. What native code does not do (yet) for an instruction is left to `Preparation.action`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.alu import Activation, AluOperator
from isa.enums import Condition, RegisterOperation
from isa.errors import NeuronError
from isa.machine import control
from isa.program import RegisterReference
from isa.spec import Instruction
from simulator import native
from simulator.checks.marks import Region, Space, States, Tracked, covers
from simulator.native.local import Local, Reach, local
from simulator.native.loop import (
    AMOUNT,
    BEGIN,
    CONDITIONS,
    JOB,
    KINDS,
    OPERATIONS,
    PART,
    RECORD,
    RIVAL,
)
from simulator.native.operands import OPERAND, PAIR, PATCH, REFERENCE, TERM
from simulator.native.plan import Bound, Guarded, Job, address_of
from simulator.native.strips import ACCESS, ARENAS, FARTHEST, QUEUED, STEP, TENSOR
from simulator.native.structure import Memory
from simulator.native.table import PLANNERS
from simulator.native.team import parts
from simulator.native.text import WORD
from simulator.streams import fetches
from simulator.views import Indirect, Window

if TYPE_CHECKING:
    from simulator.checks.engine_marks import EngineMarks
    from simulator.checks.initialised import Shadow
    from simulator.prepare import Preparation

_ANYWHERE = 1 << 62

PAST_CACHES = 1 << 22
"""Bytes of a tensor in HBM that is larger than what caches keep for long."""

_REGION, _LOWEST, _HIGHEST, _FULL, _SPACE, _BOX = (
    OPERAND.indices[name]
    for name in ("region", "region_lowest", "region_highest", "full", "space", "box")
)


class Placed(NamedTuple):
    """An operand of shared records: its position among the values (as `plan.view_at` takes it), its
    words, its window."""

    position: int
    words: Any
    window: Window


class Computation(NamedTuple):
    """What the records of equal instructions have in common."""

    members: dict[str, int]
    operands: list[Placed]


class Packing:
    """The records of one stream. `marks` are those of its core's engines.
    `threads` may share jobs; whether there are any to share is in `shares`, and the work of those
    that are queued in `queued_work`. `tensors` are the `TENSOR`s of all streams by their buffer.

    `learn(index)` takes over, behind an instruction that Python executed, in which regions its
    operands lie.
    """

    def __init__(
        self,
        preparation: Preparation,
        memory: Memory,
        states: States,
        marks: EngineMarks,
        computations: dict[Any, Computation | None],
        begins: dict[int, list[Any]],
        tensors: dict[int, int],
        threads: int,
    ) -> None:
        self._preparation = preparation
        self._stream = preparation.stream
        self._memory = memory
        self._states = states
        self._marks = marks
        self._computations = computations
        self._begins = begins
        self._tensors = tensors
        self._threads = threads
        self.shares = False
        self.queued_work = 0
        self._shared: list[Computation | None] = []
        # Instructions with operands of their own.
        self._separated: set[int] = set()
        self._begun: dict[int, Any] = {}
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
        pack = _CONTROL.get(row.name)
        if pack is not None:
            members = pack(self, index, instruction)
        elif (row.control and row.name not in PLANNERS) or (
            replicated is not None and replicated.takes(instruction)
        ):
            members = {}
        else:
            computation = self._computation(instruction)
            members = {} if computation is None else computation.members
        if not members:
            # What it looks at is checked now, as for the others.
            self._preparation.action(index)
        self._shared.append(computation)
        for _, _, window in () if computation is None else computation.operands:
            if not window.on_chip:
                self._users.setdefault(id(window.buffer), []).append(index)
        return self._record_words(instruction, members)

    def _record_words(self, instruction: Instruction, members: dict[str, int]) -> list[int]:
        return RECORD.words(
            **members,
            fetches=int(fetches(instruction)),
            **self._amounts("waits", instruction.waits),
            **self._amounts("updates", instruction.updates),
        )

    def _table(self, name: str, words: Sequence[int], size: int) -> dict[str, int]:
        count = len(words) * WORD // size
        return {name: self._memory.table(words), f"{name}_count": count} if words else {}

    def _amounts(self, name: str, amounts: Sequence[tuple[int, int]]) -> dict[str, int]:
        return self._table(name, [word for pair in amounts for word in pair], AMOUNT.size)

    # Computing instructions

    def _computation(self, instruction: Instruction) -> Computation | None:
        row = instruction.row
        preparation = self._preparation
        key: list[Any] = [row, self._stream.engine]
        for value in instruction.values:
            if isinstance(value, AccessPattern):
                key.append(id(preparation.window(instruction, value)))
            elif isinstance(value, (AluOperator, Activation)):
                key.append(value.name)
            else:
                key += (type(value), value)
        identity = tuple(key)
        if identity not in self._computations:
            self._computations[identity] = self._new_computation(instruction)
        return self._computations[identity]

    def _new_computation(self, instruction: Instruction) -> Computation | None:
        row, preparation = instruction.row, self._preparation
        operands = preparation.operands(instruction)
        # Where registers are, and not what they hold, is for good.
        if (operands.numbers and not row.control) or operands.stages:
            return None
        values = list(operands.values)
        for position, window in operands.windows:
            if window.dynamic:
                values[position] = _stand_in(window)
        state, engine = self._stream.state, self._stream.engine
        state.engine, state.start_partition = engine, preparation.first_partition(instruction)
        found = native.plan(row, engine, values)
        bound = None if found is None else found.bind(state, values)
        if not isinstance(bound, Bound):
            return None
        placed = [
            Placed(position, self._operand(window), window)
            for position, window in _apart(operands.windows)
        ]
        members = {
            "kind": KINDS.index("compute"),
            "event": found.result if found and row.asynchronous and operands.recorded else -1,
        }
        members |= self._jobs(bound, placed)
        checks = self._checks(instruction, values, placed)
        if checks is None:
            return None
        members |= checks
        self._memory.keep(bound)
        return Computation(members, placed)

    def _operand(self, window: Window) -> Any:
        address = window.buffer.__array_interface__["data"][0] + window.origin
        terms = self._table("terms", [w for term in window.registers for w in term], TERM.size)
        words = self._memory.words(
            OPERAND.words(
                address=address + window.offset,
                offset=window.offset,
                base=address,
                origin=window.offset,
                lowest=window.floor - window.low,
                highest=window.limit - window.high,
                region_lowest=-_ANYWHERE,
                region_highest=_ANYWHERE,
                low=window.low,
                high=window.high,
                **terms,
            )
        )
        self._note(window, words, OPERAND.indices["address"])
        self._note(window, words, OPERAND.indices["base"])
        return words

    def _note(self, window: Window, words: Any, index: int) -> None:
        """An address in the window's memory is in a word."""
        if not window.on_chip:
            self._addresses.setdefault(id(window.buffer), []).append((words, index))

    def computes(self, index: int) -> bool:
        """Whether the instruction at `index` has native code."""
        return self._shared[index] is not None

    def move(self, old: Any, new: Any) -> None:
        """A tensor is in another buffer from now on."""
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
            self._users[id(new)] = users

    def _jobs(self, bound: Bound, placed: Sequence[Placed]) -> dict[str, int]:
        """The jobs, and where the addresses of operands go that registers decide."""
        by_position = {operand.position: operand for operand in placed}
        moving = [operand for operand in placed if operand.window.dynamic]
        found = local(bound, {operand.position: operand.window for operand in placed})
        jobs, patches, pairs = [], [], []
        guard = bound.guard if isinstance(bound, Guarded) else None
        for job in (*bound.jobs, *([] if guard is None else [guard])):
            divided = [job.words] if found or job is guard else parts(job, self._threads)
            self.shares |= len(divided) > 1
            for part in divided:
                self._memory.keep(part)
            addresses = [ctypes.addressof(part) for part in divided]
            if job is not guard:
                jobs += JOB.words(
                    function=job.address,
                    parts=self._memory.table([w for a in addresses for w in PART.words(words=a)]),
                    parts_count=len(divided),
                )
            for slot, position in () if moving else job.slots:
                for part in divided:
                    self._note(by_position[position].window, part, slot)
            if not moving:
                continue
            for slot, position in job.slots:
                operand = by_position[position]
                for part, address in zip(divided, addresses):
                    patches += PATCH.words(
                        operand=ctypes.addressof(operand.words),
                        word=address + WORD * slot,
                        delta=part[slot] - job.words[slot],
                    )
            pairs += self._pairs(job, by_position)
        guards = {}
        if guard is not None:
            guards = {"guard": guard.address, "guard_words": ctypes.addressof(guard.words)}
        references = [w for o in moving for w in REFERENCE.words(operand=ctypes.addressof(o.words))]
        return {
            **guards,
            **(self._queued(found, by_position) if found else self._table("jobs", jobs, JOB.size)),
            **self._table("moving", references, REFERENCE.size),
            **self._table("patches", patches, PATCH.size),
            **self._table("apart", pairs, PAIR.size),
        }

    def _queued(self, found: Local, by_position: dict[int, Placed]) -> dict[str, int]:
        """The jobs of a local instruction, and what they do in HBM."""
        jobs, accesses = [], []
        for job, division, row_bytes, windows, reaches in found.jobs:
            steps = [w for slot, step in division.steps for w in STEP.words(word=slot, bytes=step)]
            jobs += QUEUED.words(
                function=self._function(job, reaches, by_position),
                words=ctypes.addressof(job.words),
                words_count=len(job.words),
                length=division.length,
                first=found.first,
                count=found.rows,
                row_bytes=row_bytes,
                work=job.work,
                **self._table("steps", steps, STEP.size),
                **self._extents(windows),
            )
            self.queued_work += job.work
            for reach in reaches:
                operand = by_position[reach.position]
                accesses += ACCESS.words(
                    operand=ctypes.addressof(operand.words),
                    tensor=self._tensor(operand.window),
                    writes=int(reach.writes),
                    before=found.first * reach.step,
                    step=reach.step,
                    span=reach.span,
                )
        return {
            **self._table("queued", jobs, QUEUED.size),
            **self._table("accesses", accesses, ACCESS.size),
        }

    def _extents(self, windows: Sequence[Window]) -> dict[str, int]:
        """Which bytes of a partition windows touch, wherever registers move them."""
        state = self._stream.state
        found = {}
        for name, arena in zip(ARENAS, (state.sbuf, state.psum)):
            ends = [
                (w.floor, w.limit) if w.dynamic else (w.offset + w.low, w.offset + w.high)
                for w in windows
                if w.buffer is arena.buffer
            ]
            found[name] = min((low for low, _ in ends), default=FARTHEST)
            found[f"{name}_end"] = max((high for _, high in ends), default=0)
        return found

    def _function(self, job: Job, reaches: Sequence[Reach], by_position: dict[int, Placed]) -> int:
        """The address of what a queued job calls. A tensor that is written and fits in no cache
        would only take the room of what is used next."""
        if job.past_caches is not None:
            for reach in reaches:
                if reach.writes and by_position[reach.position].window.buffer.size >= PAST_CACHES:
                    function = job.past_caches()
                    return job.address if function is None else address_of(function)
        return job.address

    def _tensor(self, window: Window) -> int:
        """The `TENSOR` of a window's buffer."""
        key = id(window.buffer)
        if key not in self._tensors:
            self._tensors[key] = self._memory.room(len(TENSOR.names))
        return self._tensors[key]

    def _pairs(self, job: Job, by_position: dict[int, Placed]) -> list[int]:
        """Operands that could share bytes with what the job writes, its first one."""
        words: list[int] = []
        if not job.slots:
            return words
        first = by_position[job.slots[0][1]]
        for (_, position), same in zip(job.slots[1:], job.same):
            other = by_position[position]
            if first.window.buffer is other.window.buffer and _meet(first.window, other.window):
                words += PAIR.words(
                    left=ctypes.addressof(first.words),
                    right=ctypes.addressof(other.words),
                    same=int(same),
                )
        return words

    def _checks(
        self, instruction: Instruction, values: Sequence[Any], placed: Sequence[Placed]
    ) -> dict[str, int] | None:
        """What has to be initialised, and what then is; None where Python has to follow."""
        row = instruction.row
        reads: list[int] = []
        writes: list[int] = []
        overwrites = False
        if row.state:
            first = (*row.writes, *row.reads)[0]
            start = self._preparation.first_partition(instruction)
            used = self._marks.use(
                row, self._stream.engine, values, start, instruction.values[first].partitions
            )
            if used is None:
                return None
            region, effect = used
            overwrites = effect.overwrites
            words = self._memory.words(
                OPERAND.words(
                    region=region, region_lowest=-_ANYWHERE, region_highest=_ANYWHERE, full=1
                )
            )
            reference = REFERENCE.words(operand=ctypes.addressof(words))
            reads += reference * effect.reads
            writes += reference * effect.writes
        picked = {~operand.position for operand in placed}
        for operand in placed:
            reference = REFERENCE.words(operand=ctypes.addressof(operand.words))
            written = operand.position in row.writes
            read = operand.position in row.reads and not (written and overwrites)
            # Where rows are written that indices pick, the others have to be initialised already.
            if read or operand.position < 0 or operand.position in picked:
                reads += reference
            if written:
                writes += reference
        return {
            **self._table("reads", reads, REFERENCE.size),
            **self._table("writes", writes, REFERENCE.size),
        }

    def learn(self, index: int, tracked: Sequence[Tracked | None] | None) -> None:
        """The operands of the instruction at `index` lie in the regions in which they were found
        when Python followed them."""
        begun = self._preparation.begun.get(index)
        if begun is not None:
            self._learn_begin(index, begun)
            return
        shared = self._shared[index] if index < len(self._shared) else None
        if shared is None or tracked is None:
            return
        if index not in self._separated and _elsewhere(shared, tracked):
            shared = self._separate(index, shared)
        for position, words, window in shared.operands:
            operand = _tracked_at(tracked, position)
            if operand is None:
                continue
            region = operand.region
            if not region.number or region is operand.space.rest:
                words[_REGION] = 0
            else:
                _lies_in(words, window, region, operand.space, operand.full is region)

    def _separate(self, index: int, shared: Computation) -> Computation:
        """Operands of its own for an instruction: others with equal ones find them in other
        regions, as allocations take turns in the same memory."""
        self._separated.add(index)
        instruction = self._stream.instructions[index]
        own, shadow = self._new_computation(instruction), self._preparation.shadow
        if own is None or shadow is None:
            return shared
        mark([own], shadow)
        self._shared[index] = own
        size = len(RECORD.names)
        words = self._record_words(instruction, own.members)
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
        operands = self._preparation.operands(instruction)
        if operands.dynamic:
            return {}
        (view,) = operands.values
        words = self._begun[index] = self._memory.words(BEGIN.words(fill=self._states.view(view)))
        return {"kind": KINDS.index("storage_begin"), "target": ctypes.addressof(words)}

    def _learn_begin(self, index: int, region: Region) -> None:
        if index in self._begun:
            self._begins_in(self._begun[index], region)
        # A region that is new is a rival of those that it meets.
        for other in (region, *region.rivals):
            self._name_rivals(other)

    def _begins_in(self, words: Any, region: Region) -> None:
        """The region of an allocation is known."""
        if words[0] != region.number:
            words[0] = region.number
            self._begins.setdefault(region.number, []).append(words)

    def _name_rivals(self, region: Region) -> None:
        """Tell where a region begins what its rivals are."""
        table = 0
        for begin in self._begins.get(region.number, ()):
            if begin[BEGIN.indices["rivals_count"]] != len(region.rivals):
                if not table:
                    rivals = [w for r in region.rivals for w in RIVAL.words(region=r.number)]
                    table = ctypes.addressof(self._memory.words(rivals))
                begin[BEGIN.indices["rivals"]] = table
                begin[BEGIN.indices["rivals_count"]] = len(region.rivals)

    def expect_begins(self, shadow: Shadow) -> list[Region]:
        """The regions of all allocations of the stream, made before any of them begins."""
        found = []
        for index, words in self._begun.items():
            (_, window), *_ = self._preparation.operands(self._stream.instructions[index]).windows
            region = shadow.spaces[id(window.buffer)].expect(window.view(()))
            if region is not None:
                self._begins_in(words, region)
                found.append(region)
        return found

    def name_all_rivals(self, regions: Iterable[Region]) -> None:
        """Tell all beginnings of these regions what their rivals are."""
        for region in regions:
            self._name_rivals(region)


def _tracked_at(tracked: Sequence[Tracked | None], position: int) -> Tracked | None:
    """The shadow side of the operand at a position, as of `Placed`."""
    operand = tracked[max(position, ~position)]
    return operand.index if operand is not None and position < 0 else operand


def _apart(windows: Iterable[tuple[int, Window]]) -> Iterator[tuple[int, Window]]:
    """The windows by position, as of `Placed`: indices apart from the rows that they pick."""
    for position, window in windows:
        yield position, window.base
        if window.index is not None:
            yield ~position, window.index


def _elsewhere(shared: Computation, tracked: Sequence[Tracked | None]) -> bool:
    """Whether an operand was found in another region than was known."""
    for position, words, _ in shared.operands:
        operand = _tracked_at(tracked, position)
        if operand is not None and words[_REGION] not in (0, operand.region.number):
            return True
    return False


def _lies_in(words: Any, window: Window, region: Region, space: Space, full: bool) -> None:
    """An operand lies in a region, and may be all of it."""
    first, last, low, high = region.box
    words[_REGION], words[_FULL] = region.number, int(full)
    words[_BOX : _BOX + 4] = (
        region.start // space.unit,
        last - first,
        space.pitch // space.unit,
        (high - low) // space.unit,
    )
    if window.dynamic:
        words[_LOWEST], words[_HIGHEST] = low - window.low, high - window.high


def mark(computations: Iterable[Computation | None], shadow: Shadow) -> None:
    """Tell the operands of computations where their marks are, and those that stay where they are
    in which region they lie. If another one that holds them should live, Python finds it."""
    for computation in computations:
        for _, words, window in () if computation is None else computation.operands:
            space = shadow.spaces[id(window.buffer)]
            region = None if window.dynamic else space.holding(window.view(()))
            if region is not None:
                _lies_in(words, window, region, space, covers(window.view(()), region))
            counts, steps = space.units(window.dtype.itemsize, window.shape, window.strides)
            if len(counts) > 3 or not all(counts):
                continue
            counts, steps = [1] * (3 - len(counts)) + counts, [0] * (3 - len(steps)) + steps
            words[_SPACE : _SPACE + 8] = (
                ctypes.addressof(space.cells),
                space.unit,
                window.origin,
                *counts,
                *steps[:2],
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


def _meet(left: Window, right: Window) -> bool:
    """Whether two operands in one memory may share bytes: on chip, whether they share partitions.
    Operands that are always equally far apart are looked at here, if they are rows."""
    if left.on_chip:
        ends = [
            (window.origin, window.origin + window.shape[0] * window.strides[0])
            for window in (left, right)
        ]
        if ends[0][1] <= ends[1][0] or ends[1][1] <= ends[0][0]:
            return False
    if left.registers == right.registers:
        distance = right.offset - left.offset
        if left.high <= distance + right.low or distance + right.high <= left.low:
            return False
    return True


_CONTROL: dict[str, Callable[[Packing, int, Instruction], dict[str, int]]] = {
    control.Nop.name: Packing._nothing,
    control.DrainQueue.name: Packing._nothing,
    control.Halt.name: Packing._halt,
    control.RegisterMove.name: Packing._move,
    control.RegisterAlu.name: Packing._alu,
    control.LoopBegin.name: Packing._loop_begin,
    control.LoopEnd.name: Packing._loop_end,
    control.Branch.name: Packing._branch,
    control.StorageBegin.name: Packing._storage_begin,
}
"""By row name: the members of the record of a control instruction; none where Python executes."""

__all__ = ["Computation", "Packing", "mark"]
