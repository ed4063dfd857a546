"""Gathers along dimensions that are not the first ones: rows of the transposed operand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.expansions.expansions import Text, braces, expanded
from graph_compiler.lower.sizes import PARTITIONS
from graph_compiler.schedule.contractions import copied_in_order
from graph_compiler.schedule.steps import item_size

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler

_PASSES = 4
"""How often a transposition moves what it transposes: to the chip and back, at half the rate."""

_FIXED_NS = 10_000
"""What two transpositions take however little they move."""


def of_columns(scheduler: Scheduler, node: Node) -> Any:
    """A gather of short runs, such as columns `x[:, i]`, as rows of the transposed operand, where
    their descriptors take longer than to transpose operand and result; None of other gathers."""
    item = node.instruction
    assert item is not None
    numbers = item.attribute("gather_dimension_numbers")
    operand = node.operands[0]
    axes = list(numbers.start_index_map)
    kept = [axis for axis in range(len(operand.dims)) if axis not in axes]
    sizes = [1 if axis in axes else size for axis, size in enumerate(operand.dims)]
    whole = list(item.attribute("gather_slice_sizes")) == sizes
    whole = whole and sorted(numbers.collapsed_slice_dims) == sorted(axes)
    if not whole or not kept or numbers.operand_batching_dims or 0 in (*node.dims, *operand.dims):
        return None
    order = [*axes, *kept]
    if order == sorted(order) or not _pays(scheduler, node, sizes, max(axes)):
        return None
    text = Text(node)
    x = text.transpose(text.operands[0], order)
    batch = [axis for axis in range(len(node.dims)) if axis not in numbers.offset_dims]
    places = [*batch, *sorted(numbers.offset_dims)]
    more = (
        f"offset_dims={braces(range(len(batch), len(places)))}, "
        f"collapsed_slice_dims={braces(range(len(axes)))}, "
        f"start_index_map={braces(range(len(axes)))}, "
        f"index_vector_dim={numbers.index_vector_dim}, "
        f"slice_sizes={braces([sizes[axis] for axis in order])}"
    )
    dims = [node.dims[place] for place in places]
    rows = text.add(node.type, dims, "gather", [x, text.operands[1]], more)
    back = text.transpose(rows, [places.index(axis) for axis in range(len(places))])
    view = scheduler.view(operand)
    scheduler.values[operand] = copied_in_order(scheduler.program, view, order)
    result = expanded(scheduler, node, text.module([back]))
    scheduler.values[operand] = view
    return result


def _pays(scheduler: Scheduler, node: Node, sizes: Sequence[int], last: int) -> bool:
    """Whether descriptors of what lies behind the last dimension with an index take longer than two
    transpositions. The engines of DMA share the partitions, of which each place has one."""
    program: Any = scheduler.program
    target = program.target
    count, size = math.prod(node.dims), item_size(node.type)
    run, places = math.prod(sizes[last + 1 :]), count // math.prod(sizes)
    rows = min(places, PARTITIONS)
    engines = -(-rows * target.dma_engines.value // PARTITIONS)
    descriptors = 2 * count // run * target.dma_descriptor_ns.value / engines
    moved = _PASSES * (count + math.prod(node.operands[0].dims)) * size
    return bool(descriptors > moved / target.dma_bytes_per_ns + _FIXED_NS)
