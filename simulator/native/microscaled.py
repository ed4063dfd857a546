"""Microscaled (MX) tensors: quantisation, and products of packed tiles times their scales.

A loaded tile and what streams through it become fp32 tiles of four rows a partition, as
`simulator.packed.dequantized` gives them, and are multiplied as such (`simulator.native.matmul`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import mx
from isa.machine.mx import GROUP_PARTITIONS, NAN_SCALE, SCALE_ROWS
from isa.machine.tensor import MultiplyMoving
from simulator.native import ports
from simulator.native.layout import dims, space
from simulator.native.library import Function
from simulator.native.matmul import (
    LoadPlan,
    MultiplyPlan,
    UsingTile,
    load_plan,
    multiply_plan,
    resident,
)
from simulator.native.plan import Bound, Division, Job, address, apart, words_type
from simulator.native.table import compiled, plans, touches
from simulator.native.text import FunctionText, Value
from simulator.oracle.table import KERNELS
from simulator.packed import lane_bits
from simulator.views import Window, dtype_name

if TYPE_CHECKING:
    from simulator.machine import CoreState

Array = np.ndarray[Any, Any]

LANES = 4
"""Values of a packed element."""

WIDTH = 16
"""Values that are taken together."""

_ONE_BITS = 23
_BIAS = 127
_NAN = 0x7FC00000
_MAGNITUDE = 0x7FFFFFFF
_ALL_ONES = 0xFF
_SMALLEST = 0x00400000
"""2**-127, the one power of two that scales need and that fp32 has as a denormal number."""

_QUADRANT_GROUPS = SCALE_ROWS
_QUADRANT = GROUP_PARTITIONS * SCALE_ROWS


def _scale_row(f: FunctionText, group: Value) -> Value:
    """The row of a scale operand that belongs to a group, as `simulator.packed.scale_rows`."""
    number = f.integer(_QUADRANT_GROUPS)
    quadrant = f.binary("mul", f.binary("sdiv", group, number), f.integer(_QUADRANT))
    return f.binary("add", quadrant, f.binary("srem", group, number))


def _power(f: FunctionText, biased: Value) -> Value:
    """2**(biased - 127) in fp32, of i32 numbers from 0 to 254."""
    zero = f.compare("icmp eq", biased, f.like(biased, 0))
    normal = f.binary("shl", biased, f.like(biased, _ONE_BITS))
    return f.convert("bitcast", f.select(zero, f.like(biased, _SMALLEST), normal), "float")


@dataclass(frozen=True, slots=True)
class Dequantize:
    """Packed [8 G, N] times its scales as fp32 [32 G, N], rows without gaps.

    Words: result, packed elements, scales, G, N, the bytes between partitions of the packed
    elements and of the scales. Elements of a partition are adjacent.
    """

    packed: str

    def text(self, name: str) -> str:
        f = FunctionText(name)
        target, source, scales = (f.word(index, "ptr") for index in range(3))
        groups, columns, along, scales_along = (f.word(index) for index in range(3, 7))
        row = DTYPES[self.packed]
        pitch = f.binary("mul", columns, f.integer(4))

        def group(number: Value) -> None:
            scale = f.offset(scales, f.binary("mul", _scale_row(f, number), scales_along))
            first = f.binary("mul", number, f.integer(GROUP_PARTITIONS))

            def some(width: int, column: Value) -> None:
                codes = f.convert("zext", f.load(f.offset(scale, column), "i8", width), "i32")
                nan = f.compare("icmp eq", codes, f.like(codes, NAN_SCALE))
                nans = f.convert("bitcast", f.like(codes, _NAN), "float")
                factors = f.select(nan, nans, _power(f, codes))

                def partition(index: Value) -> None:
                    place = f.offset(source, f.binary("mul", index, along))
                    stored = f.load(f.element_at(place, column, row.size), f"i{row.bits}", width)
                    words = f.convert("zext", stored, "i32")
                    line = f.binary("mul", index, f.integer(LANES))
                    for lane in range(LANES):
                        value = f.binary("fmul", decode_lane(f, self.packed, words, lane), factors)
                        down = f.binary("mul", f.binary("add", line, f.integer(lane)), pitch)
                        f.store(value, f.element_at(f.offset(target, down), column, 4))

                last = f.binary("add", first, f.integer(GROUP_PARTITIONS))
                f.loop(first, last, 1, partition)

            _along(f, columns, WIDTH, some)

        f.loop(f.integer(0), groups, 1, group)
        return f.text()


def _along(f: FunctionText, count: Value, width: int, some: Callable[[int, Value], None]) -> None:
    """`some(width, index)` for as much of a row as whole vectors cover, then one by one."""
    whole = f.binary("and", count, f.integer(-width))
    f.loop(f.integer(0), whole, width, partial(some, width))
    f.loop(whole, count, 1, partial(some, 1))


def decode_lane(f: FunctionText, packed: str, words: Value, lane: int) -> Value:
    """One of the four values of packed words, in fp32."""
    width, row = lane_bits(packed), DTYPES[packed]
    shifted = f.binary("lshr", words, f.like(words, width * lane)) if lane else words
    code = f.binary("and", shifted, f.like(words, (1 << width) - 1))
    if row.lane in DTYPES:
        return ports.decode(f, row.lane, code)
    return _decode_tiny(f, row.lane or "", code)


def _decode_tiny(f: FunctionText, lane: str, code: Value) -> Value:
    """Values of a type without infinity and NaN that is no dtype of its own."""
    import ml_dtypes

    info = ml_dtypes.finfo(getattr(ml_dtypes, lane))
    below = (1 << (info.bits - 1)) - 1
    magnitude = f.binary("and", code, f.like(code, below))
    value = ports.decode_magnitude(f, magnitude, int(info.nmant), 1 - int(info.minexp))
    sign = f.binary("and", code, f.like(code, below + 1))
    sign = f.binary("shl", sign, f.like(code, 32 - int(info.bits)))
    return f.convert("bitcast", f.binary("or", f.convert("bitcast", value, "i32"), sign), "float")


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
        lane = DTYPES[self.packed].lane or ""
        row = DTYPES[self.source]
        # The exponent of the largest value, less the bit that is kept for rounding.
        largest = int(np.frexp(DTYPES[lane].largest)[1]) - 2

        def group(number: Value) -> None:
            scale = f.offset(scales, f.binary("mul", _scale_row(f, number), scales_along))
            first = f.binary("mul", number, f.integer(GROUP_PARTITIONS))
            partitions = [f.binary("add", first, f.integer(i)) for i in range(GROUP_PARTITIONS)]

            def some(words: int, column: Value) -> None:
                width = LANES * words
                values = []
                for index in partitions:
                    place = f.offset(source, f.binary("mul", index, source_along))
                    place = f.element_at(place, column, LANES * row.size)
                    stored = f.load(place, f"i{row.bits}", width)
                    values.append(ports.decode(f, self.source, stored))
                most = _exponents(f, values)
                code = f.binary("sub", most, f.like(most, largest))
                code = f.intrinsic("smax", code, f.like(code, 0))
                factor = _power(f, f.binary("sub", f.like(code, 2 * _BIAS), code))
                for index, value in zip(partitions, values):
                    scaled = _bounded(f, lane, f.binary("fmul", value, factor))
                    place = f.offset(target, f.binary("mul", index, along))
                    f.store(ports.encode(f, lane, scaled), f.element_at(place, column, LANES))
                nan = f.compare("icmp eq", most, f.like(most, _ALL_ONES))
                kept = f.select(nan, f.like(code, NAN_SCALE), code)
                by_word = f.shuffle(kept, kept, range(0, width, LANES))
                f.store(f.convert("trunc", by_word, "i8"), f.offset(scale, column))

            _along(f, columns, WIDTH // LANES, some)

        f.loop(f.integer(0), groups, 1, group)
        return f.text()


def _exponents(f: FunctionText, values: Sequence[Value]) -> Value:
    """The biased exponent of the largest magnitude of all values of a word, in each of its lanes;
    that of infinity and NaN is all ones."""
    most: Value | None = None
    for value in values:
        pattern = f.convert("bitcast", value, "i32")
        magnitude = f.binary("and", pattern, f.like(pattern, _MAGNITUDE))
        most = magnitude if most is None else f.intrinsic("umax", most, magnitude)
    assert most is not None
    for distance in (1, 2):
        turned = f.shuffle(most, most, [lane ^ distance for lane in range(most.width)])
        most = f.intrinsic("umax", most, turned)
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
    for view in views:
        row = space([dims(view.shape[1:], view.strides[1:])])
        if not view.size or row is None or row.strides[0] not in ((), (view.dtype.itemsize,)):
            return False
    return True


def _packed(view: Array, scale: Array) -> Function | None:
    """What makes fp32 of a packed operand; None where its layout is none that it takes."""
    if view.shape[0] % GROUP_PARTITIONS or not _in_rows(view, scale):
        return None
    return compiled(Dequantize(dtype_name(view)))


def _stand_in(view: Array) -> Array:
    """An array of the shape and dtype of a dequantised operand."""
    return np.empty((LANES * view.shape[0], view.size // view.shape[0]), np.float32)


def _dequantizing(function: Function, target: int, view: Array, scale: Array, at: int) -> Job:
    """The job that makes fp32 at an address of the packed operand at a position of the values and
    the scales behind it."""
    partitions = view.shape[0]
    words = words_type(7)(
        *(target, address(view), address(scale), partitions // GROUP_PARTITIONS),
        *(view.size // partitions, view.strides[0], scale.strides[0]),
    )
    pitch = LANES * 4 * view.size // partitions
    steps = ((0, pitch), (1, view.strides[0]), (2, scale.strides[0]))
    by_group = tuple((word, GROUP_PARTITIONS * step) for word, step in steps)
    along = Division(3, by_group, _QUADRANT_GROUPS)
    return Job(function, words, ((1, at), (2, at + 1)), (), (along,), LANES * view.size)


@dataclass(frozen=True, slots=True)
class LoadMxPlan:
    """How to load a packed tile: its fp32 values are made where the tile is held."""

    dequantize: Function
    load: LoadPlan
    result: None = None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for these operands."""
        src, scale, row = values
        if src is None or scale is None:
            return None
        held = resident(state, (row,))
        job = _dequantizing(self.dequantize, held.copy, src, scale, 0)
        return Bound([job, self.load.in_place(held)], held)


