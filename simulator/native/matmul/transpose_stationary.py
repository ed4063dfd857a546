"""Transposing the tile that is held in the PE array."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.native.codegen.text import WORD, FunctionText
from simulator.native.matmul.gemm_image import refuse_others
from simulator.native.matmul.image_layout import Word, header_word
from simulator.native.rows.copy import turn

WORDS = ("dst", "image", "depth", "held", "dtype", "first", "rows", "down")
"""The argument words of `TransposeTileKernel`."""


@dataclass(frozen=True, slots=True)
class TransposeTileKernel:
    """dst [M, K] = some columns of the tile [K, columns], transposed; elements have `size` bytes.

    Words: `WORDS`: dst, image, K, how many columns the tile has, the dtype's code, the first column
    and how many, the bytes between rows of dst, whose elements are adjacent. Where another tile is
    held, all that happens is that its header says so.
    """

    size: int

    def text(self, name: str) -> str:
        f = FunctionText(name)
        words = {word: f.word(index) for index, word in enumerate(WORDS)}
        target, image = f.word(0, "ptr"), f.word(1, "ptr")
        expected = {Word.depth: "depth", Word.columns: "held", Word.dtype: "dtype"}
        fits = refuse_others(f, image, {word: words[of] for word, of in expected.items()})

        def transposed() -> None:
            tile = f.load(f.element_at(image, f.integer(Word.source), WORD), "ptr")
            source = f.element_at(tile, words["first"], self.size)
            along = header_word(f, image, Word.along)
            counts = words["rows"], words["depth"]
            turn(f, self.size, counts, (words["down"], along), (target, source))

        f.when(fits, transposed)
        return f.text()
