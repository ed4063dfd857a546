"""Elementwise operations of two and three operands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import BITS, INEXACT, INTEGER, NUMBER, REAL
from graph_compiler.hlo.operators.numerics import (
    binary,
    precise,
    unsigned_view,
    widen,
    wrap,
)
from graph_compiler.hlo.operators.row import (
    ARITHMETIC,
    TRANSCENDENTAL,
    Array,
    Evaluation,
    HloOperator,
    operand_array,
    require_kind,
    require_shape,
    require_type,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import PrimitiveType, Shape

ANY = NUMBER | {"boolean"}


class Binary(HloOperator):
    """A function of two elements of one type; shapes are equal, nothing is broadcast."""

    arity = (2, 2)
    elementwise = True
    per_element = ARITHMETIC
    kinds: ClassVar[frozenset[str]] = ANY
    formula: ClassVar[Any]
    """The function, of arrays in the type that computes."""

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        left, right = operand_array(instruction, 0), operand_array(instruction, 1)
        require_shape(
            left.dimensions == right.dimensions,
            instruction,
            f"its operands are {left} and {right}.",
            "Both operands have the same dimensions.",
        )
        require_type(
            left.element_type == right.element_type,
            instruction,
            f"its operands are {left} and {right}.",
            "Both operands have the same element type.",
        )
        require_kind(instruction, left.primitive, cls.kinds, "operand 0")
        return left

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        primitive = instruction.operands[0].shape.primitive
        return cls.function(operands[0], operands[1], primitive)

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        if primitive.bits < 8 and primitive.is_integer:
            return wrap(np.asarray(cls.formula(widen(x), widen(y))), primitive)
        return binary(cls.formula, x, y)


class Add(Binary):
    """Sum; integers wrap, pred is `or`."""

    opcode = "add"
    builders = ("Add",)
    stablehlo = "add"
    formula = staticmethod(np.add)


class Subtract(Binary):
    """Difference; integers wrap."""

    opcode = "subtract"
    builders = ("Sub",)
    stablehlo = "subtract"
    kinds = NUMBER
    formula = staticmethod(np.subtract)


class Multiply(Binary):
    """Product; integers wrap, pred is `and`."""

    opcode = "multiply"
    builders = ("Mul",)
    stablehlo = "multiply"
    formula = staticmethod(np.multiply)


class MultiplyHigh(Binary):
    """Upper half of the product of two integers, which has twice their bits."""

    opcode = "mulhi"
    builders = ("MulHi",)
    stablehlo = "chlo.mulhi"
    kinds = INTEGER

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        if primitive.bits < 64:
            wide = np.int64 if primitive.kind == "signed" else np.uint64
            product = x.astype(wide) * y.astype(wide)
            return (product >> wide(primitive.bits)).astype(x.dtype)
        return _multiply_high_64(x, y)


def _multiply_high_64(x: Array, y: Array) -> Array:
    a, b = unsigned_view(x), unsigned_view(y)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a_low, a_high, b_low, b_high = a & mask, a >> half, b & mask, b >> half
    middle = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (middle & mask)
    high = a_high * b_high + (middle >> half) + (other >> half)
    if x.dtype.kind == "i":  # -2**64 in one factor takes the other factor from the upper half
        high = high - np.where(x < 0, b, np.uint64(0)) - np.where(y < 0, a, np.uint64(0))
    return high.view(x.dtype)


def divide_truncating(x: Array, y: Array) -> Array:
    """Integer quotient towards zero; by zero all bits set, lowest by -1 itself."""
    zero = y == 0
    if x.dtype.kind == "u":
        return np.where(zero, np.iinfo(x.dtype).max, x // np.where(zero, 1, y)).astype(x.dtype)
    minus = y == -1
    divisor = np.where(zero | minus, 1, y)
    quotient = (x - np.fmod(x, divisor)) // divisor
    return np.where(zero, -1, np.where(minus, np.negative(x), quotient)).astype(x.dtype)


def remainder_truncating(x: Array, y: Array) -> Array:
    """x - y * (x / y), with the sign of x; by zero x itself."""
    safe = (y == 0) | (y == -1) if x.dtype.kind == "i" else y == 0
    rest = np.fmod(x, np.where(safe, 1, y).astype(x.dtype))
    return np.where(safe, np.where(y == 0, x, 0), rest).astype(x.dtype)


class Divide(Binary):
    """Quotient. Integers truncate; x / 0 is all bits set, the lowest by -1 is the lowest."""

    opcode = "divide"
    builders = ("Div",)
    stablehlo = "divide"
    kinds = NUMBER

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        if primitive.is_integer:
            if primitive.bits < 8:
                return wrap(divide_truncating(widen(x), widen(y)), primitive)
            return divide_truncating(x, y)
        return precise(np.divide, x, y) if primitive.is_complex else binary(np.divide, x, y)


class Remainder(Binary):
    """Rest of the division towards zero, with the sign of the dividend; x of x by integer 0."""

    opcode = "remainder"
    builders = ("Rem",)
    stablehlo = "remainder"
    kinds = NUMBER - {"complex"}

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        if primitive.is_integer:
            return remainder_truncating(widen(x), widen(y)).astype(x.dtype)
        return binary(np.fmod, x, y)


def _power_integer(x: Array, y: Array) -> Array:
    """Wrapping; of a negative exponent the truncated quotient 1 / x**-y."""
    if x.dtype.kind == "u":
        return np.power(x, y)
    positive = np.power(x, np.maximum(y, 0))
    sign = np.where((y & 1) == 1, x, 1)  # of bases 1 and -1
    return np.where(y >= 0, positive, np.where(np.abs(x) == 1, sign, 0)).astype(x.dtype)


class Power(Binary):
    """x to the power of y, as IEEE-754 `pow`; integers wrap."""

    opcode = "power"
    builders = ("Pow",)
    stablehlo = "power"
    per_element = TRANSCENDENTAL
    kinds = NUMBER

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        if primitive.is_integer:
            if primitive.bits < 8:
                wide = _power_integer(x.astype(np.int64), y.astype(np.int64))
                return wrap(wide, primitive)
            return _power_integer(x, y)
        return precise(np.power, x, y)


def maximum(x: Array, y: Array) -> Array:
    """The larger; NaN if either is, +0 above -0."""
    result = np.maximum(x, y)
    if x.dtype.kind == "f":
        tie = (result == 0) & (x == y)
        if tie.any():
            result = np.where(tie, x + y, result)
    return result


def minimum(x: Array, y: Array) -> Array:
    """The smaller; NaN if either is, -0 below +0."""
    result = np.minimum(x, y)
    if x.dtype.kind == "f":
        tie = (result == 0) & (x == y)
        if tie.any():
            result = np.where(tie, -(-x - y), result)
    return result


class Maximum(Binary):
    """The larger; NaN if either is NaN; +0 is larger than -0; pred is `or`."""

    opcode = "maximum"
    builders = ("Max",)
    stablehlo = "maximum"
    formula = staticmethod(maximum)


class Minimum(Binary):
    """The smaller; NaN if either is NaN; -0 is smaller than +0; pred is `and`."""

    opcode = "minimum"
    builders = ("Min",)
    stablehlo = "minimum"
    formula = staticmethod(minimum)


class And(Binary):
    """Logical of pred, bitwise of integers."""

    opcode = "and"
    builders = ("LogicalAnd", "And")
    stablehlo = "and"
    kinds = BITS
    formula = staticmethod(np.bitwise_and)


class Or(Binary):
    """Logical of pred, bitwise of integers."""

    opcode = "or"
    builders = ("LogicalOr", "Or")
    stablehlo = "or"
    kinds = BITS
    formula = staticmethod(np.bitwise_or)


class Xor(Binary):
    """Logical of pred, bitwise of integers."""

    opcode = "xor"
    builders = ("LogicalXor", "Xor")
    stablehlo = "xor"
    kinds = BITS
    formula = staticmethod(np.bitwise_xor)


def _shift(
    x: Array, amount: Array, primitive: PrimitiveType, operation: str, arithmetic: bool = False
) -> Array:
    """Shifts with amounts at or above the width (negative ones too) defined."""
    width = primitive.bits
    if width < 8:
        x = wrap(x, primitive).astype(np.int64)
        amount = amount.astype(np.int64)
        if not arithmetic:
            x = x & ((1 << width) - 1)
        too_far = (amount < 0) | (amount >= width)
        inside = np.where(too_far, width - 1 if arithmetic else 0, amount)
        shifted = x << inside if operation == "left" else x >> inside
        return wrap(shifted if arithmetic else np.where(too_far, 0, shifted), primitive)
    bits = x if arithmetic else unsigned_view(x)
    unsigned = unsigned_view(amount)
    too_far = unsigned >= width
    inside = np.where(too_far, width - 1 if arithmetic else 0, unsigned).astype(bits.dtype)
    shifted = np.left_shift(bits, inside) if operation == "left" else np.right_shift(bits, inside)
    if not arithmetic:
        shifted = np.where(too_far, np.zeros((), bits.dtype), shifted)
    return np.asarray(shifted).view(x.dtype)


class ShiftLeft(Binary):
    """Bits moved up; a shift of the width or more gives 0."""

    opcode = "shift-left"
    builders = ("ShiftLeft",)
    stablehlo = "shift_left"
    kinds = INTEGER

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        return _shift(x, y, primitive, "left")


class ShiftRightLogical(Binary):
    """Bits moved down, zeros from above; a shift of the width or more gives 0."""

    opcode = "shift-right-logical"
    builders = ("ShiftRightLogical",)
    stablehlo = "shift_right_logical"
    kinds = INTEGER

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        return _shift(x, y, primitive, "right")


class ShiftRightArithmetic(Binary):
    """Bits moved down, copies of the sign bit from above; a far shift leaves only the sign."""

    opcode = "shift-right-arithmetic"
    builders = ("ShiftRightArithmetic",)
    stablehlo = "shift_right_arithmetic"
    kinds = INTEGER

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        if primitive.kind == "unsigned":
            if primitive.bits < 8:
                width = primitive.bits
                signed = x.astype(np.int64)
                signed = np.where(signed >> (width - 1) == 1, signed - (1 << width), signed)
                amount = y.astype(np.int64)
                far = (amount < 0) | (amount >= width)
                return wrap(signed >> np.where(far, width - 1, amount), primitive)
            return _shift(
                x.view(np.dtype(f"int{primitive.bits}")), y, primitive, "right", arithmetic=True
            ).view(x.dtype)
        return _shift(x, y, primitive, "right", arithmetic=True)


class Atan2(Binary):
    """Angle of the point (y, x) = (operand 0, operand 1), as IEEE-754 `atan2`."""

    opcode = "atan2"
    builders = ("Atan2",)
    stablehlo = "atan2"
    per_element = TRANSCENDENTAL
    kinds = INEXACT

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        if primitive.is_complex:  # -i log((y + i x) / sqrt(x^2 + y^2))
            return precise(lambda a, b: -1j * np.log((b + 1j * a) / np.sqrt(a * a + b * b)), x, y)
        return precise(np.arctan2, x, y)


class Complex(Binary):
    """A complex number of a real and an imaginary part."""

    opcode = "complex"
    builders = ("Complex",)
    stablehlo = "complex"
    kinds = REAL

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = super().infer(instruction)
        require_type(
            shape.element_type in ("f32", "f64"),
            instruction,
            f"its parts are {shape.element_type}.",
            "Complex numbers have parts of f32 or f64.",
        )
        return shape.with_element_type("c64" if shape.element_type == "f32" else "c128")

    @classmethod
    def function(cls, x: Array, y: Array, primitive: PrimitiveType) -> Array:
        dtype = np.complex64 if primitive.bits == 32 else np.complex128
        result = np.empty(np.broadcast_shapes(x.shape, y.shape), dtype)
        result.real, result.imag = x, y
        return result
