"""Arithmetic of 64-bit integers as HLO text: functions of halves of 32 bits, u32 both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Text
from graph_compiler.lower.expansions.linear import CHUNK, PART, RowLoop, byte_parts, chunk_sums
from graph_compiler.lower.rewrites.random_bits import Halves

HALF = "u32"
BITS = 32
WIDE = frozenset({"s64", "u64"})
"""Types that become pairs."""

Binary = Callable[[Text, Halves, Halves], Halves]


def is_signed(a: Halves) -> bool:
    return PRIMITIVE_TYPES[a.type].kind == "signed"


def wide(text: Text, value: Any, type: str) -> Halves:
    """A value as a pair: integers with their sign, and preds."""
    if isinstance(value, Halves):
        return value
    row = PRIMITIVE_TYPES[text.type(value)]
    dims = text.dims(value)
    if row.kind == "signed":
        whole = text.convert(value, "s32")
        sign = text.apply("shift-right-arithmetic", whole, text.number("s32", 31, dims))
        return Halves(text.convert(whole, HALF), text.convert(sign, HALF), type)
    return Halves(text.convert(value, HALF), text.number(HALF, 0, dims), type)


def number(text: Text, value: int, like: Halves) -> Halves:
    """One number in every element."""
    dims = text.dims(like.low)
    low, high = value & ((1 << BITS) - 1), (value >> BITS) & ((1 << BITS) - 1)
    return Halves(text.number(HALF, low, dims), text.number(HALF, high, dims), like.type)


def _zeros(text: Text, a: Halves) -> str:
    return text.number(HALF, 0, text.dims(a.low))


# Sums and products


def added(text: Text, a: Halves, b: Halves) -> Halves:
    low = text.apply("add", a.low, b.low)
    carry = text.convert(text.compare("LT", low, a.low), HALF)
    return Halves(low, text.apply("add", text.apply("add", a.high, b.high), carry), a.type)


def complement(text: Text, a: Halves) -> Halves:
    return Halves(text.apply("not", a.low), text.apply("not", a.high), a.type)


def negative(text: Text, a: Halves) -> Halves:
    return added(text, complement(text, a), number(text, 1, a))


def subtracted(text: Text, a: Halves, b: Halves) -> Halves:
    return added(text, a, negative(text, b))


def multiplied(text: Text, a: Halves, b: Halves) -> Halves:
    high = text.apply("mulhi", a.low, b.low)
    for first, second in ((a.low, b.high), (a.high, b.low)):
        high = text.apply("add", high, text.apply("multiply", first, second))
    return Halves(text.apply("multiply", a.low, b.low), high, a.type)


# Comparisons and choices


def less(text: Text, a: Halves, b: Halves) -> str:
    """Whether a < b: upper halves decide with their sign, lower ones where those are equal."""
    uppers = [a.high, b.high]
    if is_signed(a):
        uppers = [text.convert(name, "s32") for name in uppers]
    below = text.apply("and", text.compare("EQ", *uppers), text.compare("LT", a.low, b.low))
    return text.apply("or", text.compare("LT", *uppers), below)


def equal(text: Text, a: Halves, b: Halves) -> str:
    return text.apply("and", text.compare("EQ", a.low, b.low), text.compare("EQ", a.high, b.high))


COMPARISONS: dict[str, Callable[[Text, Halves, Halves], str]] = {
    "LT": less,
    "GT": lambda text, a, b: less(text, b, a),
    "GE": lambda text, a, b: text.apply("not", less(text, a, b)),
    "LE": lambda text, a, b: text.apply("not", less(text, b, a)),
    "EQ": equal,
    "NE": lambda text, a, b: text.apply("not", equal(text, a, b)),
}


def chosen(text: Text, flag: str, a: Halves, b: Halves) -> Halves:
    low, high = (text.apply("select", flag, x, y) for x, y in ((a.low, b.low), (a.high, b.high)))
    return Halves(low, high, a.type)


def maximum(text: Text, a: Halves, b: Halves) -> Halves:
    return chosen(text, less(text, a, b), b, a)


def minimum(text: Text, a: Halves, b: Halves) -> Halves:
    return chosen(text, less(text, b, a), b, a)


def is_negative(text: Text, a: Halves) -> str:
    return text.compare("NE", _sign_bit(text, a), _zeros(text, a))


def is_zero(text: Text, a: Halves) -> str:
    return text.compare("EQ", text.apply("or", a.low, a.high), _zeros(text, a))


def absolute(text: Text, a: Halves) -> Halves:
    return chosen(text, is_negative(text, a), negative(text, a), a)


def sign(text: Text, a: Halves) -> Halves:
    result = chosen(text, is_zero(text, a), a, number(text, 1, a))
    if not is_signed(a):
        return result
    return chosen(text, is_negative(text, a), number(text, -1, a), result)


def _sign_bit(text: Text, a: Halves) -> str:
    return text.apply("shift-right-logical", a.high, text.number(HALF, 31, text.dims(a.high)))


# Bits


def bitwise(op: str) -> Binary:
    def apply(text: Text, a: Halves, b: Halves) -> Halves:
        return Halves(text.apply(op, a.low, b.low), text.apply(op, a.high, b.high), a.type)

    return apply


def _amount(text: Text, value: Halves) -> tuple[str, str, str]:
    """By how much to shift within 64 bits, how much more than 32 that is, and the rest to 32.
    Amounts of 64 and more leave nothing, as those of 32 and more do in 32 bits."""
    dims = text.dims(value.low)
    most = text.number(HALF, 2 * BITS, dims)
    small = text.compare("EQ", value.high, text.number(HALF, 0, dims))
    amount = text.apply("select", small, text.apply("minimum", value.low, most), most)
    width = text.number(HALF, BITS, dims)
    # Below zero both are large numbers, which shift everything out.
    return amount, text.apply("subtract", amount, width), text.apply("subtract", width, amount)


def _shifted(forward: str, backward: str, ahead: str) -> Binary:
    """Bits moved `ahead`, towards the half of that name: what leaves the other half enters it."""

    def shift(text: Text, a: Halves, b: Halves) -> Halves:
        amount, beyond, rest = _amount(text, b)
        behind, front = (a.low, a.high) if ahead == "high" else (a.high, a.low)
        moved = text.apply(forward, front, amount)
        for by, op in ((rest, backward), (beyond, forward)):
            moved = text.apply("or", moved, text.apply(op, behind, by))
        kept = text.apply(forward, behind, amount)
        parts = (kept, moved) if ahead == "high" else (moved, kept)
        return Halves(*parts, a.type)

    return shift


left = _shifted("shift-left", "shift-right-logical", "high")
right = _shifted("shift-right-logical", "shift-left", "low")


def right_signed(text: Text, a: Halves, b: Halves) -> Halves:
    """Zeros would enter negative numbers, so their complements move."""
    flag = text.apply("negate", _sign_bit(text, a))
    mask = Halves(flag, flag, a.type)
    turn = bitwise("xor")
    return turn(text, right(text, turn(text, a, mask), b), mask)


def population(text: Text, a: Halves) -> Halves:
    count = text.apply("add", text.apply("popcnt", a.low), text.apply("popcnt", a.high))
    return Halves(count, _zeros(text, a), a.type)


def leading_zeros(text: Text, a: Halves) -> Halves:
    width = text.number(HALF, BITS, text.dims(a.low))
    below = text.apply("add", text.apply("count-leading-zeros", a.low), width)
    empty = text.compare("EQ", a.high, _zeros(text, a))
    count = text.apply("select", empty, below, text.apply("count-leading-zeros", a.high))
    return Halves(count, _zeros(text, a), a.type)


# Quotients and powers: a round for each bit


def _rounds(text: Text, state: list[Halves], round: Callable[..., list[Halves]]) -> list[Halves]:
    """Halves that a function changes 64 times: `round(text, *state)` in the text of a loop."""
    names = [name for value in state for name in (value.low, value.high)]
    loop = RowLoop(text, names, 2 * BITS)

    def paired(found: list[str]) -> list[Halves]:
        return [
            Halves(low, high, value.type)
            for low, high, value in zip(found[::2], found[1::2], state)
        ]

    after = round(loop.body, *paired(loop.state[1:]))
    return paired(loop.close([name for value in after for name in (value.low, value.high)]))


def _unsigned_division(text: Text, a: Halves, b: Halves) -> tuple[Halves, Halves]:
    """Quotient and remainder, bit by bit from the upper end: the dividend leaves the quotient's
    place as the quotient enters it. Of a divisor 0 the quotient is all ones."""

    def round(text: Text, quotient: Halves, rest: Halves, divisor: Halves) -> list[Halves]:
        one = number(text, 1, rest)
        top = is_negative(text, rest)
        entering = Halves(_sign_bit(text, quotient), _zeros(text, rest), rest.type)
        rest = bitwise("or")(text, left(text, rest, one), entering)
        taken = text.apply("or", top, text.apply("not", less(text, rest, divisor)))
        rest = chosen(text, taken, subtracted(text, rest, divisor), rest)
        bit = Halves(text.convert(taken, HALF), _zeros(text, rest), rest.type)
        return [bitwise("or")(text, left(text, quotient, one), bit), rest, divisor]

    a, b = a._replace(type=_UNSIGNED), b._replace(type=_UNSIGNED)
    quotient, rest, _ = _rounds(text, [a, number(text, 0, a), b], round)
    return quotient, rest


_UNSIGNED = "u64"


def divided(text: Text, a: Halves, b: Halves) -> Halves:
    """Towards zero; by 0 all ones."""
    if not is_signed(a):
        return _unsigned_division(text, a, b)[0]
    quotient, _ = _unsigned_division(text, absolute(text, a), absolute(text, b))
    quotient = quotient._replace(type=a.type)
    transposed = text.apply("xor", is_negative(text, a), is_negative(text, b))
    quotient = chosen(text, transposed, negative(text, quotient), quotient)
    return chosen(text, is_zero(text, b), number(text, -1, a), quotient)


def remainder(text: Text, a: Halves, b: Halves) -> Halves:
    """With the dividend's sign; by 0 the dividend."""
    if not is_signed(a):
        return _unsigned_division(text, a, b)[1]
    _, rest = _unsigned_division(text, absolute(text, a), absolute(text, b))
    rest = rest._replace(type=a.type)
    return chosen(text, is_negative(text, a), negative(text, rest), rest)


