"""Random graphs on the device and by the host executor, within the bounds of `error_bounds`.

Here a few; 5,000 for the device by

    python tests/graph_compiler/run_random_graphs.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from error_bounds import bounded, outside
from hypothesis import given, settings
from hypothesis import strategies as st
from random_graphs import seeded
from random_steps import random_graph
from run_random_graphs import compared

from graph_compiler import evaluate, parse_text, verify
from graph_compiler.execute.executable import Executable


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_the_device_agrees_with_the_reference(data: Any) -> None:
    def draw(low: int, high: int) -> int:
        return int(data.draw(st.integers(low, high)))

    assert compared(random_graph(draw, 6), "trn2") == "agrees"


@pytest.mark.parametrize("seed", range(6))
def test_the_device_agrees_with_the_reference_on_graphs_of_seeds(seed: int) -> None:
    target = ("trn1", "trn2", "trn3")[seed % 3]
    assert compared(random_graph(seeded(seed)), target) == "agrees"


@pytest.mark.parametrize("seed", range(40))
def test_the_host_executor_agrees_with_the_reference(seed: int) -> None:
    """Twice: memory that is used again too early would show."""
    graph = random_graph(seeded(seed), 16)
    module = parse_text(graph.text)
    verify(module)
    wanted = bounded(module, graph.inputs)
    for one, exact in zip(evaluate(module, *graph.inputs), wanted, strict=True):
        assert outside(one, exact) == "", graph.text
    executable = Executable(module)
    for _ in range(2):
        for one, exact in zip(executable(graph.inputs), wanted, strict=True):
            assert outside(one, exact) == "", graph.text


def test_bounds_are_small_and_exclude_what_is_wrong() -> None:
    """A sum of 100 products of numbers of about 1, in fp32, is within a thousandth."""
    text = (
        "HloModule m\n\nENTRY e {\n  x = f32[4,100] parameter(0)\n"
        "  t = f32[4,100] tanh(x)\n"
        "  ROOT r = f32[4,4] dot(t, x), lhs_contracting_dims={1}, rhs_contracting_dims={1}\n}\n"
    )
    x = np.random.default_rng(0).standard_normal((4, 100)).astype(np.float32)
    (wanted,) = bounded(parse_text(text), [x])
    exact = np.tanh(x.astype(np.float64)) @ x.astype(np.float64).T
    np.testing.assert_allclose(wanted.value, exact)
    assert wanted.error is not None
    assert 0 < wanted.error.max() < 0.05
    assert outside(exact.astype(np.float32), wanted) == ""
    assert outside((exact + 0.1).astype(np.float32), wanted).startswith("16 of 16 differ")
