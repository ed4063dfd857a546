"""Which views of one tensor in HBM may share elements, against sets of bytes."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.parser import parse_kernel

from isa.affine import Affine, Symbol, polynomial
from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.machine.dma import DmaCopy
from nki.ir import Access, Loop, Register, Tensor
from nki.passes.analysis.footprint import Box, box_of, may_overlap
from nki.pipeline import compile_kernel
from simulator.races.happens_before import check

NONE: frozenset[Register] = frozenset()


def tensor(dtype: str, *shape: Any) -> Tensor:
    return Tensor(0, "t", Memory.shared_hbm, dtype, shape)


def touched(access: Access, offset: int | None = None) -> set[int]:
    """The bytes of a view, element by element."""
    size = DTYPES[access.dtype].size
    first = access.offset if offset is None else offset
    found = set()
    for index in product(*map(range, access.shape)):
        element = first + sum(i * stride for i, stride in zip(index, access.strides))
        found |= set(range(element * size, element * size + size))
    return found


def in_hull(box: Box, found: set[int]) -> bool:
    if box.hull is None:
        return True
    start, length = box.hull
    return bool(min(found) == start and max(found) == start + length - 1)


@st.composite
def views(draw: Any, of: Tensor, total: int) -> Access:
    """Views inside a tensor of `total` bytes: any dtype, strides of either sign, or 0."""
    dtype = draw(st.sampled_from(["uint8", "bfloat16", "float32"]))
    elements = total // DTYPES[dtype].size
    shape, strides, low, high = [], [], 0, 0
    for _ in range(draw(st.integers(1, 3))):
        stride = draw(st.sampled_from([1, 2, 3, 7, 8, 12, 14, 16, 24, 48, -1, -3, 0]))
        room = elements - 1 - (high - low)
        most = min(4, 1 + room // abs(stride)) if stride else 3
        count = draw(st.integers(1, most))
        shape.append(count)
        strides.append(stride)
        low, high = low + min(0, stride * (count - 1)), high + max(0, stride * (count - 1))
    offset = draw(st.integers(-low, elements - 1 - high))
    return Access(of, dtype, tuple(shape), tuple(strides), offset)


SHAPES = [(96,), (8, 12), (4, 3, 8), (2, 1, 48), (96, 1)]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_static_views_are_exact(data: Any) -> None:
    of = tensor(
        data.draw(st.sampled_from(["bfloat16", "float32"])), *data.draw(st.sampled_from(SHAPES))
    )
    total = 96 * DTYPES[of.dtype].size
    one, other = data.draw(views(of, total)), data.draw(views(of, total))
    boxes = box_of(one, NONE), box_of(other, NONE)
    left, right = touched(one), touched(other)
    assert all(map(in_hull, boxes, (left, right)))
    assert may_overlap(*boxes) == may_overlap(*reversed(boxes))
    if may_overlap(*boxes) != bool(left & right):
        # Of views that come to an element twice, what lies between elements may count.
        assert may_overlap(*boxes)
        assert any(len(touched(view)) < _bytes(view) for view in (one, other))


def _bytes(access: Access) -> int:
    """The bytes of a view's elements, those that it steps on again with stride 0 once."""
    total = DTYPES[access.dtype].size
    for count, stride in zip(access.shape, access.strides):
        total *= count if stride else 1
    return total


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_views_that_a_loop_moves(data: Any) -> None:
    """With the offset as a form over the loop's variable: never less than what any pair of rounds
    shares, exact for a distance of rounds that is known; and over all rounds never less."""
    of = tensor("float32", *data.draw(st.sampled_from(SHAPES)))
    variable = Register(0, "i", lower=0, upper=3)
    loop = Loop(variable, 0, 4, 1, [])
    moved = []
    for _ in range(2):
        view = data.draw(views(of, 96))  # in the first quarter of the tensor
        step = data.draw(st.sampled_from([0, 1, 8, 12, 24])) * 4 // DTYPES[view.dtype].size
        form = view.offset + Affine(0, ((variable, step),)) if step else view.offset
        moved.append((Access(of, view.dtype, view.shape, view.strides, form), view.offset, step))
    one, other = (box_of(access, frozenset({variable})) for access, _, _ in moved)
    everything = []
    for access, first, step in moved:
        everything.append([touched(access, first + step * i) for i in range(4)])
    for shift in range(4):
        shared = [bool(everything[0][i] & everything[1][i + shift]) for i in range(4 - shift)]
        found = may_overlap(one, other.later(variable, shift))
        assert found or not any(shared)
        views_once = all(len(rounds[0]) == _bytes(a) for rounds, (a, *_) in zip(everything, moved))
        if len({step * DTYPES[access.dtype].size for access, _, step in moved}) == 1 and views_once:
            assert found == shared[0]
    wide = may_overlap(one.widened(loop), other.widened(loop))
    assert wide or not set().union(*everything[0]) & set().union(*everything[1])


A, B, C = (polynomial(Symbol(name, 4096)) for name in "ABC")
VARIABLE = Register(0, "i", lower=0, upper=A - 1)
MOVES = frozenset({VARIABLE})


