"""Matrix products: C[b, m, n] = sum over k of A[b, m, k] * B[b, k, n], in fp32.

Products are fused multiply-adds in ascending k, or, of bf16 on CPUs that have it, dot products of
pairs (`vdpbf16ps`: of each pair the second first, numbers below 2**-126 counting as zero). A strip
of columns of B is packed once for all rows of A, which are read where they lie: each row has an
offset, and k runs in runs of evenly spaced elements, so that A may be a strided view, or the
patches of a convolution. A block of results stays in registers while k runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from graph_compiler.execute.registers import KernelText, encode, rounded, storage
from simulator.native.library import library
from simulator.native.text import Value

LANES = 16
"""Lanes of a vector of results."""

WORDS = 17

A, B, C, SCRATCH, BATCHES, BATCH_TABLE, ROWS, COLUMNS, ROW_TABLE = range(9)
RUNS, RUN_TABLE, RUN_LENGTH, STEP_A, STEP_B, COLUMN_B, ROW_C, DEPTH = range(9, WORDS)
"""Words of a product: pointers, sizes, tables of byte offsets, and byte strides. Lengths of runs,
the depth and STEP_A count units: elements, or pairs of bf16."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """One product. `pairs`: A and B are bf16, taken in pairs; else fp32. `transposed`: the
    elements of B are adjacent along k, else along n. `packed`: strips of B are copied first.
    A block of results is `rows` by `vectors` vectors."""

    pairs: bool
    transposed: bool
    packed: bool
    rows: int
    vectors: int
    output: str

    def emit(self, f: KernelText) -> None:
        _Emitter(self, f).run()

    @property
    def scratch(self) -> int:
        """Bytes of packed B for each unit of the depth."""
        return 4 * LANES * self.vectors if self.packed else 0


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


class _Emitter:
    def __init__(self, gemm: Gemm, f: KernelText) -> None:
        self.gemm = gemm
        self.f = f
        self.words = [f.word(number) for number in range(WORDS)]
        self.element, self.size = ("i16", 2) if gemm.pairs else ("float", 4)
        self.zero = f.integer(0)

    def run(self) -> None:
        f, words = self.f, self.words
        pointers = [f.word(number, "ptr") for number in (A, B, C, SCRATCH, BATCH_TABLE)]
        left, right, target, self.scratch, table = pointers

        def batch(number: Value) -> None:
            places = [
                f.load(f.offset(f.element_at(table, number, 24), f.integer(8 * i)), "i64")
                for i in range(3)
            ]
            self.left, self.right, self.target = (
                f.offset(pointer, place) for pointer, place in zip((left, right, target), places)
            )
            span = LANES * self.gemm.vectors
            columns = words[COLUMNS]
            whole = f.binary("sub", columns, f.binary("urem", columns, f.integer(span)))
            f.loop(self.zero, whole, span, lambda n: self._strip(n, self.gemm.vectors, None))

            def last(n: Value) -> None:
                mask = f.below(f.binary("sub", columns, n), LANES)
                self._strip(n, 1, mask)

            f.loop(whole, columns, LANES, last)

        f.loop(self.zero, words[BATCHES], 1, batch)

    def _strip(self, first: Value, vectors: int, mask: Value | None) -> None:
        """All rows of `vectors` vectors of columns from `first` on."""
        f, words = self.f, self.words
        if self.gemm.packed:
            if self.gemm.transposed:
                self._pack_transposed(first, vectors)
            else:
                self._pack(first, vectors, mask)
            base, step = self.scratch, f.integer(4 * LANES * vectors)
            masked = None
        else:
            base = f.element_at(self.right, first, self.size)
            step, masked = words[STEP_B], mask
        table = f.word(ROW_TABLE, "ptr")

        def block(row: Value) -> None:
            entries = f.element_at(table, row, 8)
            rows = [
                f.offset(self.left, f.load(f.element_at(entries, f.integer(i), 8), "i64"))
                for i in range(self.gemm.rows)
            ]
            sums = self._sums(rows, base, step, vectors, masked)
            for i in range(self.gemm.rows):
                index = f.binary("add", row, f.integer(i))
                part = sums[i * vectors : (i + 1) * vectors]
                inside = f.compare("icmp slt", index, words[ROWS])
                f.when(inside, partial(self._finish, index, first, part, mask))

        f.loop(self.zero, words[ROWS], self.gemm.rows, block)

    def _sums(
        self, rows: list[Value], base: Value, step: Value, vectors: int, mask: Value | None
    ) -> list[Value]:
        f, words = self.f, self.words
        table = f.word(RUN_TABLE, "ptr")
        length = words[RUN_LENGTH]

        def run(number: Value, *sums: Value) -> list[Value]:
            moved = f.load(f.element_at(table, number, 8), "i64")
            places = [f.offset(row, moved) for row in rows]
            start = f.offset(base, f.binary("mul", f.binary("mul", number, length), step))

            def unit(k: Value, *now: Value) -> list[Value]:
                line = f.offset(start, f.binary("mul", k, step))
                along = f.binary("mul", k, words[STEP_A])
                stream = []
                for v in range(vectors):
                    place = f.offset(line, f.integer(4 * LANES * v))
                    if mask is None:
                        stream.append(f.load(place, "float", LANES))
                    else:
                        stream.append(f.masked_load(place, "float", LANES, mask))
                result = []
                for i, place in enumerate(places):
                    factor = f.splat(f.load(f.offset(place, along), "float"), LANES)
                    for v in range(vectors):
                        total = now[i * vectors + v]
                        result.append(self._multiply(factor, stream[v], total))
                return result

            return f.loop(self.zero, length, 1, unit, sums)

        start = [f.constant("float", 0.0, LANES)] * (len(rows) * vectors)
        return f.loop(self.zero, words[RUNS], 1, run, start)

    def _multiply(self, factor: Value, stream: Value, total: Value) -> Value:
        f = self.f
        if not self.gemm.pairs:
            return f.intrinsic("fma", factor, stream, total)
        name = "@llvm.x86.avx512bf16.dpbf16ps.512"
        kind = "<32 x bfloat>"
        f.declare(name, f"declare <16 x float> {name}(<16 x float>, {kind}, {kind})")
        pairs = [
            f.raw(f"bitcast {value.type} {value.text} to {kind}", "bfloat", 32)
            for value in (factor, stream)
        ]
        return f.raw(
            f"call <16 x float> {name}({total.type} {total.text}, {kind} {pairs[0].text}, "
            f"{kind} {pairs[1].text})",
            "float",
            LANES,
        )

    def _finish(self, row: Value, first: Value, sums: Sequence[Value], mask: Value | None) -> None:
        f, type = self.f, self.gemm.output
        element, size = storage(type)
        line = f.offset(self.target, f.binary("mul", row, self.words[ROW_C]))
        line = f.element_at(line, first, size)
        for v, value in enumerate(sums):
            place = f.offset(line, f.integer(v * LANES * size))
            stored = encode(f, type, rounded(f, type, value))
            assert stored.element == element
            if mask is None:
                f.store(stored, place)
            else:
                f.masked_store(stored, place, mask)

    # Strips of B

    def _pack(self, first: Value, vectors: int, mask: Value | None) -> None:
        """Columns that are adjacent: [unit, column]."""
        f, words = self.f, self.words
        left = f.element_at(self.right, first, self.size)

        def line(unit: Value) -> None:
            target = f.element_at(self.scratch, unit, 4 * LANES * vectors)
            number = f.at(unit, 2) if self.gemm.pairs else unit
            row = f.offset(left, f.binary("mul", number, words[STEP_B]))
            for v in range(vectors):
                place = f.offset(row, f.integer(v * LANES * self.size))
                value = self._columns(place, mask)
                if self.gemm.pairs:
                    other = self._columns(f.offset(place, words[STEP_B]), mask)
                    low, high = (f.convert("zext", half, "i32") for half in (value, other))
                    value = f.binary("or", low, f.binary("shl", high, f.like(high, 16)))
                f.store(value, f.offset(target, f.integer(4 * LANES * v)))

        f.loop(self.zero, words[DEPTH], 1, line)

    def _columns(self, place: Value, mask: Value | None) -> Value:
        if mask is None:
            return self.f.load(place, self.element, LANES)
        return self.f.masked_load(place, self.element, LANES, mask)

    def _pack_transposed(self, first: Value, vectors: int) -> None:
        """Columns whose units are adjacent along k: tiles of 16 by 16 units are turned."""
        f, words = self.f, self.words
        last = f.binary("sub", words[COLUMNS], f.integer(1))
        depth = words[DEPTH]
        for v in range(vectors):
            columns = []
            for lane in range(LANES):
                number = f.binary("add", first, f.integer(v * LANES + lane))
                inside = f.intrinsic("smin", number, last)
                columns.append(f.offset(self.right, f.binary("mul", inside, words[COLUMN_B])))

            def tile(unit: Value, mask: Value | None, v: int, columns: list[Value]) -> None:
                places = [f.element_at(column, unit, 4) for column in columns]
                if mask is None:
                    lines = [f.load(place, "i32", LANES) for place in places]
                else:
                    lines = [f.masked_load(place, "i32", LANES, mask) for place in places]
                target = f.element_at(self.scratch, unit, 4 * LANES * vectors)
                for number, turned in enumerate(transposed(f, lines)):
                    f.store(turned, f.offset(target, f.integer(4 * LANES * (number * vectors + v))))

            whole = f.binary("and", depth, f.integer(-LANES))
            f.loop(self.zero, whole, LANES, partial(tile, mask=None, v=v, columns=columns))

            def tail(unit: Value, v: int, columns: list[Value]) -> None:
                tile(unit, f.below(f.binary("sub", depth, unit), LANES), v, columns)

            f.loop(whole, depth, LANES, partial(tail, v=v, columns=columns))


def transposed(f: KernelText, lines: list[Value]) -> list[Value]:
    """16 vectors of 16 lanes, rows for columns: four perfect shuffles."""
    half = len(lines) // 2
    low = [lane // 2 + (len(lines) if lane % 2 else 0) for lane in range(len(lines))]
    high = [lane + half for lane in low]
    for _ in range(4):
        pairs = list(zip(lines[:half], lines[half:]))
        lines = [f.shuffle(a, b, lanes) for a, b in pairs for lanes in (low, high)]
    return lines
