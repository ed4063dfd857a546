"""Native plans of rows that state their meaning (`isa.meaning`)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import MACHINE_INSTRUCTIONS
from isa.meaning import (
    AffineNumber,
    Apply,
    Choose,
    Element,
    Number,
    Pattern,
    Position,
    Previous,
    Term,
    parts,
)
from isa.spec import MachineInstruction
from simulator.native.codegen.expressions import covers
from simulator.native.plans.plan import FunctionPlan, Plan, float32_word
from simulator.native.plans.table import PLANNERS, Planner
from simulator.native.rows.accumulate import AccumulatingPlan, accumulating
from simulator.native.rows.copied import copying, counting
from simulator.native.rows.elementwise import (
    MapInput,
    MapStep,
    affine,
    column_of,
    constant,
    converting,
    map_plan,
    number,
    scalar_operand,
    tile,
    unsigned,
)
from simulator.native.rows.scan import cumulative, scan_plan
from simulator.native.rows.through_rows import ThroughRows
from simulator.oracle.meaning import Values, element_type

_WORD = 4
"""Bytes of what is computed with."""


class _TermSteps:
    """Inputs and steps of a `MapKernel` for a term; None in `inputs` where native code has no form.
    If the row carries a value from element to element, steps take that before the inputs."""

    def __init__(
        self, row: type[MachineInstruction], values: Values, term: Term, element: str
    ) -> None:
        self.row, self.values, self.element = row, values, element
        self._numbers: dict[Term, int] = {}
        self.inputs: list[MapInput | None] = []
        used = self._used(term)
        fold = row.meaning.fold if row.meaning is not None else None
        self.previous = next((leaf for leaf in used if isinstance(leaf, Previous)), None)
        self._before = int(self.previous is not None or (fold is not None and fold.running))
        if self.previous is not None:
            self._numbers[self.previous] = 0
        for leaf in used:
            if leaf not in self._numbers:
                self._numbers[leaf] = self._before + len(self.inputs)
                self.inputs.append(self._input(leaf))
        self.steps: list[MapStep] = []
        self._step(term)

    def _parts(self, term: Term) -> tuple[Term, ...]:
        """The terms that count."""
        return self.values.taken(term)[1] if isinstance(term, Apply) else parts(term)

    def _used(self, term: Term) -> list[Term]:
        inside = self._parts(term)
        return [leaf for part in inside for leaf in self._used(part)] if inside else [term]

    def _input(self, leaf: Term) -> MapInput | None:
        fields, shape = self.values.fields, self.values.shape
        elements = int(np.prod(shape[1:]))
        if isinstance(leaf, Number):
            return constant(float32_word(leaf.value))
        if isinstance(leaf, Position):
            start = fields[leaf.start]
            if start + elements > DTYPES["int32"].largest:
                return None
            return affine(start, [(shape[0], 0), (elements, 1)])
        assert isinstance(leaf, (Element, Pattern))
        value, position = fields[leaf.field], self.row.places[leaf.field]
        if isinstance(leaf, Pattern):
            # Patterns that are not zero are numbers that are not, if they have no sign.
            fits = value.dtype.itemsize <= _WORD
            return tile(position, value, unsigned(value)) if fits else None
        if value is None:
            return None
        if not isinstance(value, np.ndarray):
            if self.element == "float32":
                return number(position)
            return number(position, self.element, int)
        if self.element == "float32" and not converting(value):
            return None
        dtype = unsigned(value) if self.element.startswith("u") else None
        if self.values.is_column(leaf.field):
            return column_of(position, value, np.broadcast_to(np.float32(0), shape), dtype)
        return tile(position, value, dtype)

    def _step(self, term: Term) -> int:
        """The number of the term's value."""
        if term in self._numbers:
            return self._numbers[term]
        arguments = tuple(self._step(part) for part in self._parts(term))
        assert isinstance(term, (Apply, Choose))
        reverse = self.values.is_set(term.reverse)
        if isinstance(term, Choose):
            self.steps.append(("choice", "unless" if reverse else "where", arguments))
        else:
            operator = self.values.taken(term)[0]
            if operator is None:
                return arguments[0]
            ordered = arguments[::-1] if reverse else arguments
            self.steps.append((term.table, operator.name, ordered))
        self._numbers[term] = self._before + len(self.inputs) + len(self.steps) - 1
        return self._numbers[term]


def _plan(
    row: type[MachineInstruction], engine: Engine, *fields: Any
) -> Plan | AccumulatingPlan | FunctionPlan | ThroughRows | None:
    meaning, dst = row.meaning, fields[0]
    assert meaning is not None
    values = Values(row, fields)
    if meaning.copies:
        return copying(row, dst, meaning.result, values)
    if isinstance(meaning.result, AffineNumber):
        return counting(dst, meaning.result, values)
    element = element_type(row, values, engine)
    if element == "float32" and not converting(dst):
        return None
    made = _TermSteps(row, values, meaning.result, element)
    inputs = [operand for operand in made.inputs if operand is not None]
    if len(inputs) < len(made.inputs):
        return None
    fold = meaning.fold
    if made.previous is not None:
        name = made.previous.initial
        start = scalar_operand(row.places[name], values.fields[name], dst)
        return None if start is None else scan_plan(dst, inputs, start, made.steps)
    if fold is None:
        if not all(covers(table, name, element) for table, name, _ in made.steps):
            return None
        output = unsigned(dst) if element.startswith("u") else None
        return map_plan(element, dst, inputs, made.steps, output_dtype=output)
    operator: AluOperator = values.operator("alu", fold.operator)
    initial = None if fold.initial is None else row.places[fold.initial]
    command = values.fields[fold.command]
    if fold.running:
        loaded = None if initial is None or fields[initial] is None else (initial, fields[initial])
        return cumulative(dst, inputs, made.steps, operator, command, len(fields), loaded)
    return accumulating(dst, inputs, made.steps, operator, command, len(fields), initial)


def planner_of(row: type[MachineInstruction]) -> Planner | None:
    """What plans the uses of a row: `planner(engine, *values)`; None without native code."""
    found = PLANNERS.get(row.name)
    if found is None and row.meaning is not None:
        found = PLANNERS[row.name] = partial(_plan, row)
    return found


for _row in MACHINE_INSTRUCTIONS.values():
    planner_of(_row)
