"""Floating-point operations of the PE array."""

from __future__ import annotations

from collections.abc import Callable

from isa.cost_formula import elements
from isa.dtypes import DTYPES
from isa.machine import mx, tensor
from isa.spec import Instruction, MachineInstruction

TRANSPOSES: frozenset[type[MachineInstruction]] = frozenset(
    {tensor.TransposeMoving, tensor.TransposeStationary}
)
"""Rows whose array work moves data and computes nothing."""


def flops(instruction: Instruction) -> float:
    """Floating-point operations of the PE array in one execution, 2 a multiply-accumulate."""
    count = _FLOPS.get(instruction.row)
    return 0.0 if count is None else count(instruction)


def _multiply_flops(instruction: Instruction) -> float:
    dst, moving = instruction.value("dst"), instruction.value("moving")
    values = DTYPES[moving.dtype].packed_values
    return 2.0 * values * moving.partitions * dst.partitions * elements(moving)


def _transpose_flops(instruction: Instruction) -> float:
    dst = instruction.value("dst")
    return 2.0 * dst.partitions * elements(dst) * elements(dst)


_FLOPS: dict[type[MachineInstruction], Callable[[Instruction], float]] = {
    tensor.MultiplyMoving: _multiply_flops,
    tensor.MultiplyMovingOneZero: _multiply_flops,
    tensor.MultiplyMovingPairs: _multiply_flops,
    mx.MultiplyMovingMx: _multiply_flops,
    tensor.TransposeMoving: _multiply_flops,
    tensor.TransposeStationary: _transpose_flops,
}


PRODUCTS = frozenset(_FLOPS.keys() - TRANSPOSES)
"""Rows whose array work multiplies `moving` with the loaded tile."""
