"""Copies of nodes with other tensors: what is replaced, and what is shared."""

from __future__ import annotations

from isa.enums import Memory
from isa.operations.dma import DmaCopy
from isa.operations.vector import TensorCopy
from nki.ir.nodes import Access, Loop, Op, Register, Tensor
from nki.ir.replace import Renamed, seen_through


def tensor(number: int, memory: Memory = Memory.sbuf) -> Tensor:
    return Tensor(number, f"t{number}", memory, "float32", (8, 4))


def rows(of: Tensor, first: int = 0) -> Access:
    return Access(of, of.dtype, (2, 4), (4, 1), first * 4)


A, B, C, NEW = (tensor(number) for number in range(4))


def copied(to: Tensor, of: Tensor, *after: Op) -> Op:
    copy = Op.of(TensorCopy, dst=rows(to), src=rows(of, 3))
    copy.after = after
    return copy


def test_views_of_a_renamed_tensor_keep_their_form() -> None:
    op = copied(A, B)
    (found,) = Renamed({B: NEW}).nodes([op])
    assert isinstance(found, Op) and found is not op and found.row is op.row
    dst, src = found.values[:2]
    assert dst is op.values[0], "what stays is shared"
    assert (src.storage, src.shape, src.strides, src.offset) == (NEW, (2, 4), (4, 1), 12)
    assert op.values[1].storage is B, "the node itself stays"


def test_nodes_without_the_tensor_are_the_same_nodes() -> None:
    op = copied(A, B)
    assert Renamed({C: NEW}).nodes([op]) == [op]


def test_later_nodes_come_after_the_copies_of_earlier_ones() -> None:
    first = copied(A, B)
    second = copied(C, A, first)
    replaced: dict[Op, Op] = {}
    one, two = Renamed({B: NEW}, replaced=replaced).nodes([first, second])
    assert isinstance(two, Op) and two is not second
    assert two.after == (one,) and replaced == {first: one, second: two}


def test_bodies_of_loops_are_copied() -> None:
    op = copied(A, B)
    loop = Loop(Register(0), 0, 4, 1, [op])
    (found,) = Renamed({A: NEW}).nodes([loop])
    assert isinstance(found, Loop) and (found.lower, found.upper) == (0, 4)
    (inner,) = found.body
    assert isinstance(inner, Op) and inner.values[0].storage is NEW
    assert loop.body == [op]


def test_the_indices_of_a_gather_are_replaced_too() -> None:
    table, index = tensor(5, Memory.private_hbm), tensor(6)
    gathered = rows(table)
    gathered.vector_offset = Access(index, "int32", (2, 1), (4, 1))
    op = Op.of(DmaCopy, dst=rows(A), src=gathered)
    (found,) = Renamed({index: NEW}).nodes([op])
    assert isinstance(found, Op)
    src = found.values[1]
    assert src.storage is table and src.vector_offset.storage is NEW
    assert gathered.vector_offset.storage is index


def test_what_becomes_of_a_view_may_be_said() -> None:
    def later(view: Access, to: Tensor) -> Access:
        return seen_through(view, to, view.offset + 4)

    (found,) = Renamed({B: NEW}, later).nodes([copied(A, B)])
    assert isinstance(found, Op) and found.values[1].offset == 16
