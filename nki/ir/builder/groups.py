"""Accumulation groups over the iterations of a rolled loop.

A matmul overwrites its PSUM tile or adds to it (`accumulate=None`). That may differ between the
first iteration and later ones. Its flag is then a predicate of the loop's variable (`continued`). A
tracer runs the Python of a body twice and compares. A builder, whose bodies are built once, keeps
what a body does to PSUM (`PsumBlock`) and decides the flags of a second iteration from that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isa.affine import Predicate, affine, identical
from isa.errors import NeuronError
from isa.fields import Kind
from nki.ir.accumulate import Accumulation
from nki.ir.builder.loops import carried
from nki.ir.locations import resolve
from nki.ir.nodes import Access, Node, Op, Register, Tensor


def continued(op: Op, old: Any, new: Any, variable: Register | None, start: Any) -> Any:
    """The flag of a matmul that is `old` in the first iteration of a loop and `new` in the next:
    it overwrites in the first one and accumulates in later ones. `variable` and `start` are those
    of the loop, None in a `while`. Raises loop-carried-state."""
    if new is not True or old is True:
        raise carried(op, f"accumulate is {old}, then {new}")
    if start is None or variable is None:
        raise NeuronError(
            "loop-carried-state",
            what="a matmul starts an accumulation in the first iteration of a `while` and goes "
            "on with it in the next",
            why="The iterations of a `while` have no number that could tell the first one.",
            hint="Allocate the PSUM tile inside the loop, or clear it before the loop and pass "
            "accumulate=True.",
            location=resolve(op.location),
        )
    elapsed = affine(variable) - (affine(start) if isinstance(start, Register) else start)
    if isinstance(old, Predicate):
        # All terms are at least zero: the sum is zero in the very first iteration only.
        elapsed = elapsed + old.form
    return Predicate(elapsed, ">")


class Matmul:
    """A matmul into `dst`, which is `nodes[position]`, with the flag that it was given."""

    __slots__ = ("dst", "given", "nodes", "position")

    def __init__(self, dst: Access, given: Any, nodes: list[Node], position: int) -> None:
        self.dst = dst
        self.given = given
        self.nodes = nodes
        self.position = position

    @property
    def op(self) -> Op:
        op = self.nodes[self.position]
        assert isinstance(op, Op)
        return op

    @property
    def field(self) -> int:
        """The position of the flag among the operation's values."""
        return next(i for i, _, a in self.op.row.attributes if a.kind is Kind.accumulate)


class PsumBlock:
    """What a body does to PSUM, in order: matmuls, views that other instructions write, tensors
    that begin, and the loops inside. `trips` are the loop's iterations, None where only the device
    knows; `repeats` says whether there may be more than one; `variable` and `start` are set when
    the loop is complete."""

    __slots__ = ("events", "repeats", "start", "trips", "variable")

    def __init__(self, trips: Any, repeats: bool) -> None:
        self.trips = trips
        self.repeats = repeats
        self.variable: Register | None = None
        self.start: Any = None
        self.events: list[Matmul | Access | Tensor | PsumBlock] = []

    def matmuls(self) -> Iterator[Matmul]:
        """Those of the block, loops inside included, in order."""
        for event in self.events:
            if isinstance(event, Matmul):
                yield event
            elif isinstance(event, PsumBlock):
                yield from event.matmuls()

    def close(self, accumulation: Accumulation) -> None:
        """The body is complete: its matmuls' flags become those of all iterations.

        Raises as `continued` and `Accumulation.matmul` do, at the matmul that cannot go on.
        """
        if not self.repeats:
            return
        matmuls = list(self.matmuls())
        old = [matmul.op.values[matmul.field] for matmul in matmuls]
        for matmul, flag in zip(matmuls, self._merged(old, self._iteration(accumulation))):
            op, field = matmul.op, matmul.field
            op.values = (*op.values[:field], flag, *op.values[field + 1 :])

    def _merged(self, first: list[Any], second: list[Any]) -> list[Any]:
        """The flags of all iterations, from those of the first and of the second one."""
        return [
            old
            if matmul.given is not None or _same(old, new)
            else continued(matmul.op, old, new, self.variable, self.start)
            for matmul, old, new in zip(self.matmuls(), first, second)
        ]

    def _iteration(self, accumulation: Accumulation) -> list[Any]:
        """The flags of the block's matmuls in one more iteration."""
        flags: list[Any] = []
        for event in self.events:
            if isinstance(event, Matmul):
                try:
                    flags.append(accumulation.matmul(event.dst, event.given))
                except NeuronError as error:
                    error.location = error.location or resolve(event.op.location)
                    raise
            elif isinstance(event, Access):
                accumulation.overwritten(event)
            elif isinstance(event, Tensor):
                accumulation.begin(event)
            else:
                accumulation.enter_loop(event.trips)
                inner = event._iteration(accumulation)
                if event.repeats:
                    inner = event._merged(inner, event._iteration(accumulation))
                accumulation.leave_loop()
                flags += inner
        return flags


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, Predicate) and isinstance(new, Predicate):
        return old.op == new.op and identical(old.form, new.form)
    return old is new
