"""Native micro-kernels: the semantics of `simulator.oracle`, printed to LLVM and compiled.

`plan(row, engine, values)` gives a `Plan`, whose `bind` makes a call that executes one machine
instruction, or None where NumPy has to. Where native code could differ from NumPy in a bit of a
copy, a conversion, a reduction or element-wise arithmetic there is no plan, so that the backends
agree.

Where things are, in the order in which they are made: `codegen` (LLVM text, compiled and kept),
`plans` (from operands to a call), `rows` and `matmul` (the micro-kernels), `threads`, `loop` (whole
programs).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from isa.alu import AluOperator, ScalarEngineFunction
from isa.enums import Engine
from isa.fields import Kind
from isa.spec import MachineInstruction
from simulator.native.matmul import microscaled, transpose_moving  # noqa: F401
from simulator.native.matmul import plans as _matmul  # noqa: F401
from simulator.native.plans.plan import Plan
from simulator.native.plans.table import is_native
from simulator.native.rows import (  # noqa: F401  (each registers its plans)
    accumulate,
    across,
    copy,
    dma_sum,
    elementwise,
    gather,
    indexed,
    random,
    random_state,
    reduction,
    registers,
    scan,
    search,
    sequence,
    statistics,
)
from simulator.native.rows.meaning import planner_of
from simulator.views import Indirect, dtype_name

__all__ = ["plan"]

_PLANS: dict[Any, Plan | None] = {}
"""The plan for each row, engine, and description of operands, as far as they were needed."""

_PLANS_KEPT = 4096

_UNSET: Any = object()


def _of_view(view: Any) -> Any:
    return dtype_name(view), view.shape, view.strides


def _of_rows(operand: Indirect) -> Any:
    return _of_view(operand.base), _of_view(operand.index), operand.skip


def _of_operator(operator: Any) -> str:
    return operator.name


_DESCRIPTIONS: dict[type, Callable[[Any], Any]] = {
    np.ndarray: _of_view,
    Indirect: _of_rows,
    AluOperator: _of_operator,
    ScalarEngineFunction: _of_operator,
}

_OPERANDS = frozenset({np.ndarray, Indirect})


def plan(row: type[MachineInstruction], engine: Engine, values: Sequence[Any]) -> Plan | None:
    """The plan for operands of these dtypes, shapes and strides; None without native code."""
    planner = planner_of(row) if is_native() else None
    if planner is None:
        return None
    tensors, numbers = _positions(row)  # type: ignore[arg-type]
    for position in tensors:
        if type(values[position]) not in _OPERANDS:
            return None
    key: list[Any] = [row.name, engine]
    for position, value in enumerate(values):
        describe = _DESCRIPTIONS.get(type(value))
        if describe is not None:
            key.append(describe(value))
        else:
            # The plan leaves numbers open.
            key.append(float if position in numbers and value is not None else value)
    identity = tuple(key)
    found = _PLANS.get(identity, _UNSET)
    if found is _UNSET:
        if len(_PLANS) >= _PLANS_KEPT:
            _PLANS.clear()
        found = _PLANS[identity] = planner(engine, *values)
    return found


@cache
def _positions(row: type[MachineInstruction]) -> tuple[tuple[int, ...], frozenset[int]]:
    """Positions of the operands that are views always, and of those that may be numbers."""
    free = {i for i, _, operand in row.operands if operand.immediate or operand.optional}
    numbers = {i for i, _, attribute in row.attributes if attribute.kind is Kind.number}
    return tuple(i for i, _, _ in row.operands if i not in free), frozenset(free | numbers)
