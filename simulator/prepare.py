"""Instructions made ready to run: operands resolved, kernels bound, checks attached.

Operands that do not depend on registers become NumPy views when the instruction is prepared, so
that loops and repeated runs build nothing again; the others are resolved each time.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from isa.access import AccessPattern
from isa.columns import Flags
from isa.enums import Engine, OobMode
from isa.errors import NeuronError
from isa.fields import Kind, Role
from isa.machine.random import RANDOM
from isa.machine.scalar import ACCUMULATORS
from isa.program import RegisterReference
from isa.spec import Instruction, MachineInstruction, Meeting
from simulator.checks.initialised import Shadow
from simulator.checks.regions import CLEAN, DEAD, MarkedRegion
from simulator.checks.tracked import Tracked
from simulator.checks.unset import UNSET, maybe_unset, unset_register
from simulator.control import CONTROL
from simulator.device_state import CoreState
from simulator.exchange import Attendances, Exchange, Message
from simulator.indirect_columns import StagingTile, TrackedColumns, through
from simulator.kernels import fixed, moving
from simulator.races.replicated import Replicated
from simulator.straight_line import Elision
from simulator.streams import HALTED, Action, RunningStream
from simulator.views import Indirect, Window, Windows

Call = Callable[[], Any]

_BY_PARTITION = frozenset({ACCUMULATORS, RANDOM})
"""Engine state of which every partition has its own."""


Watch = Callable[[int, Engine, int, type[MachineInstruction], list[Any]], None]
"""Told of an instruction that was executed: core, engine, index in the stream, row, values."""


class Barriers:
    """Where cores wait for each other: how often each core has come, by the place. `exchange`
    holds the tiles that they swap."""

    def __init__(self) -> None:
        self.attendances = Attendances()
        self.exchange = Exchange()

    def restart(self) -> None:
        self.attendances.restart()
        self.exchange.restart()

    def arrive(self, core: int, meeting: Meeting) -> int:
        """Core `core` comes to a meeting once more; how often it has by now."""
        return self.attendances[meeting].come(core)

    def count(self, core: int) -> int:
        """Barriers that a core has reached."""
        return sum(attendance.count(core) for attendance in self.attendances.values())

    def passed(self, meeting: Meeting, number: int) -> bool:
        """Whether every core of a meeting has come as often as this."""
        return min(self.attendances[meeting].counts) >= number


class PreparedOperands:
    """Values of one instruction as its kernel takes them; `refresh` keeps the list current."""

    __slots__ = (
        "dynamic",
        "engine",
        "numbers",
        "recorded",
        "registers",
        "skips",
        "stages",
        "values",
        "windows",
    )

    def __init__(
        self,
        instruction: Instruction,
        registers: list[int],
        windows: Windows,
    ) -> None:
        row = instruction.row
        self.registers = registers
        self.engine = instruction.engine
        self.stages: dict[int, StagingTile] = {}
        self.values: list[Any] = list(instruction.values)
        self.numbers: list[tuple[int, int]] = []
        self.windows: list[tuple[int, Window]] = []
        self.recorded = False
        self.skips = False
        self.dynamic = False
        for position, _, attribute in row.attributes:
            value = self.values[position]
            if attribute.kind is Kind.value and isinstance(value, RegisterReference):
                self.numbers.append((position, value.number))
                self.dynamic = True
            elif attribute.kind is Kind.oob_mode:
                self.skips = value is OobMode.skip
        for position, _, operand in row.operands:
            pattern = self.values[position]
            if isinstance(pattern, AccessPattern):
                self._place(position, pattern, operand.role, windows)

    def _place(self, position: int, pattern: AccessPattern, role: Role, windows: Windows) -> None:
        window = windows.window(pattern, self.skips)
        self.windows.append((position, window))
        if window.on_chip and window.index is not None:
            tile = np.empty((pattern.partitions, window.count), window.dtype)
            stage = self.stages[position] = StagingTile(tile, self.engine, role)
            self.values[position] = tile
            self.dynamic |= window.dynamic
            if not window.dynamic:
                stage.columns = window.view(())
            return
        if window.dynamic:
            self.dynamic = self.recorded = True
            self.values[position] = None
            return
        self.recorded |= window.index is not None
        self.values[position] = window.view(())

    def refresh(self) -> None:
        """Resolve what depends on registers. Raises NeuronError dynamic-out-of-bounds."""
        for position, number in self.numbers:
            self.values[position] = self.registers[number]
        for position, window in self.windows:
            if window.dynamic:
                view = window.view(self.registers)
                if position in self.stages:
                    self.stages[position].columns = view
                else:
                    self.values[position] = view

    def track(self, shadow: Shadow, row: type[MachineInstruction]) -> tuple[Tracked | None, ...]:
        """The shadow side of the operands."""
        tracked: list[Tracked | None] = [None] * len(self.values)
        for position, window in self.windows:
            view = self.values[position]
            index = None
            if position in self.stages:
                tracked[position] = self._tracked_columns(position, window, shadow, row)
                continue
            if window.index is not None:
                indices = view.index if isinstance(view, Indirect) else None
                space = shadow.spaces[window.index.buffer]
                index = Tracked(space, indices, row.field_names[position] + " index")
                view = view.base if isinstance(view, Indirect) else None
            space = shadow.spaces[window.buffer]
            tracked[position] = Tracked(space, view, row.field_names[position], index)
        return tuple(tracked)

    def _tracked_columns(
        self, position: int, window: Window, shadow: Shadow, row: type[MachineInstruction]
    ) -> Tracked:
        stage, name = self.stages[position], row.field_names[position]
        columns = stage.columns
        assert window.index is not None
        spaces = shadow.spaces
        base = Tracked(spaces[window.buffer], columns and columns.base, name)
        index = Tracked(spaces[window.index.buffer], columns and columns.index, f"{name} index")
        return TrackedColumns(base, index, stage)

    def rebind(self, tracked: tuple[Tracked | None, ...]) -> None:
        """Tell the shadow side where the operands are after `refresh`."""
        for position, window in self.windows:
            operand, view = tracked[position], self.values[position]
            if position in self.stages:
                view = self.stages[position].columns
            if operand is None or not window.dynamic or view is None:
                continue
            if isinstance(view, Indirect):
                assert operand.index is not None
                operand.index.rebind(view.index)
                view = view.base
            operand.rebind(view)


class Preparation:
    """Turns the instructions of one stream into its steps.

    `begun` holds the regions in which allocations began, `tracked` the shadow side of operands, by
    the index of the instruction, for those that were executed from here. `unset` says which
    registers an instruction needs that may hold no value. `uses` are the instructions by template,
    `elision` is what is known of them.

    `windows` are those of the core, shared by its streams; `replicated` are
    the writes to compare with those of other cores. `watch` is told what was executed.
    """

    def __init__(
        self,
        stream: RunningStream,
        elision: Elision,
        barriers: Barriers,
        windows: Windows,
        shadow: Shadow | None,
        native: bool,
        replicated: Replicated | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.stream = stream
        self.elision = elision
        self.uses = elision.uses
        self.watch = watch
        self.state = stream.state
        self.registers = stream.registers
        self.barriers = barriers
        self.shadow = shadow
        self.native = native
        self.replicated = replicated
        self.begun: dict[int, MarkedRegion | None] = {}
        self.tracked: dict[int, tuple[Tracked | None, ...]] = {}
        self._actions: dict[int, Action] = {}
        self._windows = windows
        self._bounds: dict[int, Any] = {}
        writes = any(template.row.register_writes for template in self.uses.templates)
        self.unset = maybe_unset(stream.instructions) if writes else {}

    def run(self) -> None:
        """Fill `stream.steps`. Raises NeuronError for an operand outside its memory; the stream's
        `pc` is then that of the instruction, and it has `failed`."""
        steps = self.stream.steps
        for index, instruction in enumerate(self.stream.instructions):
            try:
                action = self.action(index)
            except NeuronError:
                self.stream.pc, self.stream.failed = index, True
                raise
            fetches = self.stream.fetches(instruction)
            steps.append((instruction.waits, action, instruction.updates, fetches))
        # A stream that ends without Halt halts there.
        steps.append(((), partial(int, HALTED), (), False))

    def action(self, index: int) -> Action:
        """The action of the instruction at `index`, made when first asked for."""
        found = self._actions.get(index)
        if found is None:
            instruction = self.stream.instructions[index]
            control = CONTROL.get(instruction.row.name)
            if control is not None:
                found = control(self, index, instruction)
            else:
                found = self._computing(index, instruction)
            if index in self.unset:
                found = self._held(found, self.unset[index])
            self._actions[index] = found
        return found

    def message(self, index: int) -> Message:
        """What the instruction at `index`, an exchange, brings."""
        instruction = self.stream.instructions[index]
        operands = self.operands(instruction)
        operands.refresh()
        dst, src, send_to, receive_from = operands.values[:4]
        tracked: tuple[Tracked | None, ...] = (None, None)
        if self.shadow is not None:
            tracked = operands.track(self.shadow, instruction.row)
        return Message(dst, src, send_to, receive_from, *tracked[:2])

    def start(self) -> None:
        """Registers that may be read before they are written hold no value yet."""
        for registers in self.unset.values():
            for number in registers:
                self.registers[number] = UNSET

    def _held(self, action: Action, needed: Sequence[int]) -> Action:
        """An action that needs values in registers."""
        registers = self.registers

        def checked() -> int | None:
            if any(registers[number] == UNSET for number in needed):
                raise unset_register()
            return action()

        return checked

    def forget(self, among: Flags) -> None:
        """Operands of some of these instructions are elsewhere: their actions are made again."""
        for index in [index for index in self._actions if among[index]]:
            del self._actions[index]
            self.tracked.pop(index, None)

    def loop_bound(self, begin: int) -> Any:
        """Cell in which the LoopBegin at `begin` leaves its upper bound for its LoopEnd: an array
        of one int64, which native code uses too."""
        if begin not in self._bounds:
            self._bounds[begin] = (ctypes.c_int64 * 1)()
        return self._bounds[begin]

    def window(self, instruction: Instruction, pattern: AccessPattern) -> Window:
        """The window of one of the instruction's access patterns. Raises NeuronError out-of-bounds
        unless registers move it."""
        skips = any(value is OobMode.skip for value in instruction.values)
        found = self._windows.window(pattern, skips)
        if not found.dynamic:
            found.check()
        return found

    def first_partition(self, instruction: Instruction) -> int:
        """The first partition of the destination, or of the source without one. Where the
        instruction says so, that of registers behind it. 0 where the instruction's engine has
        nothing that belongs to partitions."""
        row = instruction.row
        if not any(effect.name in _BY_PARTITION for effect in row.state):
            return 0
        values = instruction.values
        first: int = values[(*row.writes, *row.reads)[0]].start_partition
        return first + sum(values[position] for position in row.lane_fields)

    def operands(self, instruction: Instruction) -> PreparedOperands:
        """The instruction's values, its access patterns resolved."""
        return PreparedOperands(instruction, self.registers, self._windows)

    def _computing(self, index: int, instruction: Instruction) -> Action:
        """Action of a row that has a kernel."""
        row, engine = instruction.row, instruction.engine
        operands = self.operands(instruction)
        self.state.start_partition = self.first_partition(instruction)
        compute = (moving if operands.dynamic else fixed)(
            row, engine, self.state, operands.values, self.native
        )
        if operands.stages:
            compute = through(operands.stages.values(), compute)
        if self.replicated is not None and self.replicated.takes(instruction):
            compute = self._compared(instruction, operands, compute)
        if self.watch is not None:
            compute = self._watched(self.watch, index, instruction, operands, compute)
        call = self.call(index, instruction, operands, compute)
        if any(effect.name in _BY_PARTITION for effect in row.state):
            call = _at_partition(call, self.state, self.first_partition(instruction))
        if engine is not self.stream.engine:
            call = _on_engine(call, self.state, engine)
        if row.asynchronous:
            # The number of rows moved is an event when it is known only now.
            return _recording(call, self.stream.events) if operands.recorded else _silent(call)
        return call

    def _compared(
        self, instruction: Instruction, operands: PreparedOperands, compute: Call
    ) -> Call:
        """`compute`, in step with the same write of another core."""
        assert self.replicated is not None
        return self.replicated.comparing(
            instruction,
            self.state.number,
            partial(self.barriers.count, self.state.number),
            operands.values,
            compute,
        )

    def _watched(
        self,
        watch: Watch,
        index: int,
        instruction: Instruction,
        operands: PreparedOperands,
        compute: Call,
    ) -> Call:
        core, engine, row, values = (
            self.state.number,
            self.stream.engine,
            instruction.row,
            operands.values,
        )

        def watched() -> Any:
            given = compute()
            watch(core, engine, index, row, values)
            return given

        return watched

    def call(
        self, index: int, instruction: Instruction, operands: PreparedOperands, compute: Call
    ) -> Call:
        """A call of `compute` when the operands are current and the checks are done."""
        values = operands.values
        shadow = self.shadow
        if shadow is None:
            return _refreshing(operands, compute) if operands.dynamic else compute
        row, location, state = instruction.row, instruction.location, self.state
        dynamic = operands.dynamic
        tracked = self.tracked[index] = operands.track(shadow, row)
        reads = [t for i in row.reads if (t := tracked[i]) is not None]
        reads += [t.index for t in tracked if t is not None and t.index is not None]
        writes = [t for i in row.writes if (t := tracked[i]) is not None]
        reports = shadow.reports
        # Engine state has marks too, and what is skipped is not written.
        always = (reports and bool(row.state)) or operands.skips

        def checked() -> Any:
            if dynamic:
                operands.refresh()
                operands.rebind(tracked)
            if always or not _clean(reads, writes):
                for operand in reads if reports else ():
                    operand.expose()
                shadow.follow(row, state, values, location, tracked)
            return compute()

        return checked


def _clean(reads: list[Tracked], writes: list[Tracked]) -> bool:
    """Whether initialised data goes to initialised memory or fills an allocation of its own, which
    then is initialised too: nothing else to follow."""
    for operand in reads:
        if operand.region.state:
            return False
    for operand in writes:
        region = operand.region
        if region.state:
            if region.state == DEAD or operand.full is not region:
                return False
            region.state = CLEAN
    return True


def _refreshing(operands: PreparedOperands, compute: Call) -> Call:
    def call() -> Any:
        operands.refresh()
        return compute()

    return call


def _at_partition(function: Call, state: CoreState, partition: int) -> Call:
    def call() -> Any:
        state.start_partition = partition
        return function()

    return call


def _on_engine(function: Call, state: CoreState, engine: Engine) -> Call:
    def call() -> Any:
        state.engine = engine
        return function()

    return call


def _recording(function: Call, events: array[int]) -> Action:
    def call() -> None:
        events.append(function())

    return call


def _silent(function: Call) -> Action:
    def call() -> None:
        function()

    return call
