"""Tiles of the PE array as the inner loops of products read them: images, and strips.

A loaded tile is kept as its *image*: a header and panels, which are groups of columns in the order
in which the inner loop takes them. Panels are made when something multiplies by the tile: one that
is only transposed needs none. Elements are fp32 (*wide*), or *pairs*: two rows k and k + 1 of
elements that bfloat16 holds exactly, the first row in the upper half of 32 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from isa.dtypes import DTYPES, DTypeKind
from simulator.native import ports
from simulator.native.structure import StructureText
from simulator.native.text import WORD, FunctionText, Value

HEADER = 64
"""Bytes before the panels of an image: words at `Word`."""


class Word(IntEnum):
    """Words of an image's header.

    `pairs`: whether its panels are pairs; `smallest`: their smallest non-zero magnitude, as
    `smallest_magnitude` gives it. `depth`, `columns`, `dtype`: of the tile, with the dtype's code;
    a depth of 0 says that there is none. `loads`: how often a tile was loaded. `refused`: an
    instruction found another tile than it takes. `maker`: the address of what makes the panels, 0
    if they are made.
    """

    pairs = 0
    smallest = 1
    depth = 2
    columns = 3
    dtype = 4
    loads = 5
    refused = 6
    maker = 7


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


@dataclass(frozen=True, slots=True)
class Packing:
    """Emits the packing of rows of memory into lines of `vectors` vectors of 32-bit elements."""

    f: FunctionText
    dtype: str
    pairs: bool
    width: int
    vectors: int = 1

    def rows(
        self,
        depth: Value,
        source: Value,
        along: Value,
        keep: Callable[..., Sequence[Value]],
        mask: Value | None = None,
        carried: Sequence[Value] = (),
    ) -> list[Value]:
        """Pack the elements at the beginning of `depth` rows, `along` bytes apart: for each line
        `carried = keep(line, vectors, *carried)`; the last carried.

        A row without a partner makes pairs with zeros; so do columns outside the mask, which is for
        one vector.
        """
        f = self.f
        size, lane = DTYPES[self.dtype].size, f"i{DTYPES[self.dtype].bits}"

        def row(k: Value) -> list[Value]:
            line = f.offset(source, f.binary("mul", k, along))
            if mask is not None:
                return [f.load_where(mask, line, lane)]
            return [
                f.load(f.offset(line, f.integer(v * self.width * size)), lane, self.width)
                for v in range(self.vectors)
            ]

        def one(k: Value, *held: Value) -> Sequence[Value]:
            return keep(k, [_widened(f, self.dtype, stored) for stored in row(k)], *held)

        def two(alone: bool, line: Value, *held: Value) -> Sequence[Value]:
            k = f.binary("shl", line, f.integer(1))
            even = row(k)
            if alone:
                odd = [f.like(stored, 0) for stored in even]
            else:
                odd = row(f.binary("add", k, f.integer(1)))
            return keep(line, [_pair(f, self.dtype, *both) for both in zip(even, odd)], *held)

        zero = f.integer(0)
        if not self.pairs:
            return f.loop(zero, depth, 1, one, carried)
        whole = f.binary("lshr", depth, f.integer(1))
        held = f.loop(zero, whole, 1, partial(two, False), carried)
        return f.loop(whole, lines_of(f, depth, True), 1, partial(two, True), held)


@dataclass(frozen=True, slots=True)
class Load:
    """Hold a tile [K, M]: a copy of it without gaps, of which the image is made when it is needed.

    Words: image, copy, tile, K, M, the byte stride between rows of the tile, the bytes of a row,
    the dtype's code, the address of the `Image` for the dtype. Elements of a row are adjacent.
    """

    def text(self, name: str) -> str:
        f = FunctionText(name)
        image, copy, tile = (f.word(index, "ptr") for index in range(3))
        depth, columns, along, row_bytes, code, maker = (f.word(index) for index in range(3, 9))
        whole = f.binary("and", row_bytes, f.integer(-CACHE_LINE))

        def row(k: Value) -> None:
            source = f.offset(tile, f.binary("mul", k, along))
            target = f.offset(copy, f.binary("mul", k, row_bytes))
            later = f.offset(source, f.binary("mul", along, f.integer(_ROWS_AHEAD)))

            def line(at: Value) -> None:
                f.prefetch(f.offset(later, at))
                f.store(f.load(f.offset(source, at), "i8", CACHE_LINE), f.offset(target, at))

            def rest() -> None:
                left = f.binary("sub", row_bytes, whole)
                f.prefetch(f.offset(later, whole))
                f.copy_bytes(f.offset(target, whole), f.offset(source, whole), left)

            f.loop(f.integer(0), whole, CACHE_LINE, line)
            f.when(f.compare("icmp ne", whole, row_bytes), rest)

        f.loop(f.integer(0), depth, 1, row)
        for word, value in (
            (Word.depth, depth),
            (Word.columns, columns),
            (Word.dtype, code),
            (Word.loads, f.binary("add", header_word(f, image, Word.loads), f.integer(1))),
            (Word.maker, maker),
        ):
            f.store(value, f.element_at(image, f.integer(word), WORD))
        return f.text()


@dataclass(frozen=True, slots=True)
class Image:
    """Make the image of the tile that is held.

    Words: image, copy.
    """

    dtype: str
    pairs: bool

    def text(self, name: str) -> str:
        f = FunctionText(name)
        image, copy = f.word(0, "ptr"), f.word(1, "ptr")
        depth, columns = (header_word(f, image, word) for word in (Word.depth, Word.columns))
        size, zero = DTYPES[self.dtype].size, f.integer(0)
        panels, lines = f.offset(image, f.integer(HEADER)), lines_of(f, depth, self.pairs)
        packing = Packing(f, self.dtype, self.pairs, CHUNK)
        along = f.binary("mul", columns, f.integer(size))

        def chunk(mask: Value | None, column: Value, *least: Value) -> list[Value]:
            starts = [
                panel_at(f, panels, lines, f.binary("add", column, f.integer(first)))
                for first in range(0, CHUNK, GROUP)
            ]

            def keep(line: Value, values: Sequence[Value], *least: Value) -> list[Value]:
                (value,) = values
                for number, start in enumerate(starts):
                    lanes = range(GROUP * number, GROUP * (number + 1))
                    f.store(f.shuffle(value, value, lanes), f.element_at(start, line, LINE))
                found = [magnitudes_less_one(f, value)] if least else []
                return [f.intrinsic("umin", *both) for both in zip(least, found)]

            source = f.element_at(copy, column, size)
            return packing.rows(depth, source, along, keep, mask, least)

        whole = f.binary("and", columns, f.integer(-CHUNK))
        inside = first_lanes(f, f.binary("sub", columns, whole), CHUNK)
        least = [f.constant("i16", 0xFFFF, 2 * CHUNK)] if self.pairs else []
        least = f.loop(zero, whole, CHUNK, partial(chunk, None), least)
        least = f.loop(whole, columns, CHUNK, partial(chunk, inside), least)
        for word, value in (
            (Word.pairs, f.integer(int(self.pairs))),
            (Word.smallest, least_of(f, *least) if least else zero),
            (Word.maker, zero),
        ):
            f.store(value, f.element_at(image, f.integer(word), WORD))
        return f.text()


@dataclass(frozen=True, slots=True)
class Prepare:
    """See to it that there is an image of the tile that is held, if any.

    Words: image, copy.
    """

    def text(self, name: str) -> str:
        f = StructureText(name)
        image = f.word(0, "ptr")
        maker = header_word(f, image, Word.maker)
        held = f.compare("icmp ne", header_word(f, image, Word.depth), f.integer(0))
        missing = f.compare("icmp ne", maker, f.integer(0))

        def make() -> None:
            place = f.load(f.element_at(image, f.integer(Word.maker), WORD), "ptr")
            f.call_address(place, f.words)

        f.when(f.binary("and", held, missing), make)
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
