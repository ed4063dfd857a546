"""What the release notes of NKI 0.6 say that earlier simulators got wrong, a test for each.

Each test names the entry of SDK release-notes/components/nki.rst, "Bug Fixes" (or "Improvements").
Expectations are NumPy formulas and the documents' own examples; every mode runs.
"""

import ml_dtypes
import numpy as np
import pytest
from release_notes import MODES, RANDOM, like, normal, run, stored

import nki
import nki.isa as nisa
import nki.language as nl

pytestmark = [pytest.mark.parametrize("mode", MODES), pytest.mark.usefixtures("on_trn2")]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
def test_06_casts_to_integers_round_to_even_and_saturate(dtype, mode):
    """0.6: "fp32-to-integer casts match hardware"."""
    a = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 1e4, 7e4, 1e10, -1e10, -300]])
    a = a.astype(np.float32)

    def kernel(a):
        tile = nl.load(a)
        result = like(tile, np.dtype(dtype).name)
        nisa.tensor_copy(dst=result, src=tile)
        return stored(result)

    limits = np.iinfo(dtype)
    expected = np.clip(np.rint(a.astype(np.float64)), limits.min, limits.max).astype(dtype)
    np.testing.assert_array_equal(run(kernel, a, mode=mode), expected, strict=True)


def test_06_match_replace_pairs_duplicates_in_reverse(mode):
    """0.6: "nc_match_replace8 iterates values in reverse"; the example of its docstring."""
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    values = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)

    def kernel(data, values):
        data, values = nl.load(data), nl.load(values)
        result, places = like(data), like(values, nl.uint32)
        nisa.nc_match_replace8(dst=result, data=data, vals=values, imm=-1.0, dst_idx=places)
        return stored(result, places)

    result, places = run(kernel, data, values, mode=mode)
    np.testing.assert_array_equal(result, [[1, 2, -1, 4, -1, -1, -1, -1, -1, -1, -1]])
    np.testing.assert_array_equal(places, [[2, 10, 9, 8, 7, 6, 5, 4]])


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_06_find_index_marks_absent_values_and_advances_over_duplicates(dtype, mode):
    """0.6: "nc_find_index8 unmatched slots now return all-ones"."""
    data = np.array([[5, 7, 5, 6, 5, 4, 3, 2, 1]], np.float32)
    values = np.array([[5, 5, 9, 7, 5, 5, 1, -1]], np.float32)

    def kernel(data, values):
        data, values = nl.load(data), nl.load(values)
        places = like(values, np.dtype(dtype).name)
        nisa.nc_find_index8(dst=places, data=data, vals=values)
        return stored(places)

    none = np.iinfo(dtype).max
    expected = np.array([[0, 2, none, 1, 4, none, 8, none]], dtype)
    np.testing.assert_array_equal(run(kernel, data, values, mode=mode), expected, strict=True)


