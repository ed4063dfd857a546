"""Trip counts of `while`, where they are known."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node
    from graph_compiler.schedule.views import Buffer

MOST = 1 << 16
"""Trips up to which places are computed for each."""


@dataclass(eq=False)
class Count:
    """A count: `first`, `first + step` ..., `trips` times, the parameter `number` of the body.
    `fixed`: memory that the loop does not change. `variable`: the trip, while the loop is
    emitted."""

    number: int
    first: int
    step: int
    trips: int
    fixed: set[Buffer] = field(default_factory=set)
    variable: Any = None

    @property
    def last(self) -> int:
        """What it is behind the loop."""
        return self.first + self.step * self.trips


def count_of_trips(node: Node) -> Count | None:
    """What a `while` counts; None of one whose trips are not known."""
    body, condition = node.blocks
    (test,) = condition.results
    if test.op != "compare" or test.instruction is None:
        return None
    if test.instruction.attribute("comparison_direction") != "LT":
        return None
    variable, bound = test.operands
    if variable not in condition.parameters:
        return None
    number = condition.parameters.index(variable)
    following, first = body.results[number], constant_integer(node.operands[number])
    stop = constant_integer(bound)
    if stop is None and bound in condition.parameters:  # what the loop does not change
        place = condition.parameters.index(bound)
        if body.results[place] is body.parameters[place]:
            stop = constant_integer(node.operands[place])
    if following.op != "add" or first is None or stop is None:
        return None
    steps = [constant_integer(o) for o in following.operands if o is not body.parameters[number]]
    if len(steps) != 1 or steps[0] is None or steps[0] <= 0:
        return None
    count = Count(number, first, steps[0], max(0, -(-(stop - first) // steps[0])))
    largest = np.iinfo(node.operands[number].value.dtype).max  # behind it, it wraps around
    return count if count.trips <= MOST and count.last <= largest else None


def constant_integer(node: Node) -> int | None:
    """A constant integer."""
    if node.op != "constant" or node.dims or not np.issubdtype(node.value.dtype, np.integer):
        return None
    return int(node.value)
