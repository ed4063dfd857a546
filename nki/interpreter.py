"""One operation of the tile IR at a time: storages, views of them, and the machine kernels.

The reference executor and the eager mode share this. An operation expands into machine
instructions, and each runs the kernel of `simulator.oracle` that the device mode runs as well, so
that all modes agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np

from isa.affine import Affine, Polynomial, Predicate, evaluate
from isa.alu import Activation, AluOperator
from isa.dtypes import DTYPES
from isa.enums import Memory, OobMode, RegisterOperation
from isa.errors import NeuronError
from isa.fields import ENUM_KINDS, Kind
from isa.machine import control
from isa.spec import Instruction, MachineInstruction
from isa.target import Target
from nki.ir.nodes import Access, Op, Register, Tensor
from nki.storage import Registers, Storage, View
from nki.trace import locations
from simulator.checks.initialised import Shadow
from simulator.checks.marks import Tracked
from simulator.checks.replicated import InStep, effect_of
from simulator.columns import Stage, TrackedColumns, through
from simulator.control import REGISTER_OPERATIONS
from simulator.exchange import Exchange, Parcel
from simulator.kernels import Call, fixed, moving
from simulator.machine import CoreState
from simulator.oracle import fill_sentinel, load_register, store_register
from simulator.oracle.control import wrap32
from simulator.views import view_dtype

Resolver = Callable[[Registers], Any]
"""Gives the value of a field for the registers' values."""

_VIEWS_KEPT = 4096
"""Views of one tensor that are remembered for the next operation on the same elements."""


class _Registers(dict[int, int]):
    """Register values by number."""

    def __missing__(self, number: int) -> int:
        raise NeuronError(
            "value-not-allowed",
            f"Register %r{number} is read before it holds a value.",
            why="A register holds nothing until an instruction writes it.",
            hint="Give it a value with nisa.register_load or nisa.register_move first.",
        )


class Step:
    """A machine instruction that is ready to run: its arguments, what registers decide of them, and
    the call that executes it on them (None for control instructions). `twin` is what it has in
    common with the same write to shared HBM of another core, None where it is no such write."""

    __slots__ = (
        "arguments",
        "call",
        "dynamic",
        "engine",
        "operands",
        "row",
        "stages",
        "start",
        "twin",
    )

    def __init__(
        self,
        row: type[MachineInstruction],
        engine: Any,
        arguments: list[Any],
        dynamic: tuple[tuple[int, Resolver], ...],
        start: int,
        call: Call | None,
        stages: tuple[tuple[int, View, Stage], ...] = (),
    ) -> None:
        self.stages = stages
        self.row = row
        self.engine = engine
        self.arguments = arguments
        self.dynamic = dynamic
        self.start = start
        self.call = call
        self.operands: Any = None
        self.twin: tuple[Any, ...] | None = None


class Follower(Protocol):
    """Sees what cores execute, in the order in which they do."""

    def begin(self, core: int) -> None:
        """A core begins an operation."""

    def __call__(
        self, core: int, op: Op, row: type[MachineInstruction], values: Sequence[Any]
    ) -> None:
        """An instruction of it has computed or moved data."""


