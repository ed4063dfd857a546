"""Blocks to steps: what is computed when, by which kernel, and where control goes.

Nodes are visited in order. Element-wise operations and moves stay values to come (`fusion`) until
something needs them in memory; `HANDLERS` has what becomes a kernel of its own; everything else
is computed by the operator table on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graph_compiler.host_kernels.elements import UNSUPPORTED
from graph_compiler.schedule import contractions, convolutions, ordering, placement, reductions
from graph_compiler.schedule.attributes import native_attribute, native_operands
from graph_compiler.schedule.fusion import (
    LEAVES_LIMIT,
    STEPS_LIMIT,
    ElementExpression,
    Lazy,
    Literal,
    broadcast_to,
    contiguous,
    materialised,
    rewritten,
    store,
)
from graph_compiler.schedule.nodes import Block, Node, is_effect
from graph_compiler.schedule.simplify import Simplifier, only_element
from graph_compiler.schedule.steps import (
    GraphProgram,
    Host,
    Jump,
    JumpUnless,
    Label,
    Machine,
    place_of,
)
from graph_compiler.schedule.views import MOVES, View, count_of


class Scheduler:
    """Schedules one block, with `arguments` as its parameters, at the end of a program."""

    def __init__(
        self,
        program: GraphProgram,
        simplifier: Simplifier,
        block: Block,
        arguments: Sequence[Lazy],
    ) -> None:
        self.program = program
        self.simplifier = simplifier
        self.block = block
        self.uses = block.uses()
        self.values: dict[Node, Any] = dict(zip(block.parameters, arguments))

    def run(self) -> list[Lazy]:
        """The results, which may be values to come."""
        for node in self.block.nodes:
            if node in self.uses or is_effect(node):
                before, steps = len(self.program.steps), self.program.steps
                self.values[node] = self._settled(node, self._value(node))
                self.program.made_for(node, steps[before:])
        return [self.value(result) for result in self.block.results]

    def value(self, node: Node) -> Any:
        found = self.values.get(node)
        if found is None:
            assert node.op == "constant"
            found = self.values[node] = self._constant(node)
        return found

    def view(self, node: Node) -> View:
        """A node's value in memory."""
        before, steps = len(self.program.steps), self.program.steps
        view = materialised(self.program, self.value(node))
        self.program.made_for(node, steps[before:])
        self.values[node] = view
        return view

    def _settled(self, node: Node, value: Any) -> Any:
        """The value, in memory if several users would compute it again at a cost."""
        if isinstance(value, ElementExpression):
            if self.program.keeps(node):
                return materialised(self.program, value)
            again = self.uses.get(node, 0) - 1
            many = value.leaves > 3 or again > 3
            if again > 0 and (many or not self.program.machine.repeats(value)):
                return self._kept(value)
        return value

    def _kept(self, value: ElementExpression) -> Lazy:
        """The value in memory; one that is widened is there in its narrow type."""
        source = value.arguments[0]
        if value.op in _CONVERSIONS and self.program.machine.widens(source.type, value.type):
            kept = self._kept(source) if isinstance(source, ElementExpression) else source
            return ElementExpression(value.op, value.type, value.attribute, [kept])
        return materialised(self.program, value)

    def _constant(self, node: Node) -> Lazy:
        array = node.value
        element = only_element(array)
        if element is not None:
            return Literal(node.type, node.dims, element)
        kept = tuple(
            slice(0, 1) if stride == 0 and size > 1 else slice(None)
            for size, stride in zip(array.shape, array.strides)
        )
        small = np.ascontiguousarray(array[kept])
        strides = [
            0 if part.stop == 1 else stride // small.itemsize
            for part, stride in zip(kept, small.strides)
        ]
        return View(self.program.constant(small), node.type, node.dims, tuple(strides))

    def _value(self, node: Node) -> Any:
        if node.op == "pick":
            return self.values[node.operands[0]][node.value]
        if node.op in MOVES:
            return self._moved(node)
        machine = self.program.machine
        attribute = machine.attribute(node, self._number)
        if attribute is not UNSUPPORTED:
            return self._elementwise(node, attribute)
        handler = machine.handlers.get(node.op)
        if handler is not None:
            result = handler(self, node)
            if result is not None:
                return result
        return machine.otherwise(self, node)

    def _number(self, node: Node) -> Any:
        value = self.value(node)
        return value.value if isinstance(value, Literal) else None

    def _moved(self, node: Node) -> Lazy:
        """A view of the operand, or of what it is computed from."""
        (operand,) = node.operands
        value = self.value(operand)
        instruction = node.instruction
        if isinstance(value, Literal):
            return Literal(value.type, node.dims, value.value)
        move = MOVES[node.op]
        if isinstance(value, ElementExpression):
            grows = count_of(node.dims) > 2 * count_of(value.dims)
            repeats = not grows or self.program.machine.repeats(value)
            if repeats or _is_trailing(node):
                moved = rewritten(value, lambda view: move(view, instruction), node.dims)
                if moved is not None:
                    return moved
            value = self.view(operand)
        view = move(value, instruction)
        if view is None:
            view = move(contiguous(self.program, value), instruction)
        assert view is not None
        return view

    def _elementwise(self, node: Node, attribute: Any) -> ElementExpression:
        arguments: list[Lazy] = []
        operands = self.program.machine.operands(node)
        for operand in operands:
            value = self.value(operand)
            if isinstance(value, ElementExpression):
                if value.size > STEPS_LIMIT or value.leaves > LEAVES_LIMIT:
                    value = self.view(operand)
            arguments.append(broadcast_to(value, node.dims))
        result = ElementExpression(node.op, node.type, attribute, arguments)
        if result.leaves > LEAVES_LIMIT:
            arguments = [
                broadcast_to(self.view(operand), node.dims)
                if isinstance(argument, ElementExpression)
                else argument
                for operand, argument in zip(operands, arguments)
            ]
            result = ElementExpression(node.op, node.type, attribute, arguments)
        return result


