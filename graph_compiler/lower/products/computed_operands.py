"""Operands of products that are computed where they are loaded.

Element-wise work whose result one product alone reads need not go through HBM. Whoever loads
elements of the result loads those that it is made of, and computes them on chip: int8 weights times
a scale, masked rows, numbers of another type. Dimensions of the product are dimensions of the nest,
or parts of them, so that each element of an operand has its place by how far it is along each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.nests.columns import nest_ns
from graph_compiler.lower.nests.evaluation import (
    as_tile,
    evaluate,
    passes_of_engines,
    to_sizes,
)
from graph_compiler.lower.nests.nest import Axis, axes_of
from graph_compiler.lower.nests.operands import StoredOperand, everywhere, part_of, same
from graph_compiler.lower.nests.plans import types_of
from graph_compiler.lower.products.cut import KEPT, TILES
from graph_compiler.lower.products.depths import DEPTH, tiles_of_depth
from graph_compiler.lower.products.product import COLUMNS, ROWS, Contraction
from graph_compiler.lower.products.results import is_plain
from graph_compiler.schedule.contractions import Axes, joined
from graph_compiler.schedule.steps import KernelCall, Place, item_size, place_of
from graph_compiler.schedule.views import Buffer
from isa.affine import affine
from isa.dtypes import DTYPES as DTYPE_ROWS
from isa.enums import Engine
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from collections import Counter

    from graph_compiler.lower.device import DeviceProgram, Pattern

_AHEAD = 24
"""Steps among which the product is that reads what a nest makes."""

_PIECE = 2048
"""Elements of a partition that are computed at a time."""

_KEPT = 16 << 10
"""Bytes of a partition of operands that repeat, which stay for other tiles."""

_LOADED = 64 << 10
"""Bytes of a partition that are loaded at a time to compute with."""

_ROUND_TRIP = 4000.0
"""About how many ns a value takes to HBM and back, which the product waits for."""


@dataclass(frozen=True, slots=True)
class ComputedOperand:
    """What a nest makes, computed where it is loaded. `axes`: the dimensions of the nest, as memory
    would have its output; `first`: where in its buffer that begins, in elements."""

    device: DeviceProgram
    loop: LoopNest
    places: list[Place]
    axes: list[Axis]
    first: int
    depth: int = 0
    """How many neighbours tiles of a product's depth are to have, if it matters."""
    kept: dict[Any, NkiTensor] = field(default_factory=dict)

    @property
    def sources(self) -> list[Buffer]:
        """What is read instead of the nest's output."""
        return [place.buffer for place in self.places[1:]]

    def _numbers(self, distance: int) -> Iterator[tuple[int, Axis]]:
        """How far a distance in the output goes along each dimension."""
        for axis in self.axes:
            number, distance = divmod(distance, axis.strides[0])
            yield number, axis

    def holds(self, first: int, axes: Axes) -> bool:
        """Whether elements of dimensions, from one on, lie as far along the nest's dimensions as
        the steps to them do together."""
        if first < self.first or any(stride < 0 for _, stride in axes):
            return False
        most = [number for number, _ in self._numbers(first - self.first)]
        for count, stride in axes:
            for place, (number, _) in enumerate(self._numbers(stride)):
                most[place] += (count - 1) * number
        return all(number < axis.count for number, axis in zip(most, self.axes))

    def _distance(self, operand: int, distance: int) -> int:
        """How far apart in an operand elements are that are so far apart in the output."""
        return sum(number * axis.strides[operand] for number, axis in self._numbers(distance))

    def _start(self, operand: int, offset: Any) -> Any:
        """Elements in an operand before the one at an offset of the output."""
        if isinstance(offset, int):
            return self._distance(operand, offset)
        start: Any = self._distance(operand, offset.constant)
        for variable, coefficient in offset.terms:
            start = start + affine(variable) * self._distance(operand, coefficient)
        return start

    @property
    def _leaf_bytes(self) -> int:
        """Bytes of all operands for an element."""
        return sum(item_size(types_of(self.loop)[1 + n]) for n in range(len(self.loop.leaves)))

    def load(self, tile: NkiTensor, pattern: Pattern, offset: Any) -> None:
        """Have a tile contain elements of the output, by a pattern and from an offset on of its
        buffer."""
        pieces = list(_pieces(tile.shape))
        if self._leaf_bytes * math.prod(tile.shape[1:]) > _LOADED and len(pieces) > 1:
            for piece in pieces:
                lines = [(step, p.stop - p.start) for (step, _), p in zip(pattern[1:], piece)]
                start = sum(p.start * step for (step, _), p in zip(pattern[1:], piece))
                part = tile[(slice(None), *piece)]
                self.load(part, [pattern[0], *lines], offset + start)
            return
        device, dtype = self.device, tile.dtype
        with device.builder.at(device.place_in_graph(self.loop)):
            values = [
                self._leaf(operand, pattern, offset - self.first)
                for operand in range(1, 1 + len(self.loop.leaves))
            ]
            # Engines begin at few partitions, transfers at all of them.
            room = tile if not tile.first else device.tile(tile.shape, dtype)
            for piece in pieces:
                parts = [part_of(value, piece) for value in values]
                self._compute(room[(slice(None), *piece)], parts)
            if room is not tile:
                device.copy(tile, room)

    def _compute(self, room: NkiTensor, values: Sequence[NkiTensor]) -> None:
        value = evaluate(self.loop.steps, values, room, room.shape[0])[-1]
        whole = to_sizes(as_tile(value, room.shape, self.loop.output[0]), room.shape)
        if not same(whole, room):
            self.device.builder.emit("tensor_copy", dst=room, src=whole)

    def _leaf(self, operand: int, pattern: Pattern, offset: Any) -> NkiTensor:
        """A leaf's elements. Dimensions along which it repeats have one, but for partitions."""
        steps = [self._distance(operand, stride) for stride, _ in pattern]
        lines = [
            (step, count if step or not place else 1)
            for place, (step, (_, count)) in enumerate(zip(steps, pattern))
        ]
        start = self._start(operand, offset)
        repeats = not all(axis.strides[operand] for axis in self.axes)
        if not repeats or not isinstance(start, int):
            return self._loaded(operand, lines, start)
        depth = self.device.builder.depth
        key = operand, *lines, start, depth
        if key not in self.kept:
            self.kept[key] = self._loaded(operand, lines, start)
            while sum(map(_bytes_of, self.kept.values())) > _KEPT and len(self.kept) > 1:
                del self.kept[next(iter(self.kept))]
        return self.kept[key]

    def _loaded(self, operand: int, lines: list[tuple[int, int]], start: Any) -> NkiTensor:
        source = StoredOperand(self.device, self.places[operand], types_of(self.loop)[operand])
        (step, rows), *free = lines
        several = [line for line in free if line[1] > 1]
        if not step and len(several) == 1 and several[0][0] == 1:
            tile = everywhere(source, rows, start, several[0][1])
            return tile.reshape((rows, *(count for _, count in free)))
        return source.leaf(lines, start)


