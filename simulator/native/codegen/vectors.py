"""Vectors with Python's operators, and the functions of `simulator.numerics.polynomial` printed on
them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.native.codegen.fused import multiply_add
from simulator.native.codegen.levels import GENERATING
from simulator.native.codegen.text import FunctionText, Value
from simulator.numerics import polynomial

_SCALED = 16
"""Lanes of the vectors that AVX-512 scales by a power of two."""


def maximum(f: FunctionText, left: Value, right: Value) -> Value:
    """As `simulator.numerics.special_values.maximum`."""
    return _extreme(f, "fcmp ogt", left, right)


def minimum(f: FunctionText, left: Value, right: Value) -> Value:
    """As `simulator.numerics.special_values.minimum`."""
    return _extreme(f, "fcmp olt", left, right)


def _extreme(f: FunctionText, comparison: str, left: Value, right: Value) -> Value:
    for bound, value in ((left, right), (right, left)):
        if bound.is_constant and bound.text != f.like(bound, 0.0).text:
            # One instruction: NaN do not compare, and stay.
            return f.select(f.compare(comparison, bound, value), bound, value)
    chosen = f.select(f.compare(comparison, left, right), left, right)
    # An unordered comparison chose the right side, which is NaN unless the left one is.
    return f.select(f.compare("fcmp uno", left, left), left, chosen)


class Vector:
    """A value with the Python operators that `simulator.numerics.polynomial` uses."""

    __slots__ = ("f", "value")

    def __init__(self, f: FunctionText, value: Value) -> None:
        self.f = f
        self.value = value

    def _binary(self, operation: str, other: Vector) -> Vector:
        return Vector(self.f, self.f.binary(operation, self.value, other.value))

    @property
    def _prefix(self) -> str:
        return "f" if self.value.element in ("float", "double") else ""

    def __add__(self, other: Vector) -> Vector:
        return self._binary(self._prefix + "add", other)

    def __sub__(self, other: Vector) -> Vector:
        return self._binary(self._prefix + "sub", other)

    def __mul__(self, other: Vector) -> Vector:
        return self._binary(self._prefix + "mul", other)

    def __neg__(self) -> Vector:
        return Vector(self.f, self.f.unary("fneg", self.value))

    def __truediv__(self, other: Vector) -> Vector:
        return self._binary("fdiv", other)

    def __and__(self, other: Vector) -> Vector:
        return self._binary("and", other)

    def __or__(self, other: Vector) -> Vector:
        return self._binary("or", other)

    def __lshift__(self, other: Vector) -> Vector:
        return self._binary("shl", other)

    def __rshift__(self, other: Vector) -> Vector:
        return self._binary("ashr", other)


class VectorArithmetic:
    """`simulator.numerics.polynomial.Arithmetic` that prints vectors of a width, of float or
    double."""

    def __init__(self, f: FunctionText, width: int, number: str = "float") -> None:
        self.f = f
        self.width = width
        self._number = number
        self._integer = {"float": "i32", "double": "i64"}[number]

    def real(self, value: float) -> Vector:
        return Vector(self.f, self.f.constant(self._number, value, self.width))

    def integer(self, value: int) -> Vector:
        return Vector(self.f, self.f.constant(self._integer, value, self.width))

    def less(self, left: Vector, right: Vector) -> Vector:
        return Vector(self.f, self.f.compare("fcmp olt", left.value, right.value))

    def equal(self, left: Vector, right: Vector) -> Vector:
        return Vector(self.f, self.f.compare("fcmp oeq", left.value, right.value))

    def where(self, condition: Vector, chosen: Vector, other: Vector) -> Vector:
        return Vector(self.f, self.f.select(condition.value, chosen.value, other.value))

    def multiply_add(self, left: Vector, right: Vector, addend: Vector) -> Vector:
        return Vector(self.f, multiply_add(self.f, left.value, right.value, addend.value))

    def at_most(self, value: Vector, bound: float) -> Vector:
        return Vector(self.f, minimum(self.f, value.value, self.real(bound).value))

    def at_least(self, value: Vector, bound: float) -> Vector:
        return Vector(self.f, maximum(self.f, value.value, self.real(bound).value))

    def clamp(self, value: Vector, low: float, high: float) -> Vector:
        return self.at_least(self.at_most(value, high), low)

    def bits(self, value: Vector) -> Vector:
        return Vector(self.f, self.f.convert("bitcast", value.value, self._integer))

    def from_bits(self, pattern: Vector) -> Vector:
        return Vector(self.f, self.f.convert("bitcast", pattern.value, self._number))

    def rounded(self, integer: Vector) -> Vector:
        """The floating-point number nearest to a signed integer."""
        return Vector(self.f, self.f.convert("sitofp", integer.value, self._number))

    def scale(self, value: Vector, number: Vector, exponent: Vector) -> Vector:
        level = GENERATING.get()
        if self.width != _SCALED or level is None or not level.wide_registers:
            return polynomial.scale_in_two(self, value, exponent)
        # VSCALEFPS rounds once, as the two factors do (Intel 64 and IA-32 Architectures Software
        # Developer's Manual, volume 2).
        f = self.f
        everywhere, current = f.constant("i16", -1), f.constant("i32", 4)
        scaled = f.call(
            "llvm.x86.avx512.mask.scalef.ps.512",
            *("float", _SCALED),
            *(value.value, number.value, value.value, everywhere, current),
        )
        return Vector(f, scaled)


def printed(
    function: Callable[[VectorArithmetic, Any], Any],
) -> Callable[[FunctionText, Value], Value]:
    """A function of fp32 numbers, written over `Arithmetic`, as one that prints it."""

    def evaluate(f: FunctionText, value: Value) -> Value:
        result: Vector = function(VectorArithmetic(f, value.width), Vector(f, value))
        return result.value

    return evaluate
