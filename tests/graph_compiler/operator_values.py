"""Values for tests of operators, and one-instruction modules around them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_compiler import evaluate as evaluate_module
from graph_compiler import parse_text, verify
from graph_compiler.hlo import PRIMITIVE_TYPES

Array = np.ndarray[Any, Any]

FLOATS = ("f32", "f64", "bf16", "f16")
INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")

FOLDS = """larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
"""
"""Computations that find the larger of two numbers, and their sum."""

ULPS = {"f64": 2e-13, "f32": 2e-5, "f16": 4e-3, "bf16": 1.6e-2, "c64": 1e-5}
"""Relative differences that approximations of both sides may add up to."""


def values(rng: np.random.Generator, name: str, shape: Any, scale: float = 3.0) -> Array:
    """Random elements with the special ones among them: limits, zeros, infinities, NaN, halves."""
    dtype = PRIMITIVE_TYPES[name].numpy
    count = int(np.prod(shape))
    kind = PRIMITIVE_TYPES[name].kind
    if kind == "boolean":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in ("signed", "unsigned"):
        limits = np.iinfo(dtype)
        container = np.int64 if kind == "signed" else np.uint64
        wide = rng.integers(limits.min, limits.max, count, dtype=container, endpoint=True)
        small = rng.integers(-9 if kind == "signed" else 0, 10, count).astype(dtype)
        flat = np.where(rng.integers(0, 2, count) == 0, wide.astype(dtype), small)
        edges = np.array([limits.min, limits.max, 0], dtype)
        flat[: len(edges)] = edges[:count]
        return rng.permutation(flat).reshape(shape)
    flat = rng.standard_normal(count) * scale
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.5]
    flat[: count // 6] = rng.choice(special, count // 6)
    flat = rng.permutation(flat)
    if kind == "complex":
        return (flat + 1j * rng.permutation(flat)).astype(dtype).reshape(shape)
    with np.errstate(over="ignore"):
        return flat.astype(dtype).reshape(shape)


def sizes(shape: Any) -> str:
    return "[" + ",".join(str(int(size)) for size in shape) + "]"


def braces(numbers: Any) -> str:
    return "{" + ",".join(str(int(number)) for number in numbers) + "}"


def by_x(numbers: Any) -> str:
    """Numbers of a window as HLO text has them: 2x3."""
    return "x".join(str(number) for number in numbers)


def module_text(
    opcode: str,
    result: str,
    operands: list[str],
    attributes: str = "",
    computations: str = "",
) -> str:
    """A module whose entry is one instruction on parameters of the given shapes."""
    lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    tail = f", {attributes}" if attributes else ""
    lines.append(f"  ROOT r = {result} {opcode}({names}){tail}")
    return "\n".join(["HloModule test", computations, "ENTRY entry {", *lines, "}", ""])


def run(text: str, *inputs: Array) -> list[Array]:
    """Outputs of the reference evaluator; the module is verified first."""
    module = parse_text(text)
    verify(module)
    return evaluate_module(module, *inputs)


def comparable(array: Array) -> Array:
    """Floats of any width as float64; integers as they are."""
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def differing(found: list[Array], expected: list[Array], tolerance: float = 0.0) -> str:
    """Where two lists of outputs differ; "" where they do not. NaN equals NaN."""
    if len(found) != len(expected):
        return f"{len(found)} outputs instead of {len(expected)}"
    for number, (one, other) in enumerate(zip(found, expected)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {number}: {one.dtype}{one.shape} not {other.dtype}{other.shape}"
        a, b = comparable(one), comparable(other)
        with np.errstate(all="ignore"):
            if a.dtype.kind in "fc":
                same = np.isclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
            else:
                same = a == b
        if not np.all(same):
            return f"output {number}: {a[~same][:4]} instead of {b[~same][:4]}"
    return ""
