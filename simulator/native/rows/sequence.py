"""Micro-kernels of the GpSimd engine's rows on sequences, as `simulator.oracle.sequence`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from isa.enums import Engine
from isa.machine import sequence
from isa.machine.gather import GPSIMD_PARTITIONS
from simulator.device_state import CoreState
from simulator.native.codegen import ports
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import dims, space
from simulator.native.plans.plan import (
    Bound,
    Division,
    FunctionPlan,
    Job,
    Plan,
    address,
    apart,
    words_type,
)
from simulator.native.plans.table import compiled, plans, touches
from simulator.native.rows.gather import every_partition, step_of
from simulator.views import Array, Window, dtype_name

_SIDE = GPSIMD_PARTITIONS
_NUMBERS = ("float32", "int32")
"""The dtypes of numbers in sequences."""


def _lane(dtype: str) -> str:
    return "float" if dtype == "float32" else "i32"


def _differ(f: FunctionText, left: Value, right: Value) -> Value:
    """Whether numbers differ; NaN do from all."""
    return f.compare("fcmp une" if left.element == "float" else "icmp ne", left, right)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the run of equal ids begins and ends that each id is in; nowhere for 0.

    Words: result, ids, how many there are, the bytes between beginnings and ends, from one result
    to the next, and from id to id.
    """

    result: str
    ids: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        (target, ids), (count, apart_, step, along) = (
            [f.word(0, "ptr"), f.word(1, "ptr")],
            [f.word(index) for index in range(2, 6)],
        )
        zero, one = f.integer(0), f.integer(1)

        def at(index: Value) -> Value:
            return f.load(ids + index * along, _lane(self.ids))

        def store(index: Value, row: Value, bound: Value, nowhere: Value) -> None:
            current = at(index)
            somewhere = _differ(f, current, f.like(current, 0))
            number = f.convert("trunc", f.select(somewhere, bound, nowhere), "i32")
            if self.result == "float32":
                number = f.convert("sitofp", number, "float")
            f.store(number, row + index * step)

        def begin(index: Value, before: Value, first: Value) -> list[Value]:
            current = at(index)
            first = f.select(_differ(f, current, before), index, first)
            store(index, target, first, count)
            return [current, first]

        def end(number: Value, behind: Value, last: Value) -> list[Value]:
            index = count - one - number
            current = at(index)
            last = f.select(_differ(f, current, behind), index + one, last)
            store(index, target + apart_, last, f.integer(-1))
            return [current, last]

        f.loop(zero, count, 1, begin, [at(zero), zero])
        f.loop(zero, count, 1, end, [at(count - one), count])
        return f.text()


@plans(sequence.SequenceBounds)
def sequence_bounds(engine: Engine, dst: Array, segment_ids: Array) -> Plan | None:
    names, count = (dtype_name(dst), dtype_name(segment_ids)), segment_ids.size
    # The free dimensions of the result as those of two rows.
    rows = [dims(dst.shape[1:], dst.strides[1:]), [(2, 1 << 40), (count, 1)]]
    found, along = space(rows), step_of(segment_ids)
    if found is None or along is None or dst.shape[0] > 1 or not set(names) <= set(_NUMBERS):
        return None
    pair = found.padded(2)
    function = compiled(Bounds(*names))
    if pair is None or pair.counts[0] * pair.counts[1] != 2 * count:
        return None
    apart_, step = (pair.strides[0][1], 0) if count == 1 else pair.strides[0]
    words = [0, 0, count, apart_, step, along]
    return Plan(function, [dst, segment_ids], (0, 1), words, same_order=[False], work=count)


