"""Module to block: calls inlined, tuples taken apart, constants folded, equal operations merged.

All of it is exact. A constant stays a NumPy view (a broadcast scalar takes one element), so that
folding a broadcast costs nothing; so does what a folded result repeats along a dimension. What is
folded otherwise has at most FOLDED elements, or LARGEST where it is looked up in a table, or where
constants as large are moved or worked on element by element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graph_compiler.evaluate import CALLS, DEPTH_LIMIT, Evaluator
from graph_compiler.hlo.operators import operator
from graph_compiler.hlo.operators.control import placeholder
from graph_compiler.hlo.operators.elementwise.binary import Binary
from graph_compiler.hlo.operators.elementwise.comparison import Clamp, Select
from graph_compiler.hlo.operators.elementwise.conversion import Convert
from graph_compiler.hlo.operators.elementwise.unary import Unary
from graph_compiler.hlo.operators.row import HloOperator
from graph_compiler.schedule.nodes import Block, Node, NodeForm
from graph_compiler.schedule.views import MOVES
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation, Instruction, Module
    from graph_compiler.hlo.types import Shape

FOLDED = 1 << 16
"""Elements of the largest result that is computed while compiling."""

LARGEST = 1 << 22
"""Elements of the largest result of a gather that is computed while compiling, or of element-wise
work on constants that large, or of moves: such as frozen weights at distances of positions."""

INLINED = 1 << 18
"""Instructions of all computations together, counted at every call, with which compiling ends."""

Parts = Any
"""A node, a tuple of parts, or None for a token."""

PURE = frozenset(
    {
        *MOVES,
        *("iota", "concatenate", "pad", "reduce", "reduce-window", "dot", "gather", "clamp"),
        "bitcast-convert",
    }
)
"""Opcodes that are not element-wise, and are merged and folded like those that are."""


def forms(shape: Shape) -> list[NodeForm]:
    """The arrays of a shape, components one after another; tokens have none."""
    if shape.is_tuple:
        return [form for part in shape.tuple_shapes for form in forms(part)]
    return [(shape.element_type, shape.dimensions)] if shape.is_array else []


def leaves(parts: Parts) -> list[Any]:
    """The nodes (or arrays) of a value, components one after another."""
    if isinstance(parts, tuple):
        return [leaf for part in parts for leaf in leaves(part)]
    return [] if parts is None else [parts]


def packed(shape: Shape, values: Sequence[Any]) -> Parts:
    """The reverse of `leaves`."""
    remaining = iter(values)

    def pack(part: Shape) -> Parts:
        if part.is_tuple:
            return tuple(pack(inner) for inner in part.tuple_shapes)
        return next(remaining) if part.is_array else None

    return pack(shape)


def is_elementwise(row: type[HloOperator]) -> bool:
    return issubclass(row, (Unary, Binary, Select, Clamp, Convert))


def is_uniform(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array is one element, repeated."""
    return all(stride == 0 or size == 1 for size, stride in zip(array.shape, array.strides))


def only_element(array: np.ndarray[Any, Any]) -> Any:
    """The element that an array repeats; None of others, and of empty ones."""
    return array[(0,) * array.ndim] if array.size and is_uniform(array) else None


