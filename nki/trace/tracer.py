"""Running a kernel function to record its tile IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from isa.affine import DECIDE
from isa.errors import NeuronError
from isa.gc_pause import collection_paused
from isa.target import Target
from nki.ir.builder.core_builder import refuse_others
from nki.ir.builder.declarations import Declarations
from nki.ir.builder.loops import RolledLoop
from nki.ir.builder.registers import VirtualRegister
from nki.ir.context import Location
from nki.ir.locations import error_location, is_call
from nki.ir.nodes import Node, Op, Register, TracedKernel, operations
from nki.trace.authored import Authored, call_kernel
from nki.trace.call import spec_of, tensors_in
from nki.trace.comparison import TraceComparison
from nki.trace.shared import SharedTensors, results_of, warn_of_lost_results


class Tracer(Authored):
    """Records the operations of one core.

    The Python of a rolled loop's body runs twice, so that state which it carries from one iteration
    to the next is seen; what the second run made is dropped. In the second run a loop inside runs
    once: its two iterations have been compared in the first run. So depth adds to the runs of the
    innermost body and does not multiply them.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._second_runs = 0
        self._first_flags: dict[Op, Any] = {}

    def times(self) -> int:
        return 1 if self._second_runs else 2

    def _begin(self, loop: RolledLoop, variable: Register | None) -> None:
        self._second_runs += len(loop.bodies)
        super()._begin(loop, variable)

    def _bodies(self, loop: RolledLoop, first: Any, last: Any) -> Iterator[VirtualRegister]:
        yield from super()._bodies(loop, first, last)
        self._drop(loop)

    def _append_while(self, loop: RolledLoop, location: Location) -> None:
        self._drop(loop)
        super()._append_while(loop, location)

    def _leave(self, loop: RolledLoop, start: Any) -> list[Node]:
        nodes = super()._leave(loop, start)
        if len(loop.bodies) == 1:
            return nodes
        self._second_runs -= 1
        first, second = loop.bodies
        refuse_others(nodes, self.declarations.tensors)
        return TraceComparison(first, second, start, self._first_flags).merge()

    def _drop(self, loop: RolledLoop) -> None:
        """Names and numbers go on as if the second run of the body, if it had one, had not been."""
        if len(loop.bodies) == 1:
            return
        body = loop.bodies[1]
        tensors = self.declarations.tensors
        dropped = len(tensors) - body.tensor
        if dropped:
            del tensors[-dropped:]
            for label in self._labelled[-dropped:]:
                self._labels[label] -= 1
            del self._labelled[-dropped:]
        self._register = body.register


def trace(
    function: Callable[..., Any],
    arguments: dict[str, Any],
    target: Target,
    cores: int = 1,
) -> TracedKernel:
    """The tile IR of a kernel function for these arguments, one body per core.

    `arguments` are by parameter name: arrays and `TensorSpec`s become HBM tensors (shared HBM with
    several cores), everything else is passed through. Raises NeuronError with the kernel's line.
    """
    declarations = Declarations(function.__name__, target, cores)
    for value, name in tensors_in(arguments):
        spec = spec_of(value, name)
        declarations.parameter(spec.shape, spec.dtype, spec.name)
    shared = SharedTensors()
    bodies, results = [], []
    with collection_paused():
        for core in range(cores):
            tracer = Tracer(declarations, core, shared)
            returned = _run(function, arguments, tracer)
            results.append(results_of(returned, function))
            bodies.append(tracer.nodes)
    agreed = declarations.results = shared.agreed(results)
    written = any(tensor.role == "inout" for tensor in declarations.parameters)
    rows = (op.row.name for body in bodies for op in operations(body))
    warn_of_lost_results(function, agreed, written, rows)
    return declarations.kernel(bodies)


def _run(function: Callable[..., Any], arguments: dict[str, Any], tracer: Tracer) -> Any:
    """Call the kernel function with the tracer as context, which decides about launch symbols."""
    declarations = tracer.declarations
    decide = DECIDE.set(declarations.guards.decide)
    try:
        return call_kernel(function, arguments, declarations.parameters, tracer)
    except NeuronError as error:
        location = error_location(error)
        if error.code == "symbol-index" and location is not None and is_call(location, "range"):
            raise _range_error(error) from None
        raise
    finally:
        DECIDE.reset(decide)


def _range_error(error: NeuronError) -> NeuronError:
    """What a launch symbol in Python's `range` is: not just any symbol used as an integer."""
    found = NeuronError(
        "symbol-range", what=f"range() over a launch symbol: {error.what}", location=error.location
    )
    return found.with_traceback(error.__traceback__)
