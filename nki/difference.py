"""Finds the first operation at which two ways of running a kernel differ.

All ways follow the operations of one trace. A first run of each leaves a digest of what every
instruction wrote; a second looks at the values where digests differ. So a comparison needs little
memory, and twice the time of the runs. Instructions are those of NumPy or of micro-kernels, one by
one; the program of mode device runs on NumPy here, that of mode native in the native loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.dtypes import DTYPES, normalise
from isa.enums import SEQUENCERS, Engine
from isa.errors import NeuronError
from isa.program import Program, SourceLocation
from isa.spec import Instruction, MachineInstruction
from isa.target import TARGETS
from nki import settings
from nki.frameworks.arrays import as_numpy
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Op, operations
from nki.ir.nodes import TracedKernel as TracedKernel
from nki.kernel import Kernel
from nki.trace.call import arrays_in, bind_arguments, call_arguments
from simulator.views import Indirect

if TYPE_CHECKING:
    from nki.passes.lower import CoreSteps

Array = np.ndarray[Any, Any]

ComparedPlace = tuple[int, int, int, int]
"""An instruction that was executed: core, number of its operation in the core's body, number of the
instruction in the operation, and how often it was executed before."""

_FIRST_CHUNK, _CHUNK = 1 << 20, 1 << 27
"""Bytes of values that are kept at once: first, as most often the first place is the one, and at
most."""


@dataclass(frozen=True, slots=True)
class Unequal:
    """How two arrays differ: elements, the first and the one furthest apart with their two values,
    and the distance of the latter in units of the last place (of the coarser type)."""

    elements: int
    first: int
    first_values: tuple[Any, Any]
    furthest: int
    furthest_values: tuple[Any, Any]
    distance: float


@dataclass(frozen=True, slots=True)
class Difference:
    """The first instruction, in the author's order, whose results differ.

    `operand` of `operation` is the tensor `tensor`, of which a view of `shape` was written.
    `executed` is how often the operation had been executed before; `unequal` counts elements of
    the view in row-major order.
    """

    operation: str
    operand: str
    tensor: str
    dtypes: tuple[str, str]
    shape: tuple[int, ...]
    core: int
    executed: int
    location: SourceLocation | None
    unequal: Unequal

    def coordinates(self, element: int) -> tuple[int, ...]:
        """Where an element is in the view."""
        if element >= math.prod(self.shape):
            return (element,)
        return tuple(int(i) for i in np.unravel_index(element, self.shape))


@dataclass(frozen=True, slots=True)
class ModeComparison:
    """Two ways of running a kernel: their first difference, if any, how many instructions were
    compared and how many of them differ, and the outputs that differ, by number."""

    modes: tuple[str, str]
    compared: int
    unequal: int
    first: Difference | None
    outputs: dict[int, Unequal]

    @property
    def agrees(self) -> bool:
        return self.first is None and not self.outputs


def compare_modes(
    kernel: Kernel,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    modes: tuple[str, str] = ("eager", "device"),
    tolerance: float = 0.0,
) -> ModeComparison:
    """Run a kernel in two modes on the same inputs and compare what every instruction writes.

    `modes` are of `MODES`. Elements differ when they are more than `tolerance` units in the last
    place apart; NaN equals NaN. Inputs stay as they are.

    Raises unknown-mode, and what running the kernel raises.

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def third(a):
    ...     tile = nl.load(a)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=1 / 3)
    ...     nl.store(out, tile)
    ...     return out
    >>> import ml_dtypes
    >>> a = np.ones((2, 4), ml_dtypes.bfloat16)
    >>> compare_modes(third, [a], {}).agrees
    True
    >>> first = compare_modes(third, [a], {}, ("device", "fp32")).first
    >>> first.operation, first.tensor, first.unequal.elements
    ('tensor_scalar', 'tile', 8)
    """
    for mode in modes:
        if mode not in MODES:
            raise NeuronError("unknown-mode", f"mode {mode!r} is none of {', '.join(MODES)}")
    return _Pair(_Subject(kernel, args, kwargs), modes, tolerance).compare()


def unequal(one: Array, other: Array, tolerance: float = 0.0) -> Unequal | None:
    """How two arrays of one size differ; None if no element is further apart than `tolerance` units
    in the last place.

    >>> found = unequal(np.float32([1, 2, 3]), np.float32([1, 2, 3.5]))
    >>> found.elements, found.first, found.first_values
    (1, 2, (3.0, 3.5))
    """
    one, other = one.reshape(-1), other.reshape(-1)
    apart = _distance(one, other)
    wrong = np.flatnonzero(apart > tolerance)
    if not wrong.size:
        return None
    first, furthest = int(wrong[0]), int(np.argmax(apart))
    return Unequal(
        int(wrong.size),
        first,
        (one[first].item(), other[first].item()),
        furthest,
        (one[furthest].item(), other[furthest].item()),
        float(apart[furthest]),
    )


def _distance(one: Array, other: Array) -> Array:
    """How far elements are apart: in units in the last place of the coarser type at the larger of
    the two for floats, the difference for other types; infinite where one alone is NaN, or an
    infinity."""
    with np.errstate(all="ignore"):
        left, right = one.astype(np.float64), other.astype(np.float64)
        unit = np.maximum(_unit(one.dtype, left, right), _unit(other.dtype, left, right))
        apart = np.abs(left - right) / unit
    apart[(left == right) | (np.isnan(left) & np.isnan(right))] = 0.0
    apart[np.isnan(apart)] = np.inf
    return apart


def _unit(dtype: Any, left: Array, right: Array) -> Array:
    row = DTYPES[normalise(dtype)]
    if not row.is_float:
        return np.ones(left.shape)
    lowest = 2 - (1 << (row.exponent_bits - 1))  # the exponent of the smallest normal number
    size = np.maximum(np.abs(left), np.abs(right))
    _, exponent = np.frexp(np.where(np.isfinite(size), size, 0.0))
    return np.ldexp(1.0, np.maximum(exponent - 1, lowest) - row.mantissa_bits)


# Following a run ---------------------------------------------------------------------------------


class Watch:
    """What every instruction of one run wrote: digests by place, and the values at the places
    `wanted`."""

    def __init__(self, wanted: frozenset[ComparedPlace] = frozenset()) -> None:
        self.wanted = wanted
        self.digests: dict[ComparedPlace, tuple[bytes, int]] = {}
        self.values: dict[ComparedPlace, list[Array]] = {}

    def note(
        self, place: ComparedPlace, row: type[MachineInstruction], values: Sequence[Any]
    ) -> None:
        """An instruction has been executed on these values."""
        written = [_elements(values[i]) for i in row.writes if values[i] is not None]
        digest = blake2b(digest_size=8)
        for array in written:
            digest.update(np.ascontiguousarray(array).tobytes())
        self.digests[place] = digest.digest(), sum(array.nbytes for array in written)
        if place in self.wanted:
            self.values[place] = [array.copy() for array in written]


def _elements(value: Any) -> Array:
    if isinstance(value, Indirect):
        value = value.gather()[0]
    array: Array = value
    return array if array.ndim else array.reshape(1)


class InOrder:
    """Follows cores that execute operations in the author's order, as `nki.eager.launch` sees
    them: those of `sequence`, the same in another run. Raises value-not-allowed where the runs take
    other ways."""

    def __init__(
        self, watch: Watch, traced: TracedKernel, sequence: list[list[ComparedPlace]]
    ) -> None:
        self.watch = watch
        self._sequence = sequence
        self._operations = [list(operations(body)) for body in traced.bodies]
        self._executed = [0 for _ in traced.bodies]

    def __call__(
        self, core: int, op: Op, row: type[MachineInstruction], values: Sequence[Any]
    ) -> None:
        """An instruction of an operation has been executed."""
        position, sequence = self._executed[core], self._sequence[core]
        expected = None
        if position < len(sequence):
            expected = self._operations[core][sequence[position][1]]
        if expected is None or expected.row is not op.row:
            raise _another_way(core, op, expected)
        self._executed[core] += 1
        self.watch.note(sequence[position], row, values)


def _another_way(core: int, op: Op, expected: Op | None) -> NeuronError:
    """The error of runs that do not execute the same operations."""
    return NeuronError(
        "value-not-allowed",
        what=f"core {core} executes {op.row.name} where the traced kernel has "
        + ("ended" if expected is None else expected.row.name),
        why="Results can be compared where both runs execute the same operations. A kernel "
        "does what its arguments say; it may not ask what changes from call to call.",
        hint="Compare modes reference and device, which run one trace.",
        location=resolve(op.location),
    )


class InStreams:
    """Follows the streams of a program: `places` are by core, engine and the instruction's index;
    None for what belongs to no operation of the trace. `sequence` are those that were executed, by
    the core."""

    def __init__(
        self, watch: Watch, places: dict[tuple[int, Engine], list[ComparedPlace | None]]
    ) -> None:
        self.watch = watch
        self.places = places
        self.sequence: dict[int, list[ComparedPlace]] = {core: [] for core, _ in places}
        self._executed: dict[ComparedPlace, int] = {}

    def __call__(self, core: int, engine: Engine, index: int, row: Any, values: Any) -> None:
        """The instruction at `index` of a stream has been executed."""
        static = self.places[core, engine][index]
        if static is not None:
            times = self._executed[static] = self._executed.get(static, -1) + 1
            place = (*static[:3], times)
            self.sequence[core].append(place)
            self.watch.note(place, row, values)


# The ways of running -----------------------------------------------------------------------------


class _Subject:
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


def _reference(subject: _Subject, watch: Watch) -> list[Array]:
    return _in_order(subject.traced, subject.inputs(subject.arguments), watch)[0]


def _eager(subject: _Subject, watch: Watch) -> list[Array]:
    from nki.eager.eager import run_eager

    kernel = subject.kernel
    follower = InOrder(watch, subject.traced, subject.sequence)
    checks, native = settings.checks_wanted(), settings.native_wanted()
    target = TARGETS[subject.traced.target]
    outputs, _ = run_eager(
        kernel.function, subject.arguments, target, kernel.cores, checks, native, follower
    )
    return outputs


def _fp32(subject: _Subject, watch: Watch) -> list[Array]:
    """The reference with low-precision tensors as float32."""
    from nki.trace.in_fp32 import in_fp32

    found: list[Array] = []

    def run(arguments: dict[str, Any]) -> None:
        traced = subject.trace(arguments)
        for core, bodies in enumerate(zip(traced.bodies, subject.traced.bodies)):
            for op, expected in zip_longest(*map(operations, bodies)):
                if op is None or expected is None or op.row is not expected.row:
                    raise _another_way(core, op or expected, expected if op else None)
        found.extend(_in_order(traced, subject.inputs(arguments), watch)[0])

    token = settings.PRECISE.set(False)
    try:
        in_fp32(run, subject.arguments)
    finally:
        settings.PRECISE.reset(token)
    return found


def _device(subject: _Subject, watch: Watch) -> list[Array]:
    from simulator.execute import LoadedProgram

    program, follower, inputs = _compiled(subject, watch)
    loaded = LoadedProgram(program, settings.checks_wanted(), native=False, watch=follower)
    return loaded.run(inputs, traced=False).outputs


def _native(subject: _Subject, watch: Watch) -> list[Array]:
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


def _compiled(subject: _Subject, watch: Watch) -> tuple[Program, InStreams, list[Array]]:
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


_RUNS: dict[str, Callable[[_Subject, Watch], list[Array]]] = {
    "eager": _eager,
    "reference": _reference,
    "device": _device,
    "native": _native,
    "fp32": _fp32,
}

MODES = tuple(_RUNS)
"""The modes of `nki.simulate`; native: the program of mode device in the native loop, where device
has it on NumPy; and fp32: the reference with tensors of low precision kept as float32
(NKI_PRECISE_FP=0)."""


# Comparing ---------------------------------------------------------------------------------------


class _Pair:
    """Two runs of one subject, as often as is needed."""

    def __init__(self, subject: _Subject, modes: tuple[str, str], tolerance: float) -> None:
        self.subject = subject
        self.modes = modes
        self.tolerance = tolerance

    def compare(self) -> ModeComparison:
        (one, outputs), (other, others) = self._run(), self._run(second=True)
        left, right = one.digests, other.digests
        common = [p for sequence in self.subject.sequence for p in sequence]
        common = [place for place in common if place in left and place in right]
        apart = [place for place in common if left[place][0] != right[place][0]]
        found = {
            number: difference
            for number, pair in enumerate(zip(outputs, others))
            if (difference := unequal(*pair, self.tolerance)) is not None
        }
        first = self._first(apart, left) if apart else None
        return ModeComparison(self.modes, len(common), len(apart), first, found)

    def _run(
        self, wanted: Sequence[ComparedPlace] = (), second: bool = False
    ) -> tuple[Watch, list[Array]]:
        watch = Watch(frozenset(wanted))
        outputs = _RUNS[self.modes[second]](self.subject, watch)
        return watch, outputs

    def _first(
        self, apart: list[ComparedPlace], sizes: dict[ComparedPlace, tuple[bytes, int]]
    ) -> Difference | None:
        """The first of the places at which elements are further apart than the tolerance. Cores
        are compared one after the other; of each the author's order counts."""
        start, limit = 0, _FIRST_CHUNK
        while start < len(apart):
            size, stop = 0, start
            while stop < len(apart) and (stop == start or size < limit):
                size += sizes[apart[stop]][1]
                stop += 1
            chunk, limit = apart[start:stop], min(_CHUNK, limit * 8)
            one, _ = self._run(chunk)
            other, _ = self._run(chunk, second=True)
            for place in chunk:
                pairs = zip(one.values[place], other.values[place])
                for number, (left, right) in enumerate(pairs):
                    found = unequal(left, right, self.tolerance)
                    if found is not None:
                        return self._described(place, number, left, right, found)
            start = stop
        return None

    def _described(
        self, place: ComparedPlace, number: int, left: Array, right: Array, found: Unequal
    ) -> Difference:
        core, operation, part, executed = place
        traced = self.subject.traced
        op = list(operations(traced.bodies[core]))[operation]
        instruction = _instructions(op, traced.target)[part]
        row, values = instruction.row, instruction.values
        written = [i for i in row.writes if values[i] is not None]
        access = values[written[number]]
        assert isinstance(access, Access)
        names = [name for name, value in zip(op.row.field_names, op.values) if value is access]
        return Difference(
            op.row.name,
            names[0] if names else row.field_names[written[number]],
            access.storage.name,
            (normalise(left.dtype), normalise(right.dtype)),
            tuple(left.shape) if not all(type(n) is int for n in access.shape) else access.shape,
            core,
            executed,
            resolve(op.location),
            found,
        )


def _instructions(op: Op, target: str) -> list[Instruction]:
    """The instructions of an operation that compute or move data."""
    machine = TARGETS[target]
    expanded = op.row.expand(op.row.resolve(op.values, machine), machine)
    return [instruction for instruction in expanded if not instruction.row.control]
