"""Sums of rows and of squares, as norms take them, from one pass of the vector engine.

`bn_stats` gives the mean and the variance of each row. n * mean is their sum; n * variance is the
sum of (x - mean)^2, and n * (variance + mean^2) that of x^2. They are nearer to their true values
than sums in order.

Of a row with an infinity the variance is no number. So is what a graph makes of (x - mean)^2 there,
but not the sum of x^2: that is taken from here only where nothing but the variance is made of it,
mean(x^2) - mean(x)^2, which is no number of such a row in the graph either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from graph_compiler.lower.device import DeviceProgram
from graph_compiler.lower.groups.members import Member, RowNest
from graph_compiler.lower.rewrites.softmax import axes_of, repeated_along
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.views import count_of
from isa.alu import ALU
from nki.ir.views.tensor import NkiTensor


class Squares(NamedTuple):
    """A sum of squares: the node that sums up the same elements, and whether their mean is taken
    away before they are squared."""

    sums: Node
    centred: bool


def squares_of_variances(block: Block) -> dict[Node, Squares]:
    """The sums of squares in a block, and in those inside of it, that variances are made of."""
    uses = block.uses()
    found: dict[Node, Squares] = {}
    for node in block.nodes:
        for inner in node.blocks:
            found |= squares_of_variances(inner)
        if node not in uses:
            continue
        if node.op == "subtract":
            squares = _scaled(node.operands[0], uses)
            value = _squared(squares)
            square_of = _product_of_same(node.operands[1])
            if value is not None and square_of is not None and uses[squares] == 1:
                sums = _scaled(square_of)
                if _sums_up(sums, value, squares):
                    found[squares] = Squares(sums, False)
        value = _squared(node)
        if value is not None and value.op == "subtract":
            x, mean = value.operands
            total = _mean_of_rows(mean, node)
            if total is not None and _sums_up(total, x, node):
                found[node] = Squares(total, True)
    return found


def _product_of_same(node: Node) -> Node | None:
    """What a node is the square of."""
    same = node.op == "multiply" and node.operands[0] is node.operands[1]
    return node.operands[0] if same else None


def _squared(node: Node) -> Node | None:
    """The value whose squares a node reduces."""
    return _product_of_same(node.operands[0]) if node.op == "reduce" else None


def _sums_up(node: Node, value: Node, like: Node) -> bool:
    """Whether a node reduces a value along the dimensions that another one reduces."""
    return node.op == "reduce" and node.operands[0] is value and axes_of(node) == axes_of(like)


def _scaled(node: Node, uses: dict[Node, int] | None = None) -> Node:
    """What a node is in another form, or times or over a constant; with `uses`, as far as nothing
    else uses it."""
    while node.op in _SCALES and all(o.op == "constant" for o in node.operands[1:]):
        if uses is not None and uses[node] != 1:
            break
        node = node.operands[0]
    return node


_SCALES = ("divide", "multiply", "reshape")
"""What makes a mean of a sum."""


def _mean_of_rows(node: Node, like: Node) -> Node | None:
    """What sums up rows, where a node repeats their means along the dimensions that another one
    reduces."""
    mean = repeated_along(node, like)
    return None if mean is None else _scaled(mean)


_REAL = ("f32", "bf16", "f16")
"""Types of elements that `bn_stats` takes."""


def moments(device: DeviceProgram, members: Sequence[Member]) -> dict[int, int]:
    """The members that sum up squares of rows for variances, by those that sum up the same rows."""
    numbers: dict[Node, int] = {}
    found: dict[int, int] = {}
    for number, member in enumerate(members):
        node = device.node_of(member.loop) if isinstance(member, RowNest) else None
        if node is None or not isinstance(member, RowNest) or not _sums_rows(member, node):
            continue
        squares = device.squares.get(node)
        if squares is None:
            if _is_plain(member):
                numbers[node] = number
        elif squares.sums in numbers:
            own = numbers[squares.sums]
            # Two cores may have other rows of the one than of the other.
            shared = device.builder.cores > 1 and not device.limits.alone
            if members[own].uses[1] == member.uses[1] or not shared:
                found[own] = number
    return found


def _sums_rows(member: RowNest, node: Node) -> bool:
    """Whether a nest does all of a reduction in fp32, and reduces all of each row."""
    if member.loop.fold != "add" or member.loop.output[0] != "f32" or node.op != "reduce":
        return False
    elements = math.prod(axis.count for axis in member.inner)
    reduced = count_of(node.operands[0].dims) // max(1, count_of(node.dims))
    return elements == reduced and not any(axis.strides[0] for axis in member.inner)


def _is_plain(member: RowNest) -> bool:
    """Whether a nest sums up elements as they are, converted at most."""
    loop = member.loop
    if len(loop.leaves) != 1 or loop.leaves[0][0] not in _REAL or not member.uses[1].dense:
        return False
    return all(step.op == "convert" and step.type == "f32" for step in loop.steps)


def sums_of(
    device: DeviceProgram, rows: NkiTensor, centred: bool, even: bool = False
) -> tuple[NkiTensor, NkiTensor]:
    """The sums [partitions, rows] of the elements of each row of a tile [partitions, rows,
    elements], and of their squares, `centred` or not. `even`: parts of rows are alike, as those of
    products are: the first one need not wait for the last products."""
    builder = device.builder
    count, several, elements = rows.shape
    most = device.target.batch_norm_free_max.value
    parts = -(-elements // most)
    most = -(-elements // parts) if even else most
    found = device.tile((count, several, 2), "float32")
    for row in range(several):
        stats = device.tile((count, 6 * parts), "float32")
        for part in range(parts):
            own = rows[:, row, part * most : min(elements, (part + 1) * most)]
            builder.emit("bn_stats", dst=stats[:, 6 * part : 6 * part + 6], data=own)
        builder.emit("bn_aggr", dst=found[:, row, :], data=stats)
    mean, variance = found[:, :, 0], found[:, :, 1]
    multiply, add = ALU["multiply"], ALU["add"]

    def whole(value: NkiTensor) -> NkiTensor:
        total = device.tile((count, several), "float32")
        builder.emit("tensor_scalar", dst=total, data=value, op0=multiply, operand0=float(elements))
        return total

    if centred:
        return whole(mean), whole(variance)
    square = device.tile((count, several), "float32")
    if several > 1:
        builder.emit("tensor_tensor", dst=square, data1=mean, data2=mean, op=multiply)
        builder.emit("tensor_tensor", dst=square, data1=square, data2=variance, op=add)
        return whole(mean), whole(square)
    builder.emit(
        "scalar_tensor_tensor",
        dst=square,
        data=mean,
        op0=multiply,
        operand0=mean,
        op1=add,
        operand1=variance,
    )
    return whole(mean), whole(square)
