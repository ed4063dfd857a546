"""One operation of the tile IR at a time, as the eager mode executes it: storages, views of them,
and the machine kernels.

An operation expands into machine instructions. Each runs the kernel of `simulator.oracle`, or the
compiled one, as in the other modes. So all modes agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from isa.affine import Affine, evaluate
from isa.alu import AluOperator, ScalarEngineFunction
from isa.enums import Memory, OobMode, RegisterOperation
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, Kind
from isa.machine import control
from isa.machine.tensor import uses_tile
from isa.rules.starts import first_partition
from isa.sequencer import OPERATIONS, wrapped
from isa.spec import Instruction, MachineInstruction
from nki.eager.launch import EagerLaunch
from nki.eager.numbers import EagerNumbers
from nki.eager.storage import StorageView, storage_of
from nki.ir import locations
from nki.ir.nodes import Access, Op, Register
from simulator.checks import engine_marks
from simulator.checks.initialised import Shadow
from simulator.checks.marks import covers
from simulator.checks.regions import CLEAN, EMPTY
from simulator.checks.tracked import Tracked
from simulator.checks.unset import unset_register
from simulator.device_state import CoreState
from simulator.exchange import Message
from simulator.indirect_columns import StagingTile, TrackedColumns, through
from simulator.kernels import fixed
from simulator.oracle import fill_sentinel, load_register, store_register
from simulator.races.replicated import effect_of
from simulator.races.unordered import Unordered
from simulator.views import view_dtype

_NO_EFFECT = engine_marks.EngineEffect()

_VIEWS_KEPT = 4096
"""Views of one tensor that are remembered for the next operation on the same elements."""


class _Registers(dict[int, int]):
    """Register values by number."""

    def __missing__(self, number: int) -> int:
        raise unset_register()


class Interpreter:
    """Executes operations on one core of a run. `registers` holds values by register number."""

    def __init__(self, launch: EagerLaunch, core: int) -> None:
        self.target, self.native, self.shadow = launch.target, launch.native, launch.shadow
        self.in_step, self.watch = launch.in_step, launch.watch
        self.unordered, self.numbers = launch.unordered, launch.numbers
        self.exchange = launch.barriers.exchange
        self.barriers = 0
        self.meetings = 0
        self.executed = 0
        self.state = CoreState(launch.target, number=core)
        self.registers: dict[int, int] = _Registers()

    def execute(self, op: Op) -> None:
        """Run an operation. Callers hold `simulator.oracle.quiet()`."""
        try:
            values = op.row.resolve(op.values, self.target)
            for instruction in op.row.expand(values, self.target):
                self._run(instruction, op)
        except NeuronError as error:
            raise locations.located(error, op.location) from None

    def _run(self, instruction: Instruction, op: Op) -> None:
        """Run a machine instruction of an operation."""
        row, state = instruction.row, self.state
        self.executed += 1
        arguments, stages, start = self._arguments(instruction)
        state.engine = instruction.engine
        state.start_partition = start
        if self.shadow is not None and not self._initialises(instruction, arguments):
            self._mirror(instruction)
            operands = _track(self.shadow, row, arguments, stages)
            for position in () if row.control else row.reads:  # a barrier names its tensor only
                operand = operands[position]
                if operand is not None:
                    operand.expose()
            self.shadow.follow(row, state, arguments, op.location, operands)
        number = -1
        if self.numbers is not None:
            number = self._number(self.numbers, instruction, arguments, stages)
        if row.control:
            if self.shadow is not None:
                self._mirror(instruction)
            self.meetings += row.meets
            _CONTROL[row](self, *arguments)
            return
        call = fixed(row, instruction.engine, state, arguments, self.native)
        if stages:
            call = through(stages.values(), call)
        key = None if self.in_step is None else _replica(instruction, op.location)
        if self.unordered is not None:
            self._note(self.unordered, instruction, arguments, op.location, key, number)
        if key is None:
            call()
        else:
            assert self.in_step is not None
            # Values of one number are the same. `unordered` refuses those of others.
            if number >= 0 and type(key[4]) is int and key[-1]:
                self.in_step.once(key, state.number, self.barriers, call)
            else:
                effect = effect_of(row, arguments)
                self.in_step.run(key, state.number, self.barriers, effect, call)
        if self.watch is not None:
            self.watch(state.number, op, row, arguments)

    def _number(
        self,
        numbers: EagerNumbers,
        instruction: Instruction,
        arguments: list[Any],
        stages: dict[int, StagingTile],
    ) -> int:
        """The number of what an instruction writes, -1 where there is nothing to number."""
        row = instruction.row
        if row is control.StorageBegin:
            return -1
        operands = list(arguments)
        for position, stage in stages.items():
            operands[position] = stage.columns
        storages = {
            position: storage_of(instruction.values[position].storage)
            for position, _, _ in row.operands
            if isinstance(instruction.values[position], Access)
        }
        return numbers.follow(self.state.number, instruction, operands, storages)

    def _note(
        self,
        unordered: Unordered,
        instruction: Instruction,
        arguments: list[Any],
        location: Any,
        key: tuple[Any, ...] | None,
        number: int,
    ) -> None:
        """Note what an instruction accesses in shared HBM."""
        row = instruction.row
        for position, _, _ in row.operands:
            access, view = instruction.values[position], arguments[position]
            if not isinstance(access, Access) or access.storage.memory is not Memory.shared_hbm:
                continue
            moves = type(access.offset) is not int or access.vector_offset is not None
            how = position in row.writes, moves, self.executed
            tensor = storage_of(access.storage).buffer, access.storage.name
            core, at = self.state.number, self.meetings
            unordered.note(core, at, tensor, view, how, row.name, location, key, number)

    def _initialises(self, instruction: Instruction, arguments: list[Any]) -> bool:
        """Whether initialised data goes to initialised tensors or to all of a tensor, which then is
        initialised too: nothing else to follow."""
        row, values = instruction.row, instruction.values
        if row in _UNTRACKED:
            return True
        _, mode = _layout(row)  # type: ignore[arg-type]
        if mode >= 0 and values[mode] is OobMode.skip:
            return False
        effect = self._effect(row, values) if row.state else _NO_EFFECT
        if effect is None:
            return False
        filled = []
        for position, writes in row.accesses:
            access = values[position]
            if not isinstance(access, Access):
                continue
            if access.vector_offset is not None:
                return False
            storage = storage_of(access.storage)
            state = storage.state
            if state == CLEAN:
                continue
            written = position not in row.reads or (effect.overwrites and writes)
            if not written or state != EMPTY:
                return False
            view = arguments[position]
            if not covers(view.itemsize, view.shape, view.strides, storage.buffer.size):
                return False
            filled.append(storage)
        for storage in filled:
            storage.initialise()
        return True

    def _mirror(self, instruction: Instruction) -> None:
        """The shadow has marks for all tensors of an instruction."""
        for position, _, _ in instruction.row.operands:
            access = instruction.values[position]
            while isinstance(access, Access):
                storage_of(access.storage).mirrored()
                access = access.vector_offset

    def _effect(
        self, row: type[MachineInstruction], values: Sequence[Any]
    ) -> engine_marks.EngineEffect | None:
        """What an instruction does to the marks of engine state if its operands are initialised;
        None where that has to be followed."""
        says = engine_marks.effect_of(row)
        effect = None if says is None else says(values)
        if uses_tile(row):
            # The loaded tiles that are not initialised are in `stationary`.
            return None if self.shadow is None or self.shadow.stationary else effect
        return effect if effect == _NO_EFFECT else None

    def _arguments(self, instruction: Instruction) -> tuple[list[Any], dict[int, StagingTile], int]:
        """What an instruction's kernel takes, the operands that pass through a tile because indices
        pick their columns, and the first partition of its result."""
        row, values, registers = instruction.row, instruction.values, self.registers
        written, mode = _layout(row)  # type: ignore[arg-type]
        arguments: list[Any] = list(values)
        stages: dict[int, StagingTile] = {}
        start = -1
        for position, value in enumerate(values):
            if type(value) in _PLAIN:
                continue
            if isinstance(value, Access):
                view = self._fixed(value)
                if view is None:
                    skip = mode >= 0 and values[mode] is OobMode.skip
                    place = StorageView(value, skip)
                    view = place.view(registers)
                    if place.index is not None and value.storage.memory.on_chip:
                        field: Any = row.fields[row.field_names[position]]
                        tile = np.empty((place.shape[0], place.count), view_dtype(value.dtype))
                        stage = stages[position] = StagingTile(tile, instruction.engine, field.role)
                        stage.columns, view = view, tile
                arguments[position] = view
                if start < 0 and (position in row.writes or not row.writes):
                    start = _start_partition(value)
            elif isinstance(value, Register):
                if position not in written:
                    arguments[position] = registers[value.number]
            elif isinstance(value, Affine):
                arguments[position] = evaluate(value, {}, registers)
        for position in row.lane_fields:
            start += values[position]
        return arguments, stages, max(start, 0)

    def _fixed(self, access: Access) -> Any:
        """The view of an access that neither registers nor row indices move, else None."""
        offset = access.offset
        if type(offset) is not int or access.vector_offset is not None:
            return None
        views = storage_of(access.storage).views
        key = offset, access.shape, access.strides, access.dtype
        view = views.get(key)
        if view is None:
            if len(views) >= _VIEWS_KEPT:
                views.clear()
                storage_of(access.storage).places.clear()
            view = views[key] = StorageView(access).fixed
        return view


def _start_partition(access: Access) -> int:
    return first_partition(access) if access.storage.memory.on_chip else 0


def _replica(instruction: Instruction, location: Any) -> tuple[Any, ...] | None:
    """As `simulator.races.replicated.replica_key`, of operands of the tile IR."""
    row, values = instruction.row, instruction.values
    if set(row.reads) & set(row.writes):
        return None
    for position in row.writes:
        access = values[position]
        if isinstance(access, Access) and access.storage.memory is Memory.shared_hbm:
            return (
                row,
                location,
                access.storage,
                access.dtype,
                access.offset,
                access.shape,
                access.strides,
                access.vector_offset is None,
            )
    return None


def _track(
    shadow: Shadow,
    row: type[MachineInstruction],
    arguments: list[Any],
    stages: dict[int, StagingTile],
) -> tuple[Tracked | None, ...]:
    """The shadow side of an instruction's operands."""
    if not stages:
        return shadow.track(row, arguments)
    plain = [None if i in stages else argument for i, argument in enumerate(arguments)]
    tracked = list(shadow.track(row, plain))
    for position, stage in stages.items():
        name, columns = row.field_names[position], stage.columns
        base = Tracked(shadow.space_of(columns.base), columns.base, name)
        index = Tracked(shadow.space_of(columns.index), columns.index, f"{name} index")
        tracked[position] = TrackedColumns(base, index, stage)
    return tuple(tracked)


