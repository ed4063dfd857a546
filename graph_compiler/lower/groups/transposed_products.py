"""Products that are computed transposed, so that the next product can read them as they are.

A product's left operand has its depth along partitions, so a result [rows, columns] that another
product takes on its left would have to be transposed. With the right operand stationary and the
rows moving, the result comes as [columns, rows] and needs no transposition. That is done where the
result goes through one element-wise nest to one product, and the nest's other inputs are the same
for all rows (`with_transposed`). `Right` caches the loaded right operands.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.device import Pattern
from graph_compiler.lower.groups.added_rows import AddedRow
from graph_compiler.lower.groups.members import LEFT, RIGHT, Member, RowNest, RowProduct
from graph_compiler.lower.nests.elementwise import Nest
from graph_compiler.lower.nests.nest import Axis, Tiling
from graph_compiler.lower.nests.operands import NestOperand, StoredOperand, same
from graph_compiler.lower.nests.plans import types_of
from graph_compiler.lower.products.depths import Depth, folded, tiles_of_depth
from graph_compiler.lower.products.sides import Sides
from graph_compiler.lower.sizes import BANK, DTYPES
from graph_compiler.schedule.views import Buffer
from isa.enums import Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram


class Right:
    """The right operands of products of a group for several elements of the batch, from one on,
    each loaded when it is first asked for."""

    def __init__(self, members: Sequence[Member], index: Sequence[Any], several: int) -> None:
        self.members = members
        self.index = [*index]
        self.several = several
        self.found: dict[int, Sequence[Sequence[NkiTensor]]] = {}
        self.tails: dict[int, list[list[NkiTensor]]] = {}
        """What stands for hidden columns of masked scores, by element (`masked_columns`)."""

    def load(self) -> None:
        """Load all of them."""
        for number, member in enumerate(self.members):
            if isinstance(member, RowProduct):
                for tiles in self[number]:
                    tuple(tiles)

    def __getitem__(self, number: int) -> Sequence[Sequence[NkiTensor]]:
        if number not in self.found:
            member = self.members[number]
            assert isinstance(member, RowProduct)
            step = member.batch[-1].strides[RIGHT] if member.batch else 0
            start = member.start(RIGHT, self.index, 0)
            self.found[number] = member.sides.of_columns_of(
                (self.several, step), 0, member.columns, start
            )
        return self.found[number]


class Whole(NamedTuple):
    """An operand that is a tile, of which all is asked for."""

    device: DeviceProgram
    tile: NkiTensor

    @property
    def is_stored(self) -> bool:
        return False

    def shares(self, other: NestOperand) -> bool:
        return False

    def leaf(self, pattern: Pattern, offset: Any) -> NkiTensor:
        return self.tile

    def room(self, pattern: Pattern, offset: Any) -> NkiTensor | None:
        return self.tile

    def keep(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        if not same(value, self.tile):
            self.device.builder.emit("tensor_copy", dst=self.tile, src=value)

    def take(self, value: NkiTensor, pattern: Pattern, offset: Any) -> None:
        self.keep(value, pattern, offset)


def with_transposed(
    members: Sequence[Member], following: dict[int, int], inside: Collection[Buffer]
) -> dict[int, tuple[int, Sides]]:
    """Products whose results are made turned, of those that nests come behind; with the products
    that alone read what the nests make of them, and how these have their operands then. The nests
    read nothing else that differs from row to row. `inside`: buffers that members alone read."""
    found: dict[int, tuple[int, Sides]] = {}
    for number, other in following.items():
        product, nest = members[number], members[other]
        assert isinstance(product, RowProduct) and isinstance(nest, RowNest)
        target, *leaves = nest.uses
        fixed = [
            nest.is_fixed(leaf) for leaf, use in enumerate(leaves, 1) if use != product.uses[0]
        ]
        readers = [
            (reader, member)
            for reader, member in enumerate(members)
            if reader > other and target.buffer in member.reads
        ]
        if not all(fixed) or len(readers) != 1 or target.buffer not in inside:
            continue
        ((reader, member),) = readers
        if not isinstance(member, RowProduct) or member.uses[LEFT] != target:
            continue
        if tiles_of_depth(member.sides.device, member.product):
            continue
        depth = folded(member.product.depth_left)
        if depth is not None and depth.elements == product.columns and depth.is_even:
            found[number] = reader, Sides(member.sides.device, member.product, depth)
    return found


def leaves_by_column(
    device: DeviceProgram, nest: RowNest, operand: int, depth: Depth
) -> dict[int, NkiTensor]:
    """The nest's other operands than the product, whose elements are the same for all rows, as
    [partitions, tiles of a depth, 1]."""
    (axis,) = nest.inner
    types = types_of(nest.loop)
    found: dict[int, NkiTensor] = {}
    for leaf in range(1, 1 + len(nest.loop.leaves)):
        if leaf != operand:
            source = StoredOperand(device, nest.places[leaf], types[leaf])
            step = axis.strides[leaf]
            pattern = [(depth.near * step, depth.partitions), (depth.far * step, depth.tiles)]
            found[leaf] = source.leaf([*pattern, (0, 1)], 0)
    return found


def transposed_result(
    device: DeviceProgram,
    moving: list[NkiTensor],
    right: Sequence[NkiTensor],
    nest: RowNest,
    operand: int,
    leaves: dict[int, NkiTensor],
    depth: Depth,
    added: AddedRow | None = None,
) -> list[NkiTensor]:
    """What a nest makes of a product, as [partitions, rows] for each tile of a depth. `moving`: the
    rows of the left operand, [depth, rows] for each of its tiles; `operand`: the nest's that is the
    product; `leaves`: its others (`leaves_by_column`); `added`: a row that is added to the
    product."""
    (axis,) = nest.inner
    rows = moving[0].shape[1]
    size, near, far = depth.partitions, depth.near, depth.far
    types = types_of(nest.loop)
    found = []
    most = max(1, BANK // (4 * rows))
    for first in range(0, depth.tiles, most):
        count = min(most, depth.tiles - first)
        bank = device.tile((size, count, rows), "float32", Memory.psum)
        for number in range(count):
            begin = (first + number) * far
            if added is not None:
                stationary, ones = added.to_columns(rows, begin, size, near)
                device.builder.emit(
                    "nc_matmul", dst=bank[:, number, :], stationary=stationary, moving=ones
                )
            for weights, part in zip(right, moving):
                columns = weights[:, begin : begin + near * (size - 1) + 1 : near]
                device.builder.emit(
                    "nc_matmul", dst=bank[:, number, :], stationary=columns, moving=part
                )
        done = device.tile((size, count, rows), DTYPES[types[0]])
        operands: list[NestOperand] = [Whole(device, done)]
        for leaf in range(1, 1 + len(nest.loop.leaves)):
            here = bank if leaf == operand else leaves[leaf][:, first : first + count, :]
            operands.append(Whole(device, here))
        tiling = Tiling(
            Axis(size, axis.strides), (Axis(count, axis.strides), nest.rows), (), done.shape
        )
        Nest(device, nest.loop, operands).emit(tiling, rolled=False)
        found += [done[:, number, :] for number in range(count)]
    return found
