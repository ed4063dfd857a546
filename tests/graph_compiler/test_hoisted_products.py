"""Products of what loops go through, before the loops. NumPy says what the loops compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_device import modelled_ns

from graph_compiler import compile, parse_text
from graph_compiler.lower.rewrites.hoisted_products import hoist_products
from graph_compiler.schedule.nodes import Block
from graph_compiler.schedule.simplify import Simplifier
from isa.target import TARGETS

STEPS, ROWS, WIDTH, SIZE = 12, 4, 24, 64

LOOP = """HloModule loop
body {
 s = STATE parameter(0)
 i = s32[] get-tuple-element(s), index=0
 h = f32[4,64] get-tuple-element(s), index=1
 xs = f32[STEPS,4,24] get-tuple-element(s), index=2
 v = f32[24,64] get-tuple-element(s), index=3
 w = f32[64,64] get-tuple-element(s), index=4
 u = f32[88,64] get-tuple-element(s), index=5
 b = f32[64] get-tuple-element(s), index=6
 one = s32[] constant(1)
 zero = s32[] constant(0)
 last = s32[] constant(11)
 j = s32[] add(i, one)
 back = s32[] subtract(last, i)
 part = f32[1,4,24] dynamic-slice(xs, PLACE, zero, zero), dynamic_slice_sizes={1,4,24}
 x = f32[4,24] reshape(part)
 bs = f32[4,64] broadcast(b), dimensions={1}
 xv = f32[4,64] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 hw = f32[4,64] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 apart = f32[4,64] add(xv, hw)
 xh = f32[4,88] concatenate(x, h), dimensions={1}
 joined = f32[4,64] dot(xh, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 total = f32[4,64] add(SUMS, bs)
 t = f32[4,64] tanh(total)
 ROOT r = STATE tuple(j, t, xs, v, w, u, b)
}
goes_on {
 s = STATE parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(12)
 ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
 h = f32[4,64] parameter(0)
 xs = f32[STEPS,4,24] parameter(1)
 v = f32[24,64] parameter(2)
 w = f32[64,64] parameter(3)
 u = f32[88,64] parameter(4)
 b = f32[64] parameter(5)
 zero = s32[] constant(0)
 a = STATE tuple(zero, h, xs, v, w, u, b)
 l = STATE while(a), condition=goes_on, body=body
 ROOT r = f32[4,64] get-tuple-element(l), index=1
}"""

STATE = "(s32[], f32[4,64], f32[STEPS,4,24], f32[24,64], f32[64,64], f32[88,64], f32[64])"


def graph(place: str = "i", sums: str = "apart", steps: int = STEPS) -> Any:
    text = LOOP.replace("STATE", STATE).replace("PLACE", place).replace("SUMS", sums)
    return parse_text(text.replace("STEPS", str(steps)))


def blocks(module: Any) -> tuple[Block, Block]:
    """The graph with products before loops, and what its loop does."""
    block = Simplifier(module).block(module.entry)
    hoist_products(block, TARGETS["trn2"])
    (loop,) = [node for node in block.nodes if node.op == "while"]
    return block, loop.blocks[0]


@pytest.mark.parametrize("place", ["i", "back"])
@pytest.mark.parametrize("sums", ["apart", "joined"])
def test_what_steps_multiply_alone_is_multiplied_before(place: str, sums: str) -> None:
    """One product of all steps, and one in the loop; the bias is added before it where it is added
    to a product alone."""
    block, body = blocks(graph(place, sums))
    needed = block.uses()
    before = [node.dims for node in block.nodes if node.op == "dot" and node in needed]
    assert before == [(STEPS, ROWS, SIZE)]
    needed = body.uses()
    inside = [node for node in body.nodes if node in needed]
    assert [node.dims for node in inside if node.op == "dot"] == [(ROWS, SIZE)]
    assert sum(node.op == "add" and node.dims != () for node in inside) == 1 + (sums == "apart")
    random = np.random.default_rng(0)
    h, xs, v, w, u, b = (
        (random.standard_normal(shape) / 4).astype(np.float32)
        for shape in (
            (ROWS, SIZE),
            (STEPS, ROWS, WIDTH),
            (WIDTH, SIZE),
            (SIZE, SIZE),
            (WIDTH + SIZE, SIZE),
            (SIZE,),
        )
    )
    (found,) = compile(graph(place, sums), "trn2")(h, xs, v, w, u, b)
    for x in xs if place == "i" else xs[::-1]:
        product = x @ v + h @ w if sums == "apart" else np.concatenate([x, h], 1) @ u
        h = np.tanh(product + b)
    np.testing.assert_allclose(found, h, 0, 1e-5)


def test_rows_that_no_step_may_read_are_not_multiplied() -> None:
    """Of a table that is longer than the loop, steps read a part."""
    block, body = blocks(graph(steps=100))
    assert not any(node.op == "dot" for node in block.nodes)
    assert sum(node.op == "dot" for node in body.nodes) == 3


def test_a_step_takes_what_its_chain_of_instructions_takes() -> None:
    """Below 3 us: two microseconds are what one load from memory takes."""
    assert modelled_ns(compile(graph(), "trn2")) < 3000 * STEPS + 15000
