"""Convolutions with element-wise work behind them, against NumPy in float64; what is stored."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined
from on_device import modelled_ns

import graph_compiler
from graph_compiler.lower.products.bands import Band
from graph_compiler.lower.products.images import Images
from graph_compiler.lower.products.loaded_bands import FetchedBand, LoadedBands
from graph_compiler.options import GraphOptions
from isa.enums import Engine
from isa.machine.tensor import MultiplyMoving

IMAGES = (2, 9, 7, 20)


def convolved(x: Any, k: Any, stride: int, dilation: int = 1) -> Any:
    """Of [batch, rows, columns, features] and [rows, columns, features, outputs], padded by half of
    what a window reaches."""
    reach = dilation * (k.shape[0] - 1) + 1
    edge = reach // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (edge, edge), (edge, edge), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), axis=(1, 2))
    windows = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]
    return np.einsum("nhwcij,ijco->nhwo", windows, k.astype(np.float64))


def shape_of(dims: Any, first: bool) -> str:
    n, h, w, c = dims
    return f"{n},{c},{h},{w}" if first else f"{n},{h},{w},{c}"


def graph(outputs: int, stride: int, first: bool, body: str, weights: str = "parameter(2)") -> Any:
    """A convolution `c` of x and k, and what `body` makes of it, of `b` for each output and of `q`
    for each element, whose shape is R."""
    n, h, w, c = IMAGES
    own = shape_of((n, -(-h // stride), -(-w // stride), outputs), first)
    kernel = f"{outputs},{c},3,3" if first else f"3,3,{c},{outputs}"
    labels = "bf01_oi01->bf01" if first else "b01f_01io->b01f"
    text = f"""HloModule g
