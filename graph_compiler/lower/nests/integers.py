"""Integers of 8, 16 and 32 bits: division, powers, bits, and wrap-around of narrow types.

The GpSimd engine adds, multiplies and compares 32-bit integers exactly (SDK
nki/api/nki.isa.rst#nki.isa.tensor_tensor); everything here is made of that. Narrower integers
become 32-bit ones, and of results the low bits stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import nki.language as nl
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.registers import kind
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter, is_column

IntegerForm = Callable[[Sequence[Any], ElementStep], NkiTensor]

BITS = 32
"""Of the integers that the engines compute with."""

WIDE = {"signed": ("s32", "int32"), "unsigned": ("u32", "uint32")}
"""The 32-bit integers of a kind, and their dtype."""

_EXACT_BITS = 20
"""Bits of a quotient in fp32 that are right, after several roundings."""

_BELOW = 1 - 2.0**-_EXACT_BITS
"""Less than any error of a quotient in fp32 takes away: estimates are never too large."""


def filled(like: NkiTensor, value: Any, dtype: str) -> NkiTensor:
    """A tile of one number."""
    return nl.full(like.shape, value, dtype=dtype, buffer=nl.sbuf)


def _same_everywhere(x: NkiTensor, number: Any, dtype: str) -> NkiTensor:
    """A number as a column, which takes no time to fill."""
    return nl.full((x.shape[0], 1), number, dtype=dtype, buffer=nl.sbuf)


def tiles(values: Sequence[Any], dtype: str) -> list[NkiTensor]:
    """All values as tiles."""
    like = next(value for value in values if isinstance(value, NkiTensor))
    return [v if isinstance(v, NkiTensor) else filled(like, v, dtype) for v in values]


def dropped(x: NkiTensor, bits: int, signed: bool, dtype: str) -> NkiTensor:
    """The low bits of 32-bit integers, as a narrower type has them."""
    low = nl.bitwise_and(x, (1 << bits) - 1)
    if signed:
        sign = 1 << (bits - 1)
        low = nl.subtract(nl.bitwise_xor(low.view("int32"), sign), sign)
    return nl.copy(low, dtype=dtype)


# Shifts


def shifted(operator: str, values: Sequence[Any], dtype: str) -> NkiTensor:
    """Bits moved; amounts of the width or more, negative ones too, leave nothing."""
    x, amount = values
    if not isinstance(amount, NkiTensor):
        return getattr(nl, operator)(x, int(amount)) if 0 <= amount < BITS else nl.multiply(x, 0)
    x, amount = tiles((x, amount), dtype)
    amount = _one_of_row(amount)
    inside = nl.bitwise_and(amount, BITS - 1)
    if is_column(amount, x):
        kept = nl.negative(nl.equal(inside, amount, dtype="int32")).view(dtype)
        e = Emitter(operator, None)
        result = e.result(x.shape, dtype)
        e.scalar(result, x, operator, inside, "bitwise_and", kept)
        return result
    same = nl.equal(inside, amount, dtype="uint8")
    return nl.where(same, getattr(nl, operator)(x, inside), 0, dtype=dtype)


def _one_of_row(tile: NkiTensor) -> NkiTensor:
    """A tile whose elements are the same along each row, as a column [partitions, 1]; others as
    they are."""
    if any(step and size > 1 for step, size in zip(tile.strides[1:], tile.shape[1:])):
        return tile
    return tile.ap([[tile.strides[0], tile.shape[0]], [1, 1]])


def shift_left(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    return shifted("left_shift", values, WIDE[kind(step.type)][1])


def shift_right_logical(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    return shifted("right_shift", values, WIDE[kind(step.type)][1])


def shift_right_arithmetic(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """Of negative numbers zeros would enter, so their complements move; a far shift is one by 31
    bits."""
    x, amount = values
    dtype = WIDE[kind(step.type)][1]
    most = BITS - 1
    if isinstance(amount, NkiTensor):
        x, amount = tiles((x, amount), dtype)
        amount = _one_of_row(amount)
        inside = nl.bitwise_and(amount, most)
        far = nl.not_equal(inside, amount, dtype="uint8")
        amount = nl.where(far, most, inside, dtype=dtype)
    else:
        amount = int(amount) if 0 <= amount < BITS else most
    mask = _negative_mask(x.view("int32"))
    moved = nl.right_shift(nl.bitwise_xor(x.view("int32"), mask).view(dtype), amount)
    return nl.bitwise_xor(moved.view("int32"), mask).view(dtype)


def _negative_mask(x: NkiTensor) -> NkiTensor:
    """All bits of negative int32 numbers, none of others."""
    return nl.negative(nl.less(x, 0, dtype="int32"))


# Division


def _divided(n: NkiTensor, d: NkiTensor) -> NkiTensor:
    """Whole quotients of uint32 numbers, by 0 all bits.

    Quotients in fp32, rounded down, twice: of what the first one leaves the second leaves less than
    two divisors.
    """
    zero = nl.equal(d, 0, dtype="uint8")
    safe = nl.where(zero, 1, d, dtype="uint32")
    inverse = nl.multiply(nl.divide(1.0, nl.copy(safe, dtype="float32")), _BELOW, dtype="float32")

    def part_of(left: NkiTensor) -> NkiTensor:
        estimate = nl.multiply(nl.copy(left, dtype="float32"), inverse, dtype="float32")
        return nl.copy(nl.trunc(estimate, dtype="float32"), dtype="uint32")

    quotient = part_of(n)
    rest = nl.subtract(n, nl.multiply(quotient, safe))
    part = part_of(rest)
    quotient = nl.add(quotient, part)
    rest = nl.subtract(rest, nl.multiply(part, safe))
    more = nl.greater_equal(rest, safe, dtype="uint32")
    return nl.where(zero, (1 << BITS) - 1, nl.add(quotient, more), dtype="uint32")


def _by_number(n: NkiTensor, d: int) -> NkiTensor:
    """Whole quotients of uint32 numbers, by a number from 1 on: as `_divided`, in one step where
    that leaves less than two divisors."""
    if d & (d - 1) == 0:
        return nl.right_shift(n, d.bit_length() - 1)
    parts, rest = [], n
    for _ in range(1 if d >= 2 << (BITS - _EXACT_BITS) else 2):
        estimate = nl.multiply(rest, _BELOW / d, dtype="float32")
        part = nl.copy(nl.trunc(estimate, dtype="float32"), dtype="uint32")
        rest = nl.subtract(rest, nl.multiply(part, d))
        parts.append(part)
    return reduce(nl.add, [*parts, nl.greater_equal(rest, d, dtype="uint32")])


_NEAR = 1 << 21
"""Divisors up to which what an estimate leaves, and half a divisor more, are exact in fp32."""


def _by_small_number(n: NkiTensor, d: int, dtype: str) -> NkiTensor:
    """Whole quotients towards zero by a number from 2 to `_NEAR`.

    A quotient in fp32, to the nearest integer, is wrong by less than 800 / d + 1; so what it leaves
    is small, and a quotient of that is right: it is to the nearest integer, too, of what is half a
    divisor less, and so rounded down; of negative numbers half a divisor more.
    """
    e = Emitter("divide", None)
    number = _same_everywhere(n, d, dtype)
    first, left = e.part(n.shape, dtype), e.part(n.shape)
    e.scalar(first, n, "multiply", 1.0 / d)
    rest = nl.subtract(n, nl.multiply(first, number)).view("int32")
    if dtype == WIDE["unsigned"][1]:
        e.scalar(left, rest, "subtract", (d - 1) / 2)
    else:
        e.scalar(left, n, "less", 0.0, "multiply", float(d - 1))
        e.scalar_then_tensor(left, rest, "subtract", (d - 1) / 2, "add", left)
    second = e.part(n.shape, "int32")
    e.scalar(second, left, "multiply", 1.0 / d)
    return nl.add(first, second.view(dtype))


def _towards_zero(x: NkiTensor, d: int, dtype: str) -> NkiTensor:
    """Quotients by a number that is not 0."""
    if 2 <= abs(d) <= _NEAR and (dtype != WIDE["unsigned"][1] or d & (d - 1)):
        quotient = _by_small_number(x, abs(d), dtype)
        return quotient if d > 0 else nl.negative(quotient)
    if dtype == WIDE["unsigned"][1]:
        return _by_number(x, d)
    quotient = _by_number(nl.abs(x).view("uint32"), abs(d)).view("int32")
    negative = _negative_mask(x if d > 0 else nl.bitwise_xor(x, -1))
    return nl.subtract(nl.bitwise_xor(quotient, negative), negative)


def divide(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """Towards zero; by zero all bits, the lowest by -1 itself."""
    wide, dtype = WIDE[kind(step.type)]
    x, y = values
    if not isinstance(y, NkiTensor) and y:
        return _towards_zero(x, int(y), dtype)
    x, y = tiles(values, dtype)
    if wide == "u32":
        return _divided(x, y)
    quotient = _divided(nl.abs(x).view("uint32"), nl.abs(y).view("uint32")).view("int32")
    negative = _negative_mask(nl.bitwise_xor(x, y))
    result = nl.subtract(nl.bitwise_xor(quotient, negative), negative)
    return nl.where(nl.equal(y, 0, dtype="uint8"), -1, result, dtype="int32")


def remainder(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """x - y * (x / y): by zero x itself."""
    x, y = values
    if isinstance(y, NkiTensor) or not y:
        x, y = tiles(values, WIDE[kind(step.type)][1])
    return nl.subtract(x, nl.multiply(divide((x, y), step), y))


# Products and powers


def multiply_high(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """The upper half of 64-bit products, from products of 16-bit halves."""
    wide, dtype = WIDE[kind(step.type)]
    x, y = tiles(values, dtype)
    a, b = x.view("uint32"), y.view("uint32")
    half, mask = BITS // 2, (1 << BITS // 2) - 1
    a_low, a_high = nl.bitwise_and(a, mask), nl.right_shift(a, half)
    b_low, b_high = nl.bitwise_and(b, mask), nl.right_shift(b, half)
    low = nl.right_shift(nl.multiply(a_low, b_low), half)
    middle = nl.add(nl.multiply(a_high, b_low), low)
    other = nl.add(nl.multiply(a_low, b_high), nl.bitwise_and(middle, mask))
    high = nl.add(nl.multiply(a_high, b_high), nl.right_shift(middle, half))
    high = nl.add(high, nl.right_shift(other, half))
    if wide == "u32":
        return high
    # A negative factor stands for itself plus 2^32, which adds the other one to the upper half.
    result = nl.subtract(high.view("int32"), nl.bitwise_and(y, _negative_mask(x)))
    return nl.subtract(result, nl.bitwise_and(x, _negative_mask(y)))


def multiply_high_narrow(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """Of at most 16 bits: the product of 32 bits, shifted."""
    bits = PRIMITIVE_TYPES[step.source].bits
    wide, dtype = WIDE[kind(step.source)]
    x, y = tiles(values, dtype)
    product = nl.multiply(x, y)
    return shift_right_arithmetic((product, bits), step._replace(type=wide, source=wide))


def power(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """Squares, multiplied where the exponent has a bit; of a negative exponent the truncated
    quotient 1 / x**-y."""
    wide, dtype = WIDE[kind(step.type)]
    base, exponent = values
    count = BITS
    if not isinstance(exponent, NkiTensor):
        count = max(1, int(exponent).bit_length()) if exponent >= 0 else 0
    x, y = tiles((base, exponent), dtype)
    result = filled(x, 1, dtype)
    square = x
    for bit in range(count):
        taken = nl.bitwise_and(nl.right_shift(y, bit), 1)
        factor = nl.add(nl.multiply(nl.subtract(square, 1), taken), 1)
        result = nl.multiply(result, factor)
        if bit + 1 < count:
            square = nl.multiply(square, square)
    if wide == "u32":
        return result
    one = nl.equal(nl.abs(x), 1, dtype="uint8")
    odd = nl.equal(nl.bitwise_and(y, 1), 1, dtype="uint8")
    inverse = nl.where(one, nl.where(odd, x, 1, dtype="int32"), 0, dtype="int32")
    return nl.where(nl.less(y, 0, dtype="uint8"), inverse, result, dtype="int32")


def sign(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    (x,) = values
    low = 0 if kind(step.type) == "unsigned" else -1
    return nl.maximum(nl.minimum(x, 1), low)


# Bits


def population(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """Sums of neighbouring bits, pairs, fours; then of bytes, by a product."""
    (given,) = values
    dtype = WIDE[kind(step.type)][1]
    x = given.view("uint32")
    x = nl.subtract(x, nl.bitwise_and(nl.right_shift(x, 1), 0x55555555))
    x = nl.add(nl.bitwise_and(x, 0x33333333), nl.bitwise_and(nl.right_shift(x, 2), 0x33333333))
    x = nl.bitwise_and(nl.add(x, nl.right_shift(x, 4)), 0x0F0F0F0F)
    return nl.right_shift(nl.multiply(x, 0x01010101), 24).view(dtype)


def leading_zeros(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    """The bits that are not below the highest one that is set."""
    (given,) = values
    x = given.view("uint32")
    for distance in (1, 2, 4, 8, 16):
        x = nl.bitwise_or(x, nl.right_shift(x, distance))
    return nl.subtract(BITS, population((x.view(given.dtype),), step))


def _leading_zeros_narrow(values: Sequence[Any], step: ElementStep) -> NkiTensor:
    wide, _ = WIDE[kind(step.source)]
    count = leading_zeros(values, step._replace(type=wide, source=wide))
    return nl.subtract(count, BITS - PRIMITIVE_TYPES[step.source].bits)


# Narrow types

PATTERNS = frozenset({"shift-right-logical", "popcnt", "count-leading-zeros"})
"""Opcodes that take their first operand as bits, whatever its sign."""

_SIGNED_PATTERNS = frozenset({"shift-right-arithmetic"})
"""Opcodes that take the highest bit of their first operand for a sign, whatever its type."""

_OF_16_BITS: dict[str, IntegerForm] = {
    "mulhi": multiply_high_narrow,
    "count-leading-zeros": _leading_zeros_narrow,
}
"""Opcodes whose results depend on the width, on operands of 32 bits."""


_SUMS = frozenset({"add", "subtract", "multiply"})
"""Opcodes whose second operand the GpSimd engine takes from a tile."""


def _with_columns(values: Sequence[Any], step: ElementStep) -> Sequence[Any]:
    """Numbers that such opcodes take, as columns that repeat."""
    found = [value for value in values if isinstance(value, NkiTensor)]
    if step.op not in _SUMS or len(found) != 1:
        return values
    (x,), dtype = found, WIDE[kind(step.type)][1]
    if math.prod(x.shape[1:]) == 1:
        return values
    return [v if isinstance(v, NkiTensor) else _same_everywhere(x, v, dtype) for v in values]


def wrapped(form: IntegerForm, op: str) -> IntegerForm:
    """A form for 32-bit integers, for those of all widths."""

    def narrow(values: Sequence[Any], step: ElementStep) -> NkiTensor:
        row = PRIMITIVE_TYPES[step.source]
        if row.bits == BITS:
            return form(_with_columns(values, step), step)
        wide, dtype = WIDE[row.kind]
        whole = [nl.copy(v, dtype=dtype) if isinstance(v, NkiTensor) else v for v in values]
        if op in PATTERNS and row.kind == "signed":
            mask = (1 << row.bits) - 1
            first = whole[0]
            bits = nl.bitwise_and(first, mask) if isinstance(first, NkiTensor) else first & mask
            whole[0] = bits
        if op in _SIGNED_PATTERNS and row.kind == "unsigned":
            (first,) = tiles((whole[0], *whole[1:]), dtype)[:1]
            high = 1 << (row.bits - 1)
            whole[0] = nl.subtract(nl.bitwise_xor(first, high), high)
        special = _OF_16_BITS.get(op)
        if special is not None:
            result = special(whole, step)
        else:
            result = form(whole, step._replace(source=wide, type=wide))
        return dropped(result, row.bits, row.kind == "signed", row.dtype or dtype)

    return narrow
