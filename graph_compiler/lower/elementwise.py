"""Loop nests of fused element-wise work: maps, and folds along dimensions.

The nests are those that the host's kernels are made of (`graph_compiler.execute.loops.Loop`). A
leaf is loaded once for every tile whose place it depends on; values that are the same along a
dimension are computed once there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import nki.language as nl
from graph_compiler.execute.lanes import Step
from graph_compiler.execute.loops import Loop
from graph_compiler.execute.registers import kind
from graph_compiler.execute.steps import Place, item_size
from graph_compiler.execute.views import row_major
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower import arithmetic
from graph_compiler.lower.arithmetic import DTYPES, Value
from graph_compiler.lower.device import Device
from graph_compiler.lower.nest import PARTITIONS, Tile, Tiling, axes_of, cost, each_tile, tilings
from isa.alu import ALU
from nki.ir.views.tensor import NkiTensor

ROOM = 64 << 10
"""Bytes of a partition that the tiles of one nest may take at a time."""


def emit_loop(device: Device, loop: Loop, words: Sequence[Any]) -> None:
    """A nest whose places are `words`: of the output, the leaves, and the initial value."""
    places = [word for word in words if isinstance(word, Place)]
    number = 1 + len(loop.leaves)
    if loop.fold is None:
        _emit_map(device, loop, places)
    else:
        _Folding(device, loop, places[:number], places[number]).run()


def _plan(device: Device, loop: Loop, partition_reduced: bool = False) -> tuple[float, Tiling]:
    """The cheapest tiling, and what it costs."""
    operands = [loop.output, *loop.leaves]
    if partition_reduced:  # and one that counts what is kept
        kept = [0 if gone else count for count, gone in zip(loop.counts, loop.reduced)]
        steps = iter(row_major([count for count in kept if count]))
        operands.append(("f32", tuple(next(steps) if count else 0 for count in kept)))
    axes = axes_of(loop.counts, [strides for _, strides in operands], loop.reduced)
    sizes = [item_size(type) for type, _ in operands]
    live = 2 * (len(loop.leaves) + _live(loop.steps, len(loop.leaves)) + 1)
    room = max(1, ROOM // (4 * live))
    found = [
        (cost(tiling, sizes, 1 + len(loop.steps), device.target), tiling)
        for tiling in tilings(axes, len(operands), room, partition_reduced)
    ]
    return min(found, key=lambda item: item[0])


def _live(steps: Sequence[Step], leaves: int) -> int:
    """Values of steps that are there at the same time, intermediate ones of a step included."""
    last = {argument: number for number, step in enumerate(steps) for argument in step.arguments}
    live = most = 0
    for number, step in enumerate(steps):
        live += 1
        most = max(most, live + 6)
        live -= sum(
            1 for argument in {*step.arguments} if argument >= leaves and last[argument] == number
        )
    return most


def _emit_map(device: Device, loop: Loop, places: list[Place]) -> None:
    _, tiling = _plan(device, loop)
    if not loop.steps and loop.output[0] == loop.leaves[0][0]:
        _emit_move(device, tiling, places, loop.output[0])
        return

    leaves = _Leaves(device, loop, tiling, places)

    def visit(tile: Tile) -> None:
        target = _elements(device, tiling, tile, 0, places[0], loop.output[0])
        value = leaves.value(tile)
        device.copy(target, _spread(_as_tile(value, tile.sizes, loop.output[0]), tile.sizes))

    each_tile(device.builder, tiling, visit)


def _elements(
    device: Device, tiling: Tiling, tile: Tile, operand: int, place: Place, type: str
) -> NkiTensor:
    """An operand's elements in HBM for a whole tile, repeated ones too."""
    axes = (tiling.partition, *tiling.free)
    pattern = [(axis.strides[operand], size) for axis, size in zip(axes, tile.sizes)]
    return device.elements(place, type, pattern, tile.offsets[operand])


