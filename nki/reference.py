"""What a kernel means: the tile IR executed in the author's order, one core up to a barrier at a
time, on one storage a tensor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.affine import evaluate, solve_shape
from isa.binding import bind
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.operations.control import StorageBegin
from isa.program import Program
from isa.target import TARGETS
from nki.interpreter import Follower, Interpreter, Step
from nki.ir.nodes import Kernel, Loop, Node, Op, Register, Tensor, While, storages, walk
from nki.storage import Storage
from nki.trace import locations
from simulator.checks.initialised import Shadow
from simulator.checks.replicated import InStep
from simulator.oracle import quiet
from simulator.prepare import Barriers
from simulator.streams import DEFAULT_LOOP_LIMIT

if TYPE_CHECKING:
    from simulator.execute import RunResult

_RETURNED = frozenset({"output", "inout"})


def run(
    kernel: Kernel,
    inputs: list[np.ndarray[Any, Any]],
    binding: Mapping[str, int] | None = None,
    check: bool = True,
    native: bool = True,
) -> RunResult:
    """Execute a kernel on one core or several.

    `inputs` are arrays in parameter order. `binding` gives launch symbols their values; those
    that it lacks follow from the inputs' shapes. With `check`, reads of data that was never
    written become findings, and an output that depends on such data is an error. `native`: compiled
    kernels where there are any, else NumPy alone.

    Raises NeuronError input-mismatch, guard-refused, shape-unsolved, dynamic-out-of-bounds,
    deadlock, loop-limit, uninitialised-output, output-not-written.

    >>> import numpy as np
    >>> from nki.ir.text import parse_kernel
    >>> kernel = parse_kernel('''
    ... kernel copy target=trn2
    ... tensor %t0 "a": shared_hbm float32[4] role=input
    ... tensor %t1 "b": shared_hbm float32[4] role=output
    ... input %t0 "a"
    ... result %t1
    ... core 0:
    ...   dma_copy dst=%t1[4 : 1 @ 0] src=%t0[4 : -1 @ 3]
    ... ''')
    >>> run(kernel, [np.arange(4, dtype=np.float32)]).outputs
    [array([3., 2., 1., 0.], dtype=float32)]
    """
    return Run(kernel, inputs, binding or {}, check, native).run()


class Run:
    """One execution: the storages of all cores, and the cores."""

    def __init__(
        self,
        kernel: Kernel,
        inputs: list[np.ndarray[Any, Any]],
        binding: Mapping[str, int],
        check: bool,
        native: bool = True,
        watch: Follower | None = None,
    ) -> None:
        self.kernel = kernel
        self.inputs = inputs
        self.binding = bind_symbols(kernel, inputs, binding)
        check_inputs(kernel, inputs, self.binding)
        self.shadow = Shadow() if check else None
        self.storages: dict[Tensor, Storage] = {}
        self.barriers = Barriers()
        in_step = InStep() if len(kernel.bodies) > 1 else None
        target = TARGETS[kernel.target]
        self.cores = [
            Core(
                self,
                Interpreter(
                    target,
                    self.storage,
                    core,
                    self.binding,
                    self.shadow,
                    kernel.placement,
                    native,
                    self.barriers.exchange,
                    in_step,
                    watch,
                ),
                body,
            )
            for core, body in enumerate(kernel.bodies)
        ]

    def storage(self, tensor: Tensor) -> Storage:
        """The storage of a tensor; it is made when first asked for."""
        storage = self.storages.get(tensor)
        if storage is None:
            shape = tuple(evaluate(count, self.binding) for count in tensor.shape)
            storage = self.storages[tensor] = Storage(tensor, shape, self.shadow)
            if tensor.data is not None:
                storage.assign(tensor.data)
        return storage

    def run(self) -> RunResult:
        from simulator.execute import ControlTrace, RunResult

        kernel = self.kernel
        for tensor, array in zip(kernel.parameters, self.inputs):
            self.storage(tensor).assign(array)
        with quiet():
            step_cores([core.run() for core in self.cores], self.barriers)
        findings = []
        if self.shadow is not None:
            findings = list(self.shadow.findings)
            for tensor in kernel.tensors:
                if tensor.role in _RETURNED or tensor in kernel.results:
                    check_output(self.shadow, self.storage(tensor))
        return RunResult(
            [plain_copy(self.storage(tensor)) for tensor in kernel.results],
            [
                plain_copy(self.storage(tensor)) if tensor.role in _RETURNED else given
                for tensor, given in zip(kernel.parameters, self.inputs)
            ],
            ControlTrace([]),
            findings,
        )


def plain_copy(storage: Storage) -> np.ndarray[Any, Any]:
    """The contents as an array of the dtype's ordinary NumPy type."""
    return DTYPES[storage.tensor.dtype].array(storage.array())


def check_output(shadow: Shadow, storage: Storage) -> None:
    """Raise uninitialised-output or output-not-written unless all of it holds data."""
    shadow.check_output(
        storage.buffer,
        storage.tensor.name,
        DTYPES[storage.tensor.dtype].size,
        locations.resolve,
        storage.tensor.location,
    )


