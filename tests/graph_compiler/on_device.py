"""Graphs as text on the simulated device, against the evaluator of the operator table."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_compiler import compile, evaluate, parse_text
from graph_compiler.compiled import Compiled
from graph_compiler.timing import static_timeline
from isa.program import Program

TARGET = "trn2"


def on_device(text: str, *inputs: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return compile(parse_text(text), TARGET)(*inputs)


def modelled_ns(compiled: Compiled) -> float:
    """The modelled time of a graph in which no data decide what executes, or only whether they are
    finite, which they are."""
    return program_ns(compiled.kernel.program, never=compiled.notes.finite)


def program_ns(program: Program, once: bool = False, never: bool = False) -> float:
    """The modelled time of a program without data; `once` and `never` are `static_timeline`'s."""
    timeline = static_timeline(program, once=once, never=never)
    assert timeline is not None
    return timeline.total_ns


def assert_as_evaluated(
    text: str, *inputs: np.ndarray[Any, Any], tolerance: float = 0.0
) -> list[np.ndarray[Any, Any]]:
    """The device's results are the evaluator's, up to a part of the largest element."""
    found = on_device(text, *inputs)
    for here, wanted in zip(found, evaluate(parse_text(text), *inputs), strict=True):
        assert (here.dtype, here.shape) == (wanted.dtype, wanted.shape)
        a, b = here.astype(np.float64), wanted.astype(np.float64)
        scale = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)
    return found
