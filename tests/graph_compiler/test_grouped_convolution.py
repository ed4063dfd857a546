"""Convolutions in groups, depthwise ones among them, against jax's definition in float64; and what
they cost."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined
from on_device import modelled_ns

import graph_compiler
from graph_compiler.lower.products import image_plans
from graph_compiler.options import GraphOptions

FLOAT = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


def grouped(
    x: Any, k: Any, groups: int, stride: int, dilation: int, low: int, size: tuple[int, int]
) -> Any:
    """Of [batch, rows, columns, features] and [rows, columns, features of a group, outputs], each
    place of the window a product; `low` elements of padding in front."""
    high, wide, features, outputs = k.shape
    spread = dilation * (max(high, wide) - 1) + stride * max(size)
    x = np.pad(x.astype(np.float64), ((0, 0), (low, spread), (low, spread), (0, 0)))
    x = x.reshape(*x.shape[:3], groups, features)
    k = k.astype(np.float64).reshape(high, wide, features, groups, outputs // groups)
    total: Any = 0.0
    for i, j in np.ndindex(high, wide):
        rows = i * dilation + stride * np.arange(size[0])
        columns = j * dilation + stride * np.arange(size[1])
        taken = x[:, rows][:, :, columns]
        total = total + np.einsum("nhwgi,igo->nhwgo", taken, k[i, j])
    return total.reshape(*total.shape[:3], outputs)


def graph(
    dims: Any, k: Any, groups: int, stride: int, dilation: int, first: bool, type: str, body: str
) -> tuple[Any, int, tuple[int, int]]:
    """A convolution `c`, padded as SAME is, and what `body` makes of it; the padding in front, and
    rows and columns of the result."""
    n, h, w, c = dims
    window, _, _, outputs = k
    size = -(-h // stride), -(-w // stride)
    span = dilation * (window - 1) + 1
    edges = [max(0, (s - 1) * stride + span - d) for s, d in zip(size, (h, w))]
    low = edges[0] // 2
    pads = "x".join(f"{low}_{edge - low}" for edge in edges)
    own = (n, outputs, *size) if first else (n, *size, outputs)
    image = (n, c, h, w) if first else dims
    kernel = (outputs, k[2], window, window) if first else k
    shape, x, kernel = (f"{type}[{','.join(map(str, one))}]" for one in (own, image, kernel))
    labels = "bf01_oi01->bf01" if first else "b01f_01io->b01f"
    module = graph_compiler.parse_text(
        f"""HloModule g
