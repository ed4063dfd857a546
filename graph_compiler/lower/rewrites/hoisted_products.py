"""Products of what a loop goes through come before the loop, for all iterations at a time.

A recurrent layer multiplies the input of each step by weights: few rows, by which the tensor engine
is as busy as by 128. Before, in a loop of 32 iterations: `x = f32[8,64] reshape(dynamic-slice(xs,
i, 0, 0)); y = f32[8,256] dot(x, w)`; after: `ys = f32[32,8,256] dot(xs, w)` before the loop, and in
it `y = f32[8,256] reshape(dynamic-slice(ys, i, 0, 0))`. Of a product of parts side by side, as
`dot(concatenate(x, h), w)`, those parts come before the loop: `dot(h, w's rows of h) + y`. What
the loop adds to such a sum and does not change, a bias, is part of `ys` then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.expansions.expansions import Text, braces
from graph_compiler.lower.rewrites.trips import constant_integer, count_of_trips
from graph_compiler.lower.rewrites.written import written
from graph_compiler.schedule.nodes import Block, Node
from isa.enums import Engine
from isa.target import Target

_ROWS = 128
"""Rows, and elements of the depth, by which the tensor engine multiplies at a time."""

_REAL = frozenset({"f32", "bf16", "f16"})
_MOVED = frozenset({"convert", "reshape", "transpose", "slice", "broadcast"})
"""Operations of weights that come before the loop with the product."""

_SUM = "add"


def hoist_products(block: Block, target: Target) -> None:
    """Do so in a block and those inside of it, where the tensor engine saves more than what storing
    and loading the results takes."""
    nodes: list[Node] = []
    for node in block.nodes:
        for inner in node.blocks:
            hoist_products(inner, target)
        if node.op == "while" and (count := count_of_trips(node)) is not None:
            _Loop(node, count.trips, target, nodes).run()
        nodes.append(node)
    block.nodes = nodes


class _Slice(NamedTuple):
    """The part of an array that the loop does not change which an iteration reads: that with one
    index along its first dimension, as another type."""

    array: Node
    starts: list[Node]
    type: str


@dataclass
class _Loop:
    """A loop with so many trips; what comes before it is added to `before`."""

    node: Node
    trips: int
    target: Target
    before: list[Node]

    def run(self) -> None:
        body = self.node.blocks[0]
        pairs = zip(body.parameters, body.results, self.node.operands)
        self.fixed = {own: operand for own, result, operand in pairs if own is result}
        self.uses = body.uses()
        nodes, body.nodes = body.nodes, []
        self.sums = self._sums(nodes)
        replaced: dict[Node, Node] = {}
        for node in nodes:
            if node in replaced:
                continue
            node.operands = [replaced.get(operand, operand) for operand in node.operands]
            new = self._replaced(node) if node.op == "dot" and node in self.uses else None
            if new is None:
                body.nodes.append(node)
            else:
                replaced[node] = replaced[self.sums.get(node, (node,))[0]] = new
        body.results = [replaced.get(result, result) for result in body.results]

    def _sums(self, nodes: list[Node]) -> dict[Node, tuple[Node, Node]]:
        """Products that only a sum with what the loop does not change reads: the sum, and that."""
        found = {}
        for node in nodes:
            if node.op != _SUM or node.type != "f32":
                continue
            for one, other in (node.operands, node.operands[::-1]):
                if one.op == "dot" and self.uses.get(one) == 1 and self._outside(other, make=False):
                    found[one] = node, other
        return found

    def _replaced(self, node: Node) -> Node | None:
        """What a product is in the loop, if it or a part of it comes before; None: it stays."""
        numbers = None if node.instruction is None else _plain_numbers(node)
        if numbers is None or node.type not in _REAL:
            return None
        left, right = node.operands
        if self._outside(right, make=False) is None:
            return None
        depth, _ = numbers
        found = self._slice(left)
        if found is not None:
            if not self._pays(node, left.dims[depth], node.type):
                return None
            bias = self._bias(node)
            product = self._product(node, found, right, numbers, node.type, bias)
            return self._read(product, found, node)
        if left.op == "concatenate" and left.instruction is not None:
            if [*left.instruction.attribute("dimensions")] == [depth]:
                return self._in_parts(node, numbers)
        return None

    def _in_parts(self, node: Node, numbers: tuple[int, int]) -> Node | None:
        """A product of parts side by side, where those come before the loop that may."""
        (left, right), (depth, down) = node.operands, numbers
        first = 0
        rest: list[tuple[Node, int]] = []
        early: list[tuple[_Slice, int, int]] = []
        for part in left.operands:
            size = part.dims[depth]
            found = self._slice(part)
            if found is not None and self._pays(node, size, "f32"):
                early.append((found, first, size))
            else:
                rest.append((part, first))
            first += size
        if not early or not rest:
            return None
        nodes = self.node.blocks[0].nodes
        parts = [part for part, _ in rest]

        def inside(text: Text) -> str:
            *sides, whole = text.operands
            rows = [_rows(text, whole, down, at, one.dims[depth]) for one, at in rest]
            weights = text.concatenate(rows, down) if len(rows) > 1 else rows[0]
            data = text.concatenate(sides, depth) if len(sides) > 1 else sides[0]
            return _dot(text, data, weights, numbers, "f32")

        values = []
        bias = self._bias(node)
        for found, start, size in early:
            weights = self._weights(node, right, down, start, size)
            product = self._product(node, found, weights, numbers, "f32", bias)
            bias = None
            values.append(self._read(product, found, node))
        total = written([*parts, right], nodes, node, inside)
        for value in values:
            total = written([total, value], nodes, node, lambda t: t.apply(_SUM, *t.operands))
        if node.type == "f32":
            return total
        return written([total], nodes, node, lambda t: t.convert(t.operands[0], node.type))

    def _weights(self, node: Node, right: Node, down: int, start: int, size: int) -> Node:
        """Some rows of weights, for what is in the loop."""
        nodes = self.node.blocks[0].nodes
        return written(
            [right], nodes, node, lambda text: _rows(text, text.operands[0], down, start, size)
        )

    def _slice(self, node: Node) -> _Slice | None:
        """What an operand reads of an array, if that is one step of it."""
        type = node.type
        if node.op == "convert" and node.operands[0].type in _REAL:
            (node,) = node.operands
        if node.op != "reshape" or node.operands[0].op != "dynamic-slice":
            return None
        array, *starts = node.operands[0].operands
        same = node.operands[0].dims == (1, *node.dims) and array.dims[1:] == node.dims
        whole = all(constant_integer(start) == 0 for start in starts[1:])
        if not same or not whole or array not in self.fixed or array.type not in _REAL:
            return None
        return _Slice(array, starts, type) if array.dims[0] <= self.trips else None

    def _pays(self, node: Node, depth: int, type: str) -> bool:
        """Whether the tensor engine saves more than it takes to store and to load the results."""
        size = PRIMITIVE_TYPES[type].bits // 8
        columns = node.dims[-1] if node.dims else 1
        rows = math.prod(node.dims[:-1])
        single = any(operand.type == "f32" for operand in node.operands)
        passes = self.target.fp32_matmul_passes.value if single else 1
        clock = self.target.clock_ghz(Engine.tensor)
        each = -(-depth // _ROWS) * columns * passes / clock
        saved = each * (self.trips * -(-rows // _ROWS) - -(-self.trips * rows // _ROWS))
        moved = 2 * self.trips * rows * columns * size / self.target.dma_bytes_per_ns
        return bool(saved > moved)

    def _outside(self, node: Node, make: bool = True) -> Node | None:
        """What a node is before the loop, where that is the same in each iteration."""
        if node in self.fixed:
            return self.fixed[node]
        if node.op == "constant":
            return node
        if node.op not in _MOVED or node.instruction is None:
            return None
        inner = self._outside(node.operands[0], make)
        if inner is None or not make:
            return inner
        made = Node(node.op, node.results, [inner], node.instruction)
        self.before.append(made)
        return made

    def _bias(self, node: Node) -> Node | None:
        """What is added to a product before the loop, if there is something."""
        return self._outside(self.sums[node][1]) if node in self.sums else None

    def _product(
        self,
        node: Node,
        found: _Slice,
        right: Node,
        numbers: tuple[int, int],
        type: str,
        bias: Node | None,
    ) -> Node:
        """The product of all steps, and a bias, as something that the loop does not change."""
        depth, down = numbers
        weights = self._outside(right)
        assert weights is not None

        def product(text: Text) -> str:
            data, other, *more = text.operands
            data = text.convert(data, found.type)
            total = _dot(text, data, other, (1 + depth, down), type)
            for name in more:
                dims = text.dims(total)
                total = text.apply(_SUM, total, text.spread(name, dims, range(1, len(dims))))
            return total

        given = [self.fixed[found.array], weights, *([] if bias is None else [bias])]
        return self._carried(written(given, self.before, node, product))

    def _carried(self, operand: Node) -> Node:
        """A new parameter of the loop, which it does not change."""
        form = operand.type, operand.dims
        body, condition = self.node.blocks
        for block in (body, condition):
            parameter = Node("parameter", [form], [], operand.instruction, len(block.parameters))
            block.parameters.append(parameter)
        own = body.parameters[-1]
        body.results.append(own)
        self.node.operands.append(operand)
        self.node.results.append(form)
        self.fixed[own] = operand
        return own

    def _read(self, array: Node, found: _Slice, node: Node) -> Node:
        """The step of an array that goes with a slice."""
        starts = [found.starts[0], *([found.starts[-1]] * (len(array.dims) - 1))]

        def read(text: Text) -> str:
            sizes = [1, *array.dims[1:]]
            more = f"dynamic_slice_sizes={braces(sizes)}"
            part = text.add(array.type, sizes, "dynamic-slice", text.operands, more)
            return text.reshape(part, array.dims[1:])

        return written([array, *starts], self.node.blocks[0].nodes, node, read)


def _plain_numbers(node: Node) -> tuple[int, int] | None:
    """The dimensions that a product of two operands without a batch sums over."""
    assert node.instruction is not None
    numbers: Any = node.instruction.attribute("dot_dimension_numbers")
    depth, down = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    if len(depth) != 1 or numbers.lhs_batch_dimensions:
        return None
    return depth[0], down[0]


def _rows(text: Text, name: str, axis: int, start: int, size: int) -> str:
    """Some elements along a dimension."""
    parts = [(0, count, 1) for count in text.dims(name)]
    parts[axis] = start, start + size, 1
    return text.slice(name, parts)


def _dot(text: Text, left: str, right: str, numbers: tuple[int, int], type: str) -> str:
    """A product without a batch."""
    depth, down = numbers
    free = _without(text.dims(left), depth) + _without(text.dims(right), down)
    more = f"lhs_contracting_dims={{{depth}}}, rhs_contracting_dims={{{down}}}"
    return text.add(type, free, "dot", [left, right], more)


def _without(dims: Sequence[int], axis: int) -> list[int]:
    return [size for place, size in enumerate(dims) if place != axis]
