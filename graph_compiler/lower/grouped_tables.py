"""Functions of one activation table come together in the bodies of loops.

Where functions of two tables take turns, each iteration loads each of them several times, and what
follows waits for it. A step of an LSTM has three sigmoids and two tanh: the last sigmoid is of sums
that are there when the first ones are, but the graph names it behind a tanh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from isa.enums import Engine, ReduceCommand
from isa.target import TARGETS, Target
from nki.ir.begins import begun_by, used_by, written_by
from nki.ir.nodes import Loop, Node, Op, Tensor, TracedKernel
from nki.ir.rewrite import with_body
from nki.passes.analysis.steps import ENGINE_INDEX
from nki.passes.order.schedule import costs_of

MOST = 6
"""Operations that come earlier together with a function, at most: what it is made of."""


@dataclass(frozen=True, slots=True)
class GroupTables:
    """Moves functions behind the last one before them that needs the same table, in bodies of
    loops, where that leaves fewer loads of tables.

        activation dst=%i op=sigmoid data=%sums[..., :256]
        activation dst=%g op=tanh data=%sums[..., 256:512]
        activation dst=%o op=sigmoid data=%sums[..., 512:]
        ->
        activation dst=%i op=sigmoid data=%sums[..., :256]
        activation dst=%o op=sigmoid data=%sums[..., 512:]
        activation dst=%g op=tanh data=%sums[..., 256:512]

    Results of the kernel are the same.
    """

    name: str = "grouped tables"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        level = partial(_level, target=TARGETS[kernel.target])
        bodies = [level(body, inside=False) for body in kernel.bodies]
        if all(new is old for new, old in zip(bodies, kernel.bodies)):
            return kernel
        return kernel.with_bodies(bodies, kernel.tensors, kernel.placement)


def _level(nodes: list[Node], target: Target, inside: bool) -> list[Node]:
    """A list of nodes with functions moved; itself where all stay."""
    result: list[Node] = []
    for node in nodes:
        if not isinstance(node, Op):
            body = _level(node.body, target, isinstance(node, Loop))
            node = node if body is node.body else with_body(node, body)
        result.append(node)
    result = _grouped(result, target) if inside else result
    return nodes if all(new is old for new, old in zip(result, nodes)) else result


def _grouped(nodes: list[Node], target: Target) -> list[Node]:
    """The body of a loop with functions moved."""
    tables = {node: table for node in nodes if (table := _table(node, target)) is not None}
    if len(set(tables.values())) == 1:
        return nodes
    for late in tables:
        place = nodes.index(late)
        before = [at for at, node in enumerate(nodes[:place]) if node in tables]
        own = [at for at in before if tables[nodes[at]] == tables[late]]
        if not own or own[-1] == before[-1]:
            continue
        moved = _moved(nodes, own[-1], place)
        if moved is not None and _loads(moved, tables) < _loads(nodes, tables):
            nodes = moved
    return nodes


def _table(node: Node, target: Target) -> str | None:
    """The activation table that a function needs which leaves no state behind."""
    if not isinstance(node, Op) or begun_by(node) is not None:
        return None
    if node.after or node.row.register_writes:
        return None
    if node.fields.get("reduce_cmd", ReduceCommand.idle) is not ReduceCommand.idle:
        return None
    timing = costs_of(target).of_operation(node)
    found = [table for engine, *_, table in timing if engine == _SCALAR]
    return next(filter(None, found), None)


def _loads(nodes: Sequence[Node], tables: dict[Node, str]) -> int:
    """How often another table is needed than the one before, from the first function on."""
    found = [tables[node] for node in nodes if node in tables]
    return sum(one != other for one, other in pairwise(found))


def _moved(nodes: list[Node], first: int, last: int) -> list[Node] | None:
    """The nodes with one that comes right behind another, and what it is made of between both; None
    where that may not be."""
    needed: set[Tensor] = set(used_by(nodes[last]))
    moving = {last}
    made = set(written_by(nodes[last]))
    for at in range(last - 1, first, -1):
        node = nodes[at]
        tensor = begun_by(node)
        if tensor is not None:
            if tensor in needed:
                moving.add(at)
            continue
        written, used = set(written_by(node)), used_by(node).keys()
        if written & needed:
            if len(moving) > 2 * MOST or not _is_plain(node):
                return None
            moving.add(at)
            needed.update(used)
            made |= written
    for at in range(first + 1, last):
        node = nodes[at]
        if at not in moving and begun_by(node) is None and not made.isdisjoint(used_by(node)):
            return None
    earlier = [nodes[at] for at in sorted(moving)]
    rest = [
        node for at, node in enumerate(nodes[first + 1 : last + 1], first + 1) if at not in moving
    ]
    return [*nodes[: first + 1], *earlier, *rest, *nodes[last + 1 :]]


def _is_plain(node: Node) -> bool:
    """Whether an operation is one of the vector engine, or of GpSimd."""
    if not isinstance(node, Op) or node.after or node.row.register_writes:
        return False
    return node.fields.get("engine") in _COMPUTING


_COMPUTING = (Engine.vector, Engine.gpsimd)

_SCALAR = ENGINE_INDEX[Engine.scalar]
