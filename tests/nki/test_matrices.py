"""Products and transposes of `nki.language` against NumPy."""

import numpy as np
import pytest
from language_references import NUMPY, RNG, random, refusal, run

import nki
import nki.language as nl


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e5m2"])
def test_matmul(dtype, target):
    x, y = random(64, 100, dtype=dtype), random(100, 130, dtype=dtype)
    wide = x.astype(np.float64) @ y.astype(np.float64)
    bound = 100 * 2.0**-24 * (np.abs(x.astype(float)) @ np.abs(y.astype(float)))
    for transposed, left in ((False, x), (True, np.ascontiguousarray(x.T))):
        actual = run(
            lambda a, b, t=transposed: nl.matmul(a, b, transpose_x=t), left, y, target=target
        )
        assert actual.dtype == np.float32 and actual.shape == (64, 130)
        assert np.all(np.abs(actual - wide) <= bound)


def test_matmul_is_in_psum_and_within_its_limits():
    def kernel(a):
        result = nl.matmul(nl.load(a), nl.load(a), transpose_x=True)
        assert (result.buffer, result.dtype, result.shape) == (nl.psum, "float32", (8, 8))

    nki.jit(kernel)(random(4, 8))
    assert refusal(nl.matmul, random(4, 8), random(4, 8)) == "contraction-mismatch"
    wide = random(8, 600)
    refused = refusal(lambda a, b: nl.matmul(a, b, transpose_x=True), random(8, 8), wide)
    assert refused == "tile-limit"
    assert refusal(nl.matmul, random(8, 200), random(128, 8)) == "partition-limit"


@pytest.mark.parametrize("dtype", NUMPY)
def test_transpose_moves_bits(dtype):
    x = RNG.integers(0, 100, (48, 96)).astype(NUMPY[dtype])
    actual = run(nl.transpose, x)
    np.testing.assert_array_equal(actual, x.T)
    assert actual.dtype == x.dtype


def test_transpose_converts_and_reads_psum():
    x = random(32, 20)
    actual = run(lambda a: nl.transpose(a, dtype=nl.bfloat16), x)
    np.testing.assert_array_equal(actual, x.T.astype(NUMPY["bfloat16"]))
    np.testing.assert_array_equal(run(lambda a: nl.transpose(nl.transpose(a)), x), x)
    assert refusal(nl.transpose, random(8, 3, 4)) == "value-not-allowed"
    assert refusal(nl.transpose, random(8, 129)) == "partition-limit"


@pytest.mark.parametrize("dtype", NUMPY)
def test_load_transpose2d(dtype):
    x = RNG.integers(0, 100, (40, 70)).astype(NUMPY[dtype])

    def kernel(inputs):
        (a,) = inputs
        out = nl.ndarray((70, 40), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(a))
        other = nl.ndarray((30, 40), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(other, nl.load_transpose2d(a[:, 5:35], dtype=nl.float32))
        return out, other

    out, other = nki.simulate(nki.jit(platform_target="trn3")(kernel))([x])
    np.testing.assert_array_equal(out, x.T)
    np.testing.assert_array_equal(other, x[:, 5:35].T.astype(np.float32))


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_load_transpose2d_of_many_columns(target):
    x = random(200, 100, dtype="bfloat16")

    def kernel(inputs):
        (a,) = inputs
        out = nl.ndarray((100, 200), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(a))
        return out

    transposed = nki.simulate(nki.jit(platform_target=target)(kernel))([x])
    np.testing.assert_array_equal(transposed, x.T)
    assert refusal(lambda a: nl.load_transpose2d(None), x[:9]) == "not-a-tensor"


@pytest.mark.parametrize("dtype", NUMPY)
def test_shared_identity_matrix(dtype):
    def body(a):
        nl.shared_identity_matrix(5, dst=a)
        return a

    zeros = np.zeros((5, 5), NUMPY[dtype])
    np.testing.assert_array_equal(run(body, zeros), np.eye(5))
    made = run(lambda a: nl.shared_identity_matrix(128, dtype=dtype), zeros)
    np.testing.assert_array_equal(made, np.eye(128, dtype=NUMPY[dtype]))
    assert run(lambda a: nl.shared_identity_matrix(3), zeros).dtype == np.uint8
    assert refusal(lambda a: nl.shared_identity_matrix(129), zeros[:, :4], target="trn3") == (
        "partition-limit"
    )
    assert refusal(lambda a: nl.shared_identity_matrix(4, dst=a), zeros, target="trn3") == (
        "shape-mismatch"
    )
