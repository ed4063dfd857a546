"""Windows of arrays, which overlap or not, against NumPy; what is rounded before it is chosen."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from on_device import modelled_ns

import graph_compiler
from graph_compiler.options import GraphOptions

FOLDS = {"maximum": (np.max, -np.inf), "minimum": (np.min, np.inf), "add": (np.sum, 0.0)}


def pooled(
    fold: str,
    dims: tuple[int, ...],
    size: int,
    stride: int,
    type: str,
    initial: str,
    dilation: int,
    edge: int = 1,
) -> Any:
    """A graph of windows of two dimensions in the middle, padded by `edge` on each side."""
    n, h, w, c = dims
    reach = dilation * (size - 1) + 1
    ends = [(count + 2 * edge - reach) // stride + 1 for count in (h, w)]
    shape, result = f"{type}[{n},{h},{w},{c}]", f"{type}[{n},{ends[0]},{ends[1]},{c}]"
    dilate = f" rhs_dilate=1x{dilation}x{dilation}x1" if dilation > 1 else ""
    return graph_compiler.parse_text(f"""HloModule pool
f {{ a = {type}[] parameter(0)
 b = {type}[] parameter(1)
 ROOT s = {type}[] {fold}(a, b) }}
ENTRY e {{
 x = {shape} parameter(0)
 i = {type}[] constant({initial})
 ROOT r = {result} reduce-window(x, i), to_apply=f,
  window={{size=1x{size}x{size}x1 stride=1x{stride}x{stride}x1{dilate}
   pad=0_0x{edge}_{edge}x{edge}_{edge}x0_0}}
}}""")


def wanted_of(
    x: Any, fold: str, size: int, stride: int, initial: float, dilation: int, edge: int = 1
) -> Any:
    function, _ = FOLDS[fold]
    around = (0, 0), (edge, edge), (edge, edge), (0, 0)
    padded = np.pad(x.astype(np.float64), around, constant_values=initial)
    reach = dilation * (size - 1) + 1
    windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), axis=(1, 2))
    windows = windows[:, ::stride, ::stride, :, ::dilation, ::dilation]
    found = function(windows, axis=(-2, -1))
    both = np.stack([found, np.full_like(found, initial)])
    return function(both, axis=0)


@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize("fold", list(FOLDS))
@pytest.mark.parametrize(
    "dims, size, stride, dilation, initial",
    [
        ((2, 9, 13, 5), 3, 2, 1, None),
        ((1, 40, 12, 64), 3, 1, 1, None),
        ((3, 11, 8, 7), 2, 2, 1, None),  # windows that do not overlap
        ((2, 10, 9, 3), 3, 2, 2, None),
        ((2, 9, 13, 5), 3, 2, 1, 0.25),
    ],
)
def test_windows(
    dims: Any, size: int, stride: int, dilation: int, initial: float | None, fold: str, type: str
) -> None:
    start = FOLDS[fold][1] if initial is None else initial
    module = pooled(fold, dims, size, stride, type, str(start), dilation)
    x = np.random.default_rng(4).standard_normal(dims, np.float32)
    x = x.astype(ml_dtypes.bfloat16 if type == "bf16" else np.float32)
    (found,) = graph_compiler.compile(module, "trn2")(x)
    wanted = wanted_of(x, fold, size, stride, start, dilation)
    if fold != "add":
        assert np.array_equal(found.astype(np.float64), wanted)
        return
    terms = wanted_of(np.abs(x.astype(np.float32)), fold, size, stride, abs(start), dilation)
    bound = 1e-6 * terms + (2.0**-8 * np.abs(wanted) if type == "bf16" else 0.0)
    assert np.all(np.abs(found.astype(np.float64) - wanted) <= bound)


@pytest.mark.parametrize("fold", list(FOLDS))
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_that_edges_cut(fold: str, stride: int) -> None:
    dims, size, edge = (2, 6, 5, 9), 3, 4  # the first ones have no element
    start = FOLDS[fold][1]
    module = pooled(fold, dims, size, stride, "f32", str(start), 1, edge)
    x = np.random.default_rng(6).standard_normal(dims, np.float32)
    (found,) = graph_compiler.compile(module, "trn2")(x)
    wanted = wanted_of(x, fold, size, stride, start, 1, edge)
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-5 if fold == "add" else 0)


def test_no_padded_array_is_made() -> None:
    # 104 us with one, as it is stored and loaded once more.
    module = pooled("maximum", (4, 56, 56, 64), 3, 2, "f32", "-inf", 1)
    assert modelled_ns(graph_compiler.compile(module, "trn2")) < 80_000


def test_rows_of_pixels_are_folded_before_they_are_loaded_for_other_rows() -> None:
    # 64.8 us where rows are folded first: each is loaded three times whole.
    module = pooled("maximum", (1, 112, 112, 64), 3, 2, "f32", "-inf", 1)
    assert modelled_ns(graph_compiler.compile(module, "trn2")) < 50_000


@pytest.mark.parametrize("auto_cast", ["none", "matmult"])
def test_what_only_products_take_is_rounded_before_the_largest_is_chosen(auto_cast: str) -> None:
    module = graph_compiler.parse_text(
        """HloModule pool
f { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] maximum(a, b) }
ENTRY e {
 x = f32[40,300] parameter(0)
 w = f32[100,64] parameter(1)
 i = f32[] constant(-inf)
 y = f32[40,300] negate(x)
 m = f32[40,100] reduce-window(y, i), to_apply=f, window={size=1x3 stride=1x2 pad=0_0x0_0}
 ROOT r = f32[40,64] dot(m, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}""".replace("[40,300]", "[40,201]")
    )
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(dims, np.float32) for dims in ((40, 201), (100, 64)))
    (found,) = graph_compiler.compile(module, "trn2", GraphOptions(auto_cast=auto_cast))(x, w)
    chosen = np.lib.stride_tricks.sliding_window_view(-x, 3, axis=1)[:, ::2].max(-1)
    weights = w
    if auto_cast == "matmult":
        chosen, weights = (
            a.astype(ml_dtypes.bfloat16).astype(np.float32) for a in (chosen, weights)
        )
    wanted = chosen.astype(np.float64) @ weights
    assert np.all(np.abs(found - wanted) <= 1e-5 * (np.abs(chosen) @ np.abs(weights)))


BODIES = {
    "add": ("ROOT r = s32[] add(a, b)", "s32", "3", np.add),
    "exponents": (  # the logarithm of two exponentials' sum
        "m = f32[] maximum(a, b)\n d = f32[] subtract(a, b)\n o = f32[] abs(d)\n"
        " n = f32[] negate(o)\n e = f32[] exponential(n)\n l = f32[] log-plus-one(e)\n"
        " ROOT r = f32[] add(m, l)",
        "f32",
        "-1e30",
        np.logaddexp,
    ),
}


def folded_rows(body: str, dims: tuple[int, int, int], window: str, result: str) -> Any:
    lines, type, initial, _ = BODIES[body]
    shape = ",".join(map(str, dims))
    return graph_compiler.parse_text(f"""HloModule rows
f {{ a = {type}[] parameter(0)
 b = {type}[] parameter(1)
 {lines} }}
ENTRY e {{
 x = {type}[{shape}] parameter(0)
 i = {type}[] constant({initial})
 ROOT r = {type}[{result}] reduce-window(x, i), window={{{window}}}, to_apply=f
}}""")


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("count", [16, 17, 150])
@pytest.mark.parametrize("body", list(BODIES))
def test_all_elements_up_to_each_by_any_computation(body: str, count: int, backward: bool) -> None:
    _, type, initial, function = BODIES[body]
    dims = (5, count, 7)
    pad = f"0_{count - 1}" if backward else f"{count - 1}_0"
    shape = ",".join(map(str, dims))
    module = folded_rows(body, dims, f"size=1x{count}x1 pad=0_0x{pad}x0_0", shape)
    x = np.random.default_rng(7).standard_normal(dims) * 9
    x = x.astype(np.int32 if type == "s32" else np.float32)
    (found,), profile = graph_compiler.compile(module, "trn2").profile(x)
    wide = x.astype(np.float64)[:, ::-1] if backward else x.astype(np.float64)
    wanted = function.accumulate(wide, axis=1)
    wanted = function(wanted[:, ::-1] if backward else wanted, float(initial))
    np.testing.assert_allclose(found, wanted, rtol=0 if type == "s32" else 1e-5, atol=0)
    assert profile.total_ns < 350_000  # each window by itself takes milliseconds


def test_long_windows_by_any_computation() -> None:
    dims, size = (2, 300, 3), 200
    module = folded_rows("exponents", dims, f"size=1x{size}x1 pad=0_0x7_9x0_0", "2,117,3")
    x = np.random.default_rng(8).standard_normal(dims).astype(np.float32) * 9
    (found,) = graph_compiler.compile(module, "trn2")(x)
    padded = np.pad(x.astype(np.float64), ((0, 0), (7, 9), (0, 0)), constant_values=-1e30)
    views = np.lib.stride_tricks.sliding_window_view(padded, size, axis=1)
    np.testing.assert_allclose(found, np.logaddexp.reduce(views, axis=-1), rtol=1e-5)


def test_windows_of_three_dimensions_are_as_fast_as_memory() -> None:
    module = graph_compiler.parse_text("""HloModule pool
f { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] maximum(a, b) }
ENTRY e {
 x = f32[2,24,16,18,32] parameter(0)
 i = f32[] constant(-inf)
 ROOT r = f32[2,24,8,6,8] reduce-window(x, i), to_apply=f,
  window={size=1x1x2x3x4 stride=1x1x2x3x4}
}""")
    x = np.random.default_rng(0).standard_normal((2, 24, 16, 18, 32), np.float32)
    compiled = graph_compiler.compile(module, "trn2")
    (found,) = compiled(x)
    np.testing.assert_array_equal(found, x.reshape(2, 24, 8, 2, 6, 3, 8, 4).max((3, 5, 7)))
    assert modelled_ns(compiled) < 4 * x.nbytes / 368  # 60 window by window
