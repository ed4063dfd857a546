"""Short loops of element-wise work as that work, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_device import modelled_ns

from graph_compiler import compile, parse_text

AMOUNTS = (13, 15, 26, 6, 17)


def rounds(count: int, trips: int) -> str:
    """Rounds of sums and rotations, by amounts of a table."""
    words, table = f"u32[{count}]", f"u32[{len(AMOUNTS)}]"
    state = f"(s32[], {words}, {words}, {table})"
    return f"""HloModule m
body {{
 s = {state} parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = {words} get-tuple-element(s), index=1
 y = {words} get-tuple-element(s), index=2
 t = {table} get-tuple-element(s), index=3
 one = s32[] constant(1)
 next = s32[] add(i, one)
 first = u32[1] slice(t), slice={{[0:1]}}
 left = u32[] reshape(first)
 all = u32[] constant(32)
 right = u32[] subtract(all, left)
 lefts = {words} broadcast(left), dimensions={{}}
 rights = {words} broadcast(right), dimensions={{}}
 sum = {words} add(x, y)
 up = {words} shift-left(y, lefts)
 down = {words} shift-right-logical(y, rights)
 turned = {words} or(up, down)
 mixed = {words} xor(sum, turned)
 ROOT r = {state} tuple(next, sum, mixed, t)
}}
test {{
 s = {state} parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant({trips})
 ROOT p = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
 x = {words} parameter(0)
 y = {words} parameter(1)
 t = {table} constant({{{", ".join(map(str, AMOUNTS))}}})
 zero = s32[] constant(0)
 s = {state} tuple(zero, x, y, t)
 w = {state} while(s), condition=test, body=body
 a = {words} get-tuple-element(w), index=1
 b = {words} get-tuple-element(w), index=2
 ROOT r = ({words}, {words}) tuple(a, b)
}}"""


def words_of(count: int) -> list[Any]:
    rng = np.random.default_rng(count)
    return [rng.integers(0, 1 << 32, count, dtype=np.uint32) for _ in range(2)]


@pytest.mark.parametrize("count, trips", [(5000, 5), (40000, 3), (5000, 1), (5000, 0), (60, 5)])
def test_rounds_of_bits(count: int, trips: int) -> None:
    x, y = words_of(count)
    first, second = compile(parse_text(rounds(count, trips)), "trn2")(x, y)
    amount = np.uint32(AMOUNTS[0])
    for _ in range(trips):
        x = x + y
        y = x ^ ((y << amount) | (y >> (np.uint32(32) - amount)))
    np.testing.assert_array_equal(first, x)
    np.testing.assert_array_equal(second, y)


def test_what_is_carried_stays_on_chip() -> None:
    """By way of memory, round after round, it took twice as long."""
    compiled = compile(parse_text(rounds(1 << 20, 5)), "trn2")
    assert modelled_ns(compiled) < 330e3
