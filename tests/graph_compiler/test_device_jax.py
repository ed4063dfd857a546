"""The device on jax's own test harnesses of its operations, against the reference.

A seeded sample of 500, in some minutes, by

    python -m pytest tests/graph_compiler/test_device_jax.py --all-conformance

and a few by default. A harness counts where its types are those of the device; the reference agrees
with XLA on them (test_conformance_jax). Needs jax and absl-py.
"""

from __future__ import annotations

from collections import Counter
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
from graph_compiler.lower.sizes import DTYPES  # noqa: E402
from isa.errors import NeuronError  # noqa: E402

SAMPLE, DEFAULT = 500, 12
"""Harnesses of a complete run and of a default one."""

SHARE = 0.95
"""The part of them that agrees; the others are refused."""

TARGET = "trn2"


def outcome_of(harness: Any) -> str | None:
    """ "" where device and reference agree, a code with what was refused, or a difference; None
    where the table or the target lacks an operator or a type that the graph has."""
    arguments = harness.dyn_args_maker(np.random.RandomState(0))
    module = graph_compiler.load(to_proto(harness.dyn_fun, *arguments))
    items = list(module.instructions())
    if any(item.opcode == "custom-call" or item.opcode not in OPERATORS for item in items):
        return None
    if not all(shape.element_type in DTYPES for shape in shapes_of(module)):
        return None
    leaves = [np.asarray(jax.numpy.asarray(leaf)) for leaf in jax.tree.leaves(arguments)]
    try:
        found = graph_compiler.compile(module, TARGET)(*leaves)
    except NeuronError as error:
        return f"{error.code}: {error.what}"
    expected = graph_compiler.evaluate(module, *leaves)
    reasons = [difference(one, other) for one, other in zip(found, expected, strict=True)]
    first = next((reason for reason in reasons if reason), "")
    return "" if first and explanation(module, found, expected) else first


def shapes_of(module: Any) -> list[Any]:
    """The arrays that go in and out."""
    pending = [item.shape for item in module.entry.parameters] + [module.result_shape]
    found = []
    while pending:
        shape = pending.pop()
        if shape.is_tuple:
            pending += shape.tuple_shapes
        elif shape.is_array:
            found.append(shape)
    return found


def test_the_device_agrees_with_the_reference_on_the_harnesses_of_jax(
    pytestconfig: pytest.Config, report_table: Callable[[str], None]
) -> None:
    wanted = SAMPLE if pytestconfig.getoption("--all-conformance") else DEFAULT
    total, refused, wrong = 0, Counter[str](), []
    for harness in harnesses():
        reason = outcome_of(harness)
        if reason is None:
            continue
        total += 1
        if reason.startswith("hlo-not-compiled"):
            refused[harness.group_name] += 1
        elif reason:
            wrong.append(f"{harness.fullname}: {reason}")
        if total == wanted:
            break
    agree = total - refused.total() - len(wrong)
    groups = ", ".join(f"{name} {count}" for name, count in sorted(refused.items()))
    report_table(
        "\n".join([f"device: {agree} of {total} harnesses of jax; refused: {groups}", *wrong])
    )
    assert wrong == []
    assert agree >= SHARE * total
