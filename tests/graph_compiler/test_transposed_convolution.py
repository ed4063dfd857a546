"""Convolutions whose image has gaps between its elements, as transposed ones and gradients have:
against elements of the image added to the results that see them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from combinations import combined
from on_device import modelled_ns

import graph_compiler
from graph_compiler.options import GraphOptions

FLOAT = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


def graph(
    type: str,
    image: tuple[int, int, int, int],
    window: tuple[int, int],
    outputs: int,
    spread: tuple[int, int],
    edges: tuple[int, int],
    dilation: int = 1,
    behind: str = "",
) -> tuple[str, tuple[int, int]]:
    """HLO, with as much padding in front and behind; rows and columns of the result."""
    n, *sizes, features = image
    spans = [(size - 1) * dilation + 1 for size in window]
    wide = [(size - 1) * gap + 1 for size, gap in zip(sizes, spread)]
    high, across = (a + 2 * b - c + 1 for a, b, c in zip(wide, edges, spans))
    result = f"{type}[{n},{high},{across},{outputs}]"
    root, lines = ("", behind.replace("RESULT", result)) if behind else ("ROOT ", "")
    pads = "x".join(f"{edge}_{edge}" for edge in edges)
    text = f"""HloModule m
ENTRY e {{
 x = {type}[{",".join(map(str, image))}] parameter(0)
 k = {type}[{window[0]},{window[1]},{features},{outputs}] parameter(1)
 {root}c = {result} convolution(x, k), window={{size={window[0]}x{window[1]} pad={pads}
  lhs_dilate={spread[0]}x{spread[1]} rhs_dilate={dilation}x{dilation}}}, dim_labels=b01f_01io->b01f
{lines}}}"""
    return text, (high, across)


def spread_out(
    x: Any, k: Any, sizes: tuple[int, int], spread: Any, edges: Any, dilation: int
) -> Any:
    """Each element of the image times the kernel, added where the result sees it."""
    x, k = x.astype(np.float64), k.astype(np.float64)
    found = np.zeros((len(x), *sizes, k.shape[3]))
    for i, j in np.ndindex(k.shape[:2]):
        for row, column in np.ndindex(x.shape[1:3]):
            y = row * spread[0] + edges[0] - i * dilation
            z = column * spread[1] + edges[1] - j * dilation
            if 0 <= y < sizes[0] and 0 <= z < sizes[1]:
                found[:, y, z] += x[:, row, column] @ k[i, j]
    return found


CASES = [
    # image, window, outputs, gaps, edges, dilation
    ((2, 9, 9, 64), (4, 4), 48, (2, 2), (2, 2), 1),
    ((1, 7, 11, 130), (5, 3), 33, (3, 2), (4, 1), 1),
    ((2, 8, 6, 5), (3, 3), 140, (2, 1), (1, 0), 1),
    ((1, 9, 9, 40), (5, 5), 24, (2, 2), (6, 3), 3),
    ((1, 8, 8, 16), (3, 3), 16, (2, 2), (2, 2), 2),  # gaps and dilation have a factor in common
    ((1, 8, 8, 16), (1, 1), 16, (2, 2), (0, 0), 1),  # gaps are seen alone
]


@combined(
    {
        "type": FLOAT,
        "case": CASES,
    }
)
def test_gaps_are_no_elements(case: Any, type: str) -> None:
    image, window, outputs, spread, edges, dilation = case
    text, sizes = graph(type, image, window, outputs, spread, edges, dilation)
    rng = np.random.default_rng(sum(image))
    x, k = (
        rng.standard_normal(shape).astype(FLOAT[type])
        for shape in (image, (*window, image[3], outputs))
    )
    wanted = spread_out(x, k, sizes, spread, edges, dilation)
    error = 2e-6 if type == "f32" else 2**-8
    for cores in (1, 2):
        module = graph_compiler.parse_text(text)
        (found,) = graph_compiler.compile(module, "trn2", GraphOptions(logical_cores=cores))(x, k)
        np.testing.assert_allclose(
            np.asarray(found, np.float64), wanted, rtol=error, atol=error * np.abs(wanted).max()
        )


BIAS = """ b = f32[48] parameter(2)
 bs = RESULT broadcast(b), dimensions={3}
 s = RESULT add(c, bs)
 z = RESULT parameter(3)
 ROOT r = RESULT multiply(s, z)
"""


def test_work_behind_each_phase_takes_its_own_elements() -> None:
    image, window, outputs, spread, edges, dilation = CASES[0]
    text, sizes = graph("f32", image, window, outputs, spread, edges, dilation, BIAS)
    rng = np.random.default_rng(0)
    shapes = image, (*window, image[3], outputs), (outputs,), (image[0], *sizes, outputs)
    x, k, b, z = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    (found,) = graph_compiler.compile(graph_compiler.parse_text(text), "trn2")(x, k, b, z)
    wanted = (spread_out(x, k, sizes, spread, edges, dilation) + b) * z
    np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6 * np.abs(wanted).max())


def test_gaps_cost_no_products() -> None:
    # 45 us with products of the gaps, which are three of four elements.
    text, _ = graph("bf16", (2, 32, 32, 128), (4, 4), 64, (2, 2), (2, 2))
    assert modelled_ns(graph_compiler.compile(graph_compiler.parse_text(text), "trn2")) < 30_000
