"""Matrix products: C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n], in fp32.

Products are fused multiply-adds in ascending k, or, of bf16 on CPUs that have it, dot products of
pairs (`vdpbf16ps`: of each pair the second first, numbers below 2**-126 counting as zero). A strip
of columns of B is packed once for all rows of A, which are read where they lie: each row has an
offset, and k runs in runs of evenly spaced elements, so that A may be a strided view, or the
patches of a convolution. A block of results stays in registers while k runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from graph_compiler.host_kernels.registers import encode, rounded, storage
from simulator.native.codegen.fused import block_step
from simulator.native.codegen.library import library
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.rows.copy import transposed

LANES = 16
"""Lanes of a vector of results."""

WHOLE = frozenset({"s32"})
"""Outputs that are whole numbers. Blocks of products of s8 are exact in fp32: 2**14 * 2 * BLOCK is
below 2**24."""

BLOCK = 384
"""Units of the depth of a block: a strip of them stays in the second-level cache."""

WORDS = 18

A, B, C, SCRATCH, BATCHES, BATCH_TABLE, ROWS, COLUMNS, ROW_TABLE = range(9)
RUNS, RUN_TABLE, RUN_LENGTH, STEP_A, STEP_B, COLUMN_B, ROW_C, DEPTH, GROUP = range(9, WORDS)
"""Words of a product: pointers, sizes, tables of byte offsets, and byte strides. Lengths of runs,
the depth and STEP_A count units: elements, or pairs of bf16. GROUP: strips that are packed
together, so that rows of B are read in longer runs."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """One product. `pairs`: A and B are bf16, taken in pairs; else fp32. `transposed`: the
    elements of B are adjacent along k, else along n. `packed`: strips of B are copied first.
    `blocked`: the depth is taken in blocks of BLOCK units, whose sums are added up in memory.
    A block of results is `rows` by `vectors` vectors."""

    pairs: bool
    transposed: bool
    packed: bool
    blocked: bool
    rows: int
    vectors: int
    output: str

    def emit(self, f: FunctionText) -> None:
        _ProductEmitter(self, f).run()

    def scratch(self, rows: int, depth: int, group: int) -> int:
        """Bytes for packed strips of B, and for the sums of blocks, of so many rows and units."""
        line = 4 * LANES * self.vectors * group
        if not self.packed:
            return 0
        if not self.blocked:
            return line * (depth + LANES)
        return line * (BLOCK + LANES) + line * (rows + self.rows)


def group_of(rows: int, columns: int, vectors: int) -> int:
    """How many strips to pack together, for numbers of rows of A and columns of B."""
    return 1 if rows > 1024 else max(1, min(4, columns // (LANES * vectors)))


def has_pairs() -> bool:
    """Whether this CPU multiplies pairs of bf16."""
    functions = library()
    return functions is not None and functions.level.bf16_dot


def block_of(rows: int) -> tuple[int, int]:
    """Rows and vectors of the block for a number of rows of A."""
    functions = library()
    if functions is not None and not functions.level.wide_registers:
        return min(rows, 4), 1  # 16 registers of 8 lanes
    if rows >= 8:
        return 8, 3
    return rows, {1: 8, 2: 8, 3: 6, 4: 6}.get(rows, 3)


class _ProductEmitter:
    def __init__(self, gemm: Gemm, f: FunctionText) -> None:
        self.gemm = gemm
        self.f = f
        self.words = [f.word(number) for number in range(WORDS)]
        self.element, self.size = ("i16", 2) if gemm.pairs else ("float", 4)
        self.sum = "i32" if gemm.output in WHOLE else "float"
        self.zero = f.integer(0)

    def _add(self, held: Value, value: Value) -> Value:
        """Sums of blocks; whole numbers, which are exact in fp32, become such first."""
        f = self.f
        if self.sum == "float":
            return held + value
        return held + f.convert("fptosi", value, self.sum)

    def run(self) -> None:
        f, words = self.f, self.words
        pointers = [f.word(number, "ptr") for number in (A, B, C, SCRATCH, BATCH_TABLE)]
        left, right, target, self.scratch, table = pointers

        def batch(number: Value) -> None:
            places = [f.load(f.element_at(table, number, 24) + 8 * i, "i64") for i in range(3)]
            self.left, self.right, self.target = (
                pointer + place for pointer, place in zip((left, right, target), places)
            )
            span = LANES * self.gemm.vectors
            columns = words[COLUMNS]
            whole = columns - f.binary("urem", columns, f.integer(span))
            group = words[GROUP] * span

            def several(number: Value) -> None:
                first = number * group
                left = f.binary("udiv", whole - first, f.integer(span))
                strips = f.intrinsic("smin", left, words[GROUP])
                self._strips(first, strips, self.gemm.vectors, None)

            rounded_up = whole + group - 1
            f.loop(self.zero, f.binary("udiv", rounded_up, group), 1, several)

            def last(n: Value) -> None:
                mask = f.below(columns - n, LANES)
                self._strips(n, f.integer(1), 1, mask)

            f.loop(whole, columns, LANES, last)

        f.loop(self.zero, words[BATCHES], 1, batch)

    def _strips(self, first: Value, strips: Value, vectors: int, mask: Value | None) -> None:
        """All rows of strips of `vectors` vectors of columns, from column `first` on."""
        f, words = self.f, self.words
        if self.gemm.blocked:
            self._blocked_strips(first, strips, vectors, mask)
            return
        line, span = 4 * LANES * vectors, LANES * vectors
        pitch = f.scaled(words[DEPTH] + LANES, line)
        if self.gemm.packed:
            self._pack(first, strips, vectors, mask, (self.zero, words[DEPTH]), pitch)

        def strip(number: Value) -> None:
            column = f.scaled(number, span, first)
            if self.gemm.packed:
                base = self.scratch + number * pitch
                step, masked = f.integer(line), None
            else:
                base = f.element_at(self.right, column, self.size)
                step, masked = words[STEP_B], mask

            def block(row: Value) -> None:
                sums = self._sums(self._places(row), base, step, vectors, masked)
                self._each_row(row, sums, vectors, partial(self._finish, column, mask))

            f.loop(self.zero, words[ROWS], self.gemm.rows, block)

        f.loop(self.zero, strips, 1, strip)

    def _blocked_strips(
        self, first: Value, strips: Value, vectors: int, mask: Value | None
    ) -> None:
        f, words = self.f, self.words
        line, span = 4 * LANES * vectors, LANES * vectors
        pitch = f.integer(line * (BLOCK + LANES))
        packed = 4 * LANES * self.gemm.vectors * (BLOCK + LANES)
        held = self.scratch + f.scaled(words[GROUP], packed)
        rows_held = f.scaled(words[ROWS] + self.gemm.rows, line)
        table, length = f.word(RUN_TABLE, "ptr"), words[RUN_LENGTH]
        zeros = f.constant("float", 0.0, LANES)

        def each(body: Callable[[Value, Value, Callable[[Value, int], Value]], None]) -> None:
            """`body` of every strip: its number, first column, and where its sums are."""

            def strip(number: Value) -> None:
                start = held + number * rows_held

                def place(row: Value, v: int) -> Value:
                    return f.element_at(start, row, line) + 4 * LANES * v

                body(number, f.scaled(number, span, first), place)

            f.loop(self.zero, strips, 1, strip)

        def clear(number: Value, column: Value, place: Callable[[Value, int], Value]) -> None:
            def one(row: Value) -> None:
                for v in range(vectors):
                    f.store(zeros, place(row, v))

            f.loop(self.zero, words[ROWS], 1, one)

        def run(number: Value) -> None:
            moved = f.load(f.element_at(table, number, 8), "i64")

            def part(start: Value) -> None:
                count = f.intrinsic("smin", length - start, f.integer(BLOCK))
                unit = number * length + start
                self._pack(first, strips, vectors, mask, (unit, count), pitch)
                along = moved + start * words[STEP_A]

                def add(strip: Value, column: Value, place: Callable[[Value, int], Value]) -> None:
                    base = self.scratch + strip * pitch

                    def keep(row: Value, sums: Sequence[Value]) -> None:
                        for v, value in enumerate(sums):
                            where = place(row, v)
                            before = f.load(where, self.sum, LANES)
                            f.store(self._add(before, value), where)

                    def block(row: Value) -> None:
                        rows = [start + along for start in self._places(row)]
                        sums = [zeros] * (len(rows) * vectors)
                        sums = self._run(rows, base, f.integer(line), count, vectors, None, sums)
                        self._each_row(row, sums, vectors, keep)

                    f.loop(self.zero, words[ROWS], self.gemm.rows, block)

                each(add)

            f.loop(self.zero, length, BLOCK, part)

        def finish(number: Value, column: Value, place: Callable[[Value, int], Value]) -> None:
            def one(row: Value) -> None:
                sums = [f.load(place(row, v), self.sum, LANES) for v in range(vectors)]
                self._finish(column, mask, row, sums)

            f.loop(self.zero, words[ROWS], 1, one)

        each(clear)
        f.loop(self.zero, words[RUNS], 1, run)
        each(finish)

    def _places(self, row: Value) -> list[Value]:
        """Where the rows of a block begin in A."""
        f = self.f
        entries = f.element_at(f.word(ROW_TABLE, "ptr"), row, 8)
        return [
            self.left + f.load(f.element_at(entries, f.integer(i), 8), "i64")
            for i in range(self.gemm.rows)
        ]

    def _each_row(
        self,
        row: Value,
        sums: list[Value],
        vectors: int,
        body: Callable[[Value, Sequence[Value]], None],
    ) -> None:
        """`body` of the number and sums of those rows of a block that exist."""
        f = self.f
        for i in range(self.gemm.rows):
            index = row + i
            part = sums[i * vectors : (i + 1) * vectors]
            inside = f.compare("icmp slt", index, self.words[ROWS])
            f.when(inside, partial(body, index, part))

    def _sums(
        self, rows: list[Value], base: Value, step: Value, vectors: int, mask: Value | None
    ) -> list[Value]:
        """The sums of a block of results over the whole depth."""
        f, words = self.f, self.words
        table = f.word(RUN_TABLE, "ptr")
        length = words[RUN_LENGTH]

        def run(number: Value, *sums: Value) -> list[Value]:
            moved = f.load(f.element_at(table, number, 8), "i64")
            places = [row + moved for row in rows]
            start = base + number * length * step
            return self._run(places, start, step, length, vectors, mask, list(sums))

        start = [f.constant("float", 0.0, LANES)] * (len(rows) * vectors)
        return f.loop(self.zero, words[RUNS], 1, run, start)

    def _run(
        self,
        places: list[Value],
        start: Value,
        step: Value,
        length: Value,
        vectors: int,
        mask: Value | None,
        sums: list[Value],
    ) -> list[Value]:
        """The sums with the products of `length` units added."""
        f, words = self.f, self.words

        def unit(k: Value, *now: Value) -> list[Value]:
            line = start + k * step
            along = k * words[STEP_A]
            stream = []
            for v in range(vectors):
                place = line + 4 * LANES * v
                if mask is None:
                    stream.append(f.load(place, "float", LANES))
                else:
                    stream.append(f.load_where(mask, place, "float"))
            factors = (f.load(place + along, "float") for place in places)
            return block_step(f, factors, stream, now, self.gemm.pairs)

        return f.loop(self.zero, length, 1, unit, sums)

    def _finish(self, first: Value, mask: Value | None, row: Value, sums: Sequence[Value]) -> None:
        f, type = self.f, self.gemm.output
        element, size = storage(type)
        line = self.target + row * self.words[ROW_C]
        line = f.element_at(line, first, size)
        for v, value in enumerate(sums):
            place = line + v * LANES * size
            if value.element != self.sum:
                value = f.convert("fptosi", value, self.sum)
            stored = encode(f, type, rounded(f, type, value))
            assert stored.element == element
            if mask is None:
                f.store(stored, place)
            else:
                f.store_where(mask, stored, place)

    # Strips of B

    def _pack(
        self,
        first: Value,
        strips: Value,
        vectors: int,
        mask: Value | None,
        units: tuple[Value, Value],
        pitch: Value,
    ) -> None:
        """Units (start, count) of strips, each as [unit, column], `pitch` bytes apart."""
        f, words = self.f, self.words
        start, count = units
        span = LANES * vectors
        if self.gemm.transposed:

            def turned(number: Value) -> None:
                target = self.scratch + number * pitch
                self._pack_transposed(f.scaled(number, span, first), vectors, units, target)

            f.loop(self.zero, strips, 1, turned)
            return
        along = words[STEP_B]
        left = f.element_at(self.right, first, self.size)
        left = left + f.scaled(start, 2 if self.gemm.pairs else 1) * along

        def line(unit: Value) -> None:
            number = f.scaled(unit, 2) if self.gemm.pairs else unit
            row = left + number * along
            target = f.element_at(self.scratch, unit, 4 * span)

            def part(strip: Value) -> None:
                source = f.element_at(row, strip, span * self.size)
                into = target + strip * pitch
                for v in range(vectors):
                    place = source + v * LANES * self.size
                    value = self._columns(place, mask)
                    if self.gemm.pairs:
                        other = self._columns(place + along, mask)
                        low, high = (f.convert("zext", half, "i32") for half in (value, other))
                        value = low | (high << 16)
                    f.store(value, into + 4 * LANES * v)

            f.loop(self.zero, strips, 1, part)

        f.loop(self.zero, count, 1, line)

    def _columns(self, place: Value, mask: Value | None) -> Value:
        if mask is None:
            return self.f.load(place, self.element, LANES)
        return self.f.load_where(mask, place, self.element)

    def _pack_transposed(
        self, first: Value, vectors: int, units: tuple[Value, Value], scratch: Value
    ) -> None:
        """Columns whose units are adjacent along k: tiles of 16 by 16 units are turned."""
        f, words = self.f, self.words
        last = words[COLUMNS] - 1
        start, depth = units
        origin = f.element_at(self.right, start, 4)

        def part(v: Value) -> None:
            column = f.scaled(v, LANES, first)
            columns = []
            for lane in range(LANES):
                inside = f.intrinsic("smin", column + lane, last)
                columns.append(origin + inside * words[COLUMN_B])
            into = scratch + f.scaled(v, 4 * LANES)

            def tile(unit: Value) -> None:
                mask = f.below(depth - unit, LANES)
                places = [f.element_at(place, unit, 4) for place in columns]
                lines = [f.load_where(mask, place, "i32") for place in places]
                target = f.element_at(into, unit, 4 * LANES * vectors)
                for number, turned in enumerate(transposed(f, lines)):
                    f.store(turned, target + 4 * LANES * vectors * number)

            f.loop(self.zero, depth, LANES, tile)

        f.loop(self.zero, f.integer(vectors), 1, part)
