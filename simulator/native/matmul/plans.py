"""Native plans of the tensor engine's rows: loading a tile, multiplying by it, transposing it.

The micro-kernels are those of `simulator.native.matmul.gemm`. The image of the tile at a place of
the array is at one address for good, so that neither loading nor multiplying needs Python in
between.
"""

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
from isa.spec import MachineInstruction
from simulator.device_state import Arena, CoreState, StationaryTile
from simulator.memory import LINE as CACHE_LINE
from simulator.memory import bytes_at_line
from simulator.native.codegen.library import Function
from simulator.native.matmul.blocks import Blocking, blocking
from simulator.native.matmul.gemm import MOST_PARTS, ROWS_TOGETHER, WORDS, MultiplyKernel
from simulator.native.matmul.gemm_image import TILE, Expect, Hold, Image, Load, Make
from simulator.native.matmul.image_layout import DEEPEST, HEADER, WIDEST, Word, image_bytes
from simulator.native.matmul.packed_strips import room_for_strips
from simulator.native.matmul.transpose_stationary import WORDS as TURN
from simulator.native.matmul.transpose_stationary import TransposeTileKernel
from simulator.native.plans.iteration_space import dims, space
from simulator.native.plans.plan import (
    Bound,
    Call,
    Compound,
    Division,
    Job,
    Plan,
    TensorJob,
    address,
    address_of,
    inner_job,
    repeating_job,
    words_type,
)
from simulator.native.plans.table import Planner, compiled, plans
from simulator.native.rows.copy import convert_plan
from simulator.native.rows.elementwise import converting, map_plan, tile
from simulator.oracle.table import KERNELS
from simulator.views import Array, dtype_name, view_dtype

_ELEMENT = 4
"""Bytes of the largest elements that are multiplied."""

