"""The micro-kernel of reductions along the free dimensions, in the order of
`simulator.oracle.reduction`: 16 strided partial results, then a fixed tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from isa.alu import ALU, AluOperator
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import vector
from simulator.native.codegen import ports
from simulator.native.codegen.expressions import covers
from simulator.native.codegen.nest import NestWords, loops
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import dims, space
from simulator.native.plans.plan import FunctionPlan, Plan, nest_divisions, nest_words, ranked
from simulator.native.plans.table import compiled, plans
from simulator.native.rows.elementwise import converting, unsigned
from simulator.native.rows.from_first import from_first
from simulator.native.rows.partials import IN_LOCKSTEP, Reducer
from simulator.views import Array, dtype_name

REDUCED_RANKS = (1, 4)
"""Dimensions that a micro-kernel can reduce."""


@dataclass(frozen=True, slots=True)
class ReduceKernel:
    """dst = the reduction of each row of the source.

    Operands are the destination and the source; `rank` dimensions are kept. `reduced` further
    dimensions (counts, then strides of the source, after the nest's words) make up a row; with
    `contiguous` it is one dimension of adjacent elements.
    """

    domain: str
    operator: str
    source: str
    output: str
    negate: bool
    contiguous: bool
    rank: int
    reduced: int

    def text(self, name: str) -> str:
        f = FunctionText(name)
        nest = NestWords(f, 2, self.rank)
        counts = [f.word(nest.used + i) for i in range(self.reduced)]
        strides = [f.word(nest.used + self.reduced + i) for i in range(self.reduced)]
        reducer = Reducer(f, self.operator, self.domain)
        lane, size = f"i{DTYPES[self.source].bits}", DTYPES[self.source].size

        def read(pointer: Value, width: int) -> Value:
            stored = f.load(pointer, lane, width)
            return ports.decode(f, self.source, stored) if self.domain == "float32" else stored

        def adjacent(source: Value, index: Value, width: int) -> Value:
            return read(f.element_at(source, index, size), width)

        def strided(source: Value) -> Value:
            reducer.begin_one_by_one()

            def one(pointers: Sequence[Value], number: Value) -> Value:
                reducer.add(number, read(pointers[0], 1))
                return number + 1

            loops(f, counts, [strides], [source], one, f.integer(0))
            return reducer.partial()

        def write(partials: Value, target: Value) -> None:
            f.store(self._write(f, reducer.tree(partials)), target)

        def lockstep(rows: Sequence[Sequence[Value]]) -> None:
            (count,) = counts
            found = reducer.rows(count, [partial(adjacent, source) for _, source in rows])
            for (target, _), partials in zip(rows, found):
                write(partials, target)

        if self.contiguous:
            nest.rows_in_lockstep(lockstep, IN_LOCKSTEP, inner=0)
        else:
            nest.rows(lambda pointers: write(strided(pointers[1]), pointers[0]), inner=0)
        return f.text()

    def _write(self, f: FunctionText, result: Value) -> Value:
        if self.domain == "float32":
            result = f.unary("fneg", result) if self.negate else result
            return ports.encode_result(f, self.output, result)
        wider = DTYPES[self.output].size > DTYPES[self.source].size
        return f.convert("zext" if wider else "trunc", result, f"i{DTYPES[self.output].bits}")


@plans(vector.TensorReduce)
def tensor_reduce(
    engine: Engine, dst: Array, data: Array, op: AluOperator, axes: int, negate: bool
) -> Plan | FunctionPlan | None:
    if op.identity is None and op.reduces:
        return from_first(dst, data, op, axes, negate, partial(_sum, engine))
    kept = data.ndim - axes
    domain = "float32" if op.arithmetic else unsigned(data)
    reduces = op.reduces and op.finish is None
    if not reduces or not covers("alu", op.name, domain):
        return None
    if op.arithmetic and not converting(dst, data):
        return None
    found = space(
        [
            dims(dst.shape, dst.strides),
            dims(data.shape[:kept], data.strides[:kept]),
        ]
    )
    row = space([dims(data.shape[kept:], data.strides[kept:])])
    nest = None if found is None else ranked(found)
    reduced = None if row is None else ranked(row, REDUCED_RANKS)
    if nest is None or reduced is None:
        return None
    kernel = ReduceKernel(
        domain,
        op.name,
        dtype_name(data) if op.arithmetic else unsigned(data),
        dtype_name(dst) if op.arithmetic else unsigned(dst),
        negate and op.arithmetic,
        reduced.strides[0] == (data.dtype.itemsize,),
        len(nest.counts),
        len(reduced.counts),
    )
    function = compiled(kernel)
    words = [*nest_words(nest), *reduced.counts, *reduced.strides[0]]
    return Plan(
        function,
        [dst, data],
        (0, 1),
        words,
        same_order=(False,),
        divisions=nest_divisions(nest, len(nest.counts)),
        work=data.size,
    )


def _sum(engine: Engine, result: Array, rows: Array) -> Plan | None:
    """The plan of the sums of rows, the last dimension."""
    found = tensor_reduce(engine, result, rows, ALU["add"], 1, False)
    return found if type(found) is Plan else None
