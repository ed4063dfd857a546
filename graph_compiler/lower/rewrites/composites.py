"""Functions that a graph spells out, found by what they compute.

Frameworks write gelu, silu, erf and their like as dozens of element-wise operations, differently
from version to version. A value that depends on one other value alone is a function of it; that
function is evaluated at sample points in float64, and compared with the functions of the scalar
engine. What agrees as far as the constants and the operations of the graph are exact becomes one
operation. That is nearer to what the graph means than the graph's own rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graph_compiler.evaluate import Evaluator
from graph_compiler.hlo.graph import Module
from graph_compiler.hlo.operators import OPERATORS
from graph_compiler.hlo.operators.elementwise.transcendental import Erf
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from graph_compiler.lower.rewrites.dominators import Dominator
from graph_compiler.schedule.nodes import Block, Node
from graph_compiler.schedule.simplify import is_elementwise, is_uniform

Array = np.ndarray[Any, Any]

LEAST = 3
"""Operations that a function replaces, at least."""

MOST = 160
"""Operations that are looked at for one function."""


def _phi(x: Array) -> Array:
    """The normal distribution, precise in its tail too."""
    return np.array([0.5 * math.erfc(-value / math.sqrt(2)) for value in x.tolist()])


def _density(x: Array) -> Array:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)  # type: ignore[no-any-return]


def _sigmoid(x: Array) -> Array:
    return np.exp(-np.logaddexp(0, -x))  # type: ignore[no-any-return]


def _tanh_gelu(x: Array) -> Array:
    return x * _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


COMPOSITES: dict[str, Callable[[Array], Array]] = {
    "gelu": lambda x: x * _phi(x),
    "gelu_apprx_tanh": _tanh_gelu,
    "silu": lambda x: x * _sigmoid(x),
    "sigmoid": _sigmoid,
    "erf": lambda x: np.asarray(Erf.formula(x)),
    "gelu_apprx_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "gelu_dx": lambda x: _phi(x) + x * _density(x),
    "silu_dx": lambda x: _sigmoid(x) * (1 + x * _sigmoid(-x)),
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x),
    "tanh": np.tanh,
    "softplus": lambda x: np.logaddexp(0, x),
}
"""Functions of `nki.language` that stand for many operations, in float64."""

_POINTS = np.concatenate(
    [
        np.linspace(-9, 9, 145),
        np.array([30.0, 88.0, 1e3]),
        -np.array([30.0, 88.0, 1e3]),
        np.array([1e-3, 1e-5, 1e-9, -1e-3, -1e-5, -1e-9]),
    ]
)


def recognise(module: Module, block: Block) -> None:
    """Replace functions that a block spells out by nodes of `COMPOSITES`."""
    for node in block.nodes:
        for inner in node.blocks:
            recognise(module, inner)
    finder = _Finder(module)
    seen: dict[Node, Dominator] = {}
    for node in block.nodes:
        seen[node] = _dominator(node, seen)
    users = _users(block)
    covered: set[Node] = set()
    replaced: dict[Node, Node] = {}
    for node in _ends(block, seen):
        if node.type not in _TYPES or (node in covered and users[node] <= covered):
            continue
        for source in seen[node].farthest:
            if source is node:
                break
            cone = _cone(node, source)
            if cone is None or len(cone) < LEAST or source.type not in _TYPES:
                continue
            name = finder.name(node, source, cone)
            if name is not None:
                form = [(node.type, node.dims)]
                replaced[node] = Node(name, form, [source], node.instruction)
                covered.update(cone)
                break
    if not replaced:
        return
    for node in block.nodes:
        node.operands = [replaced.get(operand, operand) for operand in node.operands]
    block.results = [replaced.get(result, result) for result in block.results]
    block.nodes = [replaced.get(node, node) for node in block.nodes]


def _users(block: Block) -> dict[Node, set[Node | None]]:
    """The nodes that use each node; None stands for the block's results."""
    users: dict[Node, set[Node | None]] = {}
    for node in block.nodes:
        for operand in node.operands:
            users.setdefault(operand, set()).add(node)
    for result in block.results:
        users.setdefault(result, set()).add(None)
    return users


_BEFORE = 2
"""Operations behind a function with a name that depend on the same value alone."""


def _ends(block: Block, seen: dict[Node, Dominator]) -> list[Node]:
    """Nodes that may be functions, from the last to the first: those used by what depends on
    other values too, and what stands right before them."""
    used = set(block.results)
    for node in block.nodes:
        for operand in node.operands:
            if operand in seen and seen[operand].farthest[0] is not seen[node].farthest[0]:
                used.add(operand)
    found = {node: 0 for node in used if node in seen}
    for node in reversed(block.nodes):
        depth = found.get(node)
        if depth is not None and depth < _BEFORE:
            for variable in _variables(node):
                if variable in seen and seen[variable].depth:
                    found.setdefault(variable, depth + 1)
    return [node for node in reversed(block.nodes) if node in found and seen[node].depth]


