"""Products of images that are cut into patches, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from on_device import modelled_ns

import graph_compiler
from graph_compiler.lower.products import patches as patches_module
from graph_compiler.lower.products.patches import Patches


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