def _leaf(
    device: Device, tiling: Tiling, tile: Tile, operand: int, place: Place, type: str
) -> NkiTensor:
    """An operand's tile: dimensions along which it repeats have one element, but for partitions,
    which all have it."""
    axes = (tiling.partition, *tiling.free)
    pattern = [
        (axis.strides[operand], size if axis.strides[operand] or not number else 1)
        for number, (axis, size) in enumerate(zip(axes, tile.sizes))
    ]
    if len(pattern) == 1:
        pattern.append((0, 1))
    loaded = device.tile([count for _, count in pattern], DTYPES[type])
    device.copy(loaded, device.elements(place, type, pattern, tile.offsets[operand]))
    return loaded


def _emit_move(device: Device, tiling: Tiling, places: list[Place], type: str) -> None:
    """A copy from HBM to HBM."""

    def visit(tile: Tile) -> None:
        target, source = (
            _elements(device, tiling, tile, operand, places[operand], type) for operand in (0, 1)
        )
        device.copy(target, source)

    each_tile(device.builder, tiling, visit)


class _Leaves:
    """The leaves of a nest; those that are the same for all tiles are loaded once, now."""

    def __init__(self, device: Device, loop: Loop, tiling: Tiling, places: Sequence[Place]) -> None:
        self.device = device
        self.loop = loop
        self.tiling = tiling
        self.places = places
        whole = Tile(tiling.sizes, (0,) * len(tiling.partition.strides))
        self.fixed = {
            number: self._loaded(whole, number)
            for number in range(len(loop.leaves))
            if tiling.outer and not any(item.axis.strides[1 + number] for item in tiling.outer)
        }

    def _loaded(self, tile: Tile, number: int) -> NkiTensor:
        type, _ = self.loop.leaves[number]
        return _leaf(self.device, self.tiling, tile, 1 + number, self.places[1 + number], type)

    def _of(self, tile: Tile, number: int) -> NkiTensor:
        fixed = self.fixed.get(number)
        if fixed is None:
            return self._loaded(tile, number)
        parts = [slice(0, min(size, here)) for size, here in zip(fixed.shape, (*tile.sizes, 1))]
        return fixed[tuple(parts)]

    def value(self, tile: Tile) -> Value:
        """The last step's value for a tile."""
        values: list[Value] = [self._of(tile, number) for number in range(len(self.loop.leaves))]
        return evaluate(self.loop.steps, values)[-1]


def evaluate(steps: Sequence[Step], values: list[Value]) -> list[Value]:
    """The values, and behind them those of the steps."""
    values = list(values)
    for step in steps:
        if step.op == "literal":
            values.append(_literal(step))
        else:
            values.append(_computed(step, [values[argument] for argument in step.arguments]))
    return values


def _literal(step: Step) -> Value:
    number = step.attribute
    row = PRIMITIVE_TYPES[step.type]
    return number % (1 << row.bits) if row.kind == "unsigned" else number  # type: ignore[no-any-return]


def _computed(step: Step, arguments: Sequence[Value]) -> NkiTensor:
    """A step's tile; its arguments agree in each dimension, or have one element there."""
    tiles = [value for value in arguments if isinstance(value, NkiTensor)]
    if not tiles:
        sizes: tuple[int, ...] = (PARTITIONS, 1)
        first = _as_tile(arguments[0], sizes, step.source)
        arguments = [first, *arguments[1:]]
    else:
        sizes = tuple(max(column) for column in zip(*(tile.shape for tile in tiles)))
    if step.op in _MASKED:
        arguments = [_as_tile(arguments[0], sizes, "pred"), *arguments[1:]]
    spread = [
        _spread(value, sizes) if isinstance(value, NkiTensor) else value for value in arguments
    ]
    return arithmetic.emit(step, spread)


_MASKED = frozenset({"select"})
"""Opcodes whose first operand is a tile in every case."""


