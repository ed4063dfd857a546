"""Integers on the device whose second operand is one number for each row, or for all of them."""

from __future__ import annotations

import numpy as np
import pytest
from on_device import assert_as_evaluated

from graph_compiler import compile, parse_text

SHIFTS = ("shift-left", "shift-right-logical", "shift-right-arithmetic")


def shifted(op: str, type: str, dims: str, amounts: str, axes: str) -> str:
    return f"""HloModule m
ENTRY e {{
 x = {type}[{dims}] parameter(0)
 n = {type}[{amounts}] parameter(1)
 ns = {type}[{dims}] broadcast(n), dimensions={{{axes}}}
 ROOT r = {type}[{dims}] {op}(x, ns)
}}"""


@pytest.mark.parametrize("type", ["s32", "u32", "s16", "u8"])
@pytest.mark.parametrize("op", SHIFTS)
@pytest.mark.parametrize("axes", [(), (0,), (1,), (0, 2)])
def test_amounts_of_rows(op: str, type: str, axes: tuple[int, ...]) -> None:
    dims = (70, 5, 9)
    own = tuple(dims[axis] for axis in axes)
    row = {"s32": np.int32, "u32": np.uint32, "s16": np.int16, "u8": np.uint8}[type]
    limits = np.iinfo(row)
    rng = np.random.default_rng(len(axes))
    x = rng.integers(limits.min, limits.max, dims, dtype=row, endpoint=True)
    bits = limits.bits
    amounts = np.array([0, 1, 7, bits - 1, bits, bits + 1, limits.max, limits.min], row)
    n = rng.choice(amounts, own).astype(row) if own else amounts[3]
    text = shifted(op, type, "70,5,9", ",".join(map(str, own)), ",".join(map(str, axes)))
    assert_as_evaluated(text, x, np.asarray(n))
    if not own:
        for amount in amounts:
            assert_as_evaluated(text, x, np.asarray(amount))


def test_an_amount_for_all_is_looked_at_once() -> None:
    x = np.ones((1024, 1024), np.uint32)
    text = shifted("shift-left", "u32", "1024,1024", "", "")
    (found,), profile = compile(parse_text(text), "trn2").profile(x, np.uint32(3))
    np.testing.assert_array_equal(found, 8)
    assert profile.total_ns < 35_000  # comparing each amount takes 41 us
