"""How the image of a loaded tile lies in memory: its header, and panels or lines of pairs."""

from __future__ import annotations

from enum import IntEnum

from simulator.memory import LINE as CACHE_LINE
from simulator.native.codegen.levels import Form
from simulator.native.codegen.text import WORD, FunctionText, Value
from simulator.numerics.matmul import SHORT

HEADER = 192
"""Bytes before the panels of an image: words at `Word`."""


class Word(IntEnum):
    """Words of an image's header.

    `form`: what it consists of, a `Form`. `depth`, `columns`, `dtype`: of the tile, with the
    dtype's code; a depth of 0 says that there is none. `source`, `along`: where the tile's elements
    are, and the bytes between its rows. `loads`: how often a tile was loaded. `refused`: an
    instruction found another tile than it takes. `maker`: the address of what makes panels; those
    of the columns from `first` to `end` are made. `short`: whether products with it are sums of
    short chains, if the moving tile's dtype allows it too (`simulator.numerics.matmul`). `pending`:
    of `simulator.native.loop.tensor_queue`. `kept`: the address of the memory for packed strips of
    moving tiles (`simulator.native.matmul.packed_strips`), or 0; `origin` is that of SBUF, whose
    partitions are `pitch` bytes apart. `smallest`: the first of a word for each chunk of columns,
    the smallest of `magnitudes_less_one` of its pairs.
    """

    form = 0
    depth = 1
    columns = 2
    dtype = 3
    loads = 4
    refused = 5
    maker = 6
    short = 7
    source = 8
    along = 9
    first = 10
    end = 11
    pending = 12
    kept = 13
    origin = 14
    pitch = 15
    smallest = 16


GROUP = 8
"""Columns of a panel. A block of results has as many rows, or a divisor of it."""

DEEPEST = 512
"""The largest K: four times the rows of the PE array, which may hold packed elements of four values
(SDK nki/guides/architecture/trainium3_arch.rst, Quad-MXFP8/MXFP4 matmul performance)."""

WIDEST = 128
"""Columns of the PE array: the largest M."""

LINE = 4 * GROUP
"""Bytes of a line of a panel."""

CHUNK = 2 * GROUP
"""Columns that are loaded together. There is space for panels up to a multiple of them."""

PITCH = 2 * DEEPEST + CACHE_LINE
"""Bytes between the lines of an image for matrix registers."""

GROUP_DEPTH = 2 * SHORT
"""Rows of a line of 16 pairs: two short chains."""


def image_bytes(depth: int, columns: int) -> int:
    """Space for an image of a [depth, columns] tile, of any form."""
    lines = PITCH * CHUNK * -(-columns // CHUNK)
    return HEADER + max(panels_bytes(depth + depth % 2, columns), lines)


def panels_bytes(lines: int, columns: int) -> int:
    """Size of the panels of so many columns. There is a gap between panels, so that lines of the
    same number do not take turns in one set of the cache."""
    return (lines * LINE + CACHE_LINE) * (CHUNK // GROUP) * -(-columns // CHUNK)


def header_word(f: FunctionText, image: Value, word: Word) -> Value:
    return f.load(f.element_at(image, f.integer(word), WORD), "i64")


def set_header_word(f: FunctionText, image: Value, word: Word, value: Value) -> None:
    f.store(value, f.element_at(image, f.integer(word), WORD))


def smallest_at(f: FunctionText, image: Value, column: Value) -> Value:
    """Where the `smallest` of the chunk of a column is."""
    number = f.binary("lshr", column, f.integer(CHUNK.bit_length() - 1))
    return f.element_at(f.element_at(image, f.integer(Word.smallest), WORD), number, WORD)


def lines_of(f: FunctionText, depth: Value, form: Form) -> Value:
    """Lines of a panel or strip: one for each k, or each two; whole groups for matrix registers."""
    if form is Form.wide:
        return depth
    if form is Form.pairs:
        return f.binary("lshr", depth + 1, f.integer(1))
    return whole_lines(f, depth + (GROUP_DEPTH - 1), form)


def whole_lines(f: FunctionText, depth: Value, form: Form) -> Value:
    """Lines whose rows are all there, or, for matrix registers, are in whole groups."""
    depth_of, lines = (GROUP_DEPTH, SHORT) if form is Form.tiles else (2, 1)
    whole = f.binary("lshr", depth, f.integer(depth_of.bit_length() - 1))
    return whole * lines


def panel_at(f: FunctionText, panels: Value, lines: Value, column: Value) -> Value:
    """Where a column's first element is, in the panels of that many lines."""
    group = f.binary("lshr", column, f.integer(GROUP.bit_length() - 1))
    size = lines * LINE + CACHE_LINE
    panel = panels + group * size
    return f.element_at(panel, column & (GROUP - 1), 4)
