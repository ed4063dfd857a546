"""Steps as members of a group: what they read and write, row by row.

The rows of a group are those of a batch, which may have dimensions of its own: of every element of
the batch, `count` rows. A buffer is read or written by rows where these follow one another in
memory at one distance, the batch's outermost.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.registers import kind
from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.nests.combined import ACTIVATIONS
from graph_compiler.lower.nests.evaluation import computes_in_fp32, is_choice, leaves_of
from graph_compiler.lower.nests.nest import Axis, axes_of
from graph_compiler.lower.nests.plans import types_of
from graph_compiler.lower.products.depths import depth_in_rows
from graph_compiler.lower.products.product import Contraction
from graph_compiler.lower.products.sides import Sides
from graph_compiler.lower.sizes import PARTITIONS
from graph_compiler.schedule.contractions import Product, joined
from graph_compiler.schedule.steps import KernelCall, Place, item_size, place_of
from graph_compiler.schedule.views import Buffer


class MemberOperand(NamedTuple):
    """An operand: `step` elements from row to row, of which it has some from `low` to `high`, by
    the counts and strides of `inner`. No step where it is not read or written by rows."""

    buffer: Buffer
    type: str
    step: int
    low: int
    high: int
    inner: tuple[tuple[int, int], ...] = ()

    @property
    def by_row(self) -> bool:
        """Whether rows are apart from one another."""
        return self.low >= 0 and self.high < self.step

    @property
    def dense(self) -> bool:
        """Whether there are no gaps between its elements of a row."""
        return math.prod(count for count, _ in self.inner) == self.high - self.low + 1

    @property
    def run(self) -> int:
        """How many of its elements follow one another in memory."""
        run = 1
        for count, stride in sorted(self.inner, key=lambda axis: abs(axis[1])):
            if abs(stride) != run:
                break
            run *= count
        return run

    @property
    def elements(self) -> np.ndarray:
        """The numbers of its elements in a row."""
        found = np.array([self.low])
        for count, stride in self.inner:
            found = np.add.outer(found, abs(stride) * np.arange(count)).ravel()
        return found


@dataclass(frozen=True)
class _BatchRows:
    """The batch and the rows of a step: axes with the strides of its operands."""

    batch: tuple[Axis, ...]
    rows: Axis

    def step(self, operand: int) -> int:
        """Elements from row to row, from one element of the batch to the next one too; else 0."""
        step = self.rows.strides[operand]
        expected = step * self.rows.count
        for axis in reversed(self.batch):
            if axis.strides[operand] != expected:
                return 0
            expected *= axis.count
        return step

    def runs(self, operand: int) -> tuple[int, int]:
        """The rows of an element of the batch, and how far apart elements are."""
        return self.rows.count, self.batch[-1].strides[operand]

    def start(self, operand: int, index: Sequence[Any], row: Any) -> Any:
        """Elements from an operand's place to a row of an element of the batch."""
        places = [place * axis.strides[operand] for place, axis in zip(index, self.batch)]
        return sum(places, row * self.rows.strides[operand])


@dataclass(frozen=True)
class RowNest(_BatchRows):
    """A loop nest: the batch and the rows, axes of its own, and the axes within a row."""

    loop: LoopNest
    places: list[Place]
    inner: list[Axis]

    @property
    def reads(self) -> list[Buffer]:
        """What is read, each as often as it is."""
        return [place.buffer for place in self.places[1:]]

    @property
    def elements(self) -> int:
        """How many elements a row has, those that are folded included."""
        return math.prod(axis.count for axis in self.inner)

    def span(self, operand: int) -> tuple[int, int]:
        """The first and last element of a row that an operand has, from its place on."""
        low = high = 0
        for axis in self.inner:
            reach = (axis.count - 1) * axis.strides[operand]
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high

    @cached_property
    def uses(self) -> list[MemberOperand]:
        """The result, and what is read; not the initial value of a fold."""
        found = []
        operands = 1 + len(self.loop.leaves)
        for operand, type in enumerate(types_of(self.loop)[:operands]):
            place = self.places[operand]
            low, high = self.span(operand)
            axes = [(axis.count, axis.strides[operand]) for axis in self.inner]
            inner = tuple((count, stride) for count, stride in axes if stride)
            first = place.offset // item_size(type)
            step = self.step(operand)
            found.append(MemberOperand(place.buffer, type, step, first + low, first + high, inner))
        return found

    def is_fixed(self, operand: int) -> bool:
        """Whether an operand is the same for all rows."""
        return not any(axis.strides[operand] for axis in (*self.batch, self.rows))

    def repeats(self, operand: int) -> int:
        """In how many elements of the batch an operand is the same."""
        return math.prod(axis.count for axis in self.batch if not axis.strides[operand])

    @cached_property
    def repeated(self) -> frozenset[int]:
        """Leaves that are the same in all elements of a batch of several."""
        batch = [axis for axis in self.batch if axis.count > 1]
        leaves = range(len(self.loop.leaves))
        same = (n for n in leaves if not any(axis.strides[1 + n] for axis in batch))
        return frozenset(same if batch else ())


