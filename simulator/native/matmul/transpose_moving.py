"""Transpositions by an identity matrix: by one that is streamed (`nc_matmul` with `is_transpose`),
and by the array's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from isa.array_tiles import WHOLE_ARRAY, ArrayTile
from isa.dtypes import BY_CODE, DTYPES
from isa.enums import Engine
from isa.machine import tensor
from simulator.device_state import CoreState
from simulator.native.codegen.ports import decode
from simulator.native.codegen.text import WORD, FunctionText, Value
from simulator.native.matmul.gemm_image import holds
from simulator.native.matmul.image_layout import Word
from simulator.native.matmul.plans import TransposePlan, adjacent, resident, transpose_plan
from simulator.native.plans.plan import FunctionPlan, Guarded, Job, address, words_type
from simulator.native.plans.table import compiled, plans
from simulator.native.rows.elementwise import converting
from simulator.numerics.conversion import store
from simulator.oracle.table import KERNELS
from simulator.views import Array, bits, dtype_name, view_dtype

_LANES = 8

_MAGNITUDE, _INFINITE = 0x7FFFFFFF, 0x7F800000
"""The bits of fp32 magnitudes, and the magnitude from which on numbers are not finite."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Whether the tile that is held is of a shape and dtype and what is streamed is a matrix, bit
    for bit.

    Words: 0 if so, else 1, which this writes; the image, K, how many columns the tile has, the
    dtype's code; what is streamed and the bytes between its rows; the matrix, whose rows are
    adjacent, the bytes of a row, and how many.
    """

    def text(self, name: str) -> str:
        f = FunctionText(name)
        expected = {Word.depth: f.word(2), Word.columns: f.word(3), Word.dtype: f.word(4)}
        fits = holds(f, f.word(1, "ptr"), expected)
        streamed, pitch, matrix, width, rows = (
            f.word(5, "ptr"),
            f.word(6),
            f.word(7, "ptr"),
            *map(f.word, (8, 9)),
        )
        whole = width & (-_LANES * WORD)

        def row(number: Value, *found: Value) -> list[Value]:
            left = streamed + number * pitch
            right = matrix + number * width

            def compared(element: str, lanes: int) -> Any:
                def step(index: Value, differing: Value) -> list[Value]:
                    sides = [f.load(side + index, element, lanes) for side in (left, right)]
                    return [differing | f.binary("xor", *sides)]

                return step

            many, few = found
            (many,) = f.loop(f.integer(0), whole, _LANES * WORD, compared("i64", _LANES), [many])
            (few,) = f.loop(whole, width, 1, compared("i8", 0), [few])
            return [many, few]

        none = f.constant("i64", 0, _LANES), f.constant("i8", 0)
        many, few = f.loop(f.integer(0), rows, 1, row, none)
        differing = f.call(f"llvm.vector.reduce.or.v{_LANES}i64", "i64", 0, many)
        differing = differing | f.convert("zext", few, "i64")
        same = f.compare("icmp eq", differing, f.integer(0))
        refused = (fits & same) ^ 1
        f.store(f.convert("zext", refused, "i64"), f.words)
        return f.text()


@dataclass(frozen=True, slots=True)
class Finite:
    """Whether the tile that is held is of a shape and dtype and all of it is finite.

    Words: 0 if so, else 1, which this writes; the image, K, how many columns the tile has, the
    dtype's code; the copy of the tile.
    """

    dtype: str

    def text(self, name: str) -> str:
        f, row = FunctionText(name), DTYPES[self.dtype]
        expected = {Word.depth: f.word(2), Word.columns: f.word(3), Word.dtype: f.word(4)}
        fits = holds(f, f.word(1, "ptr"), expected)
        copy, count = f.word(5, "ptr"), f.word(2) * f.word(3)
        whole = count & -_LANES

        def special(lanes: int) -> Any:
            def step(index: Value, found: Value) -> list[Value]:
                stored = f.load(f.element_at(copy, index, row.size), f"i{row.bits}", lanes)
                value = f.convert("bitcast", decode(f, self.dtype, stored), "i32")
                magnitude = value & _MAGNITUDE
                infinite = f.compare("icmp uge", magnitude, f.like(value, _INFINITE))
                return [found | infinite]

            return step

        none = f.constant("i1", 0, _LANES), f.constant("i1", 0)
        (many,) = f.loop(f.integer(0), whole, _LANES, special(_LANES), none[:1])
        (few,) = f.loop(whole, count, 1, special(0), none[1:])
        any_special = f.call(f"llvm.vector.reduce.or.v{_LANES}i1", "i1", 0, many)
        any_special = any_special | few
        refused = any_special | (fits ^ 1)
        f.store(f.convert("zext", refused, "i64"), f.words)
        return f.text()


@plans(tensor.TransposeStationary)
def transpose_stationary(
    engine: Engine, dst: Array, loaded: int, multiplied: bool
) -> TransposePlan | FunctionPlan | None:
    """Where the identity matrix is multiplied by: as it is where all of the tile is finite, else by
    NumPy."""
    name = BY_CODE[loaded].name if loaded else dtype_name(dst)
    plan = transpose_plan(dst, view_dtype(name))
    if plan is None or not multiplied or not DTYPES[name].is_float:
        return plan
    finite, rows = compiled(Finite(name)), dst.shape[0]
    tile = dst.size // rows, rows, DTYPES[name].code

    def bind(state: CoreState, values: Sequence[Any]) -> Guarded | None:
        refuse = partial(KERNELS[tensor.TransposeStationary.name], state, *values)
        transposed = plan.transposed(state, values[0], WHOLE_ARRAY, refuse)
        if transposed is None:
            return None
        held = resident(state, WHOLE_ARRAY)
        guard = Job(finite, words_type(6)(0, held.image, *tile, held.copy))
        return Guarded(transposed.jobs, guard, refuse, None, transposed)

    return FunctionPlan(bind)


@plans(tensor.TransposeMoving)
def transpose_moving(
    engine: Engine, dst: Array, moving: Array, accumulate: bool, place: ArrayTile
) -> FunctionPlan | None:
    """As TransposeStationary where what is streamed is the identity and the tile has the
    destination's dtype, else by NumPy."""
    depth = moving.shape[0]
    if accumulate or moving.size != depth * depth or not converting(moving):
        return None
    if not adjacent(moving) or dst.size != depth * dst.shape[0]:
        return None
    plan = transpose_plan(dst, dst.dtype)
    if plan is None:
        return None
    ones = np.empty((depth, depth), moving.dtype)
    store(ones, np.eye(depth, dtype=np.float32))
    identity, streams = bits(ones), compiled(Streams())

    def bind(state: CoreState, values: Sequence[Any]) -> Guarded | None:
        dst, moving, _, place = values
        if dst is None or moving is None:
            return None
        refuse = partial(KERNELS[tensor.TransposeMoving.name], state, *values)
        transposed = plan.transposed(state, dst, place, refuse)
        if transposed is None:
            return None
        words = words_type(10)(
            *(0, resident(state, place).image, depth, dst.shape[0]),
            *(DTYPES[dtype_name(dst)].code, address(moving), moving.strides[0]),
            *(address(identity), identity.strides[0], depth),
        )
        guard = Job(streams, words, ((5, 1),))
        return Guarded(transposed.jobs, guard, refuse, None, (transposed, identity))

    return FunctionPlan(bind)
