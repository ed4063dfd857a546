"""Columns of scores that a mask hides from all rows of a tile.

Of causal attention the last keys are hidden from the first queries. Behind the last column that a
row of the tile sees, all columns of a row have one number, that of the mask, whatever it is. So the
tile has its columns up to there, in whole tiles of the depth of the product with the values, and
one more, which stands for all that follow:

- The largest number of a row is the same.
- The sum of exponentials counts that column as often as there are columns from it on.
- The product takes, for that column, the sum of the values of those columns.

So the results are those of the graph for any scores, with sums in another order: a row that is
hidden as a whole is the mean of the values, and values that are no numbers make results that are
none.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

import nki.language as nl
from graph_compiler.lower.groups.divided_products import Divided
from graph_compiler.lower.groups.members import (
    LEFT,
    TARGET,
    Member,
    MemberOperand,
    RowNest,
    RowProduct,
    chooses,
    folds_rows,
    is_function,
)
from graph_compiler.lower.groups.transposed_products import Right
from graph_compiler.lower.nests.elementwise import Nest
from graph_compiler.lower.nests.nest import Axis, NestTile, Tiling
from graph_compiler.lower.products.depths import DEPTH, in_order, tiles_of_depth
from graph_compiler.lower.products.sides import Sides
from graph_compiler.lower.products.transposes import into_bank
from graph_compiler.lower.sizes import BIT_FOR_BIT
from graph_compiler.schedule.views import Buffer
from isa.alu import ALU
from isa.dtypes import DTYPES
from isa.enums import Memory, ReduceCommand
from isa.operations.scan import TensorScalarCumulative
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

LEAST = 384
"""Hidden columns from which on it is worth while to leave them out."""

_TYPES = frozenset({"bf16", "f32"})


@dataclass(frozen=True)
class MaskedColumns:
    """Members of a group between a product whose results a mask hides, `scores`, and the one that
    takes them for weights of `values`. `maker`: the nest whose results are summed up along rows.
    `visible`: how many columns each row of an element of the batch sees at most."""

    device: DeviceProgram
    scores: int
    maker: int | None
    values: int
    nests: frozenset[int]
    columns: int
    visible: np.ndarray[Any, Any]
    ones: NkiTensor
    """What sums up values along partitions, halved so often that sums of finite ones are finite."""
    halvings: int

    def seen(self, start: Any, rows: int) -> int | None:
        """How many columns come before those that are hidden from some rows of each element of the
        batch, in whole tiles; None where there are few others."""
        if not isinstance(start, int):
            return None
        seen = _in_tiles(self.visible[start : start + rows].max())
        return seen if self.columns - seen >= LEAST else None

    @property
    def _first(self) -> int:
        """The least that tiles of rows see."""
        return _in_tiles(self.visible.min())

    def members(self, members: Sequence[Member], seen: int) -> list[Member]:
        """The members for so many columns, and one that stands for the others."""
        found = list(members)
        for number in self.nests:
            nest = members[number]
            assert isinstance(nest, RowNest)
            found[number] = replace(nest, inner=[replace(nest.inner[0], count=seen + 1)])
        scores, values = members[self.scores], members[self.values]
        assert isinstance(scores, RowProduct) and isinstance(values, RowProduct)
        ((_, across),) = scores.product.columns
        product = scores.product.changed(columns=[(seen + 1, across)])
        found[self.scores] = replace(scores, product=product)
        found[self.values] = self._in_order(values, seen)
        return found

    def in_order(self, values: Member) -> RowProduct:
        """The product with the values, whose depth is in tiles of neighbours."""
        assert isinstance(values, RowProduct)
        return self._in_order(values, self.columns)

    def _in_order(self, values: RowProduct, depth: int) -> RowProduct:
        sides = values.sides
        return replace(
            values, sides=Sides(self.device, values.product, in_order(depth), by_dma=sides.by_dma)
        )

    def with_last(self, total: NkiTensor, made: Nest, member: RowNest, offsets: Any) -> NkiTensor:
        """Sums of rows that contain the last column once, with it as often as it stands for one.
        `made`: the nest that has made the rows, of which `member` says how they are read."""
        device, loop = self.device, made.loop
        rows, (axis,) = total.shape[0], member.inner
        seen = axis.count - 1
        found = device.tile((rows, 1), "float32")
        steps = (*loop.steps[:-1], loop.steps[-1]._replace(type="f32"))
        wide = replace(loop, output=("f32", loop.output[1]), steps=steps)
        begin = tuple(at + seen * step for at, step in zip(offsets, axis.strides))
        tiling = Tiling(Axis(rows, member.rows.strides), (replace(axis, count=1),), (), (rows, 1))
        nest = Nest(device, wide, [made.output, *made.leaves])
        nest.known = made.known
        last = nest.value(tiling, NestTile(tiling.sizes, begin))
        device.builder.emit(
            "tensor_scalar",
            dst=found,
            data=last,
            op0=ALU["multiply"],
            operand0=float(self.columns - seen - 1),
            op1=ALU["add"],
            operand1=total,
        )
        return found

    def weight(self, last: NkiTensor, parts: int) -> list[NkiTensor]:
        """The last column of weights [rows, 1] as what goes with `tail`, [1, rows] each."""
        bank = into_bank(self.device, [last])
        tile = self.device.tile(bank.shape, last.dtype)
        self.device.builder.emit(
            "tensor_scalar",
            dst=tile,
            data=bank,
            op0=ALU["multiply"],
            operand0=2.0**self.halvings,
        )
        return [tile] * parts

    def tail(self, right: Right, element: int, seen: int) -> list[NkiTensor]:
        """[1, columns] whose sum is the sum of the values from one on, halved so often that it is
        finite if they are; of one of the elements of the batch that are loaded."""
        if element not in right.tails:
            right.tails[element] = self._tails(right[self.values][element])
        return right.tails[element][seen // DEPTH - self._first // DEPTH]

    def _tails(self, values: Sequence[NkiTensor]) -> list[list[NkiTensor]]:
        """For each tile of the depth from the first one that is hidden from some rows on, the sum
        of its values and those behind."""
        device, emit = self.device, self.device.builder.emit
        first = self._first // DEPTH
        tiles = list(values[first:])[::-1]
        width, dtype = tiles[0].shape[1], tiles[0].dtype
        bank = device.tile((width, len(tiles)), "float32", Memory.psum)
        for place, tile in enumerate(tiles):
            ones = self.ones[: tile.shape[0]]
            emit("nc_matmul", dst=bank[:, place : place + 1], stationary=tile, moving=ones)
        sums = device.tile((width, len(tiles)), "float32")
        emit(
            TensorScalarCumulative,
            dst=sums,
            src=bank,
            op0=ALU["multiply"],
            imm0=1.0,
            op1=ALU["add"],
            reduce_cmd=ReduceCommand.reset_reduce,
        )
        parts = 1 if dtype == "float32" else 2
        lines = device.tile((len(tiles), parts * width), dtype)
        self._cut(into_bank(device, [sums]), lines)
        row = device.tile((1, math.prod(lines.shape)), dtype)
        device.copy(row, lines)
        found = [row[:, begin : begin + width] for begin in range(0, row.shape[1], width)]
        return [found[begin : begin + parts] for begin in range(0, len(found), parts)][::-1]

    def _cut(self, sums: NkiTensor, lines: NkiTensor) -> None:
        """Sums in PSUM as numbers of a type whose sum they are, beside one another. Two of 16 bits
        have as many bits as matter in a sum of more than a hundred numbers. The first is finite, so
        that the second is an infinity where the sum is one."""
        emit, width = self.device.builder.emit, sums.shape[1]
        if lines.dtype == sums.dtype:
            emit("tensor_copy", dst=lines, src=sums)
            return
        most = float(ml_dtypes.finfo(DTYPES[lines.dtype].numpy).max)
        first, rest = lines[:, :width], lines[:, width:]
        low, high = ALU["maximum"], ALU["minimum"]
        emit(
            "tensor_scalar", dst=first, data=sums, op0=low, operand0=-most, op1=high, operand1=most
        )
        emit("tensor_tensor", dst=rest, data1=sums, data2=first, op=ALU["subtract"])


def _in_tiles(columns: Any) -> int:
    """So many columns in whole tiles of the depth, one at least."""
    return max(1, -(-int(columns) // DEPTH)) * DEPTH


def masked_columns(
    device: DeviceProgram,
    members: Sequence[Member],
    following: Mapping[int, int],
    summed: Mapping[int, int],
    divided: Mapping[int, Divided],
    alone: Container[Buffer],
    rows: int,
) -> MaskedColumns | None:
    """What is left out of scores that are masked, if there are any. `following`: products and the
    nests that take their results; `summed`: nests that fold what others make, and these; `alone`:
    buffers that only members use; `rows`: of each element of the batch."""
    if device.target.generation < BIT_FOR_BIT:
        return None
    for number, choice in following.items():
        found = _Weights(device, members, summed, divided, alone).of(number, choice, rows)
        if found is not None:
            return found
    return None


class _Weights:
    """The members of a group through which masked scores go."""

    def __init__(
        self,
        device: DeviceProgram,
        members: Sequence[Member],
        summed: Mapping[int, int],
        divided: Mapping[int, Divided],
        alone: Container[Buffer],
    ) -> None:
        self.device = device
        self.members = members
        self.summed = summed
        self.left_out = {one.nest for one in divided.values()}
        self.alone = alone
        self.rows: set[Buffer] = set()
        """Buffers whose rows have one number in all hidden columns."""
        self.largest: set[Buffer] = set()
        self.nests: set[int] = set()
        self.columns = 0

    def of(self, scores: int, choice: int, rows: int) -> MaskedColumns | None:
        """What is left out behind a product and the choice among its results."""
        product, nest = self.members[scores], self.members[choice]
        assert isinstance(product, RowProduct) and isinstance(nest, RowNest)
        node = self.device.node_of(nest.loop)
        visible = None if node is None else self.device.visible.get(node)
        if visible is None or node is None or node.dims[-2:] != (rows, product.columns):
            return None
        self.columns = product.columns
        own = visible.reshape(-1, rows).max(0)
        values = self._values(choice) if self._takes(choice, own.min()) else None
        if values is None:
            return None
        makers = {maker for fold, maker in self.summed.items() if maker in self.nests}
        makers.discard(choice)
        maker = makers.pop() if makers else None
        if makers:
            return None
        halvings = (self.columns - 1).bit_length()
        member = self.members[values]
        assert isinstance(member, RowProduct)
        dtype = member.sides.dtype
        ones = nl.full((DEPTH, 1), 2.0**-halvings, dtype=dtype, buffer=nl.sbuf)
        nests = frozenset(self.nests)
        columns = self.columns
        return MaskedColumns(
            self.device, scores, maker, values, nests, columns, own, ones, halvings
        )

    def _takes(self, choice: int, least: int) -> bool:
        """Whether a nest chooses among whole rows, of which enough is hidden."""
        nest = self.members[choice]
        if not chooses(nest) or self.columns - least < LEAST:
            return False
        assert isinstance(nest, RowNest)
        return self._goes_by_column(choice, nest)

    def _goes_by_column(self, number: int, nest: RowNest) -> bool:
        """Whether a nest makes whole rows, element by element, that only members use."""
        target = nest.uses[TARGET]
        if len(nest.inner) != 1 or not self._is_row(target) or target.buffer not in self.alone:
            return False
        if nest.inner[0].count != self.columns or nest.inner[0].strides[0] != 1:
            return False
        self.nests.add(number)
        self.rows.add(target.buffer)
        return True

    def _is_row(self, use: MemberOperand) -> bool:
        return (use.step, use.low, use.high) == (self.columns, 0, self.columns - 1)

    def _values(self, choice: int) -> int | None:
        """The product that takes rows that are made of those of a choice; None where something else
        does."""
        values = None
        for number, member in enumerate(self.members):
            if number == choice or number in self.left_out:
                continue
            own = [use for use in member.uses[1:] if use.buffer in self.rows]
            if number in self.summed and self.summed[number] in self.nests:
                if not self._is_fold(number, member):
                    return None
            elif own and isinstance(member, RowProduct):
                if values is not None or not self._is_product(member):
                    return None
                values = number
            elif own and not self._keeps_rows(number, member, own):
                return None
        return values

    def _is_fold(self, number: int, member: Member) -> bool:
        """Whether a member finds the largest number of each row, or sums up exponentials of what is
        not larger."""
        assert isinstance(member, RowNest)
        if member.loop.fold == "maximum":
            self.largest.add(member.uses[TARGET].buffer)
            return True
        maker = self.members[self.summed[number]]
        assert isinstance(maker, RowNest)
        return member.loop.fold == "add" and is_function(maker) and self._is_bounded(maker)

    def _is_bounded(self, maker: RowNest) -> bool:
        return maker.loop.steps[-1].op in _EXPONENTIALS and not self.largest.isdisjoint(maker.reads)

    def _keeps_rows(self, number: int, member: Member, own: Sequence[MemberOperand]) -> bool:
        """Whether a nest finds the largest of such rows, or makes such rows of them."""
        assert isinstance(member, RowNest)
        if member.loop.fold is not None:
            if folds_rows(member) != "maximum" or len(member.inner) != 1:
                return False
            if not all(map(self._is_row, own)):
                return False
            self.nests.add(number)
            self.largest.add(member.uses[TARGET].buffer)
            return True
        if len(member.inner) != 1:
            return False
        (axis,) = member.inner
        plain = {step.op for step in member.loop.steps} <= _BOUNDED
        if not plain and number not in self.summed.values():
            return False
        uses = list(zip(member.uses[1:], axis.strides[1:]))
        alike = all(
            not step or (step == 1 and use.buffer in self.rows and self._is_row(use))
            for use, step in uses
        )
        return alike and self._goes_by_column(number, member)

    def _is_product(self, member: RowProduct) -> bool:
        """Whether such rows are weights of a product with few columns."""
        left, right = member.uses[LEFT:]
        plain = left.buffer in self.rows and right.buffer not in self.rows and self._is_row(left)
        deep = tiles_of_depth(self.device, member.product) in (0, DEPTH)
        few = member.columns <= DEPTH and left.type in _TYPES
        return plain and deep and few and member.across == 1


_EXPONENTIALS = frozenset({"exponential"})
"""Opcodes whose results are at most one where arguments are not positive."""

_BOUNDED = frozenset({"divide", "convert"})
"""Opcodes of what is made of exponentials, which their sum divides."""