TARGET, LEFT, RIGHT = range(3)
"""The operands of a product."""


@dataclass(frozen=True)
class RowProduct(_BatchRows):
    """A product whose left operand has the rows. `across`: elements from column to column of the
    target."""

    contraction: Contraction
    product: Product
    across: int
    sides: Sides

    @property
    def reads(self) -> list[Buffer]:
        """What is read, each as often as it is."""
        return self.contraction.reads

    @property
    def elements(self) -> int:
        """How many elements a row of the result has."""
        return self.columns

    @property
    def columns(self) -> int:
        """Columns of the result."""
        ((count, _),) = self.product.columns
        return count

    @cached_property
    def uses(self) -> list[MemberOperand]:
        """The result, the left operand, the right one."""
        target, product = self.contraction.target, self.product
        (depth, stride) = product.depth_left[0]
        found = []
        for operand, view, width, dense in (
            (TARGET, target, self.columns, self.across == 1),
            (LEFT, product.left, depth, stride == 1),
        ):
            step = self.step(operand) if dense else 0
            place = place_of(view)
            first = place.offset // item_size(view.type)
            found.append(
                MemberOperand(
                    place.buffer, view.type, step, first, first + width - 1, ((width, 1),)
                )
            )
        return [*found, MemberOperand(product.right.buffer, product.right.type, 0, 0, 0)]

    @property
    def computed_of(self) -> list[MemberOperand]:
        """What operands are computed of, where these are computed when they are loaded."""
        own = [view.buffer for view in (self.product.left, self.product.right)]
        found = dict.fromkeys(self.sides.device.sources(own))
        return [MemberOperand(buffer, "", 0, 0, 0) for buffer in found if buffer not in own]

    def right_bytes(self) -> int:
        """Bytes of a partition that the right operand takes."""
        return self.sides.depth.tiles * self.columns * self.sides.size

    def right_share(self, rows: int) -> int:
        """As many bytes as count against limits, where so many rows are multiplied by it: what
        stays for many tiles of rows is worth more room."""
        return self.right_bytes() * _FEW // max(-(-rows // PARTITIONS), _FEW)


_FEW = 8
"""Tiles of rows up to which a right operand counts in full."""

Member = RowNest | RowProduct


def goes_by_column(nest: RowNest, operand: int) -> bool:
    """Whether a nest computes each element of a row of the same one of an operand, which may be
    what its type would round."""
    if len(nest.inner) != 1 or {nest.inner[0].strides[0], nest.inner[0].strides[operand]} != {1}:
        return False
    type, _ = nest.loop.leaves[operand - 1]
    return type == "f32" or computes_in_fp32(nest.loop, operand - 1)


def _split(axes: Sequence[Axis], wanted: Sequence[int]) -> tuple[list[Axis], list[Axis]] | None:
    """Axes of these counts that the first ones are made of, and those that are left."""
    found, rest = [], list(axes)
    for count in wanted:
        if not rest or rest[0].reduced or rest[0].count % count:
            return None
        inside = rest[0].count // count
        found.append(
            Axis(count, tuple(inside * stride for stride in rest[0].strides)),
        )
        rest[:1] = [replace(rest[0], count=inside)] if inside > 1 else []
    return found, rest


def members_of(device: DeviceProgram, step: Any, wanted: Sequence[int]) -> Iterator[Member]:
    """A step with each of its dimensions that may be a batch and rows of these counts."""
    if isinstance(step, Contraction):
        yield from _products(device, step, wanted)
        return
    loop, places = nest_of(step)
    operands = [strides for _, strides in (loop.output, *loop.leaves)]
    axes = axes_of(loop.counts, operands, loop.reduced)
    for number in range(len(axes)):
        split = _split(axes[number:], wanted)
        if split is None:
            continue
        (*batch, rows), rest = split
        if min(rows.strides) >= 0 and rows.strides[0]:
            yield RowNest(tuple(batch), rows, loop, places, [*axes[:number], *rest])


def nest_of(call: KernelCall) -> tuple[LoopNest, list[Place]]:
    """A nest and its places."""
    assert isinstance(call.kernel, LoopNest)
    return call.kernel, [word for word in call.words if isinstance(word, Place)]


def _axes_of_product(step: Contraction) -> tuple[list[Axis], list[tuple[int, int]]]:
    """The batch with the strides of target, left and right operand, and the rows."""
    left, right = step.product.batch
    batch = [
        Axis(count, (to, a, b))
        for (count, a), (_, b), (_, to) in zip(left, right, step.batch)
        if count > 1
    ]
    return batch, joined(step.product.rows) or [(1, 1)]


