"""Loop nests of fused element-wise work: maps, and folds along dimensions.

The nests are those that the host's kernels are made of (`graph_compiler.host_kernels.loops.Loop`).
A leaf that is the same for all tiles is loaded once; values that are the same along a dimension are
computed once there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import nki.language as nl
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.host_kernels.loops import IDENTITIES, LoopNest
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests import arithmetic
from graph_compiler.lower.nests.arithmetic import Value
from graph_compiler.lower.nests.boxes import emit_permuted
from graph_compiler.lower.nests.evaluation import (
    as_tile,
    columns_of,
    computed,
    evaluate,
    folding_passes,
    is_choice,
    sums_function,
    to_sizes,
    wide_steps,
)
from graph_compiler.lower.nests.nest import (
    NestTile,
    Outer,
    Tiling,
    axes_of,
    cost,
    each_tile,
    tilings,
)
from graph_compiler.lower.nests.operands import NestOperand, StoredOperand, stored
from graph_compiler.lower.nests.permutation import permutation_of
from graph_compiler.lower.sizes import DTYPES, widens
from graph_compiler.schedule.steps import Place, item_size
from graph_compiler.schedule.views import row_major
from isa.alu import ACTIVATIONS as FUNCTIONS
from isa.alu import ALU
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

ROOM = 64 << 10
"""Bytes of a partition that the tiles of one nest may take at a time."""


def emit_loop(device: DeviceProgram, loop: LoopNest, words: Sequence[Any]) -> None:
    """A nest whose places are `words`: of the output, the leaves, and the initial value."""
    places = [word for word in words if isinstance(word, Place)]
    nest = Nest(device, loop, stored(device, places, types_of(loop)))
    price, tiling = plan(device, loop)
    if loop.fold is not None:
        across, other = plan(device, loop, partition_reduced=True)
        if across < price and other.partition.reduced:
            if sums_across(loop):
                Folding(nest).emit(other, across=True)
            else:
                _fold_in_two(nest, other, places[0])
            return
    elif nest.turn():
        return
    for part, offsets in tiling.parts():
        nest.emit(part, offsets)


def types_of(loop: LoopNest) -> list[str]:
    """Of the output, the leaves, and the initial value."""
    types = [loop.output[0], *(type for type, _ in loop.leaves)]
    return types if loop.fold is None else [*types, loop.output[0]]


def plan(
    device: DeviceProgram, loop: LoopNest, partition_reduced: bool = False
) -> tuple[float, Tiling]:
    """The cheapest tiling, and what it costs."""
    key = loop, partition_reduced
    if key not in device.plans:
        device.plans[key] = _cheapest(device, loop, partition_reduced)
    return device.plans[key]


def _cheapest(
    device: DeviceProgram, loop: LoopNest, partition_reduced: bool
) -> tuple[float, Tiling]:
    operands = [loop.output, *loop.leaves]
    if partition_reduced:  # and one that counts what is kept
        kept = [0 if gone else count for count, gone in zip(loop.counts, loop.reduced)]
        steps = iter(row_major([count for count in kept if count]))
        operands.append(("f32", tuple(next(steps) if count else 0 for count in kept)))
    axes = axes_of(loop.counts, [strides for _, strides in operands], loop.reduced)
    sizes = [item_size(type) for type, _ in operands]
    room = tiling_room(loop)
    across, moved = _across_ns(loop), _is_move(loop)
    found = [
        (cost(tiling, sizes, passes(loop), device.target, across, moved).total, tiling)
        for tiling in tilings(axes, len(operands), room, partition_reduced)
    ]
    price, tiling = min(found, key=lambda item: item[0])
    permuted = permutation_of(device, loop)
    return (price if permuted is None else min(price, permuted.ns)), tiling


def _is_move(loop: LoopNest) -> bool:
    """Whether a nest stores what it loads as it is."""
    return (
        not loop.steps
        and loop.fold is None
        and [type for type, _ in loop.leaves] == [loop.output[0]]
    )


def _across_ns(loop: LoopNest) -> float:
    """About how long it takes to fold partitions: by a product, or by way of HBM."""
    return 1000.0 if loop.fold is not None and sums_across(loop) else 4000.0


def passes(loop: LoopNest) -> int:
    """About how often engines go through the elements of a nest's tiles."""
    return max(1, wide_steps(loop)) + folding_passes(loop)


