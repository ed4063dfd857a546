"""Each distinct instruction of the model files alone, on XLA:CPU and on the reference.

An instruction is compared with the operands that it has in the model, which the reference
computed. By default the small models; all of them by

    python -m pytest tests/graph_compiler/test_conformance_operators.py --all-conformance
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conformance_models import MODELS, WITHOUT_GOLDEN, inputs_of, models

import graph_compiler
from graph_compiler.frontends import xla
from graph_compiler.hlo import Computation, Instruction, Module

pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")

if not MODELS.exists():
    pytest.skip(f"no model files in {MODELS}", allow_module_level=True)

SMALL = frozenset({"clip_infer_f32", "fp8_int8_mlp_infer", "mamba_scan_infer_f32"})
"""Models of a default run."""

STRUCTURE = frozenset(
    {"parameter", "constant", "tuple", "get-tuple-element", "call", "while", "conditional"}
    | {"custom-call", "opt-barrier", "rng", "partition-id"}
)
"""Opcodes that are not compared: they compute nothing, or only what others inside them do."""

STEPS = 64
"""Allowed error in steps of the type, relative to the largest magnitude of the output."""

COARSEST = 0.05
"""The largest such error, for types of few bits."""


def callees(instruction: Instruction) -> list[Computation]:
    """What an instruction calls, callees before callers."""
    found: list[Computation] = []
    for called in instruction.called:
        for item in called.instructions:
            found += [inner for inner in callees(item) if inner not in found]
        if called not in found:
            found.append(called)
    return found


def alone(instruction: Instruction) -> Module:
    """A module of this one instruction, its operands as parameters."""
    parameters = [
        Instruction("parameter", operand.shape.plain(), parameter_number=position)
        for position, operand in enumerate(instruction.operands)
    ]
    attributes = {k: v for k, v in instruction.attributes.items() if k != "sharding"}
    shape = instruction.shape.plain()
    root = Instruction(instruction.opcode, shape, parameters, "", attributes, instruction.called)
    entry = Computation("main", [*parameters, root], root)
    module = Module("alone", [*callees(instruction), entry], entry)
    module.renumber()
    return module


def key_of(instruction: Instruction) -> str:
    """Equal for instructions that do the same on operands of the same shapes."""
    called = [
        [
            f"{item.opcode} {item.shape.plain()} {sorted(map(str, item.attributes.items()))}"
            for item in computation.instructions
        ]
        for computation in callees(instruction)
    ]
    shapes = [str(operand.shape.plain()) for operand in instruction.operands]
    return f"{instruction.opcode} {instruction.shape.plain()} {shapes} {called} " + str(
        sorted((name, str(value)) for name, value in instruction.attributes.items())
    )


def recorded(name: str) -> Iterator[tuple[Instruction, list[Any], Any]]:
    """The first instruction of each kind outside loops and calls of scalars, with its values."""
    model = models()[name]
    module = graph_compiler.load(model.path)
    values: dict[Instruction, Any] = {}
    found: dict[str, tuple[Instruction, list[Any], Any]] = {}

    def observe(instruction: Instruction, value: Any) -> None:
        values[instruction] = value
        if instruction.opcode in STRUCTURE:
            return
        operands = [values.get(operand) for operand in instruction.operands]
        if all(isinstance(operand, np.ndarray) for operand in operands):
            found.setdefault(key_of(instruction), (instruction, operands, value))

    graph_compiler.evaluate(module, *inputs_of(model), observe=observe)
    yield from found.values()


def difference(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    if (actual.dtype, actual.shape) != (expected.dtype, expected.shape):
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    if actual.dtype.kind in "biu":
        wrong = int((actual != expected).sum())
        return f"{wrong} of {actual.size} differ" if wrong else ""
    one, other = actual.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(other)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return "infinities or NaN differ"
    error = np.abs(one[finite] - other[finite]).max(initial=0)
    largest = np.abs(other[finite]).max(initial=0)
    tolerance = min(STEPS * float(ml_dtypes.finfo(actual.dtype).eps), COARSEST)
    return "" if error <= tolerance * largest else f"off by {error:.3g}, largest {largest:.3g}"


@pytest.mark.parametrize("name", sorted(set(models()) - set(WITHOUT_GOLDEN)))
def test_each_instruction_is_what_xla_computes(
    name: str, pytestconfig: pytest.Config, report_table: Callable[[str], None]
) -> None:
    if name not in SMALL and not pytestconfig.getoption("--all-conformance"):
        pytest.skip("--all-conformance runs it")
    failures = []
    count = 0
    for instruction, operands, value in recorded(name):
        count += 1
        outputs = xla.run(alone(instruction), *operands)
        actual = list(value) if isinstance(value, tuple) else [value]
        for one, other in zip(actual, outputs, strict=True):
            reason = difference(one, other)
            if reason:
                failures.append(f"{instruction}: {reason}")
    report_table(f"{name:<28} {count - len(failures)} of {count} instructions are as XLA's")
    assert failures == []
