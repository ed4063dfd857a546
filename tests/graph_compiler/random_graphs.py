"""Random graphs of many operations: shapes, layouts, types, control flow, several results.

A graph is driven by drawn numbers, so that a seed or hypothesis can make it; `random_steps` has its
operations. Of a value it is known whether it is exact: integers are, and floating-point numbers
that are only moved or selected. Only exact values decide anything (comparisons, indices, keys), so
that rounding cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from operator_values import braces, sizes

from graph_compiler.hlo import PRIMITIVE_TYPES

Draw = Callable[[int, int], int]
"""A whole number from the first to the last one."""

FLOATS = ("f32", "f32", "bf16", "f16")
INTEGERS = ("s32", "s32", "u32", "s8", "u8", "s16", "u16")
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 16, 24, 33, 64, 100, 128, 130, 257)
MOST = 9000
"""Elements of a value."""

UNARY = ("negate", "abs", "tanh", "logistic", "sine", "cosine")
DECIDING = ("floor", "ceil", "sign", "round-nearest-even", "round-nearest-afz")
SAFE = (("sqrt", "abs"), ("log-plus-one", "abs"), ("exponential", "tanh"), ("rsqrt", "cosine+2"))
"""Functions, and what keeps their operands where they are steep nowhere."""
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
OF_INTEGERS = ("and", "or", "xor", "shift-left", "shift-right-logical", "shift-right-arithmetic")
DIVISIONS = ("divide", "remainder")
DIRECTIONS = ("EQ", "NE", "LT", "LE", "GT", "GE")
EXACT_FLOAT = frozenset({"negate", "abs", "maximum", "minimum", *DECIDING})


def seeded(seed: int) -> Draw:
    """Numbers of a seed."""
    rng = np.random.default_rng([seed, 19])
    return lambda low, high: int(rng.integers(low, high + 1))


class Value(NamedTuple):
    name: str
    type: str
    dims: tuple[int, ...]
    exact: bool

    @property
    def shape(self) -> str:
        return self.type + sizes(self.dims)

    @property
    def kind(self) -> str:
        row = PRIMITIVE_TYPES[self.type]
        return "real" if row.is_float else row.kind


@dataclass(frozen=True)
class RandomGraph:
    """The text of a module, and its inputs."""

    text: str
    inputs: list[np.ndarray[Any, Any]]


class Writer:
    """A module that is being written: what its computations have in common."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.computations: list[str] = []
        self.parameters: list[Value] = []
        self.lines = 0
        self.pool = [SIZES[draw(0, len(SIZES) - 1)] for _ in range(draw(2, 4))]

    def pick(self, options: Sequence[Any]) -> Any:
        return options[self.draw(0, len(options) - 1)]

    def reducer(self, op: str, type: str) -> str:
        name = f"{op}_{type}".replace("-", "_")
        text = (
            f"{name} {{\n  a = {type}[] parameter(0)\n  b = {type}[] parameter(1)\n"
            f"  ROOT z = {type}[] {op}(a, b)\n}}\n"
        )
        if text not in self.computations:
            self.computations.append(text)
        return name

    def dims(self) -> tuple[int, ...]:
        dims: list[int] = []
        for _ in range(self.pick((0, 1, 1, 2, 2, 2, 3, 3, 4))):
            size = self.pick(self.pool)
            dims.append(size if math.prod(dims) * size <= MOST else 1)
        return tuple(dims)

    def name(self) -> str:
        self.lines += 1
        return f"v{self.lines}"

    def layout(self, rank: int) -> str:
        """Sometimes another order in memory than row by row: results do not depend on it."""
        if rank < 2 or self.draw(0, 5):
            return ""
        order = list(range(rank))
        for i in range(rank - 1, 0, -1):
            j = self.draw(0, i)
            order[i], order[j] = order[j], order[i]
        return braces(order)