def power(text: Text, a: Halves, b: Halves) -> Halves:
    """Squares, multiplied where the exponent has a bit; of a negative exponent the truncated
    quotient 1 / a**-b."""

    def round(text: Text, result: Halves, square: Halves, exponent: Halves) -> list[Halves]:
        one = number(text, 1, exponent)
        odd = text.compare("NE", text.apply("and", exponent.low, one.low), one.high)
        result = chosen(text, odd, multiplied(text, result, square), result)
        return [result, multiplied(text, square, square), right(text, exponent, one)]

    one = number(text, 1, a)
    result, _, _ = _rounds(text, [one, a, b], round)
    if not is_signed(b):
        return result
    unit = equal(text, absolute(text, a), one)
    odd = text.compare("NE", text.apply("and", b.low, one.low), one.high)
    inverse = chosen(text, unit, chosen(text, odd, a, one), number(text, 0, a))
    return chosen(text, is_negative(text, b), inverse, result)


# Floats


def to_float(text: Text, a: Halves, type: str) -> str:
    """Rounded once: of the magnitude the upper 32 bits, or 24 for narrower types, with a mark of
    what is below, and a power of two."""
    dims = text.dims(a.low)
    size = absolute(text, a) if is_signed(a) else a
    empty = text.compare("EQ", size.high, text.number(HALF, 0, dims))
    zeros = text.apply("count-leading-zeros", size.high)
    moved = text.apply("subtract", text.number(HALF, BITS, dims), zeros)
    upper = text.apply(
        "or",
        text.apply("shift-left", size.high, zeros),
        text.apply("shift-right-logical", size.low, moved),
    )
    lost = text.apply("shift-left", size.low, zeros)
    upper = text.apply("or", upper, _mark(text, lost))
    word = text.apply("select", empty, size.low, upper)
    if type != _FLOAT:  # exact in fp32, so that it is rounded by the last conversion only
        eight, low = text.number(HALF, 8, dims), text.number(HALF, 255, dims)
        short = text.apply("shift-right-logical", word, eight)
        short = text.apply("or", short, _mark(text, text.apply("and", word, low)))
        large = text.compare("GE", word, text.number(HALF, 1 << 24, dims))
        extra = text.apply("select", large, eight, text.number(HALF, 0, dims))
        word = text.apply("select", large, short, word)
    else:
        extra = text.number(HALF, 0, dims)
    exponent = text.apply("select", empty, text.number(HALF, 0, dims), moved)
    exponent = text.apply("add", exponent, extra)
    bits = text.apply(
        "shift-left",
        text.apply("add", exponent, text.number(HALF, _BIAS, dims)),
        text.number(HALF, _MANTISSA, dims),
    )
    value = text.apply("multiply", text.convert(word, _FLOAT), text.bits_as(bits, _FLOAT))
    if is_signed(a):
        value = text.apply("select", is_negative(text, a), text.apply("negate", value), value)
    return text.convert(value, type)


