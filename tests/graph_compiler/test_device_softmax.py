"""Quotients by sums of exponentials, against float64: what is known of the sums spares operations,
and changes no result."""

from __future__ import annotations

import numpy as np
import pytest
from operator_values import FOLDS

from graph_compiler import compile, parse_text
from graph_compiler.lower.assemble import assemble
from isa.target import TARGETS
from nki.ir.nodes import operations

GRAPH = (
    f"HloModule quotients\n{FOLDS}"
    + """ENTRY e {
 x = f32[128,200] parameter(0)
 least = f32[] constant(LEAST)
 zero = f32[] constant(0)
 lows = f32[128] broadcast(least), dimensions={}
 most = f32[128] reduce(x, least), dimensions={1}, to_apply=larger
 m = f32[128] maximum(lows, most)
 ms = f32[128,200] broadcast(m), dimensions={0}
 d = f32[128,200] subtract(x, ms)
 y = f32[128,200] exponential(d)
 s = f32[128] reduce(y, zero), dimensions={1}, to_apply=plus
 ss = f32[128,200] broadcast(s), dimensions={0}
 ROOT r = f32[128,200] divide(y, ss)
}"""
)


def graph(least: str) -> str:
    return GRAPH.replace("LEAST", least)


def quotients(x: np.ndarray, least: float) -> np.ndarray:
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        y = np.exp(wide - np.maximum(wide.max(1, keepdims=True), least))
        return y / y.sum(1, keepdims=True)


@pytest.mark.parametrize(("least", "number"), [("-inf", -np.inf), ("80", 80.0)])
def test_quotients_agree_with_float64(least: str, number: float) -> None:
    """Behind a largest number of 80 sums are as small as fp32 has them, and need their scaling."""
    x = np.random.default_rng(3).standard_normal((128, 200)).astype(np.float32)
    x[1] = -3e38
    x[2, 5] = 3e38
    x[3, 7] = -np.inf
    if np.isinf(number):
        x[4], x[5, 1], x[6, 2] = -np.inf, np.inf, np.nan
    else:
        x[1] = 0
    (found,) = compile(parse_text(graph(least)), "trn2")(x)
    wanted = quotients(x, number)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-37)


def test_only_sums_with_a_largest_exponential_of_one_are_inverted_as_they_are() -> None:
    def count(least: str) -> int:
        kernel = assemble(parse_text(graph(least)), TARGETS["trn2"])
        return sum(1 for body in kernel.bodies for _ in operations(body))

    assert count("-inf") < count("80")
    # What scales a sum, and the quotient of the scale: `nki.language.lowering.division`.
    assert count("80") - count("-inf") >= 4


def test_a_widened_value_is_kept_in_its_own_type() -> None:
    """Rows that several steps read in fp32 stay on chip as the bf16 numbers that they are."""
    text = """HloModule m
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 x = bf16[128,512] parameter(0)
 y = bf16[128,512] parameter(1)
 zero = f32[] constant(0)
 p = bf16[128,512] multiply(x, y)
 q = bf16[128,512] add(p, x)
 w = f32[128,512] convert(q)
 s = f32[128] reduce(w, zero), dimensions={1}, to_apply=plus
 ss = f32[128,512] broadcast(s), dimensions={0}
 ROOT r = f32[128,512] subtract(w, ss)
}"""
    kernel = assemble(parse_text(text), TARGETS["trn2"])
    widened = [
        op
        for body in kernel.bodies
        for op in operations(body)
        if op.row.name == "tensor_copy" and [view.dtype for view in op.values[:2]] == CONVERSION
    ]
    assert widened == []


CONVERSION = ["float32", "bfloat16"]


MASKED = """HloModule masked
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
ENTRY e {
 q = f32[256,64] parameter(0)
 k = f32[64,COLUMNS] parameter(1)
 mask = pred[256,COLUMNS] parameter(2)
 low = f32[] constant(-1e30)
 least = f32[] constant(-inf)
 lows = f32[256,COLUMNS] broadcast(low), dimensions={}
 s = f32[256,COLUMNS] dot(q, k), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 half = f32[] constant(FACTOR)
 halves = f32[256,COLUMNS] broadcast(half), dimensions={}
 x = f32[256,COLUMNS] multiply(s, halves)
 c = f32[256,COLUMNS] select(mask, CHOSEN)
 m = f32[256] reduce(c, least), dimensions={1}, to_apply=larger
 ms = f32[256,COLUMNS] broadcast(m), dimensions={0}
 ROOT d = f32[256,COLUMNS] subtract(c, ms)
}"""


@pytest.mark.parametrize("columns", [200, 1100])
@pytest.mark.parametrize("chosen", ["x, lows", "lows, x"])
@pytest.mark.parametrize("factor", [1, 0.5])
def test_the_largest_of_what_is_chosen(columns: int, chosen: str, factor: float) -> None:
    """The vector engine compares while it chooses, block by block of a product's columns. What is
    not multiplied is chosen again where it is used again."""
    random = np.random.default_rng(5)
    q, k = (random.standard_normal(shape, np.float32) for shape in ((256, 64), (64, columns)))
    mask = random.random((256, columns)) < 0.5
    mask[3], mask[4] = True, False
    q[7, 0] = np.nan
    text = MASKED.replace("COLUMNS", str(columns)).replace("CHOSEN", chosen)
    text = text.replace("FACTOR", str(factor))
    compiled = compile(parse_text(text), "trn2")
    rows = {
        instruction.row.name
        for stream in compiled.kernel.program.cores[0].streams.values()
        for instruction in stream
    }
    assert "VectorReadAccumulator" in rows
    (found,) = compiled(q, k, mask)
    numbers = factor * (q.astype(np.float64) @ k.astype(np.float64))
    wanted = np.where(mask, *((numbers, -1e30) if chosen[0] == "x" else (-1e30, numbers)))
    wanted -= wanted.max(1, keepdims=True)
    np.testing.assert_allclose(found, wanted, 2e-6, 3e-5)