class Interpreter:
    """Executes operations on one core. `registers` holds values by register number.

    `storage_of` gives the storage of a tensor, `binding` the values of launch symbols, `placement`
    the on-chip places that the allocator chose, if it ran. With a `shadow`, reads of data that was
    never written are found. `native`: compiled kernels where there are any, else NumPy alone.
    `in_step` is common to the cores, None when there is one. `watch` is told what was executed.
    """

    def __init__(
        self,
        target: Target,
        storage_of: Callable[[Tensor], Storage],
        core: int = 0,
        binding: Mapping[str, int] | None = None,
        shadow: Shadow | None = None,
        placement: Mapping[Tensor, tuple[int, int]] | None = None,
        native: bool = True,
        exchange: Exchange | None = None,
        in_step: InStep | None = None,
        watch: Follower | None = None,
    ) -> None:
        self.target = target
        self.in_step = in_step
        self.watch = watch
        self.barriers = 0
        self.native = native
        self.exchange = exchange or Exchange()
        self.storage_of = storage_of
        self.binding = binding or {}
        self.shadow = shadow
        self.placement = placement or {}
        self.state = CoreState(target, number=core)
        self.registers: dict[int, int] = _Registers()

    def plan(self, op: Op) -> list[Step]:
        """The machine instructions of an operation. Callers hold `simulator.oracle.quiet()`."""
        try:
            values = op.row.resolve(op.values, self.target)
            return [self._step(i) for i in op.row.expand(values, self.target)]
        except NeuronError as error:
            raise located(error, op) from None

    def execute(self, op: Op, plan: list[Step] | None = None) -> None:
        """Run an operation; `plan` is what `plan(op)` gave, if the caller kept it."""
        state, registers, shadow = self.state, self.registers, self.shadow
        if plan is None:
            plan = self.plan(op)
        watch = self.watch
        if watch is not None:
            watch.begin(state.number)
        try:
            for step in plan:
                arguments = step.arguments
                for position, resolve in step.dynamic:
                    arguments[position] = resolve(registers)
                for _, view, stage in step.stages:
                    stage.columns = view.resolve(registers)
                state.engine = step.engine
                state.start_partition = step.start
                if shadow is not None:
                    self._follow(shadow, step, arguments, op)
                if step.call is not None:
                    if step.twin is None:
                        step.call()
                    else:
                        self._run_in_step(step, op)
                    if watch is not None:
                        watch(state.number, op, step.row, arguments)
                else:
                    _CONTROL[step.row](self, *arguments)
        except NeuronError as error:
            raise located(error, op) from None

    def _run_in_step(self, step: Step, op: Op) -> None:
        """Run a step that another core may have run for this one already."""
        assert self.in_step is not None and step.call is not None and step.twin is not None
        effect = effect_of(step.row, step.arguments)
        key = (step.row, op.location, *step.twin)
        self.in_step.run(key, self.state.number, self.barriers, effect, step.call)

    def _follow(self, shadow: Shadow, step: Step, arguments: list[Any], op: Op) -> None:
        if step.row in _UNTRACKED:
            return
        operands = step.operands
        if operands is None:
            operands = _track(shadow, step, arguments)
            if not step.dynamic and not step.stages:
                step.operands = operands
        shadow.follow(step.row, self.state, arguments, op.location, operands)

    def _step(self, instruction: Instruction) -> Step:
        row, values = instruction.row, instruction.values
        written, mode = _layout(row)  # type: ignore[arg-type]
        arguments: list[Any] = list(values)
        dynamic: list[tuple[int, Resolver]] = []
        stages: list[tuple[int, View, Stage]] = []
        start = -1
        for position, value in enumerate(values):
            if type(value) in _PLAIN:
                continue
            if isinstance(value, Access):
                arguments[position] = known = self._fixed(value)
                if known is None:
                    skip = mode >= 0 and values[mode] is OobMode.skip
                    view = View(value, self.storage_of, self.binding, skip)
                    arguments[position] = view.fixed
                    if view.index is not None and value.storage.memory.on_chip:
                        field = row.fields[row.field_names[position]]
                        role = field.role  # type: ignore[union-attr]
                        tile = np.empty((view.shape[0], view.count), view_dtype(value.dtype))
                        stages.append((position, view, Stage(tile, instruction.engine, role)))
                        arguments[position] = tile
                    elif view.fixed is None:
                        dynamic.append((position, view.resolve))
                if start < 0 and (position in row.writes or not row.writes):
                    start = self._start_partition(value)
            elif isinstance(value, Register):
                if position not in written:
                    dynamic.append((position, _reader(value)))
            elif isinstance(value, Affine):
                dynamic.append((position, self._form(value)))
            elif isinstance(value, Predicate):
                dynamic.append((position, self._predicate(value)))
            elif isinstance(value, (Polynomial, tuple)):
                arguments[position] = self._bound(value)
        engine = instruction.engine
        call = None
        if not row.control:  # type: ignore[attr-defined]
            self.state.start_partition = max(start, 0)
            call = (moving if dynamic else fixed)(row, engine, self.state, arguments, self.native)
            if stages:
                call = through([stage for _, _, stage in stages], call)
        found = Step(row, engine, arguments, tuple(dynamic), max(start, 0), call, tuple(stages))
        if self.in_step is not None and call is not None:
            found.twin = _twin(row, values)
        return found

    def _fixed(self, access: Access) -> Any:
        """The view of an access that neither registers nor row indices move, else None."""
        offset = access.offset
        if type(offset) is not int or access.vector_offset is not None:
            return None
        views = self.storage_of(access.storage).views
        key = offset, access.shape, access.strides, access.dtype
        view = views.get(key)
        if view is None:
            if len(views) >= _VIEWS_KEPT:
                views.clear()
            view = views[key] = View(access, self.storage_of, self.binding).fixed
        return view

    def _start_partition(self, access: Access) -> int:
        tensor, offset = access.storage, access.offset
        if not tensor.memory.on_chip:
            return 0
        first, _ = self.placement.get(tensor) or tensor.address or (0, 0)
        if isinstance(offset, Affine):
            offset = offset.constant
        pitch = tensor.pitch * DTYPES[tensor.dtype].size // DTYPES[access.dtype].size
        return first + (evaluate(offset, self.binding) // pitch if offset and pitch else 0)

    def _form(self, form: Affine) -> Resolver:
        return lambda registers: evaluate(form, self.binding, registers)

    def _predicate(self, predicate: Predicate) -> Resolver:
        return lambda registers: predicate.evaluate(self.binding, registers)

    def _bound(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._bound, value))
        return evaluate(value, self.binding) if isinstance(value, Polynomial) else value


