"""Norms as groups of rows: sums of rows and of their squares from one pass. float64 says what the
sums must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from combinations import combined
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import compile, evaluate, parse_text
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from nki.ir.nodes import operations

NORM = """HloModule norm
sum {
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b)
}
ENTRY e {
 x = TYPE[ROWS,SIZE] parameter(0)
 y = TYPE[ROWS,SIZE] parameter(1)
 z = TYPE[ROWS,SIZE] add(x, y)
 t = TYPE[ROWS,SIZE] maximum(z, x)
 v = f32[ROWS,SIZE] convert(t)
 zero = f32[] constant(0)
 n = f32[] constant(SIZE)
 ns = f32[ROWS] broadcast(n), dimensions={}
 one = f32[ROWS] reduce(v, zero), dimensions={1}, to_apply=sum
 mean = f32[ROWS] divide(one, ns)
 m = f32[ROWS,SIZE] broadcast(mean), dimensions={0}
 c = f32[ROWS,SIZE] subtract(v, m)
 w = f32[ROWS,SIZE] multiply(v, v)
 two = f32[ROWS] reduce(w, zero), dimensions={1}, to_apply=sum
 mean2 = f32[ROWS] divide(two, ns)
 square = f32[ROWS] multiply(mean, mean)
 var = f32[ROWS] subtract(mean2, square)
 q = f32[ROWS,SIZE] broadcast(var), dimensions={0}
 u = f32[ROWS,SIZE] multiply(c, q)
 ROOT r = (f32[ROWS], f32[ROWS], f32[ROWS,SIZE]) tuple(mean, KEPT, u)
}"""


def norm(rows: int, size: int, type: str = "f32", kept: str = "var", centred: bool = False) -> Any:
    text = NORM.replace("ROWS", str(rows)).replace("SIZE", str(size))
    if centred:  # the mean of (x - mean)^2
        text = text.replace("multiply(v, v)", "multiply(c, c)")
        text = text.replace("subtract(mean2, square)", "maximum(mean2, mean2)")
    return parse_text(text.replace("TYPE", type).replace("KEPT", kept))


def rows_of(module: Any, scale: float, mean: float, seed: int = 1) -> list[Any]:
    random = np.random.default_rng(seed)
    shape = module.parameters[0].shape.dimensions
    dtype = PRIMITIVE_TYPES[module.parameters[0].shape.element_type].numpy
    return [
        (random.standard_normal(shape) * scale + mean).astype(dtype),
        (random.standard_normal(shape) * scale).astype(dtype),
    ]


def assert_near_the_moments(module: Any, x: Any, y: Any) -> None:
    """Within a few roundings of the terms, whatever the order."""
    mean, variance, result = compile(module, "trn2")(x, y)
    exact = np.maximum(x + y, x).astype(np.float64)
    steps = (4 * np.sqrt(exact.shape[1]) + 16) * 2.0**-24
    assert (np.abs(mean - exact.mean(1)) <= steps * np.abs(exact).mean(1)).all()
    assert (np.abs(variance - exact.var(1)) <= steps * (exact**2).mean(1)).all()
    expected = (exact - mean[:, None]) * variance[:, None]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def statistics(module: Any) -> int:
    """How many operations of `bn_stats` a program begins as."""
    stages: dict[str, Any] = {}
    compile(module, "trn2", observe=lambda stage, made: stages.setdefault(stage, made))
    return sum(op.row.name == "bn_stats" for b in stages["trace"].bodies for op in operations(b))


@combined(
    {
        "centred": [False, True],
        "size, parts": [(96, 1), (512, 1), (768, 2), (1030, 3)],
    }
)
def test_both_sums_take_one_pass(size: int, parts: int, centred: bool) -> None:
    module = norm(64, size, centred=centred)
    assert statistics(module) == parts
    assert_near_the_moments(module, *rows_of(module, 1.0, 0.5))


@combined(
    {
        "centred": [False, True],
        "rows, size": [(5000, 200), (2500, 300)],
    }
)
def test_partitions_have_several_rows(rows: int, size: int, centred: bool) -> None:
    """Sums are made row by row, and what each row has one number of is computed for all of them."""
    module = norm(rows, size, centred=centred)
    assert statistics(module) > 1
    assert_near_the_moments(module, *rows_of(module, 1.0, 0.5))


@pytest.mark.parametrize(("rows", "size", "most"), [(11217, 196, 69e3), (15000, 100, 71e3)])
def test_short_rows_share_operations(rows: int, size: int, most: float) -> None:
    """With operations of its own for the mean and variance of each row they take 86 and 91 us."""
    x = np.ones((rows, size), np.float32)
    text = layer_norm(rows, size)
    assert compile(parse_text(text), "trn2").profile(x)[-1].total_ns < most


def layer_norm(rows: int, size: int) -> str:
    shape, line = f"f32[{rows},{size}]", f"f32[{rows}]"
    return f"""HloModule norm
