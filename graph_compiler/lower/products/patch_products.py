"""Products whose left operand is an image that is cut into patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.products.convolution import ConvolutionStep, SpatialDimension
from graph_compiler.lower.products.patches import copied_ns, pays
from graph_compiler.lower.products.product import MULTIPLIED
from graph_compiler.schedule.fusion import materialised
from graph_compiler.schedule.views import View, reshaped, row_major

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler


def product_of_patches(scheduler: Scheduler, node: Node) -> View | None:
    """A product whose left operand is an image cut into patches, as the convolution that it is.

    Before:

        r = reshape(x)                    [images, rows, i, columns, j, features], in any order
        t = transpose(r)                  [images, rows, columns, i, j, features], these three too
        p = dot(reshape(t), w)            of [images, patches, elements]
    """
    cut = _cut_of(node)
    types = (*(operand.type for operand in node.operands), node.type)
    if cut is None or not set(types) <= MULTIPLIED or 0 in (*node.dims, *node.operands[0].dims):
        return None
    source, sizes, rows = cut
    shape = source.operands[0].dims
    if _patch_of(source, row_major(shape), rows) is None:
        return None
    view = scheduler.view(source.operands[0].operands[0])
    strides = reshaped(view.dims, view.strides, shape)
    found = None if strides is None else _patch_of(source, strides, rows)
    program: Any = scheduler.program
    operands = view, scheduler.value(node.operands[1])
    left, right, _ = program.machine.products.operands(*operands, False)
    if found is None or left is not view:
        return None
    w = materialised(program, right)
    steps, (i, j, c) = found
    (high, wide), (images, apart) = sizes[rows - 2 : rows], (1, 0)
    if rows == 3:
        images, apart = sizes[0], steps[0]
    i, j, c = ((size, step, place * w.strides[0]) for size, step, place in (i, j, c))
    target = program.product_result(node)
    ends = reshaped(target.dims, target.strides, (images, high, wide, node.dims[-1]))
    if ends is None:
        return None
    x = view.placed((images, high * i[0], wide * j[0], c[0]), (apart, i[1], j[1], c[1]))
    k = w.placed((i[0], j[0], c[0], node.dims[-1]), (i[2], j[2], c[2], w.strides[1]))
    result = target.placed((images, high, wide, node.dims[-1]), ends)
    windows = SpatialDimension(i[0], i[0]), SpatialDimension(j[0], j[0])
    step = ConvolutionStep(x, k, result, windows)
    if not pays(step.patches(program.target), copied_ns(step, program.target)):
        return None
    program.steps.append(step)
    return target


PatchSide = tuple[int, int, int]
"""Elements of a side of a patch, from one to the next in memory, and in a patch."""


def _patch_of(
    source: Node, strides: Sequence[int], rows: int
) -> tuple[list[int], tuple[PatchSide, PatchSide, PatchSide]] | None:
    """The steps of the dimensions of a transposition of something with such strides, of which so
    many are rows of patches; and the rows, the columns and the features of a patch."""
    assert source.instruction is not None
    order = source.instruction.attribute("dimensions")
    pairs = [(size, strides[axis]) for size, axis in zip(source.dims, order) if size > 1]
    steps = [step for _, step in pairs]
    if len(pairs) - rows != 3 or not 2 <= rows <= 3 or min(steps) < 1:
        return None  # without features heads of attention are alike
    sides, place = {}, 1
    for size, step in reversed(pairs[rows:]):
        sides[size * step] = size, step, place
        place *= size
    i, j = (sides.pop(step, None) for step in steps[rows - 2 : rows])
    if i is None or j is None or len(sides) != 1:
        return None
    (c,) = sides.values()
    return steps, (i, j, c)


def _cut_of(node: Node) -> tuple[Node, list[int], int] | None:
    """The transposition behind a product's left operand, its dimensions of several elements, and
    how many of these are rows of the product; None of others."""
    assert node.instruction is not None
    numbers = node.instruction.attribute("dot_dimension_numbers")
    left, right = node.operands
    plain = list(numbers.lhs_contracting_dimensions) == [len(left.dims) - 1]
    plain = plain and list(numbers.rhs_contracting_dimensions) == [0] and len(right.dims) == 2
    chain = left.op == "reshape" and left.operands[0].op == "transpose"
    if numbers.lhs_batch_dimensions or not (plain and chain):
        return None
    source = left.operands[0]
    if source.operands[0].op != "reshape":
        return None
    sizes = [size for size in source.dims if size > 1]
    depth, rows = left.dims[-1], len(sizes)
    while depth > 1 and rows and depth % sizes[rows - 1] == 0:
        rows -= 1
        depth //= sizes[rows]
    return (source, sizes, rows) if depth == 1 else None