def _twin(row: type[MachineInstruction], values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """As `simulator.checks.replicated.twin_key`, of operands of the tile IR."""
    if set(row.reads) & set(row.writes):
        return None
    for position in row.writes:
        access = values[position]
        if isinstance(access, Access) and access.storage.memory is Memory.shared_hbm:
            return (
                access.storage,
                access.dtype,
                access.offset,
                access.shape,
                access.strides,
                access.vector_offset is None,
            )
    return None


def _track(shadow: Shadow, step: Step, arguments: list[Any]) -> tuple[Tracked | None, ...]:
    """The shadow side of a step's operands."""
    if not step.stages:
        return shadow.track(step.row, arguments)
    plain = list(arguments)
    for position, _, _ in step.stages:
        plain[position] = None
    tracked = list(shadow.track(step.row, plain))
    for position, _, stage in step.stages:
        name, columns = step.row.field_names[position], stage.columns
        base = Tracked(shadow.space_of(columns.base), columns.base, name)
        index = Tracked(shadow.space_of(columns.index), columns.index, f"{name} index")
        tracked[position] = TrackedColumns(base, index, stage)
    return tuple(tracked)


def located(error: NeuronError, op: Op) -> NeuronError:
    """The error with the operation's source line, unless it has one."""
    if error.location is None:
        error.location = locations.resolve(op.location)
    return error


_PLAIN = frozenset({int, float, bool, type(None), AluOperator, Activation, *ENUM_KINDS.values()})
"""Types of values that mean the same whatever registers and symbols hold."""


@cache
def _layout(row: type[MachineInstruction]) -> tuple[frozenset[int], int]:
    """Positions of the registers that a row writes, and of its out-of-bounds mode (or -1)."""
    kinds = {position: attribute.kind for position, _, attribute in row.attributes}
    written = frozenset(position for position, kind in kinds.items() if kind is Kind.register)
    return written, next((p for p, kind in kinds.items() if kind is Kind.oob_mode), -1)


def _reader(register: Register) -> Resolver:
    number = register.number
    return lambda registers: registers[number]


# Control instructions: executors run them themselves.


def _register_move(interpreter: Interpreter, dst: Register, src: int) -> None:
    interpreter.registers[dst.number] = wrap32(src)


def _register_load(interpreter: Interpreter, dst: Register, src: Any) -> None:
    interpreter.registers[dst.number] = load_register(src)


def _register_store(interpreter: Interpreter, dst: Any, src: int) -> None:
    store_register(dst, src)


def _register_alu(
    interpreter: Interpreter, dst: Register, op: RegisterOperation, left: int, right: int
) -> None:
    interpreter.registers[dst.number] = wrap32(REGISTER_OPERATIONS[op](left, right))


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
    parcel = Parcel(dst, src, send_to, receive_from, received, sent)
    interpreter.exchange.bring(core, row.meeting(values, core), parcel)


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
