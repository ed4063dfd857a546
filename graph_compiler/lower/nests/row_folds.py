"""Folds of rows: what tiles have is folded along their free dimensions, and put together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import nki.language as nl
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.loops import IDENTITIES
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.evaluation import (
    as_tile,
    computed,
    is_choice,
    sums_function,
    to_sizes,
)
from graph_compiler.lower.nests.nest import NestTile, Tiling, each_tile, full_pattern
from graph_compiler.lower.nests.operands import NestOperand, StoredOperand
from graph_compiler.lower.sizes import DTYPES, HALF, QUARTER, SUMS
from isa.alu import ACTIVATIONS as FUNCTIONS
from isa.alu import ALU
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.nests.elementwise import Nest

ENGINE_FOLDS = {"add": "add", "maximum": "maximum", "minimum": "minimum", "multiply": "multiply"}
"""Opcodes by which the vector engine folds fp32 numbers along a row, and its operators."""


_LARGEST = frozenset({"maximum"})

_CHOOSING = frozenset({"maximum", "minimum"})
"""Folds whose result is one of the elements: of 16-bit ones engines take two at a time."""

_FEW = 256
"""Elements of a row up to which widening one takes as long as folding them in 16 bits saves."""


class Folding:
    """A nest with a fold: partial results of tiles, put together behind the initial value. Floats
    are summed in fp32."""

    def __init__(self, nest: Nest) -> None:
        loop = nest.loop
        assert loop.fold is not None
        self.nest = nest
        self.device = nest.device
        self.type = nest.type
        self.real = kind(self.type) == "real"
        self.work = "f32" if self.real else self.type
        self.step = ElementStep(loop.fold, self.work, self.work, None, (0, 1))
        bits = PRIMITIVE_TYPES[self.work].bits
        self.identity = IDENTITIES[loop.fold][kind(self.work)](bits)
        self.dtype = DTYPES[self.type]
        self.at_once = False
        """Whether nothing comes behind one fold of all elements: its result is rounded once."""

    def emit(
        self,
        tiling: Tiling,
        offsets: Sequence[Any] | None = None,
        rolled: bool = True,
        partial: NestOperand | None = None,
        across: bool = False,
    ) -> None:
        """All tiles. With `partial`, results are left there, before the initial value; `across`:
        the partitions are summed as well."""
        inner = any(item.axis.reduced for item in tiling.outer)
        self.at_once = not inner and partial is None and not across and self._begins_with_identity
        kept = sum(not axis.reduced for axis in tiling.free)
        builder = self.device.builder
        stack: list[list[NkiTensor]] = []

        def enter(tile: NestTile) -> list[NkiTensor]:
            state = []
            if inner:
                shape = (tile.sizes[0], *(tile.sizes[1 : 1 + kept] or (1,)))
                dtype = DTYPES[self.work]
                state.append(nl.full(shape, self.identity, dtype=dtype, buffer=nl.sbuf))
            stack.append(state)
            return state

        def visit(tile: NestTile) -> None:
            part = self._part(tiling, tile, kept)
            state = stack[-1]
            if inner:
                total = computed(self.step, [state[0], part])
                builder.emit("tensor_copy", dst=state[0], src=total)
            else:
                state.append(part)

        def leave(tile: NestTile, state: list[NkiTensor]) -> None:
            stack.pop()
            here = NestTile(tile.sizes[: 1 + kept], tile.offsets)
            if partial is not None:
                partial.keep(state[0], full_pattern(tiling, here, -1), tile.offsets[-1])
                return
            total = state[0]
            if across:
                total, here = (
                    self._summed_across(total),
                    NestTile((1, *here.sizes[1:]), tile.offsets),
                )
            self.nest.output.take(
                self.after_initial(total), full_pattern(tiling, here, 0), tile.offsets[0]
            )

        each_tile(builder, tiling, visit, enter, leave, offsets, rolled)

    def keep(self, total: NkiTensor, tiling: Tiling, offsets: Sequence[Any]) -> None:
        """The sums of rows [rows, 1], or of several of each partition, that are there already."""
        kept = sum(not axis.reduced for axis in tiling.free)
        here = NestTile(tiling.sizes[: 1 + kept], tuple(offsets))
        pattern = full_pattern(tiling, here, 0)
        self.nest.output.take(self.after_initial(total), pattern, offsets[0])

    def _part(self, tiling: Tiling, tile: NestTile, kept: int) -> NkiTensor:
        """What a tile is without its reduced free dimensions."""
        nest = self.nest
        whole = not kept and len(tile.sizes) > 1
        if whole and (self._compares or sums_function(nest.loop)):
            total = self.device.tile((tile.sizes[0], 1), "float32")
            nest.totals = [total]
            nest.value(tiling, tile)
            return total
        if nest.on_scalar and whole:
            function, value = nest.argument(tiling, tile)
            value = to_sizes(as_tile(value, tile.sizes, self.type), tile.sizes)
            result = self.device.tile((tile.sizes[0], 1), "float32")
            self.device.builder.emit(
                "activation_reduce",
                dst=self.device.tile(value.shape, "bfloat16"),  # which nobody reads
                op=FUNCTIONS[function],
                data=value,
                reduce_op=ALU["add"],
                reduce_res=result,
            )
            return result
        engine = self.real and self.step.op in ENGINE_FOLDS
        value = nest.narrow(tiling, tile) if engine else nest.value(tiling, tile)
        value = as_tile(value, tile.sizes, self.type)
        return self._folded(to_sizes(value, tile.sizes), kept, tile)

    @property
    def _compares(self) -> bool:
        """Whether the vector engine finds the largest number of a choice while it chooses."""
        loop = self.nest.loop
        return loop.fold in _LARGEST and bool(loop.steps) and is_choice(loop, loop.steps[-1])

    def _folded(self, value: NkiTensor, kept: int, tile: NestTile) -> NkiTensor:
        """A tile without its reduced free dimensions, which are the last."""
        sizes = tile.sizes
        shape = (sizes[0], *sizes[1 : 1 + kept]) if kept else (sizes[0], 1)
        if len(sizes) - 1 == kept:
            return nl.copy(value, dtype=DTYPES[self.work])
        engine = ENGINE_FOLDS.get(self.step.op)
        if self.real and engine is not None:
            half = value.dtype in ("bfloat16", "float16")
            same = value.dtype == self.dtype
            # One of few elements is found in fp32 before it could be widened.
            chosen = engine in _CHOOSING and (same or math.prod(sizes[1 + kept :]) > _FEW)
            exact = half and (chosen or (self.at_once and same))
            result = self.device.tile(shape, value.dtype if exact else "float32")
            axes = tuple(range(1 + kept, len(sizes)))
            self.device.builder.emit(
                "tensor_reduce", dst=result, op=ALU[engine], data=value, axis=axes
            )
            return result
        value = nl.copy(value, dtype=DTYPES[self.work])
        number = math.prod(value.shape) // math.prod(shape)
        value = value.reshape((*shape, number))
        return fold_halves([value], number, lambda a, b: [computed(self.step, [*a, *b])])[0]

    def _summed_across(self, total: NkiTensor) -> NkiTensor:
        """[rows, ...] summed over the rows, by the tensor engine: a product with ones."""
        rows, count = total.shape[0], math.prod(total.shape[1:])
        ones = nl.full((min(rows, HALF), 1), 1.0, dtype="float32", buffer=nl.sbuf)
        sums = sums_across(self.device, total.reshape((rows, count)), ones)
        return sums.reshape((1, *total.shape[1:]))

    @property
    def _begins_with_identity(self) -> bool:
        """Whether the initial value changes nothing."""
        initial = self.nest.initial
        assert isinstance(initial, StoredOperand)
        return bool(self.device.known(initial.place, self.type) == self.identity)

    def after_initial(self, total: NkiTensor) -> NkiTensor:
        """A fold's result behind the initial value, in the result's type."""
        initial = self.nest.initial
        assert isinstance(initial, StoredOperand)
        known = self.device.known(initial.place, self.type)
        if known is not None:
            if known == self.identity:
                return _wide(total, self.type)
            return computed(self.step._replace(type=self.type), [total, known])
        shape = (total.shape[0], *[1] * (len(total.shape) - 1))
        start = initial.leaf([(0, size) for size in shape], 0)
        return computed(self.step._replace(type=self.type), [_wide(start, self.work), total])


def sums_across(device: DeviceProgram, values: NkiTensor, ones: NkiTensor) -> NkiTensor:
    """[1, columns] of the sums of [partitions, columns], whose first half they are added to.

    The tensor engine adds one partition after another, which rounds the sum of 128 three times as
    much as this: a half added to the other, and the sums of quarters.
    """
    rows, columns = values.shape
    if rows > HALF:
        first, second = values[: rows - HALF], values[HALF:]
        device.builder.emit("tensor_tensor", dst=first, data1=first, data2=second, op=ALU["add"])
    result = device.tile((1, columns), "float32")
    for start in range(0, columns, SUMS):
        place = slice(start, min(start + SUMS, columns))
        bank = device.tile((1, place.stop - start), "float32", Memory.psum)
        for quarter in range(0, min(rows, HALF), QUARTER):
            part = slice(quarter, min(quarter + QUARTER, rows))
            device.builder.emit(
                "nc_matmul",
                dst=bank,
                stationary=ones[part],
                moving=values[part, place],
                is_stationary_onezero=True,
            )
        device.builder.emit("tensor_copy", dst=result[:, place], src=bank)
    return result


def fold_halves(
    values: list[NkiTensor],
    number: int,
    step: Callable[[list[NkiTensor], list[NkiTensor]], list[NkiTensor]],
) -> list[NkiTensor]:
    """Tiles [..., number] folded along their last dimension to [...]: one half onto the other, odd
    elements at the end."""
    left: list[list[NkiTensor]] = []

    def part(start: int, count: int) -> list[NkiTensor]:
        return [value[..., start : start + count] for value in values]

    while number > 1:
        half = number // 2
        if number % 2:
            left.append(part(number - 1, 1))
        values, number = step(part(0, half), part(half, half)), half
    for odd in left:
        values = step(values, odd)
    return [value.reshape(value.shape[:-1]) for value in values]


def _wide(value: NkiTensor, type: str) -> NkiTensor:
    return value if value.dtype == DTYPES[type] else nl.copy(value, dtype=DTYPES[type])
