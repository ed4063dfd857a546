"""Integers on the device whose second operand is one number for each row, or for all of them."""

from __future__ import annotations

import numpy as np
from combinations import combined
from on_device import assert_as_evaluated, modelled_ns

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


@combined({"type": ["s32", "u32", "s16", "u8"], "op": SHIFTS, "axes": [(), (0,), (1,), (0, 2)]})
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


DIVISORS = [1, 2, 3, 7, 8, 641, 4095, 4096, 4097, 8191, 8192, 8193, 10007, 1 << 30, (1 << 31) - 1]
DIVISORS += [0, -1, -2, -7, -4096, -10007, -(1 << 31), 1 << 31, (1 << 32) - 1, (1 << 32) - 5]


def quotients(op: str, type: str, count: int, divisor: int) -> str:
    return f"""HloModule m
ENTRY e {{
 x = {type}[{count}] parameter(0)
 d = {type}[] constant({divisor})
 ds = {type}[{count}] broadcast(d), dimensions={{}}
 ROOT r = {type}[{count}] {op}(x, ds)
}}"""


DIVISIONS = {
    "s32": [number for number in DIVISORS if -(1 << 31) <= number < 1 << 31],
    "u32": [number for number in DIVISORS if 0 <= number < 1 << 32],
    "s16": [number for number in DIVISORS if -(1 << 15) <= number < 1 << 15],
    "u8": [number for number in DIVISORS if 0 <= number < 1 << 8],
}


@combined(
    {
        "type, divisor": [
            (type, number) for type, numbers in DIVISIONS.items() for number in numbers
        ],
        "op": ["divide", "remainder"],
    }
)
def test_by_a_number(op: str, type: str, divisor: int) -> None:
    row = {"s32": np.int32, "u32": np.uint32, "s16": np.int16, "u8": np.uint8}[type]
    limits = np.iinfo(row)
    rng = np.random.default_rng(abs(divisor))
    some = rng.integers(limits.min, limits.max, 1000, dtype=np.int64, endpoint=True)
    near = some // (divisor or 1) * divisor + rng.integers(-2, 3, 1000)
    edges = [limits.min, limits.min + 1, limits.max - 1, limits.max, 0, 1]
    x = np.clip(np.concatenate([some, near, edges]), limits.min, limits.max)
    wide = np.abs(x) // abs(divisor or 1) * np.sign(x) * np.sign(divisor or 1)
    wanted = wide if divisor else np.full_like(x, -1)
    if op == "remainder":
        wanted = x - wide * divisor
    text = quotients(op, type, len(x), divisor)
    (found,) = compile(parse_text(text), "trn2")(x.astype(row))
    np.testing.assert_array_equal(found, wanted.astype(row))


def test_quotients_by_a_number_need_no_reciprocals() -> None:
    text = quotients("divide", "s32", 1 << 19, 7)
    profile = compile(parse_text(text), "trn2").profile(np.ones(1 << 19, np.int32))[1]
    assert profile.total_ns < 200_000  # 258 us as by any other divisor


@combined(
    {"type": ["s32", "u32"], "divisor": [2, 3, 7, 1000, (1 << 21) - 1, 1 << 21, (1 << 21) + 1]}
)
def test_the_largest_and_smallest_numbers(type: str, divisor: int) -> None:
    """Those from which an estimate in fp32 is farthest, and those just beside multiples."""
    row = {"s32": np.int32, "u32": np.uint32}[type]
    limits = np.iinfo(row)
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    multiples = np.arange(0, limits.max, max(1, limits.max // divisor // 300) * divisor)
    x = np.array([*ends, *multiples, *(multiples[1:] - 1), *(multiples[:-1] + 1)], row)
    x = np.concatenate([x, ~x])
    (found,) = compile(parse_text(quotients("divide", type, x.size, divisor)), "trn2")(x)
    wide = x.astype(np.int64)
    np.testing.assert_array_equal(found, np.sign(wide) * (np.abs(wide) // divisor))


def test_quotients_by_a_number_take_few_operations() -> None:
    """Two estimates that were cut to whole numbers, and what they left, took 319 us."""
    compiled = compile(parse_text(quotients("divide", "s32", 1 << 20, 7)), "trn2")
    assert modelled_ns(compiled) < 130e3
