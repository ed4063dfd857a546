"""Sums of exponentials as divisors: what is known of them spares work.

Of exponentials of numbers less the largest of them, one is 1 and none is larger. So their sum lies
between 1 and how many there are, and its reciprocal is an ordinary number. Where some number is not
finite, the sum may be no number, and the reciprocal then is none either.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.simplify import element_of


class Softmax(NamedTuple):
    """Exponentials of `numbers` less the `largest` of them, and their `total`: both reductions."""

    total: Node
    largest: Node
    numbers: Node


def is_softmax_divisor(node: Node) -> bool:
    """Whether each element of a node is a sum of exponentials, of which the largest is 1."""
    return softmax_of_divisor(node) is not None


def softmax_of_divisor(node: Node) -> Softmax | None:
    """What a node has the sums of; None where an element is no such sum, or no larger one of it
    and of a number up to 1."""
    total = _as_it_is(node, _SPREAD)
    total = total and _without(total, "maximum", lambda least: bool(np.all(least <= 1)))
    exponentials = total and _folded(total, "add")
    value = exponentials and _as_it_is(exponentials, _CONVERTED)
    if total is None or value is None or value.op not in EXPONENTIALS:
        return None
    (difference,) = value.operands
    if difference.op not in _DIFFERENCES:
        return None
    numbers, spread = difference.operands
    found = repeated_along(spread, total)
    most = found and _without_least(found)
    if most is None:
        return None
    if difference.op == "add":
        numbers, factor = _scaled(numbers)
        most, opposite = _scaled(most)
        if factor is None or opposite is None or factor != -opposite:
            return None
    if _folded(most, "maximum") is not numbers or axes_of(most) != axes_of(total):
        return None
    return Softmax(total, most, numbers)


def factors_behind_maxima(block: Block) -> None:
    """Scores are compared before they are scaled: the scalar engine scales them with its function.

    Before: `y = x * c`, or a choice of that and a number, and `exp(y - max(y))`; after: `exp(x * c
    + max(x) * -c)`, where c is positive. Rounding keeps the order of numbers, so the largest is the
    same one. A number that is chosen is divided by c, if the quotient or a neighbour of it, times
    c, is the number again. So is one that is so far from zero that no exponential tells whether it
    was rounded.
    """
    uses = block.uses()
    added: dict[Node, list[Node]] = {}
    replaced: dict[Node, Node] = {}
    for node in block.nodes:
        for inner in node.blocks:
            factors_behind_maxima(inner)
        if node.op in EXPONENTIALS and uses.get(node.operands[0]) == 1:
            (difference,) = node.operands
            found = _of_unscaled(difference, uses) if difference.op == "subtract" else None
            if found is not None:
                added[difference] = found
                replaced[difference] = found[-1]
    if not replaced:
        return
    nodes = []
    for node in block.nodes:
        nodes += added.get(node, [node])
        node.operands = [replaced.get(operand, operand) for operand in node.operands]
    block.nodes = nodes


def compared_choices(block: Block) -> set[Node]:
    """Choices in fp32, of a block and those inside of it, whose largest number is sought: what
    compares while it chooses is not to choose again for others."""
    found: set[Node] = set()
    for node in block.nodes:
        for inner in node.blocks:
            found |= compared_choices(inner)
        numbers = compared_numbers(node)
        if numbers is not None and numbers.op == "select" and numbers.type == _SINGLE:
            found.add(numbers)
    return found


def compared_numbers(node: Node) -> Node | None:
    """The numbers whose largest one a node seeks; None of other nodes."""
    return _folded(node, "maximum")


def _of_unscaled(difference: Node, uses: dict[Node, int]) -> list[Node] | None:
    """The difference of scaled numbers and the largest of them, from what is not scaled yet: the
    nodes that it takes; None of other differences."""
    numbers, largest = difference.operands
    if difference.type != _SINGLE or uses.get(numbers) != 2:
        return None
    links = []
    most = largest
    while most.op in _SPREAD or most.op == "maximum":
        links.append(most)
        source = most.operands[0] if most.op in _SPREAD else _without_least(most)
        if uses.get(most) != 1 or source is most:
            return None
        most = source
    if uses.get(most) != 1 or _folded(most, "maximum") is not numbers:
        return None
    made: list[Node] = []
    scaled = _before_factor(numbers, uses, made)
    if scaled is None:
        return None
    plain, factor = scaled
    if factor > 1 and np.all(most.operands[1].value == LOWEST):
        return None  # which times the factor is no number
    form = [(_SINGLE, numbers.dims)]
    again = Node("multiply", form, [plain, uniform(factor, numbers)], numbers.instruction)
    reduced = Node("reduce", most.results, [plain, most.operands[1]], most.instruction)
    opposite = Node("multiply", most.results, [reduced, uniform(-factor, most)], most.instruction)
    made += [again, reduced, opposite]
    for link in reversed(links):
        if link.op in _SPREAD:
            opposite = Node(link.op, link.results, [opposite], link.instruction)
            made.append(opposite)
    return [*made, Node("add", form, [again, opposite], difference.instruction)]


def _before_factor(
    node: Node, uses: dict[Node, int], made: list[Node]
) -> tuple[Node, float] | None:
    """What a node is the product of with a positive number, of which it may choose, and the number;
    None of others. Nodes that this takes are `made`."""
    if node.op == "select" and node.type == _SINGLE:
        return _choice_before_factor(node, uses, made)
    if node.op in _CONVERTED and node.type == _SINGLE and uses.get(node.operands[0]) == 1:
        (narrow,) = node.operands
        plain, factor = _scaled(narrow)
        if factor is None or narrow.type not in _FLOATS or math.frexp(factor)[0] != _HALF:
            return None
        made.append(Node("convert", node.results, [plain], node.instruction))
        return made[-1], factor
    plain, factor = _scaled(node)
    return (plain, factor) if factor is not None and factor > 0 and node.type == _SINGLE else None


def _choice_before_factor(
    node: Node, uses: dict[Node, int], made: list[Node]
) -> tuple[Node, float] | None:
    """The same of a choice between numbers and one number."""
    condition, *others = node.operands
    numbers = [number_of(one) for one in others]
    if numbers.count(None) != 1:
        return None
    at = numbers.index(None)
    least = numbers[1 - at]
    found = _before_factor(others[at], uses, made) if uses.get(others[at]) == 1 else None
    if found is None or least is None:
        return None
    plain, factor = found
    with np.errstate(over="ignore"):
        near = np.float32(least) / np.float32(factor)
        around = [near, np.nextafter(near, np.float32(0)), np.nextafter(near, 2 * near)]
        fitting = [one for one in around if one * np.float32(factor) == np.float32(least)]
    apart = abs(least) >= _APART and math.isfinite(near)
    if not fitting and not apart:
        return None
    others[at], others[1 - at] = plain, uniform(float([*fitting, near][0]), node)
    made.append(Node("select", node.results, [condition, *others], node.instruction))
    return made[-1], factor


def _scaled(node: Node) -> tuple[Node, float | None]:
    """What a node multiplies by one number, and the number; of others the node, and None."""
    if node.op in _FACTORS and node.type in _FLOATS:
        first, second = node.operands
        factor = number_of(second)
        if factor is not None and (node.op == "multiply" or math.frexp(factor)[0] == _HALF):
            return first, factor if node.op == "multiply" else 1 / factor
        factor = number_of(first)
        if factor is not None and node.op == "multiply":
            return second, factor
    return node, None


def number_of(node: Node) -> float | None:
    """The number that all elements of a constant are; None of others."""
    value = element_of(node)
    return None if value is None else float(value)


def uniform(number: float, like: Node) -> Node:
    """A constant of one number, of another node's form."""
    value = np.broadcast_to(np.float32(number), like.dims)
    return Node("constant", [(_SINGLE, like.dims)], [], value=value)


