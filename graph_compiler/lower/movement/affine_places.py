"""Gathers at places that count evenly along dimensions, such as windows that slide over a signal:
their results are views of the operand, whose elements may overlap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graph_compiler.lower.rewrites.ranges import Range, range_of_type
from graph_compiler.lower.sizes import FP32_INTEGERS
from graph_compiler.schedule.nodes import Node
from graph_compiler.schedule.schedule import Scheduler
from graph_compiler.schedule.views import View


def gather(scheduler: Scheduler, node: Node) -> View | None:
    """A gather at places that are known to count evenly, inside of its operand; None of others."""
    assert node.instruction is not None
    operand, indices = node.operands
    numbers = node.instruction.attribute("gather_dimension_numbers")
    sizes = node.instruction.attribute("gather_slice_sizes")
    if 0 in (*node.dims, *operand.dims) or numbers.operand_batching_dims:
        return None
    places = []
    for number, axis in enumerate(numbers.start_index_map):
        count = _component(indices, numbers.index_vector_dim, number)
        if count is None or count.low < 0 or count.high > operand.dims[axis] - sizes[axis]:
            return None
        places.append((axis, count))
    source = scheduler.view(operand)
    inside = [axis for axis in range(len(sizes)) if axis not in numbers.collapsed_slice_dims]
    around = [axis for axis in range(len(indices.dims)) if axis != numbers.index_vector_dim]
    kept, batch = iter(inside), iter(around)
    strides = []
    for place in range(len(node.dims)):
        if place in numbers.offset_dims:
            strides.append(source.strides[next(kept)])
        else:
            along = next(batch)
            strides.append(sum(source.strides[axis] * one.steps[along] for axis, one in places))
    start = sum(source.strides[axis] * one.first for axis, one in places)
    return source.placed(node.dims, tuple(strides), start)


class EvenCount(NamedTuple):
    """Integers first + sum of steps[d] * index[d], of an array of these dimensions."""

    first: int
    steps: tuple[int, ...]
    dims: tuple[int, ...]

    @property
    def low(self) -> int:
        """The least of them."""
        return self.first + sum(min(0, s * (n - 1)) for s, n in zip(self.steps, self.dims))

    @property
    def high(self) -> int:
        """The largest of them."""
        return self.first + sum(max(0, s * (n - 1)) for s, n in zip(self.steps, self.dims))

    def plus(self, other: EvenCount, times: int = 1) -> EvenCount:
        """The sum with so many times others."""
        steps = tuple(a + times * b for a, b in zip(self.steps, other.steps))
        return EvenCount(self.first + times * other.first, steps, self.dims)


def _component(indices: Node, vector: int, number: int) -> EvenCount | None:
    """What one number of all index vectors counts; None where it is not known to."""
    if indices.op in _CONCATENATED and indices.instruction is not None:
        axes = indices.instruction.attribute("dimensions")
        if [*axes] == [vector] and all(one.dims[vector] == 1 for one in indices.operands):
            return count_of(indices.operands[number])
    found = count_of(indices)
    if found is None or vector == len(indices.dims) or not found.steps[vector]:
        return found
    first = found.first + number * found.steps[vector]
    steps = (*found.steps[:vector], 0, *found.steps[vector + 1 :])
    return EvenCount(first, steps, (*found.dims[:vector], 1, *found.dims[vector + 1 :]))


_CONCATENATED = frozenset({"concatenate"})


def count_of(node: Node) -> EvenCount | None:
    """What the integers of a node count; None where they are not known to count evenly."""
    return _count(node, {})


def _count(node: Node, known: dict[Node, EvenCount | None]) -> EvenCount | None:
    whole = _WHOLE.get(node.type) or range_of_type(node.type) if len(node.results) == 1 else None
    rule = _RULES.get(node.op)
    if whole is None or rule is None or 0 in node.dims:
        return None
    if node not in known:
        found = rule(node, lambda one: _count(one, known))
        fits = found is not None and whole.low <= found.low and found.high <= whole.high
        known[node] = found if fits else None
    return known[node]


_WHOLE = {"f32": Range(-FP32_INTEGERS, FP32_INTEGERS)}
"""Integers that a type of floats has: integers are compared in fp32 where they are few."""

Operands = Callable[[Node], EvenCount | None]


def _constant(node: Node, count: Operands) -> EvenCount | None:
    given = np.asarray(node.value)
    with np.errstate(invalid="ignore"):  # of numbers that are no integers
        value = given.astype(np.int64)
    if not np.array_equal(given, value):
        return None
    first = int(value.flat[0])
    steps = []
    for axis, size in enumerate(value.shape):
        second = tuple(int(place == axis) for place in range(value.ndim))
        steps.append(int(value[second]) - first if size > 1 else 0)
    same = all(
        np.array_equal(np.diff(value, axis=axis), np.full(shape, step))
        for axis, step in enumerate(steps)
        for shape in [tuple(n - (place == axis) for place, n in enumerate(value.shape))]
    )
    return EvenCount(first, tuple(steps), value.shape) if same else None


def _iota(node: Node, count: Operands) -> EvenCount:
    (axis,) = _dimensions(node)
    return EvenCount(0, tuple(int(place == axis) for place in range(len(node.dims))), node.dims)


def _dimensions(node: Node) -> tuple[int, ...]:
    assert node.instruction is not None
    return tuple(node.instruction.attribute("dimensions"))


def _broadcast(node: Node, count: Operands) -> EvenCount | None:
    own = count(node.operands[0])
    if own is None:
        return None
    steps = [0] * len(node.dims)
    for axis, place in enumerate(_dimensions(node)):
        steps[place] = own.steps[axis]
    return EvenCount(own.first, tuple(steps), node.dims)


def _reshape(node: Node, count: Operands) -> EvenCount | None:
    """Dimensions of one element come and go."""
    own = count(node.operands[0])
    if own is None or [n for n in own.dims if n > 1] != [n for n in node.dims if n > 1]:
        return None
    steps = iter(step for step, n in zip(own.steps, own.dims) if n > 1)
    return EvenCount(own.first, tuple(next(steps) if n > 1 else 0 for n in node.dims), node.dims)


def _transpose(node: Node, count: Operands) -> EvenCount | None:
    own = count(node.operands[0])
    if own is None:
        return None
    return EvenCount(own.first, tuple(own.steps[axis] for axis in _dimensions(node)), node.dims)


def _sum(times: int) -> Callable[[Node, Operands], EvenCount | None]:
    def summed(node: Node, count: Operands) -> EvenCount | None:
        one, other = map(count, node.operands)
        return None if one is None or other is None else one.plus(other, times)

    return summed


def _product(node: Node, count: Operands) -> EvenCount | None:
    for one, other in (node.operands, node.operands[::-1]):
        a, b = count(one), count(other)
        if a is not None and b is not None and not any(b.steps):
            return EvenCount(a.first * b.first, tuple(s * b.first for s in a.steps), a.dims)
    return None


def _same(node: Node, count: Operands) -> EvenCount | None:
    return count(node.operands[0])


def _select(node: Node, count: Operands) -> EvenCount | None:
    """One side, where a comparison is known to be true or false everywhere."""
    condition, yes, no = node.operands
    if condition.op not in _COMPARED or condition.instruction is None:
        return None
    one, other = map(count, condition.operands)
    if one is None or other is None or yes.dims != condition.dims:
        return None
    left = one.plus(other, -1)
    always = _ALWAYS.get(condition.instruction.attribute("comparison_direction"))
    if always is None:
        return None
    decided = always(Range(left.low, left.high))
    return None if decided is None else count(yes if decided else no)


_COMPARED = frozenset({"compare"})


def _either(true: bool, false: bool) -> bool | None:
    return True if true else False if false else None


_ALWAYS: dict[str, Callable[[Range], bool | None]] = {
    "LT": lambda r: _either(r.high < 0, r.low >= 0),
    "GE": lambda r: _either(r.low >= 0, r.high < 0),
    "GT": lambda r: _either(r.low > 0, r.high <= 0),
    "LE": lambda r: _either(r.high <= 0, r.low > 0),
}
"""Whether a comparison with zero is true, or false, of all of a range."""

_RULES: dict[str, Callable[[Node, Operands], Any]] = {
    "constant": _constant,
    "iota": _iota,
    "broadcast": _broadcast,
    "reshape": _reshape,
    "transpose": _transpose,
    "add": _sum(1),
    "subtract": _sum(-1),
    "multiply": _product,
    "convert": _same,
    "select": _select,
}
"""What a node counts, by what its operands do."""
