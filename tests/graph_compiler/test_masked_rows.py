"""Softmax that is zero in rows of -infinity, as PyTorch states it, against its formula."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from operator_values import FOLDS

from graph_compiler import compile, parse_text
from graph_compiler.lower.assemble import assemble
from isa.target import TARGETS
from nki.ir.nodes import operations

GRAPH = (
    f"HloModule quotients\n{FOLDS}"
    + """some { a = pred[] parameter(0)
 b = pred[] parameter(1)
 ROOT s = pred[] or(a, b) }
every { a = pred[] parameter(0)
 b = pred[] parameter(1)
 ROOT s = pred[] and(a, b) }
ENTRY e {
 p = f32[ROWS,200] parameter(0)
 c = f32[] constant(FACTOR)
 cs = f32[ROWS,200] broadcast(c), dimensions={}
 x = f32[ROWS,200] multiply(p, cs)
 least = f32[] constant(-inf)
 zero = f32[] constant(ZERO)
 nothing = f32[] constant(0)
 no = pred[] constant(false)
 yes = pred[] constant(true)
 lows = f32[ROWS,200] broadcast(least), dimensions={}
 zeros = f32[ROWS,200] broadcast(zero), dimensions={}
 most = f32[ROWS] reduce(x, least), dimensions={1}, to_apply=larger
 ms = f32[ROWS,200] broadcast(most), dimensions={0}
 d = f32[ROWS,200] subtract(x, ms)
 y = f32[ROWS,200] exponential(d)
 s = f32[ROWS] reduce(y, nothing), dimensions={1}, to_apply=plus
 ss = f32[ROWS,200] broadcast(s), dimensions={0}
 q = f32[ROWS,200] divide(y, ss)
 same = pred[ROWS,200] compare(x, lows), direction=EQ
 other = pred[ROWS,200] compare(x, lows), direction=NE
 not_same = pred[ROWS,200] not(same)
CHOICE
}"""
)

CHOICES = {
    "torch": """ any = pred[ROWS] reduce(not_same, no), dimensions={1}, to_apply=some
 row = pred[ROWS,1] reshape(any)
 none = pred[ROWS,1] not(row)
 flat = pred[ROWS] reshape(none)
 mask = pred[ROWS,200] broadcast(flat), dimensions={0}
 ROOT r = f32[ROWS,200] select(mask, zeros, q)""",
    "any": """ any = pred[ROWS] reduce(other, no), dimensions={1}, to_apply=some
 mask = pred[ROWS,200] broadcast(any), dimensions={0}
 ROOT r = f32[ROWS,200] select(mask, q, zeros)""",
    "all": """ all = pred[ROWS] reduce(same, yes), dimensions={1}, to_apply=every
 mask = pred[ROWS,200] broadcast(all), dimensions={0}
 ROOT r = f32[ROWS,200] select(mask, zeros, q)""",
    "not all": """ all = pred[ROWS] reduce(same, yes), dimensions={1}, to_apply=every
 not = pred[ROWS] not(all)
 mask = pred[ROWS,200] broadcast(not), dimensions={0}
 ROOT r = f32[ROWS,200] select(mask, q, zeros)""",
}

OTHERS = {
    "rows that have some": """ any = pred[ROWS] reduce(same, no), dimensions={1}, to_apply=some
 mask = pred[ROWS,200] broadcast(any), dimensions={0}
 ROOT r = f32[ROWS,200] select(mask, zeros, q)""",
    "the reverse": """ any = pred[ROWS] reduce(other, no), dimensions={1}, to_apply=some
 mask = pred[ROWS,200] broadcast(any), dimensions={0}
 ROOT r = f32[ROWS,200] select(mask, zeros, q)""",
    "elements": " ROOT r = f32[ROWS,200] select(same, zeros, q)",
    "a plain quotient": " ROOT r = f32[ROWS,200] add(q, zeros)",
}


def graph(choice: str, factor: str = "1", zero: str = "0", rows: int = 128) -> str:
    text = GRAPH.replace("CHOICE", choice).replace("FACTOR", factor).replace("ZERO", zero)
    return text.replace("ROWS", str(rows))


def numbers() -> np.ndarray:
    x = np.random.default_rng(3).standard_normal((128, 200)).astype(np.float32)
    x[::5, 3:] = -np.inf
    x[1] = x[7] = -np.inf
    x[2, 5], x[3, 6] = np.inf, np.nan
    x[4] = np.finfo(np.float32).min
    x[6], x[6, 1] = -np.inf, np.nan
    return x


def quotients(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        y = np.exp(wide - wide.max(1, keepdims=True))
        return y / y.sum(1, keepdims=True)


@pytest.mark.parametrize("factor", ["1", "0.125", "3"])
@pytest.mark.parametrize("choice", CHOICES)
def test_rows_of_minus_infinity_are_zeros(choice: str, factor: str) -> None:
    x = numbers()
    (found,) = compile(parse_text(graph(CHOICES[choice], factor)), "trn2")(x)
    with np.errstate(over="ignore"):
        scaled = x * np.float32(factor)
    masked = (scaled == -np.inf).all(1, keepdims=True)
    wanted = np.where(masked, 0.0, quotients(scaled))
    assert not found[1].any() and not found[7].any()
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-30)


@pytest.mark.parametrize("choice", OTHERS)
def test_other_choices_stay(choice: str) -> None:
    x = numbers()
    (found,) = compile(parse_text(graph(OTHERS[choice])), "trn2")(x)
    same = x == -np.inf
    mask = {
        "rows that have some": same.any(1, keepdims=True),
        "the reverse": (~same).any(1, keepdims=True),
        "elements": same,
        "a plain quotient": np.zeros_like(same),
    }[choice]
    np.testing.assert_allclose(found, np.where(mask, 0.0, quotients(x)), rtol=2e-6, atol=1e-30)


def test_a_choice_of_other_numbers_stays() -> None:
    x = numbers()
    (found,) = compile(parse_text(graph(CHOICES["torch"], zero="7")), "trn2")(x)
    assert (found[1] == 7).all()


def test_rows_of_scaled_differences_and_of_bfloat16_are_zeros() -> None:
    """Three times the lowest number would be none, and bf16 has no number that low."""
    x = numbers()
    scaled = GRAPH.replace(
        " d = f32[ROWS,200] subtract(x, ms)\n",
        " t = f32[] constant(-3)\n ts = f32[ROWS] broadcast(t), dimensions={}\n"
        " three = f32[] constant(3)\n threes = f32[ROWS,200] broadcast(three), dimensions={}\n"
        " xs = f32[ROWS,200] multiply(x, threes)\n mt = f32[ROWS] multiply(most, ts)\n"
        " mts = f32[ROWS,200] broadcast(mt), dimensions={0}\n d = f32[ROWS,200] add(xs, mts)\n",
    )
    for text, dtype in ((scaled, np.float32), (GRAPH.replace("f32", "bf16"), ml_dtypes.bfloat16)):
        text = text.replace("CHOICE", CHOICES["any"]).replace("ROWS", "128")
        text = text.replace("FACTOR", "1").replace("ZERO", "0")
        if dtype != np.float32:
            text = text.replace("f32", "bf16")
        (found,) = compile(parse_text(text), "trn2")(x.astype(dtype))
        assert not found[[1, 7]].any()


def test_the_choice_costs_no_pass_over_the_elements() -> None:
    """One operation more on each tile of rows, and its tensor, than the softmax itself has."""

    def count(choice: str) -> int:
        kernel = assemble(parse_text(graph(choice)), TARGETS["trn2"])
        return sum(1 for body in kernel.bodies for _ in operations(body))

    assert count(CHOICES["torch"]) <= count(OTHERS["a plain quotient"]) + 2
