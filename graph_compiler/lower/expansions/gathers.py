"""Gathers of what is not in memory yet, and along dimensions that are not the first ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from graph_compiler.lower.expansions.expansions import Text, braces, expanded
from graph_compiler.lower.sizes import PARTITIONS
from graph_compiler.schedule.contractions import copied_in_order
from graph_compiler.schedule.fusion import ElementExpression, Lazy, materialised, rewritten
from graph_compiler.schedule.nodes import Node
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import View

if TYPE_CHECKING:
    from graph_compiler.schedule.schedule import Scheduler

_PASSES = 4
"""How often a transposition moves what it transposes: to the chip and back, at half the rate."""

_FIXED_NS = 10_000
"""What two transpositions take however little they move."""


_GATHER_NS = 10_000
"""What a gather takes however little it moves."""


def of_elements(scheduler: Scheduler, node: Node) -> Lazy | None:
    """A gather of element-wise work, as that work on what is gathered, where this takes less than
    to store all of its results; None of other gathers."""
    operand = node.operands[0]
    value = scheduler.value(operand)
    if not isinstance(value, ElementExpression) or 0 in (*node.dims, *operand.dims):
        return None
    gathered = 0

    def counted(view: View) -> View:
        nonlocal gathered
        gathered += _same_everywhere(node, view) is None
        return view

    rewritten(value, counted, operand.dims)
    stored = math.prod(operand.dims) * item_size(operand.type)
    more = (gathered - 1) * (_GATHER_NS + _descriptors_ns(scheduler, node))
    program: Any = scheduler.program
    few = math.prod(node.dims) <= math.prod(operand.dims)
    if not few or stored / program.target.dma_bytes_per_ns < more:
        return None
    return rewritten(value, lambda view: _gathered(scheduler, node, view), node.dims)


def _same_everywhere(node: Node, view: View) -> View | None:
    """The elements of a gather that has the same ones whatever the indices are; None of others."""
    item = node.instruction
    assert item is not None
    numbers = item.attribute("gather_dimension_numbers")
    if any(view.strides[axis] for axis in numbers.start_index_map):
        return None
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    inside = iter(axis for axis in range(len(view.dims)) if axis not in gone)
    batching = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims))
    indices = range(len(node.operands[1].dims))
    around = iter(axis for axis in indices if axis != numbers.index_vector_dim)
    strides = []
    for place in range(len(node.dims)):
        axis = next(inside) if place in numbers.offset_dims else batching.get(next(around))
        strides.append(0 if axis is None else view.strides[axis])
    return view.placed(node.dims, tuple(strides))


def _gathered(scheduler: Scheduler, node: Node, view: View) -> View:
    """What a gather takes of a view of its operand's dimensions."""
    same = _same_everywhere(node, view)
    if same is not None:
        return same
    source = Node("parameter", [(view.type, view.dims)], [])
    scheduler.values[source] = view
    form = view.type, node.dims
    one = Node(node.op, [form], [source, node.operands[1]], node.instruction)
    found = scheduler.program.machine.handlers[node.op](scheduler, one)
    return materialised(scheduler.program, found)


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
    if order == sorted(order) or not _pays(scheduler, node):
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


def _pays(scheduler: Scheduler, node: Node) -> bool:
    """Whether descriptors of what lies behind the last dimension with an index take longer than two
    transpositions."""
    program: Any = scheduler.program
    moved = _PASSES * (math.prod(node.dims) + math.prod(node.operands[0].dims))
    transposed = moved * item_size(node.type) / program.target.dma_bytes_per_ns
    return _descriptors_ns(scheduler, node) > transposed + _FIXED_NS


def _descriptors_ns(scheduler: Scheduler, node: Node) -> float:
    """What descriptors take of the runs behind the last dimension with an index. The engines of DMA
    share the partitions, of which each place has one."""
    program: Any = scheduler.program
    item, target = node.instruction, program.target
    assert item is not None
    sizes = item.attribute("gather_slice_sizes")
    last = max(item.attribute("gather_dimension_numbers").start_index_map)
    count = math.prod(node.dims)
    run, places = math.prod(sizes[last + 1 :]), count // math.prod(sizes)
    rows = min(places, PARTITIONS)
    engines = -(-rows * target.dma_engines.value // PARTITIONS)
    return float(2 * count // run * target.dma_descriptor_ns.value / engines)
