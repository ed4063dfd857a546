"""log over all positive numbers; the scalar engine's is valid on [2**-64, 2**64]."""

from __future__ import annotations

import math

from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter

_SMALL, _UP = 2.0**-32, 96
_LARGE, _DOWN = 2.0**32, -64


def log(e: Emitter, x: NkiTensor, dtype: str) -> NkiTensor:
    """log(x * 2**n) - n * log(2), n = 96 for small x, -64 for large x, else 0.

    Every fp32 number above 0, denormal ones included, comes to lie in [2**-64, 2**64].
    """
    up, down = e.part(x.shape), e.part(x.shape)
    e.scalar(up, x, "less", _SMALL, "multiply", 2.0**_UP)
    e.scalar_then_tensor(up, up, "maximum", 1.0, "multiply", x)
    e.scalar(down, x, "less_equal", _LARGE, "maximum", 2.0**_DOWN)
    e.tensors(up, up, "multiply", down)
    value, shift = e.part(x.shape), e.part(x.shape)
    e.activate(value, "log", up)
    e.scalar(shift, x, "less", _SMALL, "multiply", -_UP * math.log(2.0))
    e.tensors(value, value, "add", shift)
    e.scalar(shift, x, "greater", _LARGE, "multiply", -_DOWN * math.log(2.0))
    result = e.working(x.shape, dtype)
    e.tensors(result, value, "add", shift)
    return e.finish(result, dtype)
