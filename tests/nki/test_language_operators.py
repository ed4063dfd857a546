"""Element-wise functions of `nki.language` against NumPy in double precision."""

import doctest
import math

import mpmath
import numpy as np
import pytest
from combinations import combined
from language_references import BINARY, INTEGER, NUMPY, UNARY, assert_close, run, unit

import nki
import nki.isa as nisa
import nki.language as nl
from isa.alu import ACTIVATIONS, ALU
from isa.errors import NeuronError
from nki.language.lowering.table import FUNCTIONS
from nki.language.operators import OPERATORS

SHAPE = (128, 100)
POSITIVE = {"sqrt", "rsqrt", "log"}
ANGLES = {"sin", "cos", "tan"}
DERIVATIVES = {"gelu_dx", "gelu_apprx_sigmoid_dx", "silu_dx"}
PRODUCTS = {"gelu", "gelu_apprx_tanh", "gelu_apprx_sigmoid", "silu", "mish"}
RNG = np.random.default_rng(7)
SPECIAL = np.array([0.0, 1.0, -1.0, 0.5, -2.5, 2.0**24, 1e-40, -3e38, 127.5, -0.75], np.float32)


def numbers(shape=SHAPE):
    """Numbers around 1, of all magnitudes, in [-100, 100], and special ones."""
    around = RNG.standard_normal(shape)
    sizes = RNG.choice([-1.0, 1.0], shape) * np.exp2(RNG.uniform(-140, 127, shape))
    wide = RNG.uniform(-100, 100, shape)
    special = np.broadcast_to(SPECIAL, (shape[0], SPECIAL.size))
    return np.concatenate([around, sizes, wide, special], axis=1).astype(np.float32)


def inside(name, x):
    """Inputs inside the documented domain of a function."""
    return np.maximum(np.abs(x), np.float32(1e-45)) if name in POSITIVE else x


def test_every_function_has_a_reference():
    assert set(FUNCTIONS) == {*UNARY, *BINARY, *INTEGER}
    assert set(OPERATORS) == {*FUNCTIONS, *ALU, *ACTIVATIONS}


@pytest.mark.parametrize("name", UNARY)
def test_function_of_one_tile(name):
    row = FUNCTIONS[name]
    x = inside(name, numbers())
    actual = run(getattr(nl, name), x)
    with np.errstate(all="ignore"):
        exact = UNARY[name](x.astype(np.float64))
    assert_close(actual, exact, row.ulps, row.absolute)


@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_tiles(name):
    row = FUNCTIONS[name]
    x, y = numbers(), np.roll(numbers(), 37, axis=1)
    y[:, :20] = x[:, :20]
    if name == "power":
        x, y = np.abs(x), np.clip(y, -20, 20)
    actual = run(getattr(nl, name), x, y)
    with np.errstate(all="ignore"):
        if name in ("add", "subtract", "multiply"):
            exact = BINARY[name](x, y)  # fp32, rounded once
        else:
            exact = BINARY[name](x.astype(np.float64), y.astype(np.float64)).astype(np.float64)
    assert_close(actual, exact, row.ulps, row.absolute)


@pytest.mark.parametrize("name", ["divide", "fmod", "mod"])
def test_division_of_special_numbers(name):
    inf, nan = np.inf, np.nan
    x = np.array([[0, 1, -1, inf, 1, -1, nan, 0, 5]], np.float32)
    y = np.array([[0, 0, 0, 2, inf, inf, 1, 3, nan]], np.float32)
    with np.errstate(all="ignore"):
        assert_close(run(getattr(nl, name), x, y), BINARY[name](x, y), 0)


EDGES = np.array(
    [
        *(np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 2.0**-126, -(2.0**-126)),
        *(
            3.4028235e38,
            -3.4028235e38,
            1e30,
            -1e30,
            2.0**31,
            -(2.0**40),
            8388609.0,
            -0.5,
            1.0,
            -1.0,
        ),
    ],
    np.float32,
)
LIMITS = {  # where the formula is 0 * infinity
    **{name: {np.inf: 1.0, -np.inf: 0.0} for name in UNARY if name in DERIVATIVES},
    **{name: {-np.inf: 0.0} for name in UNARY if name in PRODUCTS},
}


@pytest.mark.parametrize("name", UNARY)
def test_edges_of_the_range(name):
    """Infinities, not a number, zeros, denormal and the largest numbers."""
    x = np.broadcast_to(EDGES, (2, EDGES.size))
    if name in ("sqrt", "rsqrt"):
        x = np.abs(x)
    with np.errstate(all="ignore"):
        exact = np.array(UNARY[name](x.astype(np.float64)), np.float64)
    for place, limit in LIMITS.get(name, {}).items():
        exact[x == place] = limit
    row = FUNCTIONS[name]
    assert_close(run(getattr(nl, name), x), exact, row.ulps, row.absolute, name)