def _as_tile(value: Value, sizes: Sequence[int], type: str) -> NkiTensor:
    """A number as a tile of one element a partition."""
    if isinstance(value, NkiTensor):
        return value
    shape = (sizes[0], *[1] * max(1, len(sizes) - 1))
    return nl.full(shape, value, dtype=DTYPES[type], buffer=nl.sbuf)


def _spread(value: NkiTensor, sizes: Sequence[int]) -> NkiTensor:
    """A tile whose single elements repeat along dimensions of these sizes."""
    for dimension, size in enumerate(sizes):
        if dimension and value.shape[dimension] != size:
            value = value.broadcast(dimension, size)
    return value


# Folds

_ENGINE_FOLDS = {"add": "add", "maximum": "maximum", "minimum": "minimum", "multiply": "multiply"}
"""Opcodes by which the vector engine folds fp32 numbers along a row, and its operators."""

IDENTITIES: dict[str, dict[str, Callable[[int], float]]] = {
    "add": dict.fromkeys(("real", "signed", "unsigned", "boolean"), lambda bits: 0),
    "multiply": dict.fromkeys(("real", "signed", "unsigned", "boolean"), lambda bits: 1),
    "maximum": {
        "real": lambda bits: -math.inf,
        "signed": lambda bits: -(1 << (bits - 1)),
        "unsigned": lambda bits: 0,
        "boolean": lambda bits: 0,
    },
    "minimum": {
        "real": lambda bits: math.inf,
        "signed": lambda bits: (1 << (bits - 1)) - 1,
        "unsigned": lambda bits: (1 << bits) - 1,
        "boolean": lambda bits: 1,
    },
    "and": {
        "signed": lambda bits: -1,
        "unsigned": lambda bits: (1 << bits) - 1,
        "boolean": lambda bits: 1,
    },
    "or": dict.fromkeys(("signed", "unsigned", "boolean"), lambda bits: 0),
    "xor": dict.fromkeys(("signed", "unsigned"), lambda bits: 0),
}


