"""Loop nests of fused element-wise work: maps, and folds along dimensions.

The nests are those that the host's kernels are made of (`graph_compiler.host_kernels.loops.Loop`).
A leaf that is the same for all tiles is loaded once; values that are the same along a dimension are
computed once there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import nki.language as nl
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.arithmetic import Value
from graph_compiler.lower.nests.boxes import emit_permuted
from graph_compiler.lower.nests.evaluation import as_tile, evaluate, to_sizes
from graph_compiler.lower.nests.nest import NestTile, Outer, Tiling, each_tile, full_pattern
from graph_compiler.lower.nests.operands import (
    NestOperand,
    StoredOperand,
    overlaps,
    run_of,
    stored,
)
from graph_compiler.lower.nests.permutation import permutation_of
from graph_compiler.lower.nests.plans import is_move, plan, sums_across, types_of
from graph_compiler.lower.nests.row_folds import Folding
from graph_compiler.lower.sizes import widens
from graph_compiler.schedule.steps import Place, item_size
from graph_compiler.schedule.views import row_major
from nki.ir.views.tensor import NkiTensor


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
        if tiling.around is not None:
            self._of_two_dimensions(tiling).emit(replace(tiling, around=None), offsets, rolled)
            return
        fold = self.loop.fold is not None
        self.fixed = {}
        self.known = None if rolled else dict.fromkeys(_of_rows_alone(self.loop, tiling))
        plain = is_move(self.loop) and not _by_element(self.loop, tiling.partition.count)
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
            if room is not None and self._loads_into(tiling, tile, room):
                self.output.keep(room, pattern, tile.offsets[0])
                return
            value = self.value(tiling, tile, room)
            whole = to_sizes(as_tile(value, tile.sizes, self.type), tile.sizes)
            self.output.keep(whole, pattern, tile.offsets[0])

        each_tile(self.device.builder, tiling, visit, offsets=offsets, rolled=rolled, arrive=load)

    def _loads_into(self, tiling: Tiling, tile: NestTile, room: NkiTensor) -> bool:
        """Load what a copy has straight into the rows where it stays; whether that is possible."""
        (source, *_) = [*self.leaves, None]
        if not is_move(self.loop) or self.output.is_stored or not isinstance(source, StoredOperand):
            return False
        pattern = full_pattern(tiling, tile, 1)
        if any(step <= 0 for step, count in pattern if count > 1) or overlaps(pattern):
            return False
        source.load(room, pattern, tile.offsets[1])
        return True

    def _of_two_dimensions(self, tiling: Tiling) -> Nest:
        """The nest whose operands have two dimensions along partitions."""
        assert tiling.around is not None
        operands: list[NestOperand] = []
        for operand, distance in zip((self.output, *self.leaves), tiling.around.strides):
            assert isinstance(operand, StoredOperand)
            operands.append(operand._replace(runs=(tiling.partition.count, distance)))
        if self.loop.fold is not None:
            operands.append(self.initial)
        return Nest(self.device, self.loop, operands, self.on_scalar)

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
        size, short = item_size(self.type), self.device.target.dma_short_run_bytes.value

        def visit(tile: NestTile) -> None:
            pattern = full_pattern(tiling, tile, 1)
            again = overlaps(pattern) and run_of(pattern) * size < short
            target = full_pattern(tiling, tile, 0)
            turned = source.turned_tile(pattern) or output.turned_tile(target)
            move = source.leaf if by_way or again or turned else source.elements
            value = move(pattern, tile.offsets[1])
            value = nl.copy(value) if again else value  # in runs
            output.keep(value, target, tile.offsets[0])

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


_CONVERSIONS = frozenset({"convert"})


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
