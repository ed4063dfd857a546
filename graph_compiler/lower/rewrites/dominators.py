"""Dominator trees of a graph: values that another value depends on through each of its operands.

Chains of such values are as long as the graph, so no node has a list of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graph_compiler.schedule.nodes import Node

FARTHEST = 3
"""How many of the farthest values a node knows."""


class Dominator:
    """A value, and the nearest one that it depends on through each of its variables; from one to
    the next they make a tree.

    `farthest`: up to `FARTHEST` of these, from the root on. `far`: an ancestor so far away that a
    walk over these takes logarithmically many steps.
    """

    __slots__ = ("depth", "far", "farthest", "nearest")

    def __init__(self, node: Node, nearest: Dominator | None) -> None:
        self.nearest = nearest
        self.depth: int = 0 if nearest is None else nearest.depth + 1
        self.farthest: tuple[Node, ...] = (node,)
        self.far: Dominator = self if nearest is None else nearest
        if nearest is not None:
            self.farthest = nearest.farthest
            if len(self.farthest) < FARTHEST:
                self.farthest += (node,)
            if nearest.depth - nearest.far.depth == nearest.far.depth - nearest.far.far.depth:
                self.far = nearest.far.far

    def common(self, other: Dominator) -> Dominator | None:
        """The nearest value that both depend on, or are."""
        one: Dominator | None = self
        another: Dominator | None = other
        while one is not another:
            if one is None or another is None:
                return None
            if one.depth < another.depth:
                one, another = another, one
            if one.depth > another.depth:
                one = one.far if one.far.depth >= another.depth else one.nearest
            elif one.far is another.far or not one.depth:
                one, another = one.nearest, another.nearest
            else:
                one, another = one.far, another.far
        return one
