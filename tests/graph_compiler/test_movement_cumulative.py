"""Cumulative windows on the device. float64 says what they are, within roundings of the terms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import GraphOptions, compile, parse_text
from graph_compiler.hlo.types import PRIMITIVE_TYPES

FOLDS = {
    "add": ("0", np.cumsum),
    "maximum": ("-inf", np.maximum.accumulate),
    "minimum": ("inf", np.minimum.accumulate),
    "multiply": ("1", np.cumprod),
}


def windows(
    fold: str, type: str, dims: tuple[int, ...], backward: bool, axis: int | None = None
) -> Any:
    axis = len(dims) - 1 if axis is None else axis
    shape = ",".join(map(str, dims))
    sizes = [str(size if number == axis else 1) for number, size in enumerate(dims)]
    pad = f"0_{dims[axis] - 1}" if backward else f"{dims[axis] - 1}_0"
    pads = [pad if number == axis else "0_0" for number in range(len(dims))]
    window = f"size={'x'.join(sizes)} pad={'x'.join(pads)}"
    return parse_text(f"""HloModule m
fold {{ a = {type}[] parameter(0)
 b = {type}[] parameter(1)
 ROOT s = {type}[] {fold}(a, b) }}
ENTRY e {{
 x = {type}[{shape}] parameter(0)
 i = {type}[] constant({FOLDS[fold][0]})
 ROOT r = {type}[{shape}] reduce-window(x, i), window={{{window}}}, to_apply=fold
}}""")


def expected(fold: str, x: Any, backward: bool) -> Any:
    x = x.astype(np.float64)
    turned = x[..., ::-1] if backward else x
    found = FOLDS[fold][1](turned, axis=-1)
    return found[..., ::-1] if backward else found


@settings(max_examples=30)
@given(
    fold=st.sampled_from(sorted(FOLDS)),
    type=st.sampled_from(["f32", "bf16", "f16"]),
    dims=st.sampled_from([(9,), (3, 40), (300, 17), (2, 3, 33), (1, 700), (5000, 10), (2, 9000)]),
    backward=st.booleans(),
    form=st.sampled_from([("trn2", 1), ("trn1", 1), ("trn2", 2)]),
)
def test_every_element_is_the_fold_up_to_there(
    fold: str, type: str, dims: tuple[int, ...], backward: bool, form: tuple[str, int]
) -> None:
    dtype = PRIMITIVE_TYPES[type].numpy
    x = np.random.default_rng(1).standard_normal(dims)
    x = (1 + x / (64 * dims[-1]) if fold == "multiply" else x).astype(dtype)
    target, cores = form
    module = windows(fold, type, dims, backward)
    (found,) = compile(module, target, GraphOptions(logical_cores=cores))(x)
    wanted = expected(fold, x, backward)
    if fold in ("maximum", "minimum"):
        np.testing.assert_array_equal(found, wanted.astype(dtype))
        return
    terms = expected("add", np.abs(x), backward) if fold == "add" else np.abs(wanted)
    unit = {"f32": 2.0**-24, "bf16": 2.0**-8, "f16": 2.0**-11}[type]
    steps = np.broadcast_to(np.arange(1, dims[-1] + 1), dims)
    steps = steps[..., ::-1] if backward else steps
    error = np.abs(found.astype(np.float64) - wanted)
    assert (error <= (steps + 1) * 2.0**-24 * terms + unit * np.abs(wanted)).all()


@pytest.mark.parametrize("dims, axis", [((200, 30), 0), ((3, 70, 5), 1), ((65, 1, 4), 0)])
@pytest.mark.parametrize("backward", [False, True])
def test_any_dimension(dims: tuple[int, ...], axis: int, backward: bool) -> None:
    x = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    (found,) = compile(windows("add", "f32", dims, backward, axis), "trn2")(x)
    wanted = np.moveaxis(expected("add", np.moveaxis(x, axis, -1), backward), -1, axis)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fold", ["maximum", "minimum", "add"])
def test_nan_and_infinities_go_on(fold: str) -> None:
    x = np.ones((4, 20), np.float32)
    x[0, 5], x[1, 6], x[2, 7], x[3, 0] = np.nan, np.inf, -np.inf, -0.0
    (found,) = compile(windows(fold, "f32", x.shape, False), "trn2")(x)
    np.testing.assert_array_equal(found, expected(fold, x, False).astype(np.float32))


def test_one_pass_is_faster_than_doubled_windows() -> None:
    x = np.ones((1024, 512), np.float32)
    _, profile = compile(windows("add", "f32", x.shape, False), "trn2").profile(x)
    assert profile.total_ns < 30_000  # 115,000 by one addition for each doubling