def at(coefficient: Any, constant: Any = 0) -> Affine:
    return Affine(constant, ((VARIABLE, coefficient),))


@pytest.mark.parametrize(
    ("of", "one", "other", "meet"),
    [
        # halves of [N] as [N / 128, 128]
        (tensor("float32", 256 * A), ((A, 128), (128, 1), 0), ((A, 128), (128, 1), 128 * A), False),
        (tensor("float32", 256 * A), ((A, 128), (128, 1), 0), ((A, 128), (128, 1), 0), True),
        # rows of [A, B, C] as [A * B, C], round by round
        (tensor("float32", A, B, C), ((B, C), (C, 1), at(B * C)), ((B, C), (C, 1), at(B * C)),
         False),
        (tensor("float32", A, B, C), ((B, C), (C, 1), at(B * C)),
         ((B + 1, C), (C, 1), at(B * C, -C)), True),
        # every third of seven, each round the next seven
        (tensor("float32", 4096), ((2,), (3,), at(7)), ((2,), (3,), at(7)), False),
        (tensor("float32", 4096), ((3,), (3,), at(7)), ((3,), (3,), at(7)), False),
        (tensor("float32", 4096), ((3,), (3,), at(6)), ((3,), (3,), at(6)), True),
        # columns of a row that registers pick in an arena
        (tensor("uint8", 1 << 20), ((8, 16), (64, 1), at(4096)),
         ((8, 16), (64, 1), at(4096, 16)), False),
    ],
)  # fmt: skip
def test_symbolic_views(of: Tensor, one: Any, other: Any, meet: bool) -> None:
    """`other` a round later than `one`."""
    boxes = []
    for shape, strides, offset in (one, other):
        boxes.append(box_of(Access(of, of.dtype, shape, strides, offset), MOVES))
    assert may_overlap(boxes[0], boxes[1].later(VARIABLE, 1)) is meet


# -- what waits for what --------------------------------------------------------------------------

KERNEL = """\
kernel stores target=trn2
tensor %t0 "out": shared_hbm SHAPE role=output
tensor %t1 "a": shared_hbm float32[128, 64] role=input
input %t1 "a"
result %t0
core 0:
  dma_copy dst=%t0[ONE src=%t1[64, 32 : 64, 1 @ 0]TYPE engine=sync
  dma_copy dst=%t0[OTHER src=%t1[64, 32 : 64, 1 @ 4]TYPE engine=gpsimd
"""


@pytest.mark.parametrize(
    ("shape", "one", "other", "dtype", "waits"),
    [
        # [N] as [N / 64, 64]: columns
        ("float32[8192]", "64, 32 : 64, 1 @ 0]", "64, 32 : 64, 1 @ 32]", "", False),
        ("float32[8192]", "64, 32 : 64, 1 @ 0]", "64, 32 : 64, 1 @ 31]", "", True),
        # bytes, and pairs of bfloat16
        ("float32[4096]", "64, 32 : 64, 1 @ 0]:uint8", "64, 32 : 64, 1 @ 32]:uint8",
         ":uint8", False),
        ("float32[4096]", "64, 32 : 64, 1 @ 0]:bfloat16", "64, 32 : 64, 1 @ 32]:bfloat16",
         ":bfloat16", False),
        ("float32[4096]", "64, 32 : 64, 2 @ 0]:bfloat16", "64, 32 : 64, 2 @ 1]:bfloat16",
         ":bfloat16", False),
        ("float32[4096]", "64, 32 : 64, 1 @ 0]:bfloat16", "64, 32 : 64, 1 @ 30]:bfloat16",
         ":bfloat16", True),
        # [a, b, c] as [a * b, c], over the end of b
        ("float32[4, 32, 32]", "64, 32 : 32, 1 @ 0]", "64, 32 : 32, 1 @ 2048]", "", False),
        ("float32[4, 32, 32]", "64, 32 : 32, 1 @ 512]", "64, 32 : 32, 1 @ 2048]", "", True),
        # every third of a pitch of seven
        ("float32[8192]", "64, 32 : 3, 224 @ 0]", "64, 32 : 3, 224 @ 1]", "", False),
        ("float32[8192]", "64, 32 : 7, 224 @ 0]", "64, 32 : 7, 224 @ 3]", "", False),
        ("float32[8192]", "64, 32 : 3, 224 @ 0]", "64, 32 : 3, 224 @ 3]", "", True),
        # transposed
        ("float32[64, 64]", "64, 32 : 1, 64 @ 0]", "64, 32 : 1, 64 @ 2048]", "", False),
        ("float32[64, 64]", "64, 32 : 1, 64 @ 0]", "64, 32 : 64, 1 @ 0]", "", True),
    ],
)  # fmt: skip
def test_stores_wait_for_those_that_they_meet(
    shape: str, one: str, other: str, dtype: str, waits: bool
) -> None:
    text = KERNEL.replace("SHAPE", shape).replace("ONE", one).replace("OTHER", other)
    program = compile_kernel(parse_kernel(text.replace("TYPE", dtype)))
    streams = program.cores[0].streams.values()
    waited = any(i.waits for stream in streams for i in stream if i.row is DmaCopy)
    assert waited is waits
    assert check(program) == []