APART = -(-image_bytes(DEEPEST, WIDEST) // CACHE_LINE) * CACHE_LINE
"""Bytes between the images of a tile."""

_LEAST_COLUMNS = 32
"""Columns of a product that stay together when it is divided along them."""

_LEAST_ROWS = 2 * ROWS_TOGETHER
"""Rows of a product from which on it is divided along them."""

_SUMS_AS_AN_ELEMENT = 8
"""Multiply-adds that take about the time of one element of an element-wise instruction."""


def _image_maker(dtype: str, block: Blocking) -> Function:
    """The function that makes the image of a tile."""
    return compiled(Image(dtype, block.form_of(dtype)))


class HeldTile(StationaryTile):
    """A tile in native memory: its images, one for each of `threads`, then a copy of it as it was
    loaded. What is multiplied by it out of `sbuf` may stay in their `strips`.

    It is whichever tile was loaded last; the images' headers say which. `image` and `copy` are
    addresses, images lie `APART` bytes apart, and `scratch` is memory for operands that are not
    rows.
    """

    def __init__(
        self, threads: int = 1, strips: Sequence[Any] = (), sbuf: Arena | None = None
    ) -> None:
        self.threads = threads
        self._memory = bytes_at_line(threads * APART + _ELEMENT * DEEPEST * WIDEST)
        self._headers = [
            self._memory[APART * number :][:HEADER].view(np.int64) for number in range(threads)
        ]
        self._strips = strips
        for header in self._headers:
            header[:] = 0
        if sbuf is not None:
            for header, room in zip(self._headers, strips):
                header[Word.kept], header[Word.origin] = address(room), address(sbuf.buffer)
                header[Word.pitch] = sbuf.pitch
        self._widened: tuple[int, Array | None] = 0, None
        self._scratch: dict[str, Array] = {}
        self._maker: Function | None = None
        self.image = address(self._memory)
        self.copy = self.image + threads * APART

    @property
    def _header(self) -> Array:
        return self._headers[0]

    @property
    def loaded(self) -> HeldTile | None:
        """Itself, if it holds a tile."""
        return self if self._header[Word.depth] else None

    @property
    def tile(self) -> Array:  # type: ignore[override]
        """The copy of the tile."""
        depth, columns, code = (
            int(self._header[word]) for word in (Word.depth, Word.columns, Word.dtype)
        )
        return self.copy_as((depth, columns), view_dtype(BY_CODE[code].name))

    @property
    def widened(self) -> Array | None:  # type: ignore[override]
        """What was set here since the last tile was loaded."""
        loads, widened = self._widened
        return widened if loads == self._header[Word.loads] else None

    @widened.setter
    def widened(self, value: Array | None) -> None:
        self._widened = int(self._header[Word.loads]), value

    @property
    def refused(self) -> bool:
        """Whether an instruction found another tile than it takes, or none."""
        return any(header[Word.refused] for header in self._headers)

    @refused.setter
    def refused(self, value: bool) -> None:
        for header in self._headers:
            header[Word.refused] = value

    def take(self, tile: StationaryTile | None) -> None:
        """Hold this tile, or none if it is none or native code cannot multiply by it."""
        block = blocking()
        for header in self._headers:
            header[Word.depth] = 0
        if tile is None or not tile.tile.size:
            return
        source = np.ascontiguousarray(tile.tile)
        (depth, columns), dtype = source.shape, dtype_name(tile.tile)
        if not converting(tile.tile) or not _fits(depth, columns):
            return
        self._maker = _image_maker(dtype, block)
        words = self.load_words(source.shape, dtype, self._maker)
        words[1], words[4] = address(source), source.strides[0]
        compiled(Load())(words)

    def load_words(self, shape: tuple[int, ...], dtype: str, maker: Function) -> Any:
        """The argument words of `Load` for what is in the memory of the copy already."""
        depth, columns = shape
        row = columns * DTYPES[dtype].size
        tile = self.image, self.copy, depth, columns, row, DTYPES[dtype].code, address_of(maker)
        return words_type(len(TILE) + 4)(*tile, self.copy, row, self.threads, APART)

    def copy_as(self, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
        """The memory of the copy as a tile."""
        offset = self.copy - self.image
        return np.ndarray(shape, dtype, self._memory, offset)

    def scratch(self, purpose: str, shape: tuple[int, int], dtype: np.dtype[Any]) -> Array:
        """Memory that instructions share, one at a time: a new array of this shape and dtype."""
        size = shape[0] * shape[1] * dtype.itemsize
        held = self._scratch.get(purpose)
        if held is None or held.size < size:
            held = self._scratch[purpose] = np.empty(size, np.uint8)
        return np.ndarray(shape, dtype, held)


def resident(state: CoreState, place: ArrayTile) -> HeldTile:
    """The memory for the tile at a place of the array."""
    strips, threads = state.stationary.strips, min(state.threads, MOST_PARTS)
    while len(strips) < threads:
        strips.append(room_for_strips(state.sbuf.pitch))
    found: HeldTile = state.stationary.resident(
        place, partial(HeldTile, threads, strips, state.sbuf)
    )
    return found


def _fits(depth: int, columns: int) -> bool:
    return depth <= DEEPEST and columns <= WIDEST


def adjacent(view: Array) -> bool:
    """Whether the elements of each row of [rows, *free] are adjacent."""
    row = space([dims(view.shape[1:], view.strides[1:])])
    return row is not None and row.strides[0] in ((), (view.dtype.itemsize,))


@dataclass(frozen=True, slots=True)
class LoadPlan(Compound):
    """How to load a source of one dtype as a [K, M] tile, whose image is made by `maker`.

    A source that is not rows in memory is copied first (`before`), as it is.
    """

    dtype: str
    maker: Function
    shape: tuple[int, int]
    before: Plan | None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for these operands."""
        source, place = values
        if source is None:
            return None
        held = resident(state, place)
        load = self.in_place(held)
        words, keep = load.words, (held, self.maker)
        if self.before is None:
            words[1], words[4] = address(source), source.strides[0]
            job = load._replace(slots=((1, 0),))
            # Where it waits, what multiplies by the tile makes an image of the tile itself.
            tile = words_type(len(TILE))(*words[: len(TILE)])
            hold = Job(compiled(Hold()), tile, ((1, 0),))
            product = TensorJob(hold, TILE.index("image"), APART, keep=job)
            return Bound([job], keep, [product])
        copy = held.copy_as(self.shape, view_dtype(self.dtype))
        return Bound([inner_job(self.before, state, copy, source, 1, 0), load], keep)

    def in_place(self, held: HeldTile) -> Job:
        """What loads a tile that is in the memory of the copy already."""
        return Job(compiled(Load()), held.load_words(self.shape, self.dtype, self.maker))


def load_plan(src: Array, depth: int) -> LoadPlan | None:
    block = blocking()
    if not converting(src) or not src.size:
        return None
    shape = depth, src.size // depth
    if not _fits(*shape):
        return None
    before = None
    if depth != src.shape[0] or not adjacent(src):
        before = convert_plan(np.empty(shape, src.dtype), src)
        if before is None:
            return None
    name = dtype_name(src)
    return LoadPlan(name, _image_maker(name, block), shape, before)


@plans(tensor.LoadStationary)
def load_stationary(engine: Engine, src: Array, place: ArrayTile) -> LoadPlan | None:
    return load_plan(src, src.shape[0])


@plans(tensor.LoadStationaryPairs)
def load_stationary_pairs(engine: Engine, src: Array, place: ArrayTile) -> LoadPlan | None:
    return load_plan(src, 2 * src.shape[0])


class UsingTile(Bound):
    """An instruction that uses the loaded tile, called from Python: where native code does not find
    the tile that it takes, NumPy executes the instruction, or says what is wrong. What an earlier
    one did not find is said first (`check`)."""

    __slots__ = ("_check", "_held", "_refuse")

    def __init__(
        self,
        jobs: Sequence[Job],
        held: HeldTile,
        check: Call,
        refuse: Call,
        keep: Any,
        products: Sequence[TensorJob] = (),
    ) -> None:
        super().__init__(jobs, keep, products)
        self._held = held
        self._check = check
        self._refuse = refuse

    def __call__(self) -> None:
        self._check()
        super().__call__()
        if self._held.refused:
            self._held.refused = False
            self._refuse()


@dataclass(frozen=True, slots=True)
class MultiplyPlan(Compound):
    """How to run a multiplication for operands of one layout.

    A moving tile that is not rows in memory is copied into scratch first (`before`); results that
    are not come from scratch (`after`).
    """

    row: type[MachineInstruction]
    function: Function
    shape: tuple[int, int]
    before: Plan | None
    after: Plan | None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for these operands; None where results that are added up repeat."""
        dst, moving, _, place = values
        if dst is None or moving is None:
            return None
        held = resident(state, place)
        depth, rows = self.shape
        columns = moving.size // depth
        target, streamed = dst, moving
        first = [Job(compiled(Make()), words_type(3)(held.image, depth, rows))]
        last: list[Job] = []
        slots: list[tuple[int, int]] = []
        if self.after is None:
            slots.append((0, 0))
        else:
            target = held.scratch("products", (rows, columns), np.dtype(np.float32))
            behind = repeating_job(self.after, state, dst, target, 0, 0)
            if behind is None:
                return None
            last.append(behind)
        if self.before is None:
            slots.append((1, 1))
        else:
            streamed = held.scratch("moving", (depth, columns), moving.dtype)
            first.append(inner_job(self.before, state, streamed, moving, 1, 1))
        words = words_type(len(WORDS))(
            *(address(target), address(streamed), held.image, depth, rows, columns),
            *(target.strides[0], streamed.strides[0], 0, rows),
            *(address(streamed), streamed.strides[0], 0),
        )
        if rows < _LEAST_ROWS:
            sizes = target.dtype.itemsize, streamed.dtype.itemsize
            along = Division(5, tuple(enumerate(sizes)), _LEAST_COLUMNS)
        else:
            along = Division(4, ((0, target.strides[0]), (8, 1)), ROWS_TOGETHER)
        job = Job(
            self.function,
            words,
            tuple(slots),
            (False,) * (len(slots) - 1),
            (along,),
            depth * rows * columns // _SUMS_AS_AN_ELEMENT,
        )
        refuse = partial(KERNELS[self.row.name], state, *values)
        keep = held, target, streamed
        products = []
        if self.before is None and self.after is None:
            rows_of = Division(4, ((0, target.strides[0]), (8, 1)), ROWS_TOGETHER)
            waiting = job._replace(divisions=(rows_of,))
            products.append(TensorJob(waiting, WORDS.index("image"), APART, streams=True))
        check = state.stationary.check
        return UsingTile([*first, job, *last], held, check, refuse, keep, products)


def multiply_plan(
    row: type[MachineInstruction], dst: Array, moving: Array, accumulate: bool, depth: int
) -> MultiplyPlan | None:
    block = blocking()
    if not converting(dst, moving) or not moving.size:
        return None
    rows = dst.shape[0]
    if dst.size * depth != moving.size * rows or not _fits(depth, rows):
        return None
    before = after = None
    if depth != moving.shape[0] or not adjacent(moving):
        before = convert_plan(_rows_like(moving, depth, moving.dtype), moving)
        if before is None:
            return None
    stores = adjacent(dst)
    if not stores:
        after = _from_scratch(dst, accumulate)
        if after is None:
            return None
    output = dtype_name(dst) if stores else "float32"
    function = compiled(MultiplyKernel(dtype_name(moving), output, accumulate and stores, block))
    return MultiplyPlan(row, function, (depth, rows), before, after)


def _rows_like(view: Array, rows: int, dtype: Any) -> Array:
    """An array for the elements of a view as [rows, n]."""
    return np.empty((rows, view.size // rows), dtype)


def _multiplying(row: type[MachineInstruction], deeper: int) -> Planner:
    """The planner of a row that takes so many rows of K from each partition."""

    def plan(
        engine: Engine, dst: Array, moving: Array, accumulate: bool, place: ArrayTile
    ) -> MultiplyPlan | None:
        return multiply_plan(row, dst, moving, accumulate, deeper * moving.shape[0])

    return plan


for _row, _deeper in (
    (tensor.MultiplyMoving, 1),
    (tensor.MultiplyMovingOneZero, 1),
    (tensor.MultiplyMovingPairs, 2),
):
    plans(_row)(_multiplying(_row, _deeper))


def _from_scratch(dst: Array, accumulate: bool) -> Plan | None:
    """dst = (or +=) products that are fp32 rows."""
    inputs, steps = [tile(1, _rows_like(dst, dst.shape[0], np.float32))], []
    if accumulate:
        inputs.append(tile(0, dst))
        steps.append(("alu", "add", (0, 1)))
    return map_plan("float32", dst, inputs, steps)


@dataclass(frozen=True, slots=True)
class TransposePlan(Compound):
    """How to run TransposeStationary into a destination of one layout, from a tile of a dtype.
    `turn` does so where elements stay as they are and rows of the destination are adjacent ones."""

    dtype: np.dtype[Any]
    expect: Function
    turn: Function | None
    plan: Plan
    shape: tuple[int, int]

    def bind(self, state: CoreState, values: Sequence[Any]) -> Bound | None:
        """The call for this destination, if the loaded tile has the dtype; else NumPy converts."""
        refuse = partial(KERNELS[tensor.TransposeStationary.name], state, *values)
        return self.transposed(state, values[0], WHOLE_ARRAY, refuse)

    def transposed(
        self, state: CoreState, dst: Array | None, place: ArrayTile, refuse: Call
    ) -> Bound | None:
        """The transposition of the tile at a place, `refuse` where it is another one."""
        if dst is None:
            return None
        held = resident(state, place)
        code = DTYPES[dtype_name(transposed := held.copy_as(self.shape, self.dtype).T)].code
        words = words_type(4)(held.image, *self.shape, code)
        jobs = Job(self.expect, words), inner_job(self.plan, state, dst, transposed, 0, 0)
        products = []
        if self.turn is not None:
            depth, columns = self.shape
            down = dst.strides[0]
            arguments = address(dst), held.image, depth, columns, code, 0, columns, down
            rows = Division(
                TURN.index("rows"), ((0, down), (TURN.index("first"), 1)), ROWS_TOGETHER
            )
            job = Job(
                *(self.turn, words_type(len(TURN))(*arguments), ((0, 0),)),
                divisions=(rows,),
                work=dst.size,
            )
            products.append(TensorJob(job, TURN.index("image"), APART))
        return UsingTile(jobs, held, state.stationary.check, refuse, held, products)


def transpose_plan(dst: Array, dtype: np.dtype[Any]) -> TransposePlan | None:
    """The plan of a transposition of the loaded tile, which has this dtype, into a destination."""
    rows = dst.shape[0]
    if not dst.size or not converting(dst):
        return None
    shape = dst.size // rows, rows
    fits = _fits(*shape)
    plan = convert_plan(dst, np.empty(shape, dtype).T) if fits else None
    if plan is None:
        return None
    turns = adjacent(dst) and dtype == dst.dtype
    turn = compiled(TransposeTileKernel(dst.dtype.itemsize)) if turns else None
    return TransposePlan(dtype, compiled(Expect()), turn, plan, shape)
