"""The host executor on jax's own test harnesses of its operations, against the reference.

By default a seeded sample; all of them by

    python -m pytest tests/graph_compiler/test_execute_jax.py --all-conformance

The reference agrees with XLA on them (test_conformance_jax). Needs jax and absl-py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("absl.testing", reason="absl-py is not installed")
jax = pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")

from test_conformance_jax import difference, explanation, harnesses  # noqa: E402

import graph_compiler  # noqa: E402
from graph_compiler.frontends.jax import to_proto  # noqa: E402
from graph_compiler.hlo.operators import OPERATORS  # noqa: E402

SAMPLE = 120
"""Harnesses of a default run."""


def disagreement(harness: Any) -> str | None:
    """ "" where both agree as far as the operations say; None where the table lacks something."""
    arguments = harness.dyn_args_maker(np.random.RandomState(0))
    module = graph_compiler.load(to_proto(harness.dyn_fun, *arguments))
    opcodes = {item.opcode for item in module.instructions()}
    if "custom-call" in opcodes or not opcodes <= set(OPERATORS):
        return None
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)]
    expected = graph_compiler.evaluate(module, *leaves)
    found = graph_compiler.execute(module, *leaves)
    reasons = [difference(one, other) for one, other in zip(found, expected)]
    first = next((reason for reason in reasons if reason), "")
    return "" if first and explanation(module, found, expected) else first


def test_the_executor_agrees_with_the_reference_on_the_harnesses_of_jax(
    pytestconfig: pytest.Config, report_table: Callable[[str], None]
) -> None:
    wanted = None if pytestconfig.getoption("--all-conformance") else SAMPLE
    total, failures = 0, []
    with jax.enable_x64(True):
        for harness in harnesses():
            reason = disagreement(harness)
            if reason is None:
                continue
            total += 1
            if reason:
                failures.append(f"{harness.fullname}: {reason}")
            if total == wanted:
                break
    report_table(f"host executor: {total - len(failures)} of {total} harnesses of jax agree")
    assert failures == []
