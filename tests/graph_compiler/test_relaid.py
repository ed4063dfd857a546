"""Folds over first and middle dimensions and what follows, as one pass, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined
from on_device import modelled_ns

from graph_compiler import compile, parse_text

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}

FOLDS = """HloModule m
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] maximum(a, b) }
"""


def _shape(type: str, sizes: Any) -> str:
    return f"{type}[{','.join(map(str, sizes))}]"


def softmax(type: str, sizes: tuple[int, ...], axis: int) -> str:
    """The softmax along one dimension, in fp32."""
    kept = [size for place, size in enumerate(sizes) if place != axis]
    spread = ",".join(str(place) for place in range(len(sizes)) if place != axis)
    whole, rows = _shape("f32", sizes), _shape("f32", kept)
    return f"""{FOLDS}ENTRY e {{
 p = {_shape(type, sizes)} parameter(0)
 x = {whole} convert(p)
 low = f32[] constant(-inf)
 zero = f32[] constant(0)
 m = {rows} reduce(x, low), dimensions={{{axis}}}, to_apply=larger
 ms = {whole} broadcast(m), dimensions={{{spread}}}
 d = {whole} subtract(x, ms)
 y = {whole} exponential(d)
 s = {rows} reduce(y, zero), dimensions={{{axis}}}, to_apply=plus
 ss = {whole} broadcast(s), dimensions={{{spread}}}
 q = {whole} divide(y, ss)
 ROOT r = {_shape(type, sizes)} convert(q)
}}"""


def batch_norm(type: str, sizes: tuple[int, ...], channel: int) -> str:
    """What is left of the mean of each channel, over its deviation, and both moments."""
    gone = ",".join(str(place) for place in range(len(sizes)) if place != channel)
    whole, rows = _shape("f32", sizes), _shape("f32", [sizes[channel]])
    count = int(np.prod(sizes)) // sizes[channel]
    return f"""{FOLDS}ENTRY e {{
 p = {_shape(type, sizes)} parameter(0)
 x = {whole} convert(p)
 zero = f32[] constant(0)
 n = f32[] constant({count})
 ns = {rows} broadcast(n), dimensions={{}}
 small = f32[] constant(1e-5)
 smalls = {rows} broadcast(small), dimensions={{}}
 t = {rows} reduce(x, zero), dimensions={{{gone}}}, to_apply=plus
 m = {rows} divide(t, ns)
 ms = {whole} broadcast(m), dimensions={{{channel}}}
 d = {whole} subtract(x, ms)
 q = {whole} multiply(d, d)
 u = {rows} reduce(q, zero), dimensions={{{gone}}}, to_apply=plus
 v = {rows} divide(u, ns)
 w = {rows} add(v, smalls)
 i = {rows} rsqrt(w)
 is = {whole} broadcast(i), dimensions={{{channel}}}
 y = {whole} multiply(d, is)
 z = {_shape(type, sizes)} convert(y)
 ROOT r = ({_shape(type, sizes)}, {rows}, {rows}) tuple(z, m, v)
}}"""


def values(type: str, sizes: tuple[int, ...]) -> Any:
    x = 2 + np.random.default_rng(1).standard_normal(sizes, np.float32)
    return x.astype(DTYPES[type])


def assert_near(found: Any, wanted: Any, type: str) -> None:
    bound = {"f32": 3e-6, "bf16": 8e-3}[type]
    scale = np.abs(wanted).max()
    found = np.asarray(found).astype(np.float64)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound * scale)


@combined(
    {
        "type": ["f32", "bf16"],
        "case": [((700, 300), 0), ((1030, 64), 0), ((4, 130, 300), 1), ((16, 200, 77), 1)],
    }
)
def test_softmax(type: str, case: tuple[tuple[int, ...], int]) -> None:
    sizes, axis = case
    x = values(type, sizes)
    (found,) = compile(parse_text(softmax(type, sizes, axis)), "trn2")(x)
    wide = x.astype(np.float64)
    powers = np.exp(wide - wide.max(axis, keepdims=True))
    assert_near(found, powers / powers.sum(axis, keepdims=True), type)


@combined(
    {
        "type": ["f32", "bf16"],
        "case": [
            ((8, 14, 14, 64), 3),
            ((3, 11, 13, 200), 3),
            ((8, 64, 20, 20), 1),
            ((5, 130, 9, 11), 1),
            ((500, 333), 1),
        ],
    }
)
def test_batch_norm(type: str, case: tuple[tuple[int, ...], int]) -> None:
    sizes, channel = case
    x = values(type, sizes)
    normed, mean, variance = compile(parse_text(batch_norm(type, sizes, channel)), "trn2")(x)
    gone = tuple(place for place in range(len(sizes)) if place != channel)
    wide = x.astype(np.float64)
    average, spread = wide.mean(gone, keepdims=True), wide.var(gone, keepdims=True)
    assert_near(normed, (wide - average) / np.sqrt(spread + 1e-5), type)
    assert_near(mean, average.ravel(), "f32")
    assert_near(variance, spread.ravel(), "f32")


def test_one_column_that_is_no_number_leaves_the_others() -> None:
    x = values("f32", (300, 200))
    x[7, 9], x[8, 130] = np.nan, np.inf
    (found,) = compile(parse_text(softmax("f32", x.shape, 0)), "trn2")(x)
    apart = [place for place in range(200) if place not in (9, 130)]
    assert np.isnan(np.asarray(found)[:, [9, 130]]).any(0).all()
    np.testing.assert_allclose(np.asarray(found)[:, apart].sum(0), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        (softmax("f32", (1024, 1024), 0), 60e3),  # 164 us with a pass for each fold
        (batch_norm("f32", (16, 28, 28, 128), 3), 75e3),  # 142
        (batch_norm("f32", (16, 128, 28, 28), 1), 65e3),  # 95
    ],
)
def test_what_is_loaded_stays_for_all_steps(text: str, most: float) -> None:
    assert modelled_ns(compile(parse_text(text), "trn2")) < most