_FLOAT, _BIAS, _MANTISSA = "f32", 127, 23


def _mark(text: Text, lost: str) -> str:
    """1 where bits are lost."""
    some = text.compare("NE", lost, text.number(HALF, 0, text.dims(lost)))
    return text.convert(some, HALF)


def from_float(text: Text, value: str, type: str) -> Halves:
    """Towards zero; beyond the type its limits, of NaN 0."""
    x = text.convert(value, _FLOAT)
    dims = text.dims(x)
    bits = text.bits_as(x, HALF)
    zero = text.number(HALF, 0, dims)
    low = text.apply("and", bits, text.number(HALF, (1 << _MANTISSA) - 1, dims))
    low = text.apply("or", low, text.number(HALF, 1 << _MANTISSA, dims))
    exponent = text.apply("shift-right-logical", bits, text.number(HALF, _MANTISSA, dims))
    exponent = text.apply("and", exponent, text.number(HALF, 255, dims))
    point = text.number(HALF, _BIAS + _MANTISSA, dims)
    whole = Halves(low, zero, type)
    up = left(text, whole, Halves(text.apply("subtract", exponent, point), zero, type))
    down = right(text, whole, Halves(text.apply("subtract", point, exponent), zero, type))
    size = chosen(text, text.compare("GE", exponent, point), up, down)
    below = text.compare("LT", x, text.number(_FLOAT, 0, dims))
    signed = is_signed(whole)
    limit = 2 * BITS - signed
    most = number(text, (1 << limit) - 1, whole)
    least = number(text, -1 << limit if signed else 0, whole)
    negated = negative(text, size) if signed else least
    beyond = text.compare("GE", exponent, text.number(HALF, _BIAS + limit, dims))
    found = chosen(text, below, negated, size)
    found = chosen(text, beyond, chosen(text, below, least, most), found)
    nan = text.compare("NE", x, x)
    return chosen(text, nan, number(text, 0, whole), found)


