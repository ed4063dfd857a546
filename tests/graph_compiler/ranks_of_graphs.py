"""Graphs of several ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from random_operations import REDUCERS, reducer

from graph_compiler import evaluate_ranks, parse_text

SUM = reducer("f32", REDUCERS["add"])


def ranks_of(text: str, *inputs: np.ndarray[Any, Any], **options: Any) -> list[Any]:
    """Rank r gets inputs[r]; one output a rank."""
    results = evaluate_ranks(parse_text(text), [[array] for array in inputs], **options)
    return [result[0].tolist() for result in results]


def pieces(ranks: int, size: int = 4) -> list[np.ndarray[Any, Any]]:
    return [np.arange(size, dtype=np.float32) + 10 * rank for rank in range(ranks)]


ADD = """add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
"""


def run(line: str, inputs: list[Any], header: str = "", **options: Any) -> list[Any]:
    """Rank r gets inputs[r] as `x`; what `line` (the root) gives on every rank."""
    shape = f"f32[{','.join(map(str, np.shape(inputs[0])))}]"
    text = f"HloModule m{header}\n{ADD}ENTRY e {{\n  x = {shape} parameter(0)\n  {line}\n}}"
    arrays = [[np.asarray(array, np.float32)] for array in inputs]
    return [
        [output.tolist() for output in outputs]
        for outputs in evaluate_ranks(parse_text(text), arrays, **options)
    ]


EIGHT = [[float(1 << rank)] for rank in range(8)]
"""Sums of these say which ranks they are of."""
