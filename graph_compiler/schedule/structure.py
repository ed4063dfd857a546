"""A digest of what a module computes: the same for modules that differ in names and places only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction, Module
    from graph_compiler.hlo.types import Shape

_SAYS_NOTHING = frozenset(
    {"frontend_attributes", "statistics_viz", "sharding", "original_value", "result_accuracy"}
)
"""Attributes that the executor does not look at."""


def structure_digest(module: Module) -> str:
    """SHA-256, as hexadecimal digits, of opcodes, shapes, edges, attributes and literals."""
    return _digest(module.computations, module.entry)


def computation_digest(computation: Computation) -> str:
    """The same of a computation and those that it calls."""
    found: dict[int, Computation] = {}

    def visit(one: Computation) -> None:
        if id(one) not in found:
            for item in one.instructions:
                for called in item.called:
                    visit(called)
            found[id(one)] = one

    visit(computation)
    return _digest(list(found.values()), computation)


def stated_attributes(item: Instruction) -> list[tuple[str, str]]:
    """What an instruction's attributes say of what it computes, but for a literal."""
    return [
        (name, repr(value))
        for name, value in item.attributes.items()
        if name not in _SAYS_NOTHING
        and not (name == _LITERAL and isinstance(value, (np.ndarray, tuple)))
    ]


def _digest(computations: Sequence[Computation], entry: Computation) -> str:
    digest = hashlib.sha256()
    numbers = {id(item): number for number, item in enumerate(computations)}
    shapes: dict[int, Any] = {}
    lines: list[Any] = []
    for computation in computations:
        places = {id(item): number for number, item in enumerate(computation.instructions)}
        lines.append((len(computation.instructions), places[id(computation.root)]))
        for item in computation.instructions:
            shape = shapes.get(id(item.shape))
            if shape is None:
                shape = shapes[id(item.shape)] = _form(item.shape)
            literal = item.attributes.get(_LITERAL)
            if isinstance(literal, (np.ndarray, tuple)):
                _literal(digest, literal)
            lines.append(
                (
                    item.opcode,
                    shape,
                    [places[id(operand)] for operand in item.operands],
                    item.parameter_number,
                    stated_attributes(item),
                    [numbers[id(called)] for called in item.called],
                )
            )
    lines.append(numbers[id(entry)])
    digest.update(repr(lines).encode())
    return digest.hexdigest()


_LITERAL = "literal"


def _literal(digest: Any, value: Any) -> None:
    if isinstance(value, tuple):
        for part in value:
            _literal(digest, part)
    elif value is not None:
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value).tobytes())


def _form(shape: Shape) -> Any:
    if shape.tuple_shapes:
        return [_form(part) for part in shape.tuple_shapes]
    return shape.element_type, shape.dimensions, shape.layout
