"""Sums of rows and of their squares, as norms take them, from one pass of the vector engine.

`bn_stats` gives the mean and the variance of each row. n * mean and n * (variance + mean^2) are the
sums, nearer to their true values than sums in order: the variance is taken about the mean. Of a row
with an infinity the sum of squares is no number then. So this is for squares of which nothing but a
variance is made, mean(x^2) - mean(x)^2, which is no number of such a row in the graph either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graph_compiler.execute.loops import Loop
from graph_compiler.execute.nodes import Block, Node
from graph_compiler.lower.device import Device
from graph_compiler.lower.members import Member, RowNest
from isa.alu import ALU
from nki.ir.views.tensor import NkiTensor


def squares_of_variances(block: Block) -> set[Node]:
    """The sums of squares in a block, and in those inside of it, of which only variances are made:
    mean(x^2) - mean(x)^2."""
    uses = block.uses()
    found = {
        node for outer in block.nodes for b in outer.blocks for node in squares_of_variances(b)
    }
    for node in block.nodes:
        if node.op != "subtract" or node not in uses:
            continue
        squares, square = node.operands
        while squares.op in _SCALES and uses[squares] == 1 and _is_scaled(squares):
            squares = squares.operands[0]
        product = squares.operands[0] if squares.op == "reduce" and uses[squares] == 1 else None
        if product is None or product.op != "multiply" or square.op != "multiply":
            continue
        (x, again), (mean, same) = product.operands, square.operands
        while mean.op in _SCALES and _is_scaled(mean):
            mean = mean.operands[0]
        whole = mean.op == "reduce" and mean.operands[0] is x
        if x is again and square.operands[0] is same and whole:
            found.add(squares)
    return found


_SCALES = ("divide", "multiply", "reshape")
"""What makes a mean of a sum."""


def _is_scaled(node: Node) -> bool:
    """Whether a node is its first operand in another form, or times or over a constant."""
    return all(operand.op == "constant" for operand in node.operands[1:])


_REAL = ("f32", "bf16", "f16")
"""Types of elements that `bn_stats` takes."""


def moments(device: Device, members: Sequence[Member]) -> dict[int, int]:
    """The members that sum up squares of rows for variances, by those that sum up the same rows."""
    sums: dict[Any, int] = {}
    found: dict[int, int] = {}
    for number, member in enumerate(members):
        if isinstance(member, RowNest):
            power = _power(member.loop)
            reduced = not any(axis.strides[0] for axis in member.inner)
            if power and reduced and len(member.uses) == 2 and member.uses[1].dense:
                key = member.uses[1], math.prod(axis.count for axis in member.inner)
                if power == 1:
                    sums[key] = number
                elif device.is_of_variance(member.loop) and key in sums:
                    found[sums[key]] = number
        changed = member.uses[0].buffer
        sums = {key: own for key, own in sums.items() if key[0].buffer is not changed}
    return found


def _power(loop: Loop) -> int:
    """1 where a nest sums up elements in fp32, 2 where it sums up their squares, else 0."""
    if loop.fold != "add" or loop.output[0] != "f32" or len(loop.leaves) != 1:
        return 0
    steps, value = list(loop.steps), 0
    if loop.leaves[0][0] not in _REAL:
        return 0
    if loop.leaves[0][0] != "f32":
        if not steps or steps[0].op != "convert" or steps.pop(0).type != "f32":
            return 0
        value = 1
    if not steps:
        return 1
    (step, *more) = steps
    return 2 if not more and step.op == "multiply" and set(step.arguments) == {value} else 0


def sums_of(device: Device, rows: NkiTensor) -> tuple[NkiTensor, NkiTensor]:
    """The sums [rows, 1] of the elements of each row of a tile, and of their squares."""
    builder = device.builder
    count, elements = rows.shape
    most = device.target.batch_norm_free_max.value
    parts = -(-elements // most)
    stats = device.tile((count, 6 * parts), "float32")
    for part in range(parts):
        own = rows[:, part * most : min(elements, (part + 1) * most)]
        builder.emit("bn_stats", dst=stats[:, 6 * part : 6 * part + 6], data=own)
    found = device.tile((count, 2), "float32")
    builder.emit("bn_aggr", dst=found, data=stats)
    mean, variance = found[:, 0:1], found[:, 1:2]
    total, squares = (device.tile((count, 1), "float32") for _ in range(2))
    whole = device.tile((count, 1), "float32")
    multiply, add = ALU["multiply"], ALU["add"]
    builder.emit("tensor_scalar", dst=total, data=mean, op0=multiply, operand0=float(elements))
    builder.emit(
        "scalar_tensor_tensor",
        dst=whole,
        data=mean,
        op0=multiply,
        operand0=mean,
        op1=add,
        operand1=variance,
    )
    builder.emit("tensor_scalar", dst=squares, data=whole, op0=multiply, operand0=float(elements))
    return total, squares