_CONVERSIONS = frozenset({"convert"})


def _on_host(scheduler: Scheduler, node: Node) -> Any:
    """Computed by the reference of the operator table."""
    assert node.instruction is not None
    operands = [scheduler.view(operand) for operand in node.operands]
    results = [scheduler.program.buffer(*form) for form in node.results]
    scheduler.program.steps.append(Host(node.instruction, operands, results))
    return results[0] if len(results) == 1 else results


def _is_trailing(node: Node) -> bool:
    """Whether a broadcast repeats elements along the last dimensions only, where a kernel computes
    the operand once a row."""
    assert node.instruction is not None
    axes = list(node.instruction.attribute("dimensions"))
    return axes == list(range(len(axes))) and len(node.dims) - len(axes) == 1


def _while(scheduler: Scheduler, node: Node) -> list[Any]:
    program = scheduler.program
    body, condition = node.blocks
    state: list[Lazy] = []
    carried: list[tuple[int, View]] = []
    for number, operand in enumerate(node.operands):
        if body.results[number] is body.parameters[number]:
            value = scheduler.value(operand)
            state.append(value if isinstance(value, Literal) else scheduler.view(operand))
        else:
            view = program.buffer(operand.type, operand.dims)
            store(program, scheduler.value(operand), view)
            state.append(view)
            carried.append((number, view))
    start, leave = Label(1), Label(-1)
    program.steps.append(start)
    (flag,) = Scheduler(program, scheduler.simplifier, condition, state).run()
    program.steps.append(JumpUnless(leave, place_of(materialised(program, flag))))
    results = Scheduler(program, scheduler.simplifier, body, state).run()
    states = {view.buffer for _, view in carried}
    # All new values are there before the first old one goes.
    fresh: list[tuple[View, View]] = []
    for number, view in carried:
        value = results[number]
        if (
            isinstance(value, View) and (value.buffer.kind != "arena" or value.buffer in states)
        ) or not isinstance(value, View):
            copy = program.buffer(view.type, view.dims)
            store(program, value, copy)
            value = copy
        fresh.append((view, value))
    for view, value in fresh:
        store(program, value, view)
    program.steps += [Jump(start), leave]
    return state


def _conditional(scheduler: Scheduler, node: Node) -> list[Any]:
    program = scheduler.program
    choice, *operands = node.operands
    views = [scheduler.view(operand) for operand in operands]
    results = [program.buffer(*form) for form in node.results]
    index = scheduler.value(choice)
    done = Label()
    taken = 0
    for number, block in enumerate(node.blocks):
        following = Label()
        if number < len(node.blocks) - 1:
            flag: Lazy = index
            if index.type != "pred":
                wanted = Literal(index.type, (), np.asarray(number)[()])
                flag = ElementExpression("compare", "pred", "EQ", [index, wanted])
            program.steps.append(JumpUnless(following, place_of(materialised(program, flag))))
        arguments = views[taken : taken + len(block.parameters)]
        taken += len(block.parameters)
        for value, target in zip(
            Scheduler(program, scheduler.simplifier, block, arguments).run(), results
        ):
            store(program, value, target)
        program.steps += [Jump(done), following]
    program.steps.append(done)
    return results


def _single(handler: Callable[[Scheduler, Node], list[Any]]) -> Callable[[Scheduler, Node], Any]:
    """A handler whose one result stands alone."""

    def handle(scheduler: Scheduler, node: Node) -> Any:
        results = handler(scheduler, node)
        return results[0] if len(node.results) == 1 else results

    return handle


HANDLERS: dict[str, Callable[[Scheduler, Node], Any]] = {
    "reduce": reductions.reduce_along,
    "reduce-window": reductions.reduce_window,
    "concatenate": placement.concatenate,
    "pad": placement.pad,
    "dynamic-slice": placement.dynamic_slice,
    "dynamic-update-slice": placement.dynamic_update_slice,
    "gather": placement.gather,
    "scatter": ordering.scatter,
    "sort": ordering.sort,
    "topk": ordering.top,
    "dot": contractions.dot,
    "convolution": convolutions.convolution,
    "while": _single(_while),
    "conditional": _single(_conditional),
}
"""How to schedule opcodes that are not element-wise; None where a variant stays on the host."""

HOST_MACHINE = Machine(
    native_attribute,
    native_operands,
    HANDLERS,
    _on_host,
    contractions.HOST_PRODUCTS,
    lambda value: value.cost <= 6,
)
