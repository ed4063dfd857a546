"""Blocks to steps: what is computed when, by which kernel, and where control goes.

Nodes are visited in order. Element-wise operations and moves stay values to come (`fusion`) until
something needs them in memory; `HANDLERS` has what becomes a kernel of its own; everything else
is computed by the operator table on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.execute import contractions
from graph_compiler.execute.fusion import (
    LEAVES_LIMIT,
    REPEATED_COST,
    STEPS_LIMIT,
    Expression,
    Lazy,
    Literal,
    broadcast_to,
    contiguous,
    materialised,
    reduce,
    rewritten,
    store,
)
from graph_compiler.execute.lanes import FORMS, POWERS, UNSUPPORTED, has_form
from graph_compiler.execute.loops import folds
from graph_compiler.execute.movement import DynamicCopy
from graph_compiler.execute.nodes import Block, Node, is_effect
from graph_compiler.execute.registers import is_rounded, register
from graph_compiler.execute.simplify import is_uniform
from graph_compiler.execute.steps import (
    Branch,
    Call,
    Host,
    Jump,
    Label,
    Place,
    Program,
    item_size,
    place_of,
)
from graph_compiler.execute.views import MOVES, View
from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.hlo.operators.slicing import padding_of
from graph_compiler.hlo.types import PRIMITIVE_TYPES

if TYPE_CHECKING:
    pass


class Scheduler:
    """Schedules one block, with `arguments` as its parameters, at the end of a program."""

    def __init__(self, program: Program, block: Block, arguments: Sequence[Lazy]) -> None:
        self.program = program
        self.block = block
        self.uses = block.uses()
        self.values: dict[Node, Any] = dict(zip(block.parameters, arguments))

    def run(self) -> list[Lazy]:
        """The results, which may be values to come."""
        for node in self.block.nodes:
            if node in self.uses or is_effect(node):
                self.values[node] = self._settled(node, self._value(node))
        return [self.value(result) for result in self.block.results]

    def value(self, node: Node) -> Any:
        found = self.values.get(node)
        if found is None:
            assert node.op == "constant"
            found = self.values[node] = self._constant(node)
        return found

    def view(self, node: Node) -> View:
        """A node's value in memory."""
        view = materialised(self.program, self.value(node))
        self.values[node] = view
        return view

    def _settled(self, node: Node, value: Any) -> Any:
        """The value, in memory if several users would compute it again at a cost."""
        if isinstance(value, Expression):
            again = self.uses.get(node, 0) - 1
            costly = value.cost > REPEATED_COST or value.leaves > 3
            if again > 0 and (costly or again > 3):
                return materialised(self.program, value)
        return value

    def _constant(self, node: Node) -> Lazy:
        array = node.value
        if array.size and is_uniform(array):
            return Literal(node.type, node.dims, array[(0,) * array.ndim])
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
        if node.op in FORMS and len(node.results) == 1:
            attribute = _attribute(self, node)
            if has_form(node.op, _source(node), node.type, attribute):
                return self._elementwise(node, attribute)
        handler = HANDLERS.get(node.op)
        if handler is not None:
            result = handler(self, node)
            if result is not None:
                return result
        return self._on_host(node)

    def _moved(self, node: Node) -> Lazy:
        """A view of the operand, or of what it is computed from."""
        (operand,) = node.operands
        value = self.value(operand)
        instruction = node.instruction
        if isinstance(value, Literal):
            return Literal(value.type, node.dims, value.value)
        move = MOVES[node.op]
        if isinstance(value, Expression):
            grows = _count(node.dims) > 2 * _count(value.dims)
            if not (grows and value.cost > REPEATED_COST and not _is_trailing(node)):
                moved = rewritten(value, lambda view: move(view, instruction), node.dims)
                if moved is not None:
                    return moved
            value = self.view(operand)
        view = move(value, instruction)
        if view is None:
            view = move(contiguous(self.program, value), instruction)
        assert view is not None
        return view

    def _elementwise(self, node: Node, attribute: Any) -> Expression:
        arguments: list[Lazy] = []
        operands = node.operands[:1] if attribute is not None and node.op in _ONE else node.operands
        for operand in operands:
            value = self.value(operand)
            if isinstance(value, Expression):
                if value.size > STEPS_LIMIT or value.leaves > LEAVES_LIMIT:
                    value = self.view(operand)
            arguments.append(broadcast_to(value, node.dims))
        result = Expression(node.op, node.type, attribute, arguments)
        if result.leaves > LEAVES_LIMIT:
            arguments = [
                broadcast_to(self.view(operand), node.dims)
                if isinstance(argument, Expression)
                else argument
                for operand, argument in zip(operands, arguments)
            ]
            result = Expression(node.op, node.type, attribute, arguments)
        return result

    def _on_host(self, node: Node) -> Any:
        assert node.instruction is not None
        operands = [self.view(operand) for operand in node.operands]
        results = [self.program.buffer(*form) for form in node.results]
        self.program.steps.append(Host(node.instruction, operands, results))
        return results[0] if len(results) == 1 else results


def _count(dims: tuple[int, ...]) -> int:
    count = 1
    for size in dims:
        count *= size
    return count


def _is_trailing(node: Node) -> bool:
    """Whether a broadcast repeats elements along the last dimensions only, where a kernel computes
    the operand once a row."""
    assert node.instruction is not None
    axes = list(node.instruction.attribute("dimensions"))
    return axes == list(range(len(axes))) and len(node.dims) - len(axes) == 1


def _source(node: Node) -> str:
    return node.operands[-1 if len(node.operands) > 2 else 0].type if node.operands else ""


