"""Micro-kernels of the PE array: loading a tile, and multiplying it by a moving one.

Every result is the ascending-k sum of fp32 fused multiply-adds, whatever the CPU. A loaded tile is
kept as its *image*: a header and panels, which are groups of columns in the order in which the
inner loop takes them. A strip of the moving tile, as wide as a block of results, is packed into
memory of the function's own, so that the inner loop reads the first-level cache whatever the
distance of rows in memory; the block stays in vector registers while k runs.

Elements of an image and of a strip are fp32 (*wide*), or *pairs*: two rows k and k + 1 of elements
that bfloat16 holds exactly, the first row in the upper half of 32 bits. `VDPBF16PS` multiplies
pairs twice as fast. Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
VDPBF16PS: for each pair the product of the upper halves is added to the sum and then that of the
lower halves, each by an fp32 FMA rounded to nearest even; denormal inputs count as zero, denormal
outputs are flushed to zero, MXCSR is not consulted. So it gives the same bits as FMAs in ascending
order if nothing is denormal, and the rule by which it is used is:

    with a and b the smallest non-zero magnitudes of the loaded tile and of the strip, both are
    normal, and their (unbiased) exponents add up to -112 or more.

Then bfloat16 numbers of 8 bits are multiples of 2**(exponent - 7), so that all products, their
exact sums, and these rounded to 24 bits are multiples of 2**(-112 - 14) = 2**-126, the smallest
normal fp32 number: a sum is zero or normal. Infinities and NaN take part as in FMAs (the sign and
payload of NaN are made canonical when results are stored). For a strip where the rule does not
hold, and for operands of other dtypes, everything is widened and FMAs are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from isa.dtypes import DTYPES, DTypeKind
from simulator.native import ports
from simulator.native.text import WORD, FunctionText, Value

HEADER = 64
"""Bytes before the panels of an image: words at `Word`."""


class Word(IntEnum):
    """Words of an image's header.

    `pairs`: whether its panels are pairs; `smallest`: their smallest non-zero magnitude, less one
    (as `_smallest`). `depth`, `columns`, `dtype`: of the tile, with the dtype's code; a depth of 0
    says that there is none. `loads`: how often a tile was loaded. `refused`: an instruction found
    another tile than it takes.
    """

    pairs = 0
    smallest = 1
    depth = 2
    columns = 3
    dtype = 4
    loads = 5
    refused = 6


GROUP = 8
"""Columns of a panel. A block of results has as many rows, or a divisor of it."""

DEEPEST = 256
"""The largest K: twice the rows of the PE array, which may hold pairs of fp8 (SDK
nki/guides/architecture/trainium2_arch.rst, Double FP8 matmul performance)."""

WIDEST = 128
"""Columns of the PE array: the largest M."""

CACHE_LINE = 64
"""Bytes that move together between memory and CPU."""

_AHEAD = 2
"""Strips between the one that is multiplied and the one that is hinted at. Measured on a 2048^3
product of bfloat16 out of a simulated SBUF: 16 % less time than without hints."""

_LINE = 4 * GROUP
"""Bytes of a line of a panel."""

_MAGNITUDES = 0x7FFF7FFF
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


def fits_pairs(dtype: str) -> bool:
    """Whether bfloat16 holds every value of a dtype exactly."""
    row, pair = DTYPES[dtype], DTYPES["bfloat16"]
    if row.is_float:
        return row.mantissa_bits <= pair.mantissa_bits and row.exponent_bits <= pair.exponent_bits
    return row.kind is DTypeKind.boolean or (row.is_integer and row.size == 1)


def image_bytes(depth: int, columns: int) -> int:
    """Size of the image of a [depth, columns] tile."""
    return HEADER + 4 * (depth + depth % 2) * GROUP * -(-columns // GROUP)


def _widened(f: FunctionText, dtype: str, stored: Value) -> Value:
    """The bits of stored elements as fp32."""
    return f.convert("bitcast", ports.decode(f, dtype, stored), "i32")


def _pair(f: FunctionText, dtype: str, even: Value, odd: Value) -> Value:
    """Stored elements of rows k and k + 1 as pairs."""
    second = _widened(f, dtype, odd)
    return f.binary("or", _widened(f, dtype, even), f.binary("lshr", second, f.like(second, 16)))


def _smallest(f: FunctionText, start: Value, elements: Value, width: int) -> Value:
    """The smallest magnitude of pairs, less one, as an i64; that of zero counts as 0xFFFF.

    `elements`: how many, a multiple of the width.
    """

    def step(index: Value, least: Value) -> list[Value]:
        pairs = f.load(f.element_at(start, index, 4), "i32", width)
        magnitudes = f.binary("and", pairs, f.like(pairs, _MAGNITUDES))
        halves = f.reinterpret(magnitudes, "i16", 2 * width)
        return [f.intrinsic("umin", least, f.binary("sub", halves, f.like(halves, 1)))]

    first = f.constant("i16", 0xFFFF, 2 * width)
    (least,) = f.loop(f.integer(0), elements, width, step, [first])
    scalar = f.call(f"llvm.vector.reduce.umin.v{2 * width}i16", "i16", 0, least)
    return f.convert("zext", scalar, "i64")


def _header(f: FunctionText, image: Value, word: Word) -> Value:
    return f.load(f.element_at(image, f.integer(word), WORD), "i64")


def _steps(f: FunctionText, depth: Value, pairs: bool) -> Value:
    """Lines of a panel or strip: one for each k, or each two."""
    if not pairs:
        return depth
    return f.binary("lshr", f.binary("add", depth, f.integer(1)), f.integer(1))


def _panel(f: FunctionText, panels: Value, lines: Value, column: Value) -> Value:
    """Where a column's first element is, in the panels of that many lines."""
    group = f.binary("lshr", column, f.integer(GROUP.bit_length() - 1))
    panel = f.offset(panels, f.binary("mul", group, f.binary("mul", lines, f.integer(_LINE))))
    return f.element_at(panel, f.binary("and", column, f.integer(GROUP - 1)), 4)


