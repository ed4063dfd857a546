"""Native plans of the tensor engine's rows: loading a tile, multiplying by it, transposing it.

The micro-kernels are those of `simulator.native.gemm`. Which tile is loaded is seen when a
multiplication runs: a tile that NumPy loaded is packed then.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.enums import Engine
from isa.machine import tensor
from isa.spec import MachineInstruction
from simulator.machine import StationaryTile
from simulator.native.copy import convert_plan
from simulator.native.elementwise import converting, map_plan, tile
from simulator.native.gemm import (
    DEEPEST,
    HEADER,
    WIDEST,
    Blocking,
    Load,
    Multiply,
    fits_pairs,
    image_bytes,
)
from simulator.native.layout import dims, space
from simulator.native.levels import Level
from simulator.native.library import Function, library
from simulator.native.plan import Call, Plan, address, words_type
from simulator.native.table import compiled, plans
from simulator.oracle.table import KERNELS
from simulator.views import dtype_name

if TYPE_CHECKING:
    from simulator.machine import CoreState

Array = np.ndarray[Any, Any]


@cache
def blocking() -> Blocking | None:
    """The block of results for this CPU; None where there is no LLVM."""
    functions = library()
    return None if functions is None else block_for(functions.level)


def block_for(level: Level) -> Blocking:
    """The block for a level: as many sums as hide the latency of FMA, and no more registers."""
    if level.wide_registers:
        return Blocking(8, 2, 16, dot=level.bf16_dot)
    if level.fused:
        return Blocking(8, 2, 4) if level.many_registers else Blocking(4, 2, 8)
    return Blocking(2, 2, 4, fused=False)


class HeldTile(StationaryTile):
    """A loaded tile with its image: `panels`, at an address divisible by the size of a line of
    cache. `places`: the addresses of image and tile."""

    __slots__ = ("places",)

    def __init__(self, held: Array) -> None:
        super().__init__(held)
        room = np.empty(image_bytes(*held.shape) + HEADER, np.uint8)
        self.panels = room[-address(room) % HEADER :]
        self.places = address(self.panels), address(held)


def _pack(loaded: StationaryTile, block: Blocking) -> HeldTile:
    """A tile that NumPy loaded, with an image."""
    source = loaded.tile
    held = HeldTile(np.empty_like(source))
    function = _loader(dtype_name(source), block)
    words = (*held.places, address(source), *source.shape, source.strides[0])
    function(words_type(len(words))(*words))
    return held


def _loader(dtype: str, block: Blocking) -> Function:
    function = compiled(Load(dtype, block.dot and fits_pairs(dtype)))
    assert function is not None
    return function


class LoadPlan:
    """How to load a source of one layout as a [K, M] tile.

    A source that is not rows in memory is copied first (`before`), as it is.
    """

    __slots__ = ("_before", "_dtype", "_function", "_shape", "result")

    def __init__(
        self,
        function: Function,
        dtype: np.dtype[Any],
        shape: tuple[int, int],
        before: Plan | None,
    ) -> None:
        self._function = function
        self._dtype = dtype
        self._shape = shape
        self._before = before
        self.result = None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Call | None:
        """The call for these operands. It takes the memory of the tile that was loaded before."""
        source, *corner = values
        if source is None:
            return None
        function, dtype, shape, before = self._function, self._dtype, self._shape, self._before
        key = _corner(corner)
        words = words_type(6)(0, 0, address(source), *shape, source.strides[0])

        def load() -> None:
            held = state.stationary.get(key)
            if (
                type(held) is not HeldTile
                or held.tile.dtype is not dtype
                or held.tile.shape != shape
            ):
                held = state.stationary[key] = HeldTile(np.empty(shape, dtype))
            held.widened = None
            words[0], words[1] = held.places
            if before is not None:
                _run(before, state, held.tile, source)
                words[2], words[5] = words[1], held.tile.strides[0]
            function(words)

        return load


def _corner(numbers: Sequence[int]) -> tuple[int, int]:
    """The key of a loaded tile; rows without a column use the first one."""
    return (numbers[0], numbers[1] if len(numbers) > 1 else 0)


def _load_plan(src: Array, depth: int) -> LoadPlan | None:
    block = blocking()
    if block is None or not converting(src) or not src.size:
        return None
    shape = depth, src.size // depth
    if shape[0] > DEEPEST or shape[1] > WIDEST:
        return None
    before = None
    if depth != src.shape[0] or not _adjacent(src):
        before = convert_plan(np.empty(shape, src.dtype), src)
        if before is None:
            return None
    return LoadPlan(_loader(dtype_name(src), block), src.dtype, shape, before)


@plans(tensor.LoadStationary)
def load_stationary(engine: Engine, src: Array, row: int, column: int) -> LoadPlan | None:
    return _load_plan(src, src.shape[0])


@plans(tensor.LoadStationaryPairs)
def load_stationary_pairs(engine: Engine, src: Array, row: int) -> LoadPlan | None:
    return _load_plan(src, 2 * src.shape[0])


def _adjacent(view: Array) -> bool:
    """Whether the elements of each row of [rows, *free] are adjacent."""
    row = space([dims(view.shape[1:], view.strides[1:])])
    return row is not None and row.strides[0] in ((), (view.dtype.itemsize,))


def _rows_like(view: Array, rows: int, dtype: Any) -> Array:
    """Scratch for the elements of a view as [rows, n]."""
    return np.empty((rows, view.size // rows), dtype)


class MultiplyPlan:
    """How to run a multiplication for operands of one layout.

    A moving tile that is not rows in memory is copied into scratch first (`before`); results that
    are not come from scratch (`after`).
    """

    __slots__ = ("_after", "_before", "_block", "_function", "_row", "_shape", "result")

    def __init__(
        self,
        row: type[MachineInstruction],
        function: Function,
        block: Blocking,
        shape: tuple[int, int],
        before: Plan | None,
        after: Plan | None,
    ) -> None:
        self._row = row
        self._function = function
        self._block = block
        self._shape = shape
        self._before = before
        self._after = after
        self.result = None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Call | None:
        """The call for these operands; which tile is loaded is seen when it runs."""
        dst, moving, _, *corner = values
        if dst is None or moving is None:
            return None
        depth, rows = self._shape
        words = words_type(8)(0, 0, 0, depth, rows, moving.size // depth, 0, 0)
        if self._before is None:
            words[1], words[7] = address(moving), moving.strides[0]
        if self._after is None:
            words[0], words[6] = address(dst), dst.strides[0]
        function, block, before, after = self._function, self._block, self._before, self._after
        shape, key = self._shape, _corner(corner)
        refuse = partial(KERNELS[self._row.name], state, *values)

        def multiply() -> None:
            loaded = state.stationary.get(key)
            if loaded is None or loaded.tile.shape != shape or not converting(loaded.tile):
                refuse()
                return
            if type(loaded) is not HeldTile:
                loaded = state.stationary[key] = _pack(loaded, block)
            words[2] = loaded.places[0]
            if before is not None:
                streamed = _rows_like(moving, depth, moving.dtype)
                words[1], words[7] = address(streamed), streamed.strides[0]
                _run(before, state, streamed, moving)
            if after is not None:
                products = _rows_like(dst, rows, np.float32)
                words[0], words[6] = address(products), products.strides[0]
            function(words)
            if after is not None:
                _run(after, state, dst, products)

        return multiply


def _run(plan: Plan, state: CoreState, *values: Array) -> None:
    call = plan.bind(state, values)
    assert call is not None, "scratch overlaps nothing"
    call()


def _multiply_plan(
    row: type[MachineInstruction], dst: Array, moving: Array, accumulate: bool, depth: int
) -> MultiplyPlan | None:
    block = blocking()
    if block is None or not converting(dst, moving) or not moving.size:
        return None
    rows = dst.shape[0]
    if dst.size * depth != moving.size * rows or depth > DEEPEST or rows > WIDEST:
        return None
    before = after = None
    if depth != moving.shape[0] or not _adjacent(moving):
        before = convert_plan(_rows_like(moving, depth, moving.dtype), moving)
        if before is None:
            return None
    stores = _adjacent(dst)
    if not stores:
        after = _from_scratch(dst, accumulate)
        if after is None:
            return None
    output = dtype_name(dst) if stores else "float32"
    kernel = Multiply(dtype_name(moving), output, accumulate and stores, block)
    function = compiled(kernel)
    assert function is not None
    return MultiplyPlan(row, function, block, (depth, rows), before, after)


@plans(tensor.MultiplyMoving)
def multiply_moving(
    engine: Engine, dst: Array, moving: Array, accumulate: bool, row: int, column: int
) -> MultiplyPlan | None:
    return _multiply_plan(tensor.MultiplyMoving, dst, moving, accumulate, moving.shape[0])


@plans(tensor.MultiplyMovingOneZero)
def multiply_moving_one_zero(
    engine: Engine, dst: Array, moving: Array, accumulate: bool, row: int, column: int
) -> MultiplyPlan | None:
    return _multiply_plan(tensor.MultiplyMovingOneZero, dst, moving, accumulate, moving.shape[0])


@plans(tensor.MultiplyMovingPairs)
def multiply_moving_pairs(
    engine: Engine, dst: Array, moving: Array, accumulate: bool, row: int
) -> MultiplyPlan | None:
    return _multiply_plan(tensor.MultiplyMovingPairs, dst, moving, accumulate, 2 * moving.shape[0])


def _from_scratch(dst: Array, accumulate: bool) -> Plan | None:
    """dst = (or +=) products that are fp32 rows."""
    inputs, steps = [tile(1, _rows_like(dst, dst.shape[0], np.float32))], []
    if accumulate:
        inputs.append(tile(0, dst))
        steps.append(("alu", "add", (0, 1)))
    return map_plan("float32", dst, inputs, steps)


class TransposePlan:
    """How to run TransposeStationary into a destination of one layout."""

    __slots__ = ("_found", "result")

    def __init__(self) -> None:
        self.result = None
        self._found: dict[tuple[str, tuple[int, ...]], Plan | None] = {}

    def bind(self, state: CoreState, values: Sequence[Any]) -> Call:
        """The call for this destination; which tile is loaded is seen when it runs."""
        (dst,) = values
        numpy_kernel = KERNELS[tensor.TransposeStationary.name]

        def transpose() -> None:
            loaded = state.stationary.get((0, 0))
            if loaded is None:
                numpy_kernel(state, dst)
                return
            turned = loaded.tile.T
            key = dtype_name(turned), turned.shape
            if key not in self._found:
                self._found[key] = convert_plan(dst, turned)
            plan = self._found[key]
            call = None if plan is None else plan.bind(state, (dst, turned))
            if call is None:
                numpy_kernel(state, dst)
            else:
                call()

        return transpose


@plans(tensor.TransposeStationary)
def transpose_stationary(engine: Engine, dst: Array) -> TransposePlan:
    return TransposePlan()