def is_member(step: Any) -> bool:
    """Whether a step may be one of a group."""
    return isinstance(step, Contraction) or (
        isinstance(step, KernelCall) and isinstance(step.kernel, LoopNest)
    )


def product_counts(step: Contraction) -> Iterator[tuple[int, ...]]:
    """Counts of a product's batch and rows, and of its batch and columns."""
    batch, rows = _axes_of_product(step)
    sizes = [axis.count for axis in batch]
    yield (*sizes, *(count for count, _ in rows))
    yield (*sizes, step.product.columns[0][0])


def _products(
    device: DeviceProgram, step: Contraction, wanted: Sequence[int]
) -> Iterator[RowProduct]:
    """A product with its rows, or its columns, as rows."""
    product = step.product
    depth = depth_in_rows(device, product)
    if depth is None or len(product.depth_right) != 1 or step.target.type == "s32":
        return
    batch, rows = _axes_of_product(step)
    alone = math.prod(wanted) <= PARTITIONS
    ahead = step.rows_step
    own: list[Axis] = []
    for count, stride in reversed(rows):
        own.insert(0, Axis(count, (ahead, stride, 0)))
        ahead *= count
    split = _split([*batch, *own], wanted)
    if split is not None and not split[1]:
        (*outer, last) = split[0]
        sides = Sides(device, product, depth, alone=alone)
        yield RowProduct(tuple(outer), last, step, product, 1, sides)
    if len(rows) == 1:
        ((count, stride),) = product.columns
        transposed = [Axis(a.count, (a.strides[0], a.strides[2], a.strides[1])) for a in batch]
        other = product.swapped()
        depth = depth_in_rows(device, other)
        split = _split([*transposed, Axis(count, (1, stride, 0))], wanted)
        if split is not None and not split[1] and depth is not None:
            (*outer, last) = split[0]
            sides = Sides(device, other, depth, alone=alone)
            yield RowProduct(tuple(outer), last, step, other, step.rows_step, sides)


def folds_rows(nest: RowNest) -> str | None:
    """By which opcode a nest folds whole rows of floats as they are; None of other nests."""
    loop = nest.loop
    plain = not loop.steps and len(loop.leaves) == 1
    real = all(kind(type) == "real" for type in types_of(loop))
    whole = not any(axis.strides[0] for axis in nest.inner)
    return loop.fold if plain and real and whole else None


def is_column(member: Member) -> bool:
    """Whether a nest computes one number of each row, of numbers of that row."""
    if not isinstance(member, RowNest) or member.loop.fold is not None:
        return False
    return math.prod(axis.count for axis in member.inner) == 1


def chooses(member: Member) -> bool:
    """Whether each result of a nest is chosen from an element and a number, in fp32."""
    if not isinstance(member, RowNest) or member.loop.fold is not None or not member.loop.steps:
        return False
    return member.loop.output[0] == "f32" and is_choice(member.loop, member.loop.steps[-1])


def is_function(member: Member) -> bool:
    """Whether each result of a nest is a function of the scalar engine of an element of its own."""
    if not isinstance(member, RowNest) or member.loop.fold is not None or not member.loop.steps:
        return False
    loop = member.loop
    last = loop.steps[-1]
    if last.op not in ACTIVATIONS or kind(last.source) != "real" or loop.output[0] != last.type:
        return False
    leaves = leaves_of(loop, last.arguments)
    return any(all(axis.strides[1 + leaf] for axis in member.inner) for leaf in leaves)


def _is_kept_by_row(member: RowProduct) -> bool:
    """Whether rows of a product are kept as they are summed up."""
    target = member.uses[TARGET]
    return member.across == 1 and target.by_row and target.type == "f32"


def folded_by_makers(members: Sequence[Member], others: Container[int]) -> dict[int, int]:
    """Nests that fold along rows what a nest before them makes, and those, where the engine that
    makes it folds by itself, in fp32: the scalar engine adds up results of a function, the vector
    engine compares what it chooses, and results of a product when it takes them out of PSUM. Not
    `others`."""
    makers: dict[tuple[Buffer, str], int] = {}
    found: dict[int, int] = {}
    for number, member in enumerate(members):
        target = member.uses[0]
        fold = folds_rows(member) if isinstance(member, RowNest) and number not in others else None
        if fold is not None:
            source = member.uses[1]
            maker = makers.get((source.buffer, fold))
            free = maker is not None and maker not in found.values()
            if maker is not None and free and source == members[maker].uses[0]:
                found[number] = maker
        for name in ("add", "maximum"):
            makers.pop((target.buffer, name), None)
        if is_function(member):
            makers[target.buffer, "add"] = number
        if chooses(member) or (isinstance(member, RowProduct) and _is_kept_by_row(member)):
            makers[target.buffer, "maximum"] = number
    return found
