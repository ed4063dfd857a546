"""divide, fmod and mod from operations that every generation has.

The instruction set has neither division nor remainder (NKI 0.4.0 release notes, Known Issues), but
a precise reciprocal.
"""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np

from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.arithmetic import EXACT, as_tile, is_integral, operands
from nki.language.lowering.emitter import Emitter, dtype_of, shapes_agree
from nki.language.lowering.promotion import promote

MOST_QUOTIENT = 2.0**21
"""Below, the nearest integer to an fp32 quotient is at most 0.75 off."""

_COARSE = 2.0**20
"""A quotient is found in two steps, first of this multiple of the divisor."""

_SMALL, _LARGE, _SCALE = 2.0**-64, 2.0**64, 2.0**64
_FRACTION, _BIAS = (1 << 23) - 1, 127
"""The bits of the fraction of an fp32 number, and the exponent's bits for 2**0."""

_MOST_SHIFTS = 14
"""fp32 numbers are up to 2**277 apart, and a step takes 20 powers of two."""

_SPLITTER = 4097.0
"""2**12 + 1: multiplying by it cuts a 24-bit significand in half (Dekker 1971)."""


def divide(e: Emitter, x: Any, y: Any, dtype: Any, moderate: bool = False) -> NkiTensor:
    """(x * f) * (1 / (y * f)), f a power of two that keeps the reciprocal a normal number. It is 1
    where |y| is known to be `moderate`: between 2**-64 and 2**64, or no number."""
    data, operand, reverse = operands(e, x, y)
    if not reverse and not is_integral(data.dtype):
        factors = _factors(e, data, operand, moderate)
        if factors is not None:
            common = data.dtype
            if isinstance(operand, NkiTensor):
                common = promote(common, operand.dtype)
            result = e.result(data.shape, dtype_of(dtype, common))
            e.scalar(result, data, "multiply", factors[0], "multiply", factors[1])
            return result
    left, right, common = _tiles(e, x, y)
    wanted = dtype_of(dtype, "float32" if is_integral(common) else common)
    divisor = _once(right)
    factor, inverse = _inverse(e, divisor, moderate)
    if _is_by_row(left, divisor):
        result = e.result(left.shape, wanted)
        for row in product(*map(range, left.shape[1:-1])):
            own = [
                tile[(slice(None), *row)] if isinstance(tile, NkiTensor) else tile
                for tile in (result, left, factor, inverse)
            ]
            e.scalar(own[0], own[1], "multiply", own[2], "multiply", own[3])
        return result
    quotient = left
    if isinstance(factor, NkiTensor):
        quotient = e.part(left.shape)
        e.tensors(quotient, left, "multiply", _repeated(factor, left.shape))
    result = e.working(left.shape, wanted)
    e.tensors(result, quotient, "multiply", _repeated(inverse, left.shape))
    return e.finish(result, wanted)


def _inverse(e: Emitter, y: NkiTensor, moderate: bool) -> tuple[Any, NkiTensor]:
    """f and 1 / (y * f) of a tile."""
    inverse = e.part(y.shape)
    if moderate:
        e.invert(inverse, y)
        return 1.0, inverse
    factor = _factor(e, y)
    e.tensors(inverse, y, "multiply", factor)
    e.invert(inverse, inverse)
    return factor, inverse


_LEAST_ROW, _MOST_ROWS = 128, 64
"""Elements of a row from which on, and rows up to which, an operation for each row takes less time
than two for all, whose fp32 operands are tiles."""


def _is_by_row(data: NkiTensor, divisor: NkiTensor) -> bool:
    """Whether rows of tiles of several are each divided by one number."""
    *rows, width = data.shape
    some = len(rows) > 1 and math.prod(rows[1:]) <= _MOST_ROWS and width >= _LEAST_ROW
    return some and divisor.shape == (*rows, 1)


def _once(tile: NkiTensor) -> NkiTensor:
    """A tile without the free dimensions along which its elements repeat."""
    for axis, step in enumerate(tile.strides):
        if axis and not step and tile.shape[axis] != 1:
            places = [slice(None)] * len(tile.shape)
            places[axis] = slice(0, 1)
            tile = tile[tuple(places)]
    return tile


