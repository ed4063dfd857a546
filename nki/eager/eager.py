"""Eager mode: every operation computes as its line of Python executes.

`breakpoint()`, `print(tensor)` and Python exceptions work in the middle of a kernel. The operations
run through the same interpreter as in the reference, so the results are the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FrameType
from typing import Any
from weakref import finalize

import numpy as np

from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.control import StorageBegin
from isa.spec import Operation
from isa.target import Target
from nki.eager.core_threads import Arrival, CoreThread, deadlock, step_cores
from nki.eager.interpreter import Interpreter
from nki.eager.launch import EagerLaunch, Follower
from nki.eager.numbers import EagerNumbers
from nki.eager.storage import StorageView, storage_of
from nki.frameworks.arrays import refuse_read_only
from nki.ir.accumulate import Accumulation
from nki.ir.builder.edges import out_of_order
from nki.ir.builder.loops import counted, outlives, registers_written
from nki.ir.builder.registers import VirtualRegister
from nki.ir.builder.results import Results, constant_written
from nki.ir.checks.addresses_in_use import AddressesInUse
from nki.ir.checks.hazards import Hazards
from nki.ir.context import Location, NkiInstruction, of_another_run
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Op, Register, Tensor
from nki.ir.open_loops import Iteration, OpenLoop, never_written
from nki.ir.rewrite import form_registers
from nki.ir.views.tensor import NkiTensor
from nki.trace.authored import Authored, call_kernel
from nki.trace.call import arrays_in, map_tensors
from nki.trace.exchanges import must_end
from nki.trace.shared import results_of, warn_of_lost_results
from nki.verification.hbm_capacity import HbmInUse
from simulator.oracle import quiet
from simulator.watchdog import without_end

Array = np.ndarray[Any, Any]


class EagerInstruction(NkiInstruction):
    """An instruction that has been executed: number `number` of a context, in an iteration of a
    rolled loop or outside of them."""

    __slots__ = ("context", "iteration", "number")

    context: EagerContext
    iteration: Iteration | None
    number: int

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        super().depends_on(*producers)
        for producer in producers:
            known = isinstance(producer, EagerInstruction) and producer.context is self.context
            if not known or not self._follows(producer):
                raise out_of_order(self, producer, (producer,) if known else ())
        return self

    def _follows(self, other: Any) -> bool:
        """Whether another one of this core has run before, in a loop around this one or in none."""
        ended = other.iteration is not None and other.iteration.over
        return not ended and other.number < self.number


class EagerContext(Authored):
    """Executes the operations of one core, and keeps none of them. `array(tensor)` gives the data
    behind a view."""

    def __init__(self, launch: EagerLaunch, core: int, wait: Callable[[Arrival], None]) -> None:
        super().__init__(launch.declarations, core, launch.shared)
        self.launch = launch
        self.wait = wait
        self.begun: list[Arrival] = []
        self.instructions = 0
        self.hazards = Hazards(self.warn)
        self.addresses = AddressesInUse()
        self.interpreter = Interpreter(launch, core)

    # Operations

    def record(
        self,
        row: type[Operation],
        values: tuple[Any, ...],
        location: Location,
        name: str | None = None,
    ) -> NkiInstruction:
        for position, _, _ in row.operands:
            value = values[position]
            if isinstance(value, Access):
                storage: Any = value.storage
                if getattr(storage, "run", None) is not self.launch.number:
                    raise of_another_run(storage, location)
                if storage.iteration is not None and storage.iteration.over:
                    raise outlives(f"tensor {storage.name!r}", location)
                if storage.address is not None and row is not StorageBegin:
                    self.addresses.access(storage.description)
        op = EagerInstruction(row, values, location, name)
        op.context, op.iteration = self, self.loops.iteration
        self.instructions += 1
        self.launch.rows.add(row.name)
        self.hazards.observe(op)
        op.number = self.instructions
        if self.begun:
            self._await_exchanges(op)
        try:
            with quiet():
                self.interpreter.execute(op)
        except NeuronError:
            self._refuse_ended((one for value in values for one in form_registers(value)), location)
            raise
        if self.loops:
            for register in registers_written([op]):
                self.loops.written(register)
        for position in row.writes:
            if values[position] is not None:
                storage = values[position].storage
                if storage.data is not None:
                    raise constant_written(storage, location)
                storage.written = True
        if row.meets:
            self.launch.refuse_unordered(self.core, self.interpreter.meetings)
            meeting = row.meeting(values, self.core)
            arrival = op, self.launch.barriers.arrive(self.core, meeting)
            if row.apart and not self.loops.ordered:
                self.begun.append(arrival)
            else:
                self.wait(arrival)
        return op

    def _refuse_ended(self, registers: Iterable[Register], location: Location) -> None:
        """Raises loop-carried-state where one is the variable of a loop's iteration that is over:
        that an operation failed may be because of it."""
        for register in registers:
            ended = register.number not in self.interpreter.registers
            if ended and isinstance(register, VirtualRegister) and register.frozen:
                raise outlives(f"register {register.name!r}", location) from None

    def _await_exchanges(self, op: Op | None = None) -> None:
        """Wait for the exchanges that must end before an operation; without one, for all."""
        ends = [a for a in self.begun if op is None or _ends(a[0], op, self.core)]
        for arrival in ends:
            self.wait(arrival)
            self.begun.remove(arrival)

    def accumulate(self, dst: Any, accumulate: Any) -> Any:
        return self.accumulation.matmul(_described(dst), accumulate)

    def overwritten(self, dst: Any) -> None:
        self.accumulation.overwritten(_described(dst))

    def array(self, tensor: Access) -> Array:
        """A copy of what a view holds now.

        Raises NeuronError dynamic-out-of-bounds when a register moves the view out of its tensor.
        """
        for access in (tensor, tensor.vector_offset):
            if access is not None:
                storage_of(access.storage).expose()
        view = StorageView(tensor)
        elements = view.view(self.interpreter.registers)
        if not isinstance(elements, np.ndarray):
            elements, _ = elements.gather()
        return DTYPES[tensor.dtype].array(elements)

    def holds(self, tensor: NkiTensor, location: Location) -> bool:
        return bool((self.array(tensor) != 0).all())

    def preview(self, tensor: NkiTensor) -> str:
        try:
            return f"\n{self.array(tensor)}"
        except NeuronError as error:
            return f"\n({error.what})"

    def contents(self, tensor: NkiTensor) -> Array | None:
        try:
            return self.array(tensor)
        except NeuronError:
            return None

    def value_of(self, register: VirtualRegister) -> int | None:
        return self.interpreter.registers.get(register.number)

    # Storage

    def _tensor(
        self,
        label: str,
        memory: Memory,
        dtype: str,
        shape: tuple[Any, ...],
        address: tuple[int, int] | None,
        core: int | None,
        location: Location,
        data: Any = None,
    ) -> Tensor:
        launch = self.launch
        iteration = None if core is None else self.loops.iteration
        storage = launch.tensor(
            label, memory, dtype, shape, address, core, location, data, iteration=iteration
        )
        if core is not None:
            storage.forget = partial(
                _forget, self.accumulation, self.hazards, self.addresses, launch.numbers, launch.hbm
            )
        return storage

    def _begin_storage(self, view: NkiTensor, location: Location) -> None:
        """A tensor has its contents already."""

    # Registers

    def new_register(self, name: str, location: Location) -> VirtualRegister:
        register = super().new_register(name, location)
        self._registers.clear()  # what is never written is seen when it is read
        return self._kept_with_its_value(register)

    def _variable(
        self, location: Location, lower: Any, upper: Any, name: str = ""
    ) -> VirtualRegister:
        return self._kept_with_its_value(super()._variable(location, lower, upper, name))

    def _kept_with_its_value(self, register: VirtualRegister) -> VirtualRegister:
        """A register whose value is forgotten when nobody has the register any more."""
        finalize(register, self.interpreter.registers.pop, register.number, None)
        return register

    def _value(self, bound: Any) -> int:
        if isinstance(bound, Register):
            return self.interpreter.registers[bound.number]
        return int(bound)

    # Loops

    def symbolic_range(
        self, lower: Any, upper: Any, step: int, location: Location
    ) -> Iterator[Any]:
        """Sizes are integers here, so that the loop is Python's."""
        yield from range(lower, upper, step)

    def dynamic_range(
        self, lower: Any, upper: Any, step: int, location: Location
    ) -> Iterator[VirtualRegister]:
        self.loops.refuse_order("a loop on the device", location)
        self._refuse_ended((one for one in (lower, upper) if isinstance(one, Register)), location)
        values = range(self._value(lower), self._value(upper), step)
        trips, first, last = counted(lower, upper, step)
        loop = OpenLoop(location)
        self.loops.enter(loop, trips)
        self._depend(lower, upper)
        for value in values:
            variable = self._variable(location, first, last)
            self.interpreter.registers[variable.number] = value
            with loop:
                yield variable
            self._await_exchanges()
            self.loops.expect(loop)
            self._next(loop, variable, lower, upper)
            # Nothing of an iteration is used behind it; the other modes have one variable for all.
            self.interpreter.registers.pop(variable.number, None)
        self._depend_no_longer()
        self.loops.leave(loop)

    def _depend(self, *bounds: Any) -> None:
        """What follows depends on whether registers let a loop run."""
        if self.launch.numbers is not None:
            registers = [bound for bound in bounds if isinstance(bound, Register)]
            self.launch.numbers.enter(self.core, registers)

    def _depend_no_longer(self) -> None:
        if self.launch.numbers is not None:
            self.launch.numbers.leave(self.core)

    def while_condition(
        self, register: VirtualRegister, location: Location, frame: FrameType
    ) -> bool:
        loop = self.loops.repeated(register, location, frame)
        if loop is None:
            self.loops.check_while(register, location, frame)
            loop = OpenLoop(location, register, frame)
            self.loops.enter(loop)
        else:
            self._depend_no_longer()
            self._await_exchanges()
            if not loop.renewed:
                raise never_written(register, location)
            self._next(loop, register)
        holds = self.interpreter.registers[register.number] != 0
        if holds:
            self._depend(register)
        else:
            self.loops.leave(loop)
        return holds

    def _next(self, loop: OpenLoop, *steering: Any) -> None:
        """Begin another iteration, if the limits of the run admit it. The registers that steer the
        loop are named if not."""
        loop.next_iteration()
        watchdog = self.launch.watchdog
        try:
            watchdog.look(weight=64)
            if loop.iterations > (most := watchdog.limits.iterations):
                what = f"The loop has more than {most:,} iterations."
                raise without_end(loop.register is None, what)
        except NeuronError as error:
            error.location = resolve(loop.location)
            held = "".join(map(self._held, steering))
            error.notes += (f"core {self.core}, iteration {loop.iterations:,}{held}",)
            raise

    def _held(self, register: Any) -> str:
        """What a register holds, for messages; nothing of what is none."""
        if not isinstance(register, Register):
            return ""
        name = getattr(register, "name", "") or repr(register)
        return f", {name} = {self.interpreter.registers[register.number]}"

    def finish(self) -> None:
        """The kernel function returned: no loop of the device may be open."""
        self._await_exchanges()
        self.loops.finish()


