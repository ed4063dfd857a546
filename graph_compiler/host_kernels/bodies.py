"""Called computations of scalars as steps, and the kernels that run them: folds, sorts, scatters.

They take elements in order, one at a time, except along a row of a scatter's window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from graph_compiler.host_kernels.elements import TOTAL, ElementStep, emit
from graph_compiler.host_kernels.registers import decode, encode, kind, register, storage
from simulator.native.codegen.text import FunctionText, Value

Strides = tuple[int, ...]
ArrayOperand = tuple[str, Strides]
"""Type, and strides in elements."""


@dataclass(frozen=True, slots=True)
class ScalarBody:
    """A computation of scalars: `steps` number their arguments with the `parameters` (types) first;
    `results` are numbers of values."""

    parameters: tuple[str, ...]
    steps: tuple[ElementStep, ...]
    results: tuple[int, ...]

    def emit(self, f: FunctionText, arguments: Sequence[Value]) -> list[Value]:
        """The results for vectors, or scalars, of one width."""
        values = list(arguments)
        width = values[0].width
        for step in self.steps:
            if step.op == "literal":
                element = register(step.type)
                assert element is not None
                values.append(f.constant(element, step.attribute, width))
            else:
                values.append(emit(f, step, [values[number] for number in step.arguments]))
        return [values[number] for number in self.results]


def _load(f: FunctionText, type: str, place: Value, width: int = 0) -> Value:
    return decode(f, type, f.load(place, storage(type)[0], width))


def _store(f: FunctionText, type: str, value: Value, place: Value) -> None:
    f.store(encode(f, type, value), place)


def _moved(f: FunctionText, place: Value, index: Value, operand: ArrayOperand, axis: int) -> Value:
    """The place `index` steps along a dimension of an operand further on."""
    type, strides = operand
    step = strides[axis] * storage(type)[1]
    return place + f.scaled(index, step) if step else place


@dataclass(frozen=True, slots=True)
class FoldKernel:
    """Several arrays folded together, element after element, behind initial values.

    `counts`, `reduced`: dimensions, and which of them go. Words: pointers to the outputs, the
    inputs, and the initial values.
    """

    counts: tuple[int, ...]
    reduced: tuple[bool, ...]
    outputs: tuple[ArrayOperand, ...]
    inputs: tuple[ArrayOperand, ...]
    body: ScalarBody

    def emit(self, f: FunctionText) -> None:
        number = len(self.inputs)
        words = [f.word(index, "ptr") for index in range(3 * number)]
        operands = (*self.outputs, *self.inputs)
        kept = [axis for axis, gone in enumerate(self.reduced) if not gone]
        gone = [axis for axis, flag in enumerate(self.reduced) if flag]
        initial = words[2 * number :]

        def moved(places: list[Value], axis: int, index: Value) -> list[Value]:
            return [_moved(f, p, index, o, axis) for p, o in zip(places, operands)]

        def fold(axes: list[int], places: list[Value], carried: list[Value]) -> list[Value]:
            if not axes:
                elements = [
                    _load(f, type, place) for (type, _), place in zip(self.inputs, places[number:])
                ]
                return self.body.emit(f, [*carried, *elements])
            return f.loop(
                f.integer(0),
                f.integer(self.counts[axes[0]]),
                1,
                lambda i, *now: fold(axes[1:], moved(places, axes[0], i), list(now)),
                carried,
            )

        def each(axes: list[int], places: list[Value]) -> None:
            if axes:
                count = f.integer(self.counts[axes[0]])
                f.loop(f.integer(0), count, 1, lambda i: each(axes[1:], moved(places, axes[0], i)))
                return
            start = [_load(f, type, p) for (type, _), p in zip(self.inputs, initial)]
            for (type, _), value, place in zip(self.outputs, fold(gone, places, start), places):
                _store(f, type, value, place)

        each(kept, words[: 2 * number])


@dataclass(frozen=True, slots=True)
class SortKernel:
    """Several arrays in the order of a comparator along their last dimension, stable; the first
    `taken` of each row. An output beyond the inputs takes the positions.

    The body takes (a0, b0, a1, b1, ...) and says whether a comes before b. Words: pointers to the
    outputs, the inputs, and scratch for two rows of 64-bit positions.
    """

    counts: tuple[int, ...]
    taken: int
    outputs: tuple[ArrayOperand, ...]
    inputs: tuple[ArrayOperand, ...]
    body: ScalarBody

    def emit(self, f: FunctionText) -> None:
        operands = (*self.outputs, *self.inputs)
        words = [f.word(index, "ptr") for index in range(len(operands) + 1)]
        scratch = words[-1]

        def each(axis: int, places: list[Value]) -> None:
            if axis == len(self.counts) - 1:
                self._row(f, places, scratch)
                return
            f.loop(
                f.integer(0),
                f.integer(self.counts[axis]),
                1,
                lambda i: each(
                    axis + 1, [_moved(f, p, i, o, axis) for p, o in zip(places, operands)]
                ),
            )

        each(0, words[:-1])

    def _row(self, f: FunctionText, places: list[Value], scratch: Value) -> None:
        count = self.counts[-1]
        length, zero = f.integer(count), f.integer(0)
        sources = places[len(self.outputs) :]

        def element(number: int, position: Value) -> Value:
            operand = self.inputs[number]
            return _load(f, operand[0], _moved(f, sources[number], position, operand, -1))

        f.loop(zero, length, 1, lambda i: f.store(i, f.element_at(scratch, i, 8)))

        def level(number: Value, source: Value, target: Value) -> list[Value]:
            width = 1 << number
            pair = width << 1

            def merge(run: Value) -> None:
                start = run * pair
                middle = f.intrinsic("smin", start + width, length)
                end = f.intrinsic("smin", start + pair, length)

                def take(place: Value, left: Value, right: Value) -> list[Value]:
                    left_there = f.compare("icmp slt", left, middle)
                    right_there = f.compare("icmp slt", right, end)
                    first, second = (
                        f.load(f.element_at(source, f.select(there, at, start), 8), "i64")
                        for there, at in ((left_there, left), (right_there, right))
                    )
                    arguments = []
                    for number in range(len(self.inputs)):
                        if len(self.body.parameters) > 2 * number:
                            arguments += [element(number, second), element(number, first)]
                    (before,) = self.body.emit(f, arguments)
                    absent = left_there ^ 1
                    takes = right_there & (absent | before)
                    f.store(f.select(takes, second, first), f.element_at(target, place, 8))
                    step = f.convert("zext", takes, "i64")
                    other = 1 - step
                    return [left + other, right + step]

                f.loop(start, end, 1, take, [start, middle])

            above = length + pair - 1
            f.loop(zero, f.binary("udiv", above, pair), 1, merge)
            return [target, source]

        levels = f.integer(max(0, count - 1).bit_length())
        both = [scratch, scratch + 8 * count]
        order, _ = f.loop(zero, levels, 1, level, both)

        def put(i: Value) -> None:
            position = f.load(f.element_at(order, i, 8), "i64")
            for number, operand in enumerate(self.outputs):
                place = _moved(f, places[number], i, operand, -1)
                element_type, size = storage(operand[0])
                if number < len(self.inputs):
                    source = _moved(f, sources[number], position, self.inputs[number], -1)
                    f.store(f.load(source, element_type), place)
                else:
                    f.store(f.convert("trunc", position, f"i{8 * size}"), place)

        f.loop(zero, f.integer(self.taken), 1, put)


def greater(type: str, largest: bool) -> ScalarBody:
    """Whether a comes before b among the largest (smallest) of a type, floats in total order."""
    direction = "GT" if largest else "LT"
    if kind(type) == "real":
        direction += TOTAL
    return ScalarBody(
        (type, type), (ElementStep("compare", "pred", type, direction, (0, 1)),), (2,)
    )


@dataclass(frozen=True, slots=True)
class ScatterKernel:
    """Updates combined into arrays at index vectors, in order; what lands outside is left out.

    `batch`: sizes of the dimensions of index vectors; `window`: of the dimensions of the arrays.
    `index`: type and strides (of `batch`) of an index; `places`: the dimension of the arrays that
    each index is of. `arrays`, `updates`: type, strides along `batch` and then along
    `window`. Words: pointers to the arrays, the updates, and each index.
    """

    whole: tuple[int, ...]
    batch: tuple[int, ...]
    window: tuple[int, ...]
    index: ArrayOperand
    places: tuple[int, ...]
    arrays: tuple[ArrayOperand, ...]
    updates: tuple[ArrayOperand, ...]
    body: ScalarBody

    def emit(self, f: FunctionText) -> None:
        count = len(self.arrays)
        words = [f.word(number, "ptr") for number in range(2 * count + len(self.places))]
        self._each(f, 0, words[:count], words[count : 2 * count], words[2 * count :])

    def _each(
        self,
        f: FunctionText,
        axis: int,
        arrays: list[Value],
        updates: list[Value],
        indices: list[Value],
    ) -> None:
        if axis < len(self.batch):
            f.loop(
                f.integer(0),
                f.integer(self.batch[axis]),
                1,
                lambda i: self._each(
                    f,
                    axis + 1,
                    [_moved(f, p, i, o, axis) for p, o in zip(arrays, self.arrays)],
                    [_moved(f, p, i, o, axis) for p, o in zip(updates, self.updates)],
                    [_moved(f, p, i, self.index, axis) for p in indices],
                ),
            )
            return
        starts: dict[int, Value] = {}
        type = self.index[0]
        for place, axis_ in zip(indices, self.places):
            stored = f.load(place, storage(type)[0])
            extension = "sext" if kind(type) == "signed" else "zext"
            starts[axis_] = f.convert(extension, stored, "i64")
        # Unsigned, as negative indices are outside too.
        inside = [
            f.compare("icmp ult", start, f.integer(self.whole[axis_]))
            for axis_, start in starts.items()
            if self.window[axis_] == 1
        ]
        for axis_, start in starts.items():
            at = len(self.batch) + axis_
            arrays = [_moved(f, p, start, o, at) for p, o in zip(arrays, self.arrays)]
        checked = {a: s for a, s in starts.items() if self.window[a] > 1}
        body = partial(self._window, f, 0, arrays, updates, checked)
        if not inside:
            body()
            return
        condition = inside[0]
        for other in inside[1:]:
            condition = condition & other
        f.when(condition, body)

    def _window(
        self,
        f: FunctionText,
        axis: int,
        arrays: list[Value],
        updates: list[Value],
        starts: dict[int, Value],
    ) -> None:
        if axis == len(self.window):
            self._combine(f, arrays, updates, 0)
            return

        def moved(i: Value) -> tuple[list[Value], list[Value]]:
            at = len(self.batch) + axis
            return (
                [_moved(f, p, i, o, at) for p, o in zip(arrays, self.arrays)],
                [_moved(f, p, i, o, at) for p, o in zip(updates, self.updates)],
            )

        count = self.window[axis]
        if count == 1:
            self._window(f, axis + 1, arrays, updates, starts)
            return
        adjacent = all(strides[-1] == 1 for _, strides in (*self.arrays, *self.updates))
        if axis == len(self.window) - 1 and axis not in starts and adjacent and count >= _WIDTH:
            whole = count - count % _WIDTH
            f.loop(
                f.integer(0),
                f.integer(whole),
                _WIDTH,
                lambda i: self._combine(f, *moved(i), _WIDTH),
            )
            f.loop(f.integer(whole), f.integer(count), 1, lambda i: self._combine(f, *moved(i), 0))
            return

        def one(i: Value) -> None:
            inner: Callable[[], None] = partial(self._window, f, axis + 1, *moved(i), starts)
            if axis not in starts:
                inner()
                return
            place = starts[axis] + i
            f.when(f.compare("icmp ult", place, f.integer(self.whole[axis])), inner)

        f.loop(f.integer(0), f.integer(count), 1, one)

    def _combine(
        self, f: FunctionText, arrays: list[Value], updates: list[Value], width: int
    ) -> None:
        values = [
            _load(f, type, place, width)
            for (type, _), place in zip((*self.arrays, *self.updates), (*arrays, *updates))
        ]
        results = self.body.emit(f, values)
        for (type, _), value, place in zip(self.arrays, results, arrays):
            _store(f, type, value, place)


_WIDTH = 8
"""Elements of a scatter's row that are combined at a time."""
