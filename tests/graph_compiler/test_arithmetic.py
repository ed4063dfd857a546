"""Operations compiled for a device against the reference evaluator: exactly where it computes
exactly, else within the bounds of the functions of `nki.language`."""

from __future__ import annotations

import zlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operator_values import Array, differing, module_text, values
from random_operations import FAMILIES, REDUCERS, reducer

from graph_compiler import compile, evaluate, execute, parse_text
from graph_compiler.hlo import PRIMITIVE_TYPES
from graph_compiler.hlo.operators import operator
from graph_compiler.lower.nests.arithmetic import FORMS
from graph_compiler.lower.rewrites.composites import COMPOSITES
from isa.errors import NeuronError

TARGET = "trn2"

KINDS = {
    **dict.fromkeys(("f32", "bf16", "f16"), "real"),
    **dict.fromkeys(("s8", "s16", "s32"), "signed"),
    **dict.fromkeys(("u8", "u16", "u32"), "unsigned"),
    "pred": "boolean",
}
"""The types of the device that its operations take, and the kind of each."""

RESULTS = {"compare": "pred", "is-finite": "pred"}
ATTRIBUTES = {"compare": "direction=LT", "reduce-precision": "exponent_bits=5, mantissa_bits=6"}
OTHER_FORM = frozenset({"convert", "bitcast-convert", "real", *COMPOSITES})
"""Opcodes that are tested by themselves, or that no graph states."""

UNSIGNED_ZEROS = frozenset({"sqrt", "clamp", "maximum", "minimum"})
"""Opcodes whose zeros may have either sign."""

ULPS = 4
"""Units of the last place that functions and what they are made of are within."""


def several(lines: list[tuple[str, str]], parameters: list[str]) -> str:
    """A module of several results, each (shape, operation)."""
    given = [f"p{i} = {shape} parameter({i})" for i, shape in enumerate(parameters)]
    made = [f"r{i} = {shape} {text}" for i, (shape, text) in enumerate(lines)]
    shapes = ", ".join(shape for shape, _ in lines)
    root = f"ROOT t = ({shapes}) tuple({', '.join(f'r{i}' for i in range(len(lines)))})"
    return "\n".join(["HloModule m", "ENTRY e {", *given, *made, root, "}"])


def distant(found: Array, expected: Array, ulps: float) -> Array:
    """Where results are not equal, nor within units of the last place."""
    if found.dtype.kind in "biu":
        return np.flatnonzero(found != expected)
    a, b = found.astype(np.float64), expected.astype(np.float64)
    information = ml_dtypes.finfo(found.dtype)
    unit = np.maximum(np.abs(b) * float(information.eps), float(information.smallest_subnormal))
    with np.errstate(invalid="ignore"):
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= ulps * unit)
    return np.flatnonzero(~same)


SLOW = frozenset({"f16", "bf16", "s8", "u8", "s16", "u16"})
"""Types of a complete run only: other ones of their kind and width are compiled alike."""


@pytest.mark.parametrize("type", KINDS)
def test_element_wise_operations_agree_with_the_reference(
    type: str, pytestconfig: pytest.Config
) -> None:
    """Limits, zeros of both signs, infinities and NaN are among the elements."""
    if type in SLOW and not pytestconfig.getoption("--all-conformance"):
        pytest.skip("slow: --all-conformance runs it")
    rng = np.random.default_rng(zlib.crc32(type.encode()))
    kind, count = KINDS[type], 387
    ops = [op for op in sorted(FORMS) if op not in OTHER_FORM and kind in FORMS[op]]
    lines = []
    for op in ops:
        names = [f"p{i}" for i in range(operator(op).arity[0])]
        names = ["p3", *names[1:]] if op == "select" else names
        more = f", {ATTRIBUTES[op]}" if op in ATTRIBUTES else ""
        shape = f"{RESULTS.get(op, type)}[{count}]"
        lines.append((shape, f"{op}({', '.join(names)}){more}"))
    module = parse_text(several(lines, [f"{type}[{count}]"] * 3 + [f"pred[{count}]"]))
    inputs = [values(rng, type, (count,)) for _ in range(3)] + [values(rng, "pred", (count,))]
    expected = evaluate(module, *inputs)
    found = compile(module, TARGET)(*inputs)
    for op, one, other in zip(ops, found, expected):
        assert one.dtype == other.dtype
        bad = distant(one, other, ULPS)
        shown = [(inputs[0][i], inputs[1][i], one[i], other[i]) for i in bad[:3]]
        assert len(bad) == 0, f"{op} of {type}: {shown}"
        if kind == "real" and op not in RESULTS and op not in UNSIGNED_ZEROS:
            wrong = np.signbit(one) != np.signbit(other)
            assert not np.any(wrong & ~np.isnan(other)), f"signs of {op} of {type}"


@pytest.mark.parametrize("source", [*KINDS, "f8e4m3", "f8e5m2"])
def test_conversions_are_exact(source: str) -> None:
    rng = np.random.default_rng(zlib.crc32(source.encode()))
    types = [*KINDS, "f8e4m3", "f8e5m2"]
    inputs = [values(rng, source, (200,), scale) for scale in (3.0, 3e5)]
    for x in inputs:
        lines = [(f"{type}[200]", "convert(p0)") for type in types]
        module = parse_text(several(lines, [f"{source}[200]"]))
        assert differing(compile(module, TARGET)(x), evaluate(module, x)) == ""


