"""The spine's kernels: eager, reference and device agree bit for bit, and with NumPy."""

import ml_dtypes
import numpy as np
import pytest
import spine_kernels as kernels
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nki
import nki.language as nl
from simulator.races.happens_before import check

DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
TOLERANCE = {"float32": 2e-6, "bfloat16": 2**-8}


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def run_all(kernel, *inputs):
    """The outputs of the device mode, after checking that the other modes give the same bits."""
    results = {}
    for mode in ("device", "reference", "eager"):
        copies = [array.copy() for array in inputs]
        result = nki.simulate(kernel, mode=mode)(*copies)
        results[mode] = result if isinstance(result, tuple) else (result,)
    for mode in ("reference", "eager"):
        for one, other in zip(results["device"], results[mode]):
            assert one.dtype == other.dtype and one.shape == other.shape
            np.testing.assert_array_equal(bits(one), bits(other), err_msg=mode)
    return results["device"]


def assert_close(actual, expected, dtype, scale=1.0):
    expected = np.asarray(expected, np.float64)
    bound = TOLERANCE[dtype] * scale * np.maximum(np.abs(expected), np.abs(expected).max() * 1e-2)
    error = np.abs(actual.astype(np.float64) - expected)
    assert np.all(error <= bound), f"largest error {error.max()} of {np.abs(expected).max()}"


