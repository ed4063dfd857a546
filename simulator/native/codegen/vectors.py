"""The functions of `simulator.numerics.polynomial`, printed on vectors."""

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


class VectorArithmetic:
    """`simulator.numerics.polynomial.Arithmetic` that prints vectors of a width, of float or
    double."""

    def __init__(self, f: FunctionText, width: int, number: str = "float") -> None:
        self.f = f
        self.width = width
        self._number = number
        self._integer = {"float": "i32", "double": "i64"}[number]

    def real(self, value: float) -> Value:
        return self.f.constant(self._number, value, self.width)

    def integer(self, value: int) -> Value:
        return self.f.constant(self._integer, value, self.width)

    def less(self, left: Value, right: Value) -> Value:
        return self.f.compare("fcmp olt", left, right)

    def equal(self, left: Value, right: Value) -> Value:
        return self.f.compare("fcmp oeq", left, right)

    def where(self, condition: Value, chosen: Value, other: Value) -> Value:
        return self.f.select(condition, chosen, other)

    def multiply_add(self, left: Value, right: Value, addend: Value) -> Value:
        return multiply_add(self.f, left, right, addend)

    def at_most(self, value: Value, bound: float) -> Value:
        return minimum(self.f, value, self.real(bound))

    def at_least(self, value: Value, bound: float) -> Value:
        return maximum(self.f, value, self.real(bound))

    def clamp(self, value: Value, low: float, high: float) -> Value:
        return self.at_least(self.at_most(value, high), low)

    def bits(self, value: Value) -> Value:
        return self.f.convert("bitcast", value, self._integer)

    def from_bits(self, pattern: Value) -> Value:
        return self.f.convert("bitcast", pattern, self._number)

    def rounded(self, integer: Value) -> Value:
        """The floating-point number nearest to a signed integer."""
        return self.f.convert("sitofp", integer, self._number)

    def scale(self, value: Value, number: Value, exponent: Value) -> Value:
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
            *(value, number, value, everywhere, current),
        )
        return scaled


def printed(
    function: Callable[[VectorArithmetic, Any], Any],
) -> Callable[[FunctionText, Value], Value]:
    """A function of fp32 numbers, written over `Arithmetic`, as one that prints it."""

    def evaluate(f: FunctionText, value: Value) -> Value:
        result: Value = function(VectorArithmetic(f, value.width), value)
        return result

    return evaluate
