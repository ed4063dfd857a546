"""Plans of the rows that map elements through a function and may reduce the results of each
partition into the accumulate registers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.enums import Engine, ReduceCommand
from isa.machine import accumulate, scalar
from simulator.device_state import CoreState
from simulator.native.codegen.expressions import covers
from simulator.native.plans.plan import Bound, Compound, FunctionPlan, Plan
from simulator.native.plans.table import plans
from simulator.native.rows.elementwise import (
    MapInput,
    MapStep,
    converting,
    map_plan,
    number,
    scalar_operand,
    tile,
)
from simulator.native.rows.through_rows import ThroughRows, as_rows, copied_rows, rows_like
from simulator.oracle.accumulate import accumulators
from simulator.views import Array


@dataclass(frozen=True, slots=True)
class AccumulatingPlan(Compound):
    """A `Plan` with one more operand for the reductions of the partitions' results, which then are
    folded into the registers. `initial` is the position of what load_reduce loads, if any."""

    plan: Plan
    op: AluOperator
    partitions: int
    command: ReduceCommand
    initial: int | None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """As `Plan.bind`, for the engine and the partitions that the state has now."""
        reduced = np.empty((self.partitions, 1), np.float32)
        compute = self.plan.bind(state, values, [reduced])
        if compute is None:
            return None
        registers = accumulators(state, self.partitions)[:, np.newaxis]
        initial = None if self.initial is None else values[self.initial]
        fold = self._fold(state, registers, reduced, initial)
        return fold and Bound([*compute.jobs, *fold.jobs], (registers, reduced))

    def _fold(
        self, state: CoreState, registers: Array, reduced: Array, initial: Any
    ) -> Bound | None:
        """registers = start <op> reduced, or the start alone. The start is the operator's identity,
        what they hold, or what is loaded: `simulator.oracle.accumulate.start`."""
        command = self.command
        started: Any = self.op.identity
        if command is ReduceCommand.load_reduce:
            if initial is None:
                return None
            started = initial
        elif command is ReduceCommand.reduce:
            started = registers
        values = (registers, reduced, started)
        first: MapInput | None = tile(2, registers)
        if started is not registers:
            first = scalar_operand(2, started, registers)
        if first is None:
            return None
        if command is ReduceCommand.reset:
            plan = map_plan("float32", registers, [first], ())
        else:
            steps = [("alu", self.op.name, (0, 1))]
            plan = map_plan("float32", registers, [first, tile(1, reduced)], steps)
        call = None if plan is None else plan.bind(state, values)
        if call is None:
            return None
        (job,) = call.jobs
        # What is loaded is an operand; registers and sums are memory of the engine's own.
        slots: list[tuple[int, int]] = []
        if self.initial is not None and isinstance(started, np.ndarray) and started is initial:
            slots += [(slot, self.initial) for slot, at in job.slots if at == 2]
        return Bound([job._replace(slots=tuple(slots), written=0, same=())])


def accumulating(
    dst: Array,
    inputs: Sequence[MapInput],
    steps: Sequence[MapStep],
    op: AluOperator,
    command: ReduceCommand,
    values: int,
    initial: int | None = None,
) -> Plan | AccumulatingPlan | ThroughRows | None:
    """The plan of a row of `values` fields that applies `steps` in fp32 and reduces by `op`."""
    if not all(covers(table, name, "float32") for table, name, _ in steps):
        return None
    if command is ReduceCommand.idle:
        return map_plan("float32", dst, inputs, steps)
    if op.identity is None or op.finish is not None or not covers("alu", op.name, "float32"):
        return None

    def summed(target: Array, sources: Sequence[MapInput]) -> AccumulatingPlan | None:
        plan = map_plan("float32", target, sources, steps, sums=(op.name, values))
        if plan is None:
            return None
        return AccumulatingPlan(plan, op, target.shape[0], command, initial)

    found = summed(dst, inputs)
    if found is not None:
        return found
    rows, plan = copied_rows(dst, inputs), summed(rows_like(dst), as_rows(inputs))
    return None if rows is None or plan is None else ThroughRows(plan, rows)


def _reading(dst: Array, negate: bool, lanes: int) -> FunctionPlan | None:
    """How to read the accumulate registers into a destination of one layout."""
    if lanes or not converting(dst):  # registers of other partitions
        return None
    registers = tile(1, np.empty((dst.shape[0], 1), np.float32))
    if negate:
        plan = map_plan("float32", dst, [registers, number(2)], [("alu", "multiply", (0, 1))])
    else:
        plan = map_plan("float32", dst, [registers], ())
    if plan is None:
        return None

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        held = accumulators(state, values[0].shape[0])[:, np.newaxis]
        return plan.bind(state, values[:1], [held, -1.0])

    return FunctionPlan(bind)


@plans(scalar.ActReadAccumulator)
def act_read_accumulator(engine: Engine, dst: Array, lanes: int) -> FunctionPlan | None:
    return _reading(dst, False, lanes)


@plans(accumulate.VectorReadAccumulator)
def vector_read_accumulator(
    engine: Engine, dst: Array, negate: bool, lanes: int
) -> FunctionPlan | None:
    return _reading(dst, negate, lanes)