_TYPES = frozenset({"f32", "bf16", "f16"})


def _variables(node: Node) -> list[Node]:
    """The operands that are not one number everywhere."""
    return [o for o in node.operands if not (o.op == "constant" and _is_number(o))]


def _is_number(node: Node) -> bool:
    return bool(node.value.size) and is_uniform(node.value)


def _is_element_wise(node: Node) -> bool:
    row = OPERATORS.get(node.op)
    return row is not None and node.instruction is not None and is_elementwise(row)


def _dominator(node: Node, seen: dict[Node, Dominator]) -> Dominator:
    """What a node depends on through each of its variables; `seen` gets those from outside."""
    variables = _variables(node) if _is_element_wise(node) else []
    if not variables or any(variable.dims != node.dims for variable in variables):
        return Dominator(node, None)
    first, *others = (
        seen.setdefault(variable, Dominator(variable, None)) for variable in variables
    )
    nearest: Dominator | None = first
    for other in others:
        nearest = None if nearest is None else nearest.common(other)
    return Dominator(node, nearest)


def _cone(node: Node, source: Node) -> list[Node] | None:
    """The nodes between a value and its source, operands first; None of too many."""
    order: list[Node] = []
    known = {source}

    def visit(item: Node) -> bool:
        if item in known:
            return True
        known.add(item)
        if len(known) > MOST:
            return False
        if not all(visit(variable) for variable in _variables(item)):
            return False
        order.append(item)
        return True

    return order if visit(node) else None


class _Finder:
    """Compares functions with those that have a name; equal ones once."""

    def __init__(self, module: Module) -> None:
        self._evaluator = Evaluator(module)
        self._known: dict[Any, str | None] = {}

    def name(self, node: Node, source: Node, cone: list[Node]) -> str | None:
        """The name of a node as a function of its source; None where it has none."""
        key = _structure(source, cone)
        if key not in self._known:
            self._known[key] = self._compared(node, source, cone)
        return self._known[key]

    def _compared(self, node: Node, source: Node, cone: list[Node]) -> str | None:
        points = _POINTS.astype(PRIMITIVE_TYPES[source.type].numpy).astype(np.float64)
        values: dict[Node, Any] = {source: points}
        with np.errstate(all="ignore"):
            for item in cone:
                operands = [values[o] if o in values else _number(o) for o in item.operands]
                values[item] = self._value(item, operands, points.shape)
            found = np.asarray(values[node], np.float64)
            errors: dict[str, float] = {}
            for name, function in COMPOSITES.items():
                wanted = function(points)
                nearby = function(points * (1 + _NEAR)) - function(points * (1 - _NEAR))
                slope = np.abs(nearby) / (2 * _NEAR)  # of a relative change of the source
                allowed = _allowed([*cone, source], np.abs(wanted) + slope)
                errors[name] = float((np.abs(found - wanted) / allowed).max())
        best = min(errors, key=lambda name: np.nan_to_num(errors[name], nan=math.inf))
        return best if errors[best] <= 1 else None

    def _value(self, item: Node, operands: list[Any], shape: tuple[int, ...]) -> Any:
        """An operation without rounding: conversions between floats do nothing."""
        assert item.instruction is not None
        if item.op in _ROUNDED and item.type in _TYPES and operands[0].dtype == np.float64:
            return operands[0]
        spread = [np.broadcast_to(operand, shape) for operand in operands]
        return OPERATORS[item.op].evaluate(item.instruction, spread, self._evaluator)


_ROUNDED = frozenset({"convert"})


def _number(node: Node) -> Array:
    """What a constant is everywhere, floats in float64."""
    number = np.asarray(node.value[(0,) * node.value.ndim])
    return number.astype(np.float64) if node.type in _TYPES else number


_NEAR = 1e-6


def _allowed(cone: list[Node], scale: Array) -> Array:
    """How far values may be off: by a few roundings, of constants, in the coarsest type of the
    operations."""
    step = max(_EPSILONS[item.type] for item in cone if item.type in _TYPES)
    return 16 * step * scale + 2 * step * step  # type: ignore[no-any-return]


_EPSILONS = {"f32": 2.0**-24, "bf16": 2.0**-9, "f16": 2.0**-12}


def _structure(source: Node, cone: list[Node]) -> Any:
    """What the function depends on."""
    numbers: dict[Node, Any] = {source: 0}
    rows: list[Any] = [source.type]
    for item in cone:
        operands = tuple(
            numbers[o] if o in numbers else (o.type, o.value[(0,) * o.value.ndim].tobytes())
            for o in item.operands
        )
        assert item.instruction is not None
        attributes = OPERATORS[item.op].attributes
        stated = tuple(repr(item.instruction.attributes.get(name)) for name in attributes)
        numbers[item] = len(numbers)
        rows.append((item.op, item.type, operands, stated))
    return tuple(rows)