# Products of matrices


PARTS = 2 * BITS // PART
"""Bytes of an integer."""

DEEPEST = (1 << BITS) // PARTS // ((1 << PART) - 1) ** 2 // CHUNK * CHUNK
"""Products of bytes up to which 32 bits hold the sums of all that have the same weight."""


def matrix_product(text: Text, a: Halves, b: Halves) -> Halves | None:
    """[batch, rows, depth] and [batch, columns, depth], multiplied and summed: all bytes of one by
    all bytes of the other, exactly, put together as they wrap around. None where the depth is too
    large."""
    batch, rows, depth = text.dims(a.low)
    columns = text.dims(b.low)[1]
    if depth > DEEPEST:
        return None
    left_bytes, right_bytes = (
        text.concatenate([p for half in (s.low, s.high) for p in byte_parts(text, half, BITS)], 2)
        for s in (a, b)
    )
    sums = text.sum(text.convert(chunk_sums(text, left_bytes, right_bytes), HALF), [1])
    total: Halves | None = None
    for place in range(PARTS):
        weighted: str | None = None
        for i in range(place + 1):
            j = place - i
            edges = [
                (0, batch, 1),
                (i * rows, (i + 1) * rows, 1),
                (j * columns, (j + 1) * columns, 1),
            ]
            one = text.slice(sums, edges)
            weighted = one if weighted is None else text.apply("add", weighted, one)
        assert weighted is not None
        whole = Halves(weighted, text.number(HALF, 0, (batch, rows, columns)), a.type)
        if place:
            whole = left(text, whole, number(text, place * PART, whole))
        total = whole if total is None else added(text, total, whole)
    return total
