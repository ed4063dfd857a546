"""Shapes that divide by nothing: results against NumPy, and times against round shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined
from on_device import modelled_ns

import graph_compiler
from graph_compiler.options import GraphOptions

TYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


def fold_of(type: str, sizes: tuple[int, ...], axis: int, fold: str, initial: str) -> str:
    kept = ",".join(str(size) for place, size in enumerate(sizes) if place != axis)
    return f"""HloModule fold
f {{ a = {type}[] parameter(0)
 b = {type}[] parameter(1)
 ROOT s = {type}[] {fold}(a, b) }}
ENTRY e {{
 x = {type}[{",".join(map(str, sizes))}] parameter(0)
 i = {type}[] constant({initial})
 ROOT r = {type}[{kept}] reduce(x, i), dimensions={{{axis}}}, to_apply=f
}}"""


@combined(
    {
        "type": ["f32", "bf16"],
        "sizes, axis": [
            ((191, 23, 37), 0),  # several partitions have rows of the same columns
            ((700, 29), 0),  # all partitions do
            ((255, 4100), 0),  # and many rows are left
            ((2560, 4200), 0),  # and their tiles are a loop
            ((37, 63, 241), 1),  # elements of a batch and parts of their columns
            ((133, 9, 700), 1),  # what full partitions leave of a batch has shares of its own
            ((45, 150, 565), 1),  # groups of rows of few elements of a batch
            ((11, 131, 2829), 1),
            ((3, 5, 7, 11), 2),
        ],
    }
)
def test_columns_of_any_count_are_summed(type: str, sizes: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(1).standard_normal(sizes).astype(TYPES[type])
    x.reshape(-1)[5] = np.inf
    (found,) = graph_compiler.compile(
        graph_compiler.parse_text(fold_of(type, sizes, axis, "add", "0")), "trn2"
    )(x)
    wide = x.astype(np.float64)
    wanted, terms = wide.sum(axis), np.abs(wide).sum(axis)
    finite = np.isfinite(wanted)
    assert np.array_equal(np.isposinf(found.astype(np.float32)), ~finite)
    error = np.abs(found.astype(np.float64)[finite] - wanted[finite])
    rounding = {"f32": 0.0, "bf16": 2.0**-8}[type] * np.abs(wanted[finite])
    assert np.all(error <= 1e-5 * terms[finite] + rounding)


@combined(
    {
        "sizes": [(67, 131, 19), (45, 150, 565)],
        "fold": ["maximum", "multiply"],
    }
)
def test_columns_of_any_count_are_folded(fold: str, sizes: tuple[int, ...]) -> None:
    x = np.random.default_rng(2).uniform(0.9, 1.1, sizes).astype(np.float32)
    (found,) = graph_compiler.compile(
        graph_compiler.parse_text(fold_of("f32", x.shape, 1, fold, "1")), "trn2"
    )(x)
    wanted = {"maximum": np.maximum, "multiply": np.multiply}[fold].reduce(x.astype(float), axis=1)
    wanted = np.maximum(wanted, 1.0) if fold == "maximum" else wanted
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def _ns(text: str) -> float:
    return modelled_ns(graph_compiler.compile(graph_compiler.parse_text(text), "trn2"))


def _negated(rows: int, columns: int) -> str:
    shape = f"f32[{rows},{columns}]"
    return f"HloModule n\nENTRY e {{\n x = {shape} parameter(0)\n ROOT r = {shape} negate(x)\n}}"


def test_a_prime_number_of_elements_takes_about_as_long_as_a_round_one() -> None:
    assert _ns(_negated(1021, 1531)) < 1.1 * _ns(_negated(1024, 1536))


@pytest.mark.parametrize("axis", [0, 1])
def test_odd_columns_take_about_as_long_as_round_ones(axis: int) -> None:
    odd = _ns(fold_of("f32", (191, 59, 97), axis, "add", "0"))
    assert odd < 1.35 * _ns(fold_of("f32", (192, 64, 96), axis, "add", "0"))


def test_a_batch_that_leaves_some_of_the_partitions_takes_as_long_as_its_share() -> None:
    odd = _ns(fold_of("bf16", (137, 192, 640), 1, "add", "0"))
    assert odd < 1.3 * _ns(fold_of("bf16", (128, 192, 640), 1, "add", "0"))


def test_few_elements_of_a_batch_fill_partitions_with_groups_of_rows() -> None:
    few = _ns(fold_of("f32", (45, 150, 565), 1, "add", "0"))
    assert few < 1.5 * _ns(fold_of("f32", (128, 150, 565), 1, "add", "0")) * 45 / 128


# Convolutions


def test_pixels_of_few_features_are_loaded_in_long_runs() -> None:
    """Some of a row are: each alone is a run of 104 bytes, with which it takes 104 us."""
    text = """HloModule c
