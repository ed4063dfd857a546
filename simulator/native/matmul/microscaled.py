"""Microscaled (MX) tensors: quantisation, and products of packed tiles times their scales.

A loaded tile and what streams through it become bfloat16 tiles of four rows a partition, and are
multiplied as such (`simulator.native.matmul.plans`). Values of a few bits times a power of two are
exact in bfloat16 unless they are denormal there. So the scales are looked at first: where one is so
small that a value could be rounded, NumPy multiplies in fp32.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from isa.array_tiles import ArrayTile
from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import mx
from isa.machine.mx import GROUP_PARTITIONS, NAN_SCALE, SCALE_ROWS
from isa.machine.tensor import MultiplyMoving
from isa.memory import QUADRANT
from simulator.device_state import CoreState
from simulator.native.codegen import ports
from simulator.native.codegen.library import Function
from simulator.native.codegen.text import FunctionText, Value
from simulator.native.matmul.gemm_image import holds
from simulator.native.matmul.image_layout import Word
from simulator.native.matmul.plans import (
    adjacent,
    load_plan,
    multiply_plan,
    resident,
)
from simulator.native.plans.plan import (
    Bound,
    Division,
    FunctionPlan,
    Guarded,
    Job,
    address,
    apart,
    words_type,
)
from simulator.native.plans.table import compiled, plans, touches
from simulator.numerics.packed import packed_bits
from simulator.numerics.special_values import CANONICAL
from simulator.oracle.table import KERNELS
from simulator.views import Array, Window, dtype_name

LANES = 4
"""Values of a packed element."""

WIDTH = 16
"""Values that are taken together."""

_ONE_BITS = 23
_BIAS = 127
_MAGNITUDE = 0x7FFFFFFF
_ALL_ONES = 0xFF
_SMALLEST = 0x00400000
"""2**-127, the one power of two that scales need and that fp32 has as a denormal number."""

_VALUES = "bfloat16"
_SIZE = DTYPES[_VALUES].size

_LEAST_EXPONENT = -133
"""Of the smallest denormal number of bfloat16."""


def _scale_row(f: FunctionText, group: Value) -> Value:
    """The row of a scale operand that belongs to a group, as
    `simulator.numerics.packed.scale_rows`."""
    number = f.integer(SCALE_ROWS)
    quadrant = f.binary("sdiv", group, number) * QUADRANT
    return quadrant + f.binary("srem", group, number)


def _power(f: FunctionText, biased: Value) -> Value:
    """2**(biased - 127) in fp32, of i32 numbers from 0 to 254."""
    zero = f.compare("icmp eq", biased, f.like(biased, 0))
    normal = biased << _ONE_BITS
    return f.convert("bitcast", f.select(zero, f.like(biased, _SMALLEST), normal), "float")


@dataclass(frozen=True, slots=True)
class Dequantize:
    """Packed [8 G, N] times its scales as bfloat16 [32 G, N], rows without gaps; all are exact.

    Words: result, packed elements, scales, G, N, the bytes between partitions of the packed
    elements and of the scales. Elements of a partition are adjacent.
    """

    packed: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        target, source, scales = (f.word(index, "ptr") for index in range(3))
        groups, columns, along, scales_along = (f.word(index) for index in range(3, 7))
        row = DTYPES[self.packed]
        pitch = columns * _SIZE

        def group(number: Value) -> None:
            scale = scales + _scale_row(f, number) * scales_along
            first = number * GROUP_PARTITIONS

            def some(width: int, column: Value) -> None:
                codes = f.convert("zext", f.load(scale + column, "i8", width), "i32")
                nan = f.compare("icmp eq", codes, f.like(codes, NAN_SCALE))
                nans = f.convert("bitcast", f.like(codes, CANONICAL), "float")
                factors = f.select(nan, nans, _power(f, codes))

                def partition(index: Value) -> None:
                    place = source + index * along
                    stored = f.load(f.element_at(place, column, row.size), f"i{row.bits}", width)
                    words = f.convert("zext", stored, "i32")
                    line = index * LANES
                    for lane in range(LANES):
                        value = decode_lane(f, self.packed, words, lane) * factors
                        down = (line + lane) * pitch
                        place = f.element_at(target + down, column, _SIZE)
                        upper = f.convert("bitcast", value, "i32")
                        upper = f.binary("lshr", upper, f.like(upper, 8 * _SIZE))
                        f.store(f.convert("trunc", upper, f"i{8 * _SIZE}"), place)

                last = first + GROUP_PARTITIONS
                f.loop(first, last, 1, partition)

            _along(f, columns, WIDTH, some)

        f.loop(f.integer(0), groups, 1, group)
        return f.text()


def least_scale(packed: str) -> int:
    """The smallest scale with which bfloat16 holds every value of a packed type."""
    import ml_dtypes

    info = ml_dtypes.finfo(getattr(ml_dtypes, DTYPES[packed].packed_type or ""))
    return max(_LEAST_EXPONENT + _BIAS - int(info.minexp) + int(info.nmant), 0)


@dataclass(frozen=True, slots=True)
class Suits:
    """Whether all scales of G groups are at least `least`; if `loaded`, also whether a [K, M] tile
    of bfloat16 is loaded.

    Words: 0 if so, else 1, which this writes; the scales; G, N, the bytes between partitions of the
    scales; if `loaded`, K, M, and the address of the tile's image.
    """

    least: int
    loaded: bool

    def text(self, name: str) -> str:
        f = FunctionText(name)
        scales, groups, columns, along = (f.word(1, "ptr"), *(f.word(i) for i in (2, 3, 4)))

        def group(number: Value, found: Value) -> list[Value]:
            scale = scales + _scale_row(f, number) * along

            def one(column: Value, found: Value) -> list[Value]:
                code = f.convert("zext", f.load(scale + column, "i8"), "i64")
                small = f.compare("icmp ult", code, f.integer(self.least))
                return [found | f.convert("zext", small, "i64")]

            return f.loop(f.integer(0), columns, 1, one, [found])

        (refused,) = f.loop(f.integer(0), groups, 1, group, [f.integer(0)])
        if self.loaded:
            code = f.integer(DTYPES[_VALUES].code)
            expected = {Word.depth: f.word(5), Word.columns: f.word(6), Word.dtype: code}
            fits = f.convert("zext", holds(f, f.word(7, "ptr"), expected), "i64")
            refused = refused | (fits ^ 1)
        f.store(refused, f.words)
        return f.text()


def _along(f: FunctionText, count: Value, width: int, some: Callable[[int, Value], None]) -> None:
    """`some(width, index)` for as much of a row as whole vectors cover, then one by one."""
    whole = count & -width
    f.loop(f.integer(0), whole, width, partial(some, width))
    f.loop(whole, count, 1, partial(some, 1))


def decode_lane(f: FunctionText, packed: str, words: Value, lane: int) -> Value:
    """One of the four values of packed words, in fp32."""
    width, row = packed_bits(packed), DTYPES[packed]
    shifted = f.binary("lshr", words, f.like(words, width * lane)) if lane else words
    code = shifted & ((1 << width) - 1)
    if row.packed_type in DTYPES:
        return ports.decode(f, row.packed_type, code)
    return _decode_tiny(f, row.packed_type or "", code)


def _decode_tiny(f: FunctionText, lane: str, code: Value) -> Value:
    """Values of a type without infinity and NaN that is no dtype of its own."""
    import ml_dtypes

    info = ml_dtypes.finfo(getattr(ml_dtypes, lane))
    below = (1 << (info.bits - 1)) - 1
    magnitude = code & below
    value = ports.decode_magnitude(f, magnitude, int(info.nmant), 1 - int(info.minexp))
    sign = code & (below + 1)
    sign = sign << (32 - int(info.bits))
    return f.convert("bitcast", f.convert("bitcast", value, "i32") | sign, "float")


@dataclass(frozen=True, slots=True)
class Quantize:
    """Packed [8 G, N] and its scales of [8 G, 4 N] of another dtype.

    Words: packed elements, scales, source, G, N, the bytes between partitions of each of the three.
    Elements of a partition are adjacent. A packed element's values are bytes.
    """

    packed: str
    source: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        target, scales, source = (f.word(index, "ptr") for index in range(3))
        groups, columns, along, scales_along, source_along = (f.word(i) for i in range(3, 8))
        lane = DTYPES[self.packed].packed_type or ""
        row = DTYPES[self.source]
        # The exponent of the largest value, less the bit that is kept for rounding.
        largest = int(np.frexp(DTYPES[lane].largest)[1]) - 2

        def group(number: Value) -> None:
            scale = scales + _scale_row(f, number) * scales_along
            first = number * GROUP_PARTITIONS
            partitions = [first + i for i in range(GROUP_PARTITIONS)]

            def some(words: int, column: Value) -> None:
                width = LANES * words
                values = []
                for index in partitions:
                    place = source + index * source_along
                    place = f.element_at(place, column, LANES * row.size)
                    stored = f.load(place, f"i{row.bits}", width)
                    values.append(ports.decode(f, self.source, stored))
                most = _exponents(f, values)
                code = most - largest
                code = f.intrinsic("smax", code, f.like(code, 0))
                factor = _power(f, 2 * _BIAS - code)
                for index, value in zip(partitions, values):
                    scaled = _bounded(f, lane, value * factor)
                    place = target + index * along
                    f.store(ports.encode(f, lane, scaled), f.element_at(place, column, LANES))
                nan = f.compare("icmp eq", most, f.like(most, _ALL_ONES))
                kept = f.select(nan, f.like(code, NAN_SCALE), code)
                by_word = f.shuffle(kept, kept, range(0, width, LANES))
                f.store(f.convert("trunc", by_word, "i8"), scale + column)

            _along(f, columns, WIDTH // LANES, some)

        f.loop(f.integer(0), groups, 1, group)
        return f.text()


def _exponents(f: FunctionText, values: Sequence[Value]) -> Value:
    """The biased exponent of the largest magnitude of all values of a word, in each of its lanes;
    that of infinity and NaN is all ones."""
    most: Value | None = None
    for value in values:
        pattern = f.convert("bitcast", value, "i32")
        magnitude = pattern & _MAGNITUDE
        most = magnitude if most is None else f.intrinsic("umax", most, magnitude)
    assert most is not None
    for distance in (1, 2):
        transposed = f.shuffle(most, most, [lane ^ distance for lane in range(most.width)])
        most = f.intrinsic("umax", most, transposed)
    return f.binary("lshr", most, f.like(most, _ONE_BITS))


def _bounded(f: FunctionText, lane: str, value: Value) -> Value:
    """What is beyond the largest value of a lane saturates; NaN stays."""
    row = DTYPES[lane]
    upper, lower = f.like(value, float(row.largest)), f.like(value, float(row.lowest))
    value = f.select(f.compare("fcmp ogt", value, upper), upper, value)
    return f.select(f.compare("fcmp olt", value, lower), lower, value)


# Plans


def _in_rows(*views: Array) -> bool:
    """Whether the elements of each partition of all views are adjacent."""
    return all(view.size and adjacent(view) for view in views)


def _packed(view: Array, scale: Array, loaded: bool) -> tuple[Function, Function] | None:
    """A `Dequantize` and a `Suits`; None where an operand's layout is none that they take."""
    if view.shape[0] % GROUP_PARTITIONS or not _in_rows(view, scale):
        return None
    name = dtype_name(view)
    dequantize, suits = compiled(Dequantize(name)), compiled(Suits(least_scale(name), loaded))
    return dequantize, suits


