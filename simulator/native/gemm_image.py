"""Tiles of the PE array as the inner loops of products read them: images, and strips.

A loaded tile is kept as its *image*: a header and panels, which are groups of columns in the order
in which the inner loop takes them. Elements are fp32 (*wide*), or *pairs*: two rows k and k + 1 of
elements that bfloat16 holds exactly, the first row in the upper half of 32 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

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

_MAGNITUDES = 0x7FFF7FFF


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


def smallest_magnitude(f: FunctionText, start: Value, elements: Value, width: int) -> Value:
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
    panel = f.offset(panels, f.binary("mul", group, f.binary("mul", lines, f.integer(LINE))))
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
        lines = lines_of(f, depth, self.pairs)
        # From the copy, whose rows lie on few pages.
        packing = Packing(f, self.dtype, self.pairs, depth, copy, row_bytes)

        def pack(column: Value, mask: Value | None = None) -> None:
            packing.columns(column, GROUP, panel_at(f, panels, lines, column), LINE, mask)

        whole = f.binary("and", columns, f.integer(-GROUP))
        f.loop(zero, whole, GROUP, pack)
        inside = first_lanes(f, f.binary("sub", columns, whole), GROUP)
        f.loop(whole, columns, GROUP, lambda column: pack(column, inside))
        for word, value in (
            (Word.pairs, f.integer(int(self.pairs))),
            (Word.depth, depth),
            (Word.columns, columns),
            (Word.dtype, f.integer(DTYPES[self.dtype].code)),
            (Word.loads, f.binary("add", header_word(f, image, Word.loads), f.integer(1))),
        ):
            f.store(value, f.element_at(image, f.integer(word), WORD))
        if self.pairs:
            rounded = f.binary(
                "and", f.binary("add", columns, f.integer(GROUP - 1)), f.integer(-GROUP)
            )
            least = smallest_magnitude(f, panels, f.binary("mul", lines, rounded), GROUP)
            f.store(least, f.element_at(image, f.integer(Word.smallest), WORD))
        return f.text()


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
