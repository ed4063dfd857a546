"""The host executor, an operation at a time: against XLA, the reference, and NumPy in float64."""

from __future__ import annotations

import math
import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from operator_values import FLOATS, INTEGERS, ULPS, differing, module_text, run, values
from random_operations import FAMILIES, REDUCERS, reducer
from xla_reference import run_xla

from graph_compiler import execute, parse_text
from graph_compiler.execute import prepare
from graph_compiler.host_kernels.elements import FORMS

Array = np.ndarray[Any, Any]

CASES = 4


@pytest.mark.parametrize("family", FAMILIES)
def test_random_operations_agree_with_xla(family: str) -> None:
    rng = np.random.default_rng(zlib.crc32(b"executor" + family.encode()))
    for _ in range(CASES):
        text, inputs, tolerance = FAMILIES[family](rng)
        found = differing(execute(parse_text(text), *inputs), run_xla(text, *inputs), tolerance)
        assert found == "", text


INEXACT = frozenset(
    {"exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "tanh", "erf"}
    | {"rsqrt", "power"}
)
RESULTS = {"compare": "pred", "is-finite": "pred", "convert": "s16"}
ATTRIBUTES = {"compare": "direction=LE"}
SPECIAL = frozenset({"select", "clamp", "power", "bitcast-convert", "real"})
"""Opcodes whose operands are of another form than one or two of the same type."""


def operand_count(op: str) -> int:
    from graph_compiler.hlo.operators import operator

    return operator(op).arity[0]


@pytest.mark.parametrize("op", sorted(set(FORMS) - SPECIAL))
def test_element_wise_operations_agree_with_the_reference(op: str) -> None:
    """Bit for bit where the reference computes exactly; 37 elements leave part of a vector."""
    kinds = FORMS[op]
    types = [name for name in FLOATS if "real" in kinds]
    types += [name for name in INTEGERS if {"s": "signed", "u": "unsigned"}[name[0]] in kinds]
    types += ["pred"] * ("boolean" in kinds)
    rng = np.random.default_rng(zlib.crc32(op.encode()))
    for name in types:
        operands = [f"{name}[37]"] * operand_count(op)
        result = f"{RESULTS.get(op, name)}[37]"
        text = module_text(op, result, operands, ATTRIBUTES.get(op, ""))
        inputs = [values(rng, name, (37,)) for _ in operands]
        expected = run(text, *inputs)
        tolerance = ULPS.get(name, 0.0) if op in INEXACT else 0.0
        found = execute(parse_text(text), *inputs)
        assert differing(found, expected, tolerance) == "", text
        if op not in INEXACT and name in FLOATS:
            same = np.signbit(found[0]) == np.signbit(expected[0])
            assert np.all(same | np.isnan(expected[0])), f"signs of zeros of {text}"


@pytest.mark.parametrize("source", [*FLOATS, *INTEGERS, "pred", "f8e4m3fn", "f8e5m2"])
def test_conversions_agree_with_the_reference(source: str) -> None:
    rng = np.random.default_rng(zlib.crc32(source.encode()))
    x = values(rng, source, (50,), 300.0)
    for target in (*FLOATS, *INTEGERS, "pred", "f8e4m3fn", "f8e5m2"):
        text = module_text("convert", f"{target}[50]", [f"{source}[50]"])
        assert differing(execute(parse_text(text), x), run(text, x)) == "", text


@pytest.mark.parametrize(
    ("op", "formula", "low", "high"),
    [
        ("exponential", math.exp, -87, 88),
        ("exponential-minus-one", math.expm1, -4, 4),
        ("log", math.log, 1e-38, 1e38),
        ("log-plus-one", math.log1p, -0.99, 5),
        ("tanh", math.tanh, -9, 9),
        ("erf", math.erf, -4, 4),
        ("logistic", lambda x: 1 / (1 + math.exp(-x)), -80, 80),
    ],
)
def test_functions_are_within_some_units_of_the_last_place(
    op: str, formula: Any, low: float, high: float
) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(low, high, 4000)
    if op == "log":
        x = 10 ** rng.uniform(-37, 37, 4000)
    x = np.concatenate([x, rng.uniform(-1e-3, 1e-3, 200) if low < 0 else x[:200]])
    x = x.astype(np.float32)
    text = module_text(op, f"f32[{x.size}]", [f"f32[{x.size}]"])
    (found,) = execute(parse_text(text), x)
    exact = np.array([formula(float(value)) for value in x])
    errors = np.abs(found - exact) / np.spacing(np.abs(exact).astype(np.float32))
    assert errors.max() <= 4, f"{errors.max():.1f} units at {x[errors.argmax()]}"


@pytest.mark.parametrize(
    "axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=lambda axes: str(axes)
)
@pytest.mark.parametrize("dims", [(3, 5, 70), (2, 33, 4), (300, 1, 17)], ids=str)
def test_reductions_along_any_dimensions(axes: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    kept = [size for axis, size in enumerate(dims) if axis not in axes]
    for fold, function in (("add", np.sum), ("maximum", np.max)):
        text = module_text(
            "reduce",
            f"f32{kept}",
            [f"f32{list(dims)}", "f32[]"],
            f"dimensions={{{','.join(map(str, axes))}}}, to_apply=reducer",
            reducer("f32", REDUCERS[fold]),
        )
        (found,) = execute(parse_text(text), x, np.float32(-2))
        start = -2.0
        wide = function(x.astype(np.float64), axis=axes)
        expected = wide + start if fold == "add" else np.maximum(wide, start)
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-5)


def test_long_sums_stay_accurate() -> None:
    """A running fp32 sum of these columns would be off by some 1e-3 of it."""
    x = np.random.default_rng(2).uniform(0, 1, (60_000, 20)).astype(np.float32)
    text = module_text(
        "reduce",
        "f32[20]",
        ["f32[60000,20]", "f32[]"],
        "dimensions={0}, to_apply=reducer",
        reducer("f32", REDUCERS["add"]),
    )
    (found,) = execute(parse_text(text), x, np.float32(0))
    np.testing.assert_allclose(found, x.astype(np.float64).sum(0), rtol=2e-6)


@pytest.mark.parametrize("name", ["f32", "bf16", "f16", "f8e4m3fn"])
@pytest.mark.parametrize("sides", [(1, 0), (1, 1), (0, 0), (0, 1)], ids=str)
@pytest.mark.parametrize("sizes", [(1, 64, 50), (5, 30, 1), (70, 37, 100), (9, 1700, 65)], ids=str)
def test_products_of_matrices_as_they_lie(
    name: str, sides: tuple[int, int], sizes: tuple[int, int, int]
) -> None:
    rows, depth, columns = sizes
    rng = np.random.default_rng(rows)
    dtype = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}.get(
        name, ml_dtypes.float8_e4m3fn
    )
    a = rng.standard_normal((rows, depth)).astype(dtype)
    b = rng.standard_normal((depth, columns)).astype(dtype)
    left = a if sides[0] else np.ascontiguousarray(a.T)
    right = np.ascontiguousarray(b.T) if sides[1] else b
    text = module_text(
        "dot",
        f"f32[{rows},{columns}]",
        [f"{name}{list(left.shape)}", f"{name}{list(right.shape)}"],
        f"lhs_contracting_dims={{{sides[0]}}}, rhs_contracting_dims={{{sides[1]}}}",
    )
    (found,) = execute(parse_text(text), left, right)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    # The error of a sum of products is bounded by its length times that of one of them.
    bound = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64) * 1e-6 * math.sqrt(depth)
    assert np.all(np.abs(found - expected) <= bound + 1e-30)
    assert prepare(parse_text(text)).host_instructions == []


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("sizes", [(3, 16, 5), (17, 770, 33), (5, 4096, 130)], ids=str)
def test_products_of_whole_numbers_are_exact(transposed: int, sizes: tuple[int, int, int]) -> None:
    rows, depth, columns = sizes
    rng = np.random.default_rng(depth)
    a = rng.integers(-128, 128, (rows, depth)).astype(np.int8)
    b = rng.integers(-128, 128, (depth, columns)).astype(np.int8)
    a[0], b[:, 0] = -128, -128
    right = np.ascontiguousarray(b.T) if transposed else b
    text = module_text(
        "dot",
        f"s32[{rows},{columns}]",
        [f"s8{list(a.shape)}", f"s8{list(right.shape)}"],
        f"lhs_contracting_dims={{1}}, rhs_contracting_dims={{{transposed}}}",
    )
    (found,) = execute(parse_text(text), a, right)
    np.testing.assert_array_equal(found, a.astype(np.int64) @ b.astype(np.int64))
