"""The examples on the operators' pages: every opcode has one, it runs, and XLA agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import evaluate_ranks, execute, load
from graph_compiler.frontends import xla
from graph_compiler.hlo.operators import OPERATORS
from graph_compiler.hlo.operators.examples import (
    EXAMPLES,
    example_module,
    example_ranks,
    has_example,
)
from graph_compiler.pages import example_results

SEEDED = frozenset({"rng", "rng-get-and-update-state"})
"""Opcodes whose values are those of a generator of ours."""

NOT_ON_ONE_CPU = {
    "count-leading-zeros": "XLA folds it to -32 for a negative number",
    "mulhi": "it has no StableHLO form",
    "ragged-dot": "XLA:CPU does not have it",
    "domain": "XLA takes it out first",
    "dynamic-reshape": "StableHLO has no form of it without dynamic sizes",
    "stochastic-convert": "XLA:CPU does not have it",
    "custom-call": "the target is not one of XLA",
    "bitcast": "it has no StableHLO form",
    "fusion": "it has no StableHLO form",
    "copy-start": "it has no StableHLO form",
    "copy-done": "it has no StableHLO form",
    "async-start": "StableHLO has collectives only",
    "async-done": "StableHLO has collectives only",
    "async-update": "StableHLO has collectives only",
}
"""Opcodes that XLA's CPU back end does not run from StableHLO, and why."""


def close(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    if one.dtype.kind in "biu":
        return bool(np.array_equal(one, other))
    return bool(np.allclose(one, other, 1e-5, 1e-6, equal_nan=True))


def test_every_opcode_has_an_example_that_contains_it() -> None:
    assert [opcode for opcode, row in OPERATORS.items() if not has_example(row)] == []
    assert set(EXAMPLES) <= set(OPERATORS)
    for opcode in OPERATORS:
        module = load(example_module(opcode).encode())
        assert opcode in {item.opcode for item in module.instructions()}


@pytest.mark.parametrize("opcode", OPERATORS)
def test_an_example_is_what_xla_and_the_host_executor_compute(opcode: str) -> None:
    module = load(example_module(opcode).encode())
    ranks = example_ranks(opcode)
    outputs = evaluate_ranks(module, [[]] * ranks)
    assert outputs == [[]] or all(isinstance(output, np.ndarray) for output in outputs[0])
    if ranks > 1 or opcode in SEEDED:
        return
    assert all(map(close, execute(module), outputs[0]))
    if opcode in NOT_ON_ONE_CPU:
        return
    pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")
    found = xla.run(module)
    assert len(found) == len(outputs[0]) and all(map(close, found, outputs[0]))


def test_results_are_shown_as_text() -> None:
    assert example_results("sort") == ["f32[4] {1, 2, 3, 4}"]
    assert example_results("topk") == ["f32[2] {4, 3}", "s32[2] {2, 0}"]
    assert example_results("reduce-scatter") == [
        "rank 0: f32[2] {11, 22}",
        "rank 1: f32[2] {33, 44}",
    ]
