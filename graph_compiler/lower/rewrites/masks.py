"""Choices whose conditions are known when a graph is compiled, such as causal masks.

A mask that is made of positions alone, by comparisons and logic, is an array of truth values that
can be computed here: the device loads it as a constant (`masks_as_constants`). So can one that is
added, of zeros and a low number, which becomes such a choice (`added_masks`). Behind the last
element of a row that is taken from a tensor, the row has the same number everywhere
(`visible_columns`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from graph_compiler.hlo.operators import operator
from graph_compiler.hlo.operators.row import Evaluation
from graph_compiler.lower.rewrites.softmax import compared_choices, compared_numbers, uniform
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.simplify import is_uniform

Array = np.ndarray[Any, Any]

MOST = 1 << 26
"""Elements of a mask that are computed here at most."""

STORED = 4 << 20
"""Bytes of a mask that is a constant at most: larger ones the device computes, once a run."""


def masks_as_constants(block: Block, evaluation: Evaluation) -> None:
    """Have the same choices as those of `visible_columns` take their conditions from constants, in
    a block and those inside of it."""
    for node, taken, _ in _known_choices(block, compared_choices(block), evaluation):
        if taken[_once(taken)].nbytes <= STORED:
            form = [(node.operands[0].type, node.dims)]
            node.operands = [Node("constant", form, [], value=taken), *node.operands[1:]]


def visible_columns(block: Block, evaluation: Evaluation) -> dict[Node, Array]:
    """How many elements of each row of a choice end with the last one that is the tensor's, in a
    block and those inside of it. Choices are those between a tensor and one number, of which the
    largest is sought. None of choices that data decide."""
    found = {}
    for node, taken, chosen in _known_choices(block, compared_choices(block), evaluation):
        visible = _behind_last(~taken if chosen else taken)
        if (visible < node.dims[-1]).any():
            found[node] = visible
    return found


def added_masks(block: Block, evaluation: Evaluation, halves: bool = True) -> None:
    """Have sums of scores and a known mask choose, in a block and those inside of it, where their
    largest number is sought: `x + where(seen, 0, least)` becomes `where(seen, x, least)`.

    The mask has one number besides zeros, so low that a score which is added to it does not count:
    its exponential is 0 beside that of any score that is seen, and each row sees one. It may be
    -infinity. So results are the same as long as scores are finite, and no `_LOW` apart. Scores in
    half precision are widened before they are chosen from; without `halves` they stay as they are.
    """
    conditions = _Conditions(block, evaluation)
    nodes: list[Node] = []
    for node in block.nodes:
        for inner in node.blocks:
            added_masks(inner, evaluation, halves)
        nodes.append(node)
        numbers = compared_numbers(node)
        if numbers is None or numbers.type != "f32" or len(numbers.dims) < 2:
            continue
        total = numbers.operands[0] if numbers.op == "convert" else numbers
        if total.op != "add" or (total is not numbers and not halves):
            continue
        found = _scores_and_mask(total, conditions)
        if found is None:
            continue
        scores, seen, least = found
        if scores.type != numbers.type:
            wide = Node("convert", numbers.results, [scores], numbers.instruction)
            nodes.insert(nodes.index(numbers), wide)
            scores = wide
        condition = Node("constant", [("pred", numbers.dims)], [], value=seen)
        numbers.op = "select"
        numbers.operands = [condition, scores, uniform(least, numbers)]
    block.nodes = nodes


def _scores_and_mask(total: Node, conditions: _Conditions) -> tuple[Node, Array, float] | None:
    """The scores to which a known mask is added, which of them are seen, and the number that is
    added to others; None of other sums."""
    for scores, mask in (total.operands, total.operands[::-1]):
        added = conditions.value(mask)
        if added is None or added.shape != total.dims or scores.op == "constant":
            continue
        own = added[_once(added)]
        seen = own == 0
        hidden = own[~seen]
        if not hidden.size or (hidden != hidden[0]).any() or not hidden[0] <= _LOW:
            return None
        if np.isfinite(hidden[0]) and not np.broadcast_to(seen, added.shape).any(-1).all():
            return None
        if seen[_once(seen)].nbytes > STORED:
            return None
        return scores, np.broadcast_to(seen, added.shape), float(hidden[0])
    return None


_LOW = -1e9
"""Numbers that are added to scores which are not to count are not above it."""


def _known_choices(
    block: Block, choices: set[Node], evaluation: Evaluation
) -> Iterator[tuple[Node, Array, bool]]:
    """Choices between a tensor and one number, whether they take the first of both for each
    element, and whether that is the number."""
    conditions = _Conditions(block, evaluation)
    for node in block.nodes:
        for inner in node.blocks:
            yield from _known_choices(inner, choices, evaluation)
        if node not in choices or len(node.dims) < 2:
            continue
        condition, *others = node.operands
        numbers = [one.op == "constant" and is_uniform(one.value) for one in others]
        if numbers.count(True) != 1:
            continue
        taken = conditions.value(condition)
        if taken is not None and taken.shape == node.dims:
            yield node, taken, numbers[0]


def _behind_last(visible: Array) -> Array:
    """How many elements of each row there are up to the last one that is true."""
    small = visible[_once(visible)]
    count = visible.shape[-1]
    if small.shape[-1] < count:
        found = np.where(small[..., 0], count, 0)
    else:
        found = np.where(small.any(-1), count - np.argmax(small[..., ::-1], -1), 0)
    return np.broadcast_to(found, visible.shape[:-1])


def _once(array: Array) -> tuple[slice, ...]:
    """The part of an array of which all others are repetitions."""
    return tuple(slice(0, 1) if step == 0 else slice(None) for step in array.strides)


class _Conditions:
    """Values that are made of positions and constants alone. What repeats along a dimension is
    computed once there."""

    def __init__(self, block: Block, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.known: dict[Node, Array | None] = {}
        self.steps: dict[Node, int] = {}
        """Nodes that are made of positions and constants, in how many steps."""
        for node in block.nodes:
            self.steps.update((one, 0) for one in (node, *node.operands) if one.op in _SOURCES)
            if node.operands and self.steps.keys() >= {*node.operands} and _is_taken(node):
                self.steps[node] = 1 + max(self.steps[one] for one in node.operands)

    def value(self, node: Node) -> Array | None:
        """The value of a node, None of one that data decide, or that takes many steps."""
        if self.steps.get(node, _STEPS) >= _STEPS:
            return None
        if node not in self.known:
            self.known[node] = self._computed(node)
        return self.known[node]

    def _computed(self, node: Node) -> Array | None:
        values = [self.value(operand) for operand in node.operands]
        arrays = [value for value in values if value is not None]
        if len(arrays) < len(values):
            return None
        if node.op in _VIEWS:
            copied = node.op == "reshape" and math.prod(node.dims) > MOST
            return None if copied else _VIEWS[node.op](node, arrays)
        if any(array.shape != node.dims for array in arrays):
            return None
        parts = [_once(array) for array in arrays]
        several = [
            any(part[axis] == slice(None) for part in parts) for axis in range(len(node.dims))
        ]
        if np.prod([size for size, own in zip(node.dims, several) if own]) > MOST:
            return None
        own = tuple(slice(None) if one else slice(0, 1) for one in several)
        item, row = node.instruction, operator(node.op)
        assert item is not None
        with np.errstate(all="ignore"):
            small = row.evaluate(item, [array[own] for array in arrays], self.evaluation)
        return np.broadcast_to(np.asarray(small), node.dims)


def _constant(node: Node, operands: Sequence[Array]) -> Array:
    return np.asarray(node.value)


def _positions(node: Node, operands: Sequence[Array]) -> Array:
    """Positions along a dimension, which repeat along the others."""
    assert node.instruction is not None
    axis = node.instruction.attribute("dimensions")[0]
    shape = [size if at == axis else 1 for at, size in enumerate(node.dims)]
    numbers = np.arange(node.dims[axis], dtype=node.instruction.shape.numpy_dtype())
    return np.broadcast_to(numbers.reshape(shape), node.dims)


def _repeated(node: Node, operands: Sequence[Array]) -> Array:
    """An array that repeats along the dimensions that it does not have."""
    assert node.instruction is not None
    (array,) = operands
    own = (step if size > 1 else 0 for size, step in zip(array.shape, array.strides))
    steps = dict(zip(node.instruction.attribute("dimensions"), own))
    strides = [steps.get(axis, 0) for axis in range(len(node.dims))]
    return np.lib.stride_tricks.as_strided(array, node.dims, strides, writeable=False)


def _reshaped(node: Node, operands: Sequence[Array]) -> Array:
    """An array in another shape."""
    (array,) = operands
    return array.reshape(node.dims)


_VIEWS: dict[str, Callable[[Node, Sequence[Array]], Array]] = {
    "constant": _constant,
    "iota": _positions,
    "broadcast": _repeated,
    "reshape": _reshaped,
}
"""How to compute what is no element-wise operation: nearly all of them repeat few elements."""

_SOURCES = frozenset({"constant", "iota"})

_STEPS = 64
"""Steps that a condition takes at most."""


def _is_taken(node: Node) -> bool:
    """Whether an operation is computed here."""
    item = node.instruction
    if item is None or item.opcode != node.op or 0 in node.dims or len(node.results) != 1:
        return False
    return operator(node.op).elementwise or node.op in _VIEWS
