"""Products in groups: attention as models write it, rows of layers, transposed results. NumPy in
float64 says what results must be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from combinations import combined
from on_device import modelled_ns
from operator_values import FOLDS

from graph_compiler import compile, parse_text
from graph_compiler.hlo import PRIMITIVE_TYPES
from graph_compiler.lower import limits
from graph_compiler.lower.limits import PlanLimits
from isa.machine.dma import DmaCopy, DmaTranspose

Array = np.ndarray[Any, Any]


def attention(heads: int, rows: int, columns: int, depth: int, turned: bool) -> str:
    """Of queries, keys and values [sequence, heads, depth], with a mask for all heads; `turned`:
    the second product has the values on its left."""
    score = f"f32[{heads},{rows},{columns}]"
    line = f"f32[{heads},{rows}]"
    if turned:
        last = (
            f" o = f32[{heads},{depth},{rows}] dot(v, p), lhs_batch_dims={{1}},"
            " lhs_contracting_dims={0}, rhs_batch_dims={0}, rhs_contracting_dims={2}\n"
            f" ROOT r = f32[{rows},{heads},{depth}] transpose(o), dimensions={{2,0,1}}"
        )
    else:
        last = (
            f" o = f32[{heads},{rows},{depth}] dot(p, v), lhs_batch_dims={{0}},"
            " lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={0}\n"
            f" ROOT r = f32[{rows},{heads},{depth}] transpose(o), dimensions={{1,0,2}}"
        )
    return f"""HloModule attention
{FOLDS}ENTRY e {{
 q = f32[{rows},{heads},{depth}] parameter(0)
 k = f32[{columns},{heads},{depth}] parameter(1)
 v = f32[{columns},{heads},{depth}] parameter(2)
 mask = f32[{rows},{columns}] parameter(3)
 least = f32[] constant(-inf)
 zero = f32[] constant(0)
 d = {score} dot(q, k), lhs_batch_dims={{1}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{1}}, \
rhs_contracting_dims={{2}}
 ms = {score} broadcast(mask), dimensions={{1,2}}
 s = {score} add(d, ms)
 m = {line} reduce(s, least), dimensions={{2}}, to_apply=larger
 mb = {score} broadcast(m), dimensions={{0,1}}
 c = {score} subtract(s, mb)
 e = {score} exponential(c)
 t = {line} reduce(e, zero), dimensions={{2}}, to_apply=plus
 tb = {score} broadcast(t), dimensions={{0,1}}
 p = {score} divide(e, tb)
{last}
}}"""


def wanted(q: Array, k: Array, v: Array, mask: Array) -> Array:
    q, k, v, mask = (array.astype(np.float64) for array in (q, k, v, mask))
    score = np.einsum("qhd,khd->hqk", q, k) + mask
    weights = np.exp(score - score.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hqk,khd->qhd", weights, v)


def inputs(heads: int, rows: int, columns: int, depth: int) -> list[Array]:
    random = np.random.default_rng(rows + heads)
    mask = np.where(random.random((rows, columns)) < 0.2, -1e9, 0).astype(np.float32)
    mask[:, 0] = 0
    shapes = [(rows, heads, depth), (columns, heads, depth), (columns, heads, depth)]
    return [*(random.standard_normal(shape, np.float32) for shape in shapes), mask]


@combined(
    {
        "turned": [False, True],
        "heads, rows, columns, depth": [
            (1, 128, 128, 64),
            (12, 128, 128, 64),
            (3, 77, 77, 16),
            (2, 197, 197, 64),
            (2, 256, 300, 32),
        ],
        "target": ["trn1", "trn2"],
    }
)
def test_attention(
    target: str, heads: int, rows: int, columns: int, depth: int, turned: bool
) -> None:
    arrays = inputs(heads, rows, columns, depth)
    graph = parse_text(attention(heads, rows, columns, depth, turned))
    (found,) = compile(graph, target)(*arrays)
    np.testing.assert_allclose(found, wanted(*arrays), rtol=0, atol=2e-5)


def in_bf16(text: str) -> str:
    return text.replace("f32", "bf16")


@pytest.mark.parametrize("target, by_dma", [("trn1", False), ("trn2", True)])
@pytest.mark.parametrize("heads, rows, columns, depth", [(2, 256, 640, 32), (1, 200, 1100, 64)])
def test_dma_engines_turn_long_rows(
    target: str, by_dma: bool, heads: int, rows: int, columns: int, depth: int, monkeypatch: Any
) -> None:
    """Blocks of them, from gen3 on; what is left over, and too few rows, the tensor engine."""
    monkeypatch.setattr(limits, "plans", lambda cores: (PlanLimits(transposed=511),))
    q, *others = inputs(heads, rows, columns, depth)
    arrays = [array.astype("bfloat16") for array in (q / 16, *others)]  # scores of about one
    graph = parse_text(in_bf16(attention(heads, rows, columns, depth, False)))
    compiled = compile(graph, target)
    (core,) = compiled.kernel.program.cores
    rows_of = {instruction.row for stream in core.streams.values() for instruction in stream}
    assert (DmaTranspose in rows_of) == by_dma
    (found,) = compiled(*arrays)
    np.testing.assert_allclose(found.astype(np.float32), wanted(*arrays), rtol=0, atol=0.03)


@pytest.mark.parametrize("columns", [300, 512])
def test_heads_of_several_tiles_are_loaded_together(columns: int) -> None:
    """Their queries, keys and values by few transfers for several heads, whatever their scores
    take."""
    arrays = inputs(8, 260, columns, 32)
    compiled = compile(parse_text(attention(8, 260, columns, 32, False)), "trn2")
    (core,) = compiled.kernel.program.cores
    rows = [instruction.row for stream in core.streams.values() for instruction in stream]
    assert rows.count(DmaCopy) < 6 * 8
    (found,) = compiled(*arrays)
    np.testing.assert_allclose(found, wanted(*arrays), rtol=0, atol=2e-5)


HEADS = """HloModule heads
ENTRY e {
 q = bf16[16,50,12,64] parameter(0)
 k = bf16[16,50,12,64] parameter(1)
 v = bf16[16,50,12,64] parameter(2)
 d = bf16[16,12,50,50] dot(q, k), lhs_batch_dims={0,2}, lhs_contracting_dims={3}, \
rhs_batch_dims={0,2}, rhs_contracting_dims={3}
 p = bf16[16,12,50,50] exponential(d)
 o = bf16[16,12,50,64] dot(p, v), lhs_batch_dims={0,1}, lhs_contracting_dims={3}, \
rhs_batch_dims={0,2}, rhs_contracting_dims={1}
 ROOT r = bf16[16,50,12,64] transpose(o), dimensions={0,2,1,3}
}"""


def test_more_heads_go_together_where_transfers_take_long(monkeypatch: Any) -> None:
    """Triggers of trn2 take as long as the work of a small head."""
    rng = np.random.default_rng(0)
    bf16 = PRIMITIVE_TYPES["bf16"].numpy
    arrays = [(rng.standard_normal((16, 50, 12, 64)) / 8).astype(bf16) for _ in range(3)]
    compiled = compile(parse_text(HEADS), "trn2")
    monkeypatch.setattr(limits, "plans", lambda cores: (PlanLimits(),))
    few = modelled_ns(compile(parse_text(HEADS), "trn2"))
    assert modelled_ns(compiled) < 0.95 * few
    (found,) = compiled(*arrays)
    q, k, v = (array.astype(np.float64) for array in arrays)
    exact = np.einsum("bhqk,bkhd->bqhd", np.exp(np.einsum("bqhd,bkhd->bhqk", q, k)), v)
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=0.02, atol=0.1)


def test_scores_stay_on_chip() -> None:
    """What moves is the operands, some of them for each head, and the result."""
    arrays = inputs(4, 256, 256, 64)
    _, profile = compile(parse_text(attention(4, 256, 256, 64, False)), "trn2").profile(*arrays)
    scores = 4 * 256 * 256 * 4
    assert sum(profile.dma.bytes.values()) < sum(array.nbytes for array in arrays) * 2 + scores


@pytest.mark.parametrize("rows", [100, 128, 300, 3000])
def test_rows_of_a_layer(rows: int) -> None:
    """Product, bias, residual, norm, product: one group, whatever the number of row tiles."""
    text = f"""HloModule layer
{FOLDS}ENTRY e {{
 x = f32[{rows},96] parameter(0)
 w = f32[96,160] parameter(1)
 b = f32[160] parameter(2)
 u = f32[160,96] parameter(3)
 zero = f32[] constant(0)
 n = f32[] constant(96)
 d = f32[{rows},160] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 bs = f32[{rows},160] broadcast(b), dimensions={{1}}
 h = f32[{rows},160] add(d, bs)
 g = f32[{rows},160] tanh(h)
 o = f32[{rows},96] dot(g, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 r = f32[{rows},96] add(o, x)
 s = f32[{rows}] reduce(r, zero), dimensions={{1}}, to_apply=plus
 ns = f32[{rows}] broadcast(n), dimensions={{}}
 m = f32[{rows}] divide(s, ns)
 mb = f32[{rows},96] broadcast(m), dimensions={{0}}
 ROOT c = f32[{rows},96] subtract(r, mb)
}}"""
    random = np.random.default_rng(rows)
    x, w, b, u = (
        random.standard_normal(shape).astype(np.float32) / 8
        for shape in ((rows, 96), (96, 160), (160,), (160, 96))
    )
    (found,) = compile(parse_text(text), "trn2")(x, w, b, u)
    exact = [array.astype(np.float64) for array in (x, w, b, u)]
    r = np.tanh(exact[0] @ exact[1] + exact[2]) @ exact[3] + exact[0]
    np.testing.assert_allclose(found, r - r.mean(-1, keepdims=True), rtol=0, atol=1e-5)


@combined(
    {
        "batch, rows, depth": [(16, 384, 64), (24, 256, 32), (9, 130, 48)],
        "type": ["f32", "bf16"],
    }
)
def test_each_element_of_a_batch_has_its_own_operands(
    type: str, batch: int, rows: int, depth: int
) -> None:
    """Rows against rows, whose elements of the batch are loaded several at a time."""
    text = f"""HloModule scores
ENTRY e {{
 a = {type}[{batch},{rows},{depth}] parameter(0)
 b = {type}[{batch},{rows},{depth}] parameter(1)
 ROOT r = f32[{batch},{rows},{rows}] dot(a, b), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, \
lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
}}"""
    rng = np.random.default_rng(batch)
    a, b = (rng.integers(-8, 8, (batch, rows, depth)) for _ in "ab")
    (found,) = compile(parse_text(text), "trn2")(
        *(one.astype(PRIMITIVE_TYPES[type].numpy) for one in (a, b))
    )
    np.testing.assert_array_equal(found, a @ b.transpose(0, 2, 1))
