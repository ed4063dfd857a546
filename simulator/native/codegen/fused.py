"""Multiply-adds that are rounded once, on CPUs that have them and on others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.native.codegen.levels import GENERATING
from simulator.native.codegen.text import FunctionText, Value


def multiply_add(f: FunctionText, left: Value, right: Value, addend: Value) -> Value:
    """left * right + addend in fp32, rounded once."""
    level = GENERATING.get()
    if level is not None and level.fused:
        return f.intrinsic("fma", left, right, addend)
    return emulated(f, left, right, addend)


def block_step(
    f: FunctionText,
    factors: Iterable[Value],
    stream: Sequence[Value],
    sums: Sequence[Value],
    pairs: bool,
) -> list[Value]:
    """The sums of a block of results, one step of its depth further: to those of row i, vector v,
    row by row in `sums`, is added factor i times vector v of the stream. `pairs`: of bf16."""
    found: list[Value] = []
    for scalar in factors:
        factor = f.splat(scalar, stream[0].width)
        for vector in stream:
            total = sums[len(found)]
            add = dot_of_pairs if pairs else multiply_add
            found.append(add(f, factor, vector, total))
    return found


def emulated(f: FunctionText, left: Value, right: Value, addend: Value) -> Value:
    """left * right + addend in fp32 vectors, rounded once, without an instruction for it.

    The product is exact in double. The sum is rounded to odd: where it is not exact, its last bit
    is set, towards the exact value. Rounding it to fp32 then gives what rounding the exact value
    would (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Transactions
    on Computers 57, 2008).
    """
    a, b, c = (f.convert("fpext", value, "double") for value in (left, right, addend))
    product = a * b
    total = product + c
    taken = total - product
    rest = product - (total - taken)
    error = rest + (c - taken)
    pattern, sign = (f.convert("bitcast", value, "i64") for value in (total, error))
    # Away from zero where the error has the sign of the sum, else towards it.
    differ = f.compare("icmp slt", pattern ^ sign, f.like(pattern, 0))
    step = f.select(differ, f.like(pattern, -1), f.like(pattern, 1))
    even = f.compare("icmp eq", pattern & 1, f.like(pattern, 0))
    inexact = f.compare("fcmp one", error, f.like(error, 0.0))
    odd = f.select(even & inexact, pattern + step, pattern)
    return f.convert("fptrunc", f.convert("bitcast", odd, "double"), "float")


_DOT = "llvm.x86.avx512bf16.dpbf16ps.512"


def dot_of_pairs(f: FunctionText, left: Value, right: Value, total: Value) -> Value:
    """Products of pairs in 32-bit lanes, added to fp32 sums by VDPBF16PS, of 512 bits."""
    pairs = [f.reinterpret(value, "bfloat", 2 * value.width) for value in (left, right)]
    return f.call(_DOT, "float", total.width, total, *pairs)
