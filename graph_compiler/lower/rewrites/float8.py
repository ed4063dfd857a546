"""f8e4m3fn on targets that do not have it: its numbers are computed as bf16, which holds them all.

Those targets have f8e4m3, whose codes mean the same below 256 in size; above, it has infinities and
NaN where f8e4m3fn goes on to 448 (OCP 8-bit floating point; IEEE 754 style f8e4m3). Twice the
number that a code one exponent lower means is what f8e4m3fn has there. So bytes, and roundings,
pass through f8e4m3, and results are those of f8e4m3fn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_compiler.hlo.graph import Instruction
from graph_compiler.hlo.types import PRIMITIVE_TYPES, Shape
from graph_compiler.schedule.nodes import Block, Node, NodeForm
from graph_compiler.schedule.views import MOVES

FLOAT8 = "f8e4m3fn"
_CODES, _NUMBERS, _HELD = "u8", "bf16", "f8e4m3"

_EXPONENT = 8
"""What one exponent is in a code."""

_FIRST_OTHER = 0x78
"""The first code, without its sign, that f8e4m3 has for no number."""

_NOT_A_NUMBER = 0x7F
_SMALL = 128.0
"""Numbers of this size on are rounded by halves: f8e4m3 has them, and half of the largest."""

_LARGEST = 464.0
"""What is larger is rounded to no number."""

CHOSEN = frozenset(
    {
        *MOVES,
        *("select", "concatenate", "pad", "dynamic-slice", "dynamic-update-slice", "gather"),
        *("maximum", "minimum", "clamp", "negate", "abs", "while", "conditional", "pick"),
    }
)
"""Opcodes whose results are among the numbers of the operands, up to the sign."""


def emulate(block: Block) -> None:
    """Give values of f8e4m3fn other types, in a block and those within it.

    Parameters and results of the graph become their codes, of type u8. Before:
    `r = f8e4m3fn convert(x)`; after: `r = bf16 select(...)`, x rounded to numbers of f8e4m3fn.
    """
    _Emulation(block).run(outermost=True)


class _Emulation:
    """What a block's values of f8e4m3fn are instead."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.nodes: list[Node] = []
        self.instead: dict[Node, Node] = {}

    def run(self, outermost: bool) -> None:
        given = self.block.nodes
        for parameter in self.block.parameters:
            if parameter.type == FLOAT8:
                _retype(parameter, _CODES if outermost else _NUMBERS)
                if outermost:
                    self.instead[parameter] = self.decoded(parameter)
        for node in given:
            for inner in node.blocks:
                _Emulation(inner).run(outermost=False)
            bits = node.op in _BITS
            taken = [self.is_float8(operand) for operand in node.operands]
            node.operands = [self.value(operand) for operand in node.operands]
            if bits and any(taken):
                node.operands = [self.encoded(operand) for operand in node.operands]
            self.placed(node, bits)
        self.block.results = [
            self.encoded(self.value(result))
            if outermost and self.is_float8(result)
            else self.value(result)
            for result in self.block.results
        ]
        self.block.nodes = self.nodes

    def placed(self, node: Node, bits: bool) -> None:
        """The node, of another type where its results have f8e4m3fn, and what follows from it."""
        if all(type != FLOAT8 for type, _ in node.results):
            self.nodes.append(node)
        elif bits:
            _retype(node, _CODES)
            self.nodes.append(node)
            self.instead[node] = self.decoded(node)
        elif node.op in CHOSEN:
            _retype(node, _NUMBERS)
            self.nodes.append(node)
            self.instead[node] = node
        else:
            _retype(node, "f32")
            self.nodes.append(node)
            self.instead[node] = self.rounded(node)

    def is_float8(self, node: Node) -> bool:
        return node in self.instead or node.type == FLOAT8

    def value(self, node: Node) -> Node:
        if node.op == _CONSTANT and node.type == FLOAT8 and node not in self.instead:
            array = node.value.astype(PRIMITIVE_TYPES[_NUMBERS].numpy)
            self.instead[node] = Node("constant", [(_NUMBERS, node.dims)], [], value=array)
        return self.instead.get(node, node)

    def rounded(self, x: Node) -> Node:
        """fp32 numbers as the nearest of f8e4m3fn, ties to even."""
        size = self.new("abs", "f32", x)
        far = self.compared(size, "GE", _SMALL)
        near = self.new("select", "f32", far, self.new("multiply", "f32", x, full(x, 0.5)), x)
        found = self.doubled(self.new("convert", _HELD, near), far)
        return self.without(found, self.compared(size, "GT", _LARGEST))

    def decoded(self, codes: Node) -> Node:
        """The numbers that codes mean."""
        whole = self.new("convert", "s32", codes)
        size = self.new("and", "s32", whole, full(whole, 0x7F))
        far = self.compared(size, "GE", _FIRST_OTHER)
        lower = self.new("subtract", "s32", whole, full(whole, _EXPONENT))
        code = self.new("convert", _CODES, self.new("select", "s32", far, lower, whole))
        found = self.doubled(self.new("bitcast-convert", _HELD, code), far)
        return self.without(found, self.compared(size, "EQ", _NOT_A_NUMBER))

    def encoded(self, numbers: Node) -> Node:
        """The codes of numbers of f8e4m3fn."""
        x = self.new("convert", "f32", numbers)
        far = self.compared(self.new("abs", "f32", x), "GE", 2 * _SMALL)
        near = self.new("select", "f32", far, self.new("multiply", "f32", x, full(x, 0.5)), x)
        code = self.new("bitcast-convert", _CODES, self.new("convert", _HELD, near))
        whole = self.new("convert", "s32", code)
        higher = self.new("add", "s32", whole, full(whole, _EXPONENT))
        chosen = self.new("select", "s32", far, higher, whole)
        none = self.compared(x, "NE", x)
        chosen = self.new("select", "s32", none, full(whole, _NOT_A_NUMBER), chosen)
        return self.new("convert", _CODES, chosen)

    def doubled(self, held: Node, far: Node) -> Node:
        """Numbers of f8e4m3 as fp32, twice those that are far."""
        x = self.new("convert", "f32", held)
        return self.new("select", "f32", far, self.new("add", "f32", x, x), x)

    def without(self, x: Node, none: Node) -> Node:
        """Numbers as bf16, NaN where there is none."""
        return self.new("convert", _NUMBERS, self.new("select", "f32", none, full(x, np.nan), x))

    def compared(self, x: Node, relation: str, other: Node | float) -> Node:
        second = other if isinstance(other, Node) else full(x, other)
        shape = Shape("pred", x.dims)
        item = Instruction("compare", shape, attributes={"comparison_direction": relation})
        node = Node("compare", [("pred", x.dims)], [x, second], item)
        self.nodes.append(node)
        return node

    def new(self, op: str, type: str, *operands: Node) -> Node:
        node = Node(op, [(type, operands[-1].dims)], list(operands))
        self.nodes.append(node)
        return node


_BITS = frozenset({"bitcast-convert"})
_CONSTANT = "constant"


def full(like: Node, value: Any) -> Node:
    """A constant of the type and dimensions of another value."""
    array = np.broadcast_to(np.asarray(value, PRIMITIVE_TYPES[like.type].numpy), like.dims)
    return Node(_CONSTANT, [(like.type, like.dims)], [], value=array)


def _retype(node: Node, type: str) -> None:
    node.results = [_typed(form, type) for form in node.results]
    if len(node.results) == 1:
        node.type = node.results[0][0]


def _typed(form: NodeForm, type: str) -> NodeForm:
    return (type, form[1]) if form[0] == FLOAT8 else form
