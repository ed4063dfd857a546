"""Softmax and norms of `nki.language` against NumPy formulas."""

import numpy as np
import pytest
from language_references import assert_close, random, refusal, run

import nki.language as nl


def exact_softmax(x, axes):
    x = x.astype(np.float64)
    powers = np.exp(x - x.max(axis=axes, keepdims=True))
    return powers / powers.sum(axis=axes, keepdims=True)


@pytest.mark.parametrize(
    "shape, axis", [((16, 50), -1), ((8, 3, 7), 2), ((8, 3, 7), (1, 2)), ((128, 512), 1)], ids=str
)
def test_softmax(shape, axis):
    x = random(*shape) * np.float32(4)
    actual = run(lambda a: nl.softmax(a, axis), x)
    exact = exact_softmax(x, axis)
    spread = x.max() - x.min()
    axes = axis if isinstance(axis, tuple) else (axis,)
    count = np.prod([shape[a] for a in axes])
    assert_close(actual, exact, count + 4 + spread)
    assert np.allclose(actual.sum(axis=axis), 1, atol=1e-5)


def test_softmax_of_large_numbers_and_other_dtypes():
    x = np.array([[1e4, 1e4 - 1, -1e30]], np.float32)
    assert_close(run(nl.softmax, x), exact_softmax(x, 1), 8)
    half = random(4, 9, dtype="bfloat16")
    actual = run(nl.softmax, half)
    assert actual.dtype == half.dtype
    assert_close(actual, exact_softmax(half, 1), 0.51)
    assert run(lambda a: nl.softmax(a, dtype=nl.float32), half).dtype == np.float32


@pytest.mark.parametrize("shape, axis", [((16, 64), 1), ((4, 3, 20), 2), ((4, 3, 20), (1, 2))])
def test_rms_norm(shape, axis):
    x, w = random(*shape), random(*shape)
    axes = axis if isinstance(axis, tuple) else (axis,)
    count = int(np.prod([shape[a] for a in axes]))
    wide = x.astype(np.float64)
    for epsilon in (1e-6, 0.25):
        squares = (wide**2).sum(axis=axes, keepdims=True) / count
        exact = wide / np.sqrt(squares + epsilon) * w
        actual = run(lambda a, b, e=epsilon: nl.rms_norm(a, b, axis, count, e), x, w)
        assert_close(actual, exact, count / 2 + 5)
    actual = run(lambda a, b: nl.rms_norm(a, b, axis, count, compute_dtype=nl.bfloat16), x, w)
    np.testing.assert_allclose(actual, wide / np.sqrt(squares + 1e-6) * w, rtol=0.02)


def test_the_weight_of_rms_norm_has_the_shape_of_the_tile():
    x, w = random(4, 8), random(1, 8)
    assert refusal(lambda a, b: nl.rms_norm(a, b, 1, 8), x, w) == "shape-mismatch"
    spread = run(lambda a, b: nl.rms_norm(a, nl.broadcast_to(b, a.shape), 1, 8), x, w)
    root = np.sqrt((x.astype(float) ** 2).mean(axis=1, keepdims=True) + 1e-6)
    assert_close(spread, x / root * w, 10)