def tiling_room(loop: LoopNest, on_chip: int = 0) -> int:
    """Elements of a partition that a tile of a nest may have; so many of its operands take no room
    of it, as their rows are on chip."""
    live = 2 * max(1, len(loop.leaves) + _live(loop) + 1 - on_chip)
    return max(1, ROOM // (4 * live))


def _of_rows_alone(loop: LoopNest, tiling: Tiling) -> list[int]:
    """Steps before the last whose values differ from partition to partition only."""
    axes = (*tiling.free, *(item.axis for item in tiling.outer))
    if any(item.target == "partition" for item in tiling.outer):
        return []
    return made_of(
        loop,
        {
            number
            for number in range(len(loop.leaves))
            if not any(axis.strides[1 + number] for axis in axes)
        },
    )


def made_of(loop: LoopNest, leaves: Iterable[int]) -> list[int]:
    """Steps before the last that are made of some leaves alone, and of numbers."""
    found = {*leaves}
    for number, step in enumerate(loop.steps[:-1], len(loop.leaves)):
        if (step.arguments and found.issuperset(step.arguments)) or step.op == "literal":
            found.add(number)
    return sorted(number for number in found if number >= len(loop.leaves))


def _live(loop: LoopNest) -> int:
    """Values of steps that are there at the same time, intermediate ones of a step included; not
    those that take little room."""
    leaves, columns = len(loop.leaves), columns_of(loop)
    last = {arg: number for number, step in enumerate(loop.steps) for arg in step.arguments}
    live = most = 0
    for number, step in enumerate(loop.steps):
        if leaves + number in columns:
            continue
        live += 1
        by_column = arithmetic.takes_column(step) and step.arguments[-1] in columns
        most = max(most, live + (0 if by_column else arithmetic.temporaries(step)))
        live -= sum(
            1
            for argument in {*step.arguments} - columns
            if argument >= leaves and last[argument] == number
        )
    return most


Known = dict[int, Value | None]
"""Values of steps, by their numbers; None of those that are not computed yet."""


class Nest:
    """A loop nest with its operands: the output, the leaves, and of a fold the initial value."""

    def __init__(
        self,
        device: DeviceProgram,
        loop: LoopNest,
        operands: Sequence[NestOperand],
        on_scalar: bool = False,
    ) -> None:
        self.device = device
        self.loop = loop
        self.output = operands[0]
        self.leaves = operands[1 : 1 + len(loop.leaves)]
        self.initial = operands[-1]
        self.type = loop.output[0]
        self.fixed: dict[int, NkiTensor] = {}
        self.in_place = any(leaf.shares(self.output) for leaf in self.leaves)
        self.on_scalar = on_scalar
        self.totals: list[NkiTensor] = []
        """Where the sums of the results along rows are wanted, if they are, tile by tile."""
        self.known: Known | None = None
        """Values that all tiles of some rows have in common, once they are computed."""
        self.common: dict[Any, Known] | None = None
        """The same of all elements of a batch, tile by tile."""
        self.repeated: frozenset[int] = frozenset()
        """Leaves that are the same in all elements of the batch."""

    def emit(
        self, tiling: Tiling, offsets: Sequence[Any] | None = None, rolled: bool = True
    ) -> None:
        """All tiles. `offsets`: where the operands' elements begin, in elements behind them."""
        fold = self.loop.fold is not None
        self.fixed = {}
        self.known = None if rolled else dict.fromkeys(_of_rows_alone(self.loop, tiling))
        plain = _is_move(self.loop) and not _by_element(self.loop, tiling.partition.count)
        if plain and self.output.is_stored and self.leaves[0].is_stored:
            self._move(tiling, offsets)
            return
        if rolled and not fold:
            tiling = replace(tiling, outer=self._ordered(tiling))

        def load(level: int, tile: NestTile) -> None:
            """Load what is the same in all loops from a level on."""
            for number in range(len(self.leaves)) if rolled and tiling.outer[level:] else ():
                strides = [bool(item.axis.strides[1 + number]) for item in tiling.outer]
                if not any(strides[level:]) and (level == 0 or strides[level - 1]):
                    self.fixed[number] = self._loaded(tiling, tile, number)

        if fold:
            load(0, NestTile(tiling.sizes, tuple(offsets or (0,) * len(tiling.partition.strides))))
            Folding(self).emit(tiling, offsets, rolled)
            return

        def visit(tile: NestTile) -> None:
            pattern = full_pattern(tiling, tile, 0)
            room = None if self.in_place else self.output.room(pattern, tile.offsets[0])
            value = self.value(tiling, tile, room)
            whole = to_sizes(as_tile(value, tile.sizes, self.type), tile.sizes)
            self.output.keep(whole, pattern, tile.offsets[0])

        each_tile(self.device.builder, tiling, visit, offsets=offsets, rolled=rolled, arrive=load)

    def _ordered(self, tiling: Tiling) -> tuple[Outer, ...]:
        """The loops, those inside along which most elements of leaves are the same."""

        def same(item: Outer) -> int:
            still = [
                number for number in range(len(self.leaves)) if not item.axis.strides[1 + number]
            ]
            return sum(
                math.prod(
                    size
                    for axis, size in zip(tiling.free, tiling.sizes[1:])
                    if axis.strides[1 + number]
                )
                for number in still
            )

        return tuple(sorted(tiling.outer, key=same))

    def turn(self) -> bool:
        """Emit what has its dimensions in another order than its operand; whether the nest does."""
        permuted = permutation_of(self.device, self.loop)
        if permuted is None or permuted.ns > plan(self.device, self.loop)[0]:
            return False
        output, source = self.output, self.leaves[0]
        assert isinstance(output, StoredOperand) and isinstance(source, StoredOperand)

        def computed_of(tile: NkiTensor) -> NkiTensor:
            value = evaluate(self.loop.steps, [tile], None, tile.shape[0])[-1]
            return to_sizes(as_tile(value, tile.shape, self.type), tile.shape)

        for part, starts in permuted.plans:
            emit_permuted(self.device, part, (output, source), starts, computed_of)
        return True

    def _move(self, tiling: Tiling, offsets: Sequence[Any] | None) -> None:
        """A copy from HBM to HBM, by way of a tile where elements of a partition change places."""
        output, source = self.output, self.leaves[0]
        assert isinstance(output, StoredOperand) and isinstance(source, StoredOperand)
        one, other = (
            sorted(several, key=lambda axis: -abs(axis.strides[operand]))
            for operand in (0, 1)
            for several in [[axis for axis in tiling.free if axis.count > 1]]
        )
        by_way = one != other or tiling.partition.strides[1] < 0

        def visit(tile: NestTile) -> None:
            pattern = full_pattern(tiling, tile, 1)
            move = source.leaf if by_way else source.elements
            output.keep(
                move(pattern, tile.offsets[1]), full_pattern(tiling, tile, 0), tile.offsets[0]
            )

        each_tile(self.device.builder, tiling, visit, offsets=offsets)

    def _loaded(self, tiling: Tiling, tile: NestTile, number: int) -> NkiTensor:
        """A leaf's tile: dimensions along which it repeats have one element, but for partitions,
        which all have it."""
        pattern = [
            (axis.strides[1 + number], size if axis.strides[1 + number] or not place else 1)
            for place, (axis, size) in enumerate(zip((tiling.partition, *tiling.free), tile.sizes))
        ]
        if len(pattern) == 1:
            pattern.append((0, 1))
        return self.leaves[number].leaf(pattern, tile.offsets[1 + number])

    def _leaf(self, tiling: Tiling, tile: NestTile, number: int) -> NkiTensor:
        fixed = self.fixed.get(number)
        if fixed is None:
            return self._loaded(tiling, tile, number)
        parts = [slice(0, min(size, here)) for size, here in zip(fixed.shape, (*tile.sizes, 1))]
        return fixed[tuple(parts)]

    def value(self, tiling: Tiling, tile: NestTile, room: NkiTensor | None = None) -> Value:
        """The last step's value for a tile, computed in `room` where that has its form."""
        values = self._values(tiling, tile)
        total = self.totals.pop(0) if self.totals else None
        rows = tile.sizes[0]
        memories = [known for known in (self.known, self._common(tile)) if known is not None]
        known = {number: value for one in memories for number, value in one.items()}
        found = evaluate(self.loop.steps, values, room, rows, total, self.on_scalar, known)[-1]
        for memory in memories:
            memory.update({number: known[number] for number in memory})
        return found

    def _common(self, tile: NestTile) -> Known | None:
        """The values of a tile that all elements of the batch have."""
        if self.common is None:
            return None
        places = tuple(tile.offsets[1 + leaf] for leaf in sorted(self.repeated))
        numbers = made_of(self.loop, self.repeated)
        return self.common.setdefault((tile.sizes, places), dict.fromkeys(numbers))

    def narrow(self, tiling: Tiling, tile: NestTile) -> Value:
        """The last step's value for a tile, or what that step widens: engines read it as it is."""
        *steps, last = self.loop.steps or (None,)
        if last is None or self.totals or last.op not in _CONVERSIONS:
            return self.value(tiling, tile)
        if not widens(last.source, last.type):
            return self.value(tiling, tile)
        found = evaluate(steps, self._values(tiling, tile), None, tile.sizes[0], known=self.known)
        return found[last.arguments[0]]

    def _values(self, tiling: Tiling, tile: NestTile) -> list[Value]:
        """The leaves' values for a tile."""
        return [self._leaf(tiling, tile, number) for number in range(len(self.leaves))]

    def argument(self, tiling: Tiling, tile: NestTile) -> tuple[str, Value]:
        """The last step's value as a function of the scalar engine, and of what: squares are one,
        and what is none is a copy."""
        steps = self.loop.steps
        if steps and steps[-1].op == "multiply" and len({*steps[-1].arguments}) == 1:
            found = evaluate(steps[:-1], self._values(tiling, tile), None, tile.sizes[0])
            return "square", found[steps[-1].arguments[0]]
        return "copy", self.narrow(tiling, tile)


def _by_element(loop: LoopNest, rows: int) -> bool:
    """Whether a copy repeats elements where those of the output are neighbours, or goes backward,
    by several rows at once."""
    steps = zip(loop.counts, loop.output[1], loop.leaves[0][1])
    found = [at for count, to, at in steps if count > 1 and to == 1]
    return 0 in found or (rows > 1 and min(found, default=0) < 0)


def full_pattern(tiling: Tiling, tile: NestTile, operand: int) -> list[tuple[Any, int]]:
    """An operand's elements for a whole tile, repeated ones too."""
    axes = (tiling.partition, *tiling.free)
    pattern = [(axis.strides[operand], size) for axis, size in zip(axes, tile.sizes)]
    return pattern if len(pattern) > 1 else [*pattern, (0, 1)]


ENGINE_FOLDS = {"add": "add", "maximum": "maximum", "minimum": "minimum", "multiply": "multiply"}
"""Opcodes by which the vector engine folds fp32 numbers along a row, and its operators."""


_LARGEST = frozenset({"maximum"})

_CHOOSING = frozenset({"maximum", "minimum"})
"""Folds whose result is one of the elements: of 16-bit ones engines take two at a time."""

_FEW = 256
"""Elements of a row up to which widening one takes as long as folding them in 16 bits saves."""

_CONVERSIONS = frozenset({"convert"})

_COLUMNS = 512
"""Columns that move through the tensor engine at a time."""


def sums_across(loop: LoopNest) -> bool:
    """Whether the tensor engine can fold partitions: it adds floats."""
    return loop.fold in _SUMS and kind(loop.output[0]) == "real"


_SUMS = frozenset({"add"})


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
        device, rows, count = self.device, total.shape[0], math.prod(total.shape[1:])
        ones = nl.full((rows, 1), 1.0, dtype="float32", buffer=nl.sbuf)
        flat = total.reshape((rows, count))
        result = device.tile((1, count), "float32")
        for start in range(0, count, _COLUMNS):
            size = min(_COLUMNS, count - start)
            bank = device.tile((1, size), "float32", Memory.psum)
            part = flat[:, start : start + size]
            device.builder.emit("nc_matmul", dst=bank, stationary=ones, moving=part)
            device.builder.emit("tensor_copy", dst=result[:, start : start + size], src=bank)
        return result.reshape((1, *total.shape[1:]))

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


def _fold_in_two(nest: Nest, tiling: Tiling, target: Place) -> None:
    """The partitions hold a dimension that goes: partial results of each in HBM, then folded by a
    second nest."""
    device, loop = nest.device, nest.loop
    kept = [axis for axis, gone in enumerate(loop.reduced) if not gone]
    counts = tuple(loop.counts[axis] for axis in kept)
    rows, columns = tiling.sizes[0], math.prod(counts)
    folding = Folding(nest)
    scratch = Place(device.buffer(folding.work, (rows, columns)).buffer)
    partition = tiling.partition.strides[:-1]
    tiling = replace(tiling, partition=replace(tiling.partition, strides=(*partition, columns)))
    folding.emit(tiling, partial=StoredOperand(device, scratch, folding.work))
    output = tuple(loop.output[1][axis] for axis in kept)
    across = LoopNest(
        (*counts, rows),
        (nest.type, (*output, 0)),
        ((folding.work, (*row_major(counts), columns)),),
        (),
        loop.fold,
        (*[False] * len(counts), True),
    )
    operands = [
        StoredOperand(device, target, nest.type),
        StoredOperand(device, scratch, folding.work),
    ]
    second = Nest(device, across, [*operands, nest.initial])
    for part, offsets in plan(device, across)[1].parts():
        second.emit(part, offsets)


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
