"""Graphs compiled for a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.arguments import module_argument, sequence_argument
from graph_compiler.inputs import checked_inputs
from graph_compiler.lookups import index_ranges, report
from graph_compiler.lower.participants import ranks_of
from graph_compiler.memory import memory_use
from graph_compiler.options import GraphOptions, check_target
from isa.dtypes import DTYPES
from isa.errors import NeuronError
from nki.errors import named_arguments
from simulator.ranks import World, run_world
from simulator.runtime.index_ranges import KEY

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from graph_compiler.kernels import Kernels
    from graph_compiler.lower.assemble import Assembled
    from graph_compiler.lower.notes import LoweringNotes
    from isa.target import Target
    from nki.compiled import CompiledKernel
    from simulator.profile import Profile

Array = Any

_VIEWED = frozenset({"float8_e4m3fn"})
"""Types of parameters whose bytes the device may read as another type."""


class Compiled:
    """A graph compiled for a device: call it with an array for each parameter.

    `kernel` is the compiled kernel (`nki.compiled.CompiledKernel`), whose `program` is the
    `isa.program.Program`. Results come as a list, a tuple's components one after another. `memory`
    is what all of it takes in HBM (`graph_compiler.memory.MemoryUse`), which prints. `notes`: its
    loops, and what fell to a generic schedule (`graph_compiler.lower.notes`). `ranks`: how many
    run it together (`run_ranks`), 1 for a graph without collectives.

    >>> import numpy as np
    >>> from graph_compiler import compile, parse_text
    >>> text = "HloModule m\\nENTRY e {\\n x = f32[6] parameter(0)\\n ROOT r = f32[6] tanh(x)\\n}"
    >>> compiled = compile(parse_text(text), "trn2")
    >>> results, profile = compiled.profile(np.zeros(6, np.float32))
    >>> results[0].sum().item(), profile.total_ns > 0
    (0.0, True)
    """

    def __init__(
        self, module: Module, kernel: CompiledKernel, unshared: int, notes: LoweringNotes
    ) -> None:
        self.module = module
        self.ranks = ranks_of(module)
        self._ranges = index_ranges(module)
        self.kernel = kernel
        self.notes = notes
        self.memory = memory_use(kernel.program, unshared)

    def __call__(self, *inputs: Any) -> list[Array]:
        outputs = self.kernel(*self._given(inputs))
        return self._found(outputs)

    @named_arguments
    def profile(self, *inputs: Any) -> tuple[list[Array], Profile]:
        """Run and time: the results as a call returns them, and the profile."""
        outputs, profile = self.kernel.profile(*self._given(inputs))
        return self._found(outputs), profile

    @named_arguments
    def run_ranks(self, inputs: Sequence[Sequence[Any]]) -> list[list[Array]]:
        """The results of every rank of a distributed graph, on a simulated core each. `inputs[r]`
        are rank r's. Raises input-mismatch for another number of ranks than the graph has, and the
        error of the first rank that fails.

        >>> import numpy as np
        >>> from graph_compiler import compile, parse_text
        >>> text = "HloModule m, replica_count=3\\nENTRY e { ROOT i = u32[] replica-id() }"
        >>> [int(ids[0]) for ids in compile(parse_text(text), "trn2").run_ranks([[], [], []])]
        [0, 1, 2]
        """
        return self._on_ranks(self, inputs)

    @named_arguments
    def profile_ranks(
        self, inputs: Sequence[Sequence[Any]]
    ) -> tuple[list[list[Array]], list[Profile]]:
        """Run and time on all ranks: the results as `run_ranks` gives them, and the profile of each
        rank, to which the others come at the same time."""
        found = self._on_ranks(self.profile, inputs)
        return [outputs for outputs, _ in found], [profile for _, profile in found]

    def _on_ranks(self, run: Callable[..., Any], inputs: Sequence[Sequence[Any]]) -> list[Any]:
        sequence_argument(inputs, "run_ranks")
        if len(inputs) != self.ranks:
            raise NeuronError(
                "input-mismatch",
                f"`{self.module.name}` has inputs of {len(inputs)} ranks, and is for {self.ranks}.",
                hint="Give the inputs of every rank, in the order of the ranks.",
            )
        world = World(self.ranks, in_turns=True)
        return run_world(world, [partial(run, *given) for given in inputs])

    @named_arguments
    def save(self, path: Any) -> None:
        """Write the program as a container; replaces the file as a whole or not at all."""
        from isa.files.container import save

        save(self.kernel.program, path, self.metadata)

    @property
    def metadata(self) -> dict[str, Any]:
        """What its container has beside the program: the indices that callers give, and their
        ranges."""
        return {KEY: [list(one) for one in self._ranges]} if self._ranges else {}

    def _given(self, inputs: Any) -> list[Array]:
        from graph_compiler.schedule.simplify import leaves

        checked = checked_inputs(self.module, inputs)
        values = [v for v in leaves(tuple(checked)) if np.size(v)]
        report(self._ranges, values)
        program = self.kernel.program
        tensors = [program.tensors[index] for index in program.parameters]
        arrays = [_stored(np.asarray(value), own.dtype) for value, own in zip(values, tensors)]
        # A kernel updates arrays in place; what a caller passes to a graph stays as it is.
        return [
            array.copy() if own.role == "inout" else array for array, own in zip(arrays, tensors)
        ]

    def _found(self, outputs: Any) -> list[Array]:
        from graph_compiler.hlo.types import Shape
        from graph_compiler.schedule.simplify import forms

        given = iter(outputs if isinstance(outputs, (tuple, list)) else [outputs])
        return [
            np.asarray(next(given)).view(Shape(type, dims).numpy_dtype()).reshape(dims)
            if 0 not in dims
            else np.empty(dims, Shape(type, dims).numpy_dtype())
            for type, dims in forms(self.module.result_shape)
        ]


def _stored(array: Array, dtype: str) -> Array:
    """An array as the device holds it: preds as bytes, f8e4m3fn as what options make of it, 64-bit
    integers as their halves, scalars as one element."""
    if array.dtype == np.bool_:
        array = array.view(np.uint8)
    elif array.dtype.kind in "iu" and array.dtype.itemsize > DTYPES[dtype].numpy.itemsize:
        return np.ascontiguousarray(array).reshape(*array.shape, 1).view(DTYPES[dtype].numpy)
    elif array.dtype.name in _VIEWED:
        array = array.view(DTYPES[dtype].numpy)
    return array.reshape(array.shape or (1,))


def _unobserved(stage: str, product: Any) -> None:
    """Nobody looks at what stages make."""


@named_arguments
def compile(
    module: Module,
    target: str | None = None,
    options: GraphOptions | None = None,
    observe: Callable[[str, Any], None] = _unobserved,
    *,
    kernels: Kernels | None = None,
) -> Compiled:
    """A graph compiled for a device.

    `target`: "trn1", "trn2" ...; without it the one that settings name. `kernels`: those that
    the graph calls (target `AwsNeuronCustomNativeKernel`), by name; `graph_compiler.frontends.jax`
    adds those that a jax function calls. `observe(stage, product)` sees what each stage makes, tile
    IR first; where another plan than the first is taken, once more for that one.

    Raises NeuronError: hlo-not-compiled for what has no form on the device, documented-refusal for
    what the SDK documents as an error (`admission`), hlo-option, and hlo-unknown-kernel.

    >>> import numpy as np
    >>> from graph_compiler import compile, parse_text
    >>> text = "HloModule m\\nENTRY e {\\n x = f32[3] parameter(0)\\n ROOT r = f32[3] add(x, x)\\n}"
    >>> compile(parse_text(text), "trn2")(np.array([1, 2, 4], np.float32))
    [array([2., 4., 8.], dtype=float32)]
    """
    from graph_compiler.admission import admit, admit_memory
    from graph_compiler.lower.busy_tensor import KeepTensorBusy
    from graph_compiler.lower.early_tables import LoadTablesEarly
    from graph_compiler.storage.arena import ShareArenas, local_bytes
    from nki import progress, settings
    from nki.kernel import compile_traced
    from nki.passes.order.schedule import SPACED

    module_argument(module, "compile")
    if not isinstance(options, (GraphOptions, type(None))):
        what = f"the options of compile are a GraphOptions, not {type(options).__name__}."
        raise NeuronError("argument-kind", what, hint="Pass graph_compiler.GraphOptions(...).")
    if not isinstance(kernels, (Mapping, type(None))):
        what = f"the kernels of compile are a dict, not {type(kernels).__name__}."
        raise NeuronError("argument-kind", what, hint="Pass the kernels by name: {name: kernel}.")
    chosen, wanted = settings.target(target), options or GraphOptions()
    check_target(wanted, chosen)
    admit(module, chosen, wanted)

    spaced = False  # whether products are apart (`SPACED`) in the plan that is compiled next

    def compiled(made: Assembled, observe: Callable[[str, Any], None]) -> Compiled:
        shared = ShareArenas(distance=_DISTANCE).run(made.kernel)
        admit_memory(shared, module, chosen)
        unshared = local_bytes(made.kernel)
        before = SPACED.set(spaced)
        try:
            return Compiled(module, compile_traced(shared, observe), unshared, made.notes)
        finally:
            SPACED.reset(before)

    progress.stage("tile IR")
    plan, others, more = _plans(module, chosen, wanted, kernels)
    made = _finished(plan, wanted)
    timed = bool(others) or (more and _forwarded(plan) is not None)
    with progress.part(f"plan 1 of {len(others) + 1}" if others else ""):
        first = best = compiled(made, observe)
        time = _time(best) if timed else None
    if time is None:
        return first
    least = time

    def tried(other: Assembled) -> bool:
        """Whether it is faster than the best one, the place of which it takes then."""
        nonlocal best, made, least
        found = compiled(other, _unobserved)
        taken = _time(found)
        if taken is None or taken >= least:
            return False
        best, made, least = found, other, taken
        return True

    for number, (name, lowered) in enumerate(others, start=2):
        with progress.part(f"plan {number} of {len(others) + 1} ({name})"):
            progress.stage("tile IR")
            other = lowered()
            if tried(_finished(other, wanted)):
                plan = other
    forwarded = _forwarded(plan)
    if forwarded is not None:
        with progress.part("tiles that are not loaded again"), _if_it_fits():
            tried(_finished(forwarded, wanted))
    for what, transformation in (
        ("activation tables that are loaded early", LoadTablesEarly()),
        ("products that keep the tensor engine busy", KeepTensorBusy()),
    ):
        changed = made._replace(kernel=transformation.run(made.kernel))
        if changed.kernel is not made.kernel:
            with progress.part(what), _if_it_fits():
                tried(changed)
    spaced = True
    with progress.part("products that are further apart"):
        spaced = tried(made)
    unseen = best is not first and observe is not _unobserved
    return compiled(made, observe) if unseen else best


@contextmanager
def _if_it_fits() -> Iterator[None]:
    """Goes on behind what takes more room on chip than there is."""
    try:
        yield
    except NeuronError as error:
        if error.code not in ("psum-overflow", "sbuf-overflow"):
            raise


def _time(compiled: Compiled) -> float | None:
    """The ns that a graph takes, with one trip of loops that data end, and with pixels that are
    finite; None where data decide more than that."""
    from graph_compiler.timing import static_timeline
    from nki import progress

    progress.stage("timing")
    finite = compiled.notes.finite
    timeline = static_timeline(compiled.kernel.program, once=not finite, never=finite)
    return None if timeline is None else timeline.total_ns


def _plans(
    module: Module, target: Target, options: GraphOptions, kernels: Kernels | None
) -> tuple[Assembled, list[tuple[str, Callable[[], Assembled]]], bool]:
    """The graph's tile IR by the first plan; what makes it by the others that the options have
    tried, where these differ, by name; and whether there is time for any other."""
    from graph_compiler.lower.assemble import planned
    from graph_compiler.lower.limits import plans
    from graph_compiler.lower.rewritten import rewritten_graph
    from nki.ir.nodes import operations

    graph = rewritten_graph(module, target, options)
    lowered = partial(planned, graph, target, options, kernels)
    first, *others = plans(options.logical_cores)
    made = lowered(first)
    if options.optimisation < _TRIED:
        return made, [], False
    count = sum(1 for body in made.kernel.bodies for _ in operations(body))
    most = max(0, _MOST // max(count, 1) - 1)
    differing = {limits.decisions(first.asked): limits for limits in reversed((first, *others))}
    tried = [limits for limits in others if limits in differing.values()][:most]
    return made, [(limits.name, partial(lowered, limits)) for limits in tried], most > 0


def _finished(plan: Assembled, options: GraphOptions) -> Assembled:
    """A plan's tile IR without what nobody reads, as far as the options ask for it."""
    from graph_compiler.lower.grouped_tables import GroupTables
    from graph_compiler.storage.kept_loads import KeepLoads
    from graph_compiler.storage.unread import DropUnread
    from nki.transformations.copies import BalanceCopies

    kernel = plan.kernel
    if options.optimisation >= _TRIED:
        kernel = GroupTables().run(kernel)
    kernel = DropUnread().run(kernel)
    if options.optimisation >= _TRIED:
        kernel = KeepLoads().run(kernel)
    return plan._replace(kernel=BalanceCopies().run(kernel))


def _forwarded(plan: Assembled) -> Assembled | None:
    """A plan in which tiles are not loaded again, if that is another one. They take room for
    longer, which may cost more than the loads."""
    from graph_compiler.storage.forwarded_stores import ForwardStores

    kernel = ForwardStores().run(plan.kernel)
    return None if kernel is plan.kernel else plan._replace(kernel=kernel)


_TRIED = 2
"""The level of optimisation from which on plans are compiled and timed, and loads kept."""

_MOST = 80_000
"""Operations that are compiled for all plans together. The first plan is always compiled."""

_DISTANCE = 100
"""Operations behind a value's last use for which its bytes stay its own: BERT-base takes 4.1 MiB
instead of 2.2 with none, and no step waits for a place."""
