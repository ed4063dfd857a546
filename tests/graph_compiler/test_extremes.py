"""Where the largest and smallest elements are, on the device, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from combinations import combined

from graph_compiler import compile, parse_text

DTYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "s32": np.int32}

FIRST = """first { a = TYPE[] parameter(0)
  i = s32[] parameter(1)
  b = TYPE[] parameter(2)
  j = s32[] parameter(3)
  more = pred[] compare(a, b), direction=DIRECTION
  none = pred[] compare(a, a), direction=NE
  left = pred[] or(more, none)
  value = TYPE[] select(left, a, b)
  equal = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  both = pred[] and(equal, before)
  kept = pred[] or(left, both)
  place = s32[] select(kept, i, j)
  ROOT r = (TYPE[], s32[]) tuple(value, place) }"""

LAST = FIRST.replace("direction=LT", "direction=GT")
"""Of equal values it keeps the one behind."""


def graph(type: str, shape: tuple[int, ...], axis: int, direction: str, body: str = FIRST) -> str:
    sizes = ",".join(map(str, shape))
    kept = ",".join(str(size) for place, size in enumerate(shape) if place != axis)
    least = {"GT": "-inf", "LT": "inf"}[direction]
    if type == "s32":
        least = str({"GT": -(2**31), "LT": 2**31 - 1}[direction])
    body = body.replace("TYPE", type).replace("DIRECTION", direction)
    return f"""HloModule m
{body}
ENTRY e {{
 x = {type}[{sizes}] parameter(0)
 count = s32[{shape[axis]}] iota(), iota_dimension=0
 places = s32[{sizes}] broadcast(count), dimensions={{{axis}}}
 least = {type}[] constant({least})
 zero = s32[] constant(0)
 ROOT r = ({type}[{kept}], s32[{kept}]) reduce(x, places, least, zero), dimensions={{{axis}}}, \
to_apply=first
}}"""


def values(type: str, shape: tuple[int, ...], kind: str) -> Any:
    rng = np.random.default_rng(3)
    x = rng.integers(-3, 4, shape).astype(np.float32)
    if kind == "none" and type != "s32":
        x[rng.random(shape) < 3 / shape[-1]] = np.nan
        x[0] = np.inf
    if kind == "least":
        x[:] = -3.0 if type == "s32" else -np.inf
    return x.astype(DTYPES[type])


@combined(
    {
        "kind": ["equal", "none", "least"],
        "direction": ["GT", "LT"],
        "type, shape, axis": [
            ("f32", (3, 2500), 1),
            ("bf16", (130, 2048), 1),
            ("s32", (2, 2, 2049), 2),
            ("f32", (4, 60), 1),
            ("f32", (2100, 5), 0),
        ],
    }
)
def test_the_first_of_equal_ones_and_of_those_that_are_none(
    type: str, shape: tuple[int, ...], axis: int, direction: str, kind: str
) -> None:
    """In short rows, and in long ones, whose last block may begin in the one before it."""
    x = values(type, shape, kind)
    best, place = compile(parse_text(graph(type, shape, axis, direction)), "trn2")(x)
    wide = x.astype(np.float64)
    expected = wide.argmax(axis) if direction == "GT" else wide.argmin(axis)
    np.testing.assert_array_equal(place, expected)
    kept = np.take_along_axis(wide, np.expand_dims(expected, axis), axis).squeeze(axis)
    np.testing.assert_array_equal(np.asarray(best).astype(np.float64), kept)


def test_other_computations_are_left_as_they_are() -> None:
    """The last of equal values is none of ours."""
    x = values("f32", (3, 2100), "equal")
    _, place = compile(parse_text(graph("f32", (3, 2100), 1, "GT", LAST)), "trn2")(x)
    np.testing.assert_array_equal(place, x.shape[1] - 1 - x[:, ::-1].argmax(1))


def test_long_rows_are_read_once() -> None:
    """Element by element it takes 402 us; the bytes of the rows take 45."""
    x = values("f32", (128, 32000), "equal")
    compiled = compile(parse_text(graph("f32", x.shape, 1, "GT")), "trn2")
    assert compiled.profile(x)[-1].total_ns < 90e3
