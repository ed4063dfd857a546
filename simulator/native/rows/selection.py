"""Plans of the rows that choose elements by masks or by their positions, and of affine numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from isa.alu import ALU, AluOperator
from isa.dtypes import DTYPES
from isa.enums import Engine, ReduceCommand
from isa.machine import accumulate, gpsimd
from simulator.native.codegen.expressions import covers
from simulator.native.plans.plan import Plan, float32_word
from simulator.native.plans.table import plans
from simulator.native.rows.accumulate import AccumulatingPlan, accumulating
from simulator.native.rows.elementwise import (
    MapStep,
    Operand,
    affine,
    column_of,
    constant,
    converting,
    map_plan,
    number,
    pattern_of,
    scalar_operand,
    tile,
    unsigned,
)
from simulator.native.rows.through_rows import ThroughRows
from simulator.views import dtype_name, same_type

Array = np.ndarray[Any, Any]

_WORD = 4
"""Bytes of what is computed with."""


@plans(accumulate.SelectReduce)
def select_reduce(
    engine: Engine,
    dst: Array,
    predicate: Array,
    on_true: Array,
    on_false: Any,
    reverse: bool,
    reduce_command: ReduceCommand,
) -> Plan | AccumulatingPlan | ThroughRows | None:
    other = scalar_operand(3, on_false, on_true)
    # Patterns that are not zero are numbers that are not, if they have no sign.
    if other is None or not converting(dst, on_true) or predicate.dtype.itemsize > _WORD:
        return None
    inputs = [tile(1, predicate, unsigned(predicate)), tile(2, on_true), other]
    steps: list[MapStep] = [("choice", "unless" if reverse else "where", (0, 1, 2))]
    return accumulating(dst, inputs, steps, ALU["maximum"], reduce_command, 6)


@plans(accumulate.RangeSelect)
def range_select(
    engine: Engine,
    dst: Array,
    data: Array,
    op0: AluOperator,
    op1: AluOperator,
    bound0: Array,
    bound1: Array,
    start: int,
    reduce_command: ReduceCommand,
) -> Plan | AccumulatingPlan | ThroughRows | None:
    if not converting(dst, data, bound0, bound1) or min(op0.arity, op1.arity) < 2:
        return None
    partitions = data.shape[0]
    elements = data.size // max(partitions, 1)
    if start + elements > DTYPES["int32"].largest:
        return None
    positions = affine(start, [(partitions, 0), (elements, 1)])
    inputs: list[Operand] = [
        tile(1, data),
        column_of(4, bound0, data),
        column_of(5, bound1, data),
        positions,
        constant(float32_word(accumulate.FP32_LOWEST)),
    ]
    steps: list[MapStep] = [
        ("alu", op0.name, (3, 1)),
        ("alu", op1.name, (3, 2)),
        ("alu", "logical_and", (5, 6)),
        ("choice", "where", (7, 0, 4)),
    ]
    return accumulating(dst, inputs, steps, ALU["maximum"], reduce_command, 8)


def _affine(dst: Array, pattern: Any, offset: int, multiplier: int) -> Operand | None:
    """The values of `Iota`, if they are as many as the destination's elements."""
    steps = [(int(count), int(step)) for step, count in pattern]
    if math.prod(count for count, _ in steps) * dst.shape[0] != dst.size:
        return None
    return affine(offset, [(dst.shape[0], multiplier), *steps])


@plans(gpsimd.AffineSelect)
def affine_select(
    engine: Engine,
    dst: Array,
    data: Array,
    pattern: Any,
    offset: int,
    multiplier: int,
    op: AluOperator,
    on_false: float,
) -> Plan | None:
    values = _affine(dst, pattern, offset, multiplier)
    if values is None or not covers("alu", op.name, "int32"):
        return None
    name, stored = dtype_name(dst), unsigned(dst)
    if DTYPES[name].is_packed:
        return None
    replacement = pattern_of(name)
    domain, source, target = "float32", dtype_name(data), name
    if same_type(dst, data):
        domain = source = target = stored
    elif not converting(dst, data):
        return None
    other = number(6, stored, lambda value: replacement(float(value)))
    return map_plan(
        domain,
        dst,
        [tile(1, data, source)],
        (),
        values,
        output_dtype=target,
        test=op.name,
        otherwise=other,
    )


@plans(gpsimd.Iota)
def iota(engine: Engine, dst: Array, pattern: Any, offset: int, multiplier: int) -> Plan | None:
    values = _affine(dst, pattern, offset, multiplier)
    row = DTYPES[dtype_name(dst)]
    if values is None or row.size > _WORD:
        return None
    if not row.is_integer:
        return map_plan("float32", dst, [values], ()) if converting(dst) else None
    limits = DTYPES["int32"]
    bounds = []
    if row.lowest > limits.lowest:
        bounds.append(("maximum", int(row.lowest)))
    if row.largest < limits.largest:
        bounds.append(("minimum", int(row.largest)))
    inputs = [values, *(constant(bound, "int32") for _, bound in bounds)]
    steps: list[MapStep] = []
    current = 0
    for taken, (operator, _) in enumerate(bounds, 1):
        steps.append(("alu", operator, (current, taken)))
        current = len(inputs) + len(steps) - 1
    return map_plan("int32", dst, inputs, steps, output_dtype=unsigned(dst))
