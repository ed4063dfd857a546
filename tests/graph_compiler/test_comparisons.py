"""Comparisons of 32-bit integers on the device, of which one is a small number."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from combinations import combined

from graph_compiler import compile, parse_text

DIRECTIONS = {
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
EDGE = 1 << 24


def near_edges(dtype: Any) -> np.ndarray[Any, Any]:
    """Integers that fp32 holds, that it rounds, and the largest and smallest ones."""
    limits = np.iinfo(dtype)
    around = [0, 5, EDGE, 1 << 30, limits.max, limits.min, -EDGE]
    found = [n + d for n in around for d in range(-3, 4) if limits.min <= n + d <= limits.max]
    return np.asarray(found, dtype)


@combined(
    {
        "target": ["trn1", "trn2"],
        "number": [0, 5, EDGE - 1, EDGE, EDGE + 1, -EDGE, 1 - EDGE],
        "type": ["s32", "u32"],
    }
)
def test_with_a_number(type: str, number: int, target: str) -> None:
    dtype = {"s32": np.int32, "u32": np.uint32}[type]
    if number < 0 and type == "u32":
        return
    x = near_edges(dtype)
    shape = f"{type}[{len(x)}]"
    lines = [
        f" {'l' if left else 'r'}{d} = pred[{len(x)}] compare"
        f"({'ns, x' if left else 'x, ns'}), direction={d}"
        for d in DIRECTIONS
        for left in (True, False)
    ]
    names = [line.split()[0] for line in lines]
    types = ", ".join([f"pred[{len(x)}]"] * len(names))
    text = f"""HloModule m
ENTRY e {{
 x = {shape} parameter(0)
 n = {type}[] constant({number})
 ns = {shape} broadcast(n), dimensions={{}}
{chr(10).join(lines)}
 ROOT t = ({types}) tuple({", ".join(names)})
}}"""
    found = compile(parse_text(text), target)(x)
    for name, result in zip(names, found):
        compared = DIRECTIONS[name[1:]]
        wide = x.astype(np.int64)
        wanted = compared(number, wide) if name[0] == "l" else compared(wide, number)
        np.testing.assert_array_equal(result, wanted, err_msg=name)


def test_places_are_compared_as_fast_as_results_are_stored() -> None:
    """Against the places along a dimension: 138 us as exact integers, twice as long as this."""
    text = """HloModule m
ENTRY e {
 i = s32[4096] parameter(0)
 is = s32[4096,1000] broadcast(i), dimensions={0}
 n = s32[4096,1000] iota(), iota_dimension=1
 c = pred[4096,1000] compare(is, n), direction=EQ
 ROOT r = f32[4096,1000] convert(c)
}"""
    rng = np.random.default_rng(0)
    i = rng.integers(-3, 1003, 4096).astype(np.int32)
    i[:7] = [EDGE, EDGE + 1, -EDGE - 1, 1 << 30, 0, 999, -(1 << 31)]
    (found,), profile = compile(parse_text(text), "trn2").profile(i)
    np.testing.assert_array_equal(found, i[:, None] == np.arange(1000))
    assert profile.total_ns < 80_000
