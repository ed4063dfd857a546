"""Micro-kernels of the PE array: the product of the loaded tile and a moving one.

Results are sums in the canonical order of `simulator.numerics.matmul`, whatever the CPU. A strip of
the moving tile, as wide as a block of results, is packed into memory of the function's own. So the
inner loop reads the first-level cache, whatever the distance of rows in memory. The block stays in
registers while k runs. The strip has elements of the same form as the loaded tile's image
(`simulator.native.matmul.gemm_image`).

Pairs are multiplied by matrix registers (`simulator.native.matmul.gemm_tiles`), several times as
fast as by FMA, or by VDPBF16PS where that is faster than FMA (`simulator.native.codegen.rates`).
Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, VDPBF16PS: for each pair the
product of the upper halves is added to the sum and then that of the lower halves, each by an fp32
FMA rounded to nearest even. Denormal inputs count as zero, denormal outputs are flushed to zero,
MXCSR is not consulted. Both give the same bits as FMAs in the same order if nothing is denormal,
and the rule by which they are used is:

    with a and b the smallest non-zero magnitudes of the loaded tile and of the strip, both are
    normal, and their (unbiased) exponents add up to -112 or more.

Then bfloat16 numbers of 8 bits are multiples of 2**(exponent - 7). So all products, their exact
sums, and these rounded to 24 bits are multiples of 2**(-112 - 14) = 2**-126, the smallest normal
fp32 number: a sum is zero or normal. Infinities and NaN take part as in FMAs (the sign and payload
of NaN are made canonical when results are stored). Strips where the rule does not hold are tried a
vector at a time. For those that are left, and for operands of other dtypes, everything is widened
and FMAs are used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from isa.dtypes import DTYPES
from simulator.native.codegen import ports
from simulator.native.codegen.fused import block_step
from simulator.native.codegen.levels import Form
from simulator.native.codegen.structure import StructureText
from simulator.native.codegen.text import Value
from simulator.native.matmul.blocks import Blocking
from simulator.native.matmul.gemm_hints import UNROLLED, StripHints
from simulator.native.matmul.gemm_image import (
    ImagePacking,
    least_of,
    make_columns,
    refuse_others,
    smaller,
)
from simulator.native.matmul.gemm_tiles import ROWS, Tiles
from simulator.native.matmul.image_layout import (
    CHUNK,
    DEEPEST,
    HEADER,
    LINE,
    PITCH,
    WIDEST,
    Word,
    header_word,
    lines_of,
    panel_at,
    smallest_at,
)
from simulator.native.matmul.packed_strips import KeptStrip, KeptStrips
from simulator.native.matmul.wide_panels import WidePanels
from simulator.numerics.matmul import SHORT, fits_short

WORDS = (
    *("dst", "moving", "image", "depth", "rows", "columns", "down", "along"),
    *("first", "held", "next", "next_along", "time"),
)
"""The argument words of `MultiplyKernel`."""

ROWS_TOGETHER = 2 * CHUNK
"""Rows of results that stay together when they are divided."""

MOST_PARTS = WIDEST // ROWS_TOGETHER
"""Into how many parts results can be divided along their rows."""

_TOGETHER = 4
"""Rows of the results of matrix registers that are stored by one turn of a loop."""

_LEAST_SUM = 2 * 127 - 112
"""Of the biased exponents of the smallest magnitudes."""


@dataclass(frozen=True, slots=True)
class MultiplyKernel:
    """dst [M, N] = (or +=) tile.T @ moving [K, N].

    Words: `WORDS`: dst, moving, image, K, M, N, the byte strides between rows of dst and of moving,
    the first column of the tile that takes part, how many the tile has; the moving tile that is
    multiplied next, as far as somebody knows, and the bytes between its rows; when the moving tile
    may have been written last, 0 if nobody knows. M columns take part,
    whose results begin at dst; the image of them is made first, if it is not. The first one begins
    a chunk. Elements of a row are adjacent in dst and moving. K is at most `DEEPEST`, M at most
    `WIDEST`. Where another tile is held, all that happens is that its header says so.
    """

    moving: str
    output: str
    accumulate: bool
    blocking: Blocking

    def text(self, name: str) -> str:
        return _Multiplication(StructureText(name), self).text()


class _Multiplication:
    """The text of a `MultiplyKernel` while it is written."""

    def __init__(self, f: StructureText, kernel: MultiplyKernel) -> None:
        self.f = f
        self.kernel = kernel
        self.block = kernel.blocking
        self.target, self.moving, self.image = (f.word(index, "ptr") for index in range(3))
        self.depth, self.rows, self.columns = (f.word(index) for index in range(3, 6))
        self.down, self.along = f.word(6), f.word(7)
        self.zero = f.integer(0)
        self.first, self.held = f.word(8), f.word(9)
        following = f.word(10, "ptr"), f.word(11)
        self.short = fits_short(kernel.moving)
        # Elements that a strip has as they are.
        self.keeps = DTYPES[kernel.moving].bits == 16
        self.form = self.block.form_of(kernel.moving)
        self.vectors = self.block.vectors if self.form is Form.wide else self.block.packed
        size, width = DTYPES[kernel.moving].size, self.vectors * self.block.width
        self.hints = StripHints(
            f, self.moving, self.along, self.columns, *following, size, width * size
        )
        self.strip = f.scratch("float", DEEPEST * width)
        if self.block.form is not Form.wide:
            self.wide = WidePanels(f)
            self.is_done = f.scratch("i64", 1)
        if self.form is Form.tiles:
            self.tiles = Tiles(f)
        if self.form is not Form.wide:
            self.kept = KeptStrips(f, self.image, self.along, self.depth, f.word(12))

    def text(self) -> str:
        f = self.f
        fits = refuse_others(f, self.image, {Word.depth: self.depth, Word.columns: self.held})
        f.when(fits, self._strips)
        return f.text()

    def _image(self) -> None:
        """See to it that there is an image, and look at what its header says."""
        f = self.f
        make_columns(f, self.image, self.first, self.rows)
        self.is_short = f.compare("icmp ne", header_word(f, self.image, Word.short), self.zero)
        if self.block.form is Form.wide:
            return
        form = header_word(f, self.image, Word.form)
        self.is_packed = f.compare("icmp ne", form, f.integer(Form.wide))

        def chunk(column: Value, least: Value) -> list[Value]:
            place = smallest_at(f, self.image, self.first + column)
            return [f.intrinsic("umin", least, f.load(place, "i64"))]

        start = [f.integer(0xFFFF)]
        (self.smallest,) = f.loop(self.zero, self.rows, CHUNK, chunk, start)

    def _panels(self, form: Form) -> Value:
        """The panels or lines of an image of a form, from the first column that takes part on."""
        f = self.f
        panels = self.image + HEADER
        if form is Form.tiles:
            return f.element_at(panels, self.first, PITCH)
        return panel_at(f, panels, lines_of(f, self.depth, form), self.first)

    def _strips(self) -> None:
        """All results, a strip of columns at a time; strips as wide as a block first by pairs."""
        f, block = self.f, self.block
        size = self.vectors * block.width
        self._image()
        if self.form is Form.wide:
            first = self.zero
            for vectors in range(self.vectors, 1, -1):
                first = self._whole_strips(first, vectors)
            f.loop(first, self.columns, block.width, partial(self._by_fma, vectors=1))
            return

        def strip(first: Value) -> None:
            end = first + size
            end = f.intrinsic("smin", end, self.columns)
            whole = f.compare("icmp eq", end - first, f.integer(size))
            f.store(self.zero, self.is_done)
            f.when(whole, lambda: self._by_pairs(first, self.vectors))
            done = f.compare("icmp ne", f.load(self.is_done, "i64"), self.zero)
            start = f.select(done, end, first)
            f.loop(start, end, block.width, narrow)

        def narrow(first: Value) -> None:
            f.store(self.zero, self.is_done)
            self._by_pairs(first, 1)
            left = f.compare("icmp eq", f.load(self.is_done, "i64"), self.zero)
            f.when(left, lambda: self._by_fma(first, 1))

        if self.form is Form.tiles:
            self.tiles.begin()
        f.loop(self.zero, self.columns, size, strip)
        if self.form is Form.tiles:
            self.tiles.end()

    def _whole_strips(self, first: Value, vectors: int) -> Value:
        """The results of as many strips of that many vectors as there are columns for, by FMA; the
        first column that is left."""
        f, size = self.f, vectors * self.block.width
        left = self.columns - first
        end = self.columns - f.binary("urem", left, f.integer(size))
        f.loop(first, end, size, partial(self._by_fma, vectors=vectors))
        return end

    def _by_pairs(self, first: Value, vectors: int) -> None:
        """The results of a strip from column `first` on, where the rule holds; says if it does.

        A strip of one vector may have fewer columns than that has lanes.
        """
        f = self.f
        strip, kept = self.strip, None
        if vectors == self.vectors and self.keeps:
            kept = self.kept.find(self._origin(first), self.strip)
            strip = kept.place
            packed = partial(self._pack, first, vectors, self.form, strip)
            smallest = kept.smallest(packed)
        else:
            smallest = self._pack(first, vectors, self.form, strip)
        usable = self._rule(smallest)

        def multiply() -> None:
            if self.form is Form.tiles:
                self._by_tiles(first, vectors, strip, kept)
            else:
                self._rows(first, vectors, self._panels(self.form), self.form, True, strip, kept)
            f.store(f.integer(1), self.is_done)

        f.when(self.is_packed & usable, multiply)

    def _by_tiles(self, first: Value, vectors: int, strip: Value, kept: KeptStrip | None) -> None:
        """The results of a packed strip by matrix registers."""
        f = self.f
        lines = lines_of(f, self.depth, Form.tiles)
        mask = self._mask(first, vectors)
        panels = self._panels(Form.tiles)

        later = self.hints.behind(first + vectors * self.block.width)
        if kept is not None:
            later = kept.instead(*later)
        later_rows = self.hints.rows_at(self.depth, self.rows, lines)

        def rows(row: Value) -> None:
            end = f.intrinsic("smin", row + ROWS, self.rows)
            columns = f.element_at(panels, row, PITCH)

            def announce(line: Value) -> None:
                first, last = later_rows(row, line)
                f.loop(first, last, 1, lambda number: self.hints.row(later, number))

            hints = announce if vectors > 1 else None
            self.tiles.multiply(columns, strip, lines, vectors, hints)

            def finish(count: int, index: Value) -> None:
                line = index - row
                for i, place in enumerate(self._places(index, first, count)):
                    sums = self.tiles.result(line + i, vectors)
                    self._finish(place, sums, mask)

            whole = end & -_TOGETHER
            f.loop(row, whole, _TOGETHER, partial(finish, _TOGETHER))
            f.loop(whole, end, 1, partial(finish, 1))

        f.loop(self.zero, self.rows, ROWS, rows)

    def _by_fma(self, first: Value, vectors: int) -> None:
        """The results of a strip, of any dtypes."""
        f = self.f
        self._pack(first, vectors, Form.wide, self.strip)
        panels = self._panels(Form.wide)
        if self.block.form is not Form.wide:
            done = self.wide.made()
            f.when(f.compare("icmp ult", done, self.is_packed), self._widen)
            panels = f.select(self.is_packed, self.wide.place, panels)

        def rows(short: bool) -> None:
            self._rows(first, vectors, panels, Form.wide, short, self.strip, None)

        if not self.short:
            rows(False)
            return
        f.when(self.is_short, partial(rows, True))
        others = self.is_short ^ 1
        f.when(others, partial(rows, False))

    def _rule(self, smallest: Value) -> Value:
        """Whether sums of the products of loaded and packed pairs stay normal, or zero."""
        f = self.f
        exponents = []
        for less_one in (self.smallest, smallest):
            magnitude = less_one + 1
            exponents.append(f.binary("lshr", magnitude, f.integer(7)))
        total = f.binary("add", *exponents)
        normal = [f.compare("icmp ne", exponent, self.zero) for exponent in exponents]
        enough = f.compare("icmp uge", total, f.integer(_LEAST_SUM))
        return enough & f.binary("and", *normal)

    def _origin(self, first: Value) -> Value:
        """Where the moving tile's column `first` begins."""
        return self.f.element_at(self.moving, first, DTYPES[self.kernel.moving].size)

    def _pack(self, first: Value, vectors: int, form: Form, strip: Value) -> Value:
        """Fill a strip; the smallest of `magnitudes_less_one` of its pairs."""
        f, width = self.f, self.block.width
        origin = self._origin(first)
        pitch = 4 * vectors * width

        def keep(line: Value, values: Sequence[Value], *least: Value) -> Sequence[Value]:
            place = f.element_at(strip, line, pitch)
            found = list(least)
            for v, value in enumerate(values):
                f.store(value, place + 4 * v * width)
                found = [smaller(f, known, value) for known in found]
            return found

        packing = ImagePacking(f, self.kernel.moving, form, width, vectors)
        mask = self._mask(first, vectors)
        start = [] if form is Form.wide else [f.constant("i16", 0xFFFF, 2 * width)]
        least = packing.rows(self.depth, origin, self.along, keep, mask, start)
        return least_of(f, *least) if least else self.zero

    def _mask(self, first: Value, vectors: int) -> Value | None:
        """The columns that there are of a strip of one vector; those of wider ones are there."""
        if vectors > 1:
            return None
        return self.f.below(self.columns - first, self.block.width)

    def _widen(self) -> None:
        """Copy the image to wide panels."""
        form = Form.tiles if self.block.form is Form.tiles else Form.pairs
        self.wide.make(self._panels(form), form, self.depth, self.rows)

    def _rows(
        self,
        first: Value,
        vectors: int,
        panels: Value,
        form: Form,
        short: bool,
        strip: Value,
        kept: KeptStrip | None,
    ) -> None:
        """The results of a packed strip for all rows, a block at a time.

            for row in range(0, M, together):
                sums[together][vectors] = 0                    # registers, each of `width` columns
                one chain:
                    for k in lines:                            # by `UNROLLED`, hints in between
                        sums[i][v] += panel[k][i] * strip[k][v]
                `short`: chains of `SHORT` products, two at a time:
                    for start in range(0, lines, 2 * length):
                        left = right = 0                       # [together][vectors] each
                        for k in range(start, start + length):
                            left += ... at k; right += ... at k + length
                        sums += left + right
                dst[row + i][first + v * width] = (or +=) sums[i][v], for rows below M

        `panel` has the tile's columns from `row` on, so that its k-th line has one factor for each
        row of results; `strip` has columns of the moving tile from `first` on. A line is one k, or
        a pair of them where operands are packed in `pairs`, so a chain has half as many lines then.
        """
        f, block = self.f, self.block
        together = block.short_rows if short else block.rows
        lines = lines_of(f, self.depth, form)
        mask = self._mask(first, vectors)

        def step(k: Value, panel: Value, sums: Sequence[Value]) -> list[Value]:
            line = f.element_at(strip, k, 4 * vectors * block.width)
            factors = f.element_at(panel, k, LINE)
            element = "float" if form is Form.wide else "i32"
            stream = [
                f.load(f.element_at(line, f.integer(v * block.width), 4), element, block.width)
                for v in range(vectors)
            ]
            scalars = (
                f.load(f.element_at(factors, f.integer(row), 4), element) for row in range(together)
            )
            return block_step(f, scalars, stream, sums, form is not Form.wide)

        nothing = [f.constant("float", 0.0, block.width)] * (together * vectors)
        later = self.hints.behind(first + vectors * self.block.width)
        if kept is not None:
            later = kept.instead(*later)

        def one_chain(panel: Value, row: Value) -> list[Value]:
            """With hints in between: all at once would wait for each other."""

            def several(k: Value, *sums: Value) -> Sequence[Value]:
                if vectors > 1:
                    self.hints.line(later, row, k)
                found: Sequence[Value] = sums
                for i in range(UNROLLED):
                    f.in_order()
                    found = step(k + i, panel, found)
                return found

            whole = lines & -UNROLLED
            sums = f.loop(self.zero, whole, UNROLLED, several, nothing)
            return f.loop(whole, lines, 1, lambda k, *sums: step(k, panel, sums), sums)

        def chains(panel: Value) -> list[Value]:
            length = SHORT if form is Form.wide else SHORT // 2

            def two(start: Value, *totals: Value) -> list[Value]:
                """Two chains side by side, as far as the second goes."""
                middle, end = (
                    f.intrinsic("smin", start + after, lines) for after in (length, 2 * length)
                )

                def both(k: Value, *sums: Value) -> list[Value]:
                    beside = middle + (k - start)
                    left = step(k, panel, sums[: len(totals)])
                    return left + step(beside, panel, sums[len(totals) :])

                last = start + (end - middle)
                sums = f.loop(start, last, 1, both, [*nothing, *nothing])
                left, right = sums[: len(totals)], sums[len(totals) :]
                left = f.loop(last, middle, 1, lambda k, *sums: step(k, panel, sums), left)
                pairs = [f.binary("fadd", *pair) for pair in zip(left, right)]
                return [f.binary("fadd", *pair) for pair in zip(totals, pairs)]

            return f.loop(self.zero, lines, 2 * length, two, nothing)

        def rows(row: Value) -> None:
            places = self._places(row, first, together)
            panel = panel_at(f, panels, lines, row)
            if short:
                end = row + together
                f.loop(row, end, 1, lambda number: self.hints.row(later, number))
                sums = chains(panel)
            else:
                sums = one_chain(panel, row)

            def finish(i: int) -> None:
                self._finish(places[i], sums[i * vectors : (i + 1) * vectors], mask)

            end = row + together
            whole = f.compare("icmp sle", end, self.rows)

            def all_rows() -> None:
                for i in range(together):
                    finish(i)

            def some_rows() -> None:
                for i in range(together - 1):
                    index = row + i
                    f.when(f.compare("icmp slt", index, self.rows), partial(finish, i))

            f.when(whole, all_rows)
            f.when(whole ^ 1, some_rows)

        f.loop(self.zero, self.rows, together, rows)

    def _places(self, row: Value, first: Value, rows: int) -> list[Value]:
        """Where the results of so many rows begin."""
        f = self.f
        line = self.target + row * self.down
        places = [f.element_at(line, first, DTYPES[self.kernel.output].size)]
        for _ in range(rows - 1):
            places.append(places[-1] + self.down)
        return places

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
                value = value + ports.decode(f, kernel.output, held)
            result = ports.encode_result(f, kernel.output, value)
            if mask is None:
                f.store(result, place)
            else:
                f.store_where(mask, result, place)