@pytest.mark.parametrize("name", BINARY)
def test_edges_of_two_ranges(name):
    x, y = (np.ascontiguousarray(a) for a in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        if name in ("add", "subtract", "multiply"):
            exact = BINARY[name](x, y)
        else:
            exact = BINARY[name](x.astype(np.float64), y.astype(np.float64))
    row = FUNCTIONS[name]
    assert_close(run(getattr(nl, name), x, y), np.asarray(exact, float), row.ulps, 0, name)


def hard_angles():
    """fp32 angles closest to multiples of a right angle: the convergents of 2**n * 2 / pi."""
    with mpmath.workprec(400):
        for exponent in range(-3, 105):
            rest = mpmath.mpf(2) ** exponent * 2 / mpmath.pi
            before, last = 0, 1
            while last < 2**24:
                yield from (math.ldexp(m * last, exponent) for m in (1, 3) if m * last < 2**24)
                rest = 1 / (rest - mpmath.floor(rest))
                before, last = last, int(mpmath.floor(rest)) * last + before


@combined(
    {
        "mode": ["device", "eager"],
        "name": sorted(ANGLES),
    }
)
def test_angles_next_to_multiples_of_a_right_angle(name, mode):
    """Where sine or cosine are nearly 0, and the rest of the angle needs many bits of pi."""
    x = np.array(list(hard_angles()), np.float32)
    x = np.resize(x, (128, -(-x.size // 128)))
    actual = run(getattr(nl, name), x, mode=mode)
    function = getattr(mpmath, name)
    with mpmath.workprec(400):
        exact = [float(function(mpmath.mpf(float(angle)))) for angle in x.flat]
    assert_close(actual, np.reshape(exact, x.shape), FUNCTIONS[name].ulps)


def test_large_angles_and_quotients_where_no_loop_is_allowed():
    """`no_reorder` has no loops: what is only done for large operands is then always done."""
    x, y = np.array([[1e30, 7.0, -5e5]], np.float32), np.array([[3e-5, 2.5, -3.0]], np.float32)

    def body(a, b):
        with nl.no_reorder():
            return nl.add(nl.sin(a), nl.mod(a, b))

    exact = np.sin(x.astype(np.float64)) + np.mod(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_allclose(run(body, x, y), exact, rtol=2.0**-21)


@pytest.mark.parametrize("name", [*UNARY, "fmod", "mod", "power"])
def test_tiles_of_one_dimension(name):
    """SDK frameworks/torch/pytorch-native-overview.rst: `nl.sin(nl.load(in_ptr[0:128]))`."""
    x = np.array([2.5, 0.75, 3e5 if name in (*ANGLES, "fmod", "mod") else 4.0], np.float32)
    function = UNARY.get(name) or BINARY[name]
    operands = (x,) if name in UNARY else (x, np.array([1.5, 3e-6, -3.0], np.float32))
    exact = np.asarray(function(*(a.astype(np.float64) for a in operands)), float)
    row = FUNCTIONS[name]
    assert_close(run(getattr(nl, name), *operands), exact, row.ulps, row.absolute, name)


# Generations and data types


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_every_generation_gives_the_same(target):
    x, y = numbers((32, 20)), np.abs(numbers((32, 20)))
    names = [name for name in UNARY if name not in POSITIVE]
    for functions, inputs in ((names, (x,)), (sorted(POSITIVE), (y,))):
        results = all_of(functions, *inputs, target=target)
        for name, expected in all_of(functions, *inputs).items():
            np.testing.assert_array_equal(results[name], expected, err_msg=name)
    both = [name for name in BINARY if not FUNCTIONS[name].target]
    results = all_of(both, x, y, target=target)
    for name, expected in all_of(both, x, y).items():
        np.testing.assert_array_equal(results[name], expected, err_msg=name)


FLOATS = [name for name, dtype in NUMPY.items() if dtype.kind not in "iu"]
INTEGERS = [name for name, dtype in NUMPY.items() if dtype.kind in "iu"]


def of_dtype(dtype, shape):
    """Values of moderate size, which every function takes."""
    values = RNG.integers(-40, 41, shape) / (1 if dtype.kind in "iu" else 8)
    return (np.abs(values) if dtype.kind == "u" else values).astype(dtype)


def all_of(functions, *inputs, target="trn3"):
    """The results of many functions, from one kernel."""

    def kernel(inputs):
        tiles = [nl.load(a) for a in inputs]
        outs = []
        for name in functions:
            out = nl.ndarray(inputs[0].shape, dtype=inputs[0].dtype, buffer=nl.shared_hbm)
            nl.store(out, getattr(nl, name)(*tiles, dtype=inputs[0].dtype))
            outs.append(out)
        return tuple(outs)

    return dict(zip(functions, nki.simulate(nki.jit(platform_target=target)(kernel))(list(inputs))))


@pytest.mark.parametrize("dtype", NUMPY)
def test_every_function_of_one_tile_takes_every_dtype(dtype):
    x = of_dtype(NUMPY[dtype], (16, 32))
    x[x == 0] = 1
    for group in (UNARY.keys() - POSITIVE, POSITIVE):
        values = np.abs(x) if group == POSITIVE else x
        with np.errstate(all="ignore"):
            for name, actual in all_of(sorted(group), values).items():
                exact = UNARY[name](values.astype(np.float64))
                row = FUNCTIONS[name]
                message = f"{name} of {dtype}"
                if dtype in INTEGERS:
                    if dtype == "uint32" and name == "negative":
                        exact = np.negative(values)  # 32-bit integers wrap
                    limits = np.iinfo(NUMPY[dtype])
                    bound = 0.5 + row.ulps * unit(exact, NUMPY["float32"]) if row.ulps else 0.5
                    got = actual.astype(np.float64)
                    assert np.all(np.abs(got - np.clip(exact, limits.min, limits.max)) <= bound), (
                        message
                    )
                elif dtype == "float32":
                    assert_close(actual, exact, row.ulps, row.absolute, message)
                else:
                    assert_close(actual, exact, 0.51, row.absolute, message)


@pytest.mark.parametrize("dtype", NUMPY)
def test_every_function_of_two_tiles_takes_every_dtype(dtype):
    x, y = (of_dtype(NUMPY[dtype], (16, 32)) for _ in range(2))
    y[y == 0] = 1
    names = sorted(BINARY.keys() - {"power"})
    with np.errstate(all="ignore"):
        for name, actual in all_of(names, x, y).items():
            exact = BINARY[name](x.astype(np.float64), y.astype(np.float64))
            if dtype in INTEGERS:
                limits = np.iinfo(NUMPY[dtype])
                exact = np.clip(exact, limits.min, limits.max)
                if dtype == "uint32" and name == "subtract":
                    exact = x - y  # 32-bit integers wrap
            if name == "divide":  # two roundings
                assert_close(actual, exact, 0.51 if dtype in FLOATS else 0, 0.51, name)
            else:
                assert_close(actual, np.asarray(exact, np.float64), 0, 0, name)


@pytest.mark.parametrize("dtype", NUMPY)
def test_powers_of_every_dtype(dtype):
    x, y = (RNG.integers(0, 4, (8, 16)).astype(NUMPY[dtype]) for _ in range(2))
    exact = x.astype(np.float64) ** y.astype(np.float64)
    assert_close(run(nl.power, x, y), exact, 0)
    assert_close(run(lambda a: nl.power(a, 2), x), x.astype(np.float64) ** 2, 0)
    assert_close(run(lambda a: nl.power(2, a), x), 2.0 ** x.astype(np.float64), 0)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_bits_of_every_integer_dtype(dtype):
    limits = np.iinfo(NUMPY[dtype])
    x = RNG.integers(limits.min, limits.max, (16, 32), NUMPY[dtype], endpoint=True)
    y = RNG.integers(limits.min, limits.max, (16, 32), NUMPY[dtype], endpoint=True)
    steps = RNG.integers(0, limits.bits, (16, 32)).astype(NUMPY[dtype])
    for name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        np.testing.assert_array_equal(run(getattr(nl, name), x, y), INTEGER[name](x, y))
    np.testing.assert_array_equal(run(nl.left_shift, x, steps), np.left_shift(x, steps))
    right = shifted = INTEGER["right_shift"](x, steps).astype(NUMPY[dtype])
    np.testing.assert_array_equal(run(nl.right_shift, x, steps), right)
    np.testing.assert_array_equal(run(nl.invert, x), ~x)
    for step in (0, 3):
        shifted = INTEGER["right_shift"](x, step).astype(NUMPY[dtype])
        actual = run(lambda a, n=step: nl.right_shift(a, n), x)
        np.testing.assert_array_equal(actual, shifted)


def test_bits_of_two_dtypes():
    x = np.array([[-1, 300, -70000]], np.int32)
    y = np.array([[255, 1, 128]], np.uint8)
    np.testing.assert_array_equal(run(nl.bitwise_and, x, y), x & y)
    z = np.array([[2**32 - 1, 5, 9]], np.uint32)
    np.testing.assert_array_equal(run(nl.bitwise_xor, x, z), (x ^ z.view(np.int32)))
    assert run(nl.bitwise_or, y, x).dtype == np.int32


# 32-bit integers, which fp32 rounds

LARGE = np.array([[2**24 + 1, -(2**30) - 1, 2**31 - 1, -7, 0]], np.int32)
OTHER = np.array([[2**24, 2**30 + 3, 1, -7, 5]], np.int32)


@pytest.mark.parametrize(
    "name", ["maximum", "minimum", "equal", "not_equal", "less", "less_equal", "greater"]
)
def test_32_bit_integers_are_compared_exactly(name):
    expected = BINARY[name](LARGE, OTHER)
    np.testing.assert_array_equal(run(getattr(nl, name), LARGE, OTHER), expected)
    actual = run(lambda a, b: getattr(nl, name)(a, b, dtype=nl.int32), LARGE, OTHER)
    np.testing.assert_array_equal(actual, expected)
    for number in (2**24, -7):
        actual = run(lambda a, n=number: getattr(nl, name)(a, n), LARGE)
        np.testing.assert_array_equal(actual, BINARY[name](LARGE, number))


def test_32_bit_integers_are_added_exactly():
    x, y = LARGE[:, :2], OTHER[:, :2]
    np.testing.assert_array_equal(run(nl.add, x, y), x + y)
    np.testing.assert_array_equal(run(nl.subtract, x, y), x - y)
    np.testing.assert_array_equal(run(lambda a: nl.add(a, 1), x), x + 1)
    np.testing.assert_array_equal(run(lambda a: nl.subtract(5, a), x), 5 - x)
    np.testing.assert_array_equal(run(nl.negative, x), -x)
    np.testing.assert_array_equal(run(nl.abs, x), np.abs(x))
    np.testing.assert_array_equal(run(nl.relu, LARGE), np.maximum(LARGE, 0))
    small = np.array([[46340, -46339, 4099]], np.int32)
    np.testing.assert_array_equal(run(nl.square, small), small * small)
    column = np.array([[2**24 + 1]], np.int32)
    np.testing.assert_array_equal(run(nl.add, LARGE[:, :2], column), LARGE[:, :2] + column)


@pytest.mark.parametrize("name", ["mod", "fmod"])
@pytest.mark.parametrize("dtype", ["int32", "uint32"])
def test_remainders_of_32_bit_integers_are_exact(dtype, name):
    limits = np.iinfo(dtype)
    x, y = (RNG.integers(limits.min, limits.max, (64, 90), dtype, endpoint=True) for _ in range(2))
    y >>= RNG.integers(0, 31, y.shape).astype(dtype)
    x[:, :30] >>= RNG.integers(0, 31, (64, 30)).astype(dtype)
    y[y == 0] = 1
    y[:2, :4], y[2:4, :4], x[:4, :2], x[:4, 2:4] = (
        limits.max,
        limits.min or 3,
        limits.min,
        limits.max,
    )
    np.testing.assert_array_equal(run(getattr(nl, name), x, y), getattr(np, name)(x, y))
    for number in (1, 7, 1000003):
        actual = run(lambda a, n=number: getattr(nl, name)(a, n), x)
        np.testing.assert_array_equal(actual, getattr(np, name)(x, np.array(number, dtype)))
    as_float = run(lambda a, b: getattr(nl, name)(a, b, dtype=nl.float32), x, y)
    np.testing.assert_array_equal(as_float, getattr(np, name)(x, y).astype(np.float32))


# Operands


def test_numbers_and_columns_on_either_side():
    x, column = numbers((8, 12)), np.arange(8, dtype=np.float32).reshape(8, 1) - 3
    for name in ("subtract", "multiply", "less", "maximum"):
        function = getattr(nl, name)
        with np.errstate(all="ignore"):
            for actual, expected in (
                (run(lambda a, f=function: f(a, 2.5), x), BINARY[name](x, np.float32(2.5))),
                (run(lambda a, f=function: f(2.5, a), x), BINARY[name](np.float32(2.5), x)),
                (run(function, x, column), BINARY[name](x, column)),
                (run(function, column, x), BINARY[name](column, x)),
            ):
                np.testing.assert_array_equal(actual, expected)
    moderate = np.clip(np.nan_to_num(x), -8, 8)
    actual = run(lambda a: nl.power(2.0, a), moderate)
    assert_close(actual, 2.0 ** moderate.astype(np.float64), 1)
    assert_close(run(nl.divide, x, column), x.astype(float) / column, 2)
    half = column.astype(NUMPY["bfloat16"])
    np.testing.assert_array_equal(run(nl.add, x, half), x + column)


def test_several_rows_of_a_partition_are_each_divided_by_a_number():
    """By an operation for each row, with one reciprocal for all."""
    x = numbers((24, 130)).reshape(8, 3, -1)
    divisors = np.ascontiguousarray(x[:, ::-1, 40:41])

    @nki.jit
    def kernel(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile, column = (nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.sbuf) for t in (a, b))
        nisa.dma_copy(dst=tile, src=a)
        nisa.dma_copy(dst=column, src=b)
        nisa.dma_copy(dst=out, src=nl.divide(tile, column.broadcast(2, x.shape[2])))
        return out

    with np.errstate(all="ignore"):
        assert_close(kernel(x, divisors), x.astype(np.float64) / divisors, 2)


def test_tiles_of_three_dimensions():
    x, y = numbers((4, 10)), numbers((4, 10))
    cube = (4, 2, x.shape[1] // 2)
    actual = run(lambda a, b: nl.floor(nl.add(a, b)), x.reshape(cube), y.reshape(cube))
    np.testing.assert_array_equal(actual, np.floor(x + y).reshape(cube))
    column = np.arange(4, dtype=np.int32).reshape(4, 1, 1)
    whole = np.arange(4 * 6, dtype=np.int32).reshape(4, 2, 3)
    np.testing.assert_array_equal(run(nl.multiply, whole, column), whole * column)


def test_operands_in_psum():
    x = numbers((32, 10))

    def body(a):
        in_psum = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.psum)
        nisa.tensor_copy(dst=in_psum, src=a)
        total = nl.add(in_psum, in_psum)
        return nl.add(nl.power(nl.abs(in_psum), nl.copy(in_psum)), nl.multiply(total, 0.0))

    x = np.clip(x, -4, 4)
    exact = np.abs(x).astype(float) ** x.astype(float)
    with np.errstate(all="ignore"):
        assert_close(run(body, x), np.where(np.isnan(exact), np.inf, exact), 1)


def refusal(body, *inputs, target="trn2"):
    with pytest.raises(NeuronError) as caught:
        run(body, *inputs, target=target)
    return caught.value


def test_what_is_refused():
    x = np.ones((4, 8), np.float32)
    assert refusal(lambda a: nl.add(a, nl.zeros((4, 4), nl.float32)), x).code == "shape-mismatch"
    assert refusal(lambda a: nl.add(a, "1"), x).code == "not-a-tensor"
    assert refusal(lambda a: nl.add(1, 2), x).code == "not-a-tensor"
    assert refusal(lambda a: nl.exp(None), x).code == "not-a-tensor"
    assert refusal(lambda a: nl.bitwise_and(a, a), x).code == "dtype-not-allowed"
    assert refusal(lambda a: nl.abs_max(a, a), x).code == "generation"
    assert refusal(lambda a: nl.prelu(a), x).code == "not-supported"

    def in_psum(a):
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.psum)
        nisa.tensor_copy(dst=tile, src=a)
        return nl.rsqrt(tile)

    assert refusal(in_psum, x).code == "wrong-memory"

    def in_hbm(a):
        return nl.exp(nl.ndarray((4, 8), nl.float32, buffer=nl.hbm))

    error = refusal(in_hbm, x)
    assert error.code == "wrong-memory" and error.location.function == "in_hbm"
    with pytest.raises(NeuronError) as caught:
        nl.exp(x)
    assert caught.value.code == "no-tracer"


def test_modes_agree_bit_for_bit():
    x, y = numbers((16, 20)), np.roll(numbers((16, 20)), 3, axis=1)

    def body(a, b):
        result = nl.zeros(a.shape, nl.float32)
        for name in ("floor", "trunc", "cos", "arctan", "gelu", "sqrt"):
            result = nl.where(nl.less(nl.abs(a), 50.0), nl.add(getattr(nl, name)(a), result), a)
        return nl.add(nl.mod(a, b), nl.divide(result, b))

    device, *others = (run(body, x, y, mode=m) for m in ("device", "reference", "eager"))
    for other in others:
        np.testing.assert_array_equal(device.view(np.uint32), other.view(np.uint32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_example_in_the_docstring_runs(name, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    case = doctest.DocTestParser().get_doctest(getattr(nl, name).__doc__, {}, name, None, 0)
    assert case.examples
    report = []
    doctest.DocTestRunner(verbose=False).run(case, out=report.append)
    assert "".join(report) == ""
