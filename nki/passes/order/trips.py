"""Trip counts of loops, as far as they are known when compiling."""

from __future__ import annotations

import math

from isa.affine import Affine, bounds, prove_nonnegative
from nki.ir.nodes import Loop, Register, While


def trip_count(node: Loop) -> int | None:
    """How many iterations a loop has, where that is known."""
    if type(node.lower) is not int or type(node.upper) is not int:
        return None
    return len(range(node.lower, node.upper, node.step))


def most_trips(node: Loop) -> float:
    """How many iterations a loop has at most, as far as that is known."""
    most = bounds(node.upper - node.lower)[1] if _known(node) else None
    return math.inf if most is None else math.ceil(most / node.step)


def at_most_once(node: Loop | While) -> bool:
    """Whether a loop certainly has no second iteration."""
    if isinstance(node, While) or not _known(node):
        return False
    return bool(prove_nonnegative(node.lower + node.step - node.upper))


def at_least_once(node: Loop | While) -> bool:
    """Whether a loop certainly runs."""
    if isinstance(node, While) or not _known(node):
        return False
    return bool(prove_nonnegative(node.upper - node.lower - 1))


def _known(node: Loop) -> bool:
    """Whether the bounds are numbers or forms in launch symbols."""
    return not any(isinstance(bound, (Register, Affine)) for bound in (node.lower, node.upper))
