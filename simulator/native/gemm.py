"""Micro-kernels of the PE array: the product of the loaded tile and a moving one.

Every result is the ascending-k sum of fp32 fused multiply-adds, whatever the CPU. A strip of the
moving tile, as wide as a block of results, is packed into memory of the function's own, so that the
inner loop reads the first-level cache whatever the distance of rows in memory; the block stays in
vector registers while k runs. The strip has elements of the same form as the loaded tile's image
(`simulator.native.gemm_image`).

Pairs are multiplied by VDPBF16PS, twice as fast as by FMA. Intel 64 and IA-32 Architectures
Software Developer's Manual, volume 2, VDPBF16PS: for each pair the product of the upper halves is
added to the sum and then that of the lower halves, each by an fp32 FMA rounded to nearest even;
denormal inputs count as zero, denormal outputs are flushed to zero, MXCSR is not consulted. So it
gives the same bits as FMAs in ascending order if nothing is denormal, and the rule by which it is
used is:

    with a and b the smallest non-zero magnitudes of the loaded tile and of the strip, both are
    normal, and their (unbiased) exponents add up to -112 or more.

Then bfloat16 numbers of 8 bits are multiples of 2**(exponent - 7), so that all products, their
exact sums, and these rounded to 24 bits are multiples of 2**(-112 - 14) = 2**-126, the smallest
normal fp32 number: a sum is zero or normal. Infinities and NaN take part as in FMAs (the sign and
payload of NaN are made canonical when results are stored). Strips where the rule does not hold
are tried a vector at a time; for those that are left, and for operands of other dtypes, everything
is widened and FMAs are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from isa.dtypes import DTYPES
from simulator.native import ports
from simulator.native.fused import emulated
from simulator.native.gemm_image import (
    CACHE_LINE,
    DEEPEST,
    GROUP,
    HEADER,
    LINE,
    WIDEST,
    Packing,
    Word,
    first_lanes,
    fits_pairs,
    header_word,
    lines_of,
    panel_at,
    panels_bytes,
    refuse_others,
    smallest_magnitude,
)
from simulator.native.text import FunctionText, Value

_AHEAD = 2
"""Strips between the one that is multiplied and the one that is hinted at. Measured on a 2048^3
product of bfloat16 out of a simulated SBUF: 16 % less time than without hints."""

_UPPER = 0xFFFF0000
_DOT = "llvm.x86.avx512bf16.dpbf16ps.512"
_LEAST_SUM = 2 * 127 - 112
"""Of the biased exponents of the smallest magnitudes."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """A block of results: `rows` of `vectors` vectors of `width` fp32 lanes.

    `fused`: the CPU has FMA. `dot`: it has VDPBF16PS on vectors of this width.
    """

    rows: int
    vectors: int
    width: int
    fused: bool = True
    dot: bool = False


@dataclass(frozen=True, slots=True)
class Multiply:
    """dst [M, N] = (or +=) tile.T @ moving [K, N].

    Words: dst, moving, image, K, M, N, the byte strides between rows of dst and of moving.
    Elements of a row are adjacent in both. K is at most `DEEPEST`, M at most `WIDEST`. Where the
    image is not of a [K, M] tile, all that happens is that its header says so.
    """

    moving: str
    output: str
    accumulate: bool
    blocking: Blocking

    def text(self, name: str) -> str:
        return _Multiplication(FunctionText(name), self).text()


class _Multiplication:
    """The text of a `Multiply` while it is written."""

    def __init__(self, f: FunctionText, kernel: Multiply) -> None:
        self.f = f
        self.kernel = kernel
        self.block = kernel.blocking
        self.target, self.moving, self.image = (f.word(index, "ptr") for index in range(3))
        self.depth, self.rows, self.columns = (f.word(index) for index in range(3, 6))
        self.down, self.along = f.word(6), f.word(7)
        self.zero = f.integer(0)
        self.panels = f.offset(self.image, f.integer(HEADER))
        self.pairs = self.block.dot and fits_pairs(kernel.moving)
        self.strip = f.scratch("float", DEEPEST * self.block.vectors * self.block.width)
        if self.block.dot:
            self.in_pairs = f.compare("icmp ne", header_word(f, self.image, Word.pairs), self.zero)
            self.widened = f.scratch("i8", panels_bytes(DEEPEST, WIDEST))
            self.is_widened = f.scratch("i64", 1)
            f.store(self.zero, self.is_widened)
            self.is_done = f.scratch("i64", 1)

    def text(self) -> str:
        f = self.f
        fits = refuse_others(f, self.image, {Word.depth: self.depth, Word.columns: self.rows})
        f.when(fits, self._strips)
        return f.text()

    def _strips(self) -> None:
        """All results, a strip of columns at a time; strips as wide as a block first by pairs."""
        f, block = self.f, self.block
        size = block.vectors * block.width
        if not self.pairs:
            first = self.zero
            for vectors in range(block.vectors, 1, -1):
                first = self._whole_strips(first, vectors)
            f.loop(first, self.columns, block.width, partial(self._by_fma, vectors=1))
            return

        def strip(first: Value) -> None:
            end = f.binary("add", first, f.integer(size))
            end = f.intrinsic("smin", end, self.columns)
            whole = f.compare("icmp eq", f.binary("sub", end, first), f.integer(size))
            f.store(self.zero, self.is_done)
            f.when(whole, lambda: self._by_pairs(first, block.vectors))
            done = f.compare("icmp ne", f.load(self.is_done, "i64"), self.zero)
            start = f.select(done, end, first)
            f.loop(start, end, block.width, narrow)

        def narrow(first: Value) -> None:
            f.store(self.zero, self.is_done)
            self._by_pairs(first, 1)
            left = f.compare("icmp eq", f.load(self.is_done, "i64"), self.zero)
            f.when(left, lambda: self._by_fma(first, 1))

        f.loop(self.zero, self.columns, size, strip)

    def _whole_strips(self, first: Value, vectors: int) -> Value:
        """The results of as many strips of that many vectors as there are columns for, by FMA; the
        first column that is left."""
        f, size = self.f, vectors * self.block.width
        left = f.binary("sub", self.columns, first)
        end = f.binary("sub", self.columns, f.binary("urem", left, f.integer(size)))
        f.loop(first, end, size, partial(self._by_fma, vectors=vectors))
        return end

    def _by_pairs(self, first: Value, vectors: int) -> None:
        """The results of a strip from column `first` on, where the rule holds; says if it does.

        A strip of one vector may have fewer columns than that has lanes.
        """
        f = self.f
        self._pack(first, vectors, True)
        lines = lines_of(f, self.depth, True)
        usable = self._rule(f.binary("mul", lines, f.integer(vectors * self.block.width)))

        def multiply() -> None:
            self._rows(first, vectors, self.panels, True)
            f.store(f.integer(1), self.is_done)

        f.when(f.binary("and", self.in_pairs, usable), multiply)

    def _by_fma(self, first: Value, vectors: int) -> None:
        """The results of a strip, of any dtypes."""
        self._pack(first, vectors, False)
        self._fused(first, vectors)

    def _rule(self, elements: Value) -> Value:
        """Whether sums of the products of loaded and packed pairs stay normal, or zero."""
        f = self.f
        exponents = []
        loaded = header_word(f, self.image, Word.smallest)
        for less_one in (loaded, smallest_magnitude(f, self.strip, elements, self.block.width)):
            magnitude = f.binary("add", less_one, f.integer(1))
            exponents.append(f.binary("lshr", magnitude, f.integer(7)))
        total = f.binary("add", *exponents)
        normal = [f.compare("icmp ne", exponent, self.zero) for exponent in exponents]
        enough = f.compare("icmp uge", total, f.integer(_LEAST_SUM))
        return f.binary("and", enough, f.binary("and", *normal))

    def _pack(self, first: Value, vectors: int, pairs: bool) -> None:
        f, width = self.f, self.block.width
        origin = f.element_at(self.moving, first, DTYPES[self.kernel.moving].size)
        pitch = 4 * vectors * width

        def keep(line: Value, values: Sequence[Value]) -> Sequence[Value]:
            place = f.element_at(self.strip, line, pitch)
            for v, value in enumerate(values):
                f.store(value, f.offset(place, f.integer(4 * v * width)))
            return ()

        packing = Packing(f, self.kernel.moving, pairs, width, vectors)
        packing.rows(self.depth, origin, self.along, keep, self._mask(first, vectors))

    def _mask(self, first: Value, vectors: int) -> Value | None:
        """The columns that there are of a strip of one vector; those of wider ones are there."""
        if vectors > 1:
            return None
        return first_lanes(self.f, self.f.binary("sub", self.columns, first), self.block.width)

    def _fused(self, first: Value, vectors: int) -> None:
        """Multiply the strip, which is wide, by FMA."""
        f = self.f
        if not self.block.dot:
            self._rows(first, vectors, self.panels, False)
            return
        done = f.compare("icmp ne", f.load(self.is_widened, "i64"), self.zero)
        needed = f.compare("icmp ult", done, self.in_pairs)
        f.when(needed, self._widen)
        panels = f.select(self.in_pairs, self.widened, self.panels)
        self._rows(first, vectors, panels, False)

    def _widen(self) -> None:
        """Copy the panels of pairs to wide ones."""
        f = self.f
        steps = lines_of(f, self.depth, True)

        def group(column: Value) -> None:
            origin = panel_at(f, self.panels, steps, column)
            target = panel_at(f, self.widened, self.depth, column)

            def line(k: Value) -> None:
                place = f.element_at(origin, f.binary("lshr", k, f.integer(1)), LINE)
                pairs = f.load(place, "i32", GROUP)
                odd = f.compare("icmp ne", f.binary("and", k, f.integer(1)), self.zero)
                shift = f.select(odd, f.constant("i32", 16), f.constant("i32", 0))
                moved = f.binary("shl", pairs, f.splat(shift, GROUP))
                value = f.binary("and", moved, f.like(pairs, _UPPER))
                f.store(value, f.element_at(target, k, LINE))

            f.loop(self.zero, self.depth, 1, line)

        f.loop(self.zero, self.rows, GROUP, group)
        f.store(f.integer(1), self.is_widened)

    def _rows(self, first: Value, vectors: int, panels: Value, pairs: bool) -> None:
        """The results of all rows, a block at a time."""
        f, block = self.f, self.block
        lines = lines_of(f, self.depth, pairs)
        mask = self._mask(first, vectors)

        def step(k: Value, panel: Value, sums: Sequence[Value]) -> list[Value]:
            line = f.element_at(self.strip, k, 4 * vectors * block.width)
            factors = f.element_at(panel, k, LINE)
            element = "i32" if pairs else "float"
            stream = [
                f.load(f.element_at(line, f.integer(v * block.width), 4), element, block.width)
                for v in range(vectors)
            ]
            result = []
            for row in range(block.rows):
                scalar = f.load(f.element_at(factors, f.integer(row), 4), element)
                factor = f.splat(scalar, block.width)
                for v in range(vectors):
                    total = sums[row * vectors + v]
                    result.append(self._sum(factor, stream[v], total))
            return result

        def rows(row: Value) -> None:
            places = self._places(row, first)
            if vectors > 1:
                self._announce(row, first, places)
            panel = panel_at(f, panels, lines, row)
            start = [f.constant("float", 0.0, block.width)] * (block.rows * vectors)
            sums = f.loop(self.zero, lines, 1, lambda k, *sums: step(k, panel, sums), start)

            def finish(i: int) -> None:
                self._finish(places[i], sums[i * vectors : (i + 1) * vectors], mask)

            end = f.binary("add", row, f.integer(block.rows))
            whole = f.compare("icmp sle", end, self.rows)

            def all_rows() -> None:
                for i in range(block.rows):
                    finish(i)

            def some_rows() -> None:
                for i in range(block.rows - 1):
                    index = f.binary("add", row, f.integer(i))
                    f.when(f.compare("icmp slt", index, self.rows), partial(finish, i))

            f.when(whole, all_rows)
            f.when(f.binary("xor", whole, f.like(whole, 1)), some_rows)

        f.loop(self.zero, self.rows, block.rows, rows)

    def _places(self, row: Value, first: Value) -> list[Value]:
        """Where the results of the rows of a block begin."""
        f = self.f
        line = f.offset(self.target, f.binary("mul", row, self.down))
        places = [f.element_at(line, first, DTYPES[self.kernel.output].size)]
        for _ in range(self.block.rows - 1):
            places.append(f.offset(places[-1], self.down))
        return places

    def _announce(self, row: Value, first: Value, places: Sequence[Value]) -> None:
        """Hint at memory that comes next, which lies a partition apart from row to row: the results
        of a block, and a part of the strip after the next one (in the row of that number)."""
        f, block = self.f, self.block
        size = block.vectors * block.width
        output, moving = (DTYPES[name].size for name in (self.kernel.output, self.kernel.moving))
        later = f.element_at(self.moving, f.binary("add", first, f.integer(_AHEAD * size)), moving)
        later = f.offset(later, f.binary("mul", row, self.along))
        for place in places:
            for offset in range(0, size * output, CACHE_LINE):
                f.prefetch(f.offset(place, f.integer(offset)), write=True)
            for offset in range(0, size * moving, CACHE_LINE):
                f.prefetch(f.offset(later, f.integer(offset)))
            later = f.offset(later, self.along)

    def _sum(self, factor: Value, moving: Value, total: Value) -> Value:
        f = self.f
        if factor.element == "i32":
            return dot_of_pairs(f, factor, moving, total)
        if self.block.fused:
            return f.intrinsic("fma", factor, moving, total)
        return emulated(f, factor, moving, total)

    def _finish(self, line: Value, sums: Sequence[Value], mask: Value | None) -> None:
        """Store the sums of a row, or those of columns for which the mask holds."""
        f, kernel, width = self.f, self.kernel, self.block.width
        output = DTYPES[kernel.output]
        lane = f"i{output.bits}"
        for v, value in enumerate(sums):
            place = f.element_at(line, f.integer(v * width), output.size)
            if kernel.accumulate:
                held = (
                    f.load(place, lane, width) if mask is None else f.load_where(mask, place, lane)
                )
                value = f.binary("fadd", value, ports.decode(f, kernel.output, held))
            result = ports.encode_result(f, kernel.output, value)
            if mask is None:
                f.store(result, place)
            else:
                f.store_where(mask, result, place)


def dot_of_pairs(f: FunctionText, left: Value, right: Value, total: Value) -> Value:
    """Products of pairs in 32-bit lanes, added to fp32 sums by VDPBF16PS, of 512 bits."""
    pairs = [f.reinterpret(value, "bfloat", 2 * value.width) for value in (left, right)]
    return f.call(_DOT, "float", total.width, total, *pairs)
