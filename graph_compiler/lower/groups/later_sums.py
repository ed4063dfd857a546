"""Sums with a product take it last.

A product's results are there later than what else is added to them. So other terms are added to one
another while the tensor engine multiplies. Before, in fp32: `t = product + row; y = t + x`; after:
`t = row + x; y = product + t`. Sums are as exact in any order.
"""

from __future__ import annotations

from dataclasses import replace

from graph_compiler.host_kernels.elements import ElementStep
from graph_compiler.lower.groups.members import RowNest

_SINGLE = "f32"


def product_last(nest: RowNest, operand: int) -> RowNest:
    """A nest whose operand, a product, is added behind others; itself where it is so."""
    loop, leaf = nest.loop, operand - 1
    leaves = len(loop.leaves)
    users = [number for number, step in enumerate(loop.steps) if leaf in step.arguments]
    if len(users) != 1:
        return nest
    (number,) = users
    value = leaves + number
    behind = [place for place, step in enumerate(loop.steps) if value in step.arguments]
    if len(behind) != 1:
        return nest
    (place,) = behind
    row, term = (_other(loop.steps[at], own) for at, own in ((number, leaf), (place, value)))
    if row is None or term is None or max(row, term) >= leaves:
        return nest
    if any(axis.strides[1 + each] != 1 for axis in nest.inner for each in (row, term)):
        return nest  # engines add a number and a tile in one operation
    steps = [*loop.steps]
    steps[number] = steps[number]._replace(arguments=(row, term))
    steps[place] = steps[place]._replace(arguments=(leaf, value))
    return replace(nest, loop=replace(loop, steps=tuple(steps)))


def _other(step: ElementStep, value: int) -> int | None:
    """What a sum in fp32 adds to a value; None of other steps."""
    if (step.op, step.type, step.source) != ("add", _SINGLE, _SINGLE):
        return None
    first, second = step.arguments
    if (first == value) == (second == value):
        return None
    return second if first == value else first
