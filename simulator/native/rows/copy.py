"""Micro-kernels that move elements: copies bit for bit, transpositions, conversions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from isa.enums import Engine
from isa.machine import vector
from simulator.memory import LINE
from simulator.native.codegen.nest import NestWords
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.plans.iteration_space import Dim, IterationSpace, dims, space
from simulator.native.plans.plan import Plan, nest_divisions, nest_words, ranked, same_orders
from simulator.native.plans.table import compiled, plans
from simulator.native.rows.elementwise import converting, map_plan, tile, unsigned
from simulator.views import Array, same_type

SIDE = 16
"""Rows and columns of a block that is transposed in registers."""

_ROWS_AHEAD = 4
"""Rows between the one that is copied and the one that is hinted at."""

_SHORT = 1024
"""Bytes of a row from which on a copy of bytes is left to the system's routine."""


@dataclass(frozen=True, slots=True)
class CopyRows:
    """Rows of adjacent elements of `size` bytes, each copied as one range of bytes; `past_caches`
    where nobody reads them soon."""

    size: int
    rank: int
    past_caches: bool = False

    def text(self, name: str) -> str:
        f = FunctionText(name)
        nest = NestWords(f, 2, self.rank)
        count = nest.counts[-1] * self.size
        if self.past_caches:
            nest.rows(lambda pointers: _copy_past_caches(f, pointers[0], pointers[1], count))
        else:
            down = [steps[-2] for steps in nest.strides]
            nest.rows(lambda pointers: _copy_row(f, pointers[0], pointers[1], count, down))
        return f.text()


def _copy_row(
    f: FunctionText, target: Value, source: Value, count: Value, down: Sequence[Value]
) -> None:
    """As `copy_bytes`: a short row a line at a time, with hints at a later row, as rows lie far
    apart in memory on chip. `down`: the bytes from row to row of both."""
    zero = f.integer(0)
    whole = count & -LINE
    is_short = f.compare("icmp ult", count, f.integer(_SHORT))
    lines = f.select(is_short, whole, zero)
    later = [pointer + step * _ROWS_AHEAD for pointer, step in zip((target, source), down)]

    def line(at: Value) -> None:
        f.prefetch(later[0] + at, write=True)
        f.prefetch(later[1] + at)
        f.store(f.load(source + at, "i8", LINE), target + at)

    f.loop(zero, lines, LINE, line)
    left = count - lines

    def rest() -> None:
        f.copy_bytes(target + lines, source + lines, left)

    f.when(f.compare("icmp ne", left, zero), rest)