_PLAIN = frozenset(
    {int, float, bool, type(None), AluOperator, ScalarEngineFunction, *ENUM_KINDS.values()}
)
"""Types of values that mean the same whatever registers and symbols hold."""


@cache
def _layout(row: type[MachineInstruction]) -> tuple[frozenset[int], int]:
    """Positions of the registers that a row writes, and of its out-of-bounds mode (or -1)."""
    kinds = {position: attribute.kind for position, _, attribute in row.attributes}
    written = frozenset(position for position, kind in kinds.items() if kind is Kind.register)
    return written, next((p for p, kind in kinds.items() if kind is Kind.oob_mode), -1)


# Control instructions: executors run them themselves.


def _register_move(interpreter: Interpreter, dst: Register, src: int) -> None:
    interpreter.registers[dst.number] = wrapped(src)


def _register_load(interpreter: Interpreter, dst: Register, src: Any) -> None:
    interpreter.registers[dst.number] = load_register(src)


def _register_store(interpreter: Interpreter, dst: Any, src: int) -> None:
    store_register(dst, src)


def _register_alu(
    interpreter: Interpreter, dst: Register, op: RegisterOperation, left: int, right: int
) -> None:
    interpreter.registers[dst.number] = wrapped(OPERATIONS[op](left, right))