ENTRY e {
 x = bf16[3,73,76,52] parameter(0)
 k = bf16[3,3,52,188] parameter(1)
 ROOT r = bf16[3,73,76,188] convolution(x, k), window={size=3x3 pad=1_1x1_1},
   dim_labels=b01f_01io->b01f
}"""
    assert _ns(text) < 100_000


def convolved(x: np.ndarray, k: np.ndarray, edges: Sequence[int], every: int, apart: int) -> Any:
    """NumPy's: [batch, rows, columns, features] by [rows, columns, features, outputs]."""
    low, high = edges
    x = np.pad(x.astype(float), ((0, 0), (low, high), (low, high), (0, 0)))
    spread = np.zeros((*((n - 1) * apart + 1 for n in k.shape[:2]), *k.shape[2:]))
    spread[::apart, ::apart] = k.astype(float)
    patches = np.lib.stride_tricks.sliding_window_view(x, spread.shape[:2], (1, 2))
    return np.einsum("bhwcij,ijco->bhwo", patches[:, ::every, ::every], spread, optimize=True)


@combined(
    {
        "type, image, window, outputs, edges, every, apart, first": [
            ("f32", (2, 9, 11, 5), (3, 3), 7, (1, 1), 1, 1, False),  # several places in one product
            ("f32", (3, 7, 7, 200), (3, 2), 150, (0, 2), 2, 1, False),  # features in two parts
            ("bf16", (1, 13, 17, 160), (3, 3), 96, (2, 2), 1, 2, False),  # dilation
            ("bf16", (2, 12, 12, 33), (3, 3), 140, (1, 1), 2, 1, True),  # channels first
            ("f32", (1, 20, 130, 3), (5, 4), 40, (2, 1), 1, 1, True),
            (
                "bf16",
                (1, 9, 10, 192),
                (3, 3),
                20,
                (1, 1),
                1,
                1,
                False,
            ),  # the last column by two rows
            ("f32", (2, 12, 9, 37), (5, 5), 30, (2, 2), 1, 2, True),  # two last columns by three
            ("bf16", (3, 40, 33, 52), (3, 3), 60, (1, 1), 1, 1, False),  # turned by columns
            ("bf16", (2, 131, 20, 24), (3, 3), 24, (1, 1), 1, 1, False),  # of rows in two tiles
        ],
        "target, cores": [("trn2", 1), ("trn1", 1), ("trn2", 2)],
    }
)
def test_convolutions(
    type: str,
    image: tuple[int, ...],
    window: tuple[int, int],
    outputs: int,
    edges: tuple[int, int],
    every: int,
    apart: int,
    first: bool,
    target: str,
    cores: int,
) -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal(image).astype(TYPES[type])
    k = rng.standard_normal((*window, image[3], outputs)).astype(TYPES[type])
    wanted = convolved(x, k, edges, every, apart)
    labels = "b01f_01io->b01f"
    if first:
        x, k = x.transpose(0, 3, 1, 2), k.transpose(3, 2, 0, 1)
        wanted, labels = wanted.transpose(0, 3, 1, 2), "bf01_oi01->bf01"
    shapes = [f"{type}[{','.join(map(str, a.shape))}]" for a in (x, k, wanted)]
    one = f"{edges[0]}_{edges[1]}"
    how = f"size={window[0]}x{window[1]} stride={every}x{every} pad={one}x{one}"
    text = f"""HloModule c
ENTRY e {{
 x = {shapes[0]} parameter(0)
 k = {shapes[1]} parameter(1)
 ROOT r = {shapes[2]} convolution(x, k), window={{{how} rhs_dilate={apart}x{apart}}},
   dim_labels={labels}
}}"""
    options = GraphOptions(logical_cores=cores)
    (found,) = graph_compiler.compile(graph_compiler.parse_text(text), target, options)(x, k)
    error = np.abs(found.astype(float) - wanted)
    sums = np.sqrt(image[3] * window[0] * window[1])
    assert np.all(error <= 1e-5 * sums + (0 if type == "f32" else 2.0**-8 * np.abs(wanted)))


@combined(
    {
        "sizes, order": [
            ((46, 24, 39, 11), (1, 2, 3, 0)),  # partitions have rows several times
            ((33, 15, 10, 107), (2, 3, 1, 0)),  # two dimensions of rows
            ((12, 58, 97, 7), (2, 1, 0, 3)),  # neighbours stay together
            ((6, 193, 56, 25), (0, 2, 3, 1)),
            ((700, 300), (1, 0)),
            ((5, 70, 3, 2), (3, 1, 0, 2)),  # by transfers
            ((58, 10, 49, 67), (3, 2, 1, 0)),  # the last partition has fewer neighbours
            ((27, 85, 16, 59), (1, 3, 2, 0)),  # parts of a dimension, and what they leave
            ((3, 377, 25, 5), (3, 0, 1, 2)),  # partitions keep what they have
            ((41, 62, 30, 10), (2, 0, 3, 1)),  # neighbours of one of two dimensions of rows
            ((17, 66, 91, 5), (0, 2, 3, 1)),
        ],
        "type": ["f32", "bf16"],
    }
)
def test_transpositions(type: str, sizes: tuple[int, ...], order: tuple[int, ...]) -> None:
    whole = {"f32": np.uint32, "bf16": np.uint16}[type]
    bits = np.random.default_rng(5).integers(0, np.iinfo(whole).max, sizes, whole, endpoint=True)
    x = bits.view(TYPES[type])
    turned = [sizes[axis] for axis in order]
    text = f"""HloModule t
ENTRY e {{
 x = {type}[{",".join(map(str, sizes))}] parameter(0)
 ROOT r = {type}[{",".join(map(str, turned))}] transpose(x),
  dimensions={{{",".join(map(str, order))}}}
}}"""
    (found,) = graph_compiler.compile(graph_compiler.parse_text(text), "trn2")(x)
    assert found.tobytes() == np.ascontiguousarray(x.transpose(order)).tobytes()


