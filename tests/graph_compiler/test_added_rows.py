"""Rows that products are followed by are added by the tensor engine: where, and to the same sums.
NumPy in float64 says what results must be."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined

from graph_compiler import compile, freeze, parse_text
from graph_compiler.lower import limits
from graph_compiler.lower.device import _in_bf16
from graph_compiler.lower.limits import PlanLimits
from isa.machine.elementwise import TensorTensor

DEPTH, INNER, COLUMNS = 96, 384, 320


def text(type: str, rows: int) -> str:
    """A product, a row, a function, and another product with a row: the first result is turned for
    the second where there is one tile of rows."""
    return f"""HloModule layer
ENTRY e {{
 x = {type}[{rows},{DEPTH}] parameter(0)
 w = {type}[{DEPTH},{INNER}] parameter(1)
 b = {type}[{INNER}] parameter(2)
 u = {type}[{INNER},{COLUMNS}] parameter(3)
 c = {type}[{COLUMNS}] parameter(4)
 d = {type}[{rows},{INNER}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 bs = {type}[{rows},{INNER}] broadcast(b), dimensions={{1}}
 h = {type}[{rows},{INNER}] add(d, bs)
 g = {type}[{rows},{INNER}] tanh(h)
 o = {type}[{rows},{COLUMNS}] dot(g, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 cs = {type}[{rows},{COLUMNS}] broadcast(c), dimensions={{1}}
 ROOT r = {type}[{rows},{COLUMNS}] add(cs, o)
}}"""


def inputs(rows: int) -> list[Any]:
    random = np.random.default_rng(rows)
    shapes = (rows, DEPTH), (DEPTH, INNER), (INNER,), (INNER, COLUMNS), (COLUMNS,)
    return [random.standard_normal(shape, np.float32) / 8 for shape in shapes]


def wanted(arrays: list[Any]) -> Any:
    x, w, b, u, c = (array.astype(np.float64) for array in arrays)
    return np.tanh(x @ w + b) @ u + c


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more than 255 elements are not loaded by each partition."""
    monkeypatch.setattr(limits, "plans", lambda cores: (PlanLimits(loaded=255),))


def sums(compiled: Any) -> int:
    """Additions of tiles by an engine that is not the tensor engine."""
    (core,) = compiled.kernel.program.cores
    return sum(
        instruction.row is TensorTensor
        for stream in core.streams.values()
        for instruction in stream
    )


@combined(
    {
        "type, bound": [("f32", 2e-5), ("bf16", 0.05)],
        "rows": [100, 128, 300],
        "frozen": [False, True],
        "target": ["trn1", "trn2"],
    }
)
def test_rows_are_added_to_sums(
    target: str, frozen: bool, rows: int, type: str, bound: float, spread: None
) -> None:
    dtype = np.float32 if type == "f32" else ml_dtypes.bfloat16
    arrays = [array.astype(dtype) for array in inputs(rows)]
    module = parse_text(text(type, rows))
    given = arrays
    if frozen:
        module, given = freeze(module, {n: arrays[n] for n in range(1, 5)}), arrays[:1]
    compiled = compile(module, target)
    assert (sums(compiled) == 0) == (type == "bf16" or frozen)  # fp32 would take four passes
    (found,) = compiled(*given)
    np.testing.assert_allclose(found.astype(np.float64), wanted(arrays), rtol=0, atol=bound)


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 3e38])
def test_rows_without_parts_are_added_otherwise(special: float, spread: None) -> None:
    arrays = inputs(300)
    arrays[4][7] = special
    module = freeze(parse_text(text("f32", 300)), {n: arrays[n] for n in range(1, 5)})
    (found,) = compile(module, "trn2")(arrays[0])
    np.testing.assert_allclose(found, wanted(arrays), rtol=1e-6, atol=2e-5)


def test_three_numbers_of_bf16_are_one_of_fp32() -> None:
    random = np.random.default_rng(0)
    data = (random.standard_normal(1000) * 10.0 ** random.integers(-20, 20, 1000)).astype(
        np.float32
    )
    parts = _in_bf16(data)
    assert parts is not None
    np.testing.assert_array_equal(parts.astype(np.float64).sum(0), data.astype(np.float64))
    assert _in_bf16(np.array([1, np.inf], np.float32)) is None
