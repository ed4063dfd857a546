"""Plans of meanings that copy elements, all or chosen ones, and of affine numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from isa.dtypes import DTYPES
from isa.meaning import AffineNumber, Apply, Choose, Element, Pattern, Term, Unchanged
from isa.spec import MachineInstruction
from simulator.native.codegen.expressions import covers
from simulator.native.plans.plan import Plan
from simulator.native.rows.copy import convert_plan
from simulator.native.rows.elementwise import (
    MapInput,
    MapStep,
    affine,
    constant,
    converting,
    map_plan,
    number,
    pattern_of,
    tile,
    unsigned,
)
from simulator.oracle.meaning import Values, number_of
from simulator.views import Array, dtype_name, same_type

_WORD = 4
"""Bytes of what is computed with."""


def affine_operand(dst: Array, term: AffineNumber, values: Values) -> MapInput | None:
    """Affine numbers, if they are as many as the destination's elements."""
    fields = values.fields
    steps = [(int(count), int(step)) for step, count in fields[term.pattern]]
    if math.prod(count for count, _ in steps) * dst.shape[0] != dst.size:
        return None
    return affine(fields[term.offset], [(dst.shape[0], fields[term.multiplier]), *steps])


def counting(dst: Array, term: AffineNumber, values: Values) -> Plan | None:
    """dst = affine numbers."""
    numbers = affine_operand(dst, term, values)
    row = DTYPES[dtype_name(dst)]
    if numbers is None or row.size > _WORD:
        return None
    if not row.is_integer:
        return map_plan("float32", dst, [numbers], ()) if converting(dst) else None
    limits = DTYPES["int32"]
    bounds = []
    if row.lowest > limits.lowest:
        bounds.append(("maximum", int(row.lowest)))
    if row.largest < limits.largest:
        bounds.append(("minimum", int(row.largest)))
    inputs = [numbers, *(constant(bound, "int32") for _, bound in bounds)]
    steps: list[MapStep] = []
    current = 0
    for taken, (operator, _) in enumerate(bounds, 1):
        steps.append(("alu", operator, (current, taken)))
        current = len(inputs) + len(steps) - 1
    return map_plan("int32", dst, inputs, steps, output_dtype=unsigned(dst))


def copying(row: type[MachineInstruction], dst: Array, result: Term, values: Values) -> Plan | None:
    """dst = the elements of an operand; of a choice those of its first term, where the condition
    holds, and elsewhere a number or what the destination holds."""
    pattern, fields = unsigned(dst), values.fields
    if isinstance(result, Element) and isinstance(fields[result.field], np.ndarray):
        return convert_plan(dst, fields[result.field])
    stored = pattern_of(dtype_name(dst))

    def immediate(term: Element) -> MapInput:
        taken = number_of(row, term.field)
        return number(row.places[term.field], pattern, lambda value: stored(taken(value)))

    named: dict[str, Any] = {}
    if isinstance(result, Choose):
        condition, other = result.condition, result.other
        if isinstance(condition, Pattern):
            view = fields[condition.field]
            named["predicate"] = tile(row.places[condition.field], view, unsigned(view))
            named["reverse"] = values.is_set(result.reverse)
        else:
            assert isinstance(condition, Apply) and isinstance(condition.terms[0], AffineNumber)
            operator = values.operator(condition.table, condition.operator)
            named["predicate"] = affine_operand(dst, condition.terms[0], values)
            named["test"] = operator.name
            if named["predicate"] is None or not covers("alu", operator.name, "int32"):
                return None
        if not isinstance(other, Unchanged):
            assert isinstance(other, Element)
            named["otherwise"] = immediate(other)
        result = result.chosen
    assert isinstance(result, Element)
    source = fields[result.field]
    numbers = "otherwise" in named or not isinstance(source, np.ndarray)
    if named and numbers and DTYPES[dtype_name(dst)].is_packed:
        return None  # packed elements take the number 0 alone, and that in all of a tile
    if not isinstance(source, np.ndarray):
        given, domain = immediate(result), pattern
    elif same_type(dst, source):
        given, domain = tile(row.places[result.field], source, pattern), pattern
    elif converting(dst, source):
        given, domain = tile(row.places[result.field], source), "float32"
    else:
        return None
    output = pattern if domain == pattern else None
    return map_plan(domain, dst, [given], (), output_dtype=output, **named)
