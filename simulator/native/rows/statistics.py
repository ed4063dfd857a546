"""Micro-kernels of the rows that compute means and variances, as `simulator.oracle.statistics`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.enums import Engine
from isa.machine import statistics
from simulator.device_state import CoreState
from simulator.native.codegen.structure import StructureText
from simulator.native.codegen.text import Value
from simulator.native.plans.plan import Bound, FunctionPlan, Plan, inner_job
from simulator.native.plans.table import plans
from simulator.native.rows.copy import through_float32
from simulator.native.rows.elementwise import converting
from simulator.native.rows.lines import LANES, Lines, RowLayout, lines_plan, rows_of
from simulator.native.rows.partials import Reducer
from simulator.views import Array

_FLOAT = 4


class _OrderedSums:
    """Totals of fp32 values, in the canonical order."""

    def __init__(self, f: StructureText) -> None:
        self.f = f
        self._reducer = Reducer(f, "add", "float32")

    def total(self, count: Value, elements: Callable[[Value, int], Value]) -> Value:
        """The sum of `count` elements, of width 1."""
        return self._reducer.tree(self._reducer.row(count, elements))

    def squared(self, value: Value, mean: Value) -> Value:
        """The square of the distance from a mean of width 1."""
        f = self.f
        distance = value - f.shuffle(mean, mean, [0] * value.width)
        return distance * distance


@dataclass(frozen=True, slots=True)
class Statistics:
    """Count, mean and variance * count of the even elements of each row, then of the odd ones."""

    result: RowLayout
    data: RowLayout

    def text(self, name: str) -> str:
        f = StructureText(name)
        lines = Lines(f, (self.result, self.data))
        sums, one = _OrderedSums(f), f.integer(1)

        def row(rows: list[Value]) -> None:
            line = lines.read(1, rows[1])

            def half(parity: Value) -> None:
                first = f.element_at(line, parity, _FLOAT)
                rest = lines.sizes[1] - parity
                count = f.binary("lshr", rest + one, one)

                def every_other(index: Value, width: int) -> Value:
                    place = f.element_at(first, index, 2 * _FLOAT)
                    if width == 1:
                        return f.load(place, "float", 1)
                    # Two loads that end with the last element.
                    later = f.element_at(place, f.integer(LANES - 1), _FLOAT)
                    left, right = (f.load(at, "float", LANES) for at in (place, later))
                    order = [*range(0, LANES, 2), *range(LANES + 1, 2 * LANES, 2)]
                    return f.shuffle(left, right, order)

                number = f.splat(f.convert("sitofp", count, "float"), 1)
                divisor = f.splat(f.convert("sitofp", f.intrinsic("smax", count, one), "float"), 1)
                mean = sums.total(count, every_other) / divisor
                spread = sums.total(
                    count, lambda i, width: sums.squared(every_other(i, width), mean)
                )
                begin = parity * 3
                for index, result in enumerate((number, mean, spread)):
                    lines.write(0, rows[0], begin + index, result)

            f.loop(f.integer(0), f.integer(2), 1, half)

        lines.rows(row)
        return f.text()


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Mean and variance of what (count, mean, variance * count) triples of each row describe."""

    result: RowLayout
    data: RowLayout

    def text(self, name: str) -> str:
        f = StructureText(name)
        lines = Lines(f, (self.result, self.data))
        sums = _OrderedSums(f)
        triples = f.binary("udiv", lines.sizes[1], f.integer(3))

        def row(rows: list[Value]) -> None:
            line = lines.read(1, rows[1])

            def field(number: int, index: Value, width: int) -> Value:
                first = f.element_at(line, f.integer(number), _FLOAT)
                place = f.element_at(first, index, 3 * _FLOAT)
                return f.load_apart(place, f.integer(3 * _FLOAT), "float", width)

            def weighted(index: Value, width: int) -> Value:
                return f.binary("fmul", *(field(number, index, width) for number in (0, 1)))

            def between(index: Value, width: int) -> Value:
                squared = sums.squared(field(1, index, width), mean)
                return field(0, index, width) * squared

            count = sums.total(triples, lambda i, width: field(0, i, width))
            mean = sums.total(triples, weighted) / count
            spread = sums.total(triples, lambda i, width: field(2, i, width))
            spread = spread + sums.total(triples, between)
            for index, result in enumerate((mean, spread / count)):
                lines.write(0, rows[0], f.integer(index), result)

        lines.rows(row)
        return f.text()


def _plan(
    kernel: type[Statistics | Aggregate], dst: Array, data: Array
) -> Plan | FunctionPlan | None:
    if not converting(dst, data):
        return None
    result, source = rows_of(dst), rows_of(data, read=True)
    if result is None:
        return None
    if source is None:
        wide = np.empty((data.shape[0], data.size // data.shape[0]), np.float32)
        return _widened(through_float32(wide, data), _plan(kernel, dst, wide), wide.shape)
    return lines_plan(kernel(result.layout, source.layout), [(0, dst, result), (1, data, source)])


def _widened(widen: Plan | None, plan: Any, shape: tuple[int, ...]) -> FunctionPlan | None:
    """A plan of rows that are widened first, as they are too long for the room of a kernel."""
    if widen is None or type(plan) is not Plan:
        return None

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        dst, data = values
        if dst is None or data is None:
            return None
        wide = np.empty(shape, np.float32)
        ahead = inner_job(widen, state, wide, data, 1, 1)
        return Bound([ahead, inner_job(plan, state, dst, wide, 0, 0)], wide)

    return FunctionPlan(bind)


@plans(statistics.BnStats)
def bn_stats(engine: Engine, dst: Array, data: Array) -> Plan | FunctionPlan | None:
    return _plan(Statistics, dst, data)


@plans(statistics.BnAggregate)
def bn_aggregate(engine: Engine, dst: Array, data: Array) -> Plan | FunctionPlan | None:
    return _plan(Aggregate, dst, data)
