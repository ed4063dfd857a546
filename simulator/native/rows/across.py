"""Reductions across partitions, column by column, in the order of `simulator.oracle.reduction`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from isa.alu import ALU, AluOperator
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import gpsimd
from simulator.native.codegen import ports
from simulator.native.codegen.expressions import covers, lane_type, print_expression
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import dims, space
from simulator.native.plans.plan import Division, Plan
from simulator.native.plans.table import compiled, plans
from simulator.native.rows.elementwise import converting, unsigned
from simulator.oracle.reduction import LANES
from simulator.views import Array, dtype_name

WIDTH = 16
"""Columns that are reduced together."""


@dataclass(frozen=True, slots=True)
class ReducePartitions:
    """[P, N] reduced to [N] in a domain, fp32 or bit patterns: partition p goes into partial result
    p % LANES.

    Words: result, source, P, N, the bytes between partitions. Elements of a partition are adjacent.
    """

    domain: str
    operator: str
    source: str
    output: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        target, source = (f.word(index, "ptr") for index in range(2))
        partitions, count, along = (f.word(index) for index in range(2, 5))
        row, result = DTYPES[self.source], DTYPES[self.output]
        zero, operator, lane = f.integer(0), ALU[self.operator], lane_type(self.domain)
        start = operator.identity or 0
        if self.domain != "float32":
            start = int(start) & ((1 << row.bits) - 1)
        identity = f.constant(lane, start, WIDTH)

        def columns(column: Value) -> None:
            mask = f.below(count - column, WIDTH)
            first = f.element_at(source, column, row.size)

            def step(partition: Value, *partials: Value) -> list[Value]:
                """One for each partial result; those without a partition take the identity."""
                found = []
                for lane, held in enumerate(partials):
                    number = partition + lane
                    there = f.compare("icmp slt", number, partitions)
                    down = f.select(there, number, zero) * along
                    stored = f.load_where(mask, first + down, f"i{row.bits}")
                    value = stored
                    if self.domain == "float32":
                        value = ports.decode(f, self.source, stored)
                    value = f.select(f.splat(there, WIDTH), value, identity)
                    found.append(self._combined(f, held, value))
                return found

            partials = f.loop(zero, partitions, LANES, step, [identity] * LANES)
            while len(partials) > 1:
                half = len(partials) // 2
                pairs = zip(partials[:half], partials[half:])
                partials = [self._combined(f, *pair) for pair in pairs]
            total = partials[0]
            if operator.finish is not None:
                number = f.splat(f.convert("sitofp", partitions, "float"), WIDTH)
                inputs = {"x": total, "y": number}
                total = print_expression(f, operator.finish, self.domain, inputs)
            f.store_where(mask, self._encoded(f, total), f.element_at(target, column, result.size))

        f.loop(zero, count, WIDTH, columns)
        return f.text()

    def _combined(self, f: FunctionText, left: Value, right: Value) -> Value:
        expression = ALU[self.operator].expression
        return print_expression(f, expression, self.domain, {"x": left, "y": right})

    def _encoded(self, f: FunctionText, total: Value) -> Value:
        if self.domain == "float32":
            return ports.encode_result(f, self.output, total)
        wider = DTYPES[self.output].bits > DTYPES[self.source].bits
        return f.convert("zext" if wider else "trunc", total, f"i{DTYPES[self.output].bits}")


def _adjacent(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    found = space([dims(shape, strides)])
    return found is not None and found.strides[0] in ((), (size,))


@plans(gpsimd.PartitionReduce)
def partition_reduce(engine: Engine, dst: Array, data: Array, op: AluOperator) -> Plan | None:
    domain = "float32" if op.arithmetic else unsigned(data)
    if op.identity is None or not covers("alu", op.name, domain) or not data.size:
        return None
    if op.arithmetic and not converting(dst, data):
        return None
    sizes = dst.dtype.itemsize, data.dtype.itemsize
    if not _adjacent(dst.shape, dst.strides, sizes[0]):
        return None
    if not _adjacent(data.shape[1:], data.strides[1:], sizes[1]):
        return None
    names = [dtype_name(view) if op.arithmetic else unsigned(view) for view in (data, dst)]
    function = compiled(ReducePartitions(domain, op.name, *names))
    words = [0, 0, data.shape[0], data.size // data.shape[0], data.strides[0]]
    along = Division(3, ((0, sizes[0]), (1, sizes[1])), WIDTH)
    views = [dst, data]
    return Plan(
        function, views, (0, 1), words, same_order=[False], divisions=(along,), work=data.size
    )
