"""Arrays put together of parts, and parts at places that are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graph_compiler.hlo.operators.slicing import padding_of
from graph_compiler.host_kernels.movement import DynamicCopy
from graph_compiler.host_kernels.registers import register
from graph_compiler.schedule.fusion import Lazy, broadcast_to, store
from graph_compiler.schedule.steps import GraphProgram, KernelCall, Place, item_size, place_of
from graph_compiler.schedule.views import View

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler


def concatenate(scheduler: Scheduler, node: Node) -> View | None:
    """Operands computed into their places in one array."""
    assert node.instruction is not None
    axis = node.instruction.attribute("dimensions")[0]
    target = scheduler.program.buffer(node.type, node.dims)
    start = 0
    for operand in node.operands:
        part = target.placed(operand.dims, target.strides, start * target.strides[axis])
        store(scheduler.program, scheduler.value(operand), part)
        start += operand.dims[axis]
    return target


def pad(scheduler: Scheduler, node: Node) -> View | None:
    """An operand computed into the middle of a filled array."""
    assert node.instruction is not None
    operand, fill = node.operands
    edges = padding_of(node.instruction)
    if any(low < 0 or high < 0 for low, high, _ in edges):
        return None
    return padded(
        scheduler.program, scheduler.value(operand), scheduler.value(fill), edges, node.dims
    )


def padded(
    program: GraphProgram,
    value: Lazy,
    fill: Lazy,
    edges: Sequence[tuple[int, int, int]],
    dims: tuple[int, ...],
) -> View:
    """`value` inside memory of `dims` that is filled with a scalar."""
    target = program.buffer(value.type, dims)
    store(program, broadcast_to(fill, dims), target)
    start = sum(low * stride for (low, _, _), stride in zip(edges, target.strides))
    strides = tuple(
        stride * (interior + 1) for (_, _, interior), stride in zip(edges, target.strides)
    )
    store(program, value, target.placed(value.dims, strides, start))
    return target


def _starts(scheduler: Scheduler, operands: list[Node]) -> list[View]:
    """Start indices as views of scalars."""
    views = [scheduler.view(operand) for operand in operands]
    if len(views) == 1 and views[0].dims:
        (vector,) = views
        return [vector.placed((), (), i * vector.strides[0]) for i in range(vector.dims[0])]
    return views


def _dynamic_copy(
    scheduler: Scheduler, array: View, block: View, starts: list[View], writes: bool
) -> None:
    if 0 in block.dims:
        return
    kernel = DynamicCopy(
        item_size(array.type),
        block.dims,
        array.dims,
        array.strides,
        block.strides,
        tuple((axis, start.type) for axis, start in enumerate(starts)),
        writes,
    )
    words: list[int | Place] = [place_of(array), place_of(block), *map(place_of, starts)]
    indices = [start.buffer for start in starts]
    if writes:
        reads, written = [block.buffer, array.buffer, *indices], [array.buffer]
    else:
        reads, written = [array.buffer, *indices], [block.buffer]
    scheduler.program.steps.append(KernelCall(kernel, words, reads, written))


def dynamic_slice(scheduler: Scheduler, node: Node) -> View | None:
    """A block at a place that is computed."""
    starts = _starts(scheduler, node.operands[1:])
    if any(register(start.type) is None for start in starts):
        return None
    array = scheduler.view(node.operands[0])
    block = scheduler.program.buffer(node.type, node.dims)
    _dynamic_copy(scheduler, array, block, starts, writes=False)
    return block


def dynamic_update_slice(scheduler: Scheduler, node: Node) -> View | None:
    """An array with a block written, in place where the array is not needed any more."""
    target = scheduler.program.buffer(node.type, node.dims)
    store(scheduler.program, scheduler.value(node.operands[0]), target)
    return updated(scheduler, node, target)


def updated(scheduler: Scheduler, node: Node, target: View) -> View | None:
    """Memory that holds the array, with the block written."""
    starts = _starts(scheduler, node.operands[2:])
    if any(register(start.type) is None for start in starts):
        return None
    update = scheduler.view(node.operands[1])
    _dynamic_copy(scheduler, target, update, starts, writes=True)
    return target


def gather(scheduler: Scheduler, node: Node) -> View | None:
    """Blocks at places that are computed."""
    instruction = node.instruction
    assert instruction is not None
    numbers = instruction.attribute("gather_dimension_numbers")
    operand, indices = node.operands
    if register(indices.type) is None or 0 in node.dims or 0 in operand.dims:
        return None
    sizes = instruction.attribute("gather_slice_sizes")
    array, index = scheduler.view(operand), scheduler.view(indices)
    target = scheduler.program.buffer(node.type, node.dims)
    offsets = list(numbers.offset_dims)
    remaining = iter(offsets)
    collapsed_axes = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    batching = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims))
    inside = [
        0 if axis in collapsed_axes else target.strides[next(remaining)]
        for axis in range(len(operand.dims))
    ]
    vector = numbers.index_vector_dim
    batch_axes = [axis for axis in range(len(indices.dims)) if axis != vector]
    places = [axis for axis in range(len(node.dims)) if axis not in offsets]
    step = index.strides[vector] if vector < len(indices.dims) else 0
    starts = [
        index.placed((), (), position * step) for position in range(len(numbers.start_index_map))
    ]
    kernel = DynamicCopy(
        item_size(node.type),
        tuple(sizes),
        operand.dims,
        array.strides,
        tuple(inside),
        tuple((axis, indices.type) for axis in numbers.start_index_map),
        False,
        tuple(indices.dims[axis] for axis in batch_axes),
        tuple(array.strides[batching[a]] if a in batching else 0 for a in batch_axes),
        tuple(target.strides[place] for place in places),
        tuple(index.strides[axis] for axis in batch_axes),
    )
    words: list[int | Place] = [place_of(array), place_of(target), *map(place_of, starts)]
    call = KernelCall(kernel, words, [array.buffer, index.buffer], [target.buffer])
    scheduler.program.steps.append(call)
    return target
