"""Element-wise work on an operand of a product is done where the product loads it: NumPy says what
results must be, and the modelled bytes of HBM that nothing goes there in between."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined

from graph_compiler import GraphOptions, compile, parse_text
from graph_compiler.compiled import Compiled
from graph_compiler.lower import limits
from graph_compiler.lower.limits import PlanLimits

Array = np.ndarray[Any, Any]
BF16 = ml_dtypes.bfloat16


def text(rows: int, depth: int, columns: int, scale: str, transposed: bool = False) -> str:
    """A product with int8 weights [depth, columns], or transposed ones, times a scale for each
    element of the dimensions `scale` of these."""
    sizes = (columns, depth) if transposed else (depth, columns)
    weights = f"bf16[{sizes[0]},{sizes[1]}]"
    axes = [int(axis) for axis in scale]
    own = ",".join(str(sizes[axis]) for axis in axes)
    return f"""HloModule scaled
ENTRY e {{
 x = bf16[{rows},{depth}] parameter(0)
 w = s8[{sizes[0]},{sizes[1]}] parameter(1)
 s = bf16[{own}] parameter(2)
 c = {weights} convert(w)
 b = {weights} broadcast(s), dimensions={{{",".join(scale)}}}
 m = {weights} multiply(c, b)
 ROOT r = f32[{rows},{columns}] dot(x, m), lhs_contracting_dims={{1}}, \
rhs_contracting_dims={{{int(transposed)}}}
}}"""


def given(rows: int, depth: int, columns: int, scale: str, transposed: bool) -> list[Array]:
    random = np.random.default_rng(depth + columns)
    sizes = (columns, depth) if transposed else (depth, columns)
    return [
        random.standard_normal((rows, depth)).astype(BF16),
        random.integers(-127, 128, sizes).astype(np.int8),
        random.standard_normal([sizes[int(axis)] for axis in scale]).astype(BF16),
    ]


def assert_close(found: Array, left: Array, right: Array) -> None:
    """The sums of products are within what rounding allows."""
    a, b = left.astype(np.float64), right.astype(np.float64)
    bound = (a.shape[-1] + 1) * 2.0**-24 * (abs(a) @ abs(b))
    assert (abs(found - a @ b) <= bound).all()


def moved(compiled: Compiled, *inputs: Array) -> int:
    """Bytes that transfers read and write in HBM."""
    _, profile = compiled.profile(*inputs)
    return profile.dma.hbm_read_bytes + profile.dma.hbm_write_bytes


SHAPES = [(16, 256, 512), (300, 293, 77), (1, 128, 640), (130, 1000, 33)]


@combined({"shape": SHAPES, "scale": ["0", "1", "01", ""], "transposed": [False, True]})
def test_weights_are_scaled(shape: tuple[int, int, int], scale: str, transposed: bool) -> None:
    x, w, s = given(*shape, scale, transposed)
    compiled = compile(parse_text(text(*shape, scale, transposed)), "trn2")
    (found,) = compiled(x, w, s)
    axes = [axis for axis in (0, 1) if str(axis) not in scale]
    weights = (w.astype(np.float32) * np.expand_dims(s.astype(np.float32), axes)).astype(BF16)
    assert_close(found, x, weights.T if transposed else weights)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_weights_do_not_go_through_memory(target: str) -> None:
    inputs = given(16, 1024, 1024, "1", False)
    compiled = compile(parse_text(text(16, 1024, 1024, "1")), target)
    x, w, s = inputs
    # Partitions load the scale for themselves. Weights in bf16 are twice as many bytes.
    assert moved(compiled, *inputs) < w.nbytes + 128 * s.nbytes + 4 * x.nbytes + (16 << 12)


@combined({"groups, group": [(4, 128), (6, 64), (3, 96), (5, 40), (2, 256)], "rows": [16, 150]})
def test_groups_of_the_depth_have_scales(groups: int, group: int, rows: int) -> None:
    depth, columns = groups * group, 200
    form = f"bf16[{groups},{group},{columns}]"
    compiled = compile(
        parse_text(f"""HloModule groups
ENTRY e {{
 x = bf16[{rows},{depth}] parameter(0)
 w = s8[{groups},{group},{columns}] parameter(1)
 s = bf16[{groups},{columns}] parameter(2)
 c = {form} convert(w)
 b = {form} broadcast(s), dimensions={{0,2}}
 m = {form} multiply(c, b)
 f = bf16[{depth},{columns}] reshape(m)
 ROOT r = f32[{rows},{columns}] dot(x, f), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""),
        "trn2",
    )
    random = np.random.default_rng(group)
    x = random.standard_normal((rows, depth)).astype(BF16)
    w = random.integers(-127, 128, (groups, group, columns)).astype(np.int8)
    s = random.standard_normal((groups, columns)).astype(BF16)
    (found,) = compiled(x, w, s)
    weights = (w.astype(np.float32) * s.astype(np.float32)[:, None]).astype(BF16)
    assert_close(found, x, weights.reshape(depth, columns))


def test_groups_of_rows_have_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are transposed: groups of the depth are neighbours in memory, and loaded together."""
    plan = PlanLimits(right=8 << 10)
    monkeypatch.setattr(limits, "plans", lambda cores=1: (plan,))
    rows, columns, groups, group = 300, 2048, 16, 128
    depth, form = groups * group, f"f32[{columns},{groups},{group}]"
    compiled = compile(
        parse_text(f"""HloModule groups