def _first(f: FunctionText, count: Value, width: int) -> Value:
    """A mask of the first `count` lanes; all, if there are more."""
    numbers = Value(f"<{', '.join(f'i32 {lane}' for lane in range(width))}>", "i32", width)
    return f.compare("icmp slt", numbers, f.splat(f.convert("trunc", count, "i32"), width))


class Packing:
    """Emits the packing of rows of memory, `along` bytes apart, into lines of 32-bit elements."""

    def __init__(
        self, f: FunctionText, dtype: str, pairs: bool, depth: Value, source: Value, along: Value
    ) -> None:
        self.f = f
        self.dtype = dtype
        self.pairs = pairs
        self.depth = depth
        self.source = source
        self.along = along

    def columns(
        self, column: Value, width: int, target: Value, pitch: int, mask: Value | None = None
    ) -> None:
        """Pack `width` adjacent elements from `column` on of all rows; lines `pitch` bytes apart.

        A row without a partner makes pairs with zeros; so do columns outside the mask.
        """
        f = self.f
        size, lane = DTYPES[self.dtype].size, f"i{DTYPES[self.dtype].bits}"
        origin = f.element_at(self.source, column, size)

        def row(k: Value) -> Value:
            place = f.offset(origin, f.binary("mul", k, self.along))
            if mask is not None:
                return f.load_where(mask, place, lane)
            return f.load(place, lane, width)

        def one(k: Value) -> None:
            f.store(_widened(f, self.dtype, row(k)), f.element_at(target, k, pitch))

        def two(step: Value, alone: bool) -> None:
            k = f.binary("shl", step, f.integer(1))
            even = row(k)
            odd = f.like(even, 0) if alone else row(f.binary("add", k, f.integer(1)))
            f.store(_pair(f, self.dtype, even, odd), f.element_at(target, step, pitch))

        zero = f.integer(0)
        if not self.pairs:
            f.loop(zero, self.depth, 1, one)
            return
        whole = f.binary("lshr", self.depth, f.integer(1))
        f.loop(zero, whole, 1, lambda step: two(step, False))
        f.loop(whole, _steps(f, self.depth, True), 1, lambda step: two(step, True))