def _repeated(tile: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """A tile whose single elements repeat along dimensions of a shape."""
    for axis, size in enumerate(shape):
        if axis and tile.shape[axis] != size:
            tile = tile.broadcast(axis, size)
    return tile


def _factors(e: Emitter, data: NkiTensor, divisor: Any, moderate: bool) -> tuple[Any, Any] | None:
    """f and 1 / (y * f) of a number or a column of them; None of other divisors."""
    if not isinstance(divisor, NkiTensor):
        y = np.float32(divisor)
        scale = _SCALE if abs(y) < _SMALL else 1 if abs(y) <= _LARGE else 1 / _SCALE
        with np.errstate(all="ignore"):
            return float(scale), float(np.float32(1) / (y * np.float32(scale)))
    if shapes_agree(data, divisor) or is_integral(divisor.dtype):
        return None
    return _inverse(e, e.converted(e.in_sbuf(divisor), "float32"), moderate)


def fmod(e: Emitter, x: Any, y: Any, dtype: Any) -> NkiTensor:
    """The exact remainder of |x| by |y|, with the sign of x."""
    left, right, common = _tiles(e, x, y)
    wanted = dtype_of(dtype, common)
    if common in EXACT:
        return _integer_remainder(e, left, right, common, wanted, left)
    result = e.working(left.shape, wanted)
    _signed_remainder(e, result, left, right)
    return e.finish(result, wanted)


def mod(e: Emitter, x: Any, y: Any, dtype: Any) -> NkiTensor:
    """fmod, plus y where it is not zero and its sign is not that of y."""
    left, right, common = _tiles(e, x, y)
    wanted = dtype_of(dtype, common)
    if common in EXACT:
        return _integer_remainder(e, left, right, common, wanted, right)
    result = e.working(left.shape, wanted)
    _signed_remainder(e, result, left, right)
    sign, other, differ = e.part(left.shape), e.part(left.shape), e.part(left.shape, "uint8")
    e.activate(sign, "sign", result)
    e.activate(other, "sign", right)
    e.tensors(sign, sign, "multiply", other)
    e.scalar(differ, sign, "less", 0.0)
    e.tensors(other, result, "add", right)
    e.choose(result, other, differ)
    return e.finish(result, wanted)


def _tiles(e: Emitter, x: Any, y: Any) -> tuple[NkiTensor, NkiTensor, str]:
    """Both operands as SBUF tiles of one shape, and their promoted dtype."""
    data, operand, reverse = operands(e, x, y)
    common = promote(data.dtype, operand.dtype) if isinstance(operand, NkiTensor) else data.dtype
    whole = common in EXACT and not isinstance(operand, float)
    other = as_tile(e, operand, data, common if whole else None)
    data = e.in_sbuf(data)
    return (other, data, common) if reverse else (data, other, common)


def _integer_remainder(
    e: Emitter, x: NkiTensor, y: NkiTensor, common: str, wanted: str, like: NkiTensor
) -> NkiTensor:
    """The remainder of 32-bit integers, y not 0, with the sign of `like`, which is x or y.

    An fp32 quotient is within 2**9 of the exact one, that of the remainder it leaves within 1; the
    GpSimd engine multiplies and subtracts modulo 2**32.
    """
    shape = x.shape
    x, y, like = (e.converted(tile, common) for tile in (x, y, like))
    inverse = e.part(shape)
    e.scalar(inverse, y, "add", 0.0)
    e.invert(inverse, inverse)
    rest = _less_multiple(e, x.view("int32"), x, inverse, y)
    rest = _less_multiple(e, rest, rest, inverse, y)
    # It is at most half of y in size; where its sign is wrong, y brings it to the other side.
    opposite, wrong = e.part(shape, "int32"), e.part(shape, "uint8")
    if common == "uint32":
        e.scalar(wrong, rest, "less", 0.0)
        e.tensors(opposite, rest, "add", y.view("int32"))
        e.choose(rest, opposite, wrong)
        return e.finish(_as_result(e, rest.view(common), wanted), wanted)
    signs, towards = e.part(shape, "int32"), e.part(shape, "uint8")
    e.tensors(signs, rest, "bitwise_xor", like)
    e.scalar(signs, signs, "less", 0.0)
    e.scalar_then_tensor(wrong, rest, "not_equal", 0.0, "multiply", signs)
    e.tensors(signs, rest, "bitwise_xor", y)
    e.scalar(towards, signs, "less", 0.0)
    e.tensors(opposite, rest, "subtract", y)
    other = e.part(shape, "int32")
    e.tensors(other, rest, "add", y)
    e.choose(opposite, other, towards)
    e.choose(rest, opposite, wrong)
    return e.finish(_as_result(e, rest, wanted), wanted)


def _less_multiple(
    e: Emitter, rest: NkiTensor, value: NkiTensor, inverse: NkiTensor, y: NkiTensor
) -> NkiTensor:
    """rest - n * y modulo 2**32, n the integer nearest to value * inverse in fp32."""
    quotient, multiple, result = e.part(y.shape), e.part(y.shape, "int32"), e.part(y.shape, "int32")
    e.tensors(quotient, value, "multiply", inverse)
    e.copy(multiple.view(value.dtype), quotient)
    e.tensors(multiple, multiple, "multiply", y.view("int32"))
    e.tensors(result, rest, "subtract", multiple)
    return result


def _as_result(e: Emitter, value: NkiTensor, wanted: str) -> NkiTensor:
    """An intermediate as the result, or left to be converted into it."""
    if value.dtype != wanted:
        return value
    result = e.result(value.shape, wanted)
    e.copy(result, value)
    return result


def _factor(e: Emitter, y: NkiTensor) -> NkiTensor:
    """2**64 where |y| is small, 2**-64 where it is large, else 1."""
    up, down = e.part(y.shape), e.part(y.shape)
    e.scalar(up, y, "abs", op1="less", operand1=_SMALL)
    e.scalar(up, up, "multiply", _SCALE, "maximum", 1.0)
    e.scalar(down, y, "abs", op1="less_equal", operand1=_LARGE)
    e.scalar_then_tensor(up, down, "maximum", 1.0 / _SCALE, "multiply", up)
    return up


def _signed_remainder(e: Emitter, result: NkiTensor, x: NkiTensor, y: NkiTensor) -> None:
    """result = |x| - n * |y| for an integer n, with the sign of x.

    Floats are first reduced by 2**20 |y|. Those from 2**41 |y| on are reduced in a loop on the
    device, which runs where there are some. Integers, of at most 16 bits here, need neither.
    """
    size, unit = e.part(x.shape), e.part(x.shape)
    e.scalar(size, x, "abs")
    e.scalar(unit, y, "abs")
    below = e.part(x.shape, "uint8")
    e.tensors(below, size, "less", unit)

    factor = _factor(e, unit)
    rest, divisor, inverse = e.part(x.shape), e.part(x.shape), e.part(x.shape)
    e.tensors(rest, size, "multiply", factor)
    e.tensors(divisor, unit, "multiply", factor)
    e.invert(inverse, divisor)
    beyond = e.part(x.shape, "uint8")
    ratio = e.part(x.shape)
    e.scalar_then_tensor(ratio, rest, "multiply", 1.0 / _COARSE, "multiply", inverse)
    e.scalar(beyond, ratio, "less", MOST_QUOTIENT, "equal", 0.0)
    small = is_integral(x.dtype) and is_integral(y.dtype)
    if not small:
        multiple = e.part(x.shape)
        e.scalar(multiple, divisor, "multiply", _COARSE)
        rest = _reduced(e, rest, ratio, multiple)
    e.tensors(ratio, rest, "multiply", inverse)
    rest = _reduced(e, rest, ratio, divisor)

    e.invert(factor, factor)
    e.tensors(rest, rest, "multiply", factor)
    e.choose(rest, size, below)
    if small:
        e.choose(rest, math.nan, beyond)
    else:
        for _ in e.if_any(beyond):
            e.choose(rest, _far_remainder(e, size, unit), beyond)
    sign = e.part(x.shape)
    e.activate(sign, "sign", x)
    e.tensors(result, rest, "multiply", sign)


def _far_remainder(e: Emitter, size: NkiTensor, unit: NkiTensor) -> NkiTensor:
    """The remainder of any two numbers >= 0, the first not below the second.

    Both become numbers from 1 to 2 and powers of two. Then the remainder takes over 20 of the
    powers between them at a time, as in a division by hand.
    """
    up, normal, inverse = (e.part(size.shape) for _ in range(3))
    e.scalar(up, unit, "less", _SMALL, "multiply", _SCALE)
    e.scalar(up, up, "maximum", 1.0)
    e.tensors(normal, unit, "multiply", up)
    (rest, power), (divisor, power_of_unit) = _split(e, size), _split(e, normal)
    shifts = e.part(size.shape)
    e.scalar(shifts, unit, "less", _SMALL, "multiply", math.log2(_SCALE))
    e.tensors(shifts, shifts, "subtract", power_of_unit)
    e.tensors(shifts, shifts, "add", power)
    e.invert(inverse, divisor)
    for _ in e.repeat(_MOST_SHIFTS):
        step, scaled, ratio = (e.part(size.shape) for _ in range(3))
        e.scalar(step, shifts, "minimum", math.log2(_COARSE), "maximum", 0.0)
        e.tensors(shifts, shifts, "subtract", step)
        e.tensors(scaled, rest, "multiply", _power_of_two(e, step, _BIAS))
        e.tensors(ratio, scaled, "multiply", inverse)
        e.copy(rest, _reduced(e, scaled, ratio, divisor))
    e.tensors(rest, rest, "multiply", _power_of_two(e, power_of_unit, 0))
    e.invert(up, up)
    e.tensors(rest, rest, "multiply", up)
    e.invert(inverse, normal)  # infinite for 0, and then not a number, as with infinite x
    for operand in (size, inverse):
        e.scalar_then_tensor(rest, operand, "multiply", 0.0, "add", rest)
    return rest


def _split(e: Emitter, value: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """The significand of a normal number > 0, from 1 to 2, and the bits of its exponent."""
    significand, power = e.part(value.shape, "int32"), e.part(value.shape, "int32")
    bits = value.view("int32")
    e.scalar(
        significand, bits, "bitwise_and", _FRACTION, "bitwise_or", _BIAS << _FRACTION.bit_length()
    )
    e.scalar(power, bits, "right_shift", _FRACTION.bit_length())
    return significand.view("float32"), power


def _power_of_two(e: Emitter, power: NkiTensor, bias: int) -> NkiTensor:
    """The fp32 number whose exponent has the bits power + bias, 1 to 254."""
    bits = e.part(power.shape, "int32")
    e.scalar(bits, power, "add", float(bias), "multiply", float(_FRACTION + 1))
    return bits.view("float32")


def _reduced(e: Emitter, x: NkiTensor, ratio: NkiTensor, y: NkiTensor) -> NkiTensor:
    """x modulo y, both positive, where ratio is x / y within 2 units of the last place."""
    whole, quotient = e.part(x.shape, "int32"), e.part(x.shape)
    e.copy(whole, ratio)
    e.copy(quotient, whole)
    rest = _exact_difference(e, x, quotient, y)
    negative = e.part(x.shape)
    e.scalar_then_tensor(negative, rest, "less", 0.0, "multiply", y)
    e.tensors(rest, rest, "add", negative)
    return rest


def _exact_difference(e: Emitter, x: NkiTensor, n: NkiTensor, y: NkiTensor) -> NkiTensor:
    """x - n * y without rounding, where the result is an fp32 number: the product in two parts."""
    product, error, term = e.part(x.shape), e.part(x.shape), e.part(x.shape)
    e.tensors(product, n, "multiply", y)
    (n_high, n_low), (y_high, y_low) = _halves(e, n), _halves(e, y)
    e.tensors(error, n_high, "multiply", y_high)
    e.tensors(error, error, "subtract", product)
    for one, other in ((n_high, y_low), (n_low, y_high), (n_low, y_low)):
        e.tensors(term, one, "multiply", other)
        e.tensors(error, error, "add", term)
    e.tensors(product, x, "subtract", product)
    e.tensors(product, product, "subtract", error)
    return product


def _halves(e: Emitter, value: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """Two numbers of 12 bits whose sum is `value`."""
    high, low, scaled = (e.part(value.shape) for _ in range(3))
    e.scalar(scaled, value, "multiply", _SPLITTER)
    e.tensors(low, scaled, "subtract", value)
    e.tensors(high, scaled, "subtract", low)
    e.tensors(low, value, "subtract", high)
    return high, low
