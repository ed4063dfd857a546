"""Registers that may be read before they hold a value: the order of operations leaves it open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isa.affine import Predicate
from nki.ir.locations import resolve
from nki.ir.nodes import Loop, Node, Op, Register, walk
from nki.ir.rewrite import form_registers
from simulator.checks.unset import unset_register


def maybe_unset(body: list[Node]) -> set[Register]:
    """The registers of a body that something reads where it is not certain that they were written:
    a loop around the write may have had no iteration. Loop variables always hold a value."""
    if not any(isinstance(node, Op) and node.row.register_writes for node in walk(body)):
        return set()
    found: set[Register] = set()
    _follow(body, set(), found)
    return found


def refuse_never_written(body: list[Node], made: list[Register]) -> None:
    """Raise value-not-allowed for the first read of a register, of those that were made, that
    nothing writes."""
    written = {node.variable for node in walk(body) if isinstance(node, Loop)}
    for node in walk(body):
        if isinstance(node, Op):
            written.update(node.values[position] for position in node.row.register_writes)
    never = set(made) - written
    for node in walk(body) if never else ():
        if not never.isdisjoint(_read(node)):
            error = unset_register()
            error.location = resolve(node.location)
            try:
                raise error
            finally:
                del error  # else the error's traceback and this frame hold each other


def _follow(nodes: list[Node], held: set[Register], found: set[Register]) -> None:
    """Add to `found` what is read in these nodes and not in `held`, and to `held` what they write
    for certain."""
    for node in nodes:
        found.update(register for register in _read(node) if register not in held)
        if isinstance(node, Op):
            held.update(node.values[position] for position in node.row.register_writes)
            continue
        inside = set(held)
        if isinstance(node, Loop):
            inside.add(node.variable)
        _follow(node.body, inside, found)
        if isinstance(node, Loop) and node.runs:
            held |= inside


def _read(node: Node) -> Iterator[Register]:
    """The registers that a node reads, without those that its body does."""
    if isinstance(node, Loop):
        values: tuple[Any, ...] = (node.lower, node.upper)
    elif isinstance(node, Op):
        written = node.row.register_writes
        values = tuple(value for i, value in enumerate(node.values) if i not in written)
    else:
        values = (node.register,)
    for value in values:
        yield from form_registers(value.form if isinstance(value, Predicate) else value)
