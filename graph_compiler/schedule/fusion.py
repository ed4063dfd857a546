"""Values that need not be in memory yet, and the kernels that put them there.

An `ElementExpression` is element-wise work on views; reshapes, transposes, slices and broadcasts of
it are those of the views that it reads. It becomes a kernel where it is first needed as memory: as
an operand of a product, as a result, where several users would repeat costly work, or as the body
of a reduction.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from graph_compiler.host_kernels.elements import COSTS, ElementStep
from graph_compiler.host_kernels.loops import LoopNest, literal
from graph_compiler.host_kernels.registers import is_rounded, register
from graph_compiler.schedule.parts import divided_words, worth_dividing
from graph_compiler.schedule.steps import GraphProgram, KernelCall, Place, item_size, place_of
from graph_compiler.schedule.views import Dims, View, collapsed

STEPS_LIMIT = 96
LEAVES_LIMIT = 14
"""Beyond these an expression is put into memory before it grows."""


class Literal:
    """One number in every element."""

    __slots__ = ("dims", "type", "value")

    def __init__(self, type: str, dims: Dims, value: Any) -> None:
        self.type = type
        self.dims = dims
        self.value = value


class ElementExpression:
    """An element-wise operation on values of the same dimensions. `cost` and `size` count what a
    kernel would compute and read."""

    __slots__ = ("arguments", "attribute", "cost", "dims", "leaves", "op", "size", "type")

    dims: Dims

    def __init__(self, op: str, type: str, attribute: Any, arguments: list[Lazy]) -> None:
        self.op = op
        self.type = type
        self.dims = arguments[0].dims
        self.attribute = attribute
        self.arguments = arguments
        self.cost = COSTS.get(op, 1) + 4 * is_rounded(type)
        self.size = 1
        self.leaves = 0
        for argument in arguments:
            if isinstance(argument, ElementExpression):
                self.cost += argument.cost
                self.size += argument.size
                self.leaves += argument.leaves
            elif isinstance(argument, View):
                self.leaves += 1


Lazy = View | Literal | ElementExpression


def rewritten(value: Lazy, change: Callable[[View], View | None], dims: Dims) -> Lazy | None:
    """The value with every view changed in the same way; None where one cannot be."""
    known: dict[int, Lazy] = {}

    def visit(item: Lazy) -> Lazy | None:
        found = known.get(id(item))
        if found is not None:
            return found
        result: Lazy | None
        if isinstance(item, Literal):
            result = Literal(item.type, dims, item.value)
        elif isinstance(item, View):
            result = change(item)
        else:
            arguments = []
            for argument in item.arguments:
                changed = visit(argument)
                if changed is None:
                    return None
                arguments.append(changed)
            result = ElementExpression(item.op, item.type, item.attribute, arguments)
        if result is not None:
            known[id(item)] = result
        return result

    return visit(value)


def broadcast_to(value: Lazy, dims: Dims) -> Lazy:
    """A scalar at every index."""
    if value.dims == dims:
        return value
    result = rewritten(value, lambda view: view.placed(dims, (0,) * len(dims)), dims)
    assert result is not None
    return result


class _Linear:
    """An expression as leaves and numbered steps, equal ones once."""

    def __init__(self, root: Lazy) -> None:
        self.views: list[View] = []
        leaves: dict[Any, int] = {}
        self._collect(root, leaves, set())
        self.leaves = leaves
        self.steps: list[ElementStep] = []
        self._numbers: dict[Any, int] = {}
        self._known: dict[int, int] = {}
        number = self._visit(root)
        if number != len(self.views) + len(self.steps) - 1:
            type = root.type
            self.steps.append(ElementStep("convert", type, type, None, (number,)))

    @staticmethod
    def key(view: View) -> Any:
        return view.buffer, view.offset, view.strides, view.type

    def _collect(self, item: Lazy, leaves: dict[Any, int], seen: set[int]) -> None:
        if id(item) in seen or isinstance(item, Literal):
            return
        seen.add(id(item))
        if isinstance(item, View):
            key = self.key(item)
            if key not in leaves:
                leaves[key] = len(self.views)
                self.views.append(item)
            return
        for argument in item.arguments:
            self._collect(argument, leaves, seen)

    def _visit(self, item: Lazy) -> int:
        found = self._known.get(id(item))
        if found is not None:
            return found
        if isinstance(item, View):
            number = self.leaves[self.key(item)]
        else:
            if isinstance(item, Literal):
                step = literal(item.type, item.value)
            else:
                arguments = tuple(self._visit(argument) for argument in item.arguments)
                # Of `select` the last operand states the type, of all others the first.
                source = item.arguments[-1 if len(arguments) > 2 else 0].type
                step = ElementStep(item.op, item.type, source, item.attribute, arguments)
            key = repr(step)
            known = self._numbers.get(key)
            if known is None:
                known = self._numbers[key] = len(self.views) + len(self.steps)
                self.steps.append(step)
            number = known
        self._known[id(item)] = number
        return number


def _last_axis(operands: list[Dims], weights: list[int], sizes: Dims) -> int:
    """The dimension along which most operands are adjacent; the last one among equals."""
    best, chosen = -1, len(sizes) - 1
    for axis in reversed(range(len(sizes))):
        score = sum(w for strides, w in zip(operands, weights) if strides[axis] == 1)
        if score > best:
            best, chosen = score, axis
    return chosen


def _ordered(axes: list[int], values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(values[axis] for axis in axes)


def _as_bits(view: View) -> View:
    """The same memory as whole numbers: how types without registers of their own are moved."""
    size = item_size(view.type)
    if size <= 8:
        return View(view.buffer, f"u{8 * size}", view.dims, view.strides, view.offset)
    strides = tuple(2 * stride for stride in view.strides)
    return View(view.buffer, "u64", (*view.dims, 2), (*strides, 1), 2 * view.offset)


def store(program: GraphProgram, value: Lazy, target: View) -> None:
    """Compute a value into memory."""
    if register(target.type) is None:
        value, target = _as_bits(materialised(program, value)), _as_bits(target)
    linear = _Linear(value)
    if 0 in target.dims:
        return
    operands = [target.strides, *(view.strides for view in linear.views)]
    counts, strides = collapsed(target.dims, operands)
    last = _last_axis(strides, [2, *([1] * len(linear.views))], counts) if counts else 0
    axes = [axis for axis in range(len(counts)) if axis != last] + ([last] if counts else [])
    loop = LoopNest(
        _ordered(axes, counts),
        (target.type, _ordered(axes, strides[0])),
        tuple((view.type, _ordered(axes, s)) for view, s in zip(linear.views, strides[1:])),
        tuple(linear.steps),
    )
    words: list[int | Place] = [place_of(target), *map(place_of, linear.views)]
    same = [
        s == strides[0] and is_whole(view) and view.buffer.size == target.buffer.size
        for view, s in zip(linear.views, strides[1:])
    ]
    elsewhere = {view.buffer for view, flag in zip(linear.views, same) if not flag}
    aligned = [
        view.buffer
        for view, flag in zip(linear.views, same)
        if flag and is_whole(target) and view.buffer not in elsewhere
    ]
    moves = bool(aligned) and isinstance(value, View)
    reads = [view.buffer for view in linear.views]
    loop, divided, work = _divided(program, loop, words)
    writes = [target.buffer]
    program.steps.append(KernelCall(loop, words, reads, writes, aligned, moves, divided, work))


def _divided(
    program: GraphProgram, loop: LoopNest, words: list[int | Place]
) -> tuple[LoopNest, list[list[int | Place]], int]:
    """A loop, the words of its parts, where it is worth while to divide it, and how many operations
    it takes. `words` get the length of the divided dimension."""
    work = math.prod(loop.counts) * (loop.cost + 1 + len(loop.leaves))
    found = loop.division() if worth_dividing(program, work) else None
    if found is None:
        return loop, [], work
    axis, division = found
    words.append(division.units)
    return replace(loop, divided=axis), divided_words(division, words, program.threads), work


def is_whole(view: View) -> bool:
    """Whether a view is all of its buffer, in row-major order."""
    count = item_size(view.type)
    for size in view.dims:
        count *= size
    return view.offset == 0 and count == view.buffer.size and view.is_row_major


def materialised(program: GraphProgram, value: Lazy) -> View:
    """The value in memory; a view stays where it is."""
    if isinstance(value, View):
        return value
    if isinstance(value, Literal):
        array = np.asarray(value.value)
        return View(program.constant(array), value.type, value.dims, (0,) * len(value.dims))
    target = program.buffer(value.type, value.dims)
    store(program, value, target)
    return target


def contiguous(program: GraphProgram, value: Lazy) -> View:
    """The value in memory, in row-major order."""
    if isinstance(value, View) and value.is_row_major:
        return value
    target = program.buffer(value.type, value.dims)
    store(program, value, target)
    return target


def reduce(
    program: GraphProgram, value: Lazy, initial: View, axes: tuple[int, ...], fold: str, type: str
) -> View:
    """The elements along the axes folded behind the initial value."""
    kept_axes = [axis for axis in range(len(value.dims)) if axis not in axes]
    target = program.buffer(type, tuple(value.dims[axis] for axis in kept_axes))
    if 0 in target.dims:
        return target
    linear = _Linear(value)
    spread = [0] * len(value.dims)
    for axis, stride in zip(kept_axes, target.strides):
        spread[axis] = stride

    def part(chosen: list[int]) -> tuple[Dims, list[Dims]]:
        """Collapsed dimensions, and strides of output and leaves."""
        return collapsed(
            tuple(value.dims[axis] for axis in chosen),
            [
                tuple(strides[axis] for axis in chosen)
                for strides in (tuple(spread), *(view.strides for view in linear.views))
            ],
        )

    kept, kept_strides = part(kept_axes)
    gone, gone_strides = part([axis for axis in range(len(value.dims)) if axis in axes])
    counts = kept + gone
    strides = [a + b for a, b in zip(kept_strides, gone_strides)]
    reduced = (False,) * len(kept) + (True,) * len(gone)
    order = list(range(len(counts)))
    if counts:
        last = _last_axis(strides[1:] or [strides[0]], [1] * len(strides), counts)
        if counts[last] < 8 and max(counts) >= 8 and len(gone) and last >= len(kept):
            wide = _last_axis([strides[0]], [1], counts)
            last = wide if not reduced[wide] and counts[wide] >= 8 else last
        order = [axis for axis in order if axis != last] + [last]
    loop = LoopNest(
        _ordered(order, counts),
        (type, _ordered(order, strides[0])),
        tuple((view.type, _ordered(order, s)) for view, s in zip(linear.views, strides[1:])),
        tuple(linear.steps),
        fold,
        _ordered(order, reduced),
    )
    words: list[int | Place] = [place_of(target), *map(place_of, linear.views), place_of(initial)]
    reads = [*(view.buffer for view in linear.views), initial.buffer]
    loop, divided, work = _divided(program, loop, words)
    program.steps.append(
        KernelCall(loop, words, reads, [target.buffer], divided=divided, work=work)
    )
    return target
