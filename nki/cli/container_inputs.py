"""Inputs of a container that the command line does not give: as its tensors are declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from isa.affine import evaluate, symbols_of
from isa.program import Program
from nki.cli.input_specs import InputSpec, read_input
from nki.cli.input_values import KINDS, kind_of


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
