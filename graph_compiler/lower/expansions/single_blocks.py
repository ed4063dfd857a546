"""Scatters of one block at a known place: what is there, combined with the update.

`x.at[2:5].add(y)` is one, and so is `x.at[:].set(y)`, whose index vector has no numbers. The work
on the block is element-wise and is fused like any other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.lower.expansions.expansions import STEP, Text, braces, expanded

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler


def one_block(scheduler: Scheduler, node: Node) -> Any:
    """A scatter of one block, at a place that is known, into one array; None of others."""
    item = node.instruction
    assert item is not None
    if len(node.operands) != 3 or 0 in node.dims:
        return None
    numbers = item.attribute("scatter_dimension_numbers")
    _, indices, update = node.operands
    points = [size for axis, size in enumerate(indices.dims) if axis != numbers.index_vector_dim]
    axes = tuple(numbers.scatter_dims_to_operand_dims)
    known = indices.op == "constant" or not axes
    if not known or math.prod(points) != 1 or 0 in update.dims or update.type != node.type:
        return None
    window, start = iter(numbers.update_window_dims), [0] * len(node.dims)
    inserted = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
    sizes = [1 if a in inserted else update.dims[next(window)] for a in range(len(node.dims))]
    for axis, place in zip(axes, np.reshape(indices.value, -1)):
        start[axis] = int(place)
    text = Text(node)
    result = text.operands[0]
    if all(0 <= at <= n - size for at, size, n in zip(start, sizes, node.dims)):
        result = _combined(text, node, sizes, start)
    return expanded(scheduler, node, text.module([result]), item.called[0] if text.calls else None)


def _combined(text: Text, node: Node, sizes: Sequence[int], start: Sequence[int]) -> str:
    assert node.instruction is not None
    array, _, update = text.operands
    whole = tuple(sizes) == node.dims
    old = text.slice(array, [(at, at + size, 1) for at, size in zip(start, sizes)])
    fold = binary_opcode(node.instruction.called[0])
    new = text.fold(fold, array if whole else old, text.reshape(update, sizes))
    if whole:
        return new
    starts = [text.number("s32", at) for at in start]
    return text.add(node.type, node.dims, "dynamic-update-slice", [array, new, *starts])


def with_numbers(scheduler: Scheduler, node: Node) -> Any:
    """A gather or scatter of one array whose index vectors have no numbers, as one whose vectors
    have one, of a new first dimension of one place; None of others."""
    item = node.instruction
    assert item is not None
    array, indices = node.operands[:2]
    numbers = item.attribute(f"{node.op}_dimension_numbers")
    vector = numbers.index_vector_dim
    if 0 in (*node.dims, *array.dims) or vector == len(indices.dims) or indices.dims[vector]:
        return None
    text = Text(node)
    dims = [1 if place == vector else size for place, size in enumerate(indices.dims)]
    operands = [
        text.reshape(text.operands[0], (1, *array.dims)),
        text.number(indices.type, 0, dims),
        *text.operands[2:],
    ]
    more = ", ".join([*_FORMS[node.op](item, numbers), f"index_vector_dim={vector}"])
    if not item.called:
        return expanded(
            scheduler, node, text.module([text.add(node.type, node.dims, node.op, operands, more)])
        )
    text.stand_in(node.type)
    found = text.add(node.type, (1, *node.dims), node.op, operands, f"{more}, to_apply={STEP}")
    return expanded(scheduler, node, text.module([text.reshape(found, node.dims)]), item.called[0])


def _gather(item: Instruction, numbers: Any) -> list[str]:
    return [
        f"offset_dims={braces(numbers.offset_dims)}",
        f"collapsed_slice_dims={_behind(numbers.collapsed_slice_dims, 0)}",
        "start_index_map={0}",
        f"operand_batching_dims={_behind(numbers.operand_batching_dims)}",
        f"start_indices_batching_dims={braces(numbers.start_indices_batching_dims)}",
        f"slice_sizes={braces([1, *item.attribute('gather_slice_sizes')])}",
    ]


def _scatter(item: Instruction, numbers: Any) -> list[str]:
    return [
        f"update_window_dims={braces(numbers.update_window_dims)}",
        f"inserted_window_dims={_behind(numbers.inserted_window_dims, 0)}",
        "scatter_dims_to_operand_dims={0}",
        f"input_batching_dims={_behind(numbers.input_batching_dims)}",
        f"scatter_indices_batching_dims={braces(numbers.scatter_indices_batching_dims)}",
    ]


def _behind(axes: Sequence[int], *first: int) -> str:
    """Dimensions as they are behind a new first one."""
    return braces([*first, *(axis + 1 for axis in axes)])


_FORMS: dict[str, Callable[[Instruction, Any], list[str]]] = {
    "gather": _gather,
    "scatter": _scatter,
}
"""The attributes of each opcode, but for the dimension of index vectors."""
