"""Loops whose trips are known: `while` that counts, as `scan` and `fori_loop` make it.

Blocks at places that follow from the count, `dynamic-slice` of what the loop does not change and
`dynamic-update-slice` of what it carries, are parts of the arrays themselves: windows, which lie a
constant distance further on in each trip, so that loads and stores are addressed by the register
that counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graph_compiler.hlo.operators import OPERATORS
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.aliases import every
from graph_compiler.lower.rewrites.trips import Count, constant_integer
from graph_compiler.schedule import placement
from graph_compiler.schedule.fusion import store
from graph_compiler.schedule.simplify import is_elementwise
from graph_compiler.schedule.steps import item_size
from graph_compiler.schedule.views import Buffer, View, count_of

if TYPE_CHECKING:
    from graph_compiler.evaluate import Evaluator
    from graph_compiler.lower.device import DeviceProgram
    from graph_compiler.schedule.nodes import Block, Node
    from graph_compiler.schedule.schedule import Scheduler


def places_of(evaluator: Evaluator, body: Block, count: Count) -> dict[Node, np.ndarray[Any, Any]]:
    """The scalars of a body that follow from the count: what they are in each trip."""
    parameter = body.parameters[count.number]
    values = count.first + count.step * np.arange(count.trips)
    found: dict[Node, np.ndarray[Any, Any]] = {}
    found[parameter] = values

    def value(node: Node) -> np.ndarray[Any, Any] | None:
        number = constant_integer(node)
        if number is not None:
            return np.broadcast_to(np.asarray(node.value), values.shape)
        return found.get(node)

    for node in body.nodes:
        row = OPERATORS.get(node.op)
        if node.dims or row is None or node.instruction is None or not is_elementwise(row):
            continue
        operands = [value(operand) for operand in node.operands]
        if operands and all(operand is not None for operand in operands):
            given = [
                np.asarray(array).astype(_type(operand))
                for array, operand in zip(operands, node.operands)
            ]
            found[node] = row.evaluate(node.instruction, given, evaluator)
    return found


def _type(node: Node) -> Any:
    return PRIMITIVE_TYPES[node.type].numpy


def in_place(body: Block, number: int) -> list[Node]:
    """The updates that make the next value of a carried array, where the body uses the array for
    nothing else. They may be made in place. Else none."""
    uses = body.uses()
    chain: list[Node] = []
    node = body.results[number]
    while node.op == "dynamic-update-slice" and uses.get(node) == 1:
        chain.append(node)
        node = node.operands[0]
    return chain if node is body.parameters[number] and uses.get(node) == 1 else []


@dataclass(frozen=True)
class ArrayPart:
    """From here on a buffer is part of an array: `base` bytes behind the array's beginning, and
    `step` bytes further on in each trip."""

    array: View
    buffer: Buffer
    count: Count
    base: int
    step: int
    updates: bool = False

    inner: ClassVar[tuple[Any, ...]] = ()

    @property
    def views(self) -> list[View]:
        """The array, whose elements users of the window read or write."""
        return [self.array]

    @property
    def reads(self) -> list[Buffer]:
        """The same."""
        return [self.array.buffer]

    @property
    def writes(self) -> list[Buffer]:
        """What is another part from now on, and the array, where elements are written."""
        return [self.buffer, self.array.buffer] if self.updates else [self.buffer]

    def emit(self, device: DeviceProgram) -> None:
        device.windows[self.buffer] = self


def dynamic_slice(scheduler: Scheduler, node: Node) -> View | None:
    """A block of what a loop does not change, where its count says: a window. Others are copied."""
    device: Any = scheduler.program
    count = device.counts.get(node)
    if count is not None:
        array = scheduler.view(node.operands[0])
        if array.buffer.kind in ("input", "constant") or array.buffer in count.fixed:
            window = _window(device, node.operands[1:], array, node.dims, count, False)
            if window is not None:
                return window
    return placement.dynamic_slice(scheduler, node)


def dynamic_update_slice(scheduler: Scheduler, node: Node) -> View | None:
    """An array with a block written: in place, where a loop carries it, through a window, where
    the loop's count says where."""
    device: Any = scheduler.program
    if node not in device.in_place:
        return placement.dynamic_update_slice(scheduler, node)
    array = scheduler.view(node.operands[0])
    count = device.counts.get(node)
    if count is not None:
        update = node.operands[1]
        window = _window(device, node.operands[2:], array, update.dims, count, True)
        if window is not None:
            store(device, scheduler.value(update), window)
            return array
    return placement.updated(scheduler, node, array)


def _window(
    device: Any,
    starts: Sequence[Node],
    array: View,
    dims: tuple[int, ...],
    count: Count,
    updates: bool,
) -> View | None:
    """The block of an array at places that follow from a count; None where its distance is not
    the same from trip to trip, or its elements do not lie one after another."""
    if 0 in dims or not View(array.buffer, array.type, dims, array.strides).is_row_major:
        return None
    total = np.zeros(count.trips, np.int64)
    for axis, start in enumerate(starts):
        places = device.places.get(start)
        if places is None:
            number = constant_integer(start)
            if number is None:
                return None
            places = np.full(count.trips, number)
        # As HLO says, a block that would leave the array begins earlier.
        inside = np.clip(places.astype(np.int64), 0, array.dims[axis] - dims[axis])
        total += inside * array.strides[axis]
    steps = np.diff(total)
    if len(steps) and (steps != steps[0]).any():
        return None
    size = item_size(array.type)
    buffer = Buffer(count_of(dims) * size, "window")
    step = int(steps[0]) if len(steps) else 0
    base = (array.offset + int(total[0])) * size
    device.steps.append(ArrayPart(array, buffer, count, base, step * size, updates))
    return View(buffer, array.type, dims, array.strides)


def reads_of(steps: Iterable[Any]) -> Counter[Buffer]:
    """How often steps read each buffer, those inside of control flow included."""
    return Counter(buffer for step in every(steps) for buffer in step.reads)
