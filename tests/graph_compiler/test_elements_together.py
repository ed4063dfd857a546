"""Attention of short heads, several of which go through operations together, against NumPy."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import compile, parse_text


def attention(type: str, batch: int, rows: int, heads: int, depth: int, factor: float) -> str:
    """Of queries, keys and values [batch, rows, heads, depth], without a mask."""
    score, line = f"f32[{batch},{heads},{rows},{rows}]", f"f32[{batch},{heads},{rows}]"
    whole = f"{type}[{batch},{rows},{heads},{depth}]"
    return f"""HloModule heads
larger {{
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] maximum(a, b)
}}
plus {{
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b)
}}
ENTRY e {{
 q = {whole} parameter(0)
 k = {whole} parameter(1)
 v = {whole} parameter(2)
 least = f32[] constant(-inf)
 zero = f32[] constant(0)
 f = f32[] constant({factor})
 fs = {score} broadcast(f), dimensions={{}}
 d = {score} dot(q, k), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{3}}, \
rhs_batch_dims={{0,2}}, rhs_contracting_dims={{3}}
 s = {score} multiply(d, fs)
 m = {line} reduce(s, least), dimensions={{3}}, to_apply=larger
 ms = {score} broadcast(m), dimensions={{0,1,2}}
 c = {score} subtract(s, ms)
 x = {score} exponential(c)
 t = {line} reduce(x, zero), dimensions={{3}}, to_apply=plus
 ts = {score} broadcast(t), dimensions={{0,1,2}}
 w = {score} divide(x, ts)
 p = {type}[{batch},{heads},{rows},{rows}] convert(w)
 o = f32[{batch},{heads},{rows},{depth}] dot(p, v), lhs_batch_dims={{0,1}}, \
lhs_contracting_dims={{3}}, rhs_batch_dims={{0,2}}, rhs_contracting_dims={{1}}
 ROOT r = f32[{batch},{rows},{heads},{depth}] transpose(o), dimensions={{0,2,1,3}}
}}"""


def exact(q: Any, k: Any, v: Any, factor: float) -> Any:
    q, k, v = (array.astype(np.float64) for array in (q, k, v))
    score = np.einsum("bqhd,bkhd->bhqk", q, k) * factor
    weights = np.exp(score - score.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("type, bound", [("bf16", 2.0**-7), ("f32", 2e-5)])
@pytest.mark.parametrize(
    "batch, rows, heads, depth, factor",
    [
        (4, 50, 12, 64, 0.125),
        (3, 77, 5, 32, 1.0),
        (2, 130, 4, 16, -0.3),
        (1, 128, 6, 64, 0.125),
        (32, 20, 12, 16, 0.25),
        (4, 60, 9, 64, 0.125),  # turned by twos, the last one alone
    ],
)
def test_softmax_of_short_heads(
    target: str,
    type: str,
    bound: float,
    batch: int,
    rows: int,
    heads: int,
    depth: int,
    factor: float,
) -> None:
    dtype = ml_dtypes.bfloat16 if type == "bf16" else np.float32
    random = np.random.default_rng(rows)
    arrays = [random.standard_normal((batch, rows, heads, depth)).astype(dtype) for _ in range(3)]
    compiled = compile(parse_text(attention(type, batch, rows, heads, depth, factor)), target)
    (found,) = compiled(*arrays)
    np.testing.assert_allclose(found, exact(*arrays, factor), rtol=bound, atol=bound)


def test_one_operation_compares_inverts_copies_and_stores_for_several_heads() -> None:
    """The engines do for each of them what needs its own columns only."""
    heads = 4 * 12
    (core,) = compile(
        parse_text(attention("bf16", 4, 50, 12, 64, 0.125)), "trn1"
    ).kernel.program.cores
    counts = Counter(
        instruction.row.name for stream in core.streams.values() for instruction in stream
    )
    assert counts["VectorReadAccumulator"] == 0
    assert 0 < counts["TensorReduce"] <= heads // 4
    assert 0 < counts["Reciprocal"] <= heads // 4
    # Three operands are loaded, and results stored, of four heads in a transfer.
    assert counts["DmaCopy"] <= 4 * heads // 4
    # Queries and keys are turned by twos, the weights of each head by themselves.
    assert counts["TransposeStationary"] <= 2 * heads
    # An exponential of each head, and copies of three transposed operands of several.
    assert counts["Activate"] + counts["TensorCopy"] <= heads + 3 * heads // 4
