"""What a kernel means: the tile IR executed in the author's order, one core up to a barrier at a
time, on one storage a tensor.

It becomes a program without passes (`nki.reference.in_order`), which runs like any other: by the
native loop, with the same checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.affine import solve_shape
from isa.binding import bind
from nki.ir.nodes import TracedKernel
from nki.reference.in_order import in_order

if TYPE_CHECKING:
    from simulator.execute import RunResult


def run_reference(
    kernel: TracedKernel,
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

    Raises NeuronError input-mismatch, guard-refused, shape-unsolved, out-of-bounds,
    dynamic-out-of-bounds, deadlock, loop-limit, race, uninitialised-output, output-not-written.
    """
    from simulator.execute import LoadedProgram

    ordered = in_order(kernel)
    program = bind(ordered.program, _symbol_values(kernel, inputs, binding or {}))
    loaded = LoadedProgram(program, check, native, capacity=ordered.capacity)
    result = loaded.run(inputs, traced=False)
    result.findings = [
        replace(found, location=program.locations[found.location]) for found in result.findings
    ]
    return result


def _symbol_values(
    kernel: TracedKernel, inputs: list[np.ndarray[Any, Any]], binding: Mapping[str, int]
) -> dict[str, int]:
    """Values of all launch symbols: those given, else solved from the inputs' shapes."""
    if not kernel.symbols or len(inputs) != len(kernel.parameters):
        return dict(binding)
    declared = [tensor.shape for tensor in kernel.parameters]
    return {**solve_shape(declared, [array.shape for array in inputs]), **binding}
