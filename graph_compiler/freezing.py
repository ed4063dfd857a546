"""Parameters of a graph made constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graph_compiler.hlo.arguments import module_argument, sequence_argument
from graph_compiler.hlo.graph import Computation, Instruction, Module
from graph_compiler.hlo.record import Record
from graph_compiler.inputs import checked_input
from isa.errors import NeuronError
from nki.errors import named_arguments

Weights = Mapping[str | int, Any] | Sequence[Any]

_CONSTANT = "constant"
_DERIVED = ("host_program_shape", "schedule", "spmd_parameters_shardings")
"""What a module states about its parameters besides the instructions, and follows from them."""


@named_arguments
def freeze(module: Module, weights: Weights) -> Module:
    """The graph with parameters replaced by constants; the others keep their order.

    `weights`: arrays by the number or the name of the parameter, or a sequence for the first
    parameters, which is what `frontends.torch.trace` gives. What is computed of constants alone,
    casts by options among it, is computed when the graph is compiled. Constants take no memory of
    others: they are aliases of no result any more. Raises NeuronError: input-mismatch for a name
    or number that no parameter has, or an array of another shape or type; argument-kind.

    >>> import numpy as np
    >>> from graph_compiler import evaluate, parse_text
    >>> text = "HloModule m\\nENTRY e { x = f32[2] parameter(0) y = f32[2] parameter(1) "
    >>> graph = parse_text(text + "ROOT r = f32[2] add(x, y) }")
    >>> frozen = freeze(graph, {"y": np.array([1, 2], np.float32)})
    >>> [item.name for item in frozen.parameters], evaluate(frozen, np.ones(2, np.float32))
    (['x'], [array([2., 3.], dtype=float32)])
    """
    module_argument(module, "freeze")
    frozen = _chosen(module, weights)
    kept = [item for item in module.parameters if item not in frozen]
    numbers = {old.parameter_number: new for new, old in enumerate(kept)}
    entry = _entry(module.entry, frozen, numbers)
    attributes = {k: v for k, v in module.attributes.items() if k not in _DERIVED}
    for name in ("input_output_alias", "buffer_donor"):
        if name in attributes:
            attributes[name] = _renumbered(attributes[name], numbers)
    result = Module(
        module.name,
        [entry if item is module.entry else item for item in module.computations],
        entry,
        module.id,
        attributes,
        conventions=module.conventions,
        config=module.config,
    )
    result.kernels.update(module.kernels)
    return result


def _chosen(module: Module, weights: Weights) -> dict[Instruction, Any]:
    """The array of each parameter that becomes a constant."""
    if not isinstance(weights, Mapping):
        sequence_argument(weights, "freeze", "arrays", "Pass a list, or a dict by name or number.")
    parameters = module.parameters
    known: dict[Any, Instruction] = {item.parameter_number: item for item in parameters}
    known.update({item.name: item for item in parameters})
    items = weights.items() if isinstance(weights, Mapping) else enumerate(weights)
    chosen: dict[Instruction, Any] = {}
    for key, value in items:
        if key not in known:
            names = ", ".join(item.name for item in parameters)
            raise NeuronError(
                "input-mismatch", f"freeze: no parameter is called {key!r}; there are {names}."
            )
        item = known[key]
        chosen[item] = checked_input(item, item.shape, value)
    return chosen


def _entry(
    entry: Computation, frozen: dict[Instruction, Any], numbers: dict[int, int]
) -> Computation:
    """A copy of the entry computation with constants, and other parameters numbered anew."""
    copies: dict[Instruction, Instruction] = {}
    parameters = dict(_renumbering(entry, numbers))
    for item in entry.instructions:
        constant = item in frozen
        copies[item] = Instruction(
            _CONSTANT if constant else item.opcode,
            item.shape,
            [copies[operand] for operand in item.operands],
            item.name,
            {"literal": frozen[item]} if constant else item.attributes,
            item.called,
            item.metadata,
            [copies[before] for before in item.control_predecessors],
            parameters.get(item, 0),
            item.id,
            b"" if constant else item.unknown,
        )
    attributes = {k: v for k, v in entry.attributes.items() if k != "program_shape"}
    items = list(copies.values())
    return Computation(entry.name, items, copies[entry.root], entry.id, attributes, entry.unknown)


def _renumbering(entry: Computation, numbers: dict[int, int]) -> list[tuple[Instruction, int]]:
    return [
        (item, numbers[item.parameter_number])
        for item in entry.parameters
        if item.parameter_number in numbers
    ]


def _renumbered(record: Record, numbers: dict[int, int]) -> Record:
    """Entries of the parameters that are left."""
    entries = [
        entry.replace(parameter_number=numbers[entry.parameter_number])
        for entry in record.entries
        if entry.parameter_number in numbers
    ]
    return record.replace(entries=tuple(entries))
