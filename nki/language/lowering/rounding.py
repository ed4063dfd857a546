"""floor, ceil and trunc: no engine has them, but conversions to int32 round to the nearest."""

from __future__ import annotations

from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.arithmetic import copy, is_integral
from nki.language.lowering.emitter import Emitter

_ALL_INTEGERS = 2.0**23
"""From here on every fp32 number is an integer."""


def floor(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """The nearest integer, less 1 where that is above x."""
    return _moved(e, x, dtype, "greater", "subtract")


def ceil(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """The nearest integer, plus 1 where that is below x."""
    return _moved(e, x, dtype, "less", "add")


def trunc(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """The nearest integer, one closer to zero where it is farther than x."""
    if is_integral(x.dtype):
        return copy(e, x, dtype)
    near = _nearest(e, x)
    above, below = e.part(x.shape), e.part(x.shape)
    e.tensors(above, near, "greater", x)
    e.tensors(below, near, "less", x)
    e.scalar_then_tensor(above, x, "greater", 0.0, "multiply", above)
    e.scalar_then_tensor(below, x, "less", 0.0, "multiply", below)
    e.tensors(near, near, "subtract", above)
    e.tensors(near, near, "add", below)
    return _unless_large(e, x, near, dtype)


def _nearest(e: Emitter, x: NkiTensor) -> NkiTensor:
    """The nearest integer, ties to even, where |x| < 2**31."""
    whole, near = e.part(x.shape, "int32"), e.part(x.shape)
    e.copy(whole, x)
    e.copy(near, whole)
    return near


def _moved(e: Emitter, x: NkiTensor, dtype: str, relation: str, change: str) -> NkiTensor:
    """The nearest integer n, or `n <change> 1` where `n <relation> x`."""
    if is_integral(x.dtype):
        return copy(e, x, dtype)
    near = _nearest(e, x)
    apart = e.part(x.shape)
    e.tensors(apart, near, relation, x)
    e.tensors(near, near, change, apart)
    return _unless_large(e, x, near, dtype)


def _unless_large(e: Emitter, x: NkiTensor, near: NkiTensor, dtype: str) -> NkiTensor:
    """`near` where x has a fraction part; x itself where it is large, infinite or NaN."""
    small = e.part(x.shape, "uint8")
    e.scalar(small, x, "abs", op1="less", operand1=_ALL_INTEGERS)
    result = e.working(x.shape, dtype)
    e.copy(result, x)
    e.choose(result, near, small)
    return e.finish(result, dtype)