ENTRY e {{
 x = f32[{shape_of(IMAGES, first)}] parameter(0)
 b = f32[{outputs}] parameter(1)
 k = f32[{kernel}] {weights}
 q = R parameter(3)
 bs = R broadcast(b), dimensions={{{1 if first else 3}}}
 zero = f32[] constant(0)
 zeros = R broadcast(zero), dimensions={{}}
 c = R convolution(x, k), window={{size=3x3 pad=1_1x1_1 stride={stride}x{stride}}},
  dim_labels={labels}
{body}
}}"""
    text = text.replace(" R ", f" f32[{own}] ").replace("HALF", f"bf16[{own}]")
    return graph_compiler.parse_text(text.replace("WHOLE", f"f32[{own}]"))


def operands(outputs: int, stride: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(3)
    n, h, w, c = IMAGES
    x = rng.standard_normal(IMAGES, np.float32)
    b = rng.standard_normal(outputs, np.float32)
    k = rng.standard_normal((3, 3, c, outputs), np.float32)
    q = rng.standard_normal((n, -(-h // stride), -(-w // stride), outputs), np.float32)
    return x, b, k, q


def in_order(x: Any, b: Any, k: Any, q: Any, first: bool) -> list[Any]:
    """The arrays as a graph has them whose features come first, or last."""
    if not first:
        return [x, b, k, q]
    x, q = (np.ascontiguousarray(a.transpose(0, 3, 1, 2)) for a in (x, q))
    return [x, b, np.ascontiguousarray(k.transpose(3, 2, 0, 1)), q]


ROWS = """ d = R add(c, bs)
 ROOT r = R maximum(d, zeros)"""

WHOLE = """ d = R add(c, bs)
 s = R add(d, q)
 r = R maximum(s, zeros)
 t = HALF convert(r)
 ROOT both = (WHOLE, HALF) tuple(r, t)"""


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("outputs", [5, 40])
def test_tiles_of_few_outputs_are_multiplied_beside_one_another(
    outputs: int, first: bool, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In columns of the array of their own: as wide as the generation allows."""
    monkeypatch.setattr(Images, "_plan", lambda self: self._take(1, True, False))
    monkeypatch.setattr("graph_compiler.lower.products.strips.plan_of", lambda *_: None)
    monkeypatch.setattr("graph_compiler.lower.products.image_plans.COLUMNS", 32)
    x, b, k, q = operands(outputs, 1)
    compiled = graph_compiler.compile(graph(outputs, 1, first, ROWS), target)
    (found,) = compiled(*in_order(x, b, k, q, first))
    found = found.transpose(0, 2, 3, 1) if first else found
    wanted = np.maximum(convolved(x, k, 1) + b, 0)
    assert np.all(np.abs(found - wanted) <= 1e-5 * convolved(np.abs(x), np.abs(k), 1) + 1e-5)
    stream = compiled.kernel.program.cores[0].streams[Engine.tensor]
    tiles = {i.values[3] for i in stream if i.row is MultiplyMoving}
    side = 32 if target == "trn2" and outputs == 5 else 64
    assert {(tile.column, tile.columns) for tile in tiles} == {
        (column, side) for column in range(0, 128, side)
    }


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("outputs", [5, 130])
def test_images_in_several_bands(
    outputs: int, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is loaded while the ones before it are brought to their places and multiplied."""
    monkeypatch.setattr("graph_compiler.lower.products.image_plans.IMAGES", 120)
    monkeypatch.setattr("graph_compiler.lower.products.strips.plan_of", lambda *_: None)
    bands: list[Band] = []
    fetched = LoadedBands.fetched

    def noted(self: LoadedBands, band: Band, beside: Any) -> FetchedBand:
        bands.append(band)
        return fetched(self, band, beside)

    monkeypatch.setattr(LoadedBands, "fetched", noted)
    x, b, k, q = operands(outputs, 1)
    compiled = graph_compiler.compile(graph(outputs, 1, first, ROWS), "trn2")
    assert len(bands) >= 6
    (found,) = compiled(*in_order(x, b, k, q, first))
    found = found.transpose(0, 2, 3, 1) if first else found
    wanted = np.maximum(convolved(x, k, 1) + b, 0)
    assert np.all(np.abs(found - wanted) <= 1e-5 * convolved(np.abs(x), np.abs(k), 1) + 1e-5)


@combined(
    {
        "outputs, stride, cores": list(product([5, 130], [1, 2], [1, 2])),
        "whole, first": list(product([False, True], [False, True])),
    }
)
def test_work_behind_a_convolution(
    whole: bool, first: bool, outputs: int, stride: int, cores: int
) -> None:
    x, b, k, q = operands(outputs, stride)
    module = graph(outputs, stride, first, WHOLE if whole else ROWS)
    compiled = graph_compiler.compile(module, "trn2", GraphOptions(logical_cores=cores))
    found = [np.asarray(one) for one in compiled(*in_order(x, b, k, q, first))]
    wanted = convolved(x, k, stride) + b + (q if whole else 0)
    wanted = np.maximum(wanted, 0)
    bound = 1e-5 * convolved(np.abs(x), np.abs(k), stride) + 1e-5
    for one, rounding in zip(found, (0.0, 2.0**-8)):
        result = one.astype(np.float64)
        result = result.transpose(0, 2, 3, 1) if first else result
        assert np.all(np.abs(result - wanted) <= bound + rounding * wanted)


@pytest.mark.parametrize("first", [False, True])
def test_nothing_but_results_is_stored(first: bool) -> None:
    x, b, k, q = operands(130, 1)
    compiled = graph_compiler.compile(graph(130, 1, first, ROWS), "trn2")
    _, profile = compiled.profile(*in_order(x, b, k, q, first))
    assert profile.dma.hbm_write_bytes == q.nbytes


def test_a_convolution_that_others_read_is_stored_as_well() -> None:
    x, b, k, q = operands(5, 1)
    body = """ d = R add(c, bs)
 m = R multiply(c, q)
 ROOT both = (WHOLE, WHOLE) tuple(d, m)"""
    sums, products = graph_compiler.compile(graph(5, 1, False, body), "trn2")(x, b, k, q)
    wanted = convolved(x, k, 1)
    bound = 1e-5 * convolved(np.abs(x), np.abs(k), 1) + 1e-5
    assert np.all(np.abs(sums - (wanted + b)) <= bound)
    assert np.all(np.abs(products - wanted * q) <= bound * np.maximum(1, np.abs(q)))


def factored(weights: Any) -> Any:
    """A frozen graph whose convolution has a factor for each output behind it."""
    module = graph(5, 1, False, " ROOT r = R multiply(c, bs)")
    return graph_compiler.freeze(module, {"k": weights[0], "b": weights[1]})


@pytest.mark.parametrize("auto_cast", ["none", "matmult"])
def test_constant_factors_are_part_of_constant_weights(auto_cast: str) -> None:
    x, b, k, q = operands(5, 1)
    compiled = graph_compiler.compile(factored((k, b)), "trn2", GraphOptions(auto_cast=auto_cast))
    found, profile = compiled.profile(x, q)
    wanted = convolved(x, k, 1) * b
    terms = convolved(np.abs(x), np.abs(k), 1) * np.abs(b)
    assert np.all(np.abs(found[0] - wanted) <= (1e-5 if auto_cast == "none" else 2.0**-7) * terms)
    texts = [line.text for line in profile.lines]
    assert not any("multiply" in text for text in texts), texts


def test_factors_that_lose_bits_are_no_part_of_weights() -> None:
    x, b, k, q = operands(5, 1)
    x, b, k = x * np.float32(2.0**60), np.full_like(b, 2.0**-60), k * np.float32(2.0**-60)
    (found,) = graph_compiler.compile(factored((k, b)), "trn2")(x, q)
    wanted = convolved(x, k, 1) * b.astype(np.float64)
    terms = convolved(np.abs(x), np.abs(k), 1) * np.abs(b)
    assert np.all(np.abs(found - wanted) <= 1e-5 * terms)


STRIPS = [
    # batch, rows, columns, features; outputs, window, stride, dilation
    ((2, 30, 21, 3), 64, 7, 2, 1),
    ((3, 9, 13, 5), 17, 3, 1, 2),
    ((1, 300, 12, 2), 40, 3, 1, 1),  # more rows than partitions
    ((5, 7, 9, 1), 130, 5, 2, 1),
    ((2, 12, 12, 11), 300, 3, 2, 1),
]


@combined(
    {
        "type, order, first": list(product(["f32", "bf16"], ["01io", "oi01"], [False, True])),
        "dims, outputs, window, stride, dilation": STRIPS,
    }
)
def test_images_of_few_features(
    dims: Any,
    outputs: int,
    window: int,
    stride: int,
    dilation: int,
    first: bool,
    order: str,
    type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows along partitions, whether or not that is the faster way."""
    monkeypatch.setattr(Images, "ns", float("inf"))
    n, h, w, c = dims
    edge = dilation * (window - 1) // 2
    high, wide = (-(-size // stride) for size in (h, w))
    image = shape_of(dims, first)
    result = f"f32[{shape_of((n, high, wide, outputs), first)}]"
    dilate = f" rhs_dilate={dilation}x{dilation}" if dilation > 1 else ""
    kernel = f"{outputs},{c},{window},{window}" if order == "oi01" else ""
    kernel = kernel or f"{window},{window},{c},{outputs}"
    whole = "bf01" if first else "b01f"
    module = graph_compiler.parse_text(f"""HloModule g
ENTRY e {{
 x = {type}[{image}] parameter(0)
 k = {type}[{kernel}] parameter(1)
 b = f32[{outputs}] parameter(2)
 bs = {result} broadcast(b), dimensions={{{1 if first else 3}}}
 c = {result} convolution(x, k), window={{size={window}x{window}
  pad={edge}_{edge}x{edge}_{edge} stride={stride}x{stride}{dilate}}},
  dim_labels={whole}_{order}->{whole}
 ROOT r = {result} add(c, bs)
}}""")
    dtype = ml_dtypes.bfloat16 if type == "bf16" else np.float32
    rng = np.random.default_rng(6)
    x, k = (
        rng.standard_normal(shape, np.float32).astype(dtype)
        for shape in (dims, (window, window, c, outputs))
    )
    b = rng.standard_normal(outputs, np.float32)
    own = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if first else x
    weights = np.ascontiguousarray(k.transpose(3, 2, 0, 1)) if order == "oi01" else k
    (found,) = graph_compiler.compile(module, "trn2")(own, weights, b)
    found = found.transpose(0, 2, 3, 1) if first else found
    x, k = x.astype(np.float32), k.astype(np.float32)
    bound = 1e-5 * convolved(np.abs(x), np.abs(k), stride, dilation) + 1e-5
    assert np.all(np.abs(found - (convolved(x, k, stride, dilation) + b)) <= bound)


def test_rows_of_few_features_lie_along_partitions() -> None:
    """A convolution of three features, as vision models begin with, is near its products' time."""
    module = graph_compiler.parse_text("""HloModule g
ENTRY e {
 x = bf16[1,224,224,3] parameter(0)
 k = bf16[7,7,3,64] parameter(1)
 ROOT c = bf16[1,112,112,64] convolution(x, k), window={size=7x7 pad=3_3x3_3 stride=2x2},
  dim_labels=b01f_01io->b01f
}""")
    ns = modelled_ns(graph_compiler.compile(module, "trn1"))
    assert ns < 30_000  # 180,700 with features along partitions


@pytest.mark.parametrize(
    "dims, type",
    [
        ((3, 19, 23, 150), "f32"),
        ((1, 5, 140, 70), "f32"),
        ((2, 33, 9, 217), "f32"),
        ((1, 30, 27, 36), "bf16"),  # nine tiles, of which one is turned alone
    ],
)
@pytest.mark.parametrize("stride", [1, 2])
def test_pixels_beside_one_another_are_one_run(dims: Any, type: str, stride: int) -> None:
    n, h, w, c = dims
    high, wide = (-(-size // stride) for size in (h, w))
    module = graph_compiler.parse_text(f"""HloModule g
ENTRY e {{
 x = {type}[{shape_of(dims, False)}] parameter(0)
 k = {type}[3,3,{c},48] parameter(1)
 ROOT c = f32[{n},{high},{wide},48] convolution(x, k), dim_labels=b01f_01io->b01f,
  window={{size=3x3 pad=1_1x1_1 stride={stride}x{stride}}}
}}""")
    rng = np.random.default_rng(8)
    dtype = ml_dtypes.bfloat16 if type == "bf16" else np.float32
    x, k = (rng.standard_normal(shape).astype(dtype) for shape in (dims, (3, 3, c, 48)))
    compiled = graph_compiler.compile(module, "trn2")
    (found,) = compiled(x, k)
    x, k = x.astype(np.float32), k.astype(np.float32)
    bound = 1e-5 * convolved(np.abs(x), np.abs(k), stride) + 1e-5
    assert np.all(np.abs(found - convolved(x, k, stride)) <= bound)


def test_rows_of_many_features_are_loaded_in_long_runs() -> None:
    module = graph_compiler.parse_text("""HloModule g
ENTRY e {
 x = f32[14,35,35,217] parameter(0)
 k = f32[3,3,217,48] parameter(1)
 ROOT c = f32[14,18,18,48] convolution(x, k), window={size=3x3 pad=1_1x1_1 stride=2x2},
  dim_labels=b01f_01io->b01f
}""")
    ns = modelled_ns(graph_compiler.compile(module, "trn2"))
    assert ns < 130_000  # 177,200 pixel by pixel, and a tile at a time


def test_columns_that_fill_no_run_are_loaded_first() -> None:
    module = graph_compiler.parse_text("""HloModule g
ENTRY e {
 x = bf16[1,64,64,320] parameter(0)
 k = bf16[3,3,320,320] parameter(1)
 ROOT c = bf16[1,64,64,320] convolution(x, k), window={size=3x3 pad=1_1x1_1},
  dim_labels=b01f_01io->b01f
}""")
    ns = modelled_ns(graph_compiler.compile(module, "trn2"))
    assert ns < 122_500  # 124,600 where the first products wait for them


@pytest.mark.parametrize("size, dilation", [(1, 1), (3, 2)])
def test_pixels_that_no_window_takes_are_not_loaded(size: int, dilation: int) -> None:
    edge = dilation * (size - 1) // 2
    module = graph_compiler.parse_text(f"""HloModule g
ENTRY e {{
 x = f32[2,16,16,130] parameter(0)
 k = f32[{size},{size},130,9] parameter(1)
 ROOT c = f32[2,8,8,9] convolution(x, k), window={{size={size}x{size} stride=2x2
  pad={edge}_{edge}x{edge}_{edge} rhs_dilate={dilation}x{dilation}}}, dim_labels=b01f_01io->b01f
}}""")
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 16, 16, 130), np.float32)
    k = rng.standard_normal((size, size, 130, 9), np.float32)
    (found,), profile = graph_compiler.compile(module, "trn2").profile(x, k)
    assert profile.dma.hbm_read_bytes < x.nbytes // 2  # a quarter, and the kernel
    wanted = convolved(x, k, 2, dilation)
    assert np.all(np.abs(found - wanted) <= 1e-5 * convolved(np.abs(x), np.abs(k), 2, dilation))


def test_planes_with_columns_that_no_window_takes_are_one_run() -> None:
    """Every second pixel of 16 columns: the last column is loaded, too."""
    module = graph_compiler.parse_text("""HloModule g
ENTRY e {
 x = f32[2,130,16,16] parameter(0)
 k = f32[9,130,1,1] parameter(1)
 ROOT c = f32[2,9,8,8] convolution(x, k), window={size=1x1 stride=2x2},
  dim_labels=bf01_oi01->bf01
}""")
    rng = np.random.default_rng(2)
    x = rng.standard_normal((2, 130, 16, 16), np.float32)
    k = rng.standard_normal((9, 130, 1, 1), np.float32)
    (found,), profile = graph_compiler.compile(module, "trn2").profile(x, k)
    assert profile.dma.descriptors < 2 * 130 + 9 * 4 + 100  # a plane each
    wanted = np.einsum("nchw,oc->nohw", x[:, :, ::2, ::2].astype(np.float64), k[:, :, 0, 0])
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()


@combined(
    {
        "type, first, count": list(product(["f32", "bf16"], [False, True], [1, 3])),
        "features, window, stride, dilation": [
            *((40, 3, 1, 1), (9, 5, 1, 2), (130, 3, 2, 1), (70, 5, 1, 1)),
        ],
    }
)
def test_columns_of_few_outputs_are_one_product(
    features: int,
    window: int,
    stride: int,
    dilation: int,
    count: int,
    first: bool,
    type: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many as asked for, whatever pays, and what is left over; by turns where windows have
    gaps."""

    def plan(self: Images) -> None:
        self._take(count, apart=True, pixels_first=True)

    monkeypatch.setattr(Images, "_plan", plan)
    monkeypatch.setattr("graph_compiler.lower.products.strips.plan_of", lambda *_: None)
    dims, outputs, edge = (2, 7, 13, features), 11, dilation * (window - 1) // 2
    own = (2, -(-7 // stride), -(-13 // stride), outputs)
    labels = "bf01_oi01->bf01" if first else "b01f_01io->b01f"
    kernel = [outputs, features, window, window] if first else [window, window, features, outputs]
    module = graph_compiler.parse_text(f"""HloModule g
ENTRY e {{
 x = {type}[{shape_of(dims, first)}] parameter(0)
 k = {type}[{",".join(map(str, kernel))}] parameter(1)
 b = {type}[{outputs}] parameter(2)
 bs = {type}[{shape_of(own, first)}] broadcast(b), dimensions={{{1 if first else 3}}}
 c = {type}[{shape_of(own, first)}] convolution(x, k), window={{size={window}x{window}
  pad={edge}_{edge}x{edge}_{edge} stride={stride}x{stride} rhs_dilate={dilation}x{dilation}}},
  dim_labels={labels}
 ROOT r = {type}[{shape_of(own, first)}] add(c, bs)
}}""")
    dtype = ml_dtypes.bfloat16 if type == "bf16" else np.float32
    rng = np.random.default_rng(4)
    x, k, b = (
        rng.standard_normal(shape, np.float32).astype(dtype)
        for shape in (dims, (window, window, features, outputs), (outputs,))
    )
    given = [x, k, b]
    if first:
        given[:2] = [np.ascontiguousarray(x.transpose(0, 3, 1, 2)), k.transpose(3, 2, 0, 1).copy()]
    (found,) = graph_compiler.compile(module, "trn2")(*given)
    found = found.astype(np.float64)
    found = found.transpose(0, 2, 3, 1) if first else found
    x, k, b = (one.astype(np.float32) for one in (x, k, b))
    sums = convolved(x, k, stride, dilation)
    bound = 1e-5 * convolved(np.abs(x), np.abs(k), stride, dilation) + 1e-5
    if type == "bf16":
        bound = bound + 2.0**-8 * (np.abs(sums) + np.abs(sums + b))
    assert np.all(np.abs(found - (sums + b)) <= bound)


def test_products_begin_before_all_of_an_image_is_there() -> None:
    module = graph_compiler.parse_text("""HloModule g
ENTRY e {
 x = bf16[2,278,100,100] parameter(0)
 k = bf16[131,278,3,3] parameter(1)
 ROOT c = bf16[2,131,100,100] convolution(x, k), window={size=3x3 pad=1_1x1_1},
  dim_labels=bf01_oi01->bf01
}""")
    ns = modelled_ns(graph_compiler.compile(module, "trn2"))
    assert ns < 240_000  # 255,600 where the first one is loaded whole


def test_bands_have_work_while_a_large_kernel_is_loaded() -> None:
    module = graph_compiler.parse_text("""HloModule g
ENTRY e {
 x = f32[3,11,11,511] parameter(0)
 k = f32[5,5,511,162] parameter(1)
 ROOT c = f32[3,11,11,162] convolution(x, k), window={size=5x5 pad=2_2x2_2},
  dim_labels=b01f_01io->b01f
}""")
    assert modelled_ns(graph_compiler.compile(module, "trn2")) < 105_000  # 116,000 image by image


@pytest.mark.parametrize("first", [False, True])
def test_outputs_that_are_left_are_multiplied_in_columns_of_their_own(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """202 outputs: all of the array, halves, and quarters."""
    monkeypatch.setattr(Images, "_plan", lambda self: self._take(1, True, False))
    monkeypatch.setattr("graph_compiler.lower.products.strips.plan_of", lambda *_: None)
    x, b, k, q = operands(202, 1)
    compiled = graph_compiler.compile(graph(202, 1, first, ROWS), "trn2")
    (found,) = compiled(*in_order(x, b, k, q, first))
    found = found.transpose(0, 2, 3, 1) if first else found
    wanted = np.maximum(convolved(x, k, 1) + b, 0)
    assert np.all(np.abs(found - wanted) <= 1e-5 * convolved(np.abs(x), np.abs(k), 1) + 1e-5)
    stream = compiled.kernel.program.cores[0].streams[Engine.tensor]
    assert {i.values[3].columns for i in stream if i.row is MultiplyMoving} == {128, 64, 32}
