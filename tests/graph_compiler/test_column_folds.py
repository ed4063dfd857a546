"""Sums of columns of a batch by products with ones, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from combinations import combined

from graph_compiler import compile, parse_text
from isa.machine.tensor import MultiplyMoving


def graph(sizes: tuple[int, int, int]) -> str:
    batch, rows, columns = sizes
    return f"""HloModule m
plus {{ a = bf16[] parameter(0)
 b = bf16[] parameter(1)
 ROOT s = bf16[] add(a, b) }}
ENTRY e {{
 x = bf16[{batch},{rows},{columns}] parameter(0)
 zero = bf16[] constant(0)
 ROOT r = bf16[{batch},{columns}] reduce(x, zero), dimensions={{1}}, to_apply=plus
}}"""


def values(sizes: tuple[int, int, int]) -> Any:
    x = np.random.default_rng(8).standard_normal(sizes, np.float32)
    return x.astype(ml_dtypes.bfloat16)


@combined(
    {
        "target": ["trn1", "trn2"],
        "sizes": [(34, 123, 2310), (5, 120, 2500), (6, 130, 3001)],
    }
)
def test_elements_of_a_batch_are_summed_apart(sizes: tuple[int, int, int], target: str) -> None:
    """Several of them by one operation: what is no number stays in its own."""
    x = values(sizes)
    x[1, 7, 9], x[2, 8, 10] = np.nan, np.inf
    compiled = compile(parse_text(graph(sizes)), target)
    (core,) = compiled.kernel.program.cores
    rows = {instruction.row for stream in core.streams.values() for instruction in stream}
    assert MultiplyMoving in rows
    (found,) = compiled(x)
    wide = x.astype(np.float64)
    wanted, size = wide.sum(1), np.abs(wide).sum(1)
    finite = np.isfinite(wanted)
    found = np.asarray(found).astype(np.float64)
    np.testing.assert_array_equal(found[~finite], wanted[~finite])
    assert (np.abs(found[finite] - wanted[finite]) <= 2.0**-8 * size[finite]).all()


def test_elements_of_a_batch_need_no_second_pass() -> None:
    """Where groups of rows were summed apart, and then their sums, it takes 83 us."""
    x = values((34, 123, 2310))
    assert compile(parse_text(graph(x.shape)), "trn2").profile(x)[-1].total_ns < 70e3


def test_few_columns_are_shared_evenly() -> None:
    """Of 25 columns one engine had 16, which takes 83 us."""
    x = values((1890, 183, 25))
    assert compile(parse_text(graph(x.shape)), "trn2").profile(x)[-1].total_ns < 65e3


def test_sums_over_partitions_lose_little() -> None:
    """Squares of 2048 rows: where all partitions were added one after another, the error was 1.6e-7
    of the sum, and a variance that cancels lost so much more."""
    text = """HloModule m
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 x = f32[2048,256] parameter(0)
 squares = f32[2048,256] multiply(x, x)
 zero = f32[] constant(0)
 ROOT r = f32[256] reduce(squares, zero), dimensions={0}, to_apply=plus
}"""
    x = np.random.default_rng(3).standard_normal((2048, 256), np.float32) + np.float32(4)
    (found,) = compile(parse_text(text), "trn2")(x)
    wanted = (x.astype(np.float64) ** 2).sum(0)
    assert np.sqrt(np.mean((found / wanted - 1) ** 2)) < 1e-7
