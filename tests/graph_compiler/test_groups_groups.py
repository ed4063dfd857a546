"""Rows that several nests write in pieces: they are put together on chip and stored as a whole.
NumPy says what they are."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import modelled_ns

from graph_compiler import GraphOptions, compile, parse_text
from isa.operations.dma import DmaCopy
from nki.ir.nodes import operations

PAIRS = """HloModule pairs
ENTRY e {
 x = f32[ROWS,WIDE] parameter(0)
 y = f32[ROWS,WIDE] parameter(1)
 u = f32[ROWS,WIDE] multiply(x, x)
 v = f32[ROWS,WIDE] subtract(y, x)
 a = f32[ROWS,WIDE,1] reshape(u)
 b = f32[ROWS,WIDE,1] reshape(v)
 ROOT r = f32[ROWS,WIDE,2] concatenate(a, b), dimensions={2}
}"""


def stored_run(module: Any) -> float:
    """Elements of a run of what a program stores, in the mean."""
    stages: dict[str, Any] = {}
    compile(module, "trn2", observe=lambda stage, made: stages.setdefault(stage, made))
    ops = [op for body in stages["trace"].bodies for op in operations(body)]
    views = [op.fields["dst"] for op in ops if op.row is DmaCopy]
    stored = [view for view in views if not view.storage.memory.on_chip]
    elements = [math.prod(view.shape) for view in stored]
    runs = [view.shape[-1] if view.strides[-1] == 1 else 1 for view in stored]
    return sum(elements) / sum(count / run for count, run in zip(elements, runs))


@pytest.mark.parametrize("rows, wide", [(128, 512), (1000, 64), (4096, 32), (77, 300)])
def test_interleaved_rows_are_stored_as_a_whole(rows: int, wide: int) -> None:
    text = PAIRS.replace("ROWS", str(rows)).replace("WIDE", str(wide))
    x, y = np.random.default_rng(rows).standard_normal((2, rows, wide)).astype(np.float32)
    module = parse_text(text)
    (found,) = compile(module, "trn2")(x, y)
    np.testing.assert_array_equal(found, np.stack([x * x, y - x], -1))
    assert stored_run(module) >= 8


@settings(max_examples=25)
@given(data=st.data())
def test_rows_in_pieces_are_what_numpy_concatenates(data: Any) -> None:
    rows = data.draw(st.sampled_from([40, 128, 300, 1100, 3000]))
    target, cores = data.draw(st.sampled_from([("trn2", 1), ("trn1", 1), ("trn2", 2)]))
    widths = data.draw(st.lists(st.integers(1, 70), min_size=2, max_size=4))
    stacked = data.draw(st.booleans())
    if stacked:
        widths = widths[:1] * len(widths)
    random = np.random.default_rng(rows)
    values = [random.standard_normal((rows, wide)).astype(np.float32) for wide in widths]
    lines, names, expected = [], [], []
    for number, (wide, value) in enumerate(zip(widths, values)):
        lines.append(f" p{number} = f32[{rows},{wide}] parameter({number})")
        name, result = f"p{number}", value
        if data.draw(st.booleans()):
            lines.append(f" m{number} = f32[{rows},{wide}] add(p{number}, p{number})")
            name, result = f"m{number}", value + value
        if data.draw(st.booleans()):
            lines.append(f" n{number} = f32[{rows},{wide}] reverse({name}), dimensions={{1}}")
            name, result = f"n{number}", result[:, ::-1]
        if stacked:
            lines.append(f" s{number} = f32[{rows},{wide},1] reshape({name})")
            name, result = f"s{number}", result[:, :, None]
        names.append(name)
        expected.append(result)
    whole = np.concatenate(expected, -1)
    shape = ",".join(map(str, whole.shape))
    lines.append(
        f" c = f32[{shape}] concatenate({', '.join(names)}), dimensions={{{whole.ndim - 1}}}"
    )
    again = data.draw(st.booleans())
    lines.append(f" {'' if again else 'ROOT '}r = f32[{shape}] negate(c)")
    if again:
        lines.append(f" ROOT t = (f32[{shape}], f32[{shape}]) tuple(c, r)")
    text = "HloModule pieces\nENTRY e {\n" + "\n".join(lines) + "\n}"
    found = compile(parse_text(text), target, GraphOptions(logical_cores=cores))(*values)
    for got, wanted in zip(found, [whole, -whole] if again else [-whole], strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_columns_that_are_summed_and_centred_are_no_rows() -> None:
    """The mean of 64 columns and that of their squared distances, as in batch normalisation: a
    partition that has a column loads it element by element."""
    text = """HloModule m
