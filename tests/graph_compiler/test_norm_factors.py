"""Factors of a norm's columns before those of its rows, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.lower.assemble import assemble
from isa.target import TARGETS
from nki.ir.nodes import operations

ROWS, COLUMNS = 96, 200

NORM = """HloModule norm
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 given = TYPE[96,200] parameter(0)
 x = f32[96,200] convert(given)
 gs = TYPE[200] parameter(1)
 bs = TYPE[200] parameter(2)
 zero = f32[] constant(0)
 n = f32[] constant(200)
 ns = f32[96] broadcast(n), dimensions={}
 total = f32[96] reduce(x, zero), dimensions={1}, to_apply=add
 mean = f32[96] divide(total, ns)
 means = f32[96,200] broadcast(mean), dimensions={0}
 d = f32[96,200] subtract(x, means)
 square = f32[96,200] multiply(d, d)
 squares = f32[96] reduce(square, zero), dimensions={1}, to_apply=add
 variance = f32[96] divide(squares, ns)
 small = f32[] constant(1e-5)
 smalls = f32[96] broadcast(small), dimensions={}
 shifted = f32[96] add(variance, smalls)
 r = f32[96] rsqrt(shifted)
 rows = f32[96,200] broadcast(r), dimensions={0}
 gw = f32[200] convert(gs)
 g = f32[96,200] broadcast(gw), dimensions={1}
 bw = f32[200] convert(bs)
 b = f32[96,200] broadcast(bw), dimensions={1}
 FACTORS
 y = f32[96,200] add(scaled, b)
 ROOT out = TYPE[96,200] convert(y)
}"""

FORMS = {
    "rows first": "u = f32[96,200] multiply(d, rows)\n scaled = f32[96,200] multiply(u, g)",
    "exchanged": "u = f32[96,200] multiply(rows, d)\n scaled = f32[96,200] multiply(g, u)",
    "both together": "u = f32[96,200] multiply(rows, g)\n scaled = f32[96,200] multiply(d, u)",
    "columns first": "u = f32[96,200] multiply(d, g)\n scaled = f32[96,200] multiply(u, rows)",
}


def graph(form: str, type: str) -> Any:
    return parse_text(NORM.replace("FACTORS", FORMS[form]).replace("TYPE", type))


def passes(module: Any) -> int:
    """How often engines go over all elements, but for sums."""
    (body,) = assemble(module, TARGETS["trn2"]).bodies
    names = {"tensor_tensor", "scalar_tensor_tensor", "tensor_scalar", "activation"}
    shapes = [op.values[0].shape for op in operations(body) if op.row.name in names]
    return sum(np.prod(shape[1:]) for shape in shapes if np.prod(shape[1:]) > 1) // COLUMNS


@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize("form", FORMS)
def test_two_operations_go_over_the_rows(form: str, type: str) -> None:
    module = graph(form, type)
    assert passes(module) == 2
    random = np.random.default_rng(len(form))
    x = random.standard_normal((ROWS, COLUMNS)) * 3 + 1
    g, b = random.uniform(0.5, 2, COLUMNS), random.standard_normal(COLUMNS)
    dtype = np.float32 if type == "f32" else ml_dtypes.bfloat16
    given = [array.astype(dtype) for array in (x, g, b)]
    (found,) = compile(module, "trn2")(*given)
    x, g, b = (array.astype(float) for array in given)
    d = x - x.mean(1, keepdims=True)
    scaled = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * g
    unit = 2.0**-24 if type == "f32" else 2.0**-8
    bound = 40 * 2.0**-24 * (np.abs(x).max() + np.abs(scaled) + np.abs(b)) * np.abs(g)
    assert (np.abs(found.astype(float) - scaled - b) <= bound + unit * np.abs(scaled + b)).all()


def test_factors_that_are_not_of_a_norm_keep_their_order() -> None:
    """Numbers of rows that nothing says are near the reciprocal of the rows' deviation: a product
    with columns first might be too large."""
    text = """HloModule m
ENTRY e {
 x = f32[8,16] parameter(0)
 m = f32[8] parameter(1)
 r = f32[8] parameter(2)
 g = f32[16] parameter(3)
 ms = f32[8,16] broadcast(m), dimensions={0}
 rs = f32[8,16] broadcast(r), dimensions={0}
 gs = f32[8,16] broadcast(g), dimensions={1}
 d = f32[8,16] subtract(x, ms)
 u = f32[8,16] multiply(d, rs)
 v = f32[8,16] multiply(u, gs)
 ROOT y = f32[8,16] add(v, gs)
}"""
    x = np.full((8, 16), 1e30, np.float32)
    r, g = np.full(8, 1e-30, np.float32), np.full(16, 1e30, np.float32)
    (found,) = compile(parse_text(text), "trn2")(x, np.zeros(8, np.float32), r, g)
    np.testing.assert_allclose(found, 2e30, rtol=1e-6)