def _bytes_of(tile: NkiTensor) -> int:
    return math.prod(tile.shape[1:]) * DTYPE_ROWS[tile.dtype].size


def _pieces(shape: Sequence[int]) -> Iterator[tuple[slice, ...]]:
    """Parts of the free dimensions of a tile, of few elements each."""
    _, *free = shape
    inner = 1
    for place in reversed(range(len(free))):
        most = max(1, _PIECE // inner)
        if free[place] > most:
            break
        inner *= free[place]
    else:
        yield tuple(slice(0, count) for count in free)
        return
    outer = [range(count) for count in free[:place]]
    size = -(-free[place] // -(-free[place] // most))
    rest = tuple(slice(0, count) for count in free[place + 1 :])
    for index in product(*outer):
        before = tuple(slice(number, number + 1) for number in index)
        for begin in range(0, free[place], size):
            yield (*before, slice(begin, min(begin + size, free[place])), *rest)


def without_operands(
    device: DeviceProgram, steps: Sequence[Any], uses: Counter[Buffer]
) -> list[Any]:
    """The steps but for nests whose results products behind them compute: operands that have their
    depth across rows of memory. Not of what steps before make, which nests find on chip. `uses`:
    how often each buffer is read in all."""
    found: list[Any] = []
    made: set[Buffer] = set()
    for number, step in enumerate(steps):
        fresh = not made.isdisjoint(map(device.root, _varying(step)))
        if fresh or not is_computed(device, step, steps[number + 1 :], uses, across=True):
            found.append(step)
            made.update(map(device.root, step.writes))
    return found


def _varying(step: Any) -> list[Buffer]:
    """What a nest has an element of its own of for each of its result."""
    if not is_plain(step):
        return []
    places = [word for word in step.words if isinstance(word, Place)]
    return [
        place.buffer
        for place, (_, strides) in zip(places[1:], step.kernel.leaves)
        if _varies(step.kernel, strides)
    ]


def _varies(loop: LoopNest, strides: Sequence[int]) -> bool:
    return all(stride for stride, count in zip(strides, loop.counts) if count > 1)


def is_computed(
    device: DeviceProgram,
    call: Any,
    following: Sequence[Any],
    uses: Counter[Buffer],
    across: bool = False,
) -> bool:
    """Whether a step is a nest whose result a product behind it computes from now on. `across`:
    only where the depth of the product goes across rows of memory."""
    if not is_plain(call):
        return False
    (output,) = call.writes
    if output.kind != "arena" or uses[output] != 1:
        return False
    touched = {device.root(buffer) for buffer in (output, *call.reads)}
    for step in following[:_AHEAD]:
        if not isinstance(step, (KernelCall, Contraction)):
            return False
        if not touched.isdisjoint(map(device.root, step.writes)):
            return False
        if output in step.reads:
            found = isinstance(step, Contraction) and _computed(device, call, step, across)
            if found:
                device.computed[output] = found
            return bool(found)
    return False


def _computed(
    device: DeviceProgram, call: KernelCall, step: Contraction, across: bool
) -> ComputedOperand | None:
    """What a nest makes as an operand of a product that computes it, where that takes less time.
    The depth of the product is one dimension of the nest, or tiles of it are."""
    loop, product = call.kernel, step.product
    assert isinstance(loop, LoopNest)
    number = [product.left.buffer, product.right.buffer].index(call.writes[0])
    view = (product.left, product.right)[number]
    free = joined((product.rows, product.columns)[number])
    depth = (product.depth_left, product.depth_right)[number]
    axes = _axes_in_memory(loop)
    places = [word for word in call.words if isinstance(word, Place)]
    if axes is None or loop.output[0] != view.type or len(depth) != 1:
        return None
    ((count, down),) = depth
    if (down == 1) == across or step.target.type == "s32":
        return None
    size = item_size(view.type)
    operand = ComputedOperand(device, loop, places, axes, places[0].offset // size)
    first = place_of(view).offset // size
    others = [*product.batch[number], *free]
    if not operand.holds(first, [*others, (count, down)]):
        sizes = {DEPTH, *(axis.count for axis in axes if axis.count < DEPTH)}
        other = tiles_of_depth(device, product)
        fitting = [
            tile
            for tile in sorted({other} if other else sizes, reverse=True)
            if operand.holds(first, [*others, *_in_tiles(count, down, tile)])
        ]
        # Other operands are loaded with all of the depth in a row.
        if not fitting or down == 1 or [step for _, step in free] != [1]:
            return None
        operand = replace(operand, depth=fitting[0])
    return operand if _saved_ns(operand, step, number) > 0 else None


def _in_tiles(count: int, step: int, size: int) -> Axes:
    """A dimension as tiles of so many neighbours each."""
    return [(-(-count // size), size * step), (min(count, size), step)]


def _axes_in_memory(loop: LoopNest) -> list[Axis] | None:
    """The dimensions of a nest as its output has them in memory, where operands have neighbours
    there as well, or repeat."""
    operands = [strides for _, strides in (loop.output, *loop.leaves)]
    axes = axes_of(loop.counts, operands)
    axes.sort(key=lambda axis: -axis.strides[0])
    inside = [*(axis.strides[0] * axis.count for axis in axes[1:]), 1]
    if loop.fold is not None or not loop.steps or not loop.leaves:
        return None
    if any(axis.strides[0] < least for axis, least in zip(axes, inside)):
        return None
    if any(min(axis.strides) < 0 for axis in axes) or not set(axes[-1].strides) <= {0, 1}:
        return None
    return axes


def _saved_ns(operand: ComputedOperand, step: Contraction, number: int) -> float:
    """About how many ns it saves that a product computes an operand of its own. What it computes
    again for other rows counts as often."""
    device, loop, product = operand.device, operand.loop, step.product
    target, size = device.target, item_size(product.left.type)
    batch = math.prod(count for count, _ in product.batch[0])
    rows = math.prod(count for count, _ in product.rows)
    depth = math.prod(count for count, _ in product.depth_left)
    ((columns, _),) = product.columns
    deep = -(-depth // (operand.depth or DEPTH))
    tiles = batch * -(-rows // ROWS) * deep
    passes = target.fp32_matmul_passes.value if size == 4 else 1
    multiplied = tiles * columns * passes / target.clock_ghz(Engine.tensor)
    taken = deep * columns * size
    blocks = -(-rows // (TILES * ROWS)) if columns > COLUMNS and taken > KEPT else 1
    again = (1, blocks)[number]
    elements = again * batch * depth * (rows, columns)[number]
    other = (blocks, 1)[number] * batch * depth * (columns, rows)[number] * size
    other += batch * rows * columns * item_size(step.target.type)
    run, queues = operand.axes[-1].count, target.dma_engines.value
    loaded = sum(
        item_size(type) / target.dma_run_bytes_per_ns(run * item_size(type)) / queues
        for type, strides in loop.leaves
        if _varies(loop, strides)
    )
    vector, scalar = passes_of_engines(loop)
    clocks = target.clock_ghz(Engine.vector), target.clock_ghz(Engine.scalar)
    engines = elements / -(-depth // deep) * max(vector / clocks[0], scalar / clocks[1])
    apart = (other + elements * size) / target.dma_bytes_per_ns
    here = other / target.dma_bytes_per_ns + elements * loaded
    before = nest_ns(device, loop) + _ROUND_TRIP
    return before + max(multiplied, apart) - max(multiplied, here, engines)