sum { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 x = f32[8192,64] parameter(0)
 zero = f32[] constant(0)
 t = f32[64] reduce(x, zero), dimensions={0}, to_apply=sum
 n = f32[] constant(8192)
 ns = f32[64] broadcast(n), dimensions={}
 mean = f32[64] divide(t, ns)
 means = f32[8192,64] broadcast(mean), dimensions={1}
 c = f32[8192,64] subtract(x, means)
 q = f32[8192,64] multiply(c, c)
 ROOT r = f32[64] reduce(q, zero), dimensions={0}, to_apply=sum
}"""
    x = np.random.default_rng(1).standard_normal((8192, 64), np.float32)
    (found,), profile = compile(parse_text(text), "trn2").profile(x)
    np.testing.assert_allclose(found, 8192 * x.var(0, dtype=np.float64), 1e-5)
    assert profile.dma.descriptors < x.size / 16


STEPS = """HloModule steps
ENTRY e {
 x = f32[16,64] parameter(0)
 w = f32[64,64] parameter(1)
 wt = f32[64,64] transpose(w), dimensions={1,0}
 h0 = f32[16,64] dot(x, wt), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 t0 = f32[16,64] tanh(h0)
 wu = f32[64,64] transpose(w), dimensions={1,0}
 h1 = f32[16,64] dot(t0, wu), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 t1 = f32[16,64] tanh(h1)
 ROOT r = f32[16,64] add(t0, t1)
}"""


def test_few_rows_stay_on_chip_from_step_to_step() -> None:
    """As the state of a recurrent layer of a small batch."""
    stages: dict[str, Any] = {}
    compiled = compile(
        parse_text(STEPS), "trn2", observe=lambda stage, made: stages.setdefault(stage, made)
    )
    ops = [op for body in stages["trace"].bodies for op in operations(body) if op.row is DmaCopy]
    assert sum(not op.fields["dst"].storage.memory.on_chip for op in ops) == 1
    x, w = (
        np.random.default_rng(3).standard_normal(shape).astype(np.float32)
        for shape in ((16, 64), (64, 64))
    )
    first = np.tanh(x @ w.T)
    (found,) = compiled(x, w)
    np.testing.assert_allclose(found, first + np.tanh(first @ w.T), 0, 1e-5)


GROUP_NORM = """HloModule norm
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e {
 x = f32[N,G,C,W] parameter(0)
 scale = f32[G,C] parameter(1)
 shift = f32[N] parameter(2)
 zero = f32[] constant(0)
 one = f32[N,G] reduce(x, zero), dimensions={2,3}, to_apply=add
 count = f32[] constant(COUNT)
 counts = f32[N,G] broadcast(count), dimensions={}
 mean = f32[N,G] divide(one, counts)
 means = f32[N,G,C,W] broadcast(mean), dimensions={0,1}
 left = f32[N,G,C,W] subtract(x, means)
 squares = f32[N,G,C,W] multiply(left, left)
 two = f32[N,G] reduce(squares, zero), dimensions={2,3}, to_apply=add
 variance = f32[N,G] divide(two, counts)
 inverse = f32[N,G] rsqrt(variance)
 inverses = f32[N,G,C,W] broadcast(inverse), dimensions={0,1}
 normal = f32[N,G,C,W] multiply(left, inverses)
 scales = f32[N,G,C,W] broadcast(scale), dimensions={1,2}
 scaled = f32[N,G,C,W] multiply(normal, scales)
 shifts = f32[N,G,C,W] broadcast(shift), dimensions={0}
 ROOT r = f32[N,G,C,W] add(scaled, shifts)
}"""


def group_norm(sizes: tuple[int, ...]) -> Any:
    text = GROUP_NORM.replace("COUNT", str(sizes[2] * sizes[3]))
    for letter, size in zip("NGCW", sizes):
        text = text.replace(f"[{letter}", f"[{size}").replace(f",{letter}", f",{size}")
    return parse_text(text)


@settings(max_examples=25)
@given(data=st.data())
def test_rows_of_several_images_go_through_a_group_together(data: Any) -> None:
    images, groups = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 70))
    inside, wide = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 300))
    target, cores = data.draw(st.sampled_from([("trn2", 1), ("trn1", 1), ("trn2", 2)]))
    sizes = images, groups, inside, wide
    rng = np.random.default_rng(wide)
    x = rng.standard_normal(sizes).astype(np.float32)
    scale = rng.standard_normal((groups, inside)).astype(np.float32)
    shift = rng.standard_normal(images).astype(np.float32)
    options = GraphOptions(logical_cores=cores)
    (found,) = compile(group_norm(sizes), target, options)(x, scale, shift)
    wide_x = x.astype(np.float64)
    left = wide_x - wide_x.mean((2, 3), keepdims=True)
    normal = left / np.sqrt((left**2).mean((2, 3), keepdims=True))
    wanted = normal * scale[:, :, None] + shift[:, None, None, None]
    np.testing.assert_allclose(found, wanted, rtol=2e-4, atol=2e-4)


def test_a_group_norm_goes_through_memory_once() -> None:
    sizes = 8, 32, 2, 3136
    least = 2 * 4 * math.prod(sizes) / 368
    assert modelled_ns(compile(group_norm(sizes), "trn2")) < 1.5 * least


def hidden_layers(layers: int, rows: int, size: int, hidden: int) -> str:
    """x + max(x u, 0) d for each layer, in bf16, with sums in fp32."""
    lines, x = [f" x0 = bf16[{rows},{size}] parameter(0)"], "x0"
    lines += [" zero = bf16[] constant(0)", f" z = bf16[{rows},{hidden}] broadcast(zero)"]
    lines[-1] += ", dimensions={}"
    contracted = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    for n in range(layers):
        lines += [
            f" u{n} = bf16[{size},{hidden}] parameter({2 * n + 1})",
            f" d{n} = bf16[{hidden},{size}] parameter({2 * n + 2})",
            f" a{n} = bf16[{rows},{hidden}] dot({x}, u{n}), {contracted}",
            f" h{n} = bf16[{rows},{hidden}] maximum(a{n}, z)",
            f" b{n} = bf16[{rows},{size}] dot(h{n}, d{n}), {contracted}",
            f" {'ROOT ' * (n + 1 == layers)}x{n + 1} = bf16[{rows},{size}] add({x}, b{n})",
        ]
        x = f"x{n + 1}"
    return "HloModule layers\nENTRY e {\n" + "\n".join(lines) + "\n}"


def test_a_chain_of_products_is_cut_where_weights_have_no_more_room() -> None:
    """Weights of five layers take 160 KiB of a partition, more than rows leave. Hidden rows stay on
    chip all the same: only rows between two groups, of a few KiB each, go through memory."""
    layers, rows, size, hidden = 5, 1024, 512, 2048
    stages: dict[str, Any] = {}
    compiled = compile(
        parse_text(hidden_layers(layers, rows, size, hidden)),
        "trn2",
        observe=lambda stage, made: stages.setdefault(stage, made),
    )
    ops = [op for body in stages["trace"].bodies for op in operations(body) if op.row is DmaCopy]
    stored = [op.fields["dst"] for op in ops if not op.fields["dst"].storage.memory.on_chip]
    assert sum(math.prod(view.shape) for view in stored) <= layers * rows * size
    rng = np.random.default_rng(5)
    shapes = [(rows, size), *[(size, hidden), (hidden, size)] * layers]
    x, *weights = ((rng.standard_normal(shape) / 32).astype(ml_dtypes.bfloat16) for shape in shapes)
    (found,) = compiled(x, *weights)
    wide = x.astype(np.float64)
    for up, down in zip(weights[::2], weights[1::2]):
        wide = wide + np.maximum(wide @ up.astype(np.float64), 0) @ down.astype(np.float64)
    scale = np.abs(wide).max()
    np.testing.assert_allclose(found.astype(np.float64), wide, 0, layers * scale / 128)


def test_rows_of_which_a_partition_has_several_hundred() -> None:
    """307,077 rows of one element: 299 a partition, then fewer until one is left."""
    lines, (x, y) = [], ("x", "y")
    for number in range(4):
        lines += [
            f" a{number} = u32[307077] add({x}, {y})",
            f" p{number} = u32[307077] multiply({y}, {y})",
            f" b{number} = u32[307077] xor(a{number}, p{number})",
        ]
        x, y = f"a{number}", f"b{number}"
    text = "\n".join(
        [
            *("HloModule m", "ENTRY e {", " x = u32[307077] parameter(0)"),
            *(" y = u32[307077] parameter(1)", *lines),
            *(f" ROOT r = (u32[307077], u32[307077]) tuple({x}, {y})", "}"),
        ]
    )
    one, other = np.random.default_rng(0).integers(0, 1 << 32, (2, 307077), dtype=np.uint32)
    found = compile(parse_text(text), "trn2")(one, other)
    for _ in range(4):
        one, other = one + other, (one + other) ^ (other * other)
    np.testing.assert_array_equal(found, (one, other))
