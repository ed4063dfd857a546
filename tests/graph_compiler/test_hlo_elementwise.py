"""Elementwise operators: against Python's own integers and exact rationals, and against XLA."""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_values import FLOATS, INTEGERS, ULPS, differing, module_text, run, values
from xla_reference import run_xla

from graph_compiler.hlo import PRIMITIVE_TYPES
from graph_compiler.hlo.operators.numerics import round_to_odd

COUNT = 600


def wrapped(number: int, bits: int, signed: bool) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if signed and number >= 1 << (bits - 1) else number


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted(opcode: str, a: int, b: int, bits: int) -> int:
    amount = b & ((1 << bits) - 1)
    if opcode == "shift-right-arithmetic":
        return wrapped(a, bits, True) >> min(amount, bits - 1)
    if amount >= bits:
        return 0
    return a << amount if opcode == "shift-left" else (a & ((1 << bits) - 1)) >> amount


def power(a: int, b: int, bits: int) -> int:
    if b >= 0:
        return pow(a, b, 1 << bits)
    return {1: 1, -1: 1 if b % 2 == 0 else -1}.get(a, 0)


INTEGER_REFERENCES = {
    "add": lambda a, b, bits: a + b,
    "subtract": lambda a, b, bits: a - b,
    "multiply": lambda a, b, bits: a * b,
    "mulhi": lambda a, b, bits: (a * b) >> bits,
    "divide": lambda a, b, bits: truncated(a, b) if b else -1,
    "remainder": lambda a, b, bits: a - b * truncated(a, b) if b else a,
    "power": power,
    "maximum": lambda a, b, bits: max(a, b),
    "minimum": lambda a, b, bits: min(a, b),
    "and": lambda a, b, bits: a & b,
    "or": lambda a, b, bits: a | b,
    "xor": lambda a, b, bits: a ^ b,
    **{
        opcode: lambda a, b, bits, opcode=opcode: shifted(opcode, a, b, bits)
        for opcode in ("shift-left", "shift-right-logical", "shift-right-arithmetic")
    },
}


@pytest.mark.parametrize("opcode", INTEGER_REFERENCES)
@pytest.mark.parametrize("name", [*INTEGERS, "s4", "u4"])
def test_integers_wrap_as_python_integers_say(opcode: str, name: str) -> None:
    primitive = PRIMITIVE_TYPES[name]
    rng = np.random.default_rng(3)
    signed = primitive.kind == "signed"
    if primitive.bits < 8:
        low = -8 if signed else 0
        a, b = (rng.integers(low, low + 16, 256).astype(primitive.numpy) for _ in range(2))
    else:
        a, b = values(rng, name, (256,)), values(rng, name, (256,))
    shape = f"{name}[256]"
    (found,) = run(module_text(opcode, shape, [shape, shape]), a, b)
    reference = INTEGER_REFERENCES[opcode]
    expected = [
        wrapped(reference(int(x), int(y), primitive.bits), primitive.bits, signed)
        for x, y in zip(a, b)
    ]
    assert [int(value) for value in found] == expected


@pytest.mark.parametrize("name", INTEGERS)
def test_bits_are_counted(name: str) -> None:
    bits, shape = PRIMITIVE_TYPES[name].bits, f"{name}[{COUNT}]"
    x = values(np.random.default_rng(4), name, (COUNT,))
    plain = [int(value) & ((1 << bits) - 1) for value in x]
    (ones,) = run(module_text("popcnt", shape, [shape]), x)
    (zeros,) = run(module_text("count-leading-zeros", shape, [shape]), x)
    assert ones.tolist() == [value.bit_count() for value in plain]
    assert zeros.tolist() == [bits - value.bit_length() for value in plain]


NARROW = ("bf16", "f16", "f8e4m3fn", "f8e5m2", "f8e4m3")


