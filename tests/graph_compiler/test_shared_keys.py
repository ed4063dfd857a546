"""Attention whose queries share keys, several heads each, behind a mask that is made of positions,
which are data: one group of steps, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from combinations import combined

from graph_compiler import GraphOptions, compile, parse_text
from isa.alu import ALU
from nki.ir.nodes import operations

TEXT = """HloModule shared_keys
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 q = f32[GROUPS,HEADS,N,32] parameter(0)
 k = f32[GROUPS,N,32] parameter(1)
 v = f32[GROUPS,N,32] parameter(2)
 i = s32[N] iota(), iota_dimension=0
 place = s32[N] parameter(3)
 rows = s32[N,N] broadcast(place), dimensions={0}
 columns = s32[N,N] broadcast(i), dimensions={1}
 seen = pred[N,N] compare(rows, columns), direction=GE
 yes = pred[] constant(true)
 every = pred[N,N] broadcast(yes), dimensions={}
 no = pred[] constant(false)
 none = pred[N,N] broadcast(no), dimensions={}
 mask = pred[N,N] select(seen, every, none)
 masks = pred[GROUPS,HEADS,N,N] broadcast(mask), dimensions={2,3}
 s = f32[GROUPS,HEADS,N,N] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0},
  lhs_contracting_dims={3}, rhs_contracting_dims={2}
 low = f32[] constant(-1e9)
 lows = f32[GROUPS,HEADS,N,N] broadcast(low), dimensions={}
 x = f32[GROUPS,HEADS,N,N] select(masks, s, lows)
 least = f32[] constant(-inf)
 m = f32[GROUPS,HEADS,N] reduce(x, least), dimensions={3}, to_apply=larger
 ms = f32[GROUPS,HEADS,N,N] broadcast(m), dimensions={0,1,2}
 d = f32[GROUPS,HEADS,N,N] subtract(x, ms)
 y = f32[GROUPS,HEADS,N,N] exponential(d)
 zero = f32[] constant(0)
 t = f32[GROUPS,HEADS,N] reduce(y, zero), dimensions={3}, to_apply=plus
 ts = f32[GROUPS,HEADS,N,N] broadcast(t), dimensions={0,1,2}
 p = f32[GROUPS,HEADS,N,N] divide(y, ts)
 ROOT r = f32[GROUPS,HEADS,N,32] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0},
  lhs_contracting_dims={3}, rhs_contracting_dims={1}
}"""


def _module(groups: int, heads: int, tokens: int) -> Any:
    sizes = {"GROUPS": groups, "HEADS": heads, "N": tokens}
    text = TEXT
    for name, size in sizes.items():
        for before in ",[":
            for behind in ",]":
                text = text.replace(before + name + behind, f"{before}{size}{behind}")
    return parse_text(text.replace("[N,", f"[{tokens},").replace(",N]", f",{tokens}]"))


def _inputs(groups: int, heads: int, tokens: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(tokens)
    shapes = ((groups, heads, tokens, 32), (groups, tokens, 32), (groups, tokens, 32))
    floats = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    return [*floats, np.arange(tokens, dtype=np.int32)]


@combined(
    {
        "target, cores": [("trn2", 1), ("trn1", 1), ("trn2", 2)],
        "groups, heads, tokens": [(2, 3, 130), (1, 4, 256), (3, 2, 64)],
    }
)
def test_heads_with_the_same_keys(
    groups: int, heads: int, tokens: int, target: str, cores: int
) -> None:
    q, k, v, _ = given = _inputs(groups, heads, tokens)
    options = GraphOptions(logical_cores=cores)
    (found,) = compile(_module(groups, heads, tokens), target, options)(*given)
    scores = np.einsum("ghqd,gkd->ghqk", q.astype(float), k)
    scores = np.where(np.tril(np.ones((tokens, tokens), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(found, np.einsum("ghqk,gkd->ghqd", weights, v), atol=2e-5)


def test_their_scores_stay_on_chip() -> None:
    _, profile = compile(_module(2, 3, 256), "trn2").profile(*_inputs(2, 3, 256))
    assert profile.dma.hbm_write_bytes == 2 * 3 * 256 * 32 * 4


def test_their_mask_is_computed_once_for_a_tile_of_rows() -> None:
    stages: dict[str, Any] = {}
    compile(_module(2, 3, 384), "trn2", observe=lambda stage, made: stages.setdefault(stage, made))
    done = [op for body in stages["trace"].bodies for op in operations(body)]
    compared = [op for op in done if op.fields.get("op") is ALU["greater_equal"]]
    assert len(compared) == 3