ENTRY e {{
 x = {x} parameter(0)
 k = {kernel} parameter(1)
 b = {type}[{outputs}] parameter(2)
 bs = {shape} broadcast(b), dimensions={{{1 if first else 3}}}
 ROOT_C c = {shape} convolution(x, k), window={{size={window}x{window} pad={pads}
  stride={stride}x{stride} rhs_dilate={dilation}x{dilation}}}, dim_labels={labels},
  feature_group_count={groups}
{body.replace("SHAPE", shape)}
}}""".replace("ROOT_C", "" if body else "ROOT")
    )
    return module, low, size


CASES = [
    # batch, rows, columns, features; window, features of a group, outputs; groups; stride, dilation
    ((2, 28, 28, 40), (3, 1, 40), 40, 1, 1),
    ((1, 9, 9, 270), (7, 1, 270), 270, 1, 1),  # in two parts by the room for the kernel
    ((2, 23, 23, 33), (5, 1, 33), 33, 2, 1),
    ((1, 17, 17, 36), (3, 1, 36), 36, 1, 2),
    ((1, 12, 12, 70), (3, 1, 140), 70, 1, 1),  # two outputs of each feature
    ((2, 9, 9, 51), (3, 3, 34), 17, 1, 1),
    ((1, 9, 9, 140), (3, 4, 140), 35, 2, 1),
    ((1, 7, 7, 140), (3, 70, 20), 2, 1, 1),  # a group fills partitions
    ((1, 12, 12, 60), (1, 2, 60), 30, 1, 1),
    ((1, 9, 9, 130), (13, 1, 130), 130, 1, 1),  # the matrices of so many places have no room
    ((1, 9, 9, 60), (13, 1, 120), 60, 1, 1),  # of two outputs, as many groups as have
    ((1, 20, 20, 3), (13, 1, 3), 3, 1, 1),
]


@combined(
    {
        "type, first": list(product(["f32", "bf16"], [False, True])),
        "dims, kernel, groups, stride, dilation": CASES,
    }
)
def test_groups(
    dims: Any, kernel: Any, groups: int, stride: int, dilation: int, first: bool, type: str
) -> None:
    body = " ROOT r = SHAPE add(c, bs)"
    assert_agrees(dims, kernel, groups, (stride, dilation), first, type, body, "trn2", 1)


@combined(
    {
        "first": [False, True],
        "batch": [1, 3],
        "features": [1, 2],
    }
)
def test_groups_on_two_cores(features: int, batch: int, first: bool) -> None:
    """A batch, or the rows of a single image, in two."""
    dims, kernel = (batch, 23, 23, 48), (3, features, 48)
    assert_agrees(dims, kernel, 48 // features, (2, 1), first, "f32", "", "trn2", 2)


@pytest.mark.parametrize("target", ["trn1", "trn3"])
def test_groups_on_other_targets(target: str) -> None:
    assert_agrees((1, 20, 20, 64), (3, 1, 64), 64, (1, 1), False, "f32", "", target, 1)


@pytest.mark.parametrize("first", [False, True])
def test_images_of_large_batches_are_a_loop(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_plans, "INSTRUCTIONS", 1)
    monkeypatch.setattr(image_plans, "IMAGES", 8192)
    body = " ROOT r = SHAPE add(c, bs)"
    assert_agrees((9, 12, 12, 40), (3, 1, 40), 40, (1, 1), first, "f32", body, "trn2", 1)


def assert_agrees(
    dims: Any,
    kernel: Any,
    groups: int,
    steps: tuple[int, int],
    first: bool,
    type: str,
    body: str,
    target: str,
    cores: int,
) -> None:
    window, features, outputs = kernel
    whole = (window, window, features, outputs)
    module, low, size = graph(dims, whole, groups, *steps, first, type, body)
    rng = np.random.default_rng(5)
    x, k, b = (
        rng.standard_normal(shape, np.float32).astype(FLOAT[type])
        for shape in (dims, whole, (outputs,))
    )
    given = [x, k, b]
    if first:
        given[:2] = [x.transpose(0, 3, 1, 2).copy(), k.transpose(3, 2, 0, 1).copy()]
    compiled = graph_compiler.compile(module, target, GraphOptions(logical_cores=cores))
    (found,) = compiled(*given)
    found = found.astype(np.float64)
    found = found.transpose(0, 2, 3, 1) if first else found
    sums = grouped(x, k, groups, *steps, low, size)
    terms = grouped(np.abs(x), np.abs(k), groups, *steps, low, size)
    wanted = sums + b.astype(np.float64) if body else sums
    bound = 1e-5 * terms + 1e-6
    if type == "bf16":
        bound = bound + 2.0**-8 * (np.abs(sums) + np.abs(wanted))
    assert np.all(np.abs(found - wanted) <= bound)


def test_weights_and_features_of_other_groups_count_for_nothing() -> None:
    """Where a kernel has an infinite weight, and no image has, other outputs stay finite."""
    module, low, size = graph((1, 16, 16, 32), (3, 3, 2, 32), 16, 1, 1, False, "f32", "")
    rng = np.random.default_rng(8)
    x = rng.standard_normal((1, 16, 16, 32), np.float32)
    k = rng.standard_normal((3, 3, 2, 32), np.float32)
    k[1, 1, 0, 5] = np.inf
    (found,) = graph_compiler.compile(module, "trn2")(x, k, np.zeros(32, np.float32))
    wanted = grouped(x, k, 16, 1, 1, low, size)
    assert np.array_equal(np.isfinite(found), np.isfinite(wanted))


@pytest.mark.parametrize(
    "dims, kernel, groups, type, most",
    [
        ((4, 28, 28, 128), (3, 1, 128), 128, "f32", 45),  # 461 us element by element
        ((2, 28, 28, 256), (3, 8, 256), 32, "bf16", 60),  # 4,973 us a product for each group
    ],
)
def test_features_of_groups_lie_along_partitions(
    dims: Any, kernel: Any, groups: int, type: str, most: int
) -> None:
    window, features, outputs = kernel
    module, *_ = graph(dims, (window, window, features, outputs), groups, 1, 1, False, type, "")
    compiled = graph_compiler.compile(module, "trn2")
    assert modelled_ns(compiled) < most * 1000


@pytest.mark.parametrize(
    "dims, window, stride, groups, outputs",
    [
        ((4, 6, 6, 16), 3, 1, 16, 16),  # 36 places of the kernel, 9 of the result
        ((2, 18, 18, 9), 5, 1, 9, 9),  # 324 and 25
        ((1, 20, 20, 6), 3, 2, 3, 12),  # several features and outputs of a group
        ((1, 30, 30, 3), 13, 1, 3, 3),  # 900 and 169
        ((2, 10, 10, 20), 3, 1, 2, 20),  # a group's numbers are a dot
    ],
)
def test_gradients_of_the_weights_of_groups(
    dims: Any, window: int, stride: int, groups: int, outputs: int
) -> None:
    """Groups of the batch, as XLA has them, of kernels as large as images: against the definition
    of the gradient."""
    batch, size, _, features = dims
    low = (window - 1) // 2
    high = -(-size // stride)
    part = features // groups
    pad = (high - 1) * stride + window - size - low
    extra = f" rhs_dilate={stride}x{stride}" if stride > 1 else ""
    edge = f"{low}_{window - 1 + (high - 1) * stride + 1 - size - low}"
    module = graph_compiler.parse_text(
        f"""HloModule gradient
ENTRY e {{
 x = f32[{batch},{size},{size},{features}] parameter(0)
 g = f32[{batch},{high},{high},{outputs}] parameter(1)
 ROOT w = f32[{window},{window},{part},{outputs}] convolution(x, g),
  window={{size={high}x{high} pad={edge}x{edge}{extra}}},
  dim_labels=f01b_i01o->01bf, batch_group_count={groups}
}}"""
    )
    rng = np.random.default_rng(window)
    x = rng.standard_normal(dims).astype(np.float32)
    g = rng.standard_normal((batch, high, high, outputs)).astype(np.float32)
    around = np.pad(x.astype(np.float64), ((0, 0), (low, pad), (low, pad), (0, 0)))
    every = g.astype(np.float64).reshape(batch, high, high, groups, outputs // groups)
    wanted, terms = (np.empty((window, window, part, outputs)) for _ in range(2))
    for i, j in np.ndindex(window, window):
        seen = around[:, i : i + stride * high : stride, j : j + stride * high : stride]
        seen = seen[:, :high, :high].reshape(batch, high, high, groups, part)
        for kept, sides in ((wanted, (seen, every)), (terms, (np.abs(seen), np.abs(every)))):
            kept[i, j] = np.einsum("nhwgi,nhwgo->igo", *sides).reshape(part, outputs)
    for device in ("trn2", "trn1"):
        (found,) = graph_compiler.compile(module, device)(x, g)
        assert np.all(np.abs(found - wanted) <= 1e-5 * terms + 1e-6)
