"""Kernels inside `jax.jit` and `jax.vmap`: a call back to this process when the computation runs.

A traced array has a shape and a data type, which is what compiling a kernel takes; the values come
when the compiled computation runs. Derivatives are those of `jax.custom_vjp`, as for any callback.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from isa.dtypes import DTYPES
from nki.ir.nodes import TracedKernel as TracedKernel
from nki.trace.call import TensorSpec, arrays_in, map_tensors


class GraphKernel:
    """A kernel as a traced computation calls it: on arrays of these shapes, with what else its
    parameters are.

    A graph compiler finds it as `nki_kernel` of the function that is called back. `kernel` is an
    `nki.kernel.Kernel`.
    """

    def __init__(self, kernel: Any, arguments: dict[str, Any]) -> None:
        self.kernel = kernel
        self.__name__ = kernel.function.__name__
        self.arguments = {
            name: map_tensors(value, name, lambda array, _: TensorSpec(array.shape, array.dtype))
            for name, value in arguments.items()
        }

    def trace(self, *specs: TensorSpec, target: str | None = None) -> TracedKernel:
        """The tile IR. `specs` are those that it was called with."""
        traced: TracedKernel = self.kernel.on(target).traced(self.arguments)
        return traced


def is_traced(arguments: dict[str, Any]) -> bool:
    """Whether an array among the arguments of a kernel has no values yet."""
    jax = sys.modules.get("jax")
    return jax is not None and any(isinstance(a, jax.core.Tracer) for a in arrays_in(arguments))


def called_back(
    run: Callable[[dict[str, Any]], Any], kernel: Any, arguments: dict[str, Any]
) -> Any:
    """The results, as traced arrays, of `run` on the arguments when their values are there.

    `kernel`, compiled, says what the results are.
    """
    import jax

    compiled = kernel.compiled(arguments)
    context = contextvars.copy_context()

    def call(*values: Any) -> Any:
        given = iter(values)
        concrete = {
            name: map_tensors(value, name, lambda *_: np.asarray(next(given)))
            for name, value in arguments.items()
        }
        # Calls may run at the same time, in threads of their own.
        return context.copy().run(run, concrete)

    call.nki_kernel = GraphKernel(kernel, arguments)  # type: ignore[attr-defined]
    program = compiled.program
    compiled.refuse_lost_writes(arrays_in(arguments))
    declared = [program.tensors[index] for index in program.results]
    results = [jax.ShapeDtypeStruct(t.shape, DTYPES[t.dtype].numpy) for t in declared]
    return jax.pure_callback(
        call, compiled.packed(results), *arrays_in(arguments), vmap_method="sequential"
    )
