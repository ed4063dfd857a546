"""A kernel run in each of the modes, with what follows its instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from isa.enums import SEQUENCERS, Engine
from isa.program import Program
from isa.target import TARGETS
from nki import settings
from nki.difference.distance import Array
from nki.difference.watch import ComparedPlace, InOrder, InStreams, Watch, another_way
from nki.frameworks.arrays import as_numpy
from nki.ir.nodes import Op, operations
from nki.ir.nodes import TracedKernel as TracedKernel
from nki.kernel import Kernel
from nki.trace.call import arrays_in, bind_arguments, call_arguments

if TYPE_CHECKING:
    from nki.passes.lower import CoreSteps


class ComparedKernel:
    """A kernel with its arguments, its trace, and the order in which the reference executes it."""

    def __init__(self, kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.kernel = kernel
        self.arguments = bind_arguments(kernel.function, tuple(args), dict(kwargs))
        self.traced = self.trace(self.arguments)

    def trace(self, arguments: dict[str, Any]) -> TracedKernel:
        args, kwargs = call_arguments(self.kernel.function, arguments)
        return self.kernel.trace(*args, **kwargs)

    def inputs(self, arguments: dict[str, Any]) -> list[Array]:
        return [as_numpy(array).copy() for array in arrays_in(arguments)]

    @cached_property
    def sequence(self) -> list[list[ComparedPlace]]:
        """The places of every core in the author's order, as the reference executes them."""
        return _in_order(self.traced, self.inputs(self.arguments), Watch())[1]


def _in_order(
    traced: TracedKernel, inputs: list[Array], watch: Watch
) -> tuple[list[Array], list[list[ComparedPlace]]]:
    """Outputs of the reference, and the places of every core as it executes them."""
    from nki.reference.in_order import in_order
    from simulator.execute import LoadedProgram

    ordered = in_order(traced)
    places: dict[tuple[int, Engine], list[ComparedPlace | None]] = {}
    for core, sources in enumerate(ordered.sources):
        numbers = {op: number for number, op in enumerate(operations(traced.bodies[core]))}
        places[core, Engine.unknown] = [
            None if source is None else (core, numbers[source[0]], source[1], 0)
            for source in sources
        ]
    follower = InStreams(watch, places)
    checks, native = settings.checks_wanted(), settings.native_wanted()
    loaded = LoadedProgram(
        ordered.program, checks, native, watch=follower, capacity=ordered.capacity
    )
    return loaded.run(inputs, traced=False).outputs, [follower.sequence[core] for core, _ in places]


def _reference(subject: ComparedKernel, watch: Watch) -> list[Array]:
    return _in_order(subject.traced, subject.inputs(subject.arguments), watch)[0]


def _eager(subject: ComparedKernel, watch: Watch) -> list[Array]:
    from nki.eager.eager import run_eager

    kernel = subject.kernel
    follower = InOrder(watch, subject.traced, subject.sequence)
    checks, native = settings.checks_wanted(), settings.native_wanted()
    target = TARGETS[subject.traced.target]
    outputs, _ = run_eager(
        kernel.function, subject.arguments, target, kernel.cores, checks, native, follower
    )
    return outputs


def _fp32(subject: ComparedKernel, watch: Watch) -> list[Array]:
    """The reference with low-precision tensors as float32."""
    from nki.trace.in_fp32 import in_fp32

    found: list[Array] = []

    def run(arguments: dict[str, Any]) -> None:
        traced = subject.trace(arguments)
        for core, bodies in enumerate(zip(traced.bodies, subject.traced.bodies)):
            for op, expected in zip_longest(*map(operations, bodies)):
                if op is None or expected is None or op.row is not expected.row:
                    raise another_way(core, op or expected, expected if op else None)
        found.extend(_in_order(traced, subject.inputs(arguments), watch)[0])

    token = settings.PRECISE.set(False)
    try:
        in_fp32(run, subject.arguments)
    finally:
        settings.PRECISE.reset(token)
    return found


def _device(subject: ComparedKernel, watch: Watch) -> list[Array]:
    from simulator.execute import LoadedProgram

    program, follower, inputs = _compiled(subject, watch)
    loaded = LoadedProgram(program, settings.checks_wanted(), native=False, watch=follower)
    return loaded.run(inputs, traced=False).outputs


def _native(subject: ComparedKernel, watch: Watch) -> list[Array]:
    """The program as mode device runs it, whose outputs these are; what its instructions wrote is
    of another run, which stops behind each."""
    from simulator.execute import LoadedProgram
    from simulator.parallel_slices import load

    program, follower, inputs = _compiled(subject, watch)
    checks = settings.checks_wanted()
    LoadedProgram(program, checks, watch=follower, in_loop=True).run(inputs)
    return (
        load(program, checks, threads=settings.threads_wanted()).run(inputs, traced=False).outputs
    )


def _compiled(subject: ComparedKernel, watch: Watch) -> tuple[Program, InStreams, list[Array]]:
    """The program of mode device for a subject's arguments, what follows it, and its inputs."""
    from nki.compiled import CompiledKernel
    from nki.pipeline import compile_kernel

    scheduled: list[CoreSteps] = []

    def observe(stage: str, form: Any) -> None:
        if stage == "schedule":
            scheduled.extend(form.cores)

    compiled = CompiledKernel(compile_kernel(subject.traced, observe))
    inputs = subject.inputs(subject.arguments)
    program = compiled.program_for(inputs)
    places: dict[tuple[int, Engine], list[ComparedPlace | None]] = {}
    for core, steps in enumerate(scheduled):
        computing = _computing_places(core, operations(subject.traced.bodies[core]), steps)
        for engine, stream in program.cores[core].streams.items():
            remaining = iter(computing[SEQUENCERS.index(engine)])
            places[core, engine] = [
                None if instruction.row.control else next(remaining) for instruction in stream
            ]
    return program, InStreams(watch, places), inputs


def _computing_places(
    core: int, ops: Iterable[Op], steps: CoreSteps
) -> list[list[ComparedPlace | None]]:
    """By engine, in the order of its stream: the place of every step that is no control."""
    numbers = {op: number for number, op in enumerate(ops)}
    parts: dict[Op, int] = {}
    places: list[list[ComparedPlace | None]] = [[] for _ in SEQUENCERS]
    for at in steps.order.tolist():
        step = steps.body.steps[at]
        if step.instruction.row.control:
            continue
        number = numbers.get(step.op)
        part = parts[step.op] = parts.get(step.op, -1) + 1
        places[step.engine].append(None if number is None else (core, number, part, 0))
    return places


RUNS: dict[str, Callable[[ComparedKernel, Watch], list[Array]]] = {
    "eager": _eager,
    "reference": _reference,
    "device": _device,
    "native": _native,
    "fp32": _fp32,
}

MODES = tuple(RUNS)
"""The modes of `nki.simulate`; native: the program of mode device in the native loop, where device
has it on NumPy; and fp32: the reference with tensors of low precision kept as float32
(NKI_PRECISE_FP=0)."""
