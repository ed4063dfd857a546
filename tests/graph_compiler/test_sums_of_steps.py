"""Sums of products over the iterations of loops. NumPy says what the loops compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.lower.rewrites.sums_of_steps import sum_behind_loops
from graph_compiler.schedule.simplify import Simplifier

STEPS, ROWS, WIDTH, SIZE = 6, 4, 24, 40

LOOP = """HloModule loop
body {
 s = STATE parameter(0)
 i = s32[] get-tuple-element(s), index=0
 total = f32[TOTAL] get-tuple-element(s), index=1
 h = f32[4,40] get-tuple-element(s), index=2
 xs = f32[6,4,24] get-tuple-element(s), index=3
 one = s32[] constant(1)
 zero = s32[] constant(0)
 most = s32[] constant(6)
 j = s32[] add(i, one)
 above = s32[] subtract(most, i)
 back = s32[] subtract(above, one)
 same = s32[] subtract(i, i)
 part = f32[1,4,24] dynamic-slice(xs, PLACE, zero, zero), dynamic_slice_sizes={1,4,24}
 x = f32[4,24] reshape(part)
 t = f32[4,40] tanh(h)
 plain = f32[24,40] dot(x, t), lhs_contracting_dims={0}, rhs_contracting_dims={0}
 other = f32[40,24] dot(t, x), lhs_contracting_dims={0}, rhs_contracting_dims={0}
 turned = f32[24,40] transpose(other), dimensions={1,0}
 square = f32[40,40] dot(t, h), lhs_contracting_dims={0}, rhs_contracting_dims={0}
 next = f32[TOTAL] add(total, VALUE)
 ROOT r = STATE tuple(j, next, t, xs)
}
goes_on {
 s = STATE parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(6)
 ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
 total = f32[TOTAL] parameter(0)
 h = f32[4,40] parameter(1)
 xs = f32[6,4,24] parameter(2)
 zero = s32[] constant(0)
 a = STATE tuple(zero, total, h, xs)
 l = STATE while(a), condition=goes_on, body=body
 t = f32[TOTAL] get-tuple-element(l), index=1
 last = f32[4,40] get-tuple-element(l), index=2
 ROOT r = (f32[TOTAL], f32[4,40]) tuple(t, last)
}"""

STATE = "(s32[], f32[TOTAL], f32[4,40], f32[6,4,24])"


def graph(place: str, value: str) -> Any:
    total = "40,40" if value == "square" else "24,40"
    text = LOOP.replace("STATE", STATE).replace("PLACE", place).replace("VALUE", value)
    return parse_text(text.replace("TOTAL", total))


@pytest.mark.parametrize(
    "place, value, moves",
    [
        ("i", "plain", True),
        ("back", "turned", True),
        ("i", "square", True),
        ("same", "plain", False),
    ],
)
def test_a_sum_of_products_is_one_product(place: str, value: str, moves: bool) -> None:
    """But where steps do not go through all of an array."""
    module = graph(place, value)
    block = Simplifier(module).block(module.entry)
    sum_behind_loops(block)
    (loop,) = [node for node in block.nodes if node.op == "while"]
    needed, inside = block.uses(), loop.blocks[0].uses()
    assert sum(node.op == "dot" for node in block.nodes if node in needed) == moves
    assert sum(node.op == "dot" for node in loop.blocks[0].nodes if node in inside) == (not moves)
    random = np.random.default_rng(0)
    shape = (SIZE, SIZE) if value == "square" else (WIDTH, SIZE)
    total, h, xs = (
        random.standard_normal(form).astype(np.float32)
        for form in (shape, (ROWS, SIZE), (STEPS, ROWS, WIDTH))
    )
    found = compile(graph(place, value), "trn2")(total, h, xs)
    for step in range(STEPS):
        x = xs[{"i": step, "back": STEPS - 1 - step, "same": 0}[place]]
        before, h = h, np.tanh(h)
        total = total + (h.T @ before if value == "square" else x.T @ h)
    np.testing.assert_allclose(found[0], total, 0, 1e-4)
    np.testing.assert_allclose(found[1], h, 0, 1e-5)
