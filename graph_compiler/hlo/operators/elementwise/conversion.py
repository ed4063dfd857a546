"""Operations that change the element type or its precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.elementwise.unary import REAL, Unary
from graph_compiler.hlo.operators.numerics import convert, unsigned_view, wrap
from graph_compiler.hlo.operators.row import (
    ARITHMETIC,
    Array,
    Evaluation,
    HloOperator,
    operand_array,
    require_shape,
    require_type,
    result_array,
)

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.hlo.types import Shape


class Convert(HloOperator):
    """The values in the result's element type.

    Floats to integers truncate and saturate, NaN gives 0; into floats nearest even.
    """

    opcode = "convert"
    builders = ("ConvertElementType",)
    per_element = ARITHMETIC
    stablehlo = "convert"
    arity = (1, 1)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = operand_array(instruction, 0)
        return shape.with_element_type(result_array(instruction).element_type)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        source, target = instruction.operands[0].shape.primitive, instruction.shape.primitive
        return convert(operands[0], source, target)


class StochasticConvert(HloOperator):
    """Rounds up or down to a neighbour with the probability that its nearness gives.

    Operand 1 holds random unsigned integers as wide as the elements: the magnitude is rounded up
    where the random number is below the share of the distance, in units of 2**-bits. NaN gives 0,
    infinities and values out of range saturate; the result is a signed integer.
    """

    opcode = "stochastic-convert"
    builders = ("StochasticConvertType",)
    per_element = ARITHMETIC
    arity = (2, 2)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, random = operand_array(instruction, 0), operand_array(instruction, 1)
        require_type(
            shape.primitive.is_float
            and random.primitive.kind == "unsigned"
            and random.primitive.bits == shape.primitive.bits,
            instruction,
            f"its operands are {shape} and {random}.",
            "It takes floats and unsigned integers of the same width.",
        )
        require_shape(
            shape.dimensions == random.dimensions,
            instruction,
            f"its operands are {shape} and {random}.",
            "Both operands have the same dimensions.",
        )
        return shape.with_element_type(result_array(instruction).element_type)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        x = operands[0].astype(np.float64)
        bits = instruction.operands[1].shape.primitive.bits
        magnitude = np.abs(x)
        whole = np.floor(magnitude)
        share = np.ldexp(magnitude - whole, bits)
        rounded = np.copysign(whole + (operands[1].astype(np.float64) < share), x)
        from graph_compiler.hlo.types import PRIMITIVE_TYPES

        return convert(rounded, PRIMITIVE_TYPES["f64"], instruction.shape.primitive)


class BitcastConvert(HloOperator):
    """The bits of the operand read as another element type.

    A narrower type adds a last dimension, a wider one takes the last dimension away; the lowest
    bits come first.
    """

    opcode = "bitcast-convert"
    builders = ("BitcastConvertType",)
    stablehlo = "bitcast_convert"
    arity = (1, 1)
    elementwise = True

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape, target = operand_array(instruction, 0), result_array(instruction).primitive
        source = shape.primitive
        require_type(
            source.is_complex == target.is_complex,
            instruction,
            f"it reads {source.name} as {target.name}.",
            "Complex numbers are read as complex numbers only.",
        )
        dimensions = shape.dimensions
        if target.bits < source.bits:
            dimensions = (*dimensions, source.bits // target.bits)
        elif target.bits > source.bits:
            ratio = target.bits // source.bits
            require_shape(
                bool(dimensions) and dimensions[-1] == ratio,
                instruction,
                f"it reads {shape} as {target.name}.",
                f"The last dimension holds the {ratio} parts of one element.",
            )
            dimensions = dimensions[:-1]
        return shape.with_dimensions(dimensions).with_element_type(target.name)

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        source, target = instruction.operands[0].shape.primitive, instruction.shape.primitive
        array, dtype = np.asarray(operands[0]), target.numpy
        if source.bits == target.bits and source.bits >= 8:
            return array.view(dtype)
        if source.bits < 8 or target.bits < 8:
            values = _regroup(array, source.bits, target.bits)
            if target.bits < 8:
                return wrap(values, target)
            return values.astype(np.dtype(f"uint{target.bits}")).view(dtype)
        if target.bits < source.bits:
            return np.ascontiguousarray(array[..., np.newaxis]).view(dtype)
        return np.ascontiguousarray(array).view(dtype)[..., 0]


def _regroup(array: Array, source_bits: int, target_bits: int) -> Array:
    """Unsigned integers of `target_bits` that the bits of the elements make up."""
    raw = np.ascontiguousarray(unsigned_view(array)[..., np.newaxis])
    bits = np.unpackbits(raw.view(np.uint8), axis=-1, bitorder="little")[..., :source_bits]
    if target_bits <= source_bits:
        parts = bits.reshape(*array.shape, source_bits // target_bits, target_bits)
        parts = parts[..., 0, :] if source_bits == target_bits else parts
    else:
        parts = bits.reshape(*array.shape[:-1], -1)
    weights = np.uint64(1) << np.arange(parts.shape[-1], dtype=np.uint64)
    return (parts * weights).sum(axis=-1, dtype=np.uint64)


class ReducePrecision(Unary):
    """Rounds to a format of fewer exponent and mantissa bits, nearest even, and back.

    Beyond the largest finite value of the format is infinity, below its smallest normal value a
    zero of the same sign. NaN stays, also where the format has no mantissa bits to tell it
    from infinity (XLA's operation semantics: NaN is retained).
    """

    opcode = "reduce-precision"
    builders = ("ReducePrecision",)
    stablehlo = "reduce_precision"
    attributes = ("exponent_bits", "mantissa_bits")
    kinds = REAL

    @classmethod
    def infer(cls, instruction: Instruction) -> Shape:
        shape = super().infer(instruction)
        exponent = instruction.attribute("exponent_bits")
        mantissa = instruction.attribute("mantissa_bits")
        require_type(
            exponent >= 1 and mantissa >= 0,
            instruction,
            f"it asks for {exponent} exponent and {mantissa} mantissa bits.",
            "A format has at least one exponent bit and no negative number of mantissa bits.",
        )
        return shape

    @classmethod
    def evaluate(cls, instruction: Instruction, operands: list[Any], context: Evaluation) -> Array:
        import ml_dtypes

        x = operands[0]
        information = ml_dtypes.finfo(x.dtype)
        return reduce_precision(
            x,
            (information.nexp, information.nmant),
            (instruction.attribute("exponent_bits"), instruction.attribute("mantissa_bits")),
        )


def reduce_precision(x: Array, own: tuple[int, int], wanted: tuple[int, int]) -> Array:
    """Numbers of a format of so many exponent and mantissa bits, rounded to another."""
    (own_exponent, own_mantissa), (exponent, mantissa) = own, wanted
    bits = unsigned_view(x)
    word = bits.dtype.type
    magnitude = bits & word((1 << (own_exponent + own_mantissa)) - 1)
    sign = bits ^ magnitude
    if mantissa < own_mantissa:
        dropped = own_mantissa - mantissa
        last = (magnitude >> word(dropped)) & word(1)
        magnitude = magnitude + (last + word((1 << (dropped - 1)) - 1))
        magnitude = magnitude & word(~((1 << dropped) - 1) & int(np.iinfo(word).max))
    infinity = word(((1 << own_exponent) - 1) << own_mantissa)
    if exponent < own_exponent:
        bias, wanted_bias = (1 << (own_exponent - 1)) - 1, (1 << (exponent - 1)) - 1
        above = magnitude >> word(own_mantissa) > word(bias + wanted_bias)
        below = magnitude >> word(own_mantissa) <= word(bias - wanted_bias)
        magnitude = np.where(above, infinity, np.where(below, word(0), magnitude))
    result = np.asarray(sign | np.minimum(magnitude, infinity)).astype(bits.dtype).view(x.dtype)
    return np.where(np.isnan(x), x, result)
