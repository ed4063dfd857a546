"""Loops of a graph as steps: `while`, and equal layers (`layers`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.aliases import every, take_over
from graph_compiler.lower.control.counted import ArrayPart, in_place, places_of, reads_of
from graph_compiler.lower.control.flow import Counted, WhileStep
from graph_compiler.lower.control.layers import Layers, family_operands
from graph_compiler.lower.products.product import Contraction
from graph_compiler.lower.rewrites.trips import Count, count_of_trips
from graph_compiler.schedule.fusion import (
    ElementExpression,
    Lazy,
    Literal,
    is_whole,
    materialised,
    store,
)
from graph_compiler.schedule.schedule import Scheduler
from graph_compiler.schedule.steps import KernelCall, Place, item_size, place_of
from graph_compiler.schedule.views import Buffer, View, count_of, row_major

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.schedule.nodes import Node


def apart(device: DeviceProgram, schedule: Callable[[], Any]) -> tuple[list[Any], Any]:
    """The steps that something schedules, and what it returns."""
    before, device.steps = device.steps, []
    try:
        result = schedule()
        return device.steps, result
    finally:
        device.steps = before


def while_loop(scheduler: Scheduler, node: Node) -> Any:
    """A loop. Where its trips are known it counts them, and no condition is evaluated."""
    device: Any = scheduler.program
    body, condition = node.blocks
    count = count_of_trips(node)
    state: list[Any] = []
    carried: list[tuple[int, View]] = []
    for number, operand in enumerate(node.operands):
        if body.results[number] is body.parameters[number]:
            state.append(scheduler.view(operand))
            continue
        view = device.buffer(operand.type, operand.dims)
        state.append(view)
        carried.append((number, view))
        device.in_place.update(in_place(body, number))
        if count is None or number != count.number:
            store(device, scheduler.value(operand), view)

    states = {view.buffer for _, view in carried}

    def once() -> bool:
        """An iteration; whether the count has to be in memory."""
        results = Scheduler(device, scheduler.simplifier, body, state).run()
        own = None if count is None else count.number
        fresh = [
            (view, _new_value(device, results[number], view, states))
            for number, view in carried
            if number != own
        ]
        _carry(device, fresh)
        if own is None or state[own].buffer not in reads_of(device.steps):
            return False
        store(device, results[own], state[own])
        return True

    def test() -> Place:
        (flag,) = Scheduler(device, scheduler.simplifier, condition, state).run()
        return place_of(materialised(device, flag))

    if count is None:
        steps, flag = apart(device, test)
        inside, _ = apart(device, once)
        device.steps.append(WhileStep(flag, inside, steps))
    else:
        changed = {number for number, _ in carried}
        count.fixed.update(v.buffer for number, v in enumerate(state) if number not in changed)
        device.places.update(places_of(scheduler.simplifier.evaluator, body, count))
        device.counts.update(dict.fromkeys(body.nodes, count))
        is_stored = False
        if count.trips:
            inside, is_stored = apart(device, once)
        if is_stored:
            store(device, scheduler.value(node.operands[count.number]), state[count.number])
        else:
            type = node.operands[count.number].type
            last = np.asarray(count.last, PRIMITIVE_TYPES[type].numpy)[()]
            state[count.number] = Literal(type, (), last)
        if count.trips:
            device.notes.loop(node.instruction, "while", count.trips, len(body.nodes))
            device.steps.append(Counted(count, inside, _whole([v for _, v in carried], inside)))
    return state[0] if len(node.results) == 1 else state


def _new_value(device: DeviceProgram, value: Lazy, view: View, states: set[Buffer]) -> View:
    """What a loop carries on in memory that is no loop's: itself, where it was changed in place."""
    if isinstance(value, View):
        if value.buffer is view.buffer and is_whole(value) and value.strides == view.strides:
            return view
        if value.buffer.kind == "arena" and value.buffer not in states:
            return value
    copy = device.buffer(view.type, view.dims)
    store(device, value, copy)
    return copy


def _whole(carried: Sequence[View], steps: list[Any]) -> tuple[View, ...]:
    """What a loop carries and makes as a whole, of what its steps make."""
    windows = {step.array.buffer for step in every(steps) if isinstance(step, ArrayPart)}
    inner = {
        buffer
        for step in steps
        if not isinstance(step, KernelCall)
        for part in step.inner
        for one in every(part)
        for buffer in one.writes
    }
    return tuple(view for view in carried if view.buffer not in windows | inner)