def bits_of(type: str) -> int:
    return PRIMITIVE_TYPES[type].bits


@settings(max_examples=10, deadline=None)
@given(st.data())
def test_bits_are_read_as_other_types(data: Any) -> None:
    source = data.draw(st.sampled_from(["s8", "u16", "s32", "f32", "bf16"]))
    target = data.draw(st.sampled_from(["u8", "f16", "u32", "f32", "s16"]))
    dims = data.draw(st.lists(st.integers(1, 5), max_size=2))
    ratio = bits_of(target) // bits_of(source)
    given_dims = [*dims, ratio] if ratio > 1 else dims
    dims = [*dims, bits_of(source) // bits_of(target)] if ratio == 0 else dims
    shapes = [f"{t}[{','.join(map(str, d))}]" for t, d in ((target, dims), (source, given_dims))]
    module = parse_text(module_text("bitcast-convert", shapes[0], [shapes[1]]))
    rng = np.random.default_rng(len(dims))
    bits = rng.integers(0, 256, (*given_dims, bits_of(source) // 8), np.uint8)
    x = bits.view(PRIMITIVE_TYPES[source].numpy)[..., 0]
    found, expected = compile(module, TARGET)(x), evaluate(module, x)
    assert found[0].tobytes() == expected[0].tobytes()


INTEGER = ("s8", "u8", "s16", "u16", "s32", "u32")


@settings(max_examples=6, deadline=None)
@given(
    *[st.sampled_from(INTEGER)] * 3,
    st.tuples(*[st.integers(1, 9)] * 3),
    st.sampled_from([(1, 0), (0, 1)]),
)
def test_products_of_integers_wrap_around(
    left: str, right: str, type: str, sizes: tuple[int, int, int], axes: tuple[int, int]
) -> None:
    rows, depth, columns = sizes
    a, b = axes
    first = (rows, depth) if a == 1 else (depth, rows)
    second = (depth, columns) if b == 0 else (columns, depth)
    rng = np.random.default_rng(rows * depth)
    x, y = values(rng, left, first), values(rng, right, second)
    attributes = f"lhs_contracting_dims={{{a}}}, rhs_contracting_dims={{{b}}}"
    shapes = [f"{t}[{s[0]},{s[1]}]" for t, s in ((left, first), (right, second))]
    text = module_text("dot", f"{type}[{rows},{columns}]", shapes, attributes)
    exact = (x if a == 1 else x.T).astype(object) @ (y if b == 0 else y.T).astype(object)
    row = PRIMITIVE_TYPES[type]
    expected = (exact % (1 << row.bits)).astype(np.uint64).astype(f"u{row.bits // 8}")
    (found,) = compile(parse_text(text), TARGET)(x, y)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("types", [("s32", "s32", "s32"), ("u8", "s16", "u16")])
def test_large_products_of_integers_are_exact(types: tuple[str, str, str]) -> None:
    """In parts, on the tensor engine: sums of 300 products."""
    rng = np.random.default_rng(1)
    x, y = values(rng, types[0], (40, 300)), values(rng, types[1], (300, 20))
    shapes = [f"{types[0]}[40,300]", f"{types[1]}[300,20]"]
    attributes = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    text = module_text("dot", f"{types[2]}[40,20]", shapes, attributes)
    row = PRIMITIVE_TYPES[types[2]]
    exact = x.astype(object) @ y.astype(object) % (1 << row.bits)
    (found,) = compile(parse_text(text), TARGET)(x, y)
    assert found.view(f"u{row.bits // 8}").tolist() == exact.tolist()


@pytest.mark.parametrize("result", ["f32", "bf16"])
@pytest.mark.parametrize("types", [("f32", "s32"), ("u8", "bf16"), ("bf16", "s16"), ("s8", "s8")])
def test_products_of_integers_and_floats(types: tuple[str, str], result: str) -> None:
    """As jax states them for devices: weights in int8 stay so until the product."""
    rng = np.random.default_rng(2)
    x, y = (
        rng.uniform(0, 100, dims).astype(PRIMITIVE_TYPES[type].numpy)
        for type, dims in zip(types, ((3, 20, 30), (3, 30, 10)))
    )
    shapes = [f"{types[0]}[3,20,30]", f"{types[1]}[3,30,10]"]
    attributes = (
        "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    )
    module = parse_text(module_text("dot", f"{result}[3,20,10]", shapes, attributes))
    exact = x.astype(np.float64) @ y.astype(np.float64)
    for run in (evaluate, execute, lambda module, *inputs: compile(module, TARGET)(*inputs)):
        (found,) = run(module, x, y)
        rounding = 2**-8 if result == "bf16" else 0
        np.testing.assert_allclose(found.astype(np.float64), exact, rtol=1e-6 + rounding)


COUNTS = {"sort": 1, "arg_max": 2, "rng_bits": 1}
"""Cases of families that take long, or that the device has no types for."""

REFUSED = ("f64", "c64", "u64")
"""Types that refused cases have in their text."""


@pytest.mark.parametrize("family", FAMILIES)
def test_structured_operations_agree_with_the_reference(family: str) -> None:
    rng = np.random.default_rng(zlib.crc32(b"device" + family.encode()))
    for _ in range(COUNTS.get(family, 5)):
        text, inputs, tolerance = FAMILIES[family](rng)
        module = parse_text(text)
        try:
            found = compile(module, TARGET)(*inputs)
        except NeuronError as error:
            assert error.code == "hlo-not-compiled"
            assert any(mark in text for mark in REFUSED), text
            continue
        expected = evaluate(module, *inputs)
        assert differing(found, expected, max(tolerance, 1e-5) if tolerance else 0.0) == "", text


def test_arrays_without_elements() -> None:
    """Sums over nothing are where they begin; results without elements have their shape."""
    lines = [
        ("f32[0,3]", "tanh(p0)"),
        ("f32[3]", "reduce(p0, p1), dimensions={0}, to_apply=reducer"),
        ("f32[3,3]", "dot(p0, p0), lhs_contracting_dims={0}, rhs_contracting_dims={0}"),
        ("f32[2,3]", "concatenate(p0, p2, p0), dimensions={0}"),
        ("f32[1,3]", "pad(p0, p1), padding=1_0x0_0"),
        ("f32[2,3]", "add(p2, p2)"),
        ("f32[0]", "reduce(p0, p1), dimensions={1}, to_apply=reducer"),
        ("f32[2,3]", "dynamic-update-slice(p2, p0, p3, p3)"),
    ]
    text = several(lines, ["f32[0,3]", "f32[]", "f32[2,3]", "s32[]"])
    text = text.replace("ENTRY", reducer("f32", REDUCERS["add"]) + "ENTRY")
    x, empty = np.arange(6, dtype=np.float32).reshape(2, 3), np.empty((0, 3), np.float32)
    found = compile(parse_text(text), TARGET)(empty, np.float32(7), x, np.int32(0))
    sevens = np.full(3, 7, np.float32)
    wanted = [empty, sevens, np.zeros((3, 3)), x, sevens[np.newaxis], x + x, empty[:, 0], x]
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_computation_is_applied_to_elements_windows_and_slices() -> None:
    body = "  m = T[] maximum(a, b)\n  n = T[] multiply(m, m)\n  ROOT z = T[] subtract(n, a)"
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-5, 6, (6, 7)).astype(np.int32) for _ in range(2))
    text = module_text(
        "map",
        "s32[6,7]",
        ["s32[6,7]"] * 2,
        "dimensions={0,1}, to_apply=reducer",
        reducer("s32", body),
    )
    m = np.maximum(x, y)
    assert np.array_equal(compile(parse_text(text), TARGET)(x, y)[0], m * m - x)
    text = module_text(
        "reduce-window",
        "s32[5,3]",
        ["s32[6,7]", "s32[]"],
        "window={size=2x3 stride=1x2}, to_apply=reducer",
        reducer("s32", REDUCERS["clamped"]),
    )
    windows = np.lib.stride_tricks.sliding_window_view(x, (2, 3))[:, ::2]
    (found,) = compile(parse_text(text), TARGET)(x, np.int32(-99))
    assert np.array_equal(found, windows.max(axis=(-1, -2)))


@pytest.mark.parametrize("lower", [True, False])
def test_factors_of_positive_matrices(lower: bool) -> None:
    rng = np.random.default_rng(5)
    a = rng.standard_normal((2, 9, 9)).astype(np.float32)
    a = a @ a.swapaxes(-1, -2) + 9 * np.eye(9, dtype=np.float32)
    a[1, 0, 0] = -1
    text = module_text("cholesky", "f32[2,9,9]", ["f32[2,9,9]"], f"lower={str(lower).lower()}")
    (found,) = compile(parse_text(text), TARGET)(a)
    expected = np.linalg.cholesky(a[0].astype(np.float64))
    assert np.allclose(found[0], expected if lower else expected.T, rtol=1e-5, atol=1e-5)
    assert np.isnan(found[1]).all()


def test_a_product_of_what_is_the_same_in_all_elements() -> None:
    """Each factor is a number: nothing of it comes from memory, and it has fewer dimensions."""
    text = """HloModule m
ENTRY e {
  v = s16[33,16,1] iota(), iota_dimension=2
  one = s16[] constant(3)
  ones = s16[33,16,1] broadcast(one), dimensions={}
  w = s16[33,16,1] add(v, ones)
  t = s16[33,1,16] transpose(w), dimensions={0,2,1}
  ROOT r = s16[1,16,16] dot(t, w), lhs_batch_dims={1}, lhs_contracting_dims={0},
    rhs_batch_dims={2}, rhs_contracting_dims={0}
}"""
    module = parse_text(text)
    (found,) = compile(module, "trn2")()
    np.testing.assert_array_equal(found, np.full((1, 16, 16), 33 * 9, np.int16))
