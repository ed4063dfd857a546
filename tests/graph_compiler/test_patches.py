"""Convolutions whose windows lie side by side, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from on_device import modelled_ns

import graph_compiler
from graph_compiler.lower.products import patches as patches_module
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
    ("dims", "order", "type"),
    [
        ((2, 3, 9, 16, 8, 16), (0, 2, 4, 3, 5, 1), "bf16"),  # planes of features
        ((2, 3, 9, 16, 8, 16), (0, 2, 4, 1, 3, 5), "f32"),
        ((3, 8, 12, 6, 20, 3), (0, 1, 3, 2, 4, 5), "f32"),  # features as neighbours
        ((1, 20, 12, 6, 16, 2), (0, 1, 3, 2, 4, 5), "bf16"),  # one image
    ],
)
def test_products_of_patches_are_convolutions(
    dims: tuple[int, ...],
    order: tuple[int, ...],
    type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    emitted = []
    emit = Patches.emit
    monkeypatch.setattr(patches_module, "_CLEARLY", np.inf)
    monkeypatch.setattr(Patches, "emit", lambda self: (emitted.append(self), emit(self)))
    turned = [dims[axis] for axis in order]
    n, patches, depth, outputs = turned[0], turned[1] * turned[2], np.prod(turned[3:]), 40
    image = [dims[0], *(a * b for a, b in zip(dims[1::2], dims[2::2])), dims[-1]]
    if order[-1] != 5 or order[3] == 1:
        image = [dims[0], dims[1], dims[2] * dims[3], dims[4] * dims[5]]

    def shape(sizes: Any) -> str:
        return f"{type}[{','.join(map(str, sizes))}]"

    text = f"""HloModule g
ENTRY e {{
 x = {shape(image)} parameter(0)
 w = {shape((depth, outputs))} parameter(1)
 a = {shape(dims)} reshape(x)
 b = {shape(turned)} transpose(a), dimensions={{{",".join(map(str, order))}}}
 c = {shape((n, patches, depth))} reshape(b)
 ROOT r = {shape((n, patches, outputs))} dot(c, w), lhs_contracting_dims={{2}},
  rhs_contracting_dims={{0}}
}}"""
    rng = np.random.default_rng(6)
    dtype = np.float32 if type == "f32" else ml_dtypes.bfloat16
    x = rng.standard_normal(image).astype(dtype)
    w = rng.standard_normal((depth, outputs)).astype(dtype)
    program = graph_compiler.compile(graph_compiler.parse_text(text), "trn2")
    assert emitted
    found = np.asarray(program(x, w)[0], np.float64)
    left = x.astype(np.float64).reshape(dims).transpose(order).reshape(n, patches, depth)
    wanted = left @ w.astype(np.float64)
    assert np.abs(found - wanted).max() < np.abs(wanted).max() * (1e-5 if type == "f32" else 4e-3)


def test_planes_are_not_copied_into_patches_first() -> None:
    """A PyTorch image of two images in patches of 16 x 16."""
    text = """HloModule g
ENTRY e {
 x = bf16[2,3,224,224] parameter(0)
 w = bf16[768,256] parameter(1)
 a = bf16[2,3,14,16,14,16] reshape(x)
 b = bf16[2,14,14,16,16,3] transpose(a), dimensions={0,2,4,3,5,1}
 c = bf16[392,768] reshape(b)
 ROOT r = bf16[392,256] dot(c, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    assert modelled_ns(graph_compiler.compile(graph_compiler.parse_text(text), "trn2")) < 40_000


def test_heads_of_attention_are_no_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    emitted = []
    monkeypatch.setattr(Patches, "emit", emitted.append)
    text = """HloModule g
ENTRY e {
 x = f32[64,8,16] parameter(0)
 w = f32[64,24] parameter(1)
 a = f32[16,4,8,16] reshape(x)
 b = f32[16,8,4,16] transpose(a), dimensions={0,2,1,3}
 c = f32[16,8,64] reshape(b)
 ROOT r = f32[16,8,24] dot(c, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
}"""
    rng = np.random.default_rng(8)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 8, 16), (64, 24)))
    (found,) = graph_compiler.compile(graph_compiler.parse_text(text), "trn2")(x, w)
    left = x.astype(np.float64).reshape(16, 4, 8, 16).transpose(0, 2, 1, 3).reshape(16, 8, 64)
    assert np.abs(np.asarray(found) - left @ w).max() < 1e-4
    assert not emitted
