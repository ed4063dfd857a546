"""Factors and sums of columns in front of products with constants, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, freeze, parse_text
from graph_compiler.lower.assemble import assemble
from isa.target import TARGETS
from nki.ir.nodes import operations

ROWS, DEPTH, COLUMNS = 40, 24, 136

NORM = """HloModule norm
ENTRY e {
 x = f32[4,10,24] parameter(0)
 g = f32[24] parameter(1)
 b = f32[24] parameter(2)
 w = f32[WEIGHTS] parameter(3)
 c = f32[136] parameter(4)
 gs = f32[4,10,24] broadcast(g), dimensions={2}
 bs = f32[4,10,24] broadcast(b), dimensions={2}
 t = f32[4,10,24] tanh(x)
 n = f32[4,10,24] multiply(t, gs)
 m = f32[4,10,24] add(n, bs)
 unread = f32[4,10,24] multiply(m, gs)
 unread.2 = f32[4,10,24] add(unread, bs)
 f = f32[40,24] reshape(m)
 d = f32[40,136] dot(f, w), lhs_contracting_dims={1}, rhs_contracting_dims={SIDE}
 cs = f32[40,136] broadcast(c), dimensions={1}
 ROOT r = RESULT
}"""
SUM = "f32[40,136] add(cs, d)"


def graph(result: str = SUM, side: int = 0, **weights: Any) -> Any:
    """The graph with frozen weights, and these."""
    random = np.random.default_rng(3)
    shape = (DEPTH, COLUMNS) if side == 0 else (COLUMNS, DEPTH)
    values = {
        "g": random.uniform(0.5, 2, DEPTH),
        "b": random.standard_normal(DEPTH),
        "w": random.standard_normal(shape),
        "c": random.standard_normal(COLUMNS),
    } | weights
    values = {name: np.asarray(value, np.float32) for name, value in values.items()}
    text = NORM.replace("RESULT", result).replace("SIDE", str(side))
    text = text.replace("WEIGHTS", f"{shape[0]},{shape[1]}")
    return freeze(parse_text(text), values), values


def wide_operations(module: Any) -> int:
    """Operations of the vector engine that take a tile of all of the operand's columns."""
    (body,) = assemble(module, TARGETS["trn1"]).bodies
    shapes = [
        value.shape
        for op in operations(body)
        if op.row.name in {"tensor_tensor", "scalar_tensor_tensor"}
        for value in op.values[:1]
    ]
    return sum(shape[-1] == DEPTH for shape in shapes)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("shifts", ["some", "none"])
def test_weights_take_factors_and_sums(side: int, shifts: str) -> None:
    module, w = graph(side=side, **({} if shifts == "some" else {"b": np.zeros(DEPTH)}))
    assert wide_operations(module) == 0
    x = np.random.default_rng(4).standard_normal((4, 10, DEPTH)).astype(np.float32)
    (found,) = compile(module, "trn1")(x)
    own = {name: value.astype(np.float64) for name, value in w.items()}
    weights = own["w"] if side == 0 else own["w"].T
    t = np.tanh(x.astype(np.float64)).reshape(ROWS, DEPTH)
    expected = (t * own["g"] + own["b"]) @ weights + own["c"]
    terms = (abs(t * own["g"]) + abs(own["b"])) @ abs(weights) + abs(own["c"])
    assert (np.abs(found - expected) <= 60 * 2.0**-24 * terms).all()


@pytest.mark.parametrize(
    "result",
    [
        "f32[40,136] negate(d)",  # no sum behind the product
        "(f32[40,136], f32[4,10,24]) tuple(d, m)",
        "(f32[40,136], f32[40,136]) tuple(d, cs)",
    ],
)
def test_what_others_read_stays(result: str) -> None:
    assert wide_operations(graph(result)[0]) > 0


def test_factors_that_leave_weights_few_bits_stay() -> None:
    assert wide_operations(graph(g=np.geomspace(1e-37, 1, DEPTH))[0]) > 0


def test_sums_of_no_finite_size_stay() -> None:
    big = np.full(DEPTH, 2e38)
    assert wide_operations(graph(b=big, w=np.full((DEPTH, COLUMNS), 1.0))[0]) > 0
