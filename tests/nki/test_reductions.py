"""Reductions of `nki.language` against NumPy formulas."""

import numpy as np
import pytest
from language_references import NUMPY, RNG, assert_close, random, refusal, run, unit

import nki
import nki.isa as nisa
import nki.language as nl

REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod, "all": np.all}


AXES = [((8, 33), 1), ((4, 3, 10), 2), ((4, 3, 10), (1, 2)), ((4, 2, 3, 5), [2, 3]), ((4, 6), -1)]


def expected_shape(shape, axis, keepdims):
    axes = [a % len(shape) for a in (axis if isinstance(axis, (tuple, list)) else [axis])]
    kept = [1 if d in axes else n for d, n in enumerate(shape) if keepdims or d not in axes]
    return tuple(kept if len(kept) > 1 else [*kept, 1])


@pytest.mark.parametrize("shape, axis", AXES, ids=str)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name, shape, axis):
    x = random(*shape)
    x.flat[5] = 0
    axes = tuple(axis) if isinstance(axis, list) else axis
    wide = x.astype(np.float64)
    exact = np.asarray(REDUCTIONS[name](wide, axis=axes), np.float64)
    count = x.size // exact.size
    for keepdims in (False, True):
        options = {} if name == "all" else {"keepdims": keepdims}
        actual = run(lambda a, o=options: getattr(nl, name)(a, axis, **o), x)
        assert actual.shape == expected_shape(shape, axis, bool(options) and keepdims)
        flat = exact.reshape(actual.shape)
        if name == "sum":
            bound = 2.0**-24 * count * np.abs(wide).sum(axis=axes).reshape(actual.shape)
            assert np.all(np.abs(actual - flat) <= bound)
        else:
            assert_close(actual, flat, count if name == "prod" else 0)


@pytest.mark.parametrize("dtype", NUMPY)
def test_reductions_of_every_dtype(dtype):
    x = np.abs(RNG.integers(-3, 4, (4, 6))).astype(NUMPY[dtype])
    for name, function in REDUCTIONS.items():
        actual = run(lambda a, n=name: getattr(nl, n)(a, 1), x)
        assert actual.dtype == x.dtype
        wide = np.asarray(function(x.astype(np.float64), axis=1), np.float64)
        assert_close(actual, wide.reshape(4, 1), 0)
    assert run(lambda a: nl.sum(a, 1, dtype=nl.float32), x).dtype == np.float32


@pytest.mark.parametrize("shape, axis", AXES, ids=str)
def test_mean_and_variance(shape, axis):
    x = random(*shape) + np.float32(3)
    axes = tuple(axis) if isinstance(axis, list) else axis
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axis=axes, keepdims=True), wide.var(axis=axes, keepdims=True)
    count = x.size // mean.size
    actual = run(lambda a: nl.mean(a, axis), x)
    exact = mean.reshape(actual.shape)
    bound = 2.0**-24 * count * np.abs(wide).mean(axis=axes).reshape(actual.shape)
    assert np.all(np.abs(actual - exact) <= bound + 2 * unit(exact, actual.dtype))
    most = np.abs(wide).max()
    for options in ({}, {"keepdims": False}, {"keepdims": True}):
        actual = run(lambda a, o=options: nl.var(a, axis, **o), x)
        assert actual.shape == variance.shape  # keepdims has no effect (SDK, nl.var)
        bound = 2.0**-23 * count * (variance + most * most * 2.0**-23)
        assert np.all(np.abs(actual - variance) <= bound)


def test_variance_far_from_zero_does_not_cancel():
    x = (np.arange(8, dtype=np.float32) + 2.0**20).reshape(1, 8)
    assert run(lambda a: nl.var(a, 1), x)[0, 0] == np.arange(8).var()


def test_axes_that_are_refused():
    x = random(4, 3, 5)
    for axis in (0, 1, (0, 1, 2), (1, 1), "2", 2.0):
        assert refusal(lambda a, axis=axis: nl.sum(a, axis), x) == "value-not-allowed", axis
    assert refusal(lambda a: nl.mean(a, 0), x) == "value-not-allowed"
    assert refusal(lambda a: nl.softmax(a, 1), x) == "value-not-allowed"
    assert refusal(lambda a: nl.sum(None, 1), x) == "not-a-tensor"


@pytest.mark.parametrize("mode", ["device", "eager"])
@pytest.mark.parametrize("reduce_op, reference", [(nl.max, np.max), (nl.min, np.min)])
def test_a_reduction_names_its_operator(mode, reduce_op, reference):
    """SDK nki/api/nki/isa/__init__.py (tensor_scalar_reduce) names nl.max and nl.min; nki-library's
    experimental/foreach gives nl.max to the other operations too."""

    @nki.jit
    def kernel(a, b):
        first, second = nl.load(a), nl.load(b)
        rows = nl.ndarray((a.shape[0], 3), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=rows[:, 0:1], op=reduce_op, data=first, axis=1)
        nisa.tensor_scalar_reduce(
            dst=second,
            data=second,
            op0=nl.multiply,
            operand0=2.0,
            reduce_op=reduce_op,
            reduce_res=rows[:, 1:2],
        )
        nisa.tensor_tensor(dst=rows[:, 2:3], data1=rows[:, 0:1], data2=rows[:, 1:2], op=reduce_op)
        out = nl.ndarray(rows.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, rows)
        return out

    a, b = np.random.default_rng(4).standard_normal((2, 9, 7), dtype=np.float32)
    both = reference(a, axis=1), reference(2 * b, axis=1)
    expected = np.stack([*both, reference(both, axis=0)], axis=1)
    np.testing.assert_array_equal(nki.simulate(kernel, mode=mode)(a, b), expected)