@dataclass(frozen=True, slots=True)
class Load:
    """Make the image of a tile [K, M], and a copy of the tile without gaps.

    Words: image, copy, tile, K, M, the byte stride between rows of the tile. Elements of a row are
    adjacent.
    """

    dtype: str
    pairs: bool

    def text(self, name: str) -> str:
        f = FunctionText(name)
        image, copy, source = (f.word(index, "ptr") for index in range(3))
        depth, columns, along = (f.word(index) for index in range(3, 6))
        row_bytes = f.binary("mul", columns, f.integer(DTYPES[self.dtype].size))
        zero = f.integer(0)

        def kept(k: Value) -> None:
            later = f.binary("mul", f.binary("add", k, f.integer(GROUP)), along)
            line = f.offset(source, later)
            f.loop(zero, row_bytes, CACHE_LINE, lambda byte: f.prefetch(f.offset(line, byte)))
            origin = f.offset(source, f.binary("mul", k, along))
            f.copy_bytes(f.offset(copy, f.binary("mul", k, row_bytes)), origin, row_bytes)

        f.loop(zero, depth, 1, kept)
        panels = f.offset(image, f.integer(HEADER))
        lines = _steps(f, depth, self.pairs)
        packing = Packing(f, self.dtype, self.pairs, depth, source, along)

        def pack(column: Value, mask: Value | None = None) -> None:
            packing.columns(column, GROUP, _panel(f, panels, lines, column), _LINE, mask)

        whole = f.binary("and", columns, f.integer(-GROUP))
        f.loop(zero, whole, GROUP, pack)
        inside = _first(f, f.binary("sub", columns, whole), GROUP)
        f.loop(whole, columns, GROUP, lambda column: pack(column, inside))
        for word, value in (
            (Word.pairs, f.integer(int(self.pairs))),
            (Word.depth, depth),
            (Word.columns, columns),
            (Word.dtype, f.integer(DTYPES[self.dtype].code)),
            (Word.loads, f.binary("add", _header(f, image, Word.loads), f.integer(1))),
        ):
            f.store(value, f.element_at(image, f.integer(word), WORD))
        if self.pairs:
            rounded = f.binary(
                "and", f.binary("add", columns, f.integer(GROUP - 1)), f.integer(-GROUP)
            )
            least = _smallest(f, panels, f.binary("mul", lines, rounded), GROUP)
            f.store(least, f.element_at(image, f.integer(Word.smallest), WORD))
        return f.text()


@dataclass(frozen=True, slots=True)
class Expect:
    """Say in the header of an image if it is not of a [K, M] tile of a dtype.

    Words: image, K, M, the dtype's code.
    """

    def text(self, name: str) -> str:
        f = FunctionText(name)
        _refuse(
            f,
            f.word(0, "ptr"),
            {Word.depth: f.word(1), Word.columns: f.word(2), Word.dtype: f.word(3)},
        )
        return f.text()


