"""Products of one row for each element of a batch, as a query that meets a cache of keys and
values, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import compile, parse_text

DTYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}
SCORES, VALUES = "scores", "values"


def graph(kind: str, type: str, batch: int, heads: int, keys: int, depth: int) -> str:
    """A query meets its keys, or weights of the keys meet values: [batch, keys, heads, depth]."""
    row, result = (depth, keys) if kind == SCORES else (keys, depth)
    axis = 3 if kind == SCORES else 1
    return f"""HloModule m
ENTRY e {{
 x = {type}[{batch},{heads},{row}] parameter(0)
 y = {type}[{batch},{keys},{heads},{depth}] parameter(1)
 ROOT r = {type}[{batch},{heads},{result}] dot(x, y), lhs_batch_dims={{0,1}}, \
lhs_contracting_dims={{2}}, rhs_batch_dims={{0,2}}, rhs_contracting_dims={{{axis}}}
}}"""


def inputs(kind: str, type: str, batch: int, heads: int, keys: int, depth: int) -> list[Any]:
    rng = np.random.default_rng(4)
    row = depth if kind == SCORES else keys
    shapes = (batch, heads, row), (batch, keys, heads, depth)
    return [rng.standard_normal(shape, np.float32).astype(DTYPES[type]) for shape in shapes]


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize("kind", [SCORES, VALUES])
@pytest.mark.parametrize("sizes", [(2, 5, 300, 40), (1, 12, 256, 64), (3, 1, 130, 64)])
def test_rows_of_several_heads(
    sizes: tuple[int, int, int, int], kind: str, type: str, target: str
) -> None:
    """What is no number stays in its head."""
    x, y = inputs(kind, type, *sizes)
    x[0, 0, 1] = np.nan
    (result,) = compile(parse_text(graph(kind, type, *sizes)), target)(x, y)
    found = np.asarray(result)
    wide = [one.astype(np.float64) for one in (x, y)]
    sums = "bhd,bkhd->bhk" if kind == SCORES else "bhk,bkhd->bhd"
    wanted = np.einsum(sums, *wide)
    size = np.einsum(sums, *map(np.abs, wide))
    bad = np.isnan(found.astype(np.float64))
    np.testing.assert_array_equal(bad, np.isnan(wanted))
    rounding = {"f32": 2.0**-21, "bf16": 2.0**-8}[type]
    assert (np.abs(found.astype(np.float64) - wanted)[~bad] <= rounding * size[~bad]).all()


@pytest.mark.parametrize(("kind", "most"), [(SCORES, 75e3), (VALUES, 48e3)])
def test_heads_are_loaded_together(kind: str, most: float) -> None:
    """Keys or values of all heads, which lie in one run: one by one they take 91 and 86 us, their
    bytes 23."""
    sizes = 4, 8, 2048, 64
    compiled = compile(parse_text(graph(kind, "bf16", *sizes)), "trn2")
    assert compiled.profile(*inputs(kind, "bf16", *sizes))[-1].total_ns < most