@pytest.mark.parametrize("name", NARROW)
@given(st.floats(width=64, allow_nan=False, allow_infinity=False, min_value=-200, max_value=200))
@settings(max_examples=60, deadline=None)
def test_float64_rounds_once_into_narrow_floats(name: str, value: float) -> None:
    """The nearest of the neighbours, the even one of a tie, by exact rationals."""
    dtype = PRIMITIVE_TYPES[name].numpy
    (found,) = run(module_text("convert", f"{name}[]", ["f64[]"]), np.float64(value))
    near = Fraction(float(found)) - Fraction(value)
    for direction in (-np.inf, np.inf):
        neighbour = np.nextafter(found.astype(dtype), dtype.type(direction))
        if np.isfinite(float(neighbour)):
            assert abs(near) <= abs(Fraction(float(neighbour)) - Fraction(value))


def test_rounding_to_odd_keeps_what_a_second_rounding_needs() -> None:
    above = 1 + 2**-8 + 2**-40  # just above the middle of two bfloat16
    assert float(np.float64(above).astype(ml_dtypes.bfloat16)) == 1.0  # two roundings
    assert float(round_to_odd(np.array(above)).astype(ml_dtypes.bfloat16)) == 1 + 2**-7


@pytest.mark.parametrize("name", ["s8", "s32", "u8", "u32", "s64", "u64"])
def test_floats_become_integers_by_truncation_and_saturation(name: str) -> None:
    limits = np.iinfo(PRIMITIVE_TYPES[name].numpy)
    x = np.array([1.9, -1.9, 1e30, -1e30, np.inf, -np.inf, np.nan, -0.5, 100.5], np.float32)
    (found,) = run(module_text("convert", f"{name}[9]", ["f32[9]"]), x)
    expected = []
    for value in x.tolist():
        if math.isnan(value):
            expected.append(0)
        elif math.isinf(value):
            expected.append(limits.max if value > 0 else limits.min)
        else:
            expected.append(min(max(math.trunc(value), limits.min), limits.max))
    assert found.tolist() == expected


def test_signs_of_zero_and_nan() -> None:
    zeros = np.array([0.0, -0.0, 0.0, -0.0, np.nan, 1.0], np.float32)
    others = np.array([-0.0, 0.0, 0.0, -0.0, 1.0, np.nan], np.float32)
    shape = "f32[6]"
    (larger,) = run(module_text("maximum", shape, [shape, shape]), zeros, others)
    (smaller,) = run(module_text("minimum", shape, [shape, shape]), zeros, others)
    (sign,) = run(module_text("sign", shape, [shape]), zeros)
    assert np.signbit(larger[:4]).tolist() == [False, False, False, True]
    assert np.signbit(smaller[:4]).tolist() == [True, True, False, True]
    assert np.isnan(larger[4:]).all() and np.isnan(smaller[4:]).all()
    assert np.signbit(sign[:2]).tolist() == [False, True] and np.isnan(sign[4])


def test_total_order_ranks_every_float() -> None:
    """-NaN < -inf < -1 < -0 < +0 < 1 < inf < NaN."""
    ranked = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], np.float32)
    ranked[0], ranked[-1] = np.copysign(np.nan, -1), np.copysign(np.nan, 1)
    a, b = np.repeat(ranked, 8), np.tile(ranked, 8)
    text = module_text(
        "compare", "pred[64]", ["f32[64]", "f32[64]"], "direction=LT, type=TOTALORDER"
    )
    (found,) = run(text, a, b)
    assert found.reshape(8, 8).tolist() == np.triu(np.ones((8, 8), bool), 1).tolist()