def _refuse(f: FunctionText, image: Value, expected: Mapping[Word, Value]) -> Value:
    """Whether the header holds these words; else it says that the tile was refused."""
    fits = f.constant("i1", 1)
    for word, value in expected.items():
        fits = f.binary("and", fits, f.compare("icmp eq", _header(f, image, word), value))
    refused = f.convert("zext", f.binary("xor", fits, f.like(fits, 1)), "i64")
    place = f.element_at(image, f.integer(Word.refused), WORD)
    f.store(f.binary("or", refused, f.load(place, "i64")), place)
    return fits


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
            self.in_pairs = f.compare("icmp ne", _header(f, self.image, Word.pairs), self.zero)
            self.widened = f.scratch("float", DEEPEST * WIDEST)
            self.is_widened = f.scratch("i64", 1)
            f.store(self.zero, self.is_widened)

    def text(self) -> str:
        f = self.f
        fits = _refuse(f, self.image, {Word.depth: self.depth, Word.columns: self.rows})
        f.when(fits, self._strips)
        return f.text()

    def _strips(self) -> None:
        f, block = self.f, self.block
        size = block.vectors * block.width
        end = f.binary("sub", self.columns, f.binary("urem", self.columns, f.integer(size)))
        f.loop(self.zero, end, size, partial(self._strip, vectors=block.vectors))
        f.loop(end, self.columns, block.width, partial(self._strip, vectors=1))

    def _strip(self, first: Value, vectors: int) -> None:
        """All results of a strip of columns from `first` on; of fewer than a vector has lanes, if
        it is one vector wide."""
        f = self.f
        if not self.pairs:
            self._pack(first, vectors, False)
            self._fused(first, vectors)
            return
        self._pack(first, vectors, True)
        elements = f.binary(
            "mul", _steps(f, self.depth, True), f.integer(vectors * self.block.width)
        )
        usable = f.binary("and", self.in_pairs, self._rule(elements))
        f.when(usable, lambda: self._rows(first, vectors, self.panels, True))

        def widen() -> None:
            self._pack(first, vectors, False)
            self._fused(first, vectors)

        f.when(f.compare("icmp eq", usable, f.like(usable, 0)), widen)

    def _rule(self, elements: Value) -> Value:
        """Whether sums of the products of loaded and packed pairs stay normal, or zero."""
        f = self.f
        exponents = []
        loaded = _header(f, self.image, Word.smallest)
        for less_one in (loaded, _smallest(f, self.strip, elements, self.block.width)):
            magnitude = f.binary("add", less_one, f.integer(1))
            exponents.append(f.binary("lshr", magnitude, f.integer(7)))
        total = f.binary("add", *exponents)
        normal = [f.compare("icmp ne", exponent, self.zero) for exponent in exponents]
        enough = f.compare("icmp uge", total, f.integer(_LEAST_SUM))
        return f.binary("and", enough, f.binary("and", *normal))

    def _pack(self, first: Value, vectors: int, pairs: bool) -> None:
        f, width = self.f, self.block.width
        origin = f.element_at(self.moving, first, DTYPES[self.kernel.moving].size)
        packing = Packing(f, self.kernel.moving, pairs, self.depth, origin, self.along)
        pitch = 4 * vectors * width
        mask = self._mask(first, vectors)
        for v in range(vectors):
            column = f.integer(v * width)
            packing.columns(column, width, f.element_at(self.strip, column, 4), pitch, mask)

    def _mask(self, first: Value, vectors: int) -> Value | None:
        """The columns that there are of a strip of one vector; those of wider ones are there."""
        if vectors > 1:
            return None
        return _first(self.f, self.f.binary("sub", self.columns, first), self.block.width)

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
        steps = _steps(f, self.depth, True)

        def group(column: Value) -> None:
            origin = _panel(f, self.panels, steps, column)
            target = _panel(f, self.widened, self.depth, column)

            def line(k: Value) -> None:
                place = f.element_at(origin, f.binary("lshr", k, f.integer(1)), _LINE)
                pairs = f.load(place, "i32", GROUP)
                odd = f.compare("icmp ne", f.binary("and", k, f.integer(1)), self.zero)
                shift = f.select(odd, f.constant("i32", 16), f.constant("i32", 0))
                moved = f.binary("shl", pairs, f.splat(shift, GROUP))
                value = f.binary("and", moved, f.like(pairs, _UPPER))
                f.store(value, f.element_at(target, k, _LINE))

            f.loop(self.zero, self.depth, 1, line)

        f.loop(self.zero, self.rows, GROUP, group)
        f.store(f.integer(1), self.is_widened)

    def _rows(self, first: Value, vectors: int, panels: Value, pairs: bool) -> None:
        """The results of all rows, a block at a time."""
        f, block = self.f, self.block
        lines = _steps(f, self.depth, pairs)
        mask = self._mask(first, vectors)

        def step(k: Value, panel: Value, sums: Sequence[Value]) -> list[Value]:
            line = f.element_at(self.strip, k, 4 * vectors * block.width)
            factors = f.element_at(panel, k, _LINE)
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
            if vectors > 1:
                self._announce(row, first)
            panel = _panel(f, panels, lines, row)
            start = [f.constant("float", 0.0, block.width)] * (block.rows * vectors)
            sums = f.loop(self.zero, lines, 1, lambda k, *sums: step(k, panel, sums), start)
            for i in range(block.rows):
                index = f.binary("add", row, f.integer(i))
                part = sums[i * vectors : (i + 1) * vectors]
                inside = f.compare("icmp slt", index, self.rows)
                f.when(inside, partial(self._finish, index, first, part, mask))

        f.loop(self.zero, self.rows, block.rows, rows)

    def _announce(self, row: Value, first: Value) -> None:
        """Hint at memory that comes next, which lies a partition apart from row to row: the results
        of a block, and a part of the strip after the next one (in the row of that number)."""
        f, block = self.f, self.block
        size = block.vectors * block.width
        output, moving = (DTYPES[name].size for name in (self.kernel.output, self.kernel.moving))
        results = f.element_at(self.target, first, output)
        later = f.element_at(self.moving, f.binary("add", first, f.integer(_AHEAD * size)), moving)
        for i in range(block.rows):
            index = f.binary("add", row, f.integer(i))
            line = f.offset(results, f.binary("mul", index, self.down))
            for offset in range(0, size * output, CACHE_LINE):
                f.prefetch(f.offset(line, f.integer(offset)), write=True)
            line = f.offset(later, f.binary("mul", index, self.along))
            for offset in range(0, size * moving, CACHE_LINE):
                f.prefetch(f.offset(line, f.integer(offset)))

    def _sum(self, factor: Value, moving: Value, total: Value) -> Value:
        f = self.f
        if factor.element == "i32":
            return dot_of_pairs(f, factor, moving, total)
        if self.block.fused:
            return f.intrinsic("fma", factor, moving, total)
        return _fma(f, factor, moving, total)

    def _finish(self, row: Value, first: Value, sums: list[Value], mask: Value | None) -> None:
        """Store the sums of a row, or those of columns for which the mask holds."""
        f, kernel, width = self.f, self.kernel, self.block.width
        output = DTYPES[kernel.output]
        line = f.offset(self.target, f.binary("mul", row, self.down))
        line = f.element_at(line, first, output.size)
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


