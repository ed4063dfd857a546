"""Sums of a group that the scalar engine makes, so that it has about as much to do as the vector
engine."""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from graph_compiler.lower.groups.members import Member, RowNest
from graph_compiler.lower.nests.combined import ACTIVATIONS
from graph_compiler.lower.nests.evaluation import (
    folding_passes,
    is_shift,
    sums_function,
    wide_steps,
)
from isa.enums import Engine

if TYPE_CHECKING:
    from isa.target import Target

LONG = 512
"""Elements of a row from which on its sum may move to the scalar engine, which takes a fixed time
to read out what it has added up."""


def moved_to_scalar(target: Target, members: Sequence[Member], done: Container[int]) -> set[int]:
    """Members whose sums along rows the scalar engine makes, which it does while it squares or
    copies, and sums with columns; not those that are `done` otherwise. They are chosen as long as
    the vector engine has more to do."""
    fast, slow = map(target.clock_ghz, (Engine.scalar, Engine.vector))
    nests = [
        (number, member)
        for number, member in enumerate(members)
        if isinstance(member, RowNest) and number not in done
    ]
    elements = [math.prod(axis.count for axis in nest.inner) for _, nest in nests]
    found, vector, scalar = set(), 0.0, 0.0
    for (_, member), count in zip(nests, elements):
        functions = sum(step.op in ACTIVATIONS for step in member.loop.steps)
        scalar += functions * count / fast
        wide = wide_steps(member.loop) + folding_passes(member.loop)
        vector += (max(1, wide) - functions) * count / slow
    for (number, member), count in zip(nests, elements):
        movable = member.loop.fold == "add" and member.loop.output[0] == "f32"
        movable = movable and not sums_function(member.loop)
        movable = movable or is_shift(member.loop)
        if movable and count >= LONG and vector - count / slow > scalar + count / fast:
            found.add(number)
            vector -= count / slow
            scalar += count / fast
    return found
