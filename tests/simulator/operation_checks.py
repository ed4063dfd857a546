"""Comparing one operation with a NumPy formula, through the public API."""

from collections.abc import Callable

import ml_dtypes
import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from nki.ir.nodes import Op, walk

F32, BF16, I32 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16), np.dtype(np.int32)
EPS = {F32: 2.0**-23, BF16: 2.0**-8}
P = 128

COVERED: dict[str, list[str]] = {}


def covers(*operations: str) -> Callable:
    """Says that a test compares these operations with NumPy; `run` checks that they occur."""

    def note(test: Callable) -> Callable:
        for operation in operations:
            COVERED.setdefault(operation, []).append(test.__name__)
        return test

    return note


def run(operation, kernel, *inputs):
    """What the kernel returns on the device; it must use the operation."""
    traced = kernel.trace(*inputs)
    used = {node.row.name for body in traced.bodies for node in walk(body) if isinstance(node, Op)}
    assert operation in used
    return nki.simulate(kernel)(*inputs)


def assert_same(actual, expected):
    """Equal bits (a zero's sign counts), and the same dtype."""
    expected = np.asarray(expected)
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    unsigned = f"u{actual.dtype.itemsize}"
    np.testing.assert_array_equal(
        np.ascontiguousarray(actual).view(unsigned), np.ascontiguousarray(expected).view(unsigned)
    )


def assert_close(actual, expected, ulps, scale=None):
    """Within `ulps` units of the last place of `scale` (default: of the expected value)."""
    exact = np.asarray(expected, np.float64)
    tiny = float(np.finfo(np.float32).tiny)
    bound = ulps * EPS[actual.dtype] * np.maximum(np.abs(exact if scale is None else scale), tiny)
    error = np.abs(actual.astype(np.float64) - exact)
    assert np.all(error <= bound), f"{(error / bound).max():.3g} times the bound"


def normal(seed, shape, dtype=F32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def integers(seed, shape, low=-1000, high=1000, dtype=I32):
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def as_f32(a):
    return a.astype(np.float32)


def load(a):
    """All of a tensor in SBUF (called in kernels)."""
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return tile


def sbuf(shape, dtype):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def store(tile):
    """A result with the contents of a tile (called in kernels)."""
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


CASTS = [(F32, F32), (F32, BF16), (BF16, F32), (I32, F32), (np.dtype(np.uint8), I32)]
