"""Products whose sizes divide by nothing: results against NumPy, and times against round sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from combinations import combined
from on_device import modelled_ns

import graph_compiler
from graph_compiler.options import GraphOptions
from isa.operations.dma import DmaCopy
from isa.target import TARGETS
from nki.ir.nodes import operations

TYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


def _ns(text: str) -> float:
    return modelled_ns(graph_compiler.compile(graph_compiler.parse_text(text), "trn2"))


def test_small_products_of_a_batch_take_about_as_long_as_round_ones() -> None:
    def text(rows: int, depth: int) -> str:
        return f"""HloModule p
ENTRY e {{
 x = bf16[48,{rows},{depth}] parameter(0)
 y = bf16[48,{depth},160] parameter(1)
 ROOT r = bf16[48,{rows},160] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
  lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}}
}}"""

    assert _ns(text(139, 293)) < 1.35 * _ns(text(128, 256)) * (139 * 293) / (128 * 256)


def test_products_of_fp32_turn_an_operand_in_less_than_a_fifth_of_their_time() -> None:
    text = """HloModule p
ENTRY e {
 x = f32[1024,1024] parameter(0)
 y = f32[1024,1024] parameter(1)
 ROOT r = f32[1024,1024] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    peak = TARGETS["trn2"].peak_tflops["float32"].value
    assert 0.82 * _ns(text) < 2 * 1024**3 / peak / 1e3


def test_short_rows_of_a_product_are_loaded_in_long_runs() -> None:
    text = """HloModule p
ENTRY e {
 x = bf16[24,117,286] parameter(0)
 y = bf16[24,286,341] parameter(1)
 ROOT r = bf16[24,117,341] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},
  lhs_contracting_dims={2}, rhs_contracting_dims={1}
}"""
    moved = 24 * (117 * 286 + 286 * 341 + 117 * 341) * 2 / TARGETS["trn2"].dma_bytes_per_ns
    assert _ns(text) < 2.1 * moved


def test_products_of_short_depths_use_all_dma_engines() -> None:
    text = """HloModule p
ENTRY e {
 x = bf16[32,64,48] parameter(0)
 y = bf16[32,48,1100] parameter(1)
 ROOT r = bf16[32,64,1100] dot(x, y), lhs_batch_dims={0}, rhs_batch_dims={0},
  lhs_contracting_dims={2}, rhs_contracting_dims={1}
}"""
    stages: dict[str, Any] = {}
    module = graph_compiler.parse_text(text)
    graph_compiler.compile(
        module, "trn2", observe=lambda stage, made: stages.setdefault(stage, made)
    )
    done = [op for body in stages["trace"].bodies for op in operations(body)]
    loaded = [op.fields["dst"] for op in done if op.row is DmaCopy]
    starts = [view.first for view in loaded if view.on_chip and view.shape[-1] == 1100]
    assert starts.count(64) == starts.count(0) > 0


def test_products_of_many_heads_take_as_long_as_their_number() -> None:
    """A batch of two dimensions, as attention has it: 24 elements are no loop of small loads."""

    def text(batch: int) -> str:
        return f"""HloModule p
ENTRY e {{
 x = bf16[{batch},50,6,64] parameter(0)
 y = bf16[{batch},50,6,64] parameter(1)
 ROOT r = f32[{batch},6,50,50] dot(x, y), lhs_batch_dims={{0,2}}, rhs_batch_dims={{0,2}},
  lhs_contracting_dims={{3}}, rhs_contracting_dims={{3}}
}}"""

    assert _ns(text(24)) < 1.2 * _ns(text(16)) * 24 / 16


@combined(
    {
        "type": ["f32", "bf16"],
        "contracted": [(2, 1), (1, 1), (2, 2)],
        "batch, rows, depth, columns": [
            (1, 300, 171, 77),  # a depth and rows that tiles do not divide
            (1, 1030, 64, 600),
            (19, 490, 64, 181),  # several elements of the batch at a time, and what is left
            (33, 70, 300, 20),
            (12, 66, 469, 113),  # partitions with more neighbours of the depth make runs longer
            (36, 150, 50, 90),  # elements on either half of the partitions
            (41, 64, 100, 96),
            (25, 167, 394, 61),  # rows of several elements as one sequence
            (16, 128, 512, 64),  # rows that DMA engines may turn
            (9, 2, 40, 3),
            (1, 1, 300, 700),
        ],
    }
)
def test_products(
    type: str, contracted: tuple[int, int], batch: int, rows: int, depth: int, columns: int
) -> None:
    left, right = contracted
    rng = np.random.default_rng(7)
    x = rng.standard_normal((batch, rows, depth)).astype(TYPES[type])
    y = rng.standard_normal((batch, depth, columns)).astype(TYPES[type])
    one, other = x.astype(float), y.astype(float)
    x = x if left == 2 else x.transpose(0, 2, 1).copy()
    y = y if right == 1 else y.transpose(0, 2, 1).copy()
    shapes = [f"{type}[{','.join(map(str, a.shape))}]" for a in (x, y)]
    text = f"""HloModule p
ENTRY e {{
 x = {shapes[0]} parameter(0)
 y = {shapes[1]} parameter(1)
 ROOT r = {type}[{batch},{rows},{columns}] dot(x, y), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
  lhs_contracting_dims={{{left}}}, rhs_contracting_dims={{{right}}}
}}"""
    (found,) = graph_compiler.compile(graph_compiler.parse_text(text), "trn2")(x, y)
    wanted, terms = one @ other, np.abs(one) @ np.abs(other)
    rounding = {"f32": 0.0, "bf16": 2.0**-8}[type] * np.abs(wanted)
    assert np.all(np.abs(found.astype(float) - wanted) <= 1e-5 * terms + rounding)


def _attention(type: str, heads: int, tokens: int, width: int) -> str:
    own, scores = f"{type}[{heads},{tokens},{width}]", f"{type}[{heads},{tokens},{tokens}]"
    sums = f"{type}[{heads},{tokens}]"
    return f"""HloModule a
plus {{ a = {type}[] parameter(0)
 b = {type}[] parameter(1)
 ROOT s = {type}[] add(a, b) }}
ENTRY e {{
 q = {own} parameter(0)
 k = {own} parameter(1)
 v = {own} parameter(2)
 x = {scores} dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
  rhs_contracting_dims={{2}}
 y = {scores} exponential(x)
 z = {type}[] constant(0)
 s = {sums} reduce(y, z), dimensions={{2}}, to_apply=plus
 ss = {scores} broadcast(s), dimensions={{0,1}}
 p = {scores} divide(y, ss)
 ROOT r = {own} dot(p, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
  rhs_contracting_dims={{1}}
}}"""


@combined(
    {
        "heads, tokens, width": [(17, 130, 16), (40, 77, 24)],
        "cores": [1, 2],
    }
)
def test_several_heads_at_a_time(heads: int, tokens: int, width: int, cores: int) -> None:
    text = _attention("f32", heads, tokens, width)
    rng = np.random.default_rng(9)
    q, k, v = (rng.standard_normal((heads, tokens, width)).astype(np.float32) / 2 for _ in "qkv")
    options = GraphOptions(logical_cores=cores)
    (found,) = graph_compiler.compile(graph_compiler.parse_text(text), "trn2", options)(q, k, v)
    powers = np.exp(q.astype(float) @ k.astype(float).transpose(0, 2, 1))
    wanted = powers / powers.sum(-1, keepdims=True) @ v.astype(float)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_heads_in_bf16_are_as_exact_as_their_roundings() -> None:
    heads, tokens, width = 24, 150, 32
    rng = np.random.default_rng(10)
    shape = heads, tokens, width
    q, k, v = ((rng.standard_normal(shape) / 2).astype(TYPES["bf16"]) for _ in "qkv")
    module = graph_compiler.parse_text(_attention("bf16", *shape))
    (found,) = graph_compiler.compile(module, "trn2")(q, k, v)
    scores = q.astype(float) @ k.astype(float).transpose(0, 2, 1)
    powers = np.exp(scores)
    shares = powers / powers.sum(-1, keepdims=True)
    error = np.abs(found.astype(float) - shares @ v.astype(float))
    # Scores, their exponentials, the sum, the quotient and the result are each rounded to bf16.
    assert (error <= 2.0**-9 * (shares * (np.abs(scores) + 4)) @ np.abs(v.astype(float))).all()
