"""Sorts, the largest elements, and scatters: kernels that run a computation of scalars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graph_compiler.host_kernels.bodies import ScalarBody, ScatterKernel, SortKernel, greater
from graph_compiler.host_kernels.registers import register
from graph_compiler.schedule.fusion import store
from graph_compiler.schedule.reductions import body_of, call, operand_of
from graph_compiler.schedule.views import View

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.schedule import Scheduler


def axis_last(view: View, axis: int) -> View:
    """A view with one of its dimensions moved to the end."""
    order = [i for i in range(len(view.dims)) if i != axis] + [axis]
    return view.placed(tuple(view.dims[i] for i in order), tuple(view.strides[i] for i in order))


def sort(scheduler: Scheduler, node: Node) -> Any:
    """Arrays sorted along a dimension."""
    assert node.instruction is not None
    body = body_of(scheduler, node.instruction.called[0])
    if body is None or any(register(operand.type) is None for operand in node.operands):
        return None
    axis = node.instruction.attribute("dimensions")[0]
    views = [scheduler.view(operand) for operand in node.operands]
    results = [scheduler.program.buffer(*form) for form in node.results]
    sort_into(
        scheduler, body, [axis_last(v, axis) for v in views], [axis_last(v, axis) for v in results]
    )
    return results[0] if len(results) == 1 else results


def top(scheduler: Scheduler, node: Node) -> Any:
    """The largest elements of the last dimension, and where they were."""
    assert node.instruction is not None
    return top_of(scheduler, node, bool(node.instruction.attribute("largest")))


def top_of(scheduler: Scheduler, node: Node, largest: bool) -> Any:
    """The same of any operation that has these results."""
    (operand,) = node.operands
    if register(operand.type) is None:
        return None
    body = greater(operand.type, largest)
    results = [scheduler.program.buffer(*form) for form in node.results]
    sort_into(scheduler, body, [scheduler.view(operand)], results)
    return results


def sort_into(
    scheduler: Scheduler, body: ScalarBody, views: list[View], results: list[View]
) -> None:
    """The first elements of rows, which are along the last dimension, as many as results have."""
    counts = views[0].dims
    if 0 in counts or 0 in results[0].dims:
        return
    kernel = SortKernel(
        counts,
        results[0].dims[-1],
        tuple(map(operand_of, results)),
        tuple(map(operand_of, views)),
        body,
    )
    scratch = scheduler.program.buffer("s64", (2, counts[-1]))
    call(scheduler, kernel, results, [*views, scratch])


def scatter(scheduler: Scheduler, node: Node) -> Any:
    """Updates combined into arrays, in place where the arrays are not needed any more."""
    instruction = node.instruction
    assert instruction is not None
    half = len(node.operands) // 2
    numbers = instruction.attribute("scatter_dimension_numbers")
    body = body_of(scheduler, instruction.called[0])
    indices = node.operands[half]
    if body is None or register(indices.type) is None:
        return None
    results = []
    for operand, form in zip(node.operands[:half], node.results):
        target = scheduler.program.buffer(*form)
        store(scheduler.program, scheduler.value(operand), target)
        results.append(target)
    update_dims = node.operands[half + 1].dims
    if 0 not in update_dims and 0 not in results[0].dims:
        updates = [scheduler.view(operand) for operand in node.operands[half + 1 :]]
        index = scheduler.view(indices)
        window = list(numbers.update_window_dims)
        others = [axis for axis in range(len(update_dims)) if axis not in window]
        inserted = {*numbers.inserted_window_dims, *numbers.input_batching_dims}
        batching = dict(zip(numbers.scatter_indices_batching_dims, numbers.input_batching_dims))
        remaining = iter(window)
        across = [
            None if axis in inserted else next(remaining) for axis in range(len(results[0].dims))
        ]
        vector = numbers.index_vector_dim
        rows = [axis for axis in range(len(indices.dims)) if axis != vector]
        step = index.strides[vector] if vector < len(indices.dims) else 0
        places = tuple(numbers.scatter_dims_to_operand_dims)
        kernel = ScatterKernel(
            results[0].dims,
            tuple(indices.dims[axis] for axis in rows),
            tuple(1 if axis is None else update_dims[axis] for axis in across),
            (indices.type, tuple(index.strides[axis] for axis in rows)),
            places,
            tuple(
                (
                    view.type,
                    tuple(view.strides[batching[a]] if a in batching else 0 for a in rows)
                    + view.strides,
                )
                for view in results
            ),
            tuple(
                (
                    view.type,
                    tuple(view.strides[axis] for axis in others)
                    + tuple(0 if axis is None else view.strides[axis] for axis in across),
                )
                for view in updates
            ),
            body,
        )
        starts = [index.placed((), (), number * step) for number in range(len(places))]
        call(scheduler, kernel, results, [*updates, *starts], in_place=True)
    return results[0] if len(results) == 1 else results
