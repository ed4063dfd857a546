"""Kernels inside functions that `torch.export` traces: operators of torch, made for the call.

A tensor that is traced has a shape and a data type, which is what compiling a kernel takes. The
operator runs the kernel where the exported program is run, and a graph compiler finds the kernel as
`nki_kernel` of `torch.ops.<NAMESPACE>.<name>`.
"""

from __future__ import annotations

import contextvars
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from nki.frameworks.arrays import as_numpy, exports, like
from nki.jax_transforms import GraphKernel
from nki.trace.call import TensorSpec, arrays_in, map_tensors

NAMESPACE = "opennki"
"""The library of torch that has the operators."""


def is_exported(arguments: dict[str, Any]) -> bool:
    """Whether torch.export traces a call of a kernel with these arguments."""
    torch = sys.modules.get("torch")
    if torch is None or not exports(torch):
        return False
    return any(isinstance(array, torch.Tensor) for array in arrays_in(arguments))


def exported_call(
    run: Callable[[dict[str, Any]], Any], kernel: Any, arguments: dict[str, Any]
) -> Any:
    """The results, as traced tensors, of `run` on the arguments when their values are there.

    `kernel`, compiled, says what the results are.
    """
    import torch

    specs = {
        name: map_tensors(value, name, lambda array, _: TensorSpec(array.shape, _dtype(array)))
        for name, value in arguments.items()
    }
    compiled = kernel.compiled(specs)
    compiled.refuse_lost_writes(arrays_in(arguments))
    context = contextvars.copy_context()

    def call(arrays: list[Any]) -> list[Any]:
        # An operator leaves its arguments as they are, and none of them is a result.
        values = [np.array(as_numpy(array)) for array in arrays]
        found = context.copy().run(run, _in_place_of(arguments, values))
        outputs = found if isinstance(found, (tuple, list)) else [found]
        return list(like(arrays, list(outputs)))

    name, number = kernel.function.__name__.strip("<>"), 0
    operators = getattr(torch.ops, NAMESPACE)
    while hasattr(operators, f"{name}_{number}"):
        number += 1
    schema = "(Tensor[] arrays) -> Tensor[]"
    operator = torch.library.custom_op(
        f"{NAMESPACE}::{name}_{number}", call, mutates_args=(), schema=schema
    )
    declared = [compiled.program.tensors[index] for index in compiled.program.results]

    @operator.register_fake
    def shapes(arrays: list[Any]) -> list[Any]:
        return [arrays[0].new_empty(t.shape, dtype=getattr(torch, t.dtype)) for t in declared]

    getattr(operators, f"{name}_{number}").nki_kernel = ExportedKernel(kernel, specs)
    return compiled.packed(operator(list(arrays_in(arguments))))


class ExportedKernel(GraphKernel):
    """A kernel as an exported program calls it."""

    def __call__(self, *arrays: Any) -> Any:
        """The results for arrays of any library, which stand for the traced tensors in order."""
        return self.kernel(**_in_place_of(self.arguments, arrays))


def _in_place_of(arguments: dict[str, Any], values: Any) -> dict[str, Any]:
    """Arguments with other arrays."""
    given = iter(values)
    return {
        name: map_tensors(value, name, lambda *_: next(given)) for name, value in arguments.items()
    }


def _dtype(tensor: Any) -> str:
    """The name of a data type of torch."""
    return str(tensor.dtype).removeprefix("torch.")