@dataclass(frozen=True, slots=True)
class Nonzero:
    """Where the elements of every 16th row that are not zero are, then how many.

    Words: result, source, how many such rows, elements of each; the bytes between these rows of the
    result and of the source, and between their elements; what to add to a position, and what to
    write where there is none.
    """

    source: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        target, source = f.word(0, "ptr"), f.word(1, "ptr")
        rows, count, down, across, step, along, offset, padding = (
            f.word(index) for index in range(2, 10)
        )
        zero = f.integer(0)

        def number(value: Value, row: Value, place: Value) -> None:
            stored = f.convert("trunc", value, "i32")
            f.store(stored, row + place * step)

        def one_row(index: Value) -> None:
            written = target + index * down
            read = source + index * across

            def element(position: Value, found: Value) -> list[Value]:
                place = read + position * along
                value = f.load(place, _lane(self.source))
                # The place behind the last one found is free: a later position takes it, or none.
                number(position + offset, written, found)
                there = f.convert("zext", _differ(f, value, f.like(value, 0)), "i64")
                return [found + there]

            (found,) = f.loop(zero, count, 1, element, [zero])
            f.loop(found, count, 1, lambda place: number(padding, written, place))
            number(found, written, count)

        f.loop(zero, rows, 1, one_row)
        return f.text()