def _stand_in(view: Array) -> Array:
    """An array of the shape and dtype of a dequantised operand."""
    shape = LANES * view.shape[0], view.size // view.shape[0]
    return np.empty(shape, DTYPES[_VALUES].numpy)


def _dequantizing(function: Function, target: int, view: Array, scale: Array, at: int) -> Job:
    """The job that makes bfloat16 at an address of the packed operand at a position of the values
    and the scales behind it."""
    partitions = view.shape[0]
    words = words_type(7)(
        *(target, address(view), address(scale), partitions // GROUP_PARTITIONS),
        *(view.size // partitions, view.strides[0], scale.strides[0]),
    )
    pitch = LANES * _SIZE * view.size // partitions
    steps = ((0, pitch), (1, view.strides[0]), (2, scale.strides[0]))
    by_group = tuple((word, GROUP_PARTITIONS * step) for word, step in steps)
    along = Division(3, by_group, SCALE_ROWS)
    return Job(function, words, ((1, at), (2, at + 1)), (), (along,), LANES * view.size)


def _suiting(function: Function, view: Array, scale: Array, at: int, *loaded: int) -> Job:
    """The job of a `Suits` for these scales, which are at a position of the values."""
    partitions = view.shape[0]
    numbers = partitions // GROUP_PARTITIONS, view.size // partitions, scale.strides[0]
    words = (0, address(scale), *numbers, *loaded)
    return Job(function, words_type(len(words))(*words), ((1, at),))


@plans(mx.LoadStationaryMx)
def load_stationary_mx(
    engine: Engine, src: Array, scale: Array, place: ArrayTile
) -> FunctionPlan | None:
    """A packed tile is loaded: its values are made where the tile is held."""
    functions = _packed(src, scale, loaded=False)
    load = load_plan(_stand_in(src), LANES * src.shape[0])
    if functions is None or load is None:
        return None
    dequantize, suits = functions

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        src, scale, place = values
        if src is None or scale is None:
            return None
        held = resident(state, place)
        jobs = [_dequantizing(dequantize, held.copy, src, scale, 0), load.in_place(held)]
        guard = _suiting(suits, src, scale, 1)
        refuse = partial(KERNELS[mx.LoadStationaryMx.name], state, *values)
        return Guarded(jobs, guard, refuse, None, held)

    return FunctionPlan(bind)


@plans(mx.MultiplyMovingMx)
def multiply_moving_mx(
    engine: Engine, dst: Array, moving: Array, scale: Array, accumulate: bool, place: ArrayTile
) -> FunctionPlan | None:
    """A packed tile is multiplied by: by its values, in memory that instructions share."""
    functions = _packed(moving, scale, loaded=True)
    unpacked = _stand_in(moving)
    multiply = multiply_plan(MultiplyMoving, dst, unpacked, accumulate, len(unpacked))
    if functions is None or multiply is None:
        return None
    dequantize, suits = functions

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        dst, moving, scale, accumulate, place = values
        if dst is None or moving is None or scale is None:
            return None
        held = resident(state, place)
        shape = LANES * moving.shape[0], moving.size // moving.shape[0]
        streamed = held.scratch("dequantized", shape, DTYPES[_VALUES].numpy)
        bound = multiply.bind(state, (dst, streamed, accumulate, place))
        assert bound is not None, "all operands are there"
        jobs = [_dequantizing(dequantize, address(streamed), moving, scale, 1)]
        for job in bound.jobs:
            own = tuple((slot, position) for slot, position in job.slots if position == 0)
            jobs.append(job._replace(slots=own, same=()))
        guard = _suiting(suits, moving, scale, 2, shape[0], dst.shape[0], held.image)
        refuse = partial(KERNELS[mx.MultiplyMovingMx.name], state, *values)
        return Guarded(jobs, guard, refuse, None, (bound, streamed))

    return FunctionPlan(bind)


class Quantizing(Bound):
    """A quantisation, called from Python: NumPy executes it where it has to know which groups have
    nothing initialised."""

    __slots__ = ("_oracle", "_state")

    def __init__(self, job: Job, state: CoreState, oracle: Callable[[], None]) -> None:
        super().__init__([job])
        self._state = state
        self._oracle = oracle

    def __call__(self) -> None:
        if self._state.unknown_groups is None:
            super().__call__()
        else:
            self._oracle()


@plans(mx.QuantizeMx)
def quantize_mx(engine: Engine, dst: Array, src: Array, scale: Array) -> FunctionPlan | None:
    packed, source = dtype_name(dst), dtype_name(src)
    if packed_bits(packed) != 8 or not ports.converts(source):
        return None
    if dst.shape[0] % GROUP_PARTITIONS or not _in_rows(dst, src, scale):
        return None
    function = compiled(Quantize(packed, source))

    def bind(state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for these operands; None where they may overlap."""
        dst, src, scale = values
        if any(view is None for view in values):
            return None
        if not all(apart(one, other) for one, other in combinations(values, 2)):
            return None
        partitions = dst.shape[0]
        placed = dst, scale, src
        words = words_type(8)(
            *(address(view) for view in placed),
            *(partitions // GROUP_PARTITIONS, dst.size // partitions),
            *(view.strides[0] for view in placed),
        )
        by_group = tuple(
            (word, GROUP_PARTITIONS * view.strides[0]) for word, view in enumerate(placed)
        )
        along = Division(3, by_group, SCALE_ROWS)
        slots = ((0, 0), (1, 2), (2, 1))
        job = Job(function, words, slots, (False, False), (along,), src.size, written=2)
        return Quantizing(job, state, partial(KERNELS[mx.QuantizeMx.name], state, *values))

    return FunctionPlan(bind)


@touches(mx.LoadStationaryMx, 1)
@touches(mx.MultiplyMovingMx, 2)
@touches(mx.QuantizeMx, 2)
def scale_rows(window: Window) -> Window:
    """The rows of a scale operand that belong to groups: the first four of every quadrant."""
    partitions, *shape = window.shape
    along, *strides = window.strides
    quadrants = -(-partitions // QUADRANT)
    found = copy.copy(window)
    found.shape = (quadrants, SCALE_ROWS, *shape)
    found.strides = (QUADRANT * along, along, *strides)
    found.fixed = None
    return found
