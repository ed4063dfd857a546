"""Rows in order by a network of exchanges, in one partition or in several. NumPy sorts them too."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import modelled_ns

from graph_compiler import compile, parse_text

DTYPES: dict[str, Any] = {
    "f32": np.float32,
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "s32": np.int32,
    "u32": np.uint32,
    "s16": np.int16,
    "u8": np.uint8,
}


def parameters(types: list[str]) -> str:
    names = "abcdefgh"
    lines = [
        f"{names[2 * n + side]} = {type}[] parameter({2 * n + side})"
        for n, type in enumerate(types)
        for side in range(2)
    ]
    return "\n ".join(lines)


def graph(types: list[str], dims: tuple[int, ...], axis: int, comparator: str) -> Any:
    """Arrays of types, sorted along an axis; positions are the last one."""
    shape = ",".join(map(str, dims))
    types = [*types, "s32"]
    forms = [f"{type}[{shape}]" for type in types]
    given = "\n ".join(f"x{n} = {form} parameter({n})" for n, form in enumerate(forms[:-1]))
    arrays = ", ".join(f"x{n}" for n in range(len(types)))
    result = f"({', '.join(forms)})"
    return parse_text(f"""HloModule m
first {{
 {parameters(types)}
 {comparator} }}
ENTRY e {{
 {given}
 x{len(types) - 1} = {forms[-1]} iota(), iota_dimension={axis}
 ROOT r = {result} sort({arrays}), dimensions={{{axis}}}, is_stable=true, to_apply=first
}}""")


def compare(direction: str, type: str) -> str:
    total = ", type=TOTALORDER" if "f" in type else ""
    return f"ROOT r = pred[] compare(a, b), direction={direction}{total}"


def total_order(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Integers in the order of the bits of floats: -NaN, -inf, ..., -0, 0, ..., inf, NaN."""
    if x.dtype.kind in "iu":
        return x.astype(np.int64)
    bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64)
    return np.where(bits < 0, bits ^ ((1 << 8 * x.dtype.itemsize - 1) - 1), bits)


def special(type: str, dims: tuple[int, ...], seed: int) -> np.ndarray[Any, Any]:
    """Numbers of which some are equal; infinities, zeros of both signs, and NaN among floats."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(DTYPES[type])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        many = rng.integers(info.min, info.max, dims, dtype, endpoint=True)
        return np.where(rng.random(dims) < 0.3, rng.integers(0, 5, dims).astype(dtype), many)
    x = (rng.standard_normal(dims) * 10.0 ** rng.integers(-3, 4, dims)).astype(np.float32)
    for number in (np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0):
        x[rng.random(dims) < 0.03] = number
    return x.astype(dtype)


def assert_same_bits(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> None:
    bits = f"u{wanted.dtype.itemsize}"
    np.testing.assert_array_equal(found.view(bits), np.ascontiguousarray(wanted).view(bits))


@settings(max_examples=14, deadline=None)
@given(data=st.data())
def test_keys_of_all_types_in_total_order(data: Any) -> None:
    type, other = (data.draw(st.sampled_from(sorted(DTYPES))) for _ in range(2))
    rows = data.draw(st.sampled_from([1, 2, 3, 70]))
    count = data.draw(st.one_of(st.integers(1, 70), st.integers(71, 5000 if rows < 9 else 300)))
    axis = data.draw(st.integers(0, 1))
    direction = data.draw(st.sampled_from(["LT", "GT"]))
    dims = (rows, count) if axis else (count, rows)
    x, y = special(type, dims, count), special(other, dims, rows)
    target = data.draw(st.sampled_from(["trn1", "trn2"]))
    module = graph([type, other], dims, axis, compare(direction, type))
    keys, payload, places = compile(module, target)(x, y)
    order = total_order(x) if direction == "LT" else -total_order(x)
    wanted = np.argsort(order, axis=axis, kind="stable")
    np.testing.assert_array_equal(places, wanted)
    assert_same_bits(keys, np.take_along_axis(x, wanted, axis))
    assert_same_bits(payload, np.take_along_axis(y, wanted, axis))


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("types", [["s32", "f32"], ["bf16", "s16"]])
@pytest.mark.parametrize("dims", [(3000,), (4, 600), (200, 40)])
def test_several_keys(target: str, types: list[str], dims: tuple[int, ...]) -> None:
    """Neighbours of many equal first keys are in the order of the second one, backward."""
    rng = np.random.default_rng(len(dims))
    x, y = (rng.integers(-9, 9, dims).astype(DTYPES[type]) for type in types)
    comparator = """p = pred[] compare(a, b), direction=LT
 q = pred[] compare(a, b), direction=EQ
 s = pred[] compare(c, d), direction=GT
 t = pred[] and(q, s)
 ROOT r = pred[] or(p, t)"""
    module = graph(types, dims, len(dims) - 1, comparator)
    one, other, places = compile(module, target)(x, y)
    keys = x.astype(np.int64) * 100 - y.astype(np.int64)
    wanted = np.argsort(keys, axis=-1, kind="stable")
    np.testing.assert_array_equal(places, wanted)
    assert_same_bits(one, np.take_along_axis(x, wanted, -1))
    assert_same_bits(other, np.take_along_axis(y, wanted, -1))


def test_a_comparator_that_computes() -> None:
    """By the distance from 3, which another array says."""
    comparator = """u = f32[] subtract(a, c)
 v = f32[] subtract(b, d)
 m = f32[] abs(u)
 n = f32[] abs(v)
 ROOT r = pred[] compare(m, n), direction=LT"""
    x, y = (np.random.default_rng(n).integers(-50, 50, 2500).astype(np.float32) for n in (0, 1))
    module = graph(["f32", "f32"], (2500,), 0, comparator)
    *_, places = compile(module, "trn2")(x, y)
    np.testing.assert_array_equal(places, np.argsort(abs(x - y), kind="stable"))


@pytest.mark.parametrize("dims, us", [((20000,), 400), ((128, 1000), 650), ((2000,), 130)])
def test_time(dims: tuple[int, ...], us: float) -> None:
    """Pairs of all elements took 103 ms, rows in one partition 1,819 and 4,507 us."""
    module = graph(["f32"], dims, len(dims) - 1, compare("LT", "f32"))
    assert modelled_ns(compile(module, "trn2")) < 1000 * us
