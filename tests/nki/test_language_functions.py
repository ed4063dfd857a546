"""Functions of `nki.language` that are not element-wise, against NumPy formulas."""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from language_references import NUMPY, assert_close, run, unit

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError
from nki.ir.nodes import operations
from nki.language.operators import OPERATORS

FACTS = Path(__file__).resolve().parents[3] / "shared" / "facts" / "nki_api.json"
RNG = np.random.default_rng(11)


def refusal(body, *inputs, target="trn2"):
    with pytest.raises(NeuronError) as caught:
        run(body, *inputs, target=target)
    return caught.value.code


def random(*shape, dtype="float32"):
    return RNG.standard_normal(shape).astype(NUMPY[dtype])


# Surface


@pytest.fixture(scope="module")
def documented():
    if not FACTS.exists():
        pytest.skip(f"the documented API is not here: {FACTS}")
    return json.loads(FACTS.read_text())["modules"]["nki.language"]


def test_every_documented_name_exists(documented):
    assert [name for name in documented if not hasattr(nl, name)] == []
    assert [name for name in documented if name not in nl.__all__] == []


def test_signatures_of_element_wise_functions(documented):
    for name, operator in OPERATORS.items():
        expected = documented[name].get("params", [])
        actual = [
            (p.name, None if p.default is inspect.Parameter.empty else repr(p.default))
            for p in inspect.signature(operator).parameters.values()
        ]
        assert actual == [(p["name"], p["default"]) for p in expected], name
        if expected:  # Python agrees with what is shown
            call = inspect.signature(type(operator).__call__).parameters
            assert list(call)[1:] == [p["name"] for p in expected]


# Reductions

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
    x = np.abs(RNG.integers(-3, 4, (4, 6)).astype(NUMPY[dtype]))
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


def test_a_number_is_for_python_to_compute_with():
    with pytest.raises(NeuronError, match=r"(?s)not-a-tensor.*numbers that are known.*math\.exp"):
        run(lambda a: nl.sqrt(2.0), random(4, 3))


# Normalisation


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


# Products and transposes


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


# Selection and shapes


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


def test_modes_agree_bit_for_bit():
    x = random(32, 40)

    def body(a):
        turned = nl.copy(nl.transpose(nl.softmax(a)))
        products = nl.matmul(turned, a, transpose_x=False)
        scale = nl.rms_norm(nl.copy(products), nl.broadcast_to(products[0:1, :], (40, 40)), 1, 40)
        return nl.add(scale, nl.var(scale, 1))

    device, *others = (run(body, x, mode=m) for m in ("device", "reference", "eager"))
    for other in others:
        np.testing.assert_array_equal(device.view(np.uint32), other.view(np.uint32))


def test_names_of_the_first_generation_say_what_to_write():
    for name, part in (
        ("par_dim", "partition dimension"),
        ("arange", "nl.ds"),
        ("nc", "kernel[2]"),
    ):
        assert not hasattr(nl, name)
        with pytest.raises(AttributeError, match=name) as caught:
            getattr(nl, name)
        assert part in str(caught.value)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        nl.nothing  # noqa: B018


def test_truth_values():
    a, b = (RNG.integers(0, 2, (4, 6)).astype(bool) for _ in range(2))
    for body, expected in (
        (nl.logical_and, a & b),
        (nl.logical_xor, a ^ b),
        (lambda x, y: nl.logical_not(x), ~a),
        (nl.less, a < b),
        (nl.maximum, a | b),
        (lambda x, y: nl.where(x, y, x), np.where(a, b, a)),
        (lambda x, y: nl.all(x, 1), a.all(axis=1, keepdims=True)),
        (lambda x, y: nl.transpose(x), a.T),
        (lambda x, y: nl.greater(nl.copy(x, nl.float32), 0.5, dtype=nl.bool_), a),
        (lambda x, y: nl.ones((2, 3), nl.bool_), np.ones((2, 3), bool)),
    ):
        actual = run(body, a, b)
        assert actual.dtype == bool
        np.testing.assert_array_equal(actual, expected)
    counted = run(lambda x, y: nl.sum(x, 1, dtype=nl.float32), a, b)
    np.testing.assert_array_equal(counted, a.sum(axis=1, keepdims=True))
    assert run(lambda x, y: nl.add(x, nl.copy(y, nl.int16)), a, b).dtype == np.int16


def test_tfloat32_has_ten_bits():
    x = random(4, 50)

    def body(a):
        tile = nl.copy(a, dtype=nl.tfloat32)
        assert nl.exp(tile).dtype == "tfloat32"
        return nl.copy(nl.exp(tile), dtype=nl.float32)

    short = run(lambda a: nl.copy(nl.copy(a, dtype=nl.tfloat32), dtype=nl.float32), x)
    assert not np.any(short.view(np.uint32) & 0x1FFF)
    np.testing.assert_allclose(short, x, rtol=2.0**-11)
    np.testing.assert_allclose(run(body, x), np.exp(short), rtol=2.0**-10)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_earlier_generations_give_the_same(target):
    x, w = random(32, 40), random(32, 40)
    half = random(32, 40, dtype="bfloat16")
    indices = RNG.integers(0, 40, (32, 9)).astype(np.uint32)
    for body, inputs in (
        (nl.softmax, (x,)),
        (lambda a, b: nl.rms_norm(a, b, 1, 40), (x, w)),
        (lambda a, b: nl.add(nl.mean(a, 1), nl.var(b, 1)), (x, w)),
        (lambda a, b: nl.where(nl.less(a, b), a, 7.0), (x, w)),
        (nl.gather_flattened, (x, indices)),
        (lambda a: nl.broadcast_to(a[0:1, :], (100, 40)), (half,)),
        (lambda a: nl.transpose(a), (half,)),
        (lambda a, b: nl.matmul(a, nl.copy(nl.transpose(b))), (x, w)),
        (lambda a: nl.shared_identity_matrix(16, dtype=nl.bfloat16), (x,)),
        (lambda a: nl.prod(nl.max(a.reshape((32, 10, 4)), 2), 1), (x,)),
    ):
        expected = run(body, *inputs)
        actual = run(body, *inputs, target=target)
        np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


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
