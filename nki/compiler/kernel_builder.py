"""Compiling a function of tensors, those it writes among them, without a decorator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from isa.errors import NeuronError
from nki.compiler.frontend import NKIFrontend
from nki.compiler.ncc_driver import CompiledKernel, CompileOptions
from nki.errors import user_frames
from nki.trace.call import TensorSpec, spec_of


@user_frames
def compile_kernel(
    kernel: Callable[..., Any],
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    compile_opts: CompileOptions,
    **hyperparameters: Any,
) -> CompiledKernel:
    """Compile `kernel` into a container. It gets all of `inputs`, `outputs` (arrays or
    `TensorSpec`s) and `hyperparameters` by the names of its parameters, and writes to `outputs`,
    which are the results: `nki.load(path)` changes these arguments in place.

    Source: SDK nki/get-started/nki-language-guide.rst, functions as hyperparameters; what it
    returns is as of `nki.compiler.ncc_driver`. Raises the errors of `nki.compile`;
    value-not-allowed for a name that is given twice, and for a kernel that returns tensors.

    >>> import numpy as np, pathlib, tempfile, nki, nki.isa as nisa, nki.language as nl
    >>> def mapped(a, b, function):
    ...     tile = nl.load(a)
    ...     function(tile, tile)
    ...     nl.store(b, tile)
    >>> def relu(dst, src):
    ...     nisa.activation(dst=dst, data=src, op=nl.relu)
    >>> a, b = np.array([[-1, 2]], np.float32), np.zeros((1, 2), np.float32)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     options = CompileOptions(output_path=str(pathlib.Path(folder, "relu.neff")))
    ...     compiled = compile_kernel(mapped, {"a": a}, {"b": b}, options, function=relu)
    ...     nki.load(compiled.neff_path)(a, b)
    >>> print(b)
    [[0. 2.]]
    """
    arguments = {**inputs, **outputs, **hyperparameters}
    if len(arguments) < len(inputs) + len(outputs) + len(hyperparameters):
        raise NeuronError("value-not-allowed", what="a parameter is given twice")
    traced = NKIFrontend().compile(
        kernel, arguments, compile_opts.target, compile_opts.lnc, compile_opts.artifacts_dir
    )
    if traced.kernel.results:
        raise NeuronError(
            "value-not-allowed",
            what=f"{traced.kernel.name} returns {', '.join(traced.output_names)}",
            why="The results of compile_kernel are the tensors of outputs.",
            hint="Write to a parameter, or compile with nki.compile.",
        )
    compiled = CompiledKernel.from_frontend(traced, compile_opts)
    places = {tensor.name: place for place, tensor in enumerate(traced.kernel.parameters)}
    specs: list[tuple[str, TensorSpec]] = [
        (name, spec_of(value, name)) for name, value in outputs.items()
    ]
    aliases = {index: places[name] for index, name in enumerate(outputs)}
    return replace(compiled, output_specs=specs, input_output_aliases=aliases)


__all__ = ["CompileOptions", "compile_kernel"]
