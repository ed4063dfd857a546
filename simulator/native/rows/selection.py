"""Plans of the rows that choose elements by masks or by their positions, and of affine numbers."""

from __future__ import annotations

import math
from typing import Any

from isa.alu import AluOperator
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import gpsimd
from simulator.native.codegen.expressions import covers
from simulator.native.plans.plan import Plan
from simulator.native.plans.table import plans
from simulator.native.rows.elementwise import (
    MapStep,
    Operand,
    affine,
    constant,
    converting,
    map_plan,
    number,
    pattern_of,
    tile,
    unsigned,
)
from simulator.views import Array, dtype_name, same_type

_WORD = 4
"""Bytes of what is computed with."""


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