def test_rows_of_few_bytes_lie_beside_their_neighbours() -> None:
    """Transfers are of 2 KiB and more then; of one row each it takes 36 us."""
    text = """HloModule t
ENTRY e {
 x = bf16[73,60,40,10] parameter(0)
 ROOT r = bf16[40,73,10,60] transpose(x), dimensions={2,0,3,1}
}"""
    assert _ns(text) < 31_000


# Half precision


def _centred(rows: int, columns: int) -> str:
    wide, narrow = f"f32[{rows},{columns}]", f"bf16[{rows},{columns}]"
    return f"""HloModule centred
f {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }}
ENTRY e {{
 n = {narrow} parameter(0)
 x = {wide} convert(n)
 z = f32[] constant(0)
 t = f32[{rows}] reduce(x, z), dimensions={{1}}, to_apply=f
 c = f32[] constant({columns})
 cs = f32[{rows}] broadcast(c), dimensions={{}}
 m = f32[{rows}] divide(t, cs)
 ms = {wide} broadcast(m), dimensions={{0}}
 d = {wide} subtract(x, ms)
 q = {wide} multiply(d, d)
 u = f32[{rows}] reduce(q, z), dimensions={{1}}, to_apply=f
 i = f32[{rows}] rsqrt(u)
 is = {wide} broadcast(i), dimensions={{0}}
 r = {wide} multiply(d, is)
 ROOT o = {narrow} convert(r)
}}"""


def test_rows_of_halves_are_computed_in_fp32_and_rounded_once() -> None:
    """Widened operands are read as they are, and the last operation rounds: no step of bfloat16
    that the graph does not state."""
    x = (100 + np.random.default_rng(6).standard_normal((130, 700))).astype(TYPES["bf16"])
    (found,) = graph_compiler.compile(graph_compiler.parse_text(_centred(130, 700)), "trn2")(x)
    wide = x.astype(float)
    centred = wide - wide.mean(1, keepdims=True)
    wanted = centred / np.sqrt((centred**2).sum(1, keepdims=True))
    error = np.abs(found.astype(float) - wanted)
    assert np.all(error <= 2.0**-8 * np.abs(wanted) + 1e-6)


# Rows


def _softmax(type: str, rows: int, columns: int) -> str:
    wide, column = f"{type}[{rows},{columns}]", f"{type}[{rows}]"
    return f"""HloModule s
larger {{ a = {type}[] parameter(0)
 b = {type}[] parameter(1)
 ROOT s = {type}[] maximum(a, b) }}
plus {{ a = {type}[] parameter(0)
 b = {type}[] parameter(1)
 ROOT s = {type}[] add(a, b) }}
ENTRY e {{
 x = {wide} parameter(0)
 least = {type}[] constant(-inf)
 zero = {type}[] constant(0)
 m = {column} reduce(x, least), dimensions={{1}}, to_apply=larger
 ms = {wide} broadcast(m), dimensions={{0}}
 d = {wide} subtract(x, ms)
 y = {wide} exponential(d)
 s = {column} reduce(y, zero), dimensions={{1}}, to_apply=plus
 ss = {wide} broadcast(s), dimensions={{0}}
 ROOT r = {wide} divide(y, ss)
}}"""


@pytest.mark.parametrize(
    "type, rows, columns",
    [
        ("f32", 2100, 50),  # partitions have several rows at a time, and what is left one each
        ("bf16", 3200, 77),
        ("bf16", 130, 9001),  # rows whose exponentials are made in parts
    ],
)
def test_softmax_of_any_rows(type: str, rows: int, columns: int) -> None:
    x = np.random.default_rng(8).standard_normal((rows, columns)).astype(TYPES[type])
    text = _softmax(type, rows, columns)
    (found,) = graph_compiler.compile(graph_compiler.parse_text(text), "trn2")(x)
    powers = np.exp(x.astype(float) - x.astype(float).max(1, keepdims=True))
    wanted = powers / powers.sum(1, keepdims=True)
    relative = {"f32": 1e-5, "bf16": 3 * 2.0**-8 + 0.02}[type]
    assert np.all(np.abs(found.astype(float) - wanted) <= relative * wanted + 1e-12)


def test_short_rows_take_one_pass() -> None:
    """Operations and transfers take several rows of a partition at a time."""
    moved = 2 * 8192 * 96 * 4 / 368
    assert _ns(_softmax("f32", 8192, 96)) < 3.5 * moved