def _comparison(scheduler: Scheduler, node: Node) -> Any:
    assert node.instruction is not None
    total = node.instruction.attribute("comparison_type") == "TOTALORDER"
    if total and PRIMITIVE_TYPES[_source(node)].is_float:
        return UNSUPPORTED
    return node.instruction.attribute("comparison_direction")


def _exponent(scheduler: Scheduler, node: Node) -> Any:
    value = scheduler.value(node.operands[1])
    if not isinstance(value, Literal) or float(value.value) not in POWERS:
        return UNSUPPORTED
    return float(value.value)


def _conversion(scheduler: Scheduler, node: Node) -> Any:
    """Into types that are rounded in fp32, only what fp32 holds: else it would round twice."""
    exact = PRIMITIVE_TYPES[_source(node)].bits < 32 or _source(node) in ("f32",)
    return None if exact or not is_rounded(node.type) else UNSUPPORTED


_LANEWISE_ATTRIBUTES: dict[str, Callable[[Scheduler, Node], Any]] = {
    "compare": _comparison,
    "power": _exponent,
    "convert": _conversion,
}
"""What else an element-wise opcode's form depends on."""

_ONE = frozenset({"power"})
"""Opcodes whose other operands became the attribute."""


def _attribute(scheduler: Scheduler, node: Node) -> Any:
    find = _LANEWISE_ATTRIBUTES.get(node.op)
    return None if find is None else find(scheduler, node)


# What becomes a kernel of its own ---------------------------------------------------------------


def _reduce(scheduler: Scheduler, node: Node) -> View | None:
    instruction = node.instruction
    assert instruction is not None
    if len(node.operands) != 2:
        return None
    operand, initial = node.operands
    fold = binary_opcode(instruction.called[0])
    if not folds(fold, node.type) or operand.type != node.type or 0 in operand.dims:
        return None
    assert fold is not None
    value = scheduler.value(operand)
    axes = tuple(instruction.attribute("dimensions"))
    start = scheduler.view(initial)
    return reduce(scheduler.program, value, start, axes, fold, node.type)


def _concatenate(scheduler: Scheduler, node: Node) -> View | None:
    assert node.instruction is not None
    axis = node.instruction.attribute("dimensions")[0]
    target = scheduler.program.buffer(node.type, node.dims)
    start = 0
    for operand in node.operands:
        part = target.placed(operand.dims, target.strides, start * target.strides[axis])
        store(scheduler.program, scheduler.value(operand), part)
        start += operand.dims[axis]
    return target


def _pad(scheduler: Scheduler, node: Node) -> View | None:
    assert node.instruction is not None
    operand, fill = node.operands
    edges = padding_of(node.instruction)
    if any(low < 0 or high < 0 for low, high, _ in edges):
        return None
    return padded(
        scheduler.program, scheduler.value(operand), scheduler.value(fill), edges, node.dims
    )


def padded(
    program: Program,
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
    scheduler.program.steps.append(Call(kernel, words, reads, written))


def _dynamic_slice(scheduler: Scheduler, node: Node) -> View | None:
    starts = _starts(scheduler, node.operands[1:])
    if any(register(start.type) is None for start in starts):
        return None
    array = scheduler.view(node.operands[0])
    block = scheduler.program.buffer(node.type, node.dims)
    _dynamic_copy(scheduler, array, block, starts, writes=False)
    return block


def _dynamic_update_slice(scheduler: Scheduler, node: Node) -> View | None:
    starts = _starts(scheduler, node.operands[2:])
    if any(register(start.type) is None for start in starts):
        return None
    update = scheduler.view(node.operands[1])
    target = scheduler.program.buffer(node.type, node.dims)
    store(scheduler.program, scheduler.value(node.operands[0]), target)
    _dynamic_copy(scheduler, target, update, starts, writes=True)
    return target


def _gather(scheduler: Scheduler, node: Node) -> View | None:
    instruction = node.instruction
    assert instruction is not None
    numbers = instruction.attribute("gather_dimension_numbers")
    operand, indices = node.operands
    if numbers.operand_batching_dims or 0 in node.dims or 0 in operand.dims:
        return None
    sizes = instruction.attribute("gather_slice_sizes")
    array, index = scheduler.view(operand), scheduler.view(indices)
    target = scheduler.program.buffer(node.type, node.dims)
    offsets = list(numbers.offset_dims)
    remaining = iter(offsets)
    collapsed_axes = set(numbers.collapsed_slice_dims)
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
        tuple(target.strides[place] for place in places),
        tuple(index.strides[axis] for axis in batch_axes),
    )
    words: list[int | Place] = [place_of(array), place_of(target), *map(place_of, starts)]
    call = Call(kernel, words, [array.buffer, index.buffer], [target.buffer])
    scheduler.program.steps.append(call)
    return target


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
    (flag,) = Scheduler(program, condition, state).run()
    program.steps.append(Branch(leave, place_of(materialised(program, flag))))
    results = Scheduler(program, body, state).run()
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
                flag = Expression("compare", "pred", "EQ", [index, wanted])
            program.steps.append(Branch(following, place_of(materialised(program, flag))))
        arguments = views[taken : taken + len(block.parameters)]
        taken += len(block.parameters)
        for value, target in zip(Scheduler(program, block, arguments).run(), results):
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
    "reduce": _reduce,
    "concatenate": _concatenate,
    "pad": _pad,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "while": _single(_while),
    "conditional": _single(_conditional),
    "dot": contractions.dot,
    "convolution": contractions.convolution,
}
"""How to schedule opcodes that are not element-wise; None where a variant stays on the host."""
