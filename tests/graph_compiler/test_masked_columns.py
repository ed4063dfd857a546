"""Attention of which a mask that is known hides the last keys: NumPy in float64 says what results
must be, for any scores, and for values that are no numbers."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined
from operator_values import FOLDS

from graph_compiler import GraphOptions, compile, parse_text
from graph_compiler.compiled import Compiled

Array = np.ndarray[Any, Any]


def attention(
    shape: tuple[int, int, int, int],
    least: float,
    ahead: int,
    type: str = "f32",
    data: bool = False,
) -> str:
    """Of heads, queries, keys and a depth; a query sees keys up to `ahead` behind its own number,
    and has `least` for others. `data`: the mask is a parameter."""
    heads, rows, columns, depth = shape
    score, line = f"[{heads},{rows},{columns}]", f"f32[{heads},{rows}]"
    mask = f"""at = s32[{rows},{columns}] iota(), iota_dimension=0
 key = s32[{rows},{columns}] iota(), iota_dimension=1
 shift = s32[] constant({ahead})
 by = s32[{rows},{columns}] broadcast(shift), dimensions={{}}
 last = s32[{rows},{columns}] add(at, by)
 seen = pred[{rows},{columns}] compare(key, last), direction=LE"""
    if data:
        mask = f"seen = pred[{rows},{columns}] parameter(3)"
    return f"""HloModule masked
{FOLDS}ENTRY e {{
 q = {type}[{heads},{rows},{depth}] parameter(0)
 k = {type}[{heads},{columns},{depth}] parameter(1)
 v = {type}[{heads},{columns},{depth}] parameter(2)
 {mask}
 all = pred{score} broadcast(seen), dimensions={{1,2}}
 least = f32[] constant({least})
 lowest = f32[] constant(-inf)
 zero = f32[] constant(0)
 d = f32{score} dot(q, k), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, \
rhs_contracting_dims={{2}}
 hidden = f32{score} broadcast(least), dimensions={{}}
 s = f32{score} select(all, d, hidden)
 m = {line} reduce(s, lowest), dimensions={{2}}, to_apply=larger
 mb = f32{score} broadcast(m), dimensions={{0,1}}
 c = f32{score} subtract(s, mb)
 e = f32{score} exponential(c)
 t = {line} reduce(e, zero), dimensions={{2}}, to_apply=plus
 tb = f32{score} broadcast(t), dimensions={{0,1}}
 p = f32{score} divide(e, tb)
 n = {type}{score} convert(p)
 ROOT o = f32[{heads},{rows},{depth}] dot(n, v), lhs_batch_dims={{0}}, \
lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
}}"""


@cache
def compiled(*form: Any, cores: int = 1) -> Compiled:
    return compile(parse_text(attention(*form)), "trn2", GraphOptions(logical_cores=cores))


def inputs(shape: tuple[int, int, int, int], type: Any = np.float32) -> list[Array]:
    heads, rows, columns, depth = shape
    random = np.random.default_rng(rows)
    sizes = (heads, rows, depth), (heads, columns, depth), (heads, columns, depth)
    return [random.standard_normal(size).astype(type) for size in sizes]


def wanted(q: Array, k: Array, v: Array, least: float, ahead: int) -> Array:
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    rows, columns = q.shape[1], k.shape[1]
    seen = np.arange(columns) <= np.arange(rows)[:, np.newaxis] + ahead
    with np.errstate(invalid="ignore"):
        scores = np.where(seen, q @ k.swapaxes(1, 2), least)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v


SHAPE = (2, 520, 520, 32)


@combined(
    {
        "least": [-1e30, -6.0, 3.0, "-inf"],
        "ahead": [0, -70],
    }
)
def test_hidden_columns_count_as_in_the_graph(least: float, ahead: int) -> None:
    """Rows that see nothing are means of all values, or no numbers."""
    given = inputs(SHAPE)
    (found,) = compiled(SHAPE, least, ahead)(*given)
    right = wanted(*given, float(least), ahead)
    np.testing.assert_allclose(found, right, rtol=2e-4, atol=2e-5)
    assert np.isnan(right).any() == (least == "-inf" and ahead < 0)


@combined(
    {
        "shape, ahead": [
            ((1, 130, 700, 16), 100),
            ((3, 600, 600, 64), 1),
            ((2, 384, 800, 128), 416),
        ],
        "cores": [1, 2],
    }
)
def test_shapes(shape: tuple[int, int, int, int], ahead: int, cores: int) -> None:
    given = inputs(shape)
    (found,) = compiled(shape, -1e30, ahead, cores=cores)(*given)
    np.testing.assert_allclose(found, wanted(*given, -1e30, ahead), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("least", [-1e30, 2.0])
def test_of_two_bytes(least: float) -> None:
    """Weights are rounded to bf16, sums of hidden values are not: where these count, all of them
    are alike."""
    given = inputs(SHAPE, ml_dtypes.bfloat16)
    given[2] = (given[2].astype(np.float32) + 1).astype(ml_dtypes.bfloat16)
    (found,) = compiled(SHAPE, least, 0, "bf16")(*given)
    np.testing.assert_allclose(found, wanted(*given, least, 0), rtol=2e-2, atol=8e-3)


@pytest.mark.parametrize("type", ["f32", "bf16"])
def test_what_is_no_number_in_hidden_values_comes_through(type: str) -> None:
    """Zero times an infinity is no number; of what a row sees an infinity stays one."""
    q, k, v = inputs(SHAPE, ml_dtypes.bfloat16 if type == "bf16" else np.float32)
    v[0, 515, 1], v[0, 500, 3], v[1, 519, 5], v[1, 0, 7] = np.nan, np.inf, -np.inf, np.inf
    (found,) = compiled(SHAPE, -1e30, 0, type)(q, k, v)
    right = wanted(q, k, v, -1e30, 0)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(right))
    np.testing.assert_array_equal(found == np.inf, right == np.inf)
    assert np.isnan(right).any() and (right == np.inf).any()


def test_hidden_columns_are_not_multiplied() -> None:
    shape = 1, 2048, 2048, 64
    given = inputs(shape)
    seen = np.tril(np.ones((2048, 2048), bool))
    (one,), known = compiled(shape, -1e30, 0).profile(*given)
    (other,), asked = compiled(shape, -1e30, 0, "f32", True).profile(*given, seen)
    np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)
    assert known.flops < 0.7 * asked.flops
    assert known.total_ns < 0.85 * asked.total_ns


@pytest.mark.parametrize("least", ["-inf", "-1e30"])
@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_a_mask_may_be_added(least: str, target: str) -> None:
    """Zeros and a low number; only trn2 leaves hidden columns out."""
    score = ",".join(map(str, SHAPE[:3]))
    text = attention(SHAPE, float(least), 0).replace(
        "select(all, d, hidden)",
        f"add(d, mask)\n none = f32[{score}] broadcast(zero), dimensions={{}}",
    )
    mask = f" mask = f32[{score}] select(all, none, hidden)\n"
    lines = text.splitlines(keepends=True)
    (at,) = [number for number, line in enumerate(lines) if "add(d, mask)" in line]
    text = "".join([*lines[:at], lines[at + 1], mask, lines[at], *lines[at + 2 :]])
    given = inputs(SHAPE)
    (found,) = compile(parse_text(text), target)(*given)
    np.testing.assert_allclose(found, wanted(*given, float(least), 0), rtol=2e-4, atol=2e-5)
