"""Micro-kernels of recurrences along rows, vectorised across LANES rows.

Element i of LANES rows is a vector. Where rows are contiguous, LANES elements of each are loaded
and transposed in registers; else elements are collected one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from isa.dtypes import DTYPES
from simulator.native.codegen import ports
from simulator.native.codegen.library import MicroKernel
from simulator.native.codegen.nest import NestWords
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import Dim, IterationSpace, by_partitions, space
from simulator.native.plans.plan import Plan, nest_divisions, nest_words, ranked, same_orders
from simulator.native.plans.table import compiled
from simulator.native.rows.copy import transposed
from simulator.native.rows.elementwise import MapInput, add_number_words

LANES = 16

FREE_RANKS = (1, 4)
"""Free dimensions that a micro-kernel can have."""

Carried = Sequence[Value]
RowStep = Callable[[Sequence[Value], Carried], tuple[Value, Carried]]
"""From an element of each operand that is read, and what is carried, to the element that is
written, and what is carried on."""


def lockstep(operands: Sequence[Sequence[Dim]]) -> IterationSpace | None:
    """The space of a micro-kernel: partitions, then one of FREE_RANKS free dimensions."""
    free = space([operand[1:] for operand in operands])
    nest = None if free is None else ranked(free, FREE_RANKS)
    return None if nest is None else by_partitions(operands, nest)


def plan_lockstep(
    kernel: MicroKernel,
    space: IterationSpace,
    operands: Sequence[MapInput],
    inputs: Sequence[MapInput],
) -> Plan:
    """The plan of a micro-kernel for operands in a space, the one that is written first. `inputs`
    has the numbers, which come in its order behind the words of the nest."""
    function = compiled(kernel)
    words = nest_words(space)
    numbers = add_number_words(words, inputs)
    return Plan(
        function,
        [operand.view for operand in operands if operand.view is not None],
        [operand.position for operand in operands],
        words,
        numbers,
        same_orders(space, [operand.size for operand in operands]),
        divisions=tuple(
            each._replace(multiple=LANES, lockstep=LANES) for each in nest_divisions(space, 1)
        ),
        work=math.prod(space.counts),
    )


class RowGroup:
    """LANES rows from row `first` on. Where there are fewer, the last one fills the other lanes:
    it is computed several times, from the same elements."""

    def __init__(self, f: FunctionText, first: Value, rows: Value) -> None:
        self.f = f
        self._first = first
        last = rows - first - 1
        self._lanes = [f.intrinsic("smin", last, f.integer(lane)) for lane in range(LANES)]

    def rows(self, pointer: Value, stride: Value) -> list[Value]:
        """Where each lane's row of an operand is, whose rows are `stride` bytes apart."""
        start = pointer + self._first * stride
        return [start + lane * stride for lane in self._lanes]

    def collect(self, places: Sequence[Value], element: str) -> Value:
        """The elements at these places."""
        f = self.f
        result = Value("poison", element, LANES, f)
        for lane, place in enumerate(places):
            result = f.insert(result, f.load(place, element), lane)
        return result

    def spread(self, value: Value, places: Sequence[Value]) -> None:
        """Write a vector to these places."""
        for lane, place in enumerate(places):
            self.f.store(self.f.extract(value, lane), place)


class Lockstep:
    """The rows of a `NestWords` whose first dimension is partitions; the innermost one is adjacent
    elements of every operand that an element is read from or written to, if `contiguous`.

    `lanes` and `sizes` are the LLVM types and bytes of the elements of the operand that is written,
    the first one, and of those that are read, the next ones. Others have one element a row.
    """

    def __init__(
        self, nest: NestWords, lanes: Sequence[str], sizes: Sequence[int], contiguous: bool
    ) -> None:
        self.f = nest.f
        self.nest = nest
        self._lanes = lanes
        self._sizes = sizes
        self._contiguous = contiguous

    def groups(self, body: Callable[[RowGroup], None]) -> None:
        """Run `body` for all rows."""
        f, rows = self.f, self.nest.counts[0]
        f.loop(f.integer(0), rows, LANES, lambda first: body(RowGroup(f, first, rows)))

    def column(self, group: RowGroup, operand: int) -> list[Value]:
        """Where an operand with one element a row has those of the group."""
        return group.rows(self.nest.pointers[operand], self.nest.strides[operand][0])

    def constants(self, group: RowGroup, inputs: Iterable[tuple[str, str]]) -> list[Value]:
        """The values of inputs (dtype and access) that are the same all along a row: numbers are
        the words behind the nest, columns the operands behind those with more elements."""
        f, word, operand = self.f, self.nest.used, len(self._lanes)
        found = []
        for dtype, access in inputs:
            lane = f"i{DTYPES[dtype].bits}"
            if access == "number":
                stored = f.splat(f.word(word, lane), LANES)
                word += 1
            else:
                stored = group.collect(self.column(group, operand), lane)
                operand += 1
            found.append(ports.decode(f, dtype, stored))
        return found

    def along(
        self,
        group: RowGroup,
        step: RowStep,
        carried: Carried,
        decode: Callable[[int, Value], Value],
        encode: Callable[[Value], Value],
    ) -> list[Value]:
        """Take `step` for each element; what is carried in the end. `decode(operand, stored)` and
        `encode(result)` go between elements in memory and those that `step` takes and gives."""
        f, nest = self.f, self.nest
        operands = range(len(self._lanes))
        rows = [group.rows(nest.pointers[o], nest.strides[o][0]) for o in operands]

        def single(offsets: Sequence[Value], carried: Carried) -> list[Value]:
            places = [[row + offsets[o] for row in rows[o]] for o in operands]
            read = [decode(o, group.collect(places[o], self._lanes[o])) for o in operands[1:]]
            result, carried = step(read, carried)
            group.spread(encode(result), places[0])
            return list(carried)

        def block(offsets: Sequence[Value], carried: Carried) -> list[Value]:
            read = []
            for o in operands[1:]:
                lines = [f.load(row + offsets[o], self._lanes[o], LANES) for row in rows[o]]
                read.append(transposed(f, [decode(o, line) for line in lines]))
            results = []
            for element in range(LANES):
                result, carried = step([lines[element] for lines in read], carried)
                results.append(result)
            for row, line in zip(rows[0], transposed(f, results)):
                f.store(encode(line), row + offsets[0])
            return list(carried)

        def inner(offsets: Sequence[Value], carried: Carried) -> list[Value]:
            count, start = nest.counts[-1], f.integer(0)

            def at(index: Value) -> list[Value]:
                moved = []
                for o in operands:
                    size = f.integer(self._sizes[o]) if self._contiguous else nest.strides[o][-1]
                    moved.append(offsets[o] + index * size)
                return moved

            if self._contiguous:
                whole = count & -LANES
                carried = f.loop(start, whole, LANES, lambda i, *c: block(at(i), c), list(carried))
                start = whole
            return f.loop(start, count, 1, lambda i, *c: single(at(i), c), list(carried))

        def outer(dimension: int, offsets: Sequence[Value], carried: Carried) -> list[Value]:
            if dimension == len(nest.counts) - 1:
                return inner(offsets, carried)

            def each(index: Value, *carried: Value) -> list[Value]:
                moved = [
                    offset + index * nest.strides[o][dimension] for o, offset in enumerate(offsets)
                ]
                return outer(dimension + 1, moved, carried)

            return f.loop(f.integer(0), nest.counts[dimension], 1, each, list(carried))

        return outer(1, [f.integer(0)] * len(self._lanes), carried)
