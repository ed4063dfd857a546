"""The micro-kernel of rows that carry a value along a partition's elements, and their plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.alu import AluOperator
from isa.dtypes import DTYPES
from isa.enums import ReduceCommand
from simulator.device_state import CoreState
from simulator.native.codegen import ports
from simulator.native.codegen.expressions import TABLES, covers, print_expression
from simulator.native.codegen.nest import NestWords
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.plan import Bound, FunctionPlan, Plan
from simulator.native.rows.elementwise import (
    MapInput,
    MapStep,
    column_of,
    number,
    scalar_operand,
    tile,
)
from simulator.native.rows.lockstep import (
    Carried,
    Lockstep,
    RowGroup,
    lockstep,
    plan_lockstep,
)
from simulator.numerics.expressions import alu_ufunc
from simulator.oracle.accumulate import STARTS, accumulators, beginning
from simulator.views import Array


@dataclass(frozen=True, slots=True)
class ScanKernel:
    """output[i] = carried = the result of the last step, all in fp32.

    Steps take the carried value, then the inputs, then earlier results. `inputs`: dtype and access
    of each, as of `MapKernel`, and of what is carried at first, the last one. Operands are the
    output and all inputs but numbers; numbers are words behind those of the nest. With `keeps`
    there is also an fp32 column for the value that is carried in the end.
    """

    inputs: tuple[tuple[str, str], ...]
    steps: tuple[MapStep, ...]
    output: str
    contiguous: bool
    rank: int
    keeps: bool

    def text(self, name: str) -> str:
        f = FunctionText(name)
        tiles = [dtype for dtype, access in self.inputs if access == "tile"]
        arrays = [dtype for dtype, access in self.inputs if access != "number"]
        nest = NestWords(f, 1 + len(arrays) + self.keeps, self.rank)
        read_or_written = [self.output, *tiles]
        lanes = [f"i{DTYPES[dtype].bits}" for dtype in read_or_written]
        sizes = [DTYPES[dtype].size for dtype in read_or_written]
        rows = Lockstep(nest, lanes, sizes, self.contiguous)

        def decode(operand: int, stored: Value) -> Value:
            return ports.decode(f, read_or_written[operand], stored)

        def encode(result: Value) -> Value:
            return ports.encode_result(f, self.output, result)

        def one_group(group: RowGroup) -> None:
            single = iter(rows.constants(group, [i for i in self.inputs if i[1] != "tile"]))
            inputs = [None if access == "tile" else next(single) for _, access in self.inputs]
            *constants, initial = inputs
            assert initial is not None

            def step(read: Sequence[Value], carried: Carried) -> tuple[Value, Carried]:
                elements = iter(read)
                inputs = [next(elements) if value is None else value for value in constants]
                result = self._steps(f, [*carried, *inputs])
                return result, [result]

            (last,) = rows.along(group, step, [initial], decode, encode)
            if self.keeps:
                group.spread(ports.canonical(f, last), rows.column(group, len(arrays) + 1))

        rows.groups(one_group)
        return f.text()

    def _steps(self, f: FunctionText, values: list[Value]) -> Value:
        for table, name, arguments in self.steps:
            inputs = dict(zip(("x", "y"), (values[index] for index in arguments)))
            values.append(print_expression(f, TABLES[table][name].expression, "float32", inputs))
        return values[-1]


def scan_plan(
    dst: Array,
    inputs: Sequence[MapInput],
    initial: MapInput,
    steps: Sequence[MapStep],
    kept: MapInput | None = None,
) -> Plan | None:
    """The plan of a `ScanKernel` over these tiles, columns and numbers, tiles first; `kept` takes
    the last values."""
    result = tile(0, dst)
    sources = [*inputs, initial]
    if not all(covers(table, name, "float32") for table, name, _ in steps):
        return None
    operands = [result, *(operand for operand in sources if operand.access != "number")]
    if kept is not None:
        operands.append(kept)
    space = lockstep([operand.dims for operand in operands])
    if space is None:
        return None
    contiguous = all(
        strides[-1] == operand.size
        for operand, strides in zip(operands, space.strides)
        if operand.access == "tile"
    )
    kernel = ScanKernel(
        tuple((operand.dtype, operand.access) for operand in sources),
        tuple(steps),
        result.dtype,
        contiguous,
        len(space.counts),
        kept is not None,
    )
    return plan_lockstep(kernel, space, operands, sources)


def cumulative(
    dst: Array,
    inputs: Sequence[MapInput],
    steps: Sequence[MapStep],
    op: AluOperator,
    command: ReduceCommand,
    values: int,
    initial: tuple[int, Any] | None = None,
) -> FunctionPlan | None:
    """The plan of a row of `values` fields that applies `steps`, as of a `ScanKernel`, and folds
    each result into the accumulate register, from where the destination takes it. `initial`:
    position and value of what load_reduce loads."""
    if alu_ufunc(op.name) is None or any(operand.access != "tile" for operand in inputs[:1]):
        return None
    # Behind the row's fields are the registers and the operator's beginning.
    kept = column_of(values, np.empty((dst.shape[0], 1), np.float32), dst)
    start: MapInput | None = kept
    if command in STARTS:
        start = number(values + 1)
    elif command is ReduceCommand.load_reduce:
        start = None if initial is None else scalar_operand(*initial, dst)
    if start is None:
        return None
    # What is carried comes before the inputs.
    last = len(inputs) + len(steps)
    plan = scan_plan(dst, inputs, start, [*steps, ("alu", op.name, (last, 0))], kept)
    if plan is None:
        return None

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        registers = accumulators(state, values[0].shape[0])[:, np.newaxis]
        return plan.bind(state, values, [registers, beginning(op)])

    return FunctionPlan(bind)