_SINGLE = "f32"
_APART = 2.0**40
"""From here on fp32 numbers are 2**17 apart at least; exponentials of less than -104 are 0."""

_HALF = 0.5
"""The significand of a positive power of two, as `frexp` has it."""

_FACTORS = frozenset({"multiply", "divide"})


def _without_least(node: Node) -> Node:
    """A node, or what it is the maximum of and of no more than -infinity."""
    return _without(node, "maximum", lambda least: bool(np.all(least == -np.inf)))


def _without(node: Node, opcode: str, is_neutral: Callable[[Any], bool]) -> Node:
    """A node, or what it is an operation of and of constants of some kind."""
    while node.op == opcode:
        neutral = [one.op == "constant" and is_neutral(one.value) for one in node.operands]
        if True not in neutral:
            return node
        node = node.operands[neutral.index(False)] if False in neutral else node.operands[0]
    return node


_DIFFERENCES = frozenset({"add", "subtract"})
EXPONENTIALS = frozenset({"exponential"})
_CONVERTED = frozenset({"convert"})
_SPREAD = frozenset({"convert", "reshape", "broadcast"})
"""Opcodes whose results have no other numbers than their operand, but for rounding."""


def _as_it_is(node: Node, through: frozenset[str]) -> Node | None:
    """What a node is made of by some opcodes that keep floats; None where a float becomes none."""
    while node.op in through:
        if node.type not in _FLOATS:
            return None
        (node,) = node.operands
    return node


_FLOATS = frozenset({"f32", "bf16"})
"""Types in which sums of any length are finite."""


def _folded(node: Node, opcode: str) -> Node | None:
    """What a node reduces by an opcode, behind that opcode's identity, or of the largest one behind
    the lowest finite number; None of other nodes."""
    if node.op != "reduce" or len(node.operands) != 2 or node.type not in _FLOATS:
        return None
    assert node.instruction is not None
    value, initial = node.operands
    if initial.op != "constant" or binary_opcode(node.instruction.called[0]) != opcode:
        return None
    return value if np.isin(initial.value, _BEGINNINGS[opcode]).all() else None


LOWEST = float(np.finfo(np.float32).min)
_BEGINNINGS = {"add": (0.0,), "maximum": (-np.inf, LOWEST)}


def repeated_along(node: Node, like: Node) -> Node | None:
    """What a node repeats along the dimensions that a reduction of an array of its form reduces;
    None where it does not."""
    while node.op == "reshape":
        (node,) = node.operands
    if node.op != "broadcast" or node.instruction is None:
        return None
    (source,) = node.operands
    axes = node.instruction.attribute("dimensions")
    places = [axis for axis, size in zip(axes, source.dims) if size > 1]
    reduced = axes_of(like)
    kept = [axis for axis, size in enumerate(node.dims) if axis not in reduced and size > 1]
    while source.op == "reshape":
        (source,) = source.operands
    return source if places == kept and node.dims == like.operands[0].dims else None


def axes_of(node: Node) -> list[int]:
    """The dimensions that a reduction reduces."""
    assert node.instruction is not None
    return sorted(node.instruction.attribute("dimensions"))
