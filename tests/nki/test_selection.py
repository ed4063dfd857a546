"""Choosing and gathering elements by `nki.language`, and views of other shapes."""

import numpy as np
import pytest
from language_references import NUMPY, RNG, random, refusal, run

import nki
import nki.language as nl
from nki.ir.nodes import operations


def test_where_chooses_bits():
    condition = RNG.integers(0, 2, (6, 20)).astype(np.float32)
    x, y = random(6, 20), random(6, 20)
    x[condition == 0] = np.nan
    y[condition == 1] = np.inf
    np.testing.assert_array_equal(run(nl.where, condition, x, y), np.where(condition, x, y))
    actual = run(lambda c, a: nl.where(c, a, 7.0), condition, x)
    np.testing.assert_array_equal(actual, np.where(condition, x, np.float32(7)))
    actual = run(lambda c: nl.where(c, 1, 2, dtype=nl.int32), condition)
    np.testing.assert_array_equal(actual, np.where(condition, 1, 2))


@pytest.mark.parametrize("dtype", NUMPY)
def test_where_of_every_dtype(dtype):
    condition = RNG.integers(-1, 2, (4, 9)).astype(np.float32) / 4
    x, y = (RNG.integers(0, 100, (4, 9)).astype(NUMPY[dtype]) for _ in range(2))
    actual = run(nl.where, condition, x, y)
    assert actual.dtype == x.dtype
    np.testing.assert_array_equal(actual, np.where(condition != 0, x, y))
    as_bytes = condition.astype(np.uint8)
    np.testing.assert_array_equal(run(nl.where, as_bytes, x, y), np.where(as_bytes, x, y))


def test_where_refuses_other_shapes():
    x = random(4, 8)
    column = random(4, 1)
    assert refusal(lambda a, b: nl.where(a, a, b), x, column) == "shape-mismatch"
    assert refusal(lambda a: nl.where(a, a, None), x) == "not-a-tensor"
    assert refusal(lambda a: nl.where(1.0, a, a), x) == "not-a-tensor"


@pytest.mark.parametrize("kind", ["uint32", "int32", "uint16"])
@pytest.mark.parametrize("dtype", NUMPY)
def test_gather_flattened(dtype, kind):
    data = RNG.integers(0, 100, (8, 4, 6)).astype(NUMPY[dtype])
    indices = RNG.integers(0, 24, (8, 3, 5)).astype(kind)
    flat, positions = data.reshape(8, 24), indices.reshape(8, 15).astype(np.int64)
    expected = np.take_along_axis(flat, positions, axis=1).reshape(8, 3, 5)
    np.testing.assert_array_equal(run(nl.gather_flattened, data, indices), expected)


def test_gather_flattened_converts_and_checks():
    data, indices = random(2, 5), np.array([[4], [0]], np.uint32)
    actual = run(lambda a, i: nl.gather_flattened(a, i, dtype=nl.bfloat16), data, indices)
    expected = np.take_along_axis(data, indices.astype(np.int64), 1).astype(NUMPY["bfloat16"])
    np.testing.assert_array_equal(actual, expected)
    assert refusal(nl.gather_flattened, data, indices + 4) == "dynamic-out-of-bounds"


@pytest.mark.parametrize("kind", ["uint32", "int32", "uint16"])
@pytest.mark.parametrize("axis", [1, 2, 3, -1, -3])
def test_gather_flattened_along_one_dimension(axis, kind):
    data = random(8, 4, 6, 5)
    shape = [8, 4, 6, 5]
    shape[axis] = 7
    indices = RNG.integers(0, data.shape[axis], shape).astype(kind)
    actual = run(lambda a, i: nl.gather_flattened(a, i, axis=axis), data, indices)
    np.testing.assert_array_equal(actual, np.take_along_axis(data, indices.astype(int), axis))


def test_gather_flattened_along_one_dimension_checks():
    data, indices = random(2, 3, 5), np.zeros((2, 3, 4), np.int32)

    def refused(axis, places):
        return refusal(lambda a, i: nl.gather_flattened(a, i, axis=axis), data, places)

    assert refused(3, indices) == refused(-4, indices) == "out-of-bounds"
    assert refused(True, indices) == refused(1.0, indices) == "out-of-bounds"
    assert refused(1, indices) == refused(2, indices[:, :, 0]) == "shape-mismatch"
    assert refused(2, indices + 5) == refused(2, indices - 1) == "dynamic-out-of-bounds"


@pytest.mark.parametrize(
    "shape, target",
    [((1, 7), (128, 7)), ((1, 7), (40, 7)), ((5, 1), (5, 9)), ((1, 1, 3), (66, 4, 3)),
     ((4, 1, 3), (4, 2, 3)), ((4, 3), (4, 3))],
)  # fmt: skip
def test_broadcast_to(shape, target):
    x = random(*shape)
    np.testing.assert_array_equal(
        run(lambda a: nl.broadcast_to(a, target), x), np.broadcast_to(x, target)
    )
    actual = run(lambda a: nl.broadcast_to(a, target, dtype=nl.bfloat16), x)
    np.testing.assert_array_equal(actual, np.broadcast_to(x, target).astype(NUMPY["bfloat16"]))


def test_broadcast_to_is_the_tile_itself_where_nothing_changes():
    def kernel(a):
        tile = nl.load(a)
        assert nl.broadcast_to(tile, tile.shape) is tile
        view = nl.expand_dims(tile, 2)
        assert view.shape == (4, 5, 1) and view.storage is tile.storage
        assert nl.expand_dims(tile, -1).shape == (4, 5, 1)

    nki.jit(kernel)(random(4, 5))
    assert refusal(lambda a: nl.broadcast_to(a, (4, 10)), random(4, 5)) == "shape-mismatch"
    assert refusal(lambda a: nl.broadcast_to(a, (4, 5, 1)), random(4, 5)) == "shape-mismatch"
    assert refusal(lambda a: nl.expand_dims(a, 0), random(4, 5)) == "view-not-allowed"


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "uint16", "int32", "float32", "bfloat16"]
)
def test_where_takes_a_mask_of_any_dtype_and_integers_as_they_are(dtype) -> None:
    """0.0, and -0.0, is where y comes from; a mask of floats takes one more instruction."""

    @nki.jit(target="trn2")
    def kernel(mask, x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.where(nl.load(mask), nl.load(x), -np.inf))
        return out

    mask = np.array([[0, 1, 0, 3, -0.0, 1]]).astype(dtype)
    x = np.array([[1, 2, np.nan, 4, 5, np.inf]], np.float32)
    np.testing.assert_array_equal(kernel(mask, x), np.where(mask, x, np.float32(-np.inf)))
    traced = kernel.trace(nki.TensorSpec(x.shape, dtype), nki.TensorSpec(x.shape, nl.float32))
    count = sum(
        op.row.name in ("tensor_scalar", "activation") for op in operations(traced.bodies[0])
    )
    assert count == (dtype in ("float32", "bfloat16"))