class Core:
    """The control flow of one core: loops, barriers, and what may be forgotten on the way."""

    def __init__(self, owner: Run, interpreter: Interpreter, body: list[Node]) -> None:
        self.owner = owner
        self.interpreter = interpreter
        self.body = body
        self.plans: dict[Op, list[Step]] = {}
        self.budget = DEFAULT_LOOP_LIMIT

    def run(self) -> Iterator[Arrival]:
        """Execute the body; yields where the core waits for others."""
        last = _last_uses(self.body)
        execute = self.interpreter.execute
        for position, node in enumerate(self.body):
            if not isinstance(node, Op):
                yield from self._control(node)
                self.plans.clear()
            elif node.row.meets:
                execute(node)
                yield self._arrive(node)
            elif node.row is not StorageBegin or node.values[0].storage.memory.on_chip:
                # HBM holds nothing at the start: another core may have written to it already.
                execute(node)
            for tensor in last.get(position, ()):
                self.owner.storages.pop(tensor, None)

    def _arrive(self, op: Op) -> Arrival:
        core = self.interpreter.state.number
        return op, self.owner.barriers.arrive(core, op.row.meeting(op.values, core))

    def _block(self, nodes: list[Node]) -> Iterator[Arrival]:
        interpreter, plans = self.interpreter, self.plans
        self.budget -= len(nodes) + 1
        for node in nodes:
            if not isinstance(node, Op):
                yield from self._control(node)
                continue
            plan = plans.get(node)
            if plan is None:
                plan = plans[node] = interpreter.plan(node)
            interpreter.execute(node, plan)
            if node.row.meets:
                yield self._arrive(node)

    def _control(self, node: Loop | While) -> Iterator[Arrival]:
        registers = self.interpreter.registers
        if isinstance(node, While):
            number = node.register.number
            while registers[number] != 0:
                yield from self._block(node.body)
                self._check_budget(node)
            return
        number = node.variable.number
        for value in range(self._value(node.lower), self._value(node.upper), node.step):
            registers[number] = value
            yield from self._block(node.body)
            self._check_budget(node)

    def _value(self, bound: Any) -> int:
        registers = self.interpreter.registers
        if isinstance(bound, Register):
            return registers[bound.number]
        return evaluate(bound, self.owner.binding, registers)

    def _check_budget(self, node: Loop | While) -> None:
        if self.budget < 0:
            raise NeuronError(
                "loop-limit",
                f"Core {self.interpreter.state.number} executed too many operations in loops.",
                location=locations.resolve(node.location),
            )


def _last_uses(body: list[Node]) -> dict[int, list[Tensor]]:
    """By position in the body: the on-chip tensors that no later node uses."""
    last: dict[Tensor, int] = {}
    for position, node in enumerate(body):
        for op in walk([node]):
            if isinstance(op, Op):
                for tensor in storages(op.values):
                    if tensor.memory.on_chip:
                        last[tensor] = position
    ends: dict[int, list[Tensor]] = {}
    for tensor, position in last.items():
        ends.setdefault(position, []).append(tensor)
    return ends


Arrival = tuple[Op, int]
"""Where a core waits for others: an operation, and how often the core has come to its meeting."""


def step_cores(cores: Sequence[Iterator[Arrival]], barriers: Barriers) -> None:
    """Run cores one after the other, each until it ends or has to wait for others.

    Raises NeuronError deadlock when all that have not ended wait.
    """
    waiting: dict[int, Arrival] = {}
    running = list(range(len(cores)))
    while running:
        moved = False
        for core in list(running):
            if core in waiting:
                op, sequence = waiting[core]
                if not barriers.passed(op.row.meeting(op.values, core), sequence):
                    continue
                del waiting[core]
            moved = True
            reached = next(cores[core], None)
            if reached is None:
                running.remove(core)
            else:
                waiting[core] = reached
        if not moved:
            raise deadlock({core: op for core, (op, _) in waiting.items()})


def deadlock(waiting: Mapping[int, Op]) -> NeuronError:
    """The error of cores that wait for others which never come."""
    core, op = next(iter(waiting.items()))
    what, cores = op.row.meeting(op.values, core)
    others = [other for other in cores if other != core]
    return NeuronError(
        "deadlock",
        f"Core {core} waits in {op.row.name} ({what}) for cores {others}, which have ended or wait "
        "elsewhere.",
        why="Cores that wait for each other must all come, and pair at each place in the order of "
        "their calls.",
        hint=f"Call nisa.{op.row.name} equally often on every core, and in the same order.",
        location=locations.resolve(op.location),
    )


# Launch ----------------------------------------------------------------------------------------


def bind_symbols(
    kernel: Kernel, inputs: list[np.ndarray[Any, Any]], binding: Mapping[str, int]
) -> dict[str, int]:
    """Values of all launch symbols: those given, else solved from the inputs' shapes.

    Raises NeuronError guard-refused for values that the kernel does not admit.
    """
    values = dict(binding)
    if kernel.symbols and len(inputs) == len(kernel.parameters):
        declared = [tensor.shape for tensor in kernel.parameters]
        values = {**solve_shape(declared, [array.shape for array in inputs]), **values}
    # A program without instructions stands for the kernel: its symbols and guards are the same.
    bind(
        Program(
            kernel.name,
            kernel.target,
            [],
            [],
            [],
            [],
            [],
            symbols=list(kernel.symbols),
            guards=list(kernel.guards),
        ),
        values,
    )
    return values


def check_inputs(
    kernel: Kernel, inputs: list[np.ndarray[Any, Any]], binding: Mapping[str, int]
) -> None:
    """Raise NeuronError input-mismatch unless the inputs are what the kernel declares."""
    if len(inputs) != len(kernel.parameters):
        raise NeuronError(
            "input-mismatch",
            f"{kernel.name} takes {len(kernel.parameters)} tensors, it got {len(inputs)}",
        )
    for tensor, name, array in zip(kernel.parameters, kernel.parameter_names, inputs):
        shape = tuple(evaluate(count, binding) for count in tensor.shape)
        if array.shape != shape or array.dtype != DTYPES[tensor.dtype].numpy:
            raise NeuronError(
                "input-mismatch",
                f"{kernel.name} takes {name} as {tensor.dtype}{list(shape)}, it got "
                f"{array.dtype}{list(array.shape)}",
            )