@plans(mx.LoadStationaryMx)
def load_stationary_mx(engine: Engine, src: Array, scale: Array, row: int) -> LoadMxPlan | None:
    dequantize = _packed(src, scale)
    if dequantize is None:
        return None
    load = load_plan(_stand_in(src), LANES * src.shape[0])
    return None if load is None else LoadMxPlan(dequantize, load)


@dataclass(frozen=True, slots=True)
class MultiplyMxPlan:
    """How to multiply by a packed tile: by its fp32 values, in memory that instructions share."""

    dequantize: Function
    multiply: MultiplyPlan
    result: None = None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for these operands."""
        dst, moving, scale, accumulate, row = values
        if dst is None or moving is None or scale is None:
            return None
        held = resident(state, (row,))
        shape = LANES * moving.shape[0], moving.size // moving.shape[0]
        streamed = held.scratch("dequantized", shape, np.dtype(np.float32))
        bound = self.multiply.bind(state, (dst, streamed, accumulate, row))
        assert bound is not None, "all operands are there"
        jobs = [_dequantizing(self.dequantize, address(streamed), moving, scale, 1)]
        for job in bound.jobs:
            own = tuple((slot, position) for slot, position in job.slots if position == 0)
            jobs.append(job._replace(slots=own, same=()))
        refuse = partial(KERNELS[mx.MultiplyMovingMx.name], state, *values)
        return UsingTile(jobs, held, refuse, (bound, streamed))


@plans(mx.MultiplyMovingMx)
def multiply_moving_mx(
    engine: Engine, dst: Array, moving: Array, scale: Array, accumulate: bool, row: int
) -> MultiplyMxPlan | None:
    dequantize = _packed(moving, scale)
    if dequantize is None:
        return None
    streamed = _stand_in(moving)
    multiply = multiply_plan(MultiplyMoving, dst, streamed, accumulate, len(streamed))
    return None if multiply is None else MultiplyMxPlan(dequantize, multiply)


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


@dataclass(frozen=True, slots=True)
class QuantizePlan:
    """How to quantise a source of one layout."""

    function: Function
    result: None = None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for these operands; None where they may overlap."""
        dst, src, scale = values
        if any(view is None for view in values):
            return None
        if not (apart(dst, src) and apart(scale, src) and apart(dst, scale)):
            return None
        partitions = dst.shape[0]
        order = dst, scale, src
        words = words_type(8)(
            *(address(view) for view in order),
            *(partitions // GROUP_PARTITIONS, dst.size // partitions),
            *(view.strides[0] for view in order),
        )
        by_group = tuple(
            (word, GROUP_PARTITIONS * view.strides[0]) for word, view in enumerate(order)
        )
        along = Division(3, by_group, _QUADRANT_GROUPS)
        slots = ((0, 0), (1, 2), (2, 1))
        job = Job(self.function, words, slots, (False, False), (along,), src.size, written=2)
        return Quantizing(job, state, partial(KERNELS[mx.QuantizeMx.name], state, *values))


@plans(mx.QuantizeMx)
def quantize_mx(engine: Engine, dst: Array, src: Array, scale: Array) -> QuantizePlan | None:
    packed, source = dtype_name(dst), dtype_name(src)
    if lane_bits(packed) != 8 or not ports.converts(source):
        return None
    if dst.shape[0] % GROUP_PARTITIONS or not _in_rows(dst, src, scale):
        return None
    function = compiled(Quantize(packed, source))
    return None if function is None else QuantizePlan(function)


@touches(mx.LoadStationaryMx, 1)
@touches(mx.MultiplyMovingMx, 2)
@touches(mx.QuantizeMx, 2)
def scale_rows(window: Window) -> Window:
    """The rows of a scale operand that belong to groups: the first four of every quadrant."""
    partitions, *shape = window.shape
    along, *strides = window.strides
    quadrants = -(-partitions // _QUADRANT)
    found = copy.copy(window)
    found.shape = (quadrants, SCALE_ROWS, *shape)
    found.strides = (_QUADRANT * along, along, *strides)
    found.fixed = None
    return found
