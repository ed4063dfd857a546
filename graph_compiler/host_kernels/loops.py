"""Kernels that walk strided operands: maps, and reductions, of fused element-wise expressions.

A `LoopNest` says all that its code depends on. Its last dimension is taken a vector at a time,
masked where the vector reaches beyond it. Operands that do not change along it are computed once a
row. Sums of floats are in fp32: several partial sums, then a tree of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from graph_compiler.host_kernels.division import DividedDimension
from graph_compiler.host_kernels.elements import COSTS, FORMS, ElementStep, emit
from graph_compiler.host_kernels.registers import (
    decode,
    encode,
    kind,
    register,
    rounded,
    storage,
    widths,
)
from simulator.native.codegen.text import FunctionText, Value, first_lanes

CHUNK = 128
"""Iterations whose elements are folded by themselves first."""

Strides = tuple[int, ...]
Pointers = list[Value]


@dataclass(frozen=True, slots=True)
class LoopNest:
    """output = the last step's value at every index of `counts`, outermost first.

    `leaves`: type and strides (in elements) of each operand; `steps` number their arguments with
    the leaves first. `fold`: opcode by which the dimensions marked in `reduced` are folded, behind
    an initial value. Words: pointers to the output, the leaves, and the initial value; behind them
    the length of dimension `divided`, where there is one, which replaces that of `counts`.
    """

    counts: tuple[int, ...]
    output: tuple[str, Strides]
    leaves: tuple[tuple[str, Strides], ...]
    steps: tuple[ElementStep, ...]
    fold: str | None = None
    reduced: tuple[bool, ...] = ()
    divided: int | None = None

    def emit(self, f: FunctionText) -> None:
        _LoopEmitter(self, f).run()

    @property
    def width(self) -> int:
        """Elements of a vector."""
        types = [self.output[0], *(type for type, _ in self.leaves)]
        width, count = widths([*types, *(step.type for step in self.steps)]), self.row
        while width > 1 and width // 2 >= count:
            width //= 2
        return width

    @property
    def row(self) -> int:
        """Elements of the last dimension."""
        return self.counts[-1] if self.counts else 1

    @property
    def cost(self) -> int:
        """About how many operations an element takes."""
        return sum(COSTS.get(step.op, 1) for step in self.steps)

    @property
    def unroll(self) -> int:
        """Vectors that a reduction takes at a time."""
        return 4 if self.cost < 12 else 2

    def division(self) -> tuple[int, DividedDimension] | None:
        """The dimension to divide it along, and how: of those that are kept the outermost with
        enough blocks, else the one with most; None where no dimension has two."""
        operands = [self.output, *self.leaves]
        word = len(operands) + (self.fold is not None)
        span = self.width * (1 if self.fold is None else self.unroll)
        chosen: tuple[int, int, DividedDimension] | None = None
        for axis, count in enumerate(self.counts):
            if self.reduced and self.reduced[axis]:
                continue
            steps = tuple(
                (number, strides[axis] * storage(type)[1])
                for number, (type, strides) in enumerate(operands)
            )
            found = DividedDimension(
                word, count, steps, span if axis == len(self.counts) - 1 else 1
            )
            blocks = min(found.blocks, _ENOUGH)
            if blocks > 1 and (chosen is None or blocks > chosen[0]):
                chosen = blocks, axis, found
        return None if chosen is None else chosen[1:]


_ENOUGH = 64
"""Blocks with which parts are about equal: more are no better."""

IDENTITIES: dict[str, dict[str, Callable[[int], float]]] = {
    "add": dict.fromkeys(("real", "signed", "unsigned", "boolean"), lambda bits: 0),
    "multiply": dict.fromkeys(("real", "signed", "unsigned", "boolean"), lambda bits: 1),
    "maximum": {
        "real": lambda bits: float("-inf"),
        "signed": lambda bits: -(1 << (bits - 1)),
        "unsigned": lambda bits: 0,
        "boolean": lambda bits: 0,
    },
    "minimum": {
        "real": lambda bits: float("inf"),
        "signed": lambda bits: (1 << (bits - 1)) - 1,
        "unsigned": lambda bits: (1 << bits) - 1,
        "boolean": lambda bits: 1,
    },
    "and": {
        "signed": lambda bits: -1,
        "unsigned": lambda bits: (1 << bits) - 1,
        "boolean": lambda bits: 1,
    },
    "or": dict.fromkeys(("signed", "unsigned", "boolean"), lambda bits: 0),
    "xor": dict.fromkeys(("signed", "unsigned"), lambda bits: 0),
}
"""What leaves a value as it is, by opcode and kind."""


def folds(op: str | None, type: str) -> bool:
    """Whether elements of a type can be folded with an opcode."""
    return op in IDENTITIES and register(type) is not None and kind(type) in IDENTITIES[op]


class _LoopEmitter:
    def __init__(self, loop: LoopNest, f: FunctionText) -> None:
        self.loop = loop
        self.f = f
        self.count = loop.row
        self.width = loop.width
        self.operands = [loop.output, *loop.leaves]
        self.sizes = [storage(type)[1] for type, _ in self.operands]
        self.last = [strides[-1] if strides else 0 for _, strides in self.operands]
        self.row_level = self._row_levels()

    def _row_levels(self) -> list[bool]:
        """Of every value, whether it is the same all along the last dimension."""
        levels = [last == 0 for last in self.last[1:]]
        for step in self.loop.steps:
            levels.append(all(levels[argument] for argument in step.arguments))
        return levels

    def run(self) -> None:
        f = self.f
        pointers = [f.word(number, "ptr") for number in range(len(self.operands))]
        if self.loop.fold is None:
            self._nest(range(max(0, len(self.loop.counts) - 1)), pointers, self._map_row)
            return
        self.initial = f.word(len(self.operands), "ptr")
        kept = [axis for axis, gone in enumerate(self.loop.reduced) if not gone]
        if self.loop.reduced and self.loop.reduced[-1]:
            self._nest(kept, pointers, self._fold_row)
        else:
            self._nest(kept[:-1], pointers, self._fold_columns)

    def _length(self, axis: int) -> Value:
        """How many indices of a dimension there are."""
        f = self.f
        if axis == self.loop.divided:
            return f.word(len(self.operands) + (self.loop.fold is not None))
        return f.integer(self.loop.counts[axis])

    def _blocks(
        self, span: int, body: Callable[[Value], None], rest: Callable[[Value], None]
    ) -> None:
        """`body` for every whole block of the last dimension, `rest` for what is left."""
        f, left = self.f, self.count % span
        if self.loop.divided != len(self.loop.counts) - 1:
            if self.count - left > span:
                f.loop(f.integer(0), f.integer(self.count - left), span, body)
            elif self.count >= span:
                body(f.integer(0))
            if left:
                rest(f.integer(self.count - left))
            return
        length = self._length(len(self.loop.counts) - 1)
        stop = length - f.binary("urem", length, f.integer(span))
        f.loop(f.integer(0), stop, span, body)
        if left:  # of the last part
            f.when(f.compare("icmp slt", stop, length), lambda: rest(stop))

    def _moved(self, pointers: Pointers, axis: int, index: Value) -> Pointers:
        """The pointers after `index` steps along a dimension."""
        moved = []
        for pointer, size, (_, strides) in zip(pointers, self.sizes, self.operands):
            step = strides[axis] * size
            moved.append(pointer + self.f.scaled(index, step) if step else pointer)
        return moved

    def _nest(
        self, axes: Sequence[int], pointers: Pointers, body: Callable[[Pointers], None]
    ) -> None:
        if not axes:
            body(pointers)
            return
        f = self.f
        f.loop(
            f.integer(0),
            self._length(axes[0]),
            1,
            lambda i: self._nest(axes[1:], self._moved(pointers, axes[0], i), body),
        )

    # Values

    def _row_values(self, pointers: Pointers) -> list[Value | None]:
        """The values that do not change along the row, as scalars; None for the others."""
        f = self.f
        values: list[Value | None] = []
        for number, (type, _) in enumerate(self.loop.leaves):
            if self.row_level[number]:
                stored = f.load(pointers[1 + number], storage(type)[0])
                values.append(decode(f, type, stored))
            else:
                values.append(None)
        for step, level in zip(self.loop.steps, self.row_level[len(values) :]):
            values.append(self._step(step, values, 0) if level else None)
        return values

    def _step(self, step: ElementStep, values: Sequence[Value | None], width: int) -> Value:
        if step.op == "literal":
            element = register(step.type)
            assert element is not None
            return self.f.constant(element, step.attribute, width)
        arguments = [values[argument] for argument in step.arguments]
        return emit(self.f, step, arguments)  # type: ignore[arg-type]

    def _widened(self, rows: list[Value | None], width: int) -> list[Value | None]:
        """Scalars of a row in all lanes, where something along the row takes them."""
        taken = {len(rows) - 1}
        for step, level in zip(self.loop.steps, self.row_level[len(self.loop.leaves) :]):
            if not level:
                taken.update(step.arguments)
        result: list[Value | None] = []
        for number, value in enumerate(rows):
            if value is None or number not in taken or not width:
                result.append(value)
            elif value.text.startswith("%"):
                result.append(self.f.splat(value, width))
            else:
                text = f"splat ({value.element} {value.text})"
                result.append(Value(text, value.element, width))
        return result

    def _vector(
        self,
        pointers: Pointers,
        rows: list[Value | None],
        index: Value,
        width: int,
        part: int | None,
    ) -> Value:
        """The last value for `width` elements from `index` on, of which `part` exist."""
        f = self.f
        values = list(rows)
        for number in range(len(self.loop.leaves)):
            if values[number] is None:
                values[number] = self._load(1 + number, pointers, index, width, part)
        first = len(self.loop.leaves)
        for number, step in enumerate(self.loop.steps, first):
            if values[number] is None:
                values[number] = self._step(step, values, width)
        result = values[-1]
        assert result is not None
        if not result.width and width:
            result = f.splat(result, width)
        return result

    def _load(
        self, operand: int, pointers: Pointers, index: Value, width: int, part: int | None
    ) -> Value:
        f, (type, _) = self.f, self.operands[operand]
        element, size = storage(type)
        stride = self.last[operand] * size
        place = pointers[operand] + f.scaled(index, stride)
        if self.last[operand] != 1:
            stored = f.load_apart(place, f.integer(stride), element, width, part)
        elif part is None:
            stored = f.load(place, element, width)
        else:
            stored = f.load_where(first_lanes(part, width), place, element)
        return decode(f, type, stored)

    def _store(
        self, value: Value, pointers: Pointers, index: Value, width: int, part: int | None
    ) -> None:
        f, (type, _) = self.f, self.operands[0]
        size = storage(type)[1]
        stored = encode(f, type, value)
        stride = self.last[0] * size
        place = pointers[0] + f.scaled(index, stride)
        if self.last[0] != 1:
            f.store_apart(stored, place, f.integer(stride), part)
        elif part is None:
            f.store(stored, place)
        else:
            f.store_first(stored, place, part)

    # Maps

    def _map_row(self, pointers: Pointers) -> None:
        f = self.f
        rows = self._row_values(pointers)
        if self.count == 1:
            value = rows[-1]
            if value is None:
                vector = self._vector(pointers, self._widened(rows, 1), f.integer(0), 1, None)
                f.store(encode(f, self.loop.output[0], vector), pointers[0])
            else:
                f.store(encode(f, self.loop.output[0], value), pointers[0])
            return
        wide = self._widened(rows, self.width)

        def elements(part: int | None, index: Value) -> None:
            value = self._vector(pointers, wide, index, self.width, part)
            self._store(value, pointers, index, self.width, part)

        left = self.count % self.width
        self._blocks(self.width, partial(elements, None), partial(elements, left))

    # Reductions

    def _combine(self, left: Value, right: Value) -> Value:
        assert self.loop.fold is not None
        type = self.loop.output[0]
        step = ElementStep(self.loop.fold, type, type, None, (0, 1))
        return FORMS[self.loop.fold][kind(type)](self.f, [left, right], step)

    def _identity(self, width: int) -> Value:
        type, fold = self.loop.output[0], self.loop.fold
        element = register(type)
        assert element is not None and fold is not None
        bits = int(element[1:]) if element.startswith("i") else 0
        number = IDENTITIES[fold][kind(type)](bits)
        if bits:  # as the signed number of the same bits
            number = (int(number) + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
        return self.f.constant(element, abs(number) if bits == 1 else number, width)

    def _finish(self, value: Value, width: int) -> Value:
        """The folded value behind the initial one, rounded."""
        f, type = self.f, self.loop.output[0]
        initial: Value = decode(f, type, f.load(self.initial, storage(type)[0]))
        if width:
            initial = f.splat(initial, width)
        return encode(f, type, rounded(f, type, self._combine(initial, value)))

    def _reduce(
        self,
        axes: Sequence[int],
        pointers: Pointers,
        carried: list[Value],
        body: Callable[[Pointers, list[Value]], list[Value]],
    ) -> list[Value]:
        """The carried values after `body` at every index of the axes."""
        if not axes:
            return body(pointers, carried)
        return self._in_chunks(
            self.loop.counts[axes[0]],
            1,
            lambda i, *now: self._reduce(
                axes[1:], self._moved(pointers, axes[0], i), list(now), body
            ),
            carried,
        )

    def _in_chunks(
        self, stop: int, step: int, body: Callable[..., list[Value]], carried: list[Value]
    ) -> list[Value]:
        """A loop that carries folded values. A long one folds CHUNK iterations at a time, so that
        the rounding errors of a sum grow with the number of chunks, not of elements."""
        f, span = self.f, CHUNK * step
        if stop < 2 * span or kind(self.loop.output[0]) != "real":
            return f.loop(f.integer(0), f.integer(stop), step, body, carried)

        def chunk(start: Value, *now: Value) -> list[Value]:
            end = f.intrinsic("smin", start + span, f.integer(stop))
            none = [self._identity(value.width) for value in now]
            parts = f.loop(start, end, step, body, none)
            return [self._combine(value, part) for value, part in zip(now, parts)]

        return f.loop(f.integer(0), f.integer(stop), span, chunk, carried)

    def _fold_row(self, pointers: Pointers) -> None:
        f = self.f
        gone = [axis for axis, flag in enumerate(self.loop.reduced) if flag]
        vectors = max(1, min(self.loop.unroll, self.count // self.width))
        width = self.width

        def row(places: Pointers, partial: list[Value]) -> list[Value]:
            rows = self._widened(self._row_values(places), width)

            def several(index: Value, *now: Value) -> list[Value]:
                result = []
                for number, value in enumerate(now):
                    start = index + number * width
                    element = self._vector(places, rows, start, width, None)
                    result.append(self._combine(value, element))
                return result

            whole = self.count - self.count % (width * vectors)
            if whole:
                partial = self._in_chunks(whole, width * vectors, several, partial)
            for number in range((self.count - whole) // width):
                start = f.integer(whole + number * width)
                element = self._vector(places, rows, start, width, None)
                partial[number] = self._combine(partial[number], element)
            left = self.count % width
            if left:
                start = f.integer(self.count - left)
                element = self._vector(places, rows, start, width, left)
                kept = f.select(first_lanes(left, width), element, self._identity(width))
                partial[0] = self._combine(partial[0], kept)
            return partial

        start = [self._identity(width)] * vectors
        partial = self._reduce(gone[:-1], pointers, start, row)
        while len(partial) > 1:
            pairs = zip(partial[::2], partial[1::2])
            odd = partial[len(partial) - len(partial) % 2 :]
            partial = [self._combine(left, right) for left, right in pairs] + odd
        value = partial[0]
        while value.width > 1:
            half = value.width // 2
            lower = f.shuffle(value, value, range(half))
            upper = f.shuffle(value, value, range(half, 2 * half))
            value = self._combine(lower, upper)
        f.store(self._finish(f.extract(value, 0), 0), pointers[0])

    def _fold_columns(self, pointers: Pointers) -> None:
        f, width = self.f, self.width
        gone = [axis for axis, flag in enumerate(self.loop.reduced) if flag]

        def block(index: Value, vectors: int, part: int | None) -> None:
            def one(places: Pointers, partial: list[Value]) -> list[Value]:
                rows = self._widened(self._row_values(places), width)
                result = []
                for number, value in enumerate(partial):
                    start = index + number * width
                    last = part if number == vectors - 1 else None
                    element = self._vector(places, rows, start, width, last)
                    result.append(self._combine(value, element))
                return result

            partial = self._reduce(gone, pointers, [self._identity(width)] * vectors, one)
            for number, value in enumerate(partial):
                start = index + number * width
                last = part if number == vectors - 1 else None
                stored = self._finish(value, width)
                stride = self.last[0] * self.sizes[0]
                place = pointers[0] + f.scaled(start, stride)
                if self.last[0] != 1:
                    f.store_apart(stored, place, f.integer(stride), last)
                elif last is None:
                    f.store(stored, place)
                else:
                    f.store_first(stored, place, last)

        vectors = self.loop.unroll
        left = self.count % (width * vectors)
        self._blocks(
            width * vectors,
            lambda index: block(index, vectors, None),
            lambda index: block(index, -(-left // width), left % width or None),
        )


def literal(type: str, value: Any) -> ElementStep:
    """A constant in every lane; `value` is a NumPy scalar of the type."""
    element = register(type)
    number: Any = float(value) if element in ("float", "double") else int(value)
    if element is not None and element.startswith("i") and element != "i1":
        bits = int(element[1:])
        number = (number + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    return ElementStep("literal", type, type, number, ())
