"""What `nki run` and `nki profile` start: a kernel or a container, with its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isa.affine import evaluate, symbols_of
from isa.dtypes import normalise
from isa.errors import NeuronError
from isa.program import Program
from nki.cli.input_specs import (
    InputSpec,
    match_parameters,
    read_arguments,
    read_input,
    read_inputs,
)
from nki.cli.input_values import KINDS, Inputs, kind_of
from nki.cli.kernel_files import Reference, load_function, load_kernel, read_reference
from nki.cli.options import KernelChoice
from nki.compiled import CompiledKernel, load
from nki.kernel import Kernel, compile
from nki.settings import checks_wanted

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Launch:
    """One launch: `kernel` or `compiled` is set. `tensors` and `values` are by parameter name."""

    name: str
    reference: Reference
    kernel: Kernel | None
    compiled: CompiledKernel | None
    specs: dict[str, InputSpec]
    tensors: dict[str, Array]
    values: dict[str, Any]
    checked: bool

    def call(self) -> inspect.BoundArguments:
        """The arguments of the kernel's call."""
        assert self.kernel is not None
        return inspect.signature(self.kernel.function).bind(**self.tensors, **self.values)

    def given_values(self) -> dict[str, Any]:
        """The compile-time arguments, those that the kernel has by default among them."""
        if self.kernel is None:
            return {}
        call = self.call()
        call.apply_defaults()
        return {name: one for name, one in call.arguments.items() if name not in self.tensors}

    def bound_program(self) -> tuple[Program, list[Array]]:
        """The program for these inputs, compiled if need be, and the inputs in its order."""
        if self.compiled is None:
            call = self.call()
            self.compiled = compile(self.kernel, *call.args, **call.kwargs)
        names = self.compiled.program.parameter_names
        arrays = [self.tensors[name] for name in names]
        return self.compiled.program_for(arrays), arrays

    def inputs_data(self) -> list[dict[str, Any]]:
        """The inputs as `--json` shows them."""
        return [
            {
                "name": name,
                "shape": list(array.shape),
                "dtype": normalise(array.dtype),
                "source": self.specs[name].text.partition("=")[2],
            }
            for name, array in self.tensors.items()
        ]


def prepare(choice: KernelChoice) -> Launch:
    """Read a kernel or container and make its inputs. Those that a container declares with sizes
    that are numbers need not be given. Raises the errors of the command line."""
    reference = read_reference(choice.kernel)
    specs, values = read_inputs(choice.inputs, {}), read_arguments(choice.arguments)
    kernel = compiled = None
    examples: dict[str, str] = {}
    if reference.is_container:
        compiled = load(reference.file)
        _refuse_choices(compiled, reference.file, values, choice)
        name = compiled.program.name
        parameters = dict.fromkeys(compiled.program.parameter_names, True)
        specs = with_sizes(specs, declared_inputs(compiled.program))
        examples = example_inputs(compiled.program)
    else:
        kernel = load_kernel(reference, choice)
        name = kernel.function.__name__
        parameters = required_parameters(kernel)
    match_parameters(specs, values, parameters, name, examples)
    made = Inputs(specs, choice.seed)
    tensors = {name: made.array(name) for name in parameters if name in specs}
    return Launch(name, reference, kernel, compiled, specs, tensors, values, checks_wanted())


def required_parameters(kernel: Kernel) -> dict[str, bool]:
    """The parameters of a kernel in order, and whether a launch must give each."""
    return {
        name: parameter.default is parameter.empty
        for name, parameter in inspect.signature(kernel.function).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def _refuse_choices(
    compiled: CompiledKernel, file: str, values: dict[str, Any], choice: KernelChoice
) -> None:
    """A container is for one target, number of cores and set of compile-time arguments, and what it
    was compiled with is done."""
    from isa.target import resolve

    program = compiled.program
    if values:
        raise NeuronError(
            "unknown-input",
            f"--arg {next(iter(values))}: {file} is compiled, its compile-time arguments are fixed",
            hint="Give --arg to nki compile.",
        )
    target = choice.target
    if target is not None and resolve(target).name != program.target:
        raise NeuronError("unknown-target", f"{file} is for {program.target}, not for {target}")
    if choice.transformations:
        raise NeuronError(
            "value-not-allowed",
            f"--transform {choice.transformations[0]}: {file} is compiled",
            hint="Give --transform to nki compile.",
        )
    if choice.cores not in (1, len(program.cores)):
        raise NeuronError("value-not-allowed", f"{file} is for {len(program.cores)} core, --lnc 2")


def load_expected(launch: Launch, expect: str | None) -> Callable[..., Any] | None:
    """The function of --expect, which may be in the kernel's own file."""
    if expect is None:
        return None
    if launch.compiled is not None and ":" not in expect:
        raise NeuronError(
            "unknown-function",
            f"--expect {expect}: a container holds no Python functions",
            hint=f"Name the file too: --expect FILE.py:{expect}.",
        )
    return load_function(expect, launch.reference.file)


def changed_tensors(launch: Launch, before: dict[str, Array]) -> dict[str, Array]:
    """Inputs that the run changed, by name; bytes are compared, so NaN equals itself."""
    return {
        name: array
        for name, array in launch.tensors.items()
        if array.tobytes() != before[name].tobytes()
    }


def copies(tensors: dict[str, Array]) -> dict[str, Array]:
    """Copies of the inputs, for what must see them as they were."""
    return {name: array.copy() for name, array in tensors.items()}


def declared_inputs(program: Program) -> dict[str, InputSpec]:
    """A spec for every parameter whose sizes are numbers, by name."""
    texts = example_inputs(program)
    return {
        name: read_input(texts[name], {})
        for name, index in zip(program.parameter_names, program.parameters)
        if all(type(size) is int for size in program.tensors[index].shape)
    }


def with_sizes(
    specs: Mapping[str, InputSpec], declared: Mapping[str, InputSpec]
) -> dict[str, InputSpec]:
    """All declared inputs, those of the command line in their place; these take sizes and dtype
    from the declaration where they state none."""
    found = dict(declared)
    for name, spec in specs.items():
        wanted = declared.get(name)
        if wanted is not None and spec.kind in KINDS and spec.shape is None:
            spec = replace(spec, shape=wanted.shape, dtype=spec.dtype or wanted.dtype)
        found[name] = spec
    return found


def example_inputs(program: Program) -> dict[str, str]:
    """An --input that fits, for every parameter; launch symbols have their least values."""
    found = {}
    for name, index in zip(program.parameter_names, program.parameters):
        tensor = program.tensors[index]
        least = {symbol.name: symbol.minimum for n in tensor.shape for symbol in symbols_of(n)}
        sizes = ",".join(str(evaluate(size, least)) for size in tensor.shape)
        found[name] = f"{name}={kind_of(tensor.dtype)}({sizes}):{tensor.dtype}"
    return found