def test_06_a_reduction_into_a_part_of_the_result_survives(mode):
    """0.6: "activation with a reduce_res tile that aliases dst"."""
    a = normal(16, 8)

    def kernel(a):
        tile = nl.ndarray((16, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(
            dst=tile,
            op=nl.square,
            data=nl.load(a),
            reduce_op=nl.add,
            reduce_res=tile[:, 0:1],
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return stored(tile)

    squares = a.astype(np.float64) ** 2
    expected = np.concatenate([squares.sum(axis=1, keepdims=True), squares[:, 1:]], axis=1)
    np.testing.assert_allclose(run(kernel, a, mode=mode), expected, rtol=1e-6)


def test_06_sliced_scale_buffers(mode, monkeypatch):
    """0.6: "quantize_mx and nc_matmul_mx handle sliced MX scale buffers": two share one tile."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    values = np.exp2(RANDOM.integers(-3, 4, (2, 32, 64))).astype(ml_dtypes.bfloat16)

    def kernel(a, b):
        scale = nl.zeros((32, 16), dtype=nl.uint8, buffer=nl.sbuf)
        packed = []
        for i, source in enumerate((a, b)):
            part = nl.ndarray((32, 16), dtype=nl.float8_e5m2_x4, buffer=nl.sbuf)
            rows = scale[4 * i : 4 * i + 4, :]
            nisa.quantize_mx(dst=part, src=nl.load(source), dst_scale=rows)
            packed.append((part, rows))
        product = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
        (stationary, stationary_scale), (moving, moving_scale) = packed
        nisa.nc_matmul_mx(
            dst=product,
            stationary=stationary,
            moving=moving,
            stationary_scale=stationary_scale,
            moving_scale=moving_scale,
        )
        return stored(product)

    a, b = (v.astype(np.float64).reshape(32, 16, 4) for v in values)
    expected = np.einsum("pmi,pni->mn", a, b)
    np.testing.assert_array_equal(run(kernel, *values, mode=mode), expected)


def test_06_double_rows_give_one_product(mode):
    """0.6: "nc_matmul with matmul_perf_mode.double_row is detected correctly"."""
    a = RANDOM.integers(-4, 5, (64, 2, 32)).astype(ml_dtypes.float8_e4m3)
    b = RANDOM.integers(-4, 5, (64, 2, 48)).astype(ml_dtypes.float8_e4m3)

    def kernel(a, b):
        product = nl.ndarray((32, 48), dtype=nl.float32, buffer=nl.psum)
        mode = nisa.matmul_perf_mode.double_row
        nisa.nc_matmul(dst=product, stationary=nl.load(a), moving=nl.load(b), perf_mode=mode)
        return stored(product)

    expected = np.einsum("pjm,pjn->mn", a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(run(kernel, a, b, mode=mode), expected)


def test_06_overlapping_accumulation_adds_where_regions_meet(mode):
    """0.6: "nc_matmul accumulation into overlapping PSUM regions (the convolution pattern)"."""
    weights, signal = normal(3, 16, 8), normal(3, 16, 20)

    def kernel(weights, signal):
        total = nl.ndarray((8, 20), dtype=nl.float32, buffer=nl.psum)
        for i in range(3):
            nisa.nc_matmul(
                dst=total[:, i:20],
                stationary=nl.load(weights[i]),
                moving=nl.load(signal[i])[:, 0 : 20 - i],
            )
        return stored(total)

    expected = np.zeros((8, 20))
    for i in range(3):
        expected[:, i:20] += weights[i].astype(np.float64).T @ signal[i, :, 0 : 20 - i]
    result = run(kernel, weights, signal, mode=mode)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def accumulates(write, flag):
    """A kernel whose matmul accumulates (`flag`) onto what `write` left in PSUM."""

    def kernel(a):
        tile = nl.load(a)
        total = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        write(total, tile)
        nisa.nc_matmul(dst=total, stationary=tile, moving=tile, accumulate=flag)
        return stored(total)

    return kernel


@pytest.mark.parametrize(
    ("write", "flag", "code"),
    [
        (lambda total, _: nisa.memset(dst=total, value=0.0), True, "accumulation-not-started"),
        (
            lambda total, tile: nisa.nc_matmul(
                dst=total[:, 0:4], stationary=tile, moving=tile[:, 0:4]
            ),
            None,
            "psum-overlap",
        ),
        (lambda *_: None, True, "uninitialised-output"),
    ],
)
def test_06_accumulation_that_is_wrong_on_hardware_is_refused(write, flag, code, mode):
    """0.6: "nc_matmul warns on PSUM accumulation patterns that produce incorrect results on
    hardware", and 0.5: "warning when nc_matmul with accumulate=True is used on uninitialized
    PSUM"; they are errors here."""
    with pytest.raises(nki.NeuronError) as caught:
        run(accumulates(write, flag), normal(8, 8), mode=mode)
    assert caught.value.code == code


@pytest.mark.parametrize("shape", [(8, 12), (8, 2, 6), (8, 3, 2, 2)])
def test_06_selections_of_several_ranks(shape, mode):
    """0.6: "mismatched ranks but matching free-element counts"."""
    a, b = normal(8, 12), normal(8, 12)
    chosen = RANDOM.integers(0, 2, (8, 12)).astype(np.uint8)

    def kernel(a, b, chosen):
        source, chosen = nl.load(a), nl.load(chosen).reshape(shape)
        copied, selected = nl.load(b).reshape(shape), nl.ndarray(shape, dtype=a.dtype)
        nisa.tensor_copy_predicated(dst=copied, src=source, predicate=chosen)
        nisa.select_reduce(dst=selected, predicate=chosen, on_true=source, on_false=-9.0)
        return stored(copied.reshape((8, 12)), selected.reshape((8, 12)))

    copied, selected = run(kernel, a, b, chosen, mode=mode)
    np.testing.assert_array_equal(copied, np.where(chosen, a, b))
    np.testing.assert_array_equal(selected, np.where(chosen, a, np.float32(-9)))


def test_06_the_smallest_float_marks_what_is_not_selected(mode):
    """0.6: "range_select and affine_select now accept a Python float on_false_value"."""
    a = normal(8, 6)
    lowest = float(np.finfo(np.float32).min)
    bounds = np.repeat([[1, 4]], 8, axis=0).astype(np.float32)

    def kernel(a, bounds):
        tile, bounds = nl.load(a), nl.load(bounds)
        ranged, triangle, largest = like(tile), like(tile), like(tile[:, 0:1])
        nisa.range_select(
            dst=ranged,
            on_true_tile=tile,
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=bounds[:, 0:1],
            bound1=bounds[:, 1:2],
            reduce_res=largest,
            on_false_value=lowest,
        )
        nisa.affine_select(
            dst=triangle,
            pattern=[[-1, 6]],
            channel_multiplier=1,
            on_true_tile=tile,
            on_false_value=lowest,
            cmp_op=nl.greater_equal,
        )
        return stored(ranged, triangle)

    ranged, triangle = run(kernel, a, bounds, mode=mode)
    row, column = np.indices(a.shape)
    inside = (column >= 1) & (column < 4)
    np.testing.assert_array_equal(ranged, np.where(inside, a, np.float32(lowest)))
    np.testing.assert_array_equal(triangle, np.where(row >= column, a, np.float32(lowest)))


def test_06_more_than_128_partitions_are_refused(mode):
    """0.6, Improvements: "operand exceeds the 128-partition hardware limit"."""

    def kernel(a):
        tile = nl.ndarray((130, 4), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0.0)

    with pytest.raises(nki.NeuronError, match=r"130 partitions.*128"):
        run(kernel, normal(1, 1), mode=mode)
