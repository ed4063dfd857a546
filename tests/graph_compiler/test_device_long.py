"""Reductions and windows that do not fit into a tile, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.lower.movement import sorting

BEST = """best { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(b, a), direction=GT
  same = pred[] compare(b, a), direction=EQ
  before = pred[] compare(j, i), direction=LT
  tie = pred[] and(same, before)
  take = pred[] or(more, tie)
  v = f32[] select(take, b, a)
  k = s32[] select(take, j, i)
  ROOT t = (f32[], s32[]) tuple(v, k) }"""


@pytest.mark.parametrize(
    ("dims", "axes", "left"),
    [((130, 2500), "0,1", ""), ((2, 9001), "1", "2"), ((3, 40, 700), "1,2", "3")],
)
def test_a_fold_of_two_arrays_over_many_elements(
    dims: tuple[int, ...], axes: str, left: str
) -> None:
    sizes = ",".join(map(str, dims))
    text = f"""HloModule m
    {BEST}
    ENTRY e {{ x = f32[{sizes}] parameter(0)
      i = s32[{sizes}] parameter(1)
      least = f32[] constant(-inf)
      last = s32[] constant(2147483647)
      ROOT r = (f32[{left}], s32[{left}]) reduce(x, i, least, last), dimensions={{{axes}}},
        to_apply=best }}"""
    x = np.random.default_rng(1).integers(0, 900, dims).astype(np.float32)
    rows = x.reshape(int(left or 1), -1)
    places = np.broadcast_to(np.arange(rows.shape[1], dtype=np.int32), rows.shape)
    value, place = compile(parse_text(text), "trn2")(x, places.reshape(dims).copy())
    np.testing.assert_array_equal(np.ravel(value), rows.max(1))
    np.testing.assert_array_equal(np.ravel(place), rows.argmax(1))


def windows(type: str, fold: str, window: str, result: str) -> Any:
    initial = {"add": 0, "maximum": "-inf"}[fold]
    return parse_text(f"""HloModule m
    fold {{ a = {type}[] parameter(0)
      b = {type}[] parameter(1)
      ROOT r = {type}[] {fold}(a, b) }}
    ENTRY e {{ x = {type}[6,3000] parameter(0)
      initial = {type}[] constant({initial})
      ROOT r = {type}[{result}] reduce-window(x, initial), window={{{window}}}, to_apply=fold }}""")


@pytest.mark.parametrize(("type", "unit"), [("f32", 2.0**-23), ("bf16", 2.0**-8), ("s32", 0.0)])
def test_sums_up_to_each_element(type: str, unit: float) -> None:
    dtype = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "s32": np.int32}[type]
    x = (np.random.default_rng(2).standard_normal((6, 3000)) * 100).astype(dtype)
    module = windows(type, "add", "size=1x3000 pad=0_0x2999_0", "6,3000")
    (found,) = compile(module, "trn2")(x)
    wide = x.astype(np.float64)
    error = abs(found.astype(np.float64) - wide.cumsum(1))
    assert (error <= 2 * unit * abs(wide).cumsum(1)).all()


@pytest.mark.parametrize(
    ("window", "result", "apart", "stride"),
    [
        ("size=1x200 pad=0_0x0_0", "6,2801", 1, 1),
        ("size=1x333 stride=1x7 rhs_dilate=1x3", "6,287", 3, 7),
    ],
)
def test_largest_elements_of_long_windows(
    window: str, result: str, apart: int, stride: int
) -> None:
    x = np.random.default_rng(3).standard_normal((6, 3000)).astype(np.float32)
    (found,) = compile(windows("f32", "maximum", window, result), "trn2")(x)
    size = int(window.split("x")[1].split(" ")[0])
    view = np.lib.stride_tricks.sliding_window_view(x, (size - 1) * apart + 1, axis=1)
    np.testing.assert_array_equal(found, view[:, ::stride, ::apart].max(-1))


def drawn(*dims: int) -> np.ndarray:
    """Numbers of which many are equal."""
    return np.random.default_rng(4).integers(0, 500, dims).astype(np.float32)


def test_the_largest_elements_of_long_rows() -> None:
    text = (
        "HloModule m\nENTRY e {\n x = f32[1,5001] parameter(0)\n"
        " ROOT r = (f32[1,40], s32[1,40]) topk(x), k=40, largest=true\n}"
    )
    x = drawn(1, 5001)
    values, places = compile(parse_text(text), "trn2")(x)
    expected = np.argsort(-x, axis=1, kind="stable")[:, :40]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))


def test_rows_without_room_on_chip_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "network_of", lambda device, sort: None)
    text = """HloModule m
    before { a = f32[] parameter(0)
      b = f32[] parameter(1)
      c = s32[] parameter(2)
      d = s32[] parameter(3)
      ROOT r = pred[] compare(a, b), direction=LT }
    ENTRY e { x = f32[2200,2] parameter(0)
      i = s32[2200,2] iota(), iota_dimension=0
      ROOT r = (f32[2200,2], s32[2200,2]) sort(x, i), dimensions={0}, is_stable=true,
        to_apply=before }"""
    x = drawn(2200, 2)
    compiled = compile(parse_text(text), "trn2")
    values, places = compiled(x)
    expected = np.argsort(x, axis=0, kind="stable")
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 0))
    (remark,) = compiled.notes.remarks
    assert remark.instruction == "r"
