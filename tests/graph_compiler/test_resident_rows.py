"""Rows that stay on chip between groups, against NumPy."""

from __future__ import annotations

import numpy as np

from graph_compiler import compile, parse_text

RESIDUAL = """HloModule residual
most { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b)
}
ENTRY e {
 x = f32[128,256] parameter(0)
 v = f32[256,8192] parameter(1)
 w = f32[8192,256] parameter(2)
 least = f32[] constant(-inf)
 m = f32[128] reduce(x, least), dimensions={1}, to_apply=most
 ms = f32[128,256] broadcast(m), dimensions={0}
 y = f32[128,256] subtract(x, ms)
 p = f32[128,8192] dot(y, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 q = f32[128,256] dot(p, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 s = f32[128,256] add(y, q)
 n = f32[128] reduce(s, least), dimensions={1}, to_apply=most
 ns = f32[128,256] broadcast(n), dimensions={0}
 ROOT r = f32[128,256] subtract(s, ns)
}"""


def test_a_group_takes_rows_that_one_before_products_left_on_chip() -> None:
    random = np.random.default_rng(1)
    x, v, w = (
        random.standard_normal(shape).astype(np.float32) / 16
        for shape in ((128, 256), (256, 8192), (8192, 256))
    )
    (found,) = compile(parse_text(RESIDUAL), "trn2")(x, v, w)
    y = x.astype(np.float64) - x.max(1, keepdims=True)
    s = y + y @ v @ w
    np.testing.assert_allclose(found, s - s.max(1, keepdims=True), rtol=0, atol=1e-3)
