"""What `nki compile` and `nki ir` start from: a kernel traced for given shapes."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

from isa.errors import NeuronError
from nki.cli.input_specs import (
    InputSpec,
    match_parameters,
    read_arguments,
    read_inputs,
    read_symbols,
)
from nki.cli.input_values import make_tensor_specs
from nki.cli.kernel_files import load_kernel, read_reference
from nki.cli.launch import required_parameters
from nki.cli.options import KernelChoice
from nki.ir.nodes import TracedKernel


def specialise(choice: KernelChoice) -> TracedKernel:
    """Trace FILE:KERNEL for tensor specs. Raises the errors of the command line and of tracing."""
    reference = read_reference(choice.kernel)
    if reference.is_container:
        raise NeuronError(
            "unknown-kernel",
            f"{reference.file} is compiled already",
            hint="Name the kernel's Python file, FILE:KERNEL.",
        )
    known = read_symbols(choice.symbols)
    specs, values = read_inputs(choice.inputs, known), read_arguments(choice.arguments)
    _refuse_unused(known, specs.values())
    kernel = load_kernel(reference, choice)
    match_parameters(specs, values, required_parameters(kernel), kernel.function.__name__)
    tensors = make_tensor_specs(specs)
    call = inspect.signature(kernel.function).bind(**tensors, **values)
    return kernel.trace(*call.args, **call.kwargs)


def _refuse_unused(symbols: Mapping[str, Any], specs: Iterable[InputSpec]) -> None:
    used = {str(size) for spec in specs for size in spec.shape or ()}
    for name in symbols:
        if name not in used:
            raise NeuronError(
                "bad-input-spec",
                f"--symbol {name} is in the shape of no --input",
                hint=f"Use it: --input 'a=({name},512):float32'.",
            )