def assert_product_close(actual, a, b, dtype):
    """Within the rounding of K fp32 additions, and of the output dtype."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    exact = a.T @ b
    bound = a.shape[0] * 2.0**-24 * (np.abs(a).T @ np.abs(b)) + TOLERANCE[dtype] * np.abs(exact)
    assert np.all(np.abs(actual.astype(np.float64) - exact) <= bound)


def random(rng, shape, dtype):
    return rng.standard_normal(shape).astype(DTYPES[dtype])


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(128, 128, 512), (256, 384, 1024)])
def test_matmul_accumulates_over_k_in_psum(dtype, shape):
    from matmul_kernels import tiled

    m, k, n = shape
    rng = np.random.default_rng(0)
    a, b = random(rng, (k, m), dtype), random(rng, (k, n), dtype)
    (out,) = run_all(tiled, a, b)
    assert_product_close(out, a, b, dtype)


@pytest.mark.parametrize("name", ["hoisted", "blocked_free", "blocked"])
def test_every_step_of_the_ladder_multiplies(name):
    import matmul_kernels

    rng = np.random.default_rng(1)
    a, b = random(rng, (1024, 512), "bfloat16"), random(rng, (1024, 1024), "bfloat16")
    (out,) = run_all(getattr(matmul_kernels, name), a, b)
    assert_product_close(out, a, b, "bfloat16")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(128, 64), (300, 200)])
def test_softmax(dtype, shape):
    a = random(np.random.default_rng(2), shape, dtype)
    (out,) = run_all(kernels.softmax, a)
    assert_close(out, kernels.softmax_numpy(a), dtype, scale=8)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 260), st.integers(1, 300), st.sampled_from(sorted(DTYPES)))
def test_softmax_of_any_shape(rows, columns, dtype):
    a = random(np.random.default_rng(rows * columns), (rows, columns), dtype)
    (out,) = run_all(kernels.softmax, a)
    assert_close(out, kernels.softmax_numpy(a), dtype, scale=8)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.sampled_from(sorted(DTYPES)))
def test_matmul_of_any_number_of_tiles(m, k, n, dtype):
    from matmul_kernels import tiled

    rng = np.random.default_rng(m * 100 + k * 10 + n)
    a, b = random(rng, (128 * k, 128 * m), dtype), random(rng, (128 * k, 512 * n), dtype)
    (out,) = run_all(tiled, a, b)
    assert_product_close(out, a, b, dtype)


@settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(1, 8), st.integers(0, 8), st.integers(0, 8), st.integers(1, 40))
def test_dynamic_loops_of_any_trip_counts(blocks, first, second, columns):
    a = random(np.random.default_rng(blocks), (16 * blocks, columns), "float32")
    counts = [8 * min(first, blocks), 8 * (blocks + min(second, blocks))]
    trips = np.array([counts], np.int32)
    (out,) = run_all(kernels.dynamic_rows, a, trips)
    np.testing.assert_array_equal(out, kernels.dynamic_rows_numpy(a, trips))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rmsnorm(dtype):
    rng = np.random.default_rng(3)
    a, weight = random(rng, (256, 384), dtype), random(rng, (1, 384), dtype)
    (out,) = run_all(kernels.rmsnorm, a, weight)
    assert_close(out, kernels.rmsnorm_numpy(a, weight), dtype, scale=4)


SIZES = {
    "scaled_rows": (128, [128, 256, 384, 1024, 1280]),
    "scaled_rows_remainder": (1, [1, 127, 128, 200, 513]),
}


@pytest.mark.parametrize("name", SIZES)
def test_one_compile_serves_five_sizes(name):
    multiple, sizes = SIZES[name]
    kernel = getattr(kernels, name)
    M = nki.symbol("M", multiple_of=multiple, max=8192)
    compiled = nki.compile(kernel, a=nki.TensorSpec((M, 96), nl.float32))
    for size in sizes:
        a = random(np.random.default_rng(size), (size, 96), "float32")
        out = compiled(a)
        np.testing.assert_array_equal(out, kernels.scaled_numpy(a).astype(np.float32))
        np.testing.assert_array_equal(bits(out), bits(nki.simulate(kernel, mode="eager")(a)))
        assert check(compiled.bind([a.shape])) == []


def test_symbolic_sbuf_use_does_not_depend_on_the_size():
    used = []
    for most in (1024, 8192):
        M = nki.symbol("M", multiple_of=128, max=most)
        program = nki.compile(kernels.scaled_rows, a=nki.TensorSpec((M, 96), nl.float32)).program
        used.append(max(s.offset + s.bytes_per_partition for s in program.cores[0].storages))
        tiles = [s for s in program.cores[0].storages if s.name.startswith("tile")]
        assert len({s.offset for s in tiles[:2]}) == 2, "two buffers"
    assert used[0] == used[1]


def test_accumulation_that_starts_in_a_symbolic_loop():
    K = nki.symbol("K", multiple_of=128, max=4096)
    compiled = nki.compile(
        kernels.symbolic_matmul,
        lhsT=nki.TensorSpec((K, 64), nl.float32),
        rhs=nki.TensorSpec((K, 256), nl.float32),
    )
    for size in (128, 256, 640):
        rng = np.random.default_rng(size)
        a, b = random(rng, (size, 64), "float32"), random(rng, (size, 256), "float32")
        out = compiled(a, b)
        assert_product_close(out, a, b, "float32")
        eager = nki.simulate(kernels.symbolic_matmul, mode="eager")(a, b)
        np.testing.assert_array_equal(bits(out), bits(eager))
        assert check(compiled.bind([a.shape, b.shape])) == []


@pytest.mark.parametrize("counts", [(0, 0), (8, 32), (16, 40), (32, 64), (3, 33)])
def test_dynamic_range_over_a_count_from_a_tensor(counts):
    a = random(np.random.default_rng(4), (64, 48), "float32")
    trips = np.array([counts], np.int32)
    (out,) = run_all(kernels.dynamic_rows, a, trips)
    np.testing.assert_array_equal(out, kernels.dynamic_rows_numpy(a, trips))


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_while_ends_on_data(steps):
    a = random(np.random.default_rng(5), (128, 32), "float32")
    (out,) = run_all(kernels.halve_until_small, a, np.array([[steps]], np.int32))
    np.testing.assert_array_equal(out, a / 2**steps)


def test_cores_read_each_others_half_after_the_barrier():
    a = random(np.random.default_rng(6), (64, 40), "float32")
    (out,) = run_all(kernels.exchange_halves[2], a)
    np.testing.assert_array_equal(out, kernels.exchange_halves_numpy(a))


def test_two_tensors_share_an_address_one_after_the_other():
    rng = np.random.default_rng(7)
    a, b = random(rng, (128, 64), "float32"), random(rng, (128, 64), "float32")
    first, second = run_all(kernels.shared_bytes, a, b)
    np.testing.assert_array_equal(first, a + np.float32(1))
    np.testing.assert_array_equal(second, b * np.float32(3))
    program = nki.compile(kernels.shared_bytes, a, b).program
    assert [s.offset for s in program.cores[0].storages if s.name.startswith("tile")] == [4096] * 2


def test_gather_and_scatter_by_vector_offset():
    rng = np.random.default_rng(8)
    table = random(rng, (100, 24), "float32")
    indices = rng.integers(0, 100, (37, 1)).astype(np.int32)
    targets = rng.permutation(100)[:37, None].astype(np.int32)
    (out,) = run_all(kernels.gather_scatter, table, indices, targets)
    np.testing.assert_array_equal(out, kernels.gather_scatter_numpy(table, indices, targets))
