"""What a loop looks like from outside: to the analysis of the list of items that it stands in."""

from __future__ import annotations

from typing import NamedTuple

from isa.affine import Affine, prove_nonnegative
from nki.ir.nodes import Loop, Register, Tensor, While
from nki.passes.footprint import Box


class RegionAccess(NamedTuple):
    """An access in a loop, seen from outside: by item `at` of the body, in each iteration if it is
    `certain`; `begins` if it is the marker of a storage."""

    tensor: Tensor
    box: Box
    writes: bool
    stream: int
    begins: bool
    certain: bool
    at: int


class Summary:
    """What a region looks like from outside.

    `known` says which streams each engine knows to have finished the loop when it leaves, and
    whether it knows so from an event that each iteration has, so that what the stream did ahead of
    the loop is over too; `certain` are the streams with such an event; `primed` maps (producer
    engine, consumer engine) to the first item at which the consumer takes a token that the
    producer has given ahead of the loop.
    """

    __slots__ = ("accesses", "certain", "known", "primed", "queues")

    def __init__(self) -> None:
        self.accesses: list[RegionAccess] = []
        self.primed: dict[tuple[int, int], int] = {}
        self.known: dict[int, dict[int, bool]] = {}
        self.certain: set[int] = set()
        self.queues: dict[int, int] = {}


def at_most_once(node: Loop | While) -> bool:
    if isinstance(node, While):
        return False
    if isinstance(node.lower, Register) or isinstance(node.upper, Register):
        return False
    if isinstance(node.lower, Affine) or isinstance(node.upper, Affine):
        return False
    return bool(prove_nonnegative(node.lower + node.step - node.upper))


def at_least_once(node: Loop | While) -> bool:
    if isinstance(node, While):
        return False
    for bound in (node.lower, node.upper):
        if isinstance(bound, (Register, Affine)):
            return False
    return bool(prove_nonnegative(node.upper - node.lower - 1))
