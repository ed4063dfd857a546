"""Functions of elements in LLVM that take as many steps as the elements need.

All lanes of a vector take the steps of the one that needs most.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.native.text import FunctionText, Value

_EXACT = 28
"""A step of a remainder takes multiples of up to this power of two of the divisor off."""

_TAKEN = 27
"""Bits of the quotient that are gone for certain behind a step."""

_MANTISSA, _BIAS = 52, 1023
_ROUNDED_DOWN = 1.0 - 2.0**-52
"""A quotient times it is not above the exact one, whichever way both were rounded."""


def _across(f: FunctionText, operation: str, value: Value) -> Value:
    """The lanes of a vector of integers combined, as i64."""
    if value.width:
        name = f"llvm.vector.reduce.{operation}.v{value.width}{value.element}"
        value = f.call(name, value.element, 0, value)
    return f.convert("zext", value, "i64")


def fmod(f: FunctionText, left: Value, right: Value) -> Value:
    """The exact remainder with the sign of the left operand, as C's fmod, of fp32 numbers.

    In double: a multiple of the divisor with 29 bits is exact, and so is what is left, which has no
    more bits than the operands.
    """
    infinity = f.constant("double", float("inf"), left.width)
    dividend, divisor = (
        f.intrinsic("fabs", f.convert("fpext", value, "double")) for value in (left, right)
    )
    zero, one = f.like(dividend, 0.0), f.like(dividend, 1.0)
    finite = f.compare("fcmp olt", dividend, infinity)
    some = f.binary(
        "and", f.compare("fcmp ogt", divisor, zero), f.compare("fcmp olt", divisor, infinity)
    )
    ordinary = f.binary("and", finite, some)
    rest, divisor = f.select(ordinary, dividend, zero), f.select(ordinary, divisor, one)

    def quotient(rest: Value) -> Value:
        return f.binary("fmul", f.binary("fdiv", rest, divisor), f.like(rest, _ROUNDED_DOWN))

    def step(index: Value, rest: Value) -> Sequence[Value]:
        wanted = quotient(rest)
        pattern = f.convert("bitcast", wanted, "i64")
        kept = f.binary("and", pattern, f.like(pattern, -(1 << (_MANTISSA - _EXACT))))
        small = f.compare("fcmp olt", wanted, f.like(wanted, 2.0**_EXACT))
        whole = f.select(small, f.intrinsic("floor", wanted), f.convert("bitcast", kept, "double"))
        return [f.binary("fsub", rest, f.binary("fmul", whole, divisor))]

    pattern = f.convert("bitcast", quotient(rest), "i64")
    exponent = f.binary("lshr", pattern, f.like(pattern, _MANTISSA))
    enough = f.binary("sub", f.integer(_BIAS), f.integer(_TAKEN))
    largest = f.intrinsic("smax", _across(f, "smax", exponent), enough)
    steps = f.binary("sdiv", f.binary("sub", largest, enough), f.integer(_TAKEN))
    (rest,) = f.loop(f.integer(0), steps, 1, step, [rest])
    # A quotient that was rounded below a whole number left the divisor.
    again = f.compare("fcmp oge", rest, divisor)
    rest = f.select(again, f.binary("fsub", rest, divisor), rest)
    result = f.intrinsic("copysign", f.convert("fptrunc", rest, "float"), left)
    all_of_it = f.compare("fcmp oeq", f.intrinsic("fabs", right), f.like(right, float("inf")))
    all_of_it = f.binary("and", all_of_it, finite)
    other = f.select(all_of_it, left, f.like(left, float("nan")))
    return f.select(ordinary, result, other)


def unsigned_power(f: FunctionText, base: Value, exponent: Value) -> Value:
    """base ** exponent of integers, wrapping."""
    one, none = f.like(base, 1), f.like(base, 0)

    def step(index: Value, result: Value, square: Value, left: Value) -> Sequence[Value]:
        odd = f.compare("icmp ne", f.binary("and", left, one), none)
        result = f.select(odd, f.binary("mul", result, square), result)
        return result, f.binary("mul", square, square), f.binary("lshr", left, one)

    zeros = f.intrinsic("ctlz", _across(f, "or", exponent), f.constant("i1", 0))
    steps = f.binary("sub", f.integer(64), zeros)
    return f.loop(f.integer(0), steps, 1, step, [one, base, exponent])[0]


def signed_power(f: FunctionText, base: Value, exponent: Value) -> Value:
    """The same; of negative exponents 1 / base ** -exponent, cut to an integer."""
    one, none = f.like(base, 1), f.like(base, 0)
    negative = f.compare("icmp slt", exponent, none)
    # Powers of 1 and -1 have no other fraction, which depends on whether the exponent is odd.
    odd = f.binary("and", exponent, one)
    result = unsigned_power(f, base, f.select(negative, odd, exponent))
    sizes = [f.compare("icmp eq", base, f.like(base, unit)) for unit in (1, -1)]
    fraction = f.select(f.binary("or", *sizes), result, none)
    return f.select(negative, fraction, result)