def _ends(exchange: Op, op: Op, core: int) -> bool:
    """Whether an exchange that has begun ends before an operation of its core."""
    if op.row.meets:
        if not op.row.apart:
            return True
        place = exchange.row.meeting(exchange.values, core)
        if op.row.meeting(op.values, core) == place:
            return True
    return must_end(exchange, op)


def _forget(
    accumulation: Accumulation,
    hazards: Hazards,
    addresses: AddressesInUse,
    numbers: EagerNumbers | None,
    hbm: HbmInUse,
    tensor: Tensor,
) -> None:
    """What a core knows of a tensor goes with it."""
    accumulation.begin(tensor)
    hazards.forget(tensor)
    addresses.forget(tensor)
    hbm.forget(tensor)
    if numbers is not None:
        numbers.forget(tensor)


def _described(view: Access) -> Access:
    """The view without its data, for state that outlives the tensor."""
    storage: Any = view.storage
    indices = view.vector_offset, view.vector_stride, view.vector_bound
    return Access(storage.description, view.dtype, view.shape, view.strides, view.offset, *indices)


def run_eager(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    target: Target,
    cores: int = 1,
    check: bool = True,
    native: bool = True,
    watch: Follower | None = None,
) -> tuple[Results, list[Array]]:
    """Run a kernel function on arrays: (outputs in return order, the array arguments afterwards).

    `arguments` are by parameter name. One core runs in the calling thread. Several cores take
    turns: each runs until it reaches a barrier or ends, in order of their numbers. With `check`,
    outputs that depend on data that was never written are errors. `native`: compiled kernels where
    there are any, else NumPy alone. `watch` is told what was executed. Exceptions of the kernel
    come out unchanged; NeuronErrors get the kernel's line.
    """
    launch = EagerLaunch(function.__name__, target, cores, check, native, watch)
    for name, value in arguments.items():
        map_tensors(value, name, launch.parameter)
    run_core = partial(_run_core, launch, function, arguments)
    if cores == 1:
        returned = [run_core(0, _no_partner)]
    else:
        returned = _run_threads(launch, run_core)
    return _outcome(launch, function, arguments, launch.shared.agreed(returned))


