"""The product of the PE array: for every result the ascending-k sum of fp32 fused multiply-adds.

The loaded tile is packed once into panels: groups of columns, widened to fp32, in the order in
which the inner loop takes them. A block of results stays in vector registers while k runs. The
size of a block follows the CPU's registers and changes no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.machine import tensor
from simulator.native import ports
from simulator.native.copy import convert_plan, through_float32
from simulator.native.elementwise import converting, map_plan, tile
from simulator.native.layout import dims, space
from simulator.native.library import Function, library
from simulator.native.plan import Call, Plan, address, words_type
from simulator.native.table import compiled, plans
from simulator.native.text import FunctionText, Value
from simulator.oracle.table import KERNELS
from simulator.views import dtype_name

if TYPE_CHECKING:
    from simulator.machine import CoreState, StationaryTile

Array = np.ndarray[Any, Any]

STREAMED = frozenset({"float32", "bfloat16"})
"""Dtypes of the moving tile that are widened in the inner loop; others are widened before."""


@dataclass(frozen=True, slots=True)
class Blocking:
    """A block of results: `rows` of `vectors` vectors of `width` fp32 lanes."""

    rows: int
    vectors: int
    width: int


@cache
def blocking() -> Blocking | None:
    """The block for this CPU; None where it has no fused multiply-add, or there is no LLVM."""
    functions = library()
    if functions is None or not functions.has_fma:
        return None
    return Blocking(8, 3, 16) if functions.wide_registers else Blocking(4, 3, 8)


@dataclass(frozen=True, slots=True)
class Pack:
    """Panels of a loaded tile [K, M]: for each group of `rows` of its columns, [K, rows] as fp32,
    zeros beyond M. Words: panels, tile, K, M."""

    dtype: str
    rows: int

    def text(self, name: str) -> str:
        f = FunctionText(name)
        panels, source = f.word(0, "ptr"), f.word(1, "ptr")
        depth, columns = f.word(2), f.word(3)
        size, lane = DTYPES[self.dtype].size, f"i{DTYPES[self.dtype].bits}"
        panel_bytes = f.binary("mul", depth, f.integer(4 * self.rows))

        def line(k: Value) -> None:
            row = f.element_at(source, f.binary("mul", k, columns), size)
            target = f.element_at(panels, k, 4 * self.rows)

            def place(column: Value) -> Value:
                panel = f.binary("udiv", column, f.integer(self.rows))
                return f.offset(target, f.binary("mul", panel, panel_bytes))

            def full(column: Value) -> None:
                stored = f.load(f.element_at(row, column, size), lane, self.rows)
                f.store(ports.decode(f, self.dtype, stored), place(column))

            def part(column: Value) -> None:
                within = f.binary("urem", column, f.integer(self.rows))
                stored = f.load(f.element_at(row, column, size), lane, 1)
                f.store(ports.decode(f, self.dtype, stored), f.element_at(place(column), within, 4))

            whole = f.binary("and", columns, f.integer(-self.rows))
            f.loop(f.integer(0), whole, self.rows, full)
            f.loop(whole, columns, 1, part)

        f.loop(f.integer(0), depth, 1, line)
        return f.text()


@dataclass(frozen=True, slots=True)
class Multiply:
    """dst [M, N] = (or +=) panels.T @ moving [K, N].

    Words: dst, moving, panels, K, M, N, the byte strides between rows of dst and of moving.
    Elements of a row are adjacent in both.
    """

    moving: str
    output: str
    accumulate: bool
    blocking: Blocking

    def text(self, name: str) -> str:
        f = FunctionText(name)
        target, moving, panels = (f.word(index, "ptr") for index in range(3))
        depth, rows, columns, down, along = (f.word(index) for index in range(3, 8))
        block = self.blocking
        sizes = DTYPES[self.output].size, DTYPES[self.moving].size
        lanes = f"i{DTYPES[self.output].bits}", f"i{DTYPES[self.moving].bits}"
        panel_bytes = f.binary("mul", depth, f.integer(4 * block.rows))
        zero = f.integer(0)

        def one(first: Value, vectors: int, width: int) -> None:
            """All rows of a strip of `vectors * width` columns from `first` on."""
            left = f.element_at(moving, first, sizes[1])

            def step(k: Value, panel: Value, sums: Sequence[Value]) -> list[Value]:
                line = f.offset(left, f.binary("mul", k, along))
                stream = [
                    ports.decode(
                        f,
                        self.moving,
                        f.load(f.element_at(line, f.integer(v * width), sizes[1]), lanes[1], width),
                    )
                    for v in range(vectors)
                ]
                factors = f.element_at(panel, k, 4 * block.rows)
                result = []
                for row in range(block.rows):
                    scalar = f.load(f.element_at(factors, f.integer(row), 4), "float")
                    factor = f.splat(scalar, width)
                    for v in range(vectors):
                        total = sums[row * vectors + v]
                        result.append(f.intrinsic("fma", factor, stream[v], total))
                return result

            def finish(row: Value, sums: Sequence[Value]) -> None:
                line = f.offset(target, f.binary("mul", row, down))
                for v, value in enumerate(sums):
                    column = f.binary("add", first, f.integer(v * width))
                    place = f.element_at(line, column, sizes[0])
                    if self.accumulate:
                        held = ports.decode(f, self.output, f.load(place, lanes[0], width))
                        value = f.binary("fadd", value, held)
                    f.store(ports.encode(f, self.output, ports.canonical(f, value)), place)

            def strip(row: Value) -> None:
                number = f.binary("udiv", row, f.integer(block.rows))
                panel = f.offset(panels, f.binary("mul", number, panel_bytes))
                start = [f.constant("float", 0.0, width)] * (block.rows * vectors)
                sums = f.loop(zero, depth, 1, lambda k, *sums: step(k, panel, sums), start)
                for i in range(block.rows):
                    index = f.binary("add", row, f.integer(i))
                    part = sums[i * vectors : (i + 1) * vectors]
                    inside = f.compare("icmp slt", index, rows)
                    f.when(inside, partial(finish, index, part))

            f.loop(zero, rows, block.rows, strip)

        start = zero
        for vectors, width in ((block.vectors, block.width), (1, block.width), (1, 1)):
            lanes_taken = vectors * width
            left = f.binary("sub", columns, start)
            whole = f.binary("sub", left, f.binary("urem", left, f.integer(lanes_taken)))
            end = f.binary("add", start, whole)
            f.loop(start, end, lanes_taken, partial(one, vectors=vectors, width=width))
            start = end
        return f.text()


def _panels(loaded: StationaryTile, block: Blocking) -> Array:
    """The panels of a loaded tile, packed when they are first needed."""
    if loaded.panels is None:
        source = loaded.tile
        depth, columns = source.shape
        loaded.panels = np.zeros((-(-columns // block.rows), depth, block.rows), np.float32)
        function = compiled(Pack(dtype_name(source), block.rows))
        assert function is not None
        words = (address(loaded.panels), address(source), depth, columns)
        function(words_type(len(words))(*words))
    return loaded.panels


def _adjacent(view: Array) -> bool:
    """Whether the elements of each row of [rows, n] are adjacent."""
    row = space([dims(view.shape[1:], view.strides[1:])])
    return row is not None and row.strides[0] in ((), (view.dtype.itemsize,))


def _float32_like(view: Array) -> Array:
    """Scratch for the elements of [rows, *free] as fp32 [rows, n]."""
    return np.empty((view.shape[0], view.size // view.shape[0]), np.float32)


class MultiplyPlan:
    """How to run MultiplyMoving for operands of one layout.

    A moving tile that the inner loop cannot take is widened into scratch first (`_before`);
    results that are not rows in memory come from scratch too (`_after`).
    """

    __slots__ = ("_after", "_before", "_block", "_function", "_shape", "result")

    def __init__(
        self,
        function: Function,
        block: Blocking,
        shape: tuple[int, int],
        before: Plan | None,
        after: Plan | None,
    ) -> None:
        self._function = function
        self._block = block
        self._shape = shape
        self._before = before
        self._after = after
        self.result = None

    def bind(self, state: CoreState, values: Sequence[Any]) -> Call | None:
        """The call for these operands; which tile is loaded is seen when it runs."""
        dst, moving, _, row, column = values
        if dst is None or moving is None:
            return None
        depth, rows = self._shape
        words = words_type(8)(0, 0, 0, depth, rows, moving.size // depth, 0, 0)
        if self._before is None:
            words[1], words[7] = address(moving), moving.strides[0]
        if self._after is None:
            words[0], words[6] = address(dst), dst.strides[0]
        function, block, before, after = self._function, self._block, self._before, self._after
        shape = self._shape
        refuse = partial(KERNELS[tensor.MultiplyMoving.name], state, *values)

        def multiply() -> None:
            loaded = state.stationary.get((row, column))
            if loaded is None or loaded.tile.shape != shape or not converting(loaded.tile):
                refuse()
                return
            words[2] = address(_panels(loaded, block))
            if before is not None:
                streamed = _float32_like(moving)
                words[1], words[7] = address(streamed), streamed.strides[0]
                _run(before, state, streamed, moving)
            if after is not None:
                products = _float32_like(dst)
                words[0], words[6] = address(products), products.strides[0]
            function(words)
            if after is not None:
                _run(after, state, dst, products)

        return multiply


def _run(plan: Plan, state: CoreState, *values: Array) -> None:
    call = plan.bind(state, values)
    assert call is not None, "scratch overlaps nothing"
    call()


@plans(tensor.MultiplyMoving)
def multiply_moving(
    engine: Engine, dst: Array, moving: Array, accumulate: bool, row: int, column: int
) -> MultiplyPlan | None:
    block = blocking()
    if block is None or not converting(dst, moving) or not moving.size:
        return None
    if dst.size * moving.shape[0] != moving.size * dst.shape[0]:
        return None
    streams = dtype_name(moving) in STREAMED and _adjacent(moving)
    before = None if streams else through_float32(_float32_like(moving), moving)
    stores = _adjacent(dst)
    after = None if stores else _from_scratch(dst, accumulate)
    if (before is None and not streams) or (after is None and not stores):
        return None
    function = compiled(
        Multiply(
            dtype_name(moving) if streams else "float32",
            dtype_name(dst) if stores else "float32",
            accumulate and stores,
            block,
        )
    )
    assert function is not None
    return MultiplyPlan(function, block, (moving.shape[0], dst.shape[0]), before, after)


def _from_scratch(dst: Array, accumulate: bool) -> Plan | None:
    """dst = (or +=) products that are fp32 rows."""
    inputs, steps = [tile(1, _float32_like(dst))], []
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
