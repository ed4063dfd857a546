"""Sums of products over the iterations of a loop come behind it, as one product of all of them.

The gradient of a recurrent layer's weights is such a sum. Before, in a loop of 32 iterations: `x =
f32[8,64] reshape(dynamic-slice(xs, i, 0, 0)); total = f32[256,64] add(total, dot(g, x))` over the 8
rows, for which the whole sum goes through memory each time; after: the loop stores each g in
`gs = f32[32,8,256]`, and behind it `total = f32[256,64] add(first, dot(gs, xs))` is over 256 rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Text
from graph_compiler.lower.rewrites.trips import Count, constant_integer, count_of_trips
from graph_compiler.lower.rewrites.written import written
from graph_compiler.schedule.nodes import Block, Node

_SINGLE = "f32"
_REAL = frozenset({"f32", "bf16", "f16"})
_SUM, _PRODUCT, _TURNED = "add", "dot", "transpose"


def sum_behind_loops(block: Block) -> None:
    """Do so in a block and those inside of it, where what a loop stores for it is less than the
    sum."""
    nodes: list[Node] = []
    renamed: dict[Node, Node] = {}
    for node in block.nodes:
        for inner in node.blocks:
            sum_behind_loops(inner)
        node.operands = [renamed.get(operand, operand) for operand in node.operands]
        nodes.append(node)
        count = count_of_trips(node) if node.op == "while" else None
        if count is not None and len(node.results) > 1 and count.trips > 1:
            sums = _Loop(node, count, nodes).run()
            picks = [one for one in block.nodes if one.op == "pick" and one.operands[0] is node]
            renamed |= {pick: sums[pick.value] for pick in picks if pick.value in sums}
    block.nodes = nodes
    block.results = [renamed.get(result, result) for result in block.results]


class _Addend(NamedTuple):
    """A product that each iteration adds to the number `place` of what a loop carries, exchanged
    (`turned`) or as it is."""

    place: int
    product: Node
    turned: bool


@dataclass
class _Loop:
    """A loop, and the nodes up to it, to which what comes behind it is added."""

    node: Node
    count: Count
    behind: list[Node]
    stored: dict[Node, Node] = field(default_factory=dict)

    def run(self) -> dict[int, Node]:
        """The sums that are made behind the loop, by their places among its results."""
        self.body, self.condition = self.node.blocks
        pairs = zip(self.body.parameters, self.body.results, self.node.operands)
        self.fixed = {own: operand for own, result, operand in pairs if own is result}
        self.uses = self.body.uses()
        found = [self._addend(place) for place in range(len(self.body.results))]
        sums = {}
        for one in found:
            total = None if one is None else self._total(one)
            if one is not None and total is not None:
                self.body.results[one.place] = self.body.parameters[one.place]
                sums[one.place] = total
        return sums

    def _addend(self, place: int) -> _Addend | None:
        """What a loop adds to something that it carries, if it does nothing else with that."""
        own, result = self.body.parameters[place], self.body.results[place]
        if result.op != _SUM or result.type != _SINGLE or own not in result.operands:
            return None
        if self.condition.uses().get(self.condition.parameters[place]):
            return None
        value = result.operands[result.operands[0] is own]
        turned = value.op == _TURNED
        product = value.operands[0] if turned else value
        if product.op != _PRODUCT or product.instruction is None or len(product.dims) != _MATRIX:
            return None
        if any(self.uses.get(one) != 1 for one in (own, result, value, product)):
            return None
        numbers = product.instruction.attribute("dot_dimension_numbers")
        depths = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
        plain = all([*axes] == [0] for axes in depths) and not numbers.lhs_batch_dimensions
        real = product.type == _SINGLE and all(one.type in _REAL for one in product.operands)
        return _Addend(place, product, turned) if plain and real else None

    def _total(self, addend: _Addend) -> Node | None:
        """The sum behind the loop; None where that takes more memory than it saves."""
        product = addend.product
        slices = [self._slice(operand) for operand in product.operands]
        starts = list(dict.fromkeys(start for _, start in filter(None, slices)))
        start = starts[0] if starts else self.body.parameters[self.count.number]
        if len(starts) > 1 or not self._is_every_step(start):
            return None
        new = [o for o, known in zip(product.operands, slices) if known is None]
        size = sum(math.prod(one.dims) for one in new if one not in self.stored)
        if size > math.prod(product.dims):
            return None
        stacks = [
            self._stored(operand, start) if known is None else self.fixed[known[0]]
            for operand, known in zip(product.operands, slices)
        ]
        types = [operand.type for operand in product.operands]

        def total(text: Text) -> str:
            first, *sides = text.operands
            rows = [
                text.reshape(side, [math.prod(text.dims(side)[:2]), *text.dims(side)[2:]])
                for side in sides
            ]
            data = [text.convert(one, type) for one, type in zip(rows, types)]
            more = "lhs_contracting_dims={0}, rhs_contracting_dims={0}"
            value = text.add(_SINGLE, product.dims, _PRODUCT, data, more)
            return text.apply(_SUM, first, text.swapped(value) if addend.turned else value)

        operands = [self.node.operands[addend.place], *stacks]
        return written(operands, self.behind, product, total)

    def _slice(self, node: Node) -> tuple[Node, Node] | None:
        """The array that an operand is a step of, and which, if the loop does not change it and
        goes through all of it."""
        if node.op == "convert" and node.operands[0].type in _REAL:
            (node,) = node.operands
        if node.op != "reshape" or node.operands[0].op != "dynamic-slice":
            return None
        array, start, *others = node.operands[0].operands
        same = array.dims == (self.count.trips, *node.dims) and array.type in _REAL
        whole = all(constant_integer(other) == 0 for other in others)
        return (array, start) if same and whole and array in self.fixed else None

    def _is_every_step(self, start: Node) -> bool:
        """Whether an index is each number below the trips once, from either end."""
        if self.count.first or self.count.step != 1:
            return False
        return self._of_count(start) in ((1, 0), (-1, self.count.trips - 1))

    def _of_count(self, node: Node) -> tuple[int, int] | None:
        """An index as a multiple of the count, and a number."""
        if node is self.body.parameters[self.count.number]:
            return 1, 0
        number = constant_integer(node)
        if number is not None:
            return 0, number
        if node.op not in _SIGNS:
            return None
        one, other = map(self._of_count, node.operands)
        if one is None or other is None:
            return None
        sign = _SIGNS[node.op]
        return one[0] + sign * other[0], one[1] + sign * other[1]

    def _stored(self, value: Node, start: Node) -> Node:
        """What a value of the loop is in all iterations, behind it."""
        if value in self.stored:
            return self.stored[value]
        form = value.type, (self.count.trips, *value.dims)
        zero = np.zeros((), PRIMITIVE_TYPES[value.type].numpy)
        empty = Node("constant", [form], [], value=np.broadcast_to(zero, form[1]))
        for block in (self.body, self.condition):
            number = len(block.parameters)
            block.parameters.append(Node("parameter", [form], [], value.instruction, number))
        own = self.body.parameters[-1]

        def update(text: Text) -> str:
            array, row, place, *zeros = text.operands
            row = text.reshape(row, [1, *text.dims(row)])
            operands = [array, row, place, *zeros]
            return text.add(*form, "dynamic-update-slice", operands)

        zeros = [Node("constant", [(start.type, ())], [], value=_zero(start))] * len(value.dims)
        given = [own, value, start, *zeros]
        self.body.results.append(written(given, self.body.nodes, value, update))
        self.node.operands.append(empty)
        self.node.results.append(form)
        found = Node("pick", [form], [self.node], value=len(self.node.results) - 1)
        self.behind.append(found)
        self.stored[value] = found
        return found


_MATRIX = 2
_SIGNS = {"add": 1, "subtract": -1}


def _zero(like: Node) -> np.ndarray:
    return np.zeros((), PRIMITIVE_TYPES[like.type].numpy)
