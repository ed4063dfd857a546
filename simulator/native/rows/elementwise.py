"""Micro-kernels of element-wise instructions, and the plans of the rows that they serve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from isa import scalar
from isa.dtypes import DTYPES, DTypeKind
from simulator.memory import LINE
from simulator.native.codegen import ports
from simulator.native.codegen.expressions import TABLES, lane_type, print_expression
from simulator.native.codegen.nest import NestWords
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import Dim, by_partition, column, dims, space
from simulator.native.plans.plan import (
    HINT_WORDS,
    Pack,
    Plan,
    float32_word,
    nest_divisions,
    nest_words,
    ranked,
    same_orders,
)
from simulator.native.plans.table import compiled
from simulator.native.rows.partials import LANES, Reducer
from simulator.numerics.conversion import store_number
from simulator.views import Array, bits, dtype_name, view_dtype

MapStep = tuple[str, str, tuple[int, ...]]
"""Table and name of an operator, and which values it takes: inputs first, then earlier results."""

PAIRS = 2 * LANES
"""Elements of bfloat16 in a vector of words."""

_IN_MEMORY = ("tile", "column")
"""Kinds of access to inputs that are read from memory."""

_SHORT = (scalar.Negate, scalar.Absolute, scalar.Not)
"""The functions of one operand that CPUs have an instruction for."""


@dataclass(frozen=True, slots=True)
class MapKernel:
    """output = the last step's result, or the input where there is no step.

    `domain`: the type in which it computes ("float32", an integer type, an unsigned type for bit
    patterns). `inputs`: the dtype of each, and whether it is a "tile", a "column" (the same element
    all along a row) or a "number". `contiguous`: the output and all tiles have rows of adjacent
    elements; else every operand has a stride. `predicate`: dtype of one more operand, whose
    elements must be non-zero (zero, with `reverse`) where the output is written; with `test` they
    are what this operator gives of an affine value and 0. With `otherwise` a pattern in a word
    behind the numbers is written to the other elements. `sums`: the operator by which the fp32
    results of each row are reduced, before they are rounded to the output's dtype, into one more
    operand of fp32; they are all that it computes if the output is `unread`. With `past_caches` the
    output takes no room in caches where it begins at a line of them. `rank`: how many dimensions
    the operands have.

    An input that is "affine" is no memory: a number in the place of a pointer grows by its strides.
    It is the last operand.

    The last words of a contiguous one without an affine input are hints: rows of memory that will
    be read a while later, as an address, and how far from row to row. While it computes a row it
    fetches those, in passing.
    """

    domain: str
    inputs: tuple[tuple[str, str], ...]
    steps: tuple[MapStep, ...]
    output: str
    contiguous: bool
    rank: int
    predicate: str | None = None
    reverse: bool = False
    sums: str | None = None
    test: str | None = None
    otherwise: bool = False
    unread: bool = False
    past_caches: bool = False

    def text(self, name: str) -> str:
        """The LLVM text. The function's argument words are, in this order:

            pointers   output, inputs in memory, predicate (none with `test`), sums, affine number
            counts     of each dimension, outermost first
            strides    of each of these operands, in bytes: one for each dimension
            numbers    inputs that are numbers, as bits
            otherwise  the pattern for elements that are not written
            hints      address and bytes from row to row, of each

        It loops over all dimensions but the innermost. In each row it takes `PAIRS` elements at a
        time if all are of bfloat16, then `LANES`, then one. Each time it reads the inputs into the
        `domain`, goes through `steps`, rounds, and stores where the predicate holds.
        """
        f = FunctionText(name)
        arrays = [dtype for dtype, access in self.inputs if access in _IN_MEMORY]
        if self.predicate is not None and self.test is None:
            arrays.append(self.predicate)
        if self.sums is not None:
            arrays.append("float32")
        nest = NestWords(f, 1 + len(arrays) + self._is_affine, self.rank)
        sizes = [DTYPES[dtype].size for dtype in (self.output, *arrays)]
        numbers: list[Value] = []
        for dtype, access in self.inputs:
            if access == "number":
                numbers.append(f.word(nest.used + len(numbers), f"i{DTYPES[dtype].bits}"))
        if self.otherwise:
            other = f.word(nest.used + len(numbers), f"i{DTYPES[self.output].bits}")
        for index in range(self.hints):
            word = nest.used + len(numbers) + self.otherwise + index * len(HINT_WORDS)
            nest.pointers.append(f.word(word, "ptr"))
            nest.strides.append([f.word(word + 1), *nest.strides[0][1:]])

        def fetch_hinted(pointers: Sequence[Value], index: Value) -> None:
            for pointer in pointers[len(pointers) - self.hints :]:
                f.prefetch(f.element_at(pointer, index, sizes[:2][-1]), near=False)

        def past_caches(value: Value, place: Value) -> None:
            f.store_past_caches(value, place, value.width * sizes[0])

        def elements(
            pointers: Sequence[Value], index: Value, width: int, store: ports.Store | None = None
        ) -> Value:
            """Compute `width` elements of a row from `index` on; the result as it is before it is
            rounded."""
            together = self.contiguous or width == 1
            if width > 1:
                fetch_hinted(pointers, index)
            places = [
                f.element_at(pointer, index, size)
                if self.contiguous
                else pointer + index * strides[-1]
                for pointer, size, strides in zip(pointers, sizes, nest.strides)
            ]
            steps = [strides[-1] for strides in nest.strides]

            def fetch(operand: int, lane: str) -> Value:
                if together:
                    return f.load(places[operand], lane, width)
                return f.load_apart(places[operand], steps[operand], lane, width)

            def affine() -> Value:
                moved = index * steps[-1]
                first = f.convert("ptrtoint", pointers[-1], "i64") + moved
                first, step = (f.convert("trunc", number, "i32") for number in (first, steps[-1]))
                lanes = f.lanes("i32", width) * f.splat(step, width)
                return f.splat(first, width) + lanes

            remaining, free = iter(range(1, len(sizes))), iter(numbers)
            values = []
            for dtype, access in self.inputs:
                if access == "number":
                    stored = f.splat(next(free), width)
                elif access == "affine":
                    stored = affine()
                else:
                    operand, lane = next(remaining), f"i{DTYPES[dtype].bits}"
                    if access == "column" and self.contiguous:
                        stored = f.splat(f.load(pointers[operand], lane), width)
                    else:
                        stored = fetch(operand, lane)
                values.append(self._read(f, dtype, stored))
            result = self._steps(f, values)
            if self.unread:
                return result
            if self.domain == "float32" and self.predicate is None and together:
                ports.store_rounded(f, self.output, result, places[0], self._encode, store)
                return result
            stored = self._write(f, result)
            if self.predicate is not None:
                if self.test is not None:
                    mask = self._tested(f, affine())
                else:
                    mask = fetch(next(remaining), f"i{DTYPES[self.predicate].bits}")
                old = f.splat(other, width) if self.otherwise else fetch(0, stored.element)
                stored = self._keep(f, mask, old, stored)
            if together:
                f.store(stored, places[0])
            else:
                f.store_apart(stored, places[0], steps[0])
            return result

        def pairs(pointers: Sequence[Value], index: Value, store: ports.Store | None) -> None:
            """Compute PAIRS elements of bfloat16: those of even index, and the others."""
            fetch_hinted(pointers, index)
            remaining, free = iter(range(1, len(sizes))), iter(numbers)
            even: list[Value] = []
            odd: list[Value] = []
            for dtype, access in self.inputs:
                if access == "tile":
                    place = f.element_at(pointers[next(remaining)], index, 2)
                    halves = ports.decode_pairs(f, f.load(place, "i32", LANES))
                else:
                    stored = next(free) if access == "number" else None
                    if stored is None:
                        stored = f.load(pointers[next(remaining)], f"i{DTYPES[dtype].bits}")
                    halves = (self._read(f, dtype, f.splat(stored, LANES)),) * 2
                even.append(halves[0])
                odd.append(halves[1])
            results = self._steps(f, even), self._steps(f, odd)
            target = f.element_at(pointers[0], index, 2)
            ports.store_pairs(f, *results, target, self._encode, store)

        def row(pointers: Sequence[Value], store: ports.Store | None = None) -> None:
            start, count = f.integer(0), nest.counts[-1]
            if self._in_pairs:
                whole = count & -PAIRS
                f.loop(start, whole, PAIRS, lambda i: pairs(pointers, i, store))
                start = whole
            if self.contiguous or not self._cheap:
                whole = count & -LANES
                f.loop(start, whole, LANES, lambda i: elements(pointers, i, LANES, store))
                start = whole
            f.loop(start, count, 1, lambda i: elements(pointers, i, 1))

        def row_past_caches(pointers: Sequence[Value]) -> None:
            address = f.convert("ptrtoint", pointers[0], "i64")
            behind = address & (LINE - 1)
            at_line = f.compare("icmp eq", behind, f.integer(0))
            f.when(at_line, lambda: row(pointers, past_caches))
            f.when(at_line ^ 1, lambda: row(pointers))

        def summed_row(pointers: Sequence[Value]) -> None:
            assert self.sums is not None and self.contiguous
            reducer = Reducer(f, self.sums, self.domain)
            sums = reducer.row(nest.counts[-1], partial(elements, pointers))
            f.store(reducer.tree(sums), pointers[len(arrays)])

        whole_rows = row_past_caches if self.past_caches else row
        nest.rows(whole_rows if self.sums is None else summed_row)
        return f.text()

    @property
    def _is_affine(self) -> bool:
        """Whether there is an affine operand."""
        return self.test is not None or any(access == "affine" for _, access in self.inputs)

    @property
    def hints(self) -> int:
        """How many hints it takes: what computes for long has time for more."""
        if self._is_affine or not self.contiguous:
            return 0
        return 2 if self._long else 1

    @property
    def may_pass_caches(self) -> bool:
        """Whether there is a form with `past_caches`."""
        plain = self.predicate is None and self.sums is None
        return plain and self.domain == "float32" and self.contiguous

    @property
    def _long(self) -> bool:
        """Whether an element takes more than a few operations."""
        expressions = (TABLES[table][name].expression for table, name, _ in self.steps)
        return any(
            isinstance(node, scalar.Unary) and not isinstance(node, _SHORT)
            for expression in expressions
            for node in scalar.walk(expression)
        )

    @property
    def _in_pairs(self) -> bool:
        """Whether rows are all of bfloat16, so that two elements in a word need not be spread."""
        tiles = {self.output, *(dtype for dtype, access in self.inputs if access == "tile")}
        plain = self.domain == "float32" and self.predicate is None and bool(self.steps)
        plain = plain and not self._is_affine
        return plain and self.contiguous and tiles == {"bfloat16"} and ports.rounds_pairs()

    @property
    def _cheap(self) -> bool:
        """Whether computing an element takes less than collecting several in a vector."""
        dtypes = {self.output, *(dtype for dtype, _ in self.inputs)}
        return dtypes == {self.domain} and all(table == "alu" for table, _, _ in self.steps)

    def _read(self, f: FunctionText, dtype: str, stored: Value) -> Value:
        if self.domain == "float32":
            return ports.decode(f, dtype, stored)
        signed = DTYPES[dtype].kind is DTypeKind.signed and self.domain == "int64"
        return f.convert("sext" if signed else "zext", stored, lane_type(self.domain))

    def _steps(self, f: FunctionText, values: list[Value]) -> Value:
        for table, name, arguments in self.steps:
            inputs = dict(zip(("x", "y", "z"), (values[index] for index in arguments)))
            inputs["relu_param"] = inputs.get("y", f.like(values[0], 0))
            expression = TABLES[table][name].expression
            values.append(print_expression(f, expression, self.domain, inputs))
        return values[-1] if self.steps else values[0]

    @property
    def _encode(self) -> Callable[[FunctionText, str, Value], Value]:
        return ports.encode_result if self.steps else ports.encode

    def _write(self, f: FunctionText, value: Value) -> Value:
        if self.domain == "float32":
            return self._encode(f, self.output, value)
        return f.convert("trunc", value, f"i{DTYPES[self.output].bits}")

    def _tested(self, f: FunctionText, value: Value) -> Value:
        assert self.test is not None
        inputs = {"x": value, "y": f.like(value, 0)}
        return print_expression(f, TABLES["alu"][self.test].expression, "int32", inputs)

    def _keep(self, f: FunctionText, mask: Value, old: Value, result: Value) -> Value:
        comparison = "icmp eq" if self.reverse else "icmp ne"
        return f.select(f.compare(comparison, mask, f.like(mask, 0)), result, old)


class MapInput:
    """One input of a `MapKernel` while it is planned: where it stands, and what it is."""

    __slots__ = ("access", "dims", "dtype", "first", "pack", "position", "size", "view")

    def __init__(self, position: int, dtype: str, access: str, pack: Pack | None = None) -> None:
        self.position = position
        self.dtype = dtype
        self.access = access
        self.pack = pack
        self.size = DTYPES[dtype].size
        self.dims: list[Dim] = []
        self.view: Array | None = None
        self.first = 0


def add_number_words(words: list[int], operands: Iterable[MapInput]) -> list[tuple[int, int, Pack]]:
    """Add a word for each operand that is a number: (word, position, how it is packed)."""
    numbers = []
    for operand in operands:
        if operand.pack is not None:
            numbers.append((len(words), operand.position, operand.pack))
            words.append(0)
    return numbers


def tile(
    position: int, view: Array, dtype: str | None = None, order: Sequence[Dim] | None = None
) -> MapInput:
    """An operand with an element for each of the output; `order`: its dimensions, if they are to
    be walked in another order."""
    operand = MapInput(position, dtype or dtype_name(view), "tile")
    operand.view = view
    operand.dims = list(order or dims(view.shape, view.strides))
    return operand


def column_of(position: int, view: Array, data: Array, dtype: str | None = None) -> MapInput:
    """A [P, 1] operand, broadcast over the free dimensions of `data`."""
    operand = MapInput(position, dtype or dtype_name(view), "column")
    per_partition = data.size // max(data.shape[0], 1)
    operand.view = view
    operand.dims = column(view.shape, view.strides, per_partition)
    return operand


def number(position: int, dtype: str = "float32", pack: Pack = float32_word) -> MapInput:
    """An immediate."""
    return MapInput(position, dtype, "number", pack)


def constant(word: int, dtype: str = "float32") -> MapInput:
    """A number that the row does not carry, as its bits."""
    return number(0, dtype, lambda value: word)


def affine(first: int, steps: Sequence[Dim]) -> MapInput:
    """32-bit integers that begin with `first` and grow by the strides of these dimensions."""
    operand = MapInput(0, "int32", "affine")
    operand.size = 0
    operand.dims = list(steps)
    operand.first = first
    return operand


def map_plan(
    domain: str,
    output: Array,
    inputs: Sequence[MapInput],
    steps: Sequence[MapStep],
    predicate: MapInput | None = None,
    reverse: bool = False,
    output_dtype: str | None = None,
    sums: tuple[str, int] | None = None,
    test: str | None = None,
    otherwise: MapInput | None = None,
) -> Plan | None:
    """The plan of a `MapKernel` whose output is the instruction's first value.

    `sums`: an operator, and the position of an fp32 array [P] for the reductions of each
    partition's results; None then unless a partition's elements are one row. With `test` the
    predicate is affine.
    """
    result = tile(0, output, output_dtype)
    sources = [*inputs, predicate] if predicate is not None else inputs
    arrays = [operand for operand in sources if operand.access in _IN_MEMORY]
    counting = [operand for operand in sources if operand.access == "affine"]
    if sums is not None:
        one_each = np.empty((output.shape[0], 1), np.float32)
        arrays.append(column_of(sums[1], one_each, output))
    operands = [result, *arrays]
    dimensions = [operand.dims for operand in (*operands, *counting)]
    found = (space if sums is None else by_partition)(dimensions)
    if found is None:
        return None
    # One element is a row, too.
    contiguous = found.counts[-1:] == (1,) or all(
        strides[-1:] == ((0,) if operand.access == "column" else (operand.size,))
        for operand, strides in zip(operands, found.strides)
    )
    nest = ranked(found)
    if nest is None or (sums is not None and not contiguous):
        return None
    kernel = MapKernel(
        domain,
        tuple((operand.dtype, operand.access) for operand in inputs),
        tuple(steps),
        result.dtype,
        contiguous,
        len(nest.counts),
        None if predicate is None else predicate.dtype,
        reverse,
        None if sums is None else sums[0],
        test,
        otherwise is not None,
    )
    function = compiled(kernel)
    words = nest_words(nest)
    counted = tuple(range(len(operands), len(operands) + len(counting)))
    for word, operand in zip(counted, counting):
        words[word] = operand.first
    given = (*inputs, otherwise) if otherwise is not None else inputs
    numbers = add_number_words(words, given)
    hints = range(len(words), len(words) + kernel.hints * len(HINT_WORDS), len(HINT_WORDS))
    words += HINT_WORDS * kernel.hints
    return Plan(
        function,
        [operand.view for operand in operands if operand.view is not None],
        [operand.position for operand in operands],
        words,
        numbers,
        same_orders(nest, [operand.size for operand in operands]),
        divisions=nest_divisions(nest, len(nest.counts) - (sums is not None)),
        work=math.prod(nest.counts),
        counted=counted,
        hints=hints,
        past_caches=(
            partial(compiled, replace(kernel, past_caches=True)) if kernel.may_pass_caches else None
        ),
        unread=None if sums is None else partial(compiled, replace(kernel, unread=True)),
    )


# Rows


def converting(*views: Array) -> bool:
    """Whether all operands pass through fp32 in native code."""
    return all(ports.converts(dtype_name(view)) for view in views)


def scalar_operand(position: int, value: Any, data: Array) -> MapInput | None:
    """A number, or a column of fp32 values; None where native code has no form of it."""
    if not isinstance(value, np.ndarray):
        return number(position)
    return column_of(position, value, data) if converting(value) else None


def unsigned(view: Array) -> str:
    """The unsigned dtype of the size of a view's elements."""
    return f"uint{8 * view.dtype.itemsize}"


def pattern_of(dtype: str) -> Pack:
    """The bits of a number that is stored as this dtype."""

    def pack(value: Any) -> int:
        element = np.empty((), view_dtype(dtype))
        with np.errstate(all="ignore"):
            store_number(element, value)
        return int(bits(element))

    return pack
