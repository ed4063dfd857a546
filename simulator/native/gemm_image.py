"""Tiles of the PE array as the inner loops of products read them: images, and strips.

A loaded tile is kept as its *image*: a header and panels, which are groups of columns in the order
in which the inner loop takes them. Elements are fp32 (*wide*), or *pairs*: two rows k and k + 1 of
elements that bfloat16 holds exactly, the first row in the upper half of 32 bits.
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

    `pairs`: whether its panels are pairs; `smallest`: their smallest non-zero magnitude, as
    `smallest_magnitude` gives it. `depth`, `columns`, `dtype`: of the tile, with the dtype's code;
    a depth of 0 says that there is none. `loads`: how often a tile was loaded. `refused`: an
    instruction found another tile than it takes.
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

LINE = 4 * GROUP
"""Bytes of a line of a panel."""

CHUNK = 2 * GROUP
"""Columns that are loaded together. There is space for panels up to a multiple of them."""

_ROWS_AHEAD = 16
"""Rows between the one that is loaded and the one that is hinted at."""

_MAGNITUDES = 0x7FFF7FFF


def fits_pairs(dtype: str) -> bool:
    """Whether bfloat16 holds every value of a dtype exactly."""
    row, pair = DTYPES[dtype], DTYPES["bfloat16"]
    if row.is_float:
        return row.mantissa_bits <= pair.mantissa_bits and row.exponent_bits <= pair.exponent_bits
    return row.kind is DTypeKind.boolean or (row.is_integer and row.size == 1)


def image_bytes(depth: int, columns: int) -> int:
    """Size of the image of a [depth, columns] tile."""
    return HEADER + panels_bytes(depth + depth % 2, columns)


def panels_bytes(lines: int, columns: int) -> int:
    """Size of the panels of so many columns. There is a gap between panels, so that lines of the
    same number do not take turns in one set of the cache."""
    return (lines * LINE + CACHE_LINE) * (CHUNK // GROUP) * -(-columns // CHUNK)


def _widened(f: FunctionText, dtype: str, stored: Value) -> Value:
    """The bits of stored elements as fp32."""
    return f.convert("bitcast", ports.decode(f, dtype, stored), "i32")


def _pair(f: FunctionText, dtype: str, even: Value, odd: Value) -> Value:
    """Stored elements of rows k and k + 1 as pairs."""
    second = _widened(f, dtype, odd)
    return f.binary("or", _widened(f, dtype, even), f.binary("lshr", second, f.like(second, 16)))


def magnitudes_less_one(f: FunctionText, pairs: Value) -> Value:
    """The magnitudes of both halves of pairs, less one; that of zero counts as 0xFFFF."""
    magnitudes = f.binary("and", pairs, f.like(pairs, _MAGNITUDES))
    halves = f.reinterpret(magnitudes, "i16", 2 * pairs.width)
    return f.binary("sub", halves, f.like(halves, 1))


def least_of(f: FunctionText, numbers: Value) -> Value:
    """The least of unsigned 16-bit numbers, as an i64."""
    function = f"llvm.vector.reduce.umin.v{numbers.width}i16"
    return f.convert("zext", f.call(function, "i16", 0, numbers), "i64")


def smallest_magnitude(f: FunctionText, start: Value, elements: Value, width: int) -> Value:
    """The smallest of `magnitudes_less_one` of pairs, as an i64. `elements`: how many, a multiple
    of the width."""

    def step(index: Value, least: Value) -> list[Value]:
        pairs = f.load(f.element_at(start, index, 4), "i32", width)
        return [f.intrinsic("umin", least, magnitudes_less_one(f, pairs))]

    first = f.constant("i16", 0xFFFF, 2 * width)
    return least_of(f, f.loop(f.integer(0), elements, width, step, [first])[0])


def header_word(f: FunctionText, image: Value, word: Word) -> Value:
    return f.load(f.element_at(image, f.integer(word), WORD), "i64")


def lines_of(f: FunctionText, depth: Value, pairs: bool) -> Value:
    """Lines of a panel or strip: one for each k, or each two."""
    if not pairs:
        return depth
    return f.binary("lshr", f.binary("add", depth, f.integer(1)), f.integer(1))


def panel_at(f: FunctionText, panels: Value, lines: Value, column: Value) -> Value:
    """Where a column's first element is, in the panels of that many lines."""
    group = f.binary("lshr", column, f.integer(GROUP.bit_length() - 1))
    size = f.binary("add", f.binary("mul", lines, f.integer(LINE)), f.integer(CACHE_LINE))
    panel = f.offset(panels, f.binary("mul", group, size))
    return f.element_at(panel, f.binary("and", column, f.integer(GROUP - 1)), 4)


def first_lanes(f: FunctionText, count: Value, width: int) -> Value:
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
        f.loop(whole, lines_of(f, self.depth, True), 1, lambda step: two(step, True))


@dataclass(frozen=True, slots=True)
class Load:
    """Make the image of a tile [K, M], and a copy of the tile without gaps.

    Words: image, copy, tile, K, M, the byte stride between rows of the tile. Elements of a row are
    adjacent.
    """

    dtype: str
    pairs: bool

    def text(self, name: str) -> str:
        return _Loading(FunctionText(name), self).text()