def _outcome(
    launch: EagerLaunch, function: Callable[..., Any], arguments: dict[str, Any], results: Results
) -> tuple[Results, list[Array]]:
    """The outputs and the arrays afterwards, where all of them may be returned."""
    changed = [t for t in launch.parameters if t.written and t not in results]
    warn_of_lost_results(function, results, bool(changed), launch.rows)
    for tensor, given in zip(launch.parameters, arrays_in(arguments)):
        if tensor in changed:
            refuse_read_only(given, tensor.name)
    if launch.shadow is not None:
        for tensor in (*results, *changed):
            storage_of(tensor).check_output(launch.shadow)
    after = [
        tensor.contents.copy() if tensor.written else array
        for tensor, array in zip(launch.parameters, launch.arrays)
    ]
    outputs = (storage_of(t).described_by(t) for t in results)
    return Results(outputs, results.container), after


def _run_core(
    launch: EagerLaunch,
    function: Callable[..., Any],
    arguments: dict[str, Any],
    core: int,
    wait: Callable[[Arrival], None],
) -> Results:
    """Call the kernel function as one core; what it returns."""
    context = EagerContext(launch, core, wait)
    returned = call_kernel(function, arguments, launch.parameters, context)
    launch.refuse_unordered(core, None)
    return results_of(returned, function)


def _run_threads(
    launch: EagerLaunch, run_core: Callable[[int, Callable[[Arrival], None]], Results]
) -> list[Results]:
    """What each core returns; they take turns in threads."""
    returned = [Results(()) for _ in range(launch.cores)]

    def run(core: int, wait: Callable[[Arrival], None]) -> None:
        returned[core] = run_core(core, wait)

    threads = [CoreThread(partial(run, core), core) for core in range(launch.cores)]
    try:
        step_cores(threads, launch.barriers)
    finally:
        for thread in threads:
            thread.stop()
    return returned


def _no_partner(arrival: Arrival) -> None:
    """A meeting of cores in a kernel that runs on one."""
    raise deadlock(0, arrival[0])
