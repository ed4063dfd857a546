"""Projections that are cut into heads and transposed: products take views of them. The evaluator
says what the products are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, evaluate, parse_text
from graph_compiler.lower.casts import demote, round_in_products
from graph_compiler.lower.rewrites.layouts import row_major_for_products
from graph_compiler.schedule.simplify import Simplifier
from graph_compiler.timing import static_timeline
from nki.ir.nodes import operations

HEADS = """HloModule heads
ENTRY e {
 x = f32[128,256] parameter(0)
 w = f32[256,256] parameter(1)
 b = f32[256] parameter(2)
 k = f32[4,128,64] parameter(3)
 p = f32[128,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 bs = f32[128,256] broadcast(b), dimensions={1}
 s = f32[128,256] add(p, bs)
 h = f32[128,4,64] reshape(s)
 t = f32[4,128,64] transpose(h), dimensions={1,0,2}
 d = f32[4,128,128] dot(t, k), lhs_batch_dims={0}, rhs_batch_dims={0},
   lhs_contracting_dims={2}, rhs_contracting_dims={2}
 ROOT r = (f32[4,128,128]) tuple(RESULTS)
}"""


def heads(results: str = "d") -> Any:
    text = HEADS.replace("RESULTS", results)
    if results != "d":
        text = text.replace("(f32[4,128,128]) tuple", "(f32[4,128,128], f32[4,128,64]) tuple")
    return parse_text(text)


def inputs() -> list[Any]:
    random = np.random.default_rng(4)
    shapes = (128, 256), (256, 256), (256,), (4, 128, 64)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def kept(module: Any, **options: Any) -> list[tuple[str, str]]:
    block = Simplifier(module).block(module.entry)
    demote(block, GraphOptions(**options))
    return [(node.op, node.type) for node in row_major_for_products(block)]


def test_what_only_products_take_is_kept_in_its_own_order() -> None:
    assert kept(heads()) == [("add", "f32")]


def test_a_cast_comes_before_the_order() -> None:
    assert kept(heads(), auto_cast="matmult") == [("convert", "bf16")]


def test_what_is_used_otherwise_is_not_kept() -> None:
    assert kept(heads("d, t")) == []


@pytest.mark.parametrize(("cast", "tolerance"), [("none", 1e-5), ("matmult", 2e-2)])
def test_products_of_heads(cast: str, tolerance: float) -> None:
    module, arrays = heads(), inputs()
    (found,) = compile(module, "trn2", GraphOptions(auto_cast=cast))(*arrays)
    (expected,) = evaluate(module, *arrays)
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def test_no_copy_goes_element_by_element() -> None:
    stages: dict[str, Any] = {}
    compile(heads(), "trn2", observe=lambda stage, made: stages.setdefault(stage, made))
    copies = [
        op.values[0]
        for body in stages["trace"].bodies
        for op in operations(body)
        if op.row.name == "dma_copy"
    ]
    assert copies and all(copy.strides[-1] == 1 for copy in copies)


BEHIND = """HloModule behind
ENTRY e {
 s = f32[BATCH,4,TOKENS,TOKENS] parameter(0)
 v = f32[BATCH,4,TOKENS,DEPTH] parameter(1)
 w = f32[WIDTH,96] parameter(2)
 e = f32[BATCH,4,TOKENS,TOKENS] exponential(s)
 d = DOT
 t = f32[BATCH,TOKENS,4,DEPTH] transpose(d), dimensions={ORDER}
 h = f32[BATCH,TOKENS,WIDTH] reshape(t)
 ROOT p = f32[BATCH,TOKENS,96] dot(h, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
}"""
DOTS = {
    "heads outside": (
        "f32[BATCH,4,TOKENS,DEPTH] dot(e, v), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, "
        "lhs_contracting_dims={3}, rhs_contracting_dims={2}",
        "0,2,1,3",
    ),
    "depth before rows": (
        "f32[BATCH,4,DEPTH,TOKENS] dot(v, e), lhs_batch_dims={0,1}, rhs_batch_dims={0,1}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={3}",
        "0,3,1,2",
    ),
}


def behind(form: str, batch: int, tokens: int, depth: int = 64) -> Any:
    dot, order = DOTS[form]
    text = BEHIND.replace("DOT", dot).replace("ORDER", order)
    text = text.replace("BATCH", str(batch)).replace("TOKENS", str(tokens))
    return parse_text(text.replace("DEPTH", str(depth)).replace("WIDTH", str(4 * depth)))


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize(
    ("batch", "tokens", "depth"),
    [(1, 128, 64), (2, 128, 48), (1, 200, 48), (3, 77, 64)],
)
@pytest.mark.parametrize("form", DOTS)
def test_heads_that_are_transposed_behind_their_product(
    form: str, batch: int, tokens: int, depth: int, cores: int
) -> None:
    random = np.random.default_rng(5)
    shapes = (batch, 4, tokens, tokens), (batch, 4, tokens, depth), (4 * depth, 96)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    scores, values, weights = (array.astype(np.float64) for array in arrays)
    mixed = (
        np.einsum("bhqk,bhkd->bqhd", np.exp(scores), values).reshape(batch, tokens, 4 * depth)
        @ weights
    )
    module = behind(form, batch, tokens, depth)
    (found,) = compile(module, "trn2", GraphOptions(logical_cores=cores))(*arrays)
    np.testing.assert_allclose(found, mixed, rtol=0, atol=1e-5 * np.abs(mixed).max())


@pytest.mark.parametrize("depth", [48, 64])
@pytest.mark.parametrize("form", DOTS)
def test_heads_stay_on_chip_for_the_product_behind_them(form: str, depth: int) -> None:
    program = compile(behind(form, 1, 128, depth), "trn2").kernel.program
    timeline = static_timeline(program)
    assert timeline is not None
    (core,) = timeline.cores
    assert core.bytes["sbuf->hbm"] == 128 * 96 * 4


def test_a_cast_behind_a_product_is_the_rounding_of_its_sums() -> None:
    module = behind("heads outside", 1, 128)
    block = Simplifier(module).block(module.entry)
    demote(block, GraphOptions(auto_cast="matmult"))
    round_in_products(block)
    assert [node.type for node in block.nodes if node.op == "dot"] == ["bf16", "f32"]
    assert sum(node.op == "convert" for node in block.nodes) == 3  # of the arguments


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_heads_that_are_cast(target: str) -> None:
    random = np.random.default_rng(6)
    shapes = (1, 4, 128, 128), (1, 4, 128, 64), (256, 96)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    weights, values = rounded(np.exp(arrays[0])), rounded(arrays[1])
    heads = np.einsum("bhqk,bhkd->bqhd", weights, values).reshape(1, 128, 256)
    mixed = rounded(heads) @ rounded(arrays[2])
    module = behind("heads outside", 1, 128)
    (found,) = compile(module, target, GraphOptions(auto_cast="matmult"))(*arrays)
    np.testing.assert_allclose(found, mixed, rtol=0, atol=1e-2 * np.abs(mixed).max())


def rounded(array: Any) -> Any:
    return array.astype(ml_dtypes.bfloat16).astype(np.float32)