def _copy_past_caches(f: FunctionText, target: Value, source: Value, count: Value) -> None:
    """As `copy_bytes`: whole lines of cache of the target by themselves, the rest around them."""
    line, zero = f.integer(LINE), f.integer(0)
    address = f.convert("ptrtoint", target, "i64")
    head = (zero - address) & (LINE - 1)
    head = f.intrinsic("smin", head, count)
    f.copy_bytes(target, source, head)
    lines = f.binary("sdiv", count - head, line)
    first, begin = target + head, source + head

    def one(index: Value) -> None:
        value = f.load(f.element_at(begin, index, LINE), "i32", LINE // 4)
        f.store_past_caches(value, f.element_at(first, index, LINE), LINE)

    f.loop(zero, lines, 1, one)
    done = head + lines * line
    f.copy_bytes(target + done, source + done, count - done)


@dataclass(frozen=True, slots=True)
class TransposeKernel:
    """dst[..., i, j] = src[..., j, i] for elements of `size` bytes; j is adjacent in dst, i in src.

    The last two dimensions of the nest are i and j.
    """

    size: int
    rank: int

    def text(self, name: str) -> str:
        f = FunctionText(name)
        nest = NestWords(f, 2, self.rank)
        strides = nest.strides[0][-2], nest.strides[1][-1]
        nest.rows(lambda pointers: turn(f, self.size, nest.counts[-2:], strides, pointers), inner=2)
        return f.text()


def turn(
    f: FunctionText,
    size: int,
    counts: Sequence[Value],
    strides: Sequence[Value],
    pointers: Sequence[Value],
) -> None:
    """dst[i, j] = src[j, i] for `counts` of i and j and elements of `size` bytes. The `strides` are
    those of i in dst and of j in src, the `pointers` dst and src."""
    (rows, columns), (down, across), (target, source) = counts, strides, pointers
    lane = f"i{8 * size}"

    def place(pointer: Value, far: Value, stride: Value, near: Value) -> Value:
        moved = pointer + far * stride
        return f.element_at(moved, near, size)

    def single(i: Value, j: Value) -> None:
        element = f.load(place(source, j, across, i), lane)
        f.store(element, place(target, i, down, j))

    def block(i: Value, j: Value) -> None:
        lines = []
        for step in range(SIDE):
            line = j + step
            lines.append(f.load(place(source, line, across, i), lane, SIDE))
        for step, line in enumerate(transposed(f, lines)):
            row = i + step
            f.store(line, place(target, row, down, j))

    zero, side = f.integer(0), f.integer(-SIDE)
    whole_rows, whole_columns = (n & side for n in (rows, columns))

    def strip(i: Value) -> None:
        f.loop(zero, whole_columns, SIDE, lambda j: block(i, j))

    f.loop(zero, whole_rows, SIDE, strip)
    f.loop(zero, whole_rows, 1, lambda i: f.loop(whole_columns, columns, 1, partial(single, i)))
    f.loop(whole_rows, rows, 1, lambda i: f.loop(zero, columns, 1, partial(single, i)))


def _blocks(size: int, order: Sequence[int]) -> tuple[int, ...]:
    """Lanes of two vectors, in blocks of `size` of them; those of the right one count on."""
    return tuple(block * size + lane for block in order for lane in range(size))


def _in_fours(first: int, size: int) -> tuple[int, ...]:
    """From each four lanes those from `first` on, as many as two blocks have: a block of the left
    vector, one of the right one, and so on."""
    starts = [four + first for four in range(0, SIDE, 4)]
    blocks = [range(start, start + 2, size) for start in starts]
    return tuple(
        side + at + lane
        for block in blocks
        for at in block
        for side in (0, SIDE)
        for lane in range(size)
    )


_EXCHANGES = (
    (1, _in_fours(0, 1), _in_fours(2, 1)),
    (2, _in_fours(0, 2), _in_fours(2, 2)),
    (4, _blocks(4, (0, 2, 4, 6)), _blocks(4, (1, 3, 5, 7))),
    (8, _blocks(4, (0, 2, 4, 6)), _blocks(4, (1, 3, 5, 7))),
)
"""How far the rows are apart that are exchanged, and the lanes of the two results. CPUs have an
instruction for each of these on vectors of 32-bit elements, which LLVM finds fast."""


def transposed(f: FunctionText, lines: list[Value]) -> list[Value]:
    """A square of SIDE vectors turned, by exchanging ever larger blocks."""
    for distance, lower, upper in _EXCHANGES:
        turned = list(lines)
        for index in range(SIDE):
            if not index & distance:
                pair = lines[index], lines[index | distance]
                turned[index] = f.shuffle(*pair, lower)
                turned[index | distance] = f.shuffle(*pair, upper)
        lines = turned
    # The first two exchanges leave the middle two of four lines in each other's place.
    return [lines[first + index] for first in range(0, SIDE, 4) for index in (0, 2, 1, 3)]


def bits_plan(
    dst: Array,
    source: Array,
    source_dims: Sequence[Dim],
    positions: Sequence[int] = (0, 1),
) -> Plan | None:
    """A copy bit for bit between elements of one size. `source_dims` order the source's elements
    as the destination has them."""
    size = dst.dtype.itemsize
    found = space([dims(dst.shape, dst.strides), source_dims])
    if found is None:
        return None
    kernel: type[CopyRows | TransposeKernel] = CopyRows
    if found.strides[0][-1:] != (size,) or found.strides[1][-1:] != (size,):
        turned = _turned(found, size)
        if turned is None:
            pattern = unsigned(dst)
            return map_plan(
                pattern,
                dst,
                [tile(positions[1], source, pattern, source_dims)],
                (),
                output_dtype=pattern,
            )
        found, kernel = turned
    nest = ranked(found)
    if nest is None:
        return None
    rank = len(nest.counts)
    function = compiled(kernel(size, rank))
    past_caches = None
    if kernel is CopyRows:
        past_caches = partial(compiled, CopyRows(size, rank, past_caches=True))
    return Plan(
        function,
        [dst, source],
        positions,
        nest_words(nest),
        same_order=same_orders(nest, (size, size)),
        divisions=nest_divisions(nest, rank),
        work=dst.size,
        past_caches=past_caches,
    )


def _turned(
    found: IterationSpace, size: int
) -> tuple[IterationSpace, type[CopyRows | TransposeKernel]] | None:
    """The space with the destination's adjacent dimension last, and before it the source's, if it
    is another one. None where either has no adjacent dimension.
    """
    target, origin = found.strides
    if size not in target or size not in origin:
        return None
    near, far = target.index(size), origin.index(size)
    last = [far, near] if far != near else [near]
    order = [index for index in range(len(found.counts)) if index not in last] + last

    def moved(values: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(values[index] for index in order)

    turned = IterationSpace(moved(found.counts), (moved(target), moved(origin)))
    return turned, TransposeKernel if far != near else CopyRows


def convert_plan(dst: Array, source: Array) -> Plan | None:
    """As `simulator.numerics.conversion.convert`."""
    if same_type(dst, source):
        return bits_plan(dst, source, dims(source.shape, source.strides))
    return through_float32(dst, source)


def through_float32(dst: Array, source: Array) -> Plan | None:
    """The elements as fp32, rounded to the destination's dtype."""
    if not converting(dst, source):
        return None
    return map_plan("float32", dst, [tile(1, source)], ())


@plans(vector.Transpose32)
def transpose32(engine: Engine, dst: Array, data: Array) -> Plan | None:
    free = dims(data.shape[1:], data.strides[1:])
    return bits_plan(dst, data, [*free, (data.shape[0], data.strides[0])])