class Scope:
    """A computation: its lines, and the values that they know."""

    def __init__(self, writer: Writer, known: list[Value], depth: int) -> None:
        self.writer = writer
        self.known = known
        self.depth = depth
        self.lines: list[str] = []
        self.draw, self.pick = writer.draw, writer.pick

    # Lines

    def add(
        self,
        type: str,
        dims: Sequence[int],
        op: str,
        operands: Sequence[Value | str],
        more: str = "",
        exact: bool = True,
        known: bool = True,
    ) -> Value:
        value = Value(self.writer.name(), type, tuple(dims), exact)
        names = ", ".join(one if isinstance(one, str) else one.name for one in operands)
        tail = f", {more}" if more else ""
        layout = self.writer.layout(len(value.dims))
        self.lines.append(f"  {value.name} = {value.shape}{layout} {op}({names}){tail}")
        if known:
            self.known.append(value)
        return value

    def number(self, type: str, value: Any, dims: Sequence[int] = ()) -> Value:
        scalar = self.add(type, (), "constant", [str(value)], known=False)
        if not dims:
            return scalar
        return self.add(type, dims, "broadcast", [scalar], "dimensions={}", known=False)

    def same(self, value: Value, op: str, *operands: Value, exact: bool | None = None) -> Value:
        """An element-wise operation of the type and dimensions of a value."""
        all_exact = all(one.exact for one in operands)
        exact = (
            all_exact and (value.kind != "real" or op in EXACT_FLOAT) if exact is None else exact
        )
        return self.add(value.type, value.dims, op, operands, exact=exact)

    # Values

    def some(self, test: Callable[[Value], bool] = lambda _: True) -> Value | None:
        """A value that is known, a recent one as a rule."""
        found = [value for value in self.known if test(value)]
        if not found:
            return None
        return self.pick(found[-5:] if self.draw(0, 3) else found)

    def any(self) -> Value:
        value = self.some()
        assert value is not None
        return value

    def partner(self, value: Value) -> Value:
        """A value of the same type and dimensions: known, converted, spread out, or a number."""
        found = self.some(lambda v: (v.type, v.dims) == (value.type, value.dims))
        if found is not None and (found.name != value.name or self.draw(0, 2) == 0):
            return found
        other = self.some(lambda v: v.dims == value.dims and v.type != value.type and v.exact)
        if other is not None and self.draw(0, 1):
            return self.converted(other, value.type)
        for axis, size in enumerate(value.dims):
            row = self.some(lambda v: v.dims == (size,) and v.type == value.type)  # noqa: B023
            if row is not None:
                more = f"dimensions={{{axis}}}"
                return self.add(value.type, value.dims, "broadcast", [row], more, row.exact)
        return self.number(value.type, self.whole(value.type, 3), value.dims)

    def converted(self, value: Value, type: str) -> Value:
        if value.type == type:
            return value
        wide = {("bf16", "f32"), ("f16", "f32")}
        row, target = PRIMITIVE_TYPES[value.type], PRIMITIVE_TYPES[type]
        if not target.is_float:
            exact = True
        elif row.is_float:
            exact = value.exact and (value.type, type) in wide
        else:
            exact = row.bits <= 8
        return self.add(type, value.dims, "convert", [value], exact=exact)

    def flags(self, dims: Sequence[int]) -> Value:
        """A pred of these dimensions."""
        known = self.some(lambda v: v.dims == tuple(dims) and v.exact)
        if known is None:
            left = self.iota("s32", dims)
            return self.compared(left, self.number("s32", self.draw(0, 3), dims))
        return known if known.type == "pred" else self.compared(known, self.exact_partner(known))

    def exact_partner(self, value: Value) -> Value:
        other = self.partner(value)
        return other if other.exact else self.number(value.type, self.whole(value.type), value.dims)

    def whole(self, type: str, most: int = 1) -> int | str:
        """A small number of a type, not 0; of preds any."""
        return self.pick(("true", "false")) if type == "pred" else self.draw(1, most)

    def compared(self, left: Value, right: Value) -> Value:
        more = f"direction={self.pick(DIRECTIONS)}"
        return self.add("pred", left.dims, "compare", [left, right], more)

    def iota(self, type: str, dims: Sequence[int]) -> Value:
        if not dims:
            return self.number(type, self.draw(0, 5))
        more = f"iota_dimension={self.draw(0, len(dims) - 1)}"
        return self.add(type, dims, "iota", [], more)

    def scalar(self) -> Value:
        """A whole number that is computed, as an index."""
        known = self.some(lambda v: v.type == "s32" and v.dims == ())
        return known or self.number("s32", self.draw(-2, 9))
