"""The functions of `nki.language` as NumPy formulas in double precision, and how to compare."""

import math

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.language as nl
from isa.errors import NeuronError

erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])


def normal_distribution(x):
    return 0.5 * erfc(-x * math.sqrt(0.5))


def sigmoid(x):
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu_dx(x):
    return normal_distribution(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gated_derivative(x, a):
    return sigmoid(a * x) * (1 + a * x * sigmoid(-a * x))


def shifted_right(x, y):
    return (x.astype(np.int64) & (2 ** (8 * x.dtype.itemsize) - 1)) >> y


UNARY = {
    "abs": np.abs,
    "negative": np.negative,
    "square": np.square,
    "sign": np.sign,
    "relu": lambda x: np.maximum(x, 0),
    "copy": lambda x: x,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "logical_not": np.logical_not,
    "reciprocal": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arctan": np.arctan,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "gelu": lambda x: x * normal_distribution(x),
    "gelu_dx": gelu_dx,
    "gelu_apprx_tanh": lambda x: (
        x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    ),
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: gated_derivative(x, 1.702),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: gated_derivative(x, 1.0),
    "softplus": softplus,
    "mish": lambda x: x * np.tanh(softplus(x)),
    "erf": erf,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
}

BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "abs_max": lambda x, y: np.where(np.abs(x) > np.abs(y), x, y),
    "abs_min": lambda x, y: np.where(np.abs(x) < np.abs(y), x, y),
    "power": np.power,
    "fmod": np.fmod,
    "mod": np.mod,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}

INTEGER = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": shifted_right,
    "invert": np.invert,
}

NUMPY = {
    name: np.dtype(getattr(ml_dtypes, name, name))
    for name in (
        *("int8", "int16", "int32", "uint8", "uint16", "uint32"),
        *("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn"),
    )
}


def run(body, *inputs, target="trn3", mode="device", dtype=None):
    """`body(*tiles)` of loaded inputs, stored to an output of its result's shape."""

    def kernel(inputs):
        result = body(*(nl.load(a) for a in inputs))
        out = nl.ndarray(result.shape, dtype=dtype or result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result if result.buffer == nl.sbuf else nl.copy(result))
        return out

    return nki.simulate(nki.jit(platform_target=target)(kernel), mode=mode)(list(inputs))


def rounded(exact, dtype):
    """Double precision values as the machine converts them: to nearest even, integers saturate."""
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return np.clip(np.rint(np.nan_to_num(exact)), limits.min, limits.max).astype(dtype)
    with np.errstate(all="ignore"):
        return np.asarray(exact).astype(np.float32).astype(dtype)


def unit(values, dtype):
    """The unit of the last place of each value in a dtype; 0 in an integer dtype."""
    if dtype.kind in "iu":
        return np.zeros(values.shape)
    row = ml_dtypes.finfo(dtype)
    size = np.maximum(np.abs(np.nan_to_num(values, posinf=0, neginf=0)), float(row.tiny))
    return np.exp2(np.floor(np.log2(size)) - row.nmant)


def assert_close(actual, exact, ulps, absolute=0.0, message=""):
    """|actual - exact| <= ulps units of the last place (0: as rounded once) + absolute."""
    exact = np.asarray(exact, np.float64)
    nearest = rounded(exact, actual.dtype)
    got, wanted = actual.astype(np.float64), nearest.astype(np.float64)
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    if ulps or absolute:
        with np.errstate(all="ignore"):
            same |= np.abs(got - exact) <= ulps * unit(exact, actual.dtype) + absolute
    if not np.all(same):
        worst = np.argwhere(~same)[0]
        raise AssertionError(
            f"{message} at {tuple(worst)}: {got[tuple(worst)]}, exactly {exact[tuple(worst)]}; "
            f"{np.sum(~same)} of {same.size} differ"
        )


RNG = np.random.default_rng(11)
"""Of all values that tests of `nki.language` draw."""


def refusal(body, *inputs, target="trn2"):
    """The code of the error that a body ends in."""
    with pytest.raises(NeuronError) as caught:
        run(body, *inputs, target=target)
    return caught.value.code


def random(*shape, dtype="float32"):
    """Normally distributed numbers."""
    return RNG.standard_normal(shape).astype(NUMPY[dtype])