def _fma(f: FunctionText, left: Value, right: Value, addend: Value) -> Value:
    """left * right + addend in fp32 vectors, rounded once, without an instruction for it.

    The product is exact in double. The sum is rounded to odd: where it is not exact, its last bit
    is set, towards the exact value, so that rounding it to fp32 gives what rounding the exact value
    would (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums", IEEE Transactions
    on Computers 57, 2008).
    """
    a, b, c = (f.convert("fpext", value, "double") for value in (left, right, addend))
    product = f.binary("fmul", a, b)
    total = f.binary("fadd", product, c)
    taken = f.binary("fsub", total, product)
    rest = f.binary("fsub", product, f.binary("fsub", total, taken))
    error = f.binary("fadd", rest, f.binary("fsub", c, taken))
    pattern, sign = (f.convert("bitcast", value, "i64") for value in (total, error))
    # Away from zero where the error has the sign of the sum, else towards it.
    differ = f.compare("icmp slt", f.binary("xor", pattern, sign), f.like(pattern, 0))
    step = f.select(differ, f.like(pattern, -1), f.like(pattern, 1))
    even = f.compare("icmp eq", f.binary("and", pattern, f.like(pattern, 1)), f.like(pattern, 0))
    inexact = f.compare("fcmp one", error, f.like(error, 0.0))
    odd = f.select(f.binary("and", even, inexact), f.binary("add", pattern, step), pattern)
    return f.convert("fptrunc", f.convert("bitcast", odd, "double"), "float")