def _repeating(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array as a view of itself with one element along dimensions along which all are equal."""
    if array.dtype.itemsize not in (1, 2, 4, 8):
        return array
    bits = array.view(f"u{array.dtype.itemsize}")
    for axis, size in enumerate(array.shape):
        first = (slice(None),) * axis + (slice(0, 1),)
        if size > 1 and array.strides[axis] and (bits == bits[first]).all():
            array, bits = (np.broadcast_to(one[first], one.shape) for one in (array, bits))
    return array


def _stored(array: np.ndarray[Any, Any]) -> int:
    """How many elements an array has in memory, where repeated ones count once."""
    return math.prod(size for size, stride in zip(array.shape, array.strides) if stride)


class Simplifier:
    """Lowers the computations of a module."""

    def __init__(self, module: Module) -> None:
        self.evaluator = Evaluator(module)
        self.made: dict[Computation, Block] = {}
        """Blocks of computations that were made otherwise."""
        self._depth = 0
        self._inlined = 0
        self._stacked: dict[tuple[Node, ...], np.ndarray[Any, Any]] = {}

    def stacked(self, members: tuple[Node, ...]) -> np.ndarray[Any, Any]:
        """Constants of one form one behind another, each with what it repeats along dimensions only
        once. All who ask get the same array."""
        known = self._stacked.get(members)
        if known is None:
            strides = zip(*(member.value.strides for member in members))
            kept = tuple(slice(None) if any(axis) else slice(0, 1) for axis in strides)
            known = self._stacked[members] = np.stack([member.value[kept] for member in members])
        return known

    def block(self, computation: Computation) -> Block:
        """A computation as a block of its own."""
        if computation in self.made:
            return self.made[computation]
        block = Block()
        arguments = []
        for parameter in computation.parameters:
            nodes = []
            for form in forms(parameter.shape):
                node = Node("parameter", [form], [], parameter, len(block.parameters))
                block.parameters.append(node)
                nodes.append(node)
            arguments.append(packed(parameter.shape, nodes))
        merged: dict[Any, Node] = {}
        if self._depth >= DEPTH_LIMIT:
            raise NeuronError(
                "hlo-cycle",
                f"calls are nested {DEPTH_LIMIT} deep at `{computation.name}`.",
                why="A computation cannot call itself, directly or through others.",
            )
        self._depth += 1
        block.results = leaves(self._inline(block, merged, computation, arguments))
        self._depth -= 1
        return block

    def _inline(
        self,
        block: Block,
        merged: dict[Any, Node],
        computation: Computation,
        arguments: list[Parts],
    ) -> Parts:
        self._inlined += len(computation.instructions)
        if self._inlined > INLINED:
            raise NeuronError(
                "hlo-too-many-instructions",
                f"calls repeat computations to more than {INLINED} instructions at "
                f"`{computation.name}`.",
                hint="Call it from a `while`, or use graph_compiler.evaluate.",
            )
        values: dict[Instruction, Parts] = {}
        for item in computation.instructions:
            structural = STRUCTURAL.get(item.opcode)
            if structural is not None:
                values[item] = structural(item, [values[o] for o in item.operands], arguments)
            elif item.opcode in CALLS or item.opcode == _BEGINS:
                operands = [values[operand] for operand in item.operands]
                values[item] = self._inline(block, merged, item.called[0], operands)
                if item.opcode == _BEGINS:
                    contexts = [
                        _constants(item, shape, placeholder(shape))
                        for shape in item.shape.tuple_shapes[2:]
                    ]
                    values[item] = tuple(operands), values[item], *contexts
            else:
                operands = [leaf for operand in item.operands for leaf in leaves(values[operand])]
                values[item] = self._operation(block, merged, item, operands)
        return values[computation.root]

    def _operation(
        self, block: Block, merged: dict[Any, Node], item: Instruction, operands: list[Node]
    ) -> Parts:
        results = forms(item.shape)
        if item.opcode in _BLOCKS:
            node = Node(item.opcode, results, operands, item)
            node.blocks = [self.block(called) for called in item.called]
            block.nodes.append(node)
            return self._picked(block, item, node)
        row = operator(item.opcode)
        elementwise = is_elementwise(row) and all(isinstance(o, Node) for o in operands)
        if len(results) != 1 or item.shape.is_tuple or not (elementwise or item.opcode in PURE):
            node = Node(item.opcode, results, operands, item)
            block.nodes.append(node)
            return self._picked(block, item, node)
        same = _unchanged(item, operands)
        if same is not None:
            return same
        key = (
            item.opcode,
            results[0],
            tuple(map(_identity, operands)),
            *(repr(item.attributes.get(name)) for name in row.attributes),
            *map(id, item.called),
        )
        if key in merged:
            return merged[key]
        if all(node.op == "constant" for node in operands):
            folded = self._folded(item, row, [node.value for node in operands], elementwise)
            if folded is not None:
                merged[key] = Node("constant", results, [], value=folded)
                return merged[key]
        merged[key] = Node(item.opcode, results, operands, item)
        block.nodes.append(merged[key])
        return merged[key]

    def again(
        self, block: Block, merged: dict[Any, Node], node: Node, operands: list[Node]
    ) -> Node:
        """An operation with one result as at a node, of other operands, at the end of a block."""
        assert node.instruction is not None
        found: Node = self._operation(block, merged, node.instruction, operands)
        return found

    def _picked(self, block: Block, item: Instruction, node: Node) -> Parts:
        if len(node.results) == 1:
            return packed(item.shape, [node])
        picks = [
            Node("pick", [form], [node], value=number) for number, form in enumerate(node.results)
        ]
        block.nodes += picks
        return packed(item.shape, picks)

    def _folded(
        self, item: Instruction, row: type[HloOperator], values: list[Any], elementwise: bool
    ) -> Any:
        """The constant result; None where it is too large to compute now."""
        dims = item.shape.dimensions
        uniform = bool(values) and item.shape.size > 0 and all(map(is_uniform, values))
        if uniform and (elementwise or item.opcode in MOVES):
            values = [np.asarray(value[(0,) * value.ndim]) for value in values]
            if item.opcode in MOVES:
                return np.broadcast_to(values[0], dims)
            with np.errstate(all="ignore"):
                return np.broadcast_to(np.asarray(row.evaluate(item, values, self.evaluator)), dims)
        if not values and max(dims, default=0) > FOLDED:
            return None  # a count that long is left to the run
        if item.opcode == "reduce-window" and _windows(item) > LARGEST:
            return None
        if item.opcode == "gather":
            large = item.shape.size > LARGEST
        else:
            linear = elementwise or item.opcode in MOVES
            stored = [_stored(value) for value in values if linear]
            limit = min(max([FOLDED, *stored]), LARGEST)
            large = item.shape.size > limit or any(value.size > limit for value in values)
        if large and item.opcode not in _VIEWED:
            return None
        with np.errstate(all="ignore"):
            return _repeating(np.asarray(row.evaluate(item, values, self.evaluator)))


def _windows(item: Instruction) -> int:
    """The elements of all windows of a fold of windows."""
    window = item.attribute("window").dimensions
    return item.shape.size * math.prod(part.size for part in window)


def _identity(node: Node) -> Any:
    """What makes operands the same: scalar constants by their bits, others by themselves."""
    value = element_of(node)
    return node if value is None else (node.type, node.dims, value.tobytes())


def _unchanged(item: Instruction, operands: list[Node]) -> Node | None:
    """The operand that an operation returns as it is."""
    if item.opcode in _NEUTRAL and item.shape.element_type == "pred":
        for operand, other in (operands, operands[::-1]):
            if _only(other) is _NEUTRAL[item.opcode]:
                return operand
    if item.opcode in _CHOICES:
        condition, *choices = operands
        if _only(condition) is not None:
            return choices[0] if _only(condition) else choices[1]
        same = (condition.type, condition.dims) == (item.shape.element_type, item.shape.dimensions)
        return condition if same and [*map(_only, choices)] == [True, False] else None
    check = _NO_CHANGE.get(item.opcode)
    if check is None or not operands:
        return None
    (operand, *_) = operands
    if operand.type == item.shape.element_type and operand.dims == item.shape.dimensions:
        if check(item):
            return operand
    if item.opcode in _CONVERSIONS and operand.op in _CONVERSIONS:
        # There and back by way of a type that holds every value.
        inner = operand.operands[0]
        if inner.type == item.shape.element_type and (inner.type, operand.type) in _WIDER:
            return inner
    return None


def element_of(node: Node) -> Any:
    """The value that all elements of a constant are; None of others."""
    return only_element(node.value) if node.op == "constant" else None


def _only(node: Node) -> bool | None:
    """The truth value that all elements of a constant are; None of others."""
    value = element_of(node)
    return None if value is None else bool(value)


_NEUTRAL = {"and": True, "or": False}
"""Truth values that leave the other operand as it is."""

_WIDER = frozenset({("bf16", "f32"), ("f16", "f32"), ("f32", "f64"), ("bf16", "f64")})
_CONVERSIONS = frozenset({"convert"})

_CHOICES = frozenset({"select"})
"""Opcodes that return their first operand where they choose between true and false."""

_NO_CHANGE: dict[str, Callable[[Any], bool]] = {
    "reshape": lambda item: True,
    "broadcast": lambda item: list(item.attribute("dimensions")) == list(range(item.shape.rank)),
    "convert": lambda item: True,
    "copy": lambda item: True,
    "slice": lambda item: True,
    "transpose": lambda item: list(item.attribute("dimensions")) == list(range(item.shape.rank)),
}
"""Opcodes that do nothing where shape and type stay, if the check says so."""

_VIEWED = frozenset({*MOVES, "iota"}) - {"reshape"}
"""Opcodes of which NumPy makes views, whatever the size."""

_BLOCKS = frozenset({"while", "conditional"})

_BEGINS = "async-start"
"""The call whose value is its operands, its result, and contexts."""


def _constant(item: Instruction, operands: list[Parts], arguments: list[Parts]) -> Parts:
    row = operator(item.opcode)
    return _constants(item, item.shape, row.evaluate(item, [], None))  # type: ignore[arg-type]


def _constants(item: Instruction, shape: Shape, value: Any) -> Parts:
    """A value that an instruction states."""
    if shape.is_tuple:
        parts = zip(shape.tuple_shapes, value)
        return tuple(_constants(item, inner, part) for inner, part in parts)
    if not shape.is_array:
        return None
    return Node("constant", forms(shape), [], item, np.asarray(value))


STRUCTURAL: dict[str, Callable[[Any, list[Parts], list[Parts]], Parts]] = {
    "parameter": lambda item, operands, arguments: arguments[item.parameter_number],
    "constant": _constant,
    "tuple": lambda item, operands, arguments: tuple(operands),
    "get-tuple-element": lambda item, operands, arguments: operands[0][
        item.attribute("tuple_index")
    ],
    "copy": lambda item, operands, arguments: operands[0],
    "opt-barrier": lambda item, operands, arguments: operands[0],
    "add-dependency": lambda item, operands, arguments: operands[0],
    "async-update": lambda item, operands, arguments: operands[0],
    "async-done": lambda item, operands, arguments: operands[0][1],
}
"""Opcodes that only say which value is meant."""
