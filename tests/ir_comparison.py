"""Structural equality of tile IR: same nodes, fields, numbers, names and source lines."""

from __future__ import annotations

from typing import Any

import numpy as np

from isa.affine import Affine, Polynomial, Predicate, identical
from isa.program import Guard
from nki.ir import locations
from nki.ir.nodes import Access, Loop, Op, Register, Tensor, TracedKernel, While


def same(left: TracedKernel, right: TracedKernel) -> bool:
    """Whether two kernels are equal but for the identity of their nodes.

    Source locations compare by the lines that they stand for.
    """
    return difference(left, right) is None


def difference(left: TracedKernel, right: TracedKernel) -> str | None:
    """Where two kernels differ first, as a path such as `bodies[0][2].values[1].offset: 0, 1`,
    or None when they are the same."""
    comparison = _Comparison()
    found = comparison.compare(left, right, "kernel")
    if found is not None:
        return found
    return comparison.compare(_places(left), _places(right), "kernel.placement")


def _places(kernel: TracedKernel) -> list[Any]:
    return [(kernel.placement or {}).get(tensor) for tensor in kernel.tensors]


_SLOTS: dict[type, tuple[str, ...]] = {
    TracedKernel: (
        "name",
        "target",
        "symbols",
        "guards",
        "tensors",
        "parameters",
        "parameter_names",
        "results",
        "bodies",
    ),
    Guard: ("form", "text"),
    Tensor: (
        "number",
        "name",
        "memory",
        "dtype",
        "shape",
        "role",
        "address",
        "core",
        "data",
        "within",
        "offset",
    ),
    Register: ("number", "name", "lower", "upper"),
    Access: (
        "storage",
        "dtype",
        "shape",
        "strides",
        "offset",
        "vector_offset",
        "vector_stride",
        "vector_bound",
        "limits",
    ),
    Op: ("row", "values", "name", "after"),
    Loop: ("variable", "lower", "upper", "step", "unroll", "body"),
    While: ("register", "body"),
    Predicate: ("form", "op"),
}
_LOCATED = (Tensor, Register, Op, Loop, While)


class _Comparison:
    """Walks two graphs at once. An object that was seen must meet the same partner again."""

    def __init__(self) -> None:
        self.partners: dict[int, Any] = {}

    def compare(self, left: Any, right: Any, path: str) -> str | None:
        kind = next((k for k in _SLOTS if isinstance(left, k)), None)
        if kind is not None:
            return self._nodes(kind, left, right, path)
        if isinstance(left, (list, tuple)):
            sequence = list if isinstance(left, list) else tuple
            if not isinstance(right, sequence) or len(left) != len(right):
                return f"{path}: {left!r}, {right!r}"
            pairs = zip(left, right)
            found = (self.compare(a, b, f"{path}[{i}]") for i, (a, b) in enumerate(pairs))
            return next(filter(None, found), None)
        if isinstance(left, np.ndarray):
            equal = (
                isinstance(right, np.ndarray)
                and left.dtype == right.dtype
                and left.shape == right.shape
                and left.tobytes() == right.tobytes()
            )
        elif isinstance(left, float):
            # Zeros of both signs differ, and NaN is itself.
            equal = isinstance(right, float) and repr(float(left)) == repr(float(right))
        elif isinstance(left, Affine):
            if not identical(left, right):
                return f"{path}: {left!r}, {right!r}"
            return self.compare(_variables(left), _variables(right), path)
        elif isinstance(left, Polynomial):
            equal = identical(left, right)
        else:
            equal = type(left) is type(right) and bool(left == right)
        return None if equal else f"{path}: {left!r}, {right!r}"

    def _nodes(self, kind: Any, left: Any, right: Any, path: str) -> str | None:
        if not isinstance(right, kind):
            return f"{path}: {left!r}, {right!r}"
        if id(left) in self.partners and kind not in (Access, Predicate):
            same_partner = self.partners[id(left)] is right
            return None if same_partner else f"{path}: {left!r}, {right!r} (another one before)"
        self.partners[id(left)] = right
        if kind in _LOCATED:
            lines = locations.resolve(left.location), locations.resolve(right.location)
            if lines[0] != lines[1]:
                return f"{path}.location: {lines[0]!r}, {lines[1]!r}"
        found = (
            self.compare(getattr(left, slot), getattr(right, slot), f"{path}.{slot}")
            for slot in _SLOTS[kind]
        )
        return next(filter(None, found), None)


def _variables(form: Affine) -> list[Any]:
    return [variable for variable, _ in form.terms]
