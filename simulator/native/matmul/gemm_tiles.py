"""The matrix registers of x86 (AMX): products of 16 rows with 16 columns, 32 deep.

Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter "Programming with
Intel AMX", and volume 2, TDPBF16PS: the first elements of all pairs of a line and column are summed
by fp32 FMAs in ascending order from zero, and so are the second ones. The sum of both is added to
the result. All of it is rounded to nearest even, and denormals count as zero. A tile of 16 lines of
16 pairs (k, k + 16) therefore gives two short chains (`simulator.numerics.matmul`).
"""

from __future__ import annotations

from collections.abc import Callable

from simulator.native.codegen.text import FunctionText, Value
from simulator.native.matmul.image_layout import CHUNK, PITCH
from simulator.numerics.matmul import SHORT

ROWS = 2 * CHUNK
"""Rows of results that are computed together: two tiles."""

_LINE = 4 * CHUNK
"""Bytes of a line of a tile."""

_PALETTE, _LINE_BYTES, _LINES = 0, 16, 48
"""Where a configuration has the palette, the bytes of lines (uint16), their numbers (uint8)."""


class Tiles:
    """Emits products of the lines of an image with a strip of `vectors` times 16 columns.

    Registers 0 to 3 hold results, two for each 16 rows; 4 and 5 lines of the image, 6 and 7 columns
    of the strip.
    """

    def __init__(self, f: FunctionText) -> None:
        self.f = f
        self._results = f.scratch("float", ROWS * ROWS)

    def begin(self) -> None:
        """Configure the registers; all are 16 lines of 64 bytes."""
        f = self.f
        memory = f.scratch("i8", 64)
        words = [0] * 8
        words[_PALETTE // 8] = 1
        for i in range(8):
            words[_LINE_BYTES // 8 + i // 4] |= _LINE << 16 * (i % 4)
            words[_LINES // 8] |= CHUNK << 8 * i
        for index, word in enumerate(words):
            f.store(f.integer(word), f.element_at(memory, f.integer(index), 8))
        f.perform("llvm.x86.ldtilecfg", memory)

    def end(self) -> None:
        self.f.perform("llvm.x86.tilerelease")

    def multiply(
        self,
        image: Value,
        strip: Value,
        lines: Value,
        vectors: int,
        hints: Callable[[Value], None] | None,
    ) -> None:
        """`ROWS` results of the strip's columns, for the lines of the image from `image` on;
        `hints(line)` is written to where there is time for hints, for each `SHORT` lines."""
        f = self.f
        pitch = vectors * _LINE
        for register in self._of_results(vectors):
            f.perform("llvm.x86.tilezero", self._number(register))

        def group(line: Value) -> None:
            start = f.element_at(image, line, 4)
            columns = f.element_at(strip, line, pitch)
            for i in range(2):
                place = start + i * CHUNK * PITCH
                self._move("load", 4 + i, place, PITCH)
            for v in range(vectors):
                self._move("load", 6 + v, columns + v * _LINE, pitch)
            for register in self._of_results(vectors):
                i, v = divmod(register, 2)
                numbers = (self._number(n) for n in (register, 4 + i, 6 + v))
                f.perform("llvm.x86.tdpbf16ps", *numbers)
            if hints is not None:
                hints(line)

        f.loop(f.integer(0), lines, SHORT, group)
        for register in self._of_results(vectors):
            i, v = divmod(register, 2)
            offset = f.integer(i * CHUNK * 2 * _LINE + v * _LINE)
            self._move("store", register, self._results + offset, 2 * _LINE)

    def result(self, row: Value, vectors: int) -> list[Value]:
        """The sums of one of the `ROWS` rows."""
        f = self.f
        line = f.element_at(self._results, row, 2 * _LINE)
        return [f.load(line + v * _LINE, "float", CHUNK) for v in range(vectors)]

    def _of_results(self, vectors: int) -> list[int]:
        return [2 * i + v for i in range(2) for v in range(vectors)]

    def _number(self, register: int) -> Value:
        return self.f.constant("i8", register)

    def _move(self, direction: str, register: int, place: Value, pitch: int) -> None:
        function = {"load": "llvm.x86.tileloadd64", "store": "llvm.x86.tilestored64"}[direction]
        self.f.perform(function, self._number(register), place, self.f.integer(pitch))
