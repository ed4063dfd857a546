"""Tiles of the PE array as the inner loops of products read them: images, and strips.

A loaded tile is kept as its *image*: a header and panels, which are groups of columns in the order
in which the inner loop takes them. Panels are made when something multiplies by the tile: one that
is only transposed needs none. Elements are fp32 (*wide*), or *pairs*: two rows k and k + 1 of
elements that bfloat16 holds exactly, the first row in the upper half of 32 bits. For matrix
registers (*tiles*, `simulator.native.matmul.gemm_tiles`) an image has a line for each column
instead of panels, and pairs of rows k and k + 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from isa.dtypes import DTYPES
from simulator.memory import LINE as CACHE_LINE
from simulator.native.codegen import ports
from simulator.native.codegen.levels import Form
from simulator.native.codegen.structure import StructureText
from simulator.native.codegen.text import WORD, FunctionText, Value
from simulator.native.matmul.image_layout import (
    CHUNK,
    GROUP,
    HEADER,
    LINE,
    PITCH,
    Word,
    header_word,
    lines_of,
    panel_at,
    set_header_word,
    smallest_at,
    whole_lines,
)
from simulator.native.rows.copy import transposed
from simulator.numerics.matmul import SHORT, fits_short

_ROWS_AHEAD = 16
"""Rows between the one that is loaded and the one that is hinted at."""

_MAGNITUDES = 0x7FFF7FFF


def _widened(f: FunctionText, dtype: str, stored: Value) -> Value:
    """The bits of stored elements as fp32."""
    return f.convert("bitcast", ports.decode(f, dtype, stored), "i32")


def _pair(f: FunctionText, dtype: str, first: Value, second: Value) -> Value:
    """Stored elements of two rows as pairs."""
    width = first.width
    if DTYPES[dtype].bits == 16:  # They are bfloat16 already.
        lanes = [lane for i in range(width) for lane in (i, width + i)]
        return f.reinterpret(f.shuffle(second, first, lanes), "i32", width)
    upper, lower = (_widened(f, dtype, stored) for stored in (first, second))
    return upper | f.binary("lshr", lower, f.like(lower, 16))


def magnitudes_less_one(f: FunctionText, pairs: Value) -> Value:
    """The magnitudes of both halves of pairs, less one; that of zero counts as 0xFFFF."""
    magnitudes = pairs & _MAGNITUDES
    halves = f.reinterpret(magnitudes, "i16", 2 * pairs.width)
    return halves - 1


def least_of(f: FunctionText, numbers: Value) -> Value:
    """The least of unsigned 16-bit numbers, as an i64."""
    function = f"llvm.vector.reduce.umin.v{numbers.width}i16"
    return f.convert("zext", f.call(function, "i16", 0, numbers), "i64")


def _first_row(f: FunctionText, line: Value, form: Form) -> Value:
    """The first k of a line of pairs."""
    if form is Form.pairs:
        return line << 1
    return line + (line & -SHORT)


_APART = {Form.pairs: 1, Form.tiles: SHORT}
"""How far the second row of a pair is from the first."""


@dataclass(frozen=True, slots=True)
class ImagePacking:
    """Emits the packing of rows of memory into lines of `vectors` vectors of 32-bit elements."""

    f: FunctionText
    dtype: str
    form: Form
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
        f, form = self.f, self.form

        def one(k: Value, *held: Value) -> Sequence[Value]:
            stored = self._row(source + k * along, mask)
            return keep(k, [_widened(f, self.dtype, part) for part in stored], *held)

        def two(uncertain: bool, line: Value, *held: Value) -> Sequence[Value]:
            k = _first_row(f, line, form)
            rows = []
            for after in (0, _APART[form]):
                number = k + after
                rows.append(self.row_or_zero(number, depth, source, along, mask, uncertain))
            pairs = [_pair(f, self.dtype, *both) for both in zip(*rows)]
            return keep(line, pairs, *held)

        zero = f.integer(0)
        if form is Form.wide:
            return f.loop(zero, depth, 1, one, carried)
        whole = whole_lines(f, depth, form)
        held = f.loop(zero, whole, 1, partial(two, False), carried)
        return f.loop(whole, lines_of(f, depth, form), 1, partial(two, True), held)

    def row_or_zero(
        self,
        k: Value,
        depth: Value,
        source: Value,
        along: Value,
        mask: Value | None,
        uncertain: bool = True,
    ) -> list[Value]:
        """Stored elements of row k; zeros where it is `uncertain` whether it is there, and not."""
        f = self.f
        if not uncertain:
            return self._row(source + k * along, mask)
        there = f.compare("icmp slt", k, depth)
        place = f.select(there, k, f.integer(0)) * along
        return [
            f.select(f.splat(there, part.width), part, f.like(part, 0))
            for part in self._row(source + place, mask)
        ]

    def _row(self, line: Value, mask: Value | None) -> list[Value]:
        f = self.f
        size, lane = DTYPES[self.dtype].size, f"i{DTYPES[self.dtype].bits}"
        if mask is not None:
            return [f.load_where(mask, line, lane)]
        return [f.load(line + v * self.width * size, lane, self.width) for v in range(self.vectors)]


TILE = ("image", "tile", "depth", "columns", "along", "dtype", "maker")
"""The first argument words of what holds a tile [K, M]: K is its depth, `along` the byte stride
between its rows, whose elements are adjacent, `dtype` the dtype's code, and `maker` the address of
the `Image` for it."""


def _hold(f: FunctionText, image: Value, along: Value, source: Value, made: Value) -> None:
    """Write the header for the tile of the argument words `TILE`, whose elements are at `source`
    now; `made`: whether the panels that are made remain."""
    zero = f.integer(0)
    for word, value in (
        *(
            (Word[name], f.word(TILE.index(name)))
            for name in ("depth", "columns", "dtype", "maker")
        ),
        (Word.source, f.convert("ptrtoint", source, "i64")),
        (Word.along, along),
        (Word.loads, header_word(f, image, Word.loads) + 1),
        (Word.end, f.select(made, header_word(f, image, Word.end), zero)),
    ):
        set_header_word(f, image, word, value)


@dataclass(frozen=True, slots=True)
class Hold:
    """Hold a tile [K, M] as long as its memory does not change. Words: `TILE`. Where it is held
    already, what is made of it remains."""

    def text(self, name: str) -> str:
        f = FunctionText(name)
        image, tile = (f.word(index, "ptr") for index in range(2))
        same = {Word.source: f.convert("ptrtoint", tile, "i64")} | {
            Word[name]: f.word(TILE.index(name)) for name in ("depth", "columns", "along", "dtype")
        }
        _hold(f, image, f.word(TILE.index("along")), tile, holds(f, image, same))
        return f.text()


@dataclass(frozen=True, slots=True)
class Load:
    """Hold a tile [K, M], in as many images: a copy of it without gaps.

    Words: `TILE`, then the copy, how many bytes of each row to copy, the number of images, and the
    bytes from one to the next. Images that held the tile keep what is made of it.
    """

    def text(self, name: str) -> str:
        f = FunctionText(name)
        image, tile = (f.word(index, "ptr") for index in range(2))
        depth, along = (f.word(TILE.index(name)) for name in ("depth", "along"))
        used = len(TILE)
        copy, row_bytes = f.word(used, "ptr"), f.word(used + 1)
        whole = row_bytes & -CACHE_LINE

        def row(k: Value) -> None:
            source = tile + k * along
            target = copy + k * row_bytes
            later = source + along * _ROWS_AHEAD

            def line(at: Value) -> None:
                f.prefetch(later + at)
                f.store(f.load(source + at, "i8", CACHE_LINE), target + at)

            def rest() -> None:
                left = row_bytes - whole
                f.prefetch(later + whole)
                f.copy_bytes(target + whole, source + whole, left)

            f.loop(f.integer(0), whole, CACHE_LINE, line)
            f.when(f.compare("icmp ne", whole, row_bytes), rest)

        there = f.compare("icmp eq", tile, copy)

        def header(number: Value) -> None:
            each = image + number * f.word(used + 3)
            place = f.convert("ptrtoint", tile, "i64")
            held = f.compare("icmp eq", header_word(f, each, Word.source), place)
            _hold(f, each, row_bytes, copy, f.select(there, f.constant("i1", 0), held))

        f.loop(f.integer(0), f.select(there, f.integer(0), depth), 1, row)
        f.loop(f.integer(0), f.word(used + 2), 1, header)
        return f.text()


@dataclass(frozen=True, slots=True)
class Image:
    """Make the image of some columns of the tile that is held.

    Words: image, the first column, which begins a chunk, and how many.
    """

    dtype: str
    form: Form

    def text(self, name: str) -> str:
        return _Making(FunctionText(name), self).text()


class _Making:
    """The text of an `Image` while it is written: some columns at a time."""

    def __init__(self, f: FunctionText, kernel: Image) -> None:
        self.f = f
        self.dtype, self.form = kernel.dtype, kernel.form
        self.image = f.word(0, "ptr")
        self.depth, self.along = (
            header_word(f, self.image, word) for word in (Word.depth, Word.along)
        )
        self.tile = f.load(f.element_at(self.image, f.integer(Word.source), WORD), "ptr")
        self.size = DTYPES[kernel.dtype].size
        self.panels = self.image + HEADER
        self.lines = lines_of(f, self.depth, self.form)
        self.packing = ImagePacking(f, kernel.dtype, self.form, CHUNK)

    def text(self) -> str:
        f = self.f
        first, count = f.word(1), f.word(2)
        end = first + count
        whole = end & -CHUNK
        inside = f.below(end - whole, CHUNK)
        f.loop(first, whole, CHUNK, partial(self._chunk, None))
        f.loop(whole, end, CHUNK, partial(self._chunk, inside))
        set_header_word(f, self.image, Word.form, f.integer(self.form))
        short = f.integer(int(fits_short(self.dtype)))
        set_header_word(f, self.image, Word.short, short)
        return f.text()

    def _chunk(self, mask: Value | None, column: Value) -> None:
        f = self.f
        make = self._turned if self.form is Form.tiles else self._panels
        none = [] if self.form is Form.wide else [f.constant("i16", 0xFFFF, 2 * CHUNK)]
        least = make(mask, column, *none)
        if least:
            f.store(least_of(f, *least), smallest_at(f, self.image, column))

    def _panels(self, mask: Value | None, column: Value, *least: Value) -> list[Value]:
        f = self.f
        starts = [
            panel_at(f, self.panels, self.lines, column + first) for first in range(0, CHUNK, GROUP)
        ]

        def keep(line: Value, values: Sequence[Value], *least: Value) -> list[Value]:
            (value,) = values
            for number, start in enumerate(starts):
                lanes = range(GROUP * number, GROUP * (number + 1))
                f.store(f.shuffle(value, value, lanes), f.element_at(start, line, LINE))
            return [smaller(f, known, value) for known in least]

        source = f.element_at(self.tile, column, self.size)
        return self.packing.rows(self.depth, source, self.along, keep, mask, least)

    def _turned(self, mask: Value | None, column: Value, *least: Value) -> list[Value]:
        f = self.f
        source = f.element_at(self.tile, column, self.size)

        def group(line: Value, least: Value) -> list[Value]:
            k = _first_row(f, line, self.form)
            vectors = []
            for i in range(SHORT):
                rows = [
                    self.packing.row_or_zero(
                        k + (i + after),
                        *(self.depth, source, self.along, mask),
                    )[0]
                    for after in (0, SHORT)
                ]
                vectors.append(_pair(f, self.dtype, *rows))
                least = smaller(f, least, vectors[-1])
            target = f.element_at(self.panels, line, 4)
            for i, turned in enumerate(transposed(f, vectors)):
                number = column + i
                f.store(turned, f.element_at(target, number, PITCH))
            return [least]

        return f.loop(f.integer(0), self.lines, SHORT, group, least)


def smaller(f: FunctionText, least: Value, pairs: Value) -> Value:
    """The lesser of the least `magnitudes_less_one` so far and those of pairs, lane by lane."""
    return f.intrinsic("umin", least, magnitudes_less_one(f, pairs))


def make_columns(f: StructureText, image: Value, first: Value, count: Value) -> None:
    """Make the image of some columns of the tile that is held, unless it is made."""
    words = f.scratch("i64", 4)
    end = first + count
    before = f.compare("icmp slt", first, header_word(f, image, Word.first))
    behind = f.compare("icmp sgt", end, header_word(f, image, Word.end))

    def make() -> None:
        for number, value in enumerate((image, first, count)):
            f.store(value, f.element_at(words, f.integer(number), WORD))
        f.call_address(f.load(f.element_at(image, f.integer(Word.maker), WORD), "ptr"), words)
        set_header_word(f, image, Word.first, first)
        set_header_word(f, image, Word.end, end)

    f.when(before | behind, make)


@dataclass(frozen=True, slots=True)
class Make:
    """Make the whole image of the [K, M] tile that is held, if one of this shape is held.

    Words: image, K, M.
    """

    def text(self, name: str) -> str:
        f = StructureText(name)
        image, depth, columns = f.word(0, "ptr"), f.word(1), f.word(2)

        def make() -> None:
            make_columns(f, image, f.integer(0), columns)

        f.when(holds(f, image, {Word.depth: depth, Word.columns: columns}), make)
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


def holds(f: FunctionText, image: Value, expected: Mapping[Word, Value]) -> Value:
    """Whether the header holds these words."""
    fits = f.constant("i1", 1)
    for word, value in expected.items():
        fits = fits & f.compare("icmp eq", header_word(f, image, word), value)
    return fits


def refuse_others(f: FunctionText, image: Value, expected: Mapping[Word, Value]) -> Value:
    """Whether the header holds these words; else it says that the tile was refused."""
    fits = holds(f, image, expected)
    refused = f.convert("zext", fits ^ 1, "i64")
    place = f.element_at(image, f.integer(Word.refused), WORD)
    f.store(refused | f.load(place, "i64"), place)
    return fits