@plans(sequence.NonzeroWithCount)
def nonzero_with_count(
    engine: Engine, dst: Array, src: Array, offset: int, padding: int
) -> Plan | None:
    step, along, source = step_of(dst), step_of(src), dtype_name(src)
    if step is None or along is None or dtype_name(dst) != "int32" or source not in _NUMBERS:
        return None
    function = compiled(Nonzero(source))
    rows, count = -(-dst.shape[0] // _SIDE), src.size // src.shape[0]
    down, across = _SIDE * dst.strides[0], _SIDE * src.strides[0]
    words = [0, 0, rows, count, down, across, step, along, offset, padding]
    groups = Division(2, ((0, down), (1, across)))
    views, work = [dst, src], rows * count
    return Plan(function, views, (0, 1), words, same_order=[False], divisions=(groups,), work=work)


@touches(sequence.NonzeroWithCount, 0)
def first_partitions(window: Window) -> Window:
    """The partitions that are written."""
    return every_partition(window, _SIDE)


_RADIX = 256
_KEY, _INDEX = 16, 0xFFFF


@dataclass(frozen=True, slots=True)
class LargestOfSequences:
    """The K largest of sequences in order: element i is in partition i % 16, column i // 16.

    Elements are sorted by the upper half of words: numbers in the order of the bfloat16 values, NaN
    largest; the lower half is their index. A sort that keeps what is equal in order, from the last
    one on, lets earlier elements count as larger.

    Words: values, indices, source; groups of 16 partitions, n, K; the bytes between partitions of
    the three, between elements of the three; memory for 2 * n words.
    """

    def text(self, name: str) -> str:
        f = FunctionText(name)
        values, indices, source = (f.word(index, "ptr") for index in range(3))
        groups, n, k = (f.word(index) for index in range(3, 6))
        downs, steps = ([f.word(first + index) for index in range(3)] for first in (6, 9))
        memory, zero, side = f.word(12, "ptr"), f.integer(0), f.integer(_SIDE)
        counts = f.scratch("i64", _RADIX)
        rooms = memory, f.element_at(memory, n, 4)

        def element(base: Value, index: Value) -> Value:
            row = base + f.binary("urem", index, side) * downs[2]
            column = f.binary("udiv", index, side) * steps[2]
            return f.load(row + column, "i16")

        def key(pattern: Value) -> Value:
            """Bits in the order of the values: equal for equal zeros, and for all NaN."""
            value = ports.decode(f, "bfloat16", pattern)
            number = f.convert("sext", pattern, "i32")
            less = number ^ 0x7FFF
            ordered = f.select(f.compare("icmp slt", number, f.like(number, 0)), less, number)
            none = f.compare("fcmp oeq", value, f.like(value, 0.0))
            ordered = f.select(none, f.like(number, 0), ordered)
            nan = f.compare("fcmp uno", value, value)
            ordered = f.select(nan, f.like(number, 0x7FFF), ordered)
            return (ordered + 0x8000) & _INDEX

        def group(number: Value) -> None:
            first = number * side
            base = source + first * downs[2]

            def fill(index: Value) -> None:
                mine = n - index - 1
                upper = key(element(base, mine))
                upper = upper << _KEY
                word = upper | f.convert("trunc", mine, "i32")
                f.store(word, f.element_at(rooms[0], index, 4))

            f.loop(zero, n, 1, fill)
            for turn, (left, right) in enumerate((rooms, rooms[::-1])):
                self._pass(f, counts, left, right, n, _KEY + 8 * turn)

            def chosen(place: Value) -> None:
                at = n - k + place
                word = f.load(f.element_at(rooms[0], at, 4), "i32")
                index = word & _INDEX
                moved = element(base, f.convert("zext", index, "i64"))

                def partition(lane: Value) -> None:
                    row = first + lane
                    for target, stored, operand in ((values, moved, 0), (indices, index, 1)):
                        line = target + row * downs[operand]
                        f.store(stored, line + place * steps[operand])

                f.loop(zero, side, 1, partition)

            f.loop(zero, k, 1, chosen)

        f.loop(zero, groups, 1, group)
        return f.text()

    def _pass(
        self, f: FunctionText, counts: Value, left: Value, right: Value, n: Value, shift: int
    ) -> None:
        """Sort words by eight of their bits, those with equal ones as they come."""
        zero, one, radix = f.integer(0), f.integer(1), f.integer(_RADIX)

        def count(digit: Value) -> Value:
            return f.element_at(counts, digit, 8)

        def word(index: Value) -> tuple[Value, Value]:
            found = f.load(f.element_at(left, index, 4), "i32")
            digit = f.binary("lshr", found, f.like(found, shift))
            digit = digit & (_RADIX - 1)
            return found, count(f.convert("zext", digit, "i64"))

        def tally(index: Value) -> None:
            _, place = word(index)
            f.store(f.load(place, "i64") + one, place)

        def begin(digit: Value, before: Value) -> list[Value]:
            held = f.load(count(digit), "i64")
            f.store(before, count(digit))
            return [before + held]

        def put(index: Value) -> None:
            found, place = word(index)
            at = f.load(place, "i64")
            f.store(found, f.element_at(right, at, 4))
            f.store(at + one, place)

        f.loop(zero, radix, 1, lambda digit: f.store(zero, count(digit)))
        f.loop(zero, n, 1, tally)
        f.loop(zero, radix, 1, begin, [zero])
        f.loop(zero, n, 1, put)


@plans(sequence.TopK)
def top_k(engine: Engine, values: Array, indices: Array, src: Array, n: int) -> FunctionPlan | None:
    steps = [step_of(view) for view in (values, indices, src)]
    names = [dtype_name(view) for view in (values, indices, src)]
    known = tuple(step for step in steps if step is not None)
    if len(known) < len(steps) or names != ["bfloat16", "uint32", "bfloat16"] or n > _INDEX + 1:
        return None
    function = compiled(LargestOfSequences())

    def bind(state: CoreState, given: Sequence[Any]) -> Bound | None:
        """The call for these operands; None where they overlap."""
        views = given[:3]
        if any(view is None for view in views):
            return None
        if not all(apart(one, other) for one, other in combinations(views, 2)):
            return None
        taken, _, read = views
        n, partitions = given[3], read.shape[0]
        memory = np.empty(2 * n, np.uint32)
        words = words_type(13)(
            *map(address, views),
            *(partitions // _SIDE, n, taken.size // partitions),
            *(view.strides[0] for view in views),
            *known,
            address(memory),
        )
        slots = tuple(enumerate(range(3)))
        job = Job(function, words, slots, (False, False), work=n * partitions, written=2)
        return Bound([job], memory)

    return FunctionPlan(bind)
