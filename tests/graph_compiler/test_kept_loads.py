"""Weights that many steps read are loaded once where there is room. NumPy says what steps make."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, parse_text
from isa.operations.dma import DmaCopy
from nki.ir.nodes import Loop, walk

Array = np.ndarray[Any, Any]

LOOP = """HloModule loop
body {
 s = (s32[], f32[16,SIZE], f32[SIZE,SIZE]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 h = f32[16,SIZE] get-tuple-element(s), index=1
 w = f32[SIZE,SIZE] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
 d = f32[16,SIZE] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 t = f32[16,SIZE] tanh(d)
 ROOT r = (s32[], f32[16,SIZE], f32[SIZE,SIZE]) tuple(j, t, w)
}
goes_on {
 s = (s32[], f32[16,SIZE], f32[SIZE,SIZE]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(20)
 ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
 x = f32[16,SIZE] parameter(0)
 w = f32[SIZE,SIZE] parameter(1)
 zero = s32[] constant(0)
 a = (s32[], f32[16,SIZE], f32[SIZE,SIZE]) tuple(zero, x, w)
 l = (s32[], f32[16,SIZE], f32[SIZE,SIZE]) while(a), condition=goes_on, body=body
 ROOT r = f32[16,SIZE] get-tuple-element(l), index=1
}"""


def straight(steps: int) -> str:
    lines = "".join(
        f" d{n} = f32[16,SIZE] dot(t{n}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
        f"\n t{n + 1} = f32[16,SIZE] tanh(d{n})\n"
        for n in range(steps)
    )
    return (
        "HloModule straight\nENTRY e {\n t0 = f32[16,SIZE] parameter(0)\n"
        f" w = f32[SIZE,SIZE] parameter(1)\n{lines} ROOT r = f32[16,SIZE] add(t{steps}, t1)\n}}"
    )


def inputs(size: int) -> tuple[Array, Array]:
    random = np.random.default_rng(size)
    x, w = random.standard_normal((16, size)), random.standard_normal((size, size)) / size**0.5
    return x.astype(np.float32), w.astype(np.float32)


def loaded(text: str, size: int, optimisation: int = 2) -> tuple[int, int]:
    """How many elements of the weights are loaded by a program, and by loops in it."""
    stages: dict[str, Any] = {}
    options = GraphOptions(optimisation=optimisation)
    compile(parse_text(text), "trn2", options, lambda stage, made: stages.setdefault(stage, made))
    found = [0, 0]
    for body in stages["trace"].bodies:
        inside = {one for node in body if isinstance(node, Loop) for one in walk(node.body)}
        for op in walk(body):
            if getattr(op, "row", None) is DmaCopy:
                source = op.fields["src"]
                if math.prod(source.storage.shape) == size * size:
                    found[op in inside] += math.prod(source.shape)
    return found[0], found[1]


def test_what_no_iteration_changes_is_loaded_before_the_loop() -> None:
    text = LOOP.replace("SIZE", "256")
    assert loaded(text, 256) == (256 * 256, 0)
    assert loaded(text, 256, optimisation=1) == (0, 256 * 256)
    x, w = inputs(256)
    (found,) = compile(parse_text(text), "trn2")(x, w)
    for _ in range(20):
        x = np.tanh(x @ w)
    np.testing.assert_allclose(found, x, 0, 1e-4)


def test_what_steps_repeat_is_loaded_once() -> None:
    text = straight(5).replace("SIZE", "256")
    assert loaded(text, 256) == (256 * 256, 0)
    x, w = inputs(256)
    (found,) = compile(parse_text(text), "trn2")(x, w)
    states = [x]
    for _ in range(5):
        states.append(np.tanh(states[-1] @ w))
    np.testing.assert_allclose(found, states[-1] + states[1], 0, 1e-5)


@pytest.mark.parametrize("text", [LOOP, straight(3)])
def test_what_has_no_room_is_loaded_again(text: str) -> None:
    """Some of 2048 x 2048 weights, 128 KiB of a partition, are loaded again."""
    before, inside = loaded(text.replace("SIZE", "2048"), 2048)
    assert inside or before > 2048 * 2048
