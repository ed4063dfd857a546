"""Which steps a group of rows takes: attention in windows of images, as vision models have it."""

from __future__ import annotations

from typing import Any

import numpy as np
from on_device import modelled_ns

from graph_compiler import compile, parse_text

PROJECTED, BIASED = 20_000, 70_000
"""Ns at most; with 7 rows at a time, and one step after another, 85,000 each."""

SIDE, WINDOW, HEADS, DEPTH = 28, 7, 3, 32
WINDOWS, TOKENS = (SIDE // WINDOW) ** 2, WINDOW * WINDOW
WIDTH = HEADS * DEPTH

PARTS = f"""
 i = f32[{SIDE},{SIDE},{WIDTH}] parameter(0)
 j = f32[{SIDE // WINDOW},{WINDOW},{SIDE // WINDOW},{WINDOW},{WIDTH}] reshape(i)
 k = f32[{SIDE // WINDOW},{SIDE // WINDOW},{WINDOW},{WINDOW},{WIDTH}] transpose(j),
   dimensions={{0,2,1,3,4}}
 x = f32[{WINDOWS},{TOKENS},{WIDTH}] reshape(k)"""

PROJECTION = f"""HloModule m
ENTRY e {{{PARTS}
 w = f32[{WIDTH},{3 * WIDTH}] parameter(1)
 y = f32[{WINDOWS},{TOKENS},{3 * WIDTH}] dot(x, w), lhs_contracting_dims={{2}},
   rhs_contracting_dims={{0}}
 ROOT r = f32[{WINDOWS},{TOKENS},{3 * WIDTH}] tanh(y)
}}"""

HEAD = f"f32[{WINDOWS},{HEADS},{TOKENS},{DEPTH}]"
SCORES = f"f32[{WINDOWS},{HEADS},{TOKENS},{TOKENS}]"
ROWS = f"f32[{WINDOWS},{HEADS},{TOKENS}]"
PAIRS = TOKENS * TOKENS

ATTENTION = f"""HloModule m
add {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] add(a, b) }}
max {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT r = f32[] maximum(a, b) }}
ENTRY e {{
 q = {HEAD} parameter(0)
 k = {HEAD} parameter(1)
 v = {HEAD} parameter(2)
 t = f32[169,{HEADS}] parameter(3)
 p = s32[{PAIRS}] parameter(4)
 s = {SCORES} dot(q, k), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}},
   lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
 g = f32[{PAIRS},{HEADS}] gather(t, p), offset_dims={{1}}, collapsed_slice_dims={{0}},
   start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{HEADS}}}
 h = f32[{TOKENS},{TOKENS},{HEADS}] reshape(g)
 l = f32[{HEADS},{TOKENS},{TOKENS}] transpose(h), dimensions={{2,0,1}}
 b = {SCORES} broadcast(l), dimensions={{1,2,3}}
 z = {SCORES} add(s, b)
 low = f32[] constant(-inf)
 zero = f32[] constant(0)
 m = {ROWS} reduce(z, low), dimensions={{3}}, to_apply=max
 n = {SCORES} broadcast(m), dimensions={{0,1,2}}
 d = {SCORES} subtract(z, n)
 e = {SCORES} exponential(d)
 o = {ROWS} reduce(e, zero), dimensions={{3}}, to_apply=add
 c = {SCORES} broadcast(o), dimensions={{0,1,2}}
 f = {SCORES} divide(e, c)
 ROOT r = {HEAD} dot(f, v), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}},
   lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}}
}}"""


def drawn(*dims: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(dims)).standard_normal(dims).astype(np.float32)


def test_products_have_more_rows_than_a_window_has_in_a_row() -> None:
    """Windows are copied apart from the product, which would have 7 rows at a time beside it."""
    compiled = compile(parse_text(PROJECTION), "trn2")
    image, w = drawn(SIDE, SIDE, WIDTH), drawn(WIDTH, 3 * WIDTH) / 10
    (found,) = compiled(image, w)
    parts = image.reshape(SIDE // WINDOW, WINDOW, SIDE // WINDOW, WINDOW, WIDTH)
    x = parts.transpose(0, 2, 1, 3, 4).reshape(WINDOWS, TOKENS, WIDTH)
    np.testing.assert_allclose(found, np.tanh(x.astype(np.float64) @ w), 1e-5, 1e-5)
    assert modelled_ns(compiled) < PROJECTED


def test_attention_with_a_bias_of_a_table() -> None:
    """The gather stands between steps of the group; columns of a bias are far apart in memory, and
    each is loaded once for all windows."""
    compiled = compile(parse_text(ATTENTION), "trn2")
    q, k, v = (drawn(WINDOWS, HEADS, TOKENS, DEPTH) * scale for scale in (0.2, 0.5, 1.0))
    table = drawn(169, HEADS)
    places = np.random.default_rng(0).integers(0, 169, PAIRS).astype(np.int32)
    (found,) = compiled(q, k, v, table, places)
    bias = table[places].reshape(TOKENS, TOKENS, HEADS).transpose(2, 0, 1)
    z = np.einsum("whqd,whkd->whqk", q.astype(np.float64), k) + bias
    e = np.exp(z - z.max(-1, keepdims=True))
    wanted = np.einsum("whqk,whkd->whqd", e / e.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
    assert modelled_ns(compiled) < BIASED
