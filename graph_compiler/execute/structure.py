"""A digest of what a module computes: the same for modules that differ in names and places only."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module
    from graph_compiler.hlo.types import Shape

_SAYS_NOTHING = frozenset(
    {"frontend_attributes", "statistics_viz", "sharding", "original_value", "result_accuracy"}
)
"""Attributes that the executor does not look at."""


def structure_digest(module: Module) -> str:
    """SHA-256, as hexadecimal digits, of opcodes, shapes, edges, attributes and literals."""
    digest = hashlib.sha256()
    numbers = {id(item): number for number, item in enumerate(module.computations)}
    shapes: dict[int, Any] = {}
    lines: list[Any] = []
    for computation in module.computations:
        places = {id(item): number for number, item in enumerate(computation.instructions)}
        lines.append((len(computation.instructions), places[id(computation.root)]))
        for item in computation.instructions:
            shape = shapes.get(id(item.shape))
            if shape is None:
                shape = shapes[id(item.shape)] = _form(item.shape)
            attributes = []
            for name, value in item.attributes.items():
                if name in _SAYS_NOTHING:
                    continue
                if isinstance(value, (np.ndarray, tuple)) and name == _LITERAL:
                    _literal(digest, value)
                else:
                    attributes.append((name, repr(value)))
            lines.append(
                (
                    item.opcode,
                    shape,
                    [places[id(operand)] for operand in item.operands],
                    item.parameter_number,
                    attributes,
                    [numbers[id(called)] for called in item.called],
                )
            )
    lines.append(numbers[id(module.entry)])
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