ENTRY e {{
 x = f32[{rows},{depth}] parameter(0)
 w = f32[{columns},{groups},{group}] parameter(1)
 s = f32[{groups}] parameter(2)
 b = {form} broadcast(s), dimensions={{1}}
 m = {form} multiply(w, b)
 f = f32[{columns},{depth}] reshape(m)
 ROOT r = f32[{rows},{columns}] dot(x, f), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
}}"""),
        "trn2",
    )
    random = np.random.default_rng(rows)
    x = random.standard_normal((rows, depth), np.float32)
    w = random.standard_normal((columns, groups, group), np.float32)
    s = random.standard_normal(groups, np.float32)
    (found,) = compiled(x, w, s)
    assert_close(found, x, (w * s[:, None]).reshape(columns, depth).T)


def test_zeros_times_infinity_are_nan() -> None:
    x, w, s = given(16, 256, 128, "1", False)
    w[3, :5], s[0], s[1] = 0, np.inf, np.nan
    (found,) = compile(parse_text(text(16, 256, 128, "1")), "trn2")(x, w, s)
    assert np.isnan(found[:, :2]).all() and not np.isnan(found[:, 2:]).any()


GRADIENT = """HloModule gradient
ENTRY e {
 x = f32[DEPTH,ROWS] parameter(0)
 d = f32[DEPTH,COLUMNS] parameter(1)
 h = f32[DEPTH,COLUMNS] parameter(2)
 zero = f32[] constant(0)
 zeros = f32[DEPTH,COLUMNS] broadcast(zero), dimensions={}
 p = pred[DEPTH,COLUMNS] compare(h, zeros), direction=GT
 m = f32[DEPTH,COLUMNS] select(p, d, zeros)
 t = f32[DEPTH,ROWS] multiply(x, x)
 ROOT r = f32[ROWS,COLUMNS] dot(t, m), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}"""


@combined({"shape": [(256, 512, 384), (70, 333, 50), (520, 640, 1100)], "cores": [1, 2]})
def test_both_operands_are_computed(shape: tuple[int, int, int], cores: int) -> None:
    rows, depth, columns = shape
    graph = GRADIENT.replace("ROWS", str(rows)).replace("DEPTH", str(depth))
    graph = graph.replace("COLUMNS", str(columns))
    random = np.random.default_rng(rows)
    x = random.standard_normal((depth, rows), np.float32)
    d, h = random.standard_normal((2, depth, columns), np.float32)
    (found,) = compile(parse_text(graph), "trn2", GraphOptions(logical_cores=cores))(x, d, h)
    assert_close(found, (x * x).T, np.where(h > 0, d, np.float32(0)))


BATCH = """HloModule batch
ENTRY e {
 a = f32[B,M,K] parameter(0)
 b = f32[B,K,N] parameter(1)
 s = f32[SIZES] parameter(2)
 f = f32[B,K,N] broadcast(s), dimensions={AXES}
 m = f32[B,K,N] multiply(b, f)
 ROOT r = f32[B,M,N] dot(a, m), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, \
rhs_contracting_dims={1}
}"""


@combined(
    {
        "axes": [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)],
        "shape": [(3, 70, 200, 90), (20, 33, 64, 48), (40, 16, 130, 600)],
    }
)
def test_elements_of_a_batch_are_scaled(
    shape: tuple[int, int, int, int], axes: tuple[int, ...]
) -> None:
    graph = BATCH.replace("AXES", ",".join(map(str, axes)))
    own = [(shape[0], *shape[2:])[axis] for axis in axes]
    graph = graph.replace("SIZES", ",".join(map(str, own)))
    for name, size in zip("BMKN", shape):
        graph = graph.replace(name + ",", f"{size},").replace("," + name, f",{size}")
    batch, rows, depth, columns = shape
    random = np.random.default_rng(rows)
    a = random.standard_normal((batch, rows, depth), np.float32)
    b = random.standard_normal((batch, depth, columns), np.float32)
    s = random.standard_normal(own, np.float32)
    (found,) = compile(parse_text(graph), "trn2")(a, b, s)
    others = [axis for axis in range(3) if axis not in axes]
    assert_close(found, a, b * np.expand_dims(s, others))


def test_what_is_read_later_is_computed_before_it_changes() -> None:
    """The parameter that the operand is computed of becomes the result of the product."""
    graph = """HloModule donated, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
 w = f32[256,256] parameter(0)
 x = f32[256,256] parameter(1)
 s = f32[256] parameter(2)
 b = f32[256,256] broadcast(s), dimensions={1}
 m = f32[256,256] multiply(w, b)
 ROOT r = f32[256,256] dot(x, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""
    random = np.random.default_rng(1)
    w, x = random.standard_normal((2, 256, 256), np.float32)
    s = random.standard_normal(256, np.float32)
    (found,) = compile(parse_text(graph), "trn2")(w, x, s)
    assert_close(found, x, w * s)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("rows", [64, 512])
def test_a_long_depth_is_computed_in_parts(rows: int, level: int) -> None:
    """Four blocks of columns of 16384 elements are more than a partition holds."""
    text = f"""HloModule long
ENTRY e {{
 x = bf16[{rows},16384] parameter(0)
 w = f32[512,16384] parameter(1)
 c = bf16[512,16384] convert(w)
 ROOT r = f32[{rows},512] dot(x, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
}}"""
    random = np.random.default_rng(rows)
    x = random.integers(-3, 4, (rows, 16384)).astype(ml_dtypes.bfloat16)
    w = random.integers(-9, 10, (512, 16384)).astype(np.float32)
    (found,) = compile(parse_text(text), "trn2", GraphOptions(optimisation=level))(x, w)
    np.testing.assert_array_equal(found, x.astype(np.float64) @ w.T.astype(np.float64))
