"""Factors and sums of columns in front of products with constant weights become part of these.

A norm ends in a factor and a sum for each column, and often nothing but products with weights reads
it. Before: `n = u * g + b; y = f32 dot(n, w) + c`, where g, b, w and c are constants; after:
`y = f32 dot(u, g * w) + (dot(b, w) + c)`, whose constants are computed when the graph is compiled.
The engines go over the rows of a norm once less for each of g and b. Weights are fp32 as the graph
has them, before options cast them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from graph_compiler.lower.rewrites.factors import along, is_exact
from graph_compiler.schedule.nodes import Block, Node

_SINGLE = "f32"

Users = Mapping[Node, Sequence[Node]]


class _Row(NamedTuple):
    """An operand of a node, and the constant that the other one is, by column."""

    operand: Node
    constant: np.ndarray[Any, Any]


class _Affine(NamedTuple):
    """`value` times a factor of each column, plus a number of each, if any."""

    value: Node
    factors: np.ndarray[Any, Any]
    shifts: np.ndarray[Any, Any] | None


class _Change(NamedTuple):
    """A node that takes other operands."""

    node: Node
    operands: list[Node]


def into_following_weights(block: Block) -> None:
    """Make factors and sums in front of products part of their weights, in a block and those inside
    of it."""
    needed = block.uses()
    users: dict[Node, list[Node]] = {}
    for node in block.nodes:
        for inner in node.blocks:
            into_following_weights(inner)
        if node in needed:
            for operand in node.operands:
                users.setdefault(operand, []).append(node)
    for result in block.results:
        users.setdefault(result, []).append(_CALLER)
    for node in block.nodes:
        affine = _affine(node, users) if node in needed else None
        products = None if affine is None else _products(node, users)
        if affine is None or not products:
            continue
        changes = _changes(products, affine, users)
        for change in changes or ():
            change.node.operands = change.operands
        for user in {*users[node]} if changes else ():
            user.operands = [affine.value if o is node else o for o in user.operands]


_CALLER = Node("caller", [], [])
"""Who reads the results of a block."""


def _affine(node: Node, users: Users) -> _Affine | None:
    """What a node is, where it is an affine function of each column of another value."""
    scaled, shifts = node, None
    if node.op == "add":
        shift = _row(node)
        if shift is None or len(users[shift.operand]) != 1:
            return None
        scaled, shifts = shift
    factor = _row(scaled) if scaled.op == "multiply" else None
    if factor is None or (factor.constant == factor.constant[0]).all():
        return None  # engines multiply by one number while they do something else
    return _Affine(*factor, shifts)


def _row(node: Node) -> _Row | None:
    """The operands of a node in fp32 of which one is a constant that only changes along columns."""
    if node.type != _SINGLE or not node.dims:
        return None
    for value, other in (node.operands, node.operands[::-1]):
        constant = along(other, len(node.dims) - 1)
        if constant is not None:
            return _Row(value, np.broadcast_to(constant, node.dims[-1:]))
    return None


def _products(node: Node, users: Users) -> list[Node] | None:
    """The products that read a value whose columns are their depth; None where something else reads
    it."""
    found: list[Node] = []
    for user in users.get(node, ()):
        inner = _products(user, users) if _keeps_columns(user, node) else [user]
        if inner is None or (inner == [user] and not _multiplies_columns(user, node)):
            return None
        found += inner
    return found


def _keeps_columns(node: Node, operand: Node) -> bool:
    return node.op == "reshape" and node.dims[-1:] == operand.dims[-1:]


def _multiplies_columns(node: Node, left: Node) -> bool:
    """Whether a node is a product of the columns of a value with constant weights [depth, columns],
    or these exchanged."""
    if node.op != "dot" or node.instruction is None or node.operands[0] is not left:
        return False
    weights = node.operands[1]
    numbers = node.instruction.attribute("dot_dimension_numbers")
    return (
        weights.op == "constant"
        and {weights.type, node.type} == {_SINGLE}
        and len(weights.dims) == _MATRIX
        and [*numbers.lhs_contracting_dimensions] == [len(left.dims) - 1]
        and len(numbers.rhs_contracting_dimensions) == 1
    )


_MATRIX = 2


def _changes(products: Sequence[Node], affine: _Affine, users: Users) -> list[_Change] | None:
    """What products, and sums behind them, take instead; None where that would not be as exact, or
    nothing takes a sum."""
    found: list[_Change] = []
    for product in products:
        assert product.instruction is not None
        left, weights = product.operands
        numbers = product.instruction.attribute("dot_dimension_numbers")
        (depth,) = numbers.rhs_contracting_dimensions
        factors = np.expand_dims(affine.factors, 1 - depth)
        values = weights.value * factors
        if not is_exact(weights.value, factors, values):
            return None
        found.append(_Change(product, [left, _constant(values, weights.dims)]))
        if affine.shifts is None or not affine.shifts.any():
            continue
        total = _sum_behind(product, users)
        row = None if total is None else _row(total)
        if total is None or row is None:
            return None
        shifts = affine.shifts.astype(np.float64)
        sums = np.tensordot(shifts, weights.value.astype(np.float64), (0, depth)) + row.constant
        with np.errstate(over="ignore"):
            sums = sums.astype(np.float32)
        if not np.isfinite(sums).all():
            return None
        constant = _constant(np.broadcast_to(sums, total.dims), total.dims)
        found.append(_Change(total, [row.operand, constant]))
    return found


def _constant(value: np.ndarray[Any, Any], dims: tuple[int, ...]) -> Node:
    return Node("constant", [(_SINGLE, dims)], [], value=value)


def _sum_behind(node: Node, users: Users) -> Node | None:
    """The sum that alone reads a product."""
    readers = users.get(node, ())
    if len(readers) != 1:
        return None
    (reader,) = readers
    if _keeps_columns(reader, node):
        return _sum_behind(reader, users)
    return reader if reader.op == "add" else None