sum {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }}
ENTRY e {{
 x = {shape} parameter(0)
 zero = f32[] constant(0)
 n = f32[] constant({size})
 ns = {line} broadcast(n), dimensions={{}}
 small = f32[] constant(1e-5)
 smalls = {line} broadcast(small), dimensions={{}}
 t = {line} reduce(x, zero), dimensions={{1}}, to_apply=sum
 m = {line} divide(t, ns)
 ms = {shape} broadcast(m), dimensions={{0}}
 d = {shape} subtract(x, ms)
 q = {shape} multiply(d, d)
 u = {line} reduce(q, zero), dimensions={{1}}, to_apply=sum
 v = {line} divide(u, ns)
 w = {line} add(v, smalls)
 i = {line} rsqrt(w)
 is = {shape} broadcast(i), dimensions={{0}}
 ROOT r = {shape} multiply(d, is) }}"""


def test_elements_of_sixteen_bits() -> None:
    module = norm(130, 256, "bf16")
    assert statistics(module) > 0
    assert_near_the_moments(module, *rows_of(module, 1.0, 0.5))


def test_squares_that_are_used_otherwise_are_summed_as_they_are() -> None:
    """The sum of squares of a row with an infinity is infinite."""
    module = norm(64, 256, kept="two")
    assert statistics(module) == 0
    x, y = rows_of(module, 1.0, 0.0)
    x[3, 5] = np.inf
    _, squares, _ = compile(module, "trn2")(x, y)
    assert squares[3] == np.inf and np.isfinite(np.delete(squares, 3)).all()


def test_a_mean_along_another_dimension_is_another_value() -> None:
    """A square, whose means of rows are repeated along columns: no variance of rows."""
    text = NORM.replace("ROWS", "96").replace("SIZE", "96").replace("TYPE", "f32")
    text = text.replace("multiply(v, v)", "multiply(c, c)").replace("KEPT", "two")
    text = text.replace("broadcast(mean), dimensions={0}", "broadcast(mean), dimensions={1}")
    module = parse_text(text)
    assert statistics(module) == 0
    x, y = rows_of(module, 1.0, 0.5)
    for found, expected in zip(compile(module, "trn2")(x, y), evaluate(module, x, y)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("centred", [False, True])
def test_a_row_with_an_infinity_has_no_variance(centred: bool) -> None:
    module = norm(64, 256, centred=centred)
    x, y = rows_of(module, 1.0, 0.0)
    x[3, 5] = np.inf
    for found, expected in zip(compile(module, "trn2")(x, y), evaluate(module, x, y)):
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


@settings(max_examples=12, deadline=None)
@given(
    rows=st.integers(1, 300),
    size=st.integers(3, 1300),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    mean=st.sampled_from([0.0, 1.0, -1e4]),
    seed=st.integers(0, 99),
    centred=st.booleans(),
)
def test_any_rows(
    rows: int, size: int, scale: float, mean: float, seed: int, centred: bool
) -> None:
    module = norm(rows, size, centred=centred)
    assert_near_the_moments(module, *rows_of(module, scale, mean, seed))