EXACT_UNARY = {
    "abs": (*FLOATS, "s8", "s32"),
    "negate": (*FLOATS, *INTEGERS),
    "sign": (*FLOATS, "s8", "s32"),
    "floor": FLOATS,
    "ceil": FLOATS,
    "round-nearest-even": FLOATS,
    "round-nearest-afz": FLOATS,
    "not": ("pred", "s8", "u32"),
}
INEXACT_UNARY = (
    *("exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "sqrt", "rsqrt"),
    *("cbrt", "sine", "cosine", "tan", "tanh", "erf"),
)


@pytest.mark.parametrize("opcode", [*EXACT_UNARY, *INEXACT_UNARY])
def test_unary_operators_agree_with_xla(opcode: str) -> None:
    rng = np.random.default_rng(5)
    names = EXACT_UNARY.get(opcode, ("f32", "bf16"))
    for name in names:
        shape, x = f"{name}[{COUNT}]", values(rng, name, (COUNT,))
        text = module_text(opcode, shape, [shape])
        tolerance = 0.0 if opcode in EXACT_UNARY else ULPS[name]
        assert differing(run(text, x), run_xla(text, x), tolerance) == "", name


@pytest.mark.parametrize(
    "opcode", ["add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "power"]
)
def test_binary_operators_agree_with_xla_on_floats(opcode: str) -> None:
    rng = np.random.default_rng(6)
    for name in FLOATS:
        shape = f"{name}[{COUNT}]"
        inputs = values(rng, name, (COUNT,)), values(rng, name, (COUNT,))
        text = module_text(opcode, shape, [shape, shape])
        tolerance = ULPS[name] if opcode == "power" else 0.0
        assert differing(run(text, *inputs), run_xla(text, *inputs), tolerance) == "", name


CONVERTED = ("pred", "s8", "u16", "s32", "u64", "f16", "bf16", "f32", "f8e4m3fn")


@pytest.mark.parametrize("source", CONVERTED)
def test_conversions_agree_with_xla(source: str) -> None:
    rng = np.random.default_rng(7)
    x = values(rng, source, (COUNT,), 3.0 if source == "f8e4m3fn" else 3e4)
    for target in CONVERTED:
        if target != source:
            text = module_text("convert", f"{target}[{COUNT}]", [f"{source}[{COUNT}]"])
            assert differing(run(text, x), run_xla(text, x)) == "", target


@pytest.mark.parametrize(("exponent", "mantissa"), [(5, 10), (8, 7), (4, 3), (2, 0), (11, 52)])
def test_reduced_precision_agrees_with_xla(exponent: int, mantissa: int) -> None:
    rng = np.random.default_rng(8)
    for name in FLOATS:
        shape = f"{name}[{COUNT}]"
        x = values(rng, name, (COUNT,), 1e3)
        x[:200] = values(rng, name, (200,), 1e-5)
        attributes = f"exponent_bits={exponent}, mantissa_bits={mantissa}"
        text = module_text("reduce-precision", shape, [shape], attributes)
        assert differing(run(text, x), run_xla(text, x)) == "", name


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f32[6]", "u32[6]"),
        ("f32[6]", "u8[6,4]"),
        ("u16[3,4]", "f64[3]"),
        ("f64[5]", "f32[5,2]"),
        ("u32[3]", "bf16[3,2]"),
    ],
)
def test_bits_are_read_as_other_types(source: str, target: str) -> None:
    name, shape = source.split("[")
    x = values(np.random.default_rng(9), name, [int(size) for size in shape[:-1].split(",")])
    (found,) = run(module_text("bitcast-convert", target, [source]), x)
    assert found.tobytes() == x.tobytes()


def test_four_bit_integers_share_bytes() -> None:
    x = np.array([[0x21, 0xF3]], np.uint8)
    (found,) = run(module_text("bitcast-convert", "s4[1,2,2]", ["u8[1,2]"]), x)
    assert found.astype(int).tolist() == [[[1, 2], [3, -1]]]
    (back,) = run(module_text("bitcast-convert", "u8[1,2]", ["s4[1,2,2]"]), found)
    assert back.tolist() == x.tolist()


def test_clamp_and_select_take_scalars() -> None:
    x = np.array([-5, 0, 5, np.nan], np.float32)
    (clamped,) = run(
        module_text("clamp", "f32[4]", ["f32[]", "f32[4]", "f32[]"]),
        *(np.float32(-1), x, np.float32(2)),
    )
    np.testing.assert_array_equal(clamped, np.float32([-1, 0, 2, np.nan]))
    (chosen,) = run(
        module_text("select", "f32[4]", ["pred[]", "f32[4]", "f32[4]"]), np.bool_(False), x, x + 1
    )
    np.testing.assert_array_equal(chosen, x + 1)
