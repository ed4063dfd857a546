"""Elementwise operations of one operand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graph_compiler.hlo.operators.numerics import unary, unsigned_view, wrap
from graph_compiler.hlo.operators.row import (
    ARITHMETIC,
    Array,
    Evaluation,
    HloOperator,
    operand_array,
    require_kind,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape

NUMBER = frozenset({"signed", "unsigned", "float", "complex"})
INEXACT = frozenset({"float", "complex"})
REAL = frozenset({"float"})
INTEGER = frozenset({"signed", "unsigned"})
BITS = frozenset({"boolean", "signed", "unsigned"})


class Unary(HloOperator):
    """A function of each element; the result has the operand's shape and element type."""

    arity = (1, 1)
    elementwise = True
    per_element = ARITHMETIC
    kinds: ClassVar[frozenset[str]] = NUMBER
    formula: ClassVar[Any]
    """The function, of arrays in the type that computes."""

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = operand_array(instruction, 0)
        require_kind(instruction, shape.primitive, cls.kinds, "operand 0")
        return shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        return cls.function(operands[0])

    @classmethod
    def function(cls, x: Array) -> Array:
        return unary(cls.formula, x)


class RealUnary(Unary):
    """A function whose result is real where the operand is complex."""

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = super().infer(instruction)
        real = {"c64": "f32", "c128": "f64"}
        return shape.with_element_type(real.get(shape.element_type, shape.element_type))


class Abs(RealUnary):
    """Absolute value; of the lowest signed integer itself, of a complex number its modulus."""

    opcode = "abs"
    builders = ("Abs",)
    stablehlo = "abs"

    @classmethod
    def function(cls, x: Array) -> Array:
        if x.dtype == np.complex64:
            return np.abs(x.astype(np.complex128)).astype(np.float32)
        return np.abs(x) if x.dtype.kind == "c" else unary(np.abs, x)


class Negate(Unary):
    """Minus the element; integers wrap."""

    opcode = "negate"
    builders = ("Neg",)
    stablehlo = "negate"
    formula = staticmethod(np.negative)


def _sign(x: Array) -> Array:
    if x.dtype.kind == "c":
        modulus = np.abs(x)
        return np.where(modulus == 0, 0, x / np.where(modulus == 0, 1, modulus)).astype(x.dtype)
    if x.dtype.kind == "f":
        return np.where((x == 0) | np.isnan(x), x, np.copysign(np.ones((), x.dtype), x))
    return np.sign(x)


class Sign(Unary):
    """-1, 0 or 1; keeps NaN and the sign of zero; of a complex number x / |x|."""

    opcode = "sign"
    builders = ("Sign",)
    stablehlo = "sign"
    formula = staticmethod(_sign)


class Not(Unary):
    """Logical of pred, bitwise of integers."""

    opcode = "not"
    builders = ("LogicalNot",)
    stablehlo = "not"
    kinds = BITS

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        primitive = instruction.operands[0].shape.primitive
        if primitive.bits < 8:
            return wrap(np.invert(operands[0].astype(np.int16)), primitive)
        return np.invert(operands[0])


class Floor(Unary):
    """Largest integer not above the element."""

    opcode = "floor"
    builders = ("Floor",)
    stablehlo = "floor"
    kinds = REAL
    formula = staticmethod(np.floor)


class Ceil(Unary):
    """Least integer not below the element."""

    opcode = "ceil"
    builders = ("Ceil",)
    stablehlo = "ceil"
    kinds = REAL
    formula = staticmethod(np.ceil)


class RoundNearestEven(Unary):
    """Nearest integer, ties to even."""

    opcode = "round-nearest-even"
    builders = ("RoundNearestEven",)
    stablehlo = "round_nearest_even"
    kinds = REAL
    formula = staticmethod(np.rint)


def _round_away(x: Array) -> Array:
    whole = np.trunc(x)
    # The difference is exact; adding a half first would round 0.49999997 up.
    away = np.abs(x - whole) >= 0.5
    return np.where(away, whole + np.copysign(np.ones((), x.dtype), x), whole).astype(x.dtype)


class RoundNearestAfz(Unary):
    """Nearest integer, ties away from zero."""

    opcode = "round-nearest-afz"
    builders = ("Round",)
    stablehlo = "round_nearest_afz"
    kinds = REAL
    formula = staticmethod(_round_away)


class IsFinite(Unary):
    """Whether the element is neither infinite nor NaN."""

    opcode = "is-finite"
    builders = ("IsFinite",)
    stablehlo = "is_finite"
    kinds = REAL

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        return super().infer(instruction).with_element_type("pred")

    @classmethod
    def function(cls, x: Array) -> Array:
        return np.isfinite(x)


class PopulationCount(Unary):
    """Number of bits that are set."""

    opcode = "popcnt"
    builders = ("PopulationCount",)
    stablehlo = "popcnt"
    kinds = INTEGER

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        bits = _bits(operands[0], instruction.operands[0].shape.primitive.bits)
        return bits.sum(axis=-1).astype(operands[0].dtype)


class CountLeadingZeros(Unary):
    """Number of zero bits above the highest bit that is set."""

    opcode = "count-leading-zeros"
    builders = ("Clz",)
    stablehlo = "count_leading_zeros"
    kinds = INTEGER

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        width = instruction.operands[0].shape.primitive.bits
        bits = _bits(operands[0], width)
        leading = np.where(bits.any(axis=-1), bits.argmax(axis=-1), width)
        return leading.astype(operands[0].dtype)


def _bits(array: Array, width: int) -> Array:
    """The bits of every element, most significant first, on a new last axis."""
    raw = unsigned_view(array)
    big = np.ascontiguousarray(raw[..., np.newaxis]).astype(raw.dtype.newbyteorder(">"))
    return np.unpackbits(big.view(np.uint8), axis=-1)[..., -width:]


class Real(RealUnary):
    """Real part; of a real number itself."""

    opcode = "real"
    builders = ("Real",)
    stablehlo = "real"
    kinds = INEXACT

    @classmethod
    def function(cls, x: Array) -> Array:
        return x.real


class Imag(Real):
    """Imaginary part; of a real number zero."""

    opcode = "imag"
    builders = ("Imag",)
    stablehlo = "imag"

    @classmethod
    def function(cls, x: Array) -> Array:
        return x.imag if x.dtype.kind == "c" else np.zeros_like(x)