class _Folding:
    """One nest with a fold: partial results of tiles, put together behind the initial value.

    Floats are summed in fp32. Where the partitions hold a dimension that goes, their partial
    results pass through HBM, and are folded by a second nest.
    """

    def __init__(self, device: Device, loop: Loop, places: list[Place], initial: Place) -> None:
        self.device = device
        self.loop = loop
        self.places = places
        self.initial = initial
        self.type = loop.output[0]
        self.real = kind(self.type) == "real"
        self.work = "f32" if self.real else self.type
        assert loop.fold is not None
        self.step = Step(loop.fold, self.work, self.work, None, (0, 1))

    def run(self) -> None:
        price, tiling = _plan(self.device, self.loop)
        across, other = _plan(self.device, self.loop, partition_reduced=True)
        if across < price and other.partition.reduced:
            self._in_two(other)
        else:
            self._emit(tiling, self._finish)

    def _emit(self, tiling: Tiling, finish: Callable[[Tiling, Tile, NkiTensor], None]) -> None:
        inner = any(item.axis.reduced for item in tiling.outer)
        kept = sum(not axis.reduced for axis in tiling.free)
        builder = self.device.builder
        leaves = _Leaves(self.device, self.loop, tiling, self.places)

        def total(tile: Tile) -> NkiTensor:
            shape = (tile.sizes[0], *tile.sizes[1 : 1 + kept])
            shape = shape if len(shape) > 1 else (*shape, 1)
            identity = IDENTITIES[self.loop.fold or ""][kind(self.work)]
            number = identity(PRIMITIVE_TYPES[self.work].bits)
            return nl.full(shape, number, dtype=DTYPES[self.work], buffer=nl.sbuf)

        def partial_of(tile: Tile) -> NkiTensor:
            value = leaves.value(tile)
            whole = _as_tile(value, tile.sizes, self.type)
            return self._folded(_spread(whole, tile.sizes), kept, tile)

        def enter(tile: Tile) -> list[NkiTensor]:
            state = [total(tile)] if inner else []
            stack.append(state)
            return state

        def visit(tile: Tile) -> None:
            part = partial_of(tile)
            state = stack[-1]
            if inner:
                builder.emit(
                    "tensor_copy", dst=state[0], src=_computed(self.step, [state[0], part])
                )
            else:
                state.append(part)

        def leave(tile: Tile, state: list[NkiTensor]) -> None:
            stack.pop()
            finish(tiling, tile, state[0])

        stack: list[list[NkiTensor]] = []
        each_tile(builder, tiling, visit, enter, leave)

    def _folded(self, value: NkiTensor, kept: int, tile: Tile) -> NkiTensor:
        """A tile without its reduced free dimensions, which are the last."""
        sizes = tile.sizes
        shape = (sizes[0], *sizes[1 : 1 + kept]) if kept else (sizes[0], 1)
        gone = len(sizes) - 1 - kept
        if not gone:
            return nl.copy(value, dtype=DTYPES[self.work])
        engine = _ENGINE_FOLDS.get(self.step.op)
        if self.real and engine is not None:
            result = self.device.tile(shape, "float32")
            axes = tuple(range(1 + kept, len(sizes)))
            self.device.builder.emit(
                "tensor_reduce", dst=result, op=ALU[engine], data=value, axis=axes
            )
            return result
        return self._halved(nl.copy(value, dtype=DTYPES[self.work]), shape)

    def _halved(self, value: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
        """The last dimensions folded, one half onto the other."""
        number = math.prod(value.shape) // math.prod(shape)
        value = value.reshape((*shape, number))
        return fold_halves([value], number, lambda a, b: [_computed(self.step, [*a, *b])])[0]

    def _finish(self, tiling: Tiling, tile: Tile, total: NkiTensor) -> None:
        """The partial results of a tile behind the initial value, stored."""
        kept = [(tiling.partition, tile.sizes[0])]
        for axis, size in zip(tiling.free, tile.sizes[1:]):
            if not axis.reduced:
                kept.append((axis, size))
        pattern = [(axis.strides[0], size) for axis, size in kept]
        if len(pattern) == 1:
            pattern.append((0, 1))
        start = self.device.tile([tile.sizes[0], *[1] * (len(total.shape) - 1)], DTYPES[self.type])
        first = self.device.elements(
            self.initial, self.type, [(0, size) for size in start.shape], 0
        )
        self.device.copy(start, first)
        step = self.step._replace(type=self.type)
        value = _computed(step, [_wide(start, self.work), total])
        target = self.device.elements(self.places[0], self.type, pattern, tile.offsets[0])
        self.device.copy(target, _spread(value, total.shape))

    def _in_two(self, tiling: Tiling) -> None:
        """Partial results of each partition in HBM, then folded across."""
        device, loop = self.device, self.loop
        kept = [axis for axis, gone in enumerate(loop.reduced) if not gone]
        counts = tuple(loop.counts[axis] for axis in kept)
        rows, columns = tiling.sizes[0], math.prod(counts)
        scratch = device.buffer(self.work, (rows, columns))
        place = Place(scratch.buffer)

        def store(tiling: Tiling, tile: Tile, total: NkiTensor) -> None:
            pattern = [(columns, tile.sizes[0])]
            for axis, size in zip(tiling.free, tile.sizes[1:]):
                if not axis.reduced:
                    pattern.append((axis.strides[-1], size))
            if len(pattern) == 1:
                pattern.append((0, 1))
            target = device.elements(place, self.work, pattern, tile.offsets[-1])
            device.copy(target, total)

        self._emit(tiling, store)
        output = tuple(loop.output[1][axis] for axis in kept)
        across = Loop(
            (*counts, rows),
            (self.type, (*output, 0)),
            ((self.work, (*row_major(counts), columns)),),
            (),
            loop.fold,
            (*[False] * len(counts), True),
        )
        second = _Folding(device, across, [self.places[0], place], self.initial)
        _, direct = _plan(device, across)
        second._emit(direct, second._finish)


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


__all__ = ["emit_loop", "evaluate", "fold_halves"]