def _storage_begin(interpreter: Interpreter, dst: Any) -> None:
    fill_sentinel(dst)
    if interpreter.shadow is not None:
        interpreter.shadow.begin(dst)


def _core_barrier(interpreter: Interpreter, data: Any, cores: tuple[int, ...]) -> None:
    """Whoever steps the cores makes them wait."""
    interpreter.barriers += 1


def _send_receive(
    interpreter: Interpreter,
    dst: Any,
    src: Any,
    send_to: int,
    receive_from: int,
    pipe: int,
    dma_engine: Any,
) -> None:
    """The tiles move with the last of the cores; whoever steps them makes them wait."""
    row = control.SendReceive
    values = (dst, src, send_to, receive_from, pipe, dma_engine)
    core, shadow = interpreter.state.number, interpreter.shadow
    received, sent = shadow.track(row, values)[:2] if shadow is not None else (None, None)
    message = Message(dst, src, send_to, receive_from, received, sent)
    interpreter.exchange.bring(core, row.meeting(values, core), message)


_CONTROL: dict[type[MachineInstruction], Callable[..., None]] = {
    control.RegisterMove: _register_move,
    control.RegisterAlu: _register_alu,
    control.RegisterLoad: _register_load,
    control.RegisterStore: _register_store,
    control.StorageBegin: _storage_begin,
    control.CoreBarrier: _core_barrier,
    control.SendReceive: _send_receive,
}
_UNTRACKED = frozenset({control.StorageBegin, control.RegisterMove, control.RegisterAlu})
