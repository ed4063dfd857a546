"""Functions of elements in LLVM that take as many steps as the elements need.

All lanes of a vector take the steps of the one that needs most.
"""

from __future__ import annotations

from collections.abc import Sequence

from simulator.native.codegen.text import FunctionText, Value


def _across(f: FunctionText, operation: str, value: Value) -> Value:
    """The lanes of a vector of integers combined, as i64."""
    if value.width:
        name = f"llvm.vector.reduce.{operation}.v{value.width}{value.element}"
        value = f.call(name, value.element, 0, value)
    return f.convert("zext", value, "i64")


def unsigned_power(f: FunctionText, base: Value, exponent: Value) -> Value:
    """base ** exponent of integers, wrapping."""
    one, none = f.like(base, 1), f.like(base, 0)

    def step(index: Value, result: Value, square: Value, left: Value) -> Sequence[Value]:
        odd = f.compare("icmp ne", left & one, none)
        result = f.select(odd, result * square, result)
        return result, square * square, f.binary("lshr", left, one)

    zeros = f.intrinsic("ctlz", _across(f, "or", exponent), f.constant("i1", 0))
    steps = 64 - zeros
    return f.loop(f.integer(0), steps, 1, step, [one, base, exponent])[0]


def signed_power(f: FunctionText, base: Value, exponent: Value) -> Value:
    """The same; of negative exponents 1 / base ** -exponent, cut to an integer."""
    one, none = f.like(base, 1), f.like(base, 0)
    negative = f.compare("icmp slt", exponent, none)
    # Powers of 1 and -1 have no other fraction, which depends on whether the exponent is odd.
    odd = exponent & one
    result = unsigned_power(f, base, f.select(negative, odd, exponent))
    sizes = [f.compare("icmp eq", base, f.like(base, unit)) for unit in (1, -1)]
    fraction = f.select(f.binary("or", *sizes), result, none)
    return f.select(negative, fraction, result)