class _Loading:
    """The text of a `Load` while it is written: row by row, as the tile lies in memory."""

    def __init__(self, f: FunctionText, kernel: Load) -> None:
        self.f = f
        self.dtype = kernel.dtype
        self.pairs = kernel.pairs
        self.size = DTYPES[kernel.dtype].size
        self.image, self.copy, self.source = (f.word(index, "ptr") for index in range(3))
        self.depth, self.columns, self.along = (f.word(index) for index in range(3, 6))
        self.row_bytes = f.binary("mul", self.columns, f.integer(self.size))
        self.panels = f.offset(self.image, f.integer(HEADER))
        self.lines = lines_of(f, self.depth, self.pairs)

    def text(self) -> str:
        f = self.f
        none = f.constant("i16", 0xFFFF, 2 * CHUNK)
        (least,) = f.loop(f.integer(0), self.lines, 1, self._line, [none])
        for word, value in (
            (Word.pairs, f.integer(int(self.pairs))),
            (Word.depth, self.depth),
            (Word.columns, self.columns),
            (Word.dtype, f.integer(DTYPES[self.dtype].code)),
            (Word.loads, f.binary("add", header_word(f, self.image, Word.loads), f.integer(1))),
            (Word.smallest, least_of(f, least)),
        ):
            f.store(value, f.element_at(self.image, f.integer(word), WORD))
        return f.text()

    def _line(self, line: Value, least: Value) -> list[Value]:
        """A line of all panels, from one row of the tile or two."""
        f, zero = self.f, self.f.integer(0)
        k = f.binary("shl", line, f.integer(1)) if self.pairs else line
        source = f.offset(self.source, f.binary("mul", k, self.along))
        copy = f.offset(self.copy, f.binary("mul", k, self.row_bytes))
        rows = [(source, copy)]
        alone = None
        if self.pairs:
            # A row without a partner stands in for it, and makes pairs with zeros.
            alone = f.compare("icmp eq", f.binary("add", k, f.integer(1)), self.depth)
            steps = (f.select(alone, zero, step) for step in (self.along, self.row_bytes))
            rows.append((f.offset(source, next(steps)), f.offset(copy, next(steps))))
        target = f.element_at(self.panels, line, LINE)
        whole = f.binary("and", self.columns, f.integer(-CHUNK))
        inside = first_lanes(f, f.binary("sub", self.columns, whole), CHUNK)

        def chunk(mask: Value | None, column: Value, least: Value) -> list[Value]:
            return [self._chunk(rows, alone, target, column, mask, least)]

        carried = f.loop(zero, whole, CHUNK, partial(chunk, None), [least])
        return f.loop(whole, self.columns, CHUNK, partial(chunk, inside), carried)

    def _chunk(
        self,
        rows: Sequence[tuple[Value, Value]],
        alone: Value | None,
        target: Value,
        column: Value,
        mask: Value | None,
        least: Value,
    ) -> Value:
        """Some columns of a line; the smallest magnitudes so far."""
        f = self.f
        lane = f"i{8 * self.size}"
        stored = []
        for source, copy in rows:
            place, kept = (f.element_at(row, column, self.size) for row in (source, copy))
            later = f.binary("mul", self.along, f.integer(_ROWS_AHEAD))
            f.prefetch(f.offset(place, later))
            if mask is None:
                stored.append(f.load(place, lane, CHUNK))
                f.store(stored[-1], kept)
            else:
                stored.append(f.load_where(mask, place, lane))
                f.store_where(mask, stored[-1], kept)
        if alone is None:
            values = _widened(f, self.dtype, stored[0])
        else:
            odd = f.select(f.splat(alone, CHUNK), f.like(stored[1], 0), stored[1])
            values = _pair(f, self.dtype, stored[0], odd)
            least = f.intrinsic("umin", least, magnitudes_less_one(f, values))
        for first in range(0, CHUNK, GROUP):
            part = f.shuffle(values, values, range(first, first + GROUP))
            moved = f.binary("add", column, f.integer(first))
            f.store(part, panel_at(f, target, self.lines, moved))
        return least


@dataclass(frozen=True, slots=True)
class Expect:
    """Say in the header of an image if it is not of a [K, M] tile of a dtype.

    Words: image, K, M, the dtype's code.
    """

    def text(self, name: str) -> str:
        f = FunctionText(name)
        refuse_others(
            f,
            f.word(0, "ptr"),
            {Word.depth: f.word(1), Word.columns: f.word(2), Word.dtype: f.word(3)},
        )
        return f.text()


def refuse_others(f: FunctionText, image: Value, expected: Mapping[Word, Value]) -> Value:
    """Whether the header holds these words; else it says that the tile was refused."""
    fits = f.constant("i1", 1)
    for word, value in expected.items():
        fits = f.binary("and", fits, f.compare("icmp eq", header_word(f, image, word), value))
    refused = f.convert("zext", f.binary("xor", fits, f.like(fits, 1)), "i64")
    place = f.element_at(image, f.integer(Word.refused), WORD)
    f.store(f.binary("or", refused, f.load(place, "i64")), place)
    return fits
