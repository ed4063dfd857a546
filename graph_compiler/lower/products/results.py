"""Results of a convolution that are on chip: element-wise work behind it, and what is stored.

A nest may compute each element of a result of its own, and of what is the same for all pixels or
has an element for each. Such a nest finds the result in PSUM. Its own result is stored instead.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.nests.evaluation import as_tile, computes_in_fp32, evaluate, to_sizes
from graph_compiler.lower.nests.operands import StoredOperand, everywhere, part_of, same
from graph_compiler.lower.nests.plans import types_of
from graph_compiler.lower.sizes import DTYPES, PARTITIONS
from graph_compiler.schedule.steps import KernelCall, Place, item_size, place_of
from graph_compiler.schedule.views import Buffer, View
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.lower.products.convolution import ConvolutionStep

OperandSteps = tuple[int, ...]
"""Elements from one image, row, column and output to the next one."""

Sums = tuple[NkiTensor, tuple[slice, ...]]
"""Results in PSUM, and their place among the free dimensions of a tile."""

OUTPUT = 3
"""The dimension of outputs."""

_CHAIN = 4
"""Nests behind a convolution, at most."""

_BETWEEN = 2
"""Nests between them that may come before the convolution."""


class FollowingNest(NamedTuple):
    """A nest behind a convolution: its call, its operands, the output first, with their steps.
    `made`: for each leaf the stage that makes it, 0 the convolution; None of those in HBM."""

    call: KernelCall
    loop: LoopNest
    places: list[Place]
    steps: list[OperandSteps]
    made: list[int | None]

    def of_every(self, paces: Sequence[int], first: Sequence[int]) -> FollowingNest:
        """The same of every so many images, rows, columns and outputs, from some on."""
        types = types_of(self.loop)[0], *(type for type, _ in self.loop.leaves)
        steps = [tuple(a * b for a, b in zip(own, paces)) for own in self.steps]
        places = [
            Place(place.buffer, place.offset + _dot(first, own) * item_size(type))
            for place, own, type in zip(self.places, self.steps, types)
        ]
        return self._replace(places=places, steps=steps)

    def rows_alone(self) -> bool:
        """Whether what it reads in HBM is the same for all pixels."""
        leaves = zip(self.steps[1:], self.made)
        return all(made is not None or _is_row(steps) for steps, made in leaves)


def _is_row(steps: OperandSteps) -> bool:
    return not any(steps[:OUTPUT])


@dataclass(frozen=True)
class Cells:
    """Results in a tile: the first one's image, row, column and output, and by how many of them the
    dimensions of partitions, and the free ones of the tile, go on."""

    begin: tuple[Any, ...]
    partition: Sequence[tuple[OperandSteps, int]]
    free: Sequence[tuple[OperandSteps, int]]

    @property
    def partitions(self) -> int:
        """Partitions of the tile."""
        return math.prod(count for _, count in self.partition)

    def pattern(self, steps: OperandSteps) -> list[tuple[Any, int]]:
        """Elements of an operand; one where several results take the same."""
        lines = [(_dot(by, steps), count) for by, count in self.partition]
        lines += [(_dot(by, steps), count if _dot(by, steps) else 1) for by, count in self.free]
        return [line for line in lines if line[1] > 1] or [(1, 1)]

    def shape(self, steps: OperandSteps) -> list[int]:
        """The free dimensions of a tile with these elements."""
        return [count if _dot(by, steps) else 1 for by, count in self.free]

    def offset(self, steps: OperandSteps) -> Any:
        """Elements in front of the first one."""
        return _dot(self.begin, steps)


def unit(dimension: int) -> OperandSteps:
    """The next image, row, column or output."""
    return tuple(int(dimension == other) for other in range(OUTPUT + 1))


def _dot(one: Sequence[Any], other: Sequence[int]) -> Any:
    return sum(a * b for a, b in zip(one, other))


def with_nests(
    device: DeviceProgram, step: ConvolutionStep, following: Sequence[Any]
) -> tuple[ConvolutionStep, list[Any]]:
    """A convolution with the nests that take its results on chip. Also the steps between these
    nests, which have to come before the convolution now."""
    found: list[FollowingNest] = []
    between: list[Any] = []
    waiting: list[Any] = []
    target = step.target
    made: dict[Buffer, tuple[str, OperandSteps]] = {target.buffer: (target.type, target.strides)}
    read = _roots(device, step.reads)
    for call in following[: _CHAIN + _BETWEEN]:
        own = _stage_of(call, target, made)
        reads, writes = _roots(device, call.reads), _roots(device, call.writes)
        known = _roots(device, made)
        if own is not None and len(found) < _CHAIN:
            output = own.places[0].buffer
            if output in made or writes & (read | reads):
                break
            read |= reads - known
            made[output] = types_of(own.loop)[0], own.steps[0]
            found.append(own)
            between += waiting
            waiting = []
        elif (
            not is_plain(call)
            or len(waiting) == _BETWEEN
            or known & (reads | writes)
            or read & writes
        ):
            break
        else:
            waiting.append(call)
    if not found:
        return step, []
    whole = replace(step, following=tuple(found))
    device.same_place(step, [whole])
    return whole, between


def is_plain(step: Any) -> bool:
    """Whether a step is one nest."""
    return isinstance(step, KernelCall) and isinstance(step.kernel, LoopNest)


def _roots(device: DeviceProgram, buffers: Iterable[Buffer]) -> set[Buffer]:
    return {device.root(buffer) for buffer in buffers}


def _stage_of(
    call: Any, target: View, made: dict[Buffer, tuple[str, OperandSteps]]
) -> FollowingNest | None:
    """A step as work behind a convolution with a target, of values that are on chip; None of
    others."""
    if not is_plain(call):
        return None
    loop = call.kernel
    places = [word for word in call.words if isinstance(word, Place)]
    if loop.fold is not None or loop.divided is not None or len(places) != 1 + len(loop.leaves):
        return None
    order = {buffer: number for number, buffer in enumerate(made)}
    numbers = [order.get(place.buffer) for place in places[1:]]
    known = [leaf for leaf, number in enumerate(numbers) if number is not None]
    if not known or loop.output[0] not in DTYPES:
        return None
    type, steps = made[places[1 + known[0]].buffer]
    found = _along(loop, known[0], target.dims, steps)
    if found is None:
        return None
    for leaf, number in enumerate(numbers):
        place, own = places[1 + leaf], found[1 + leaf]
        if number is not None:
            type, steps = made[place.buffer]
            alike = own == _only(steps, target.dims) and loop.leaves[leaf][0] == type
            if not alike or place.offset or (type != "f32" and not computes_in_fp32(loop, leaf)):
                return None
        elif not (_is_row(own) and own[OUTPUT] in (0, 1)) and not _agree(own, target):
            return None
    if not _agree(found[0], target):
        return None
    return FollowingNest(call, loop, places, found, numbers)


def _only(steps: OperandSteps, dims: Sequence[int]) -> OperandSteps:
    """The steps of dimensions with several elements."""
    return tuple(step if count > 1 else 0 for step, count in zip(steps, dims))


def _along(
    loop: LoopNest, leaf: int, dims: Sequence[int], steps: OperandSteps
) -> list[OperandSteps] | None:
    """Steps of each operand, where the dimensions of a nest are those that a leaf has with such
    steps; None where they are not."""
    operands = [strides for _, strides in (loop.output, *loop.leaves)]
    several = (axis for axis, count in enumerate(loop.counts) if count > 1)
    axes = sorted(several, key=lambda axis: -operands[1 + leaf][axis])
    left = sorted(((steps[dim], dim) for dim in range(4) if dims[dim] > 1), reverse=True)
    found = [[0] * 4 for _ in operands]
    for axis in axes:
        count = loop.counts[axis]
        while count > 1:
            if not left:
                return None
            step, dim = left.pop(0)
            count, rest = divmod(count, dims[dim])
            if rest or step != count * operands[1 + leaf][axis]:
                return None
            for own, strides in zip(found, operands):
                own[dim] = count * strides[axis]
    return None if left else [tuple(own) for own in found]


def _agree(steps: OperandSteps, target: View) -> bool:
    """Whether memory has elements in the order of a target, the innermost ones as neighbours."""
    several = [dim for dim in range(4) if target.dims[dim] > 1]
    order = sorted(several, key=lambda dim: -target.strides[dim])
    own = [steps[dim] for dim in order]
    if not own:
        return True
    return own == sorted(own, reverse=True) and own[-1] == target.strides[order[-1]]


class ConvolutionResults:
    """What is made of the results of one convolution."""

    def __init__(
        self, device: DeviceProgram, target: View, stages: Sequence[FollowingNest]
    ) -> None:
        self.device = device
        self.target = target
        self.stages = stages
        made = [target.buffer, *(stage.places[0].buffer for stage in stages)]
        reads = Counter(place.buffer for stage in stages for place in stage.places[1:])
        self.outputs = [StoredOperand(device, place_of(target), target.type)] + [
            StoredOperand(device, stage.places[0], types_of(stage.loop)[0]) for stage in self.stages
        ]
        self.steps = [_only(target.strides, target.dims), *(s.steps[0] for s in self.stages)]
        last = len(self.stages)
        self.stored = [
            number
            for number, buffer in enumerate(made)
            if number == last or device.uses[buffer] > reads[buffer] or buffer.kind != "arena"
        ]
        self.rows_alone = all(stage.rows_alone() for stage in self.stages)
        self._rows: dict[Any, NkiTensor] = {}

    def dtypes(self) -> dict[int, str]:
        """The dtype of each value that is stored, by stage."""
        return {number: self.outputs[number].dtype for number in self.stored}

    def load_rows(self, first: int, count: int, by_output: bool) -> None:
        """What all pixels take of some outputs, which lie along partitions or not."""
        load = self._column if by_output else self._row
        for leaf in self._row_leaves():
            load(*leaf, first, count)

    def _row_leaves(self) -> Iterator[tuple[int, int]]:
        for number, stage in enumerate(self.stages):
            for leaf, made in enumerate(stage.made):
                if made is None and _is_row(stage.steps[1 + leaf]):
                    yield number, leaf

    def _source(self, number: int, leaf: int) -> StoredOperand:
        stage = self.stages[number]
        return StoredOperand(self.device, stage.places[1 + leaf], stage.loop.leaves[leaf][0])

    def _row(self, number: int, leaf: int, first: Any, count: int) -> NkiTensor:
        """[partitions, count] of what all pixels take."""
        step = self.stages[number].steps[1 + leaf][OUTPUT]
        source = self._source(number, leaf)
        first, count = (first, count) if step else (0, 1)
        key = source.place, source.type, first, count
        if key not in self._rows:
            self._rows[key] = everywhere(source, PARTITIONS, first, count)
        return self._rows[key]

    def _column(self, number: int, leaf: int, first: Any, count: int) -> NkiTensor:
        """[outputs, 1] of what all pixels take."""
        step = self.stages[number].steps[1 + leaf][OUTPUT]
        source = self._source(number, leaf)
        key = source.place, source.type, first * bool(step), -count
        if key not in self._rows:
            self._rows[key] = source.leaf([(step, count), (0, 1)], first * step)
        return self._rows[key]

    def _leaves(self, cells: Cells) -> dict[tuple[int, int], NkiTensor]:
        """What the nests read in HBM for a tile."""
        found = {}
        partitions = cells.partitions
        by_output = [by for by, _ in cells.partition if by[OUTPUT]]
        for number, stage in enumerate(self.stages):
            for leaf, made in enumerate(stage.made):
                if made is not None:
                    continue
                steps = stage.steps[1 + leaf]
                first = cells.begin[OUTPUT]
                if _is_row(steps) and by_output:
                    tile = self._column(number, leaf, first, partitions)
                    tile = tile.reshape((partitions, *[1] * len(cells.free)))
                elif _is_row(steps):
                    (count,) = (count for by, count in cells.free if by[OUTPUT])
                    tile = self._row(number, leaf, first, count)[:partitions]
                    tile = tile.reshape((partitions, *cells.shape(steps)))
                else:
                    source = self._source(number, leaf)
                    tile = self.device.tile((partitions, *cells.shape(steps)), source.dtype)
                    place = source.elements(cells.pattern(steps), cells.offset(steps))
                    self.device.copy(tile, place)
                found[number, leaf] = tile
        return found

    def computed(self, parts: Iterable[Sums], cells: Cells) -> dict[int, NkiTensor]:
        """Tiles with what is stored, by stage, of results in parts."""
        device = self.device
        leaves = self._leaves(cells)
        shape = cells.partitions, *(count for _, count in cells.free)
        rooms = {number: device.tile(shape, dtype) for number, dtype in self.dtypes().items()}
        for part, place in parts:
            values = [part]
            if 0 in rooms:
                device.builder.emit("tensor_copy", dst=rooms[0][(slice(None), *place)], src=part)
            for number, stage in enumerate(self.stages):
                arguments = [
                    part_of(leaves[number, leaf], place) if made is None else values[made]
                    for leaf, made in enumerate(stage.made)
                ]
                room = rooms[number + 1][(slice(None), *place)] if number + 1 in rooms else None
                with device.builder.at(device.place_in_graph(stage.loop)):
                    values.append(self._evaluated(stage, arguments, room, part.shape))
        return rooms

    def _evaluated(
        self,
        stage: FollowingNest,
        arguments: list[NkiTensor],
        room: NkiTensor | None,
        shape: tuple[int, ...],
    ) -> NkiTensor:
        type = stage.loop.output[0]
        value = evaluate(stage.loop.steps, arguments, room, shape[0])[-1]
        value = to_sizes(as_tile(value, shape, type), shape)
        if room is None or same(value, room):
            return value
        self.device.builder.emit("tensor_copy", dst=room, src=value)
        return room

    def store(self, tiles: dict[int, NkiTensor], cells: Cells) -> None:
        """Tiles of some stages become results in HBM."""
        for number, tile in tiles.items():
            steps = self.steps[number]
            place = self.outputs[number].elements(cells.pattern(steps), cells.offset(steps))
            self.device.copy(place, tile)

    def keep(self, parts: Iterable[Sums], cells: Cells) -> None:
        """Compute and store."""
        self.store(self.computed(parts, cells), cells)
