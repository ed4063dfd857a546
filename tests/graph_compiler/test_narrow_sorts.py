"""Sorts of which few elements are read, on the device, against NumPy's stable sorts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, parse_text

BEFORE = """before { a = f32[] parameter(0)
 b = f32[] parameter(1)
 i = s32[] parameter(2)
 j = s32[] parameter(3)
 zero = f32[] constant(0)
 none = f32[] constant(nan)
 az = pred[] compare(a, zero), direction=EQ
 ax = f32[] select(az, zero, a)
 an = pred[] compare(a, a), direction=NE
 ay = f32[] select(an, none, ax)
 bz = pred[] compare(b, zero), direction=EQ
 bx = f32[] select(bz, zero, b)
 bn = pred[] compare(b, b), direction=NE
 by = f32[] select(bn, none, bx)
 ROOT r = pred[] compare(ay, by), direction=LT, type=TOTALORDER }"""
"""As frameworks write it: zeros are equal, and what is no number comes last."""


def graph(rows: int, count: int, first: int, end: int, turned: bool = False) -> str:
    """Values and places of a sort, from one to before another."""
    size = end - first
    slices = f"slice={{[0:{rows}],[{first}:{end}]}}"
    turn = f"f32[{rows},{count}] {{}}(v){{}}"
    turn = turn.format("reverse", ", dimensions={1}") if turned else turn.format("copy", "")
    return f"""HloModule m
{BEFORE}
ENTRY e {{
 x = f32[{rows},{count}] parameter(0)
 i = s32[{rows},{count}] iota(), iota_dimension=1
 s = (f32[{rows},{count}], s32[{rows},{count}]) sort(x, i), dimensions={{1}}, is_stable=true, \
to_apply=before
 v = f32[{rows},{count}] get-tuple-element(s), index=0
 p = s32[{rows},{count}] get-tuple-element(s), index=1
 w = {turn}
 vs = f32[{rows},{size}] slice(w), {slices}
 ps = s32[{rows},{size}] slice(p), {slices}
 ROOT r = (f32[{rows},{size}], s32[{rows},{size}]) tuple(vs, ps)
}}"""


def values(rows: int, count: int) -> Any:
    rng = np.random.default_rng(9)
    x = rng.integers(-5, 6, (rows, count)).astype(np.float32)
    x[rng.random(x.shape) < 0.1] = -0.0
    x[rng.random(x.shape) < 0.05] = np.nan
    x[rng.random(x.shape) < 0.05] = -np.inf
    x[rng.random(x.shape) < 0.03] = np.copysign(np.float32(np.nan), -1)
    return x


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize(
    ("rows", "count", "first", "end"),
    [
        (130, 40, 0, 5),
        (3, 77, 70, 77),
        (3, 77, 74, 75),  # one of the last ones
        (5, 60, 2, 9),
        (2, 5000, 4991, 5000),  # in parts
        (4, 50, 20, 30),  # in the middle, so all are sorted
    ],
)
def test_the_first_or_last_of_rows(
    rows: int, count: int, first: int, end: int, target: str
) -> None:
    """Equal ones in the order of their places, with the bits that they have."""
    x = values(rows, count)
    found, places = compile(parse_text(graph(rows, count, first, end)), target)(x)
    wanted = np.argsort(x, axis=1, kind="stable")[:, first:end]
    np.testing.assert_array_equal(places, wanted)
    assert np.asarray(found).tobytes() == np.take_along_axis(x, wanted, 1).tobytes()


def test_rows_that_are_read_backward() -> None:
    """Some from one end, the others from the other one: all are sorted."""
    x = values(6, 90)
    found, places = compile(parse_text(graph(6, 90, 0, 4, turned=True)), "trn2")(x)
    order = np.argsort(x, axis=1, kind="stable")
    np.testing.assert_array_equal(places, order[:, :4])
    wanted = np.take_along_axis(x, order, 1)[:, ::-1][:, :4]
    assert np.asarray(found).tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("first", "end"), [(0, 8), (1016, 1024)])
def test_few_elements_take_few_passes(first: int, end: int) -> None:
    """A sort of all takes 1,766 us."""
    x = values(128, 1024)
    assert compile(parse_text(graph(128, 1024, first, end)), "trn2").profile(x)[-1].total_ns < 60e3


def test_long_rows_that_go_down_in_memory_are_sorted() -> None:
    text = f"""HloModule m
{BEFORE}
ENTRY e {{
 x = f32[1,4100] parameter(0)
 y = f32[1,4100] reverse(x), dimensions={{1}}
 i = s32[1,4100] iota(), iota_dimension=1
 ROOT s = (f32[1,4100], s32[1,4100]) sort(y, i), dimensions={{1}}, is_stable=true, to_apply=before
}}"""
    x = values(1, 4100)
    _, places = compile(parse_text(text), "trn2")(x)
    np.testing.assert_array_equal(places, np.argsort(x[:, ::-1], axis=1, kind="stable"))
