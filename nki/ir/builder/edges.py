"""Edges between instructions: `kernel.with_schedule([("later", "earlier"), ...])` by their names,
and `later.depends_on(earlier)`.

Source: SDK nki/guides/how-to-scheduling-apis.rst, and nki/api/nki/isa/__init__.py, depends_on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from isa.errors import NeuronError
from nki.ir.locations import resolve
from nki.ir.nodes import Node, Op, operations, walk

Schedule = tuple[tuple[str, tuple[str, ...]], ...]
"""Names of instructions, each with those of the instructions that it comes after."""


def schedule_of(edges: Any) -> Schedule:
    """The pairs (name, name or names) as tuples. Raises value-not-allowed."""
    found = []
    for edge in edges:
        if not (isinstance(edge, Sequence) and len(edge) == 2 and isinstance(edge[0], str)):
            raise _refused(f"{edge!r} is no pair of a name and the name or names it depends on")
        later, earlier = edge
        names = (earlier,) if isinstance(earlier, str) else tuple(earlier)
        if not names or not all(isinstance(name, str) for name in names):
            raise _refused(f"{later!r} depends on {earlier!r}, which is no name or list of names")
        found.append((later, names))
    return tuple(found)


def add_edges(bodies: list[list[Node]], schedule: Schedule) -> None:
    """The instructions of the names come after those that the schedule says, on each core.

    Raises value-not-allowed for names that no instruction has, and for edges against the order in
    which the kernel calls them.
    """
    if not schedule:
        return
    known: set[str] = set()
    for nodes in bodies:
        named: dict[str, list[Op]] = {}
        place: dict[Op, int] = {}
        for i, node in enumerate(walk(nodes)):
            if isinstance(node, Op) and node.name:
                named.setdefault(node.name, []).append(node)
                place[node] = i
        known.update(named)
        for later, names in schedule:
            for op in named.get(later, ()):
                for earlier in names:
                    before = named.get(earlier, [])
                    if any(place[other] >= place[op] for other in before):
                        raise _against(later, earlier, op)
                    op.after = (*op.after, *before)
    for later, names in schedule:
        for name in (later, *names):
            if name not in known:
                listed = ", ".join(sorted(known)) or "none"
                raise _refused(f"no instruction is named {name!r}; names are {listed}")


def check_edges(bodies: list[list[Node]]) -> None:
    """Every instruction comes after such that run before it whenever it runs.

    Raises value-not-allowed where an instruction is to come after itself or a later one, or, from
    outside of a loop on the device, after an instruction of that loop.
    """
    for nodes in bodies:
        if any(op.after for op in operations(nodes)):
            _check_block(nodes, set(), frozenset(operations(nodes)))


def _check_block(nodes: list[Node], before: set[Op], known: frozenset[Op]) -> None:
    """`before` are the instructions that have run: of this block, and of those around it."""
    own = []
    for node in nodes:
        if isinstance(node, Op):
            for other in node.after:
                if other not in before:
                    raise out_of_order(node, other, known)
            before.add(node)
            own.append(node)
        else:
            _check_block(node.body, before, known)
    before.difference_update(own)


def out_of_order(op: Op, other: Op, known: Collection[Op]) -> NeuronError:
    """The error of an instruction that depends on one that has not run when it does; `known` are
    those of its core."""
    place = resolve(other.location)
    where = f" of line {place.line}" if place is not None and place.line else ""
    if other is op:
        what = f"{op.row.name} depends on itself"
    elif other in known:
        what = f"{op.row.name} depends on {other.row.name}{where}, which has not run there"
    else:
        what = f"{op.row.name} depends on {other.row.name}{where}, which this core does not run"
    return NeuronError(
        "value-not-allowed",
        what=what,
        why="An instruction waits for instructions above it, of the same loop on the device or of "
        "one around it: an edge out of a loop, or into one beside it, may never be passed (SDK "
        "nki/api/nki/isa/__init__.py, depends_on).",
        hint="Depend on an instruction above that is outside of loops on the device, or in the "
        "same one.",
        location=resolve(op.location),
    )


def _against(later: str, earlier: str, op: Op) -> NeuronError:
    return NeuronError(
        "value-not-allowed",
        what=f"{later!r} depends on {earlier!r}, which the kernel calls behind it",
        why="The order of calls is the meaning of a kernel. Edges keep instructions from changing "
        "places, and put none before an earlier one.",
        hint=f"Call {earlier!r} first.",
        location=resolve(op.location),
    )


def _refused(what: str) -> NeuronError:
    return NeuronError(
        "value-not-allowed",
        what=f"with_schedule: {what}",
        why="A schedule is a list of pairs: the name of an instruction, and the name or names of "
        "those that it depends on (SDK nki/guides/how-to-scheduling-apis.rst).",
        hint='Name instructions with name="..." in their calls, and use these names.',
    )
