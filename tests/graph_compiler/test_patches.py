"""Convolutions whose windows lie side by side, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graph_compiler
from graph_compiler.lower.products.patches import Patches
from graph_compiler.options import GraphOptions

LABELS = {"first": "bf01_oi01->bf01", "last": "b01f_01io->b01f", "mixed": "bf01_oi01->b01f"}


def patches(x: Any, k: Any, steps: tuple[int, int]) -> Any:
    """Of [batch, rows, columns, features] and [rows, columns, features, outputs]."""
    high, wide = k.shape[:2]
    windows = np.lib.stride_tricks.sliding_window_view(
        x.astype(np.float64), (high, wide), axis=(1, 2)
    )
    windows = windows[:, :: steps[0], :: steps[1]]
    return np.einsum("nhwcij,ijco->nhwo", windows, k.astype(np.float64))


def compiled(form: str, type: str, x: Any, k: Any, steps: tuple[int, int], **more: Any) -> Any:
    (n, h, w, c), (i, j, _, o) = x.shape, k.shape
    ends = (h - i) // steps[0] + 1, (w - j) // steps[1] + 1
    image, kernel, result = (n, h, w, c), (i, j, c, o), (n, *ends, o)
    if form != "last":
        image, kernel = (n, c, h, w), (o, c, i, j)
    if form == "first":
        result = (n, o, *ends)
    shapes = [f"{type}[{','.join(map(str, dims))}]" for dims in (image, kernel, result)]
    text = f"""HloModule g
ENTRY e {{
 x = {shapes[0]} parameter(0)
 k = {shapes[1]} parameter(1)
 ROOT r = {shapes[2]} convolution(x, k), window={{size={i}x{j} stride={steps[0]}x{steps[1]}}},
  dim_labels={LABELS[form]}
}}"""
    target = more.pop("target", "trn2")
    return graph_compiler.compile(graph_compiler.parse_text(text), target, GraphOptions(**more))


@pytest.mark.parametrize(
    ("form", "type", "image", "window", "steps", "outputs", "more"),
    [
        ("last", "f32", (5, 64, 33, 3), (16, 16), (16, 16), 24, {}),
        ("last", "bf16", (2, 150, 50, 3), (8, 24), (9, 25), 600, {}),
        ("last", "f32", (1, 220, 18, 5), (9, 17), (9, 17), 30, {}),
        ("first", "bf16", (4, 64, 48, 3), (16, 12), (16, 12), 130, {}),
        ("mixed", "f32", (6, 40, 60, 3), (10, 20), (10, 20), 33, {}),
        ("first", "bf16", (3, 97, 12, 140), (12, 12), (12, 13), 20, {}),
        ("last", "bf16", (40, 16, 16, 130), (4, 4), (4, 4), 20, {"target": "trn1"}),
        ("last", "bf16", (8, 64, 64, 3), (16, 16), (16, 16), 40, {"logical_cores": 2}),
    ],
)
def test_patches_of_images(
    form: str,
    type: str,
    image: tuple[int, ...],
    window: tuple[int, int],
    steps: tuple[int, int],
    outputs: int,
    more: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emitted = []
    emit = Patches.emit
    monkeypatch.setattr(Patches, "emit", lambda self: (emitted.append(self), emit(self)))
    rng = np.random.default_rng(5)
    dtype = np.float32 if type == "f32" else ml_dtypes.bfloat16
    x = rng.standard_normal(image).astype(dtype)
    k = rng.standard_normal((*window, image[3], outputs)).astype(dtype)
    program = compiled(form, type, x, k, steps, **more)
    assert emitted
    wanted = patches(x, k, steps)
    if form != "last":
        x, k = x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1)
    if form == "first":
        wanted = wanted.transpose(0, 3, 1, 2)
    found = np.asarray(program(x, k)[0], np.float64)
    error = np.abs(found - wanted).max() / np.abs(wanted).max()
    assert error < (1e-5 if type == "f32" else 4e-3)


def test_patches_are_loaded_in_few_transfers() -> None:
    """32 images of 96 x 96, patches of 32 x 32: a row of an image has 576 bytes."""
    x = np.zeros((32, 96, 96, 3), ml_dtypes.bfloat16)
    k = np.zeros((32, 32, 3, 64), ml_dtypes.bfloat16)
    program = compiled("last", "bf16", x, k, (32, 32))
    _, profile = program.profile(x, k)
    assert profile.dma.transfers < 100


@pytest.mark.parametrize(
    ("form", "image", "window", "outputs", "narrowed"),
    [
        ("last", (16, 96, 64, 3), (16, 16), 40, True),
        ("first", (20, 60, 96, 3), (12, 24), 24, True),
        ("last", (2, 32, 32, 3), (16, 16), 24, False),  # four partitions are loaded slowly
    ],
)
def test_pixels_in_fp32_are_converted_when_they_are_loaded(
    form: str,
    image: tuple[int, ...],
    window: tuple[int, int],
    outputs: int,
    narrowed: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where that is faster than to have them in bf16 in memory first."""
    emitted = []
    emit = Patches.emit
    monkeypatch.setattr(Patches, "emit", lambda self: (emitted.append(self), emit(self)))
    rng = np.random.default_rng(7)
    x = rng.standard_normal(image).astype(np.float32)
    k = rng.standard_normal((*window, image[3], outputs)).astype(np.float32)
    program = compiled(form, "f32", x, k, window, target="trn1", auto_cast="matmult")
    assert {one.step.narrowed for one in emitted} <= ({"bf16"} if narrowed else {None})
    assert bool(emitted) or not narrowed
    if form == "first":
        x, k = x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1)
    found = np.asarray(program(x, k)[0], np.float64)
    half = [array.astype(ml_dtypes.bfloat16).astype(np.float64) for array in (x, k)]
    if form == "first":
        half = [half[0].transpose(0, 2, 3, 1), half[1].transpose(2, 3, 1, 0)]
    wanted = patches(*half, window)
    if form == "first":
        wanted = wanted.transpose(0, 3, 1, 2)
    assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()
