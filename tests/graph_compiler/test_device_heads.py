"""Projections that are cut into heads and transposed: products take views of them. The evaluator
says what the products are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, evaluate, parse_text
from graph_compiler.execute.simplify import Simplifier
from graph_compiler.lower.casts import demote
from graph_compiler.lower.kept import kept_for_products
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
    return [(node.op, node.type) for node in kept_for_products(block)]


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