def _carry(device: DeviceProgram, fresh: Sequence[tuple[View, View]]) -> None:
    """What a loop carries gets its new values, which are all there before the first old one goes.
    A value that nothing else needs is made where the old one was, but where products read that:
    no group of rows has both such a product and what is made of its result."""
    steps: list[Any] = device.steps
    multiplied = {b for step in steps if isinstance(step, Contraction) for b in step.reads}
    for view, value in fresh:
        if value is view:
            continue
        others = [other for _, other in fresh if other.buffer is value.buffer]
        several = count_of(view.dims[:-1]) > 1  # rows
        grouped = several and view.buffer in multiplied
        alone = len(others) == 1 and is_whole(value) and not grouped
        if not alone or not take_over(steps, value, view):
            store(device, value, view)


def layers(scheduler: Scheduler, node: Node) -> list[View]:
    """Equal layers as a loop that goes through what each has of its own."""
    device: Any = scheduler.program
    wanted: Layers = node.value
    (body,) = node.blocks
    outside = [scheduler.value(operand) for operand in node.operands[: wanted.fixed]]
    fixed = [
        scheduler.view(operand) if isinstance(value, ElementExpression) else value
        for operand, value in zip(node.operands, outside)
    ]
    state = []
    for operand in node.operands[wanted.fixed : wanted.fixed + len(wanted.carried)]:
        view = device.buffer(operand.type, operand.dims)
        store(device, scheduler.value(operand), view)
        state.append(view)
    carried = dict(zip(reversed(wanted.carried), reversed(state)))
    results = [
        carried[number] if number in carried else device.buffer(*form)
        for number, form in enumerate(node.results)
    ]
    arrays = [_array(scheduler, members) for members in family_operands(node)]
    count = Count(-1, 0, 1, wanted.trips)

    def once() -> None:
        windows = []
        for first, step in arrays:
            size = item_size(first.type)
            reach = sum((n - 1) * by for n, by in zip(first.dims, first.strides))
            buffer = Buffer((1 + reach) * size, "window")
            whole = View(first.buffer, first.type, (first.buffer.size // size,), (1,))
            device.steps.append(ArrayPart(whole, buffer, count, first.offset * size, step * size))
            windows.append(View(buffer, first.type, first.dims, first.strides))
        made = Scheduler(device, scheduler.simplifier, body, [*fixed, *state, *windows]).run()
        states = {view.buffer for view in state}
        fresh = [
            (view, _new_value(device, made[number], view, states))
            for number, view in zip(wanted.carried, state)
        ]
        for number, view in enumerate(results):
            if number not in carried:
                store(device, made[number], view)
        _carry(device, fresh)

    inside, _ = apart(device, once)
    device.steps.append(Counted(count, inside, _whole(state, inside)))
    first = next((item.instruction for item in body.nodes if item.instruction is not None), None)
    device.notes.loop(first, "layers", wanted.trips, len(body.nodes))
    return results


def _constants(scheduler: Scheduler, members: list[Node]) -> tuple[View, int]:
    """Constants one behind another, each with what it repeats along dimensions only once."""
    device: Any = scheduler.program
    dims = members[0].dims
    array = scheduler.simplifier.stacked(tuple(members))
    once = [kept < size for kept, size in zip(array.shape[1:], dims)]
    steps = row_major(array.shape[1:])
    strides = tuple(0 if repeats else step for repeats, step in zip(once, steps))
    view = View(device.constant(array), members[0].type, dims, strides)
    return view, count_of(array.shape[1:])


def _array(scheduler: Scheduler, members: list[Node]) -> tuple[View, int]:
    """The first member of a family in memory, and the elements from each to the next."""
    device: Any = scheduler.program
    type, dims = members[0].type, members[0].dims
    if all(member.op == "constant" for member in members):
        return _constants(scheduler, members)
    views = [scheduler.view(member) for member in members]
    first, second = views[0], views[1]
    step = second.offset - first.offset
    alike = all(
        view.buffer is first.buffer
        and view.offset == first.offset + number * step
        and view.is_row_major
        for number, view in enumerate(views)
    )
    if alike:
        return View(first.buffer, type, dims, row_major(dims), first.offset), step
    array = device.buffer(type, (len(views), *dims))
    for number, view in enumerate(views):
        store(device, view, array.placed(dims, row_major(dims), number * count_of(dims)))
    return array.placed(dims, row_major(dims)), count_of(dims)
