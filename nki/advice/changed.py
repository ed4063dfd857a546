"""Kernels changed as an author might change them, and the lines that are changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from nki.ir.locations import resolve
from nki.ir.nodes import Op, TracedKernel, operations

Line = tuple[str, int]
"""File and number of a line of the kernel's source."""


class Changed(NamedTuple):
    """A kernel with one thing changed at a line: what was wrong there, what the author would do,
    whether results keep their bits, and what of the gain counts when advice is ordered: less than
    1 where the author has to give something for it. A change that is found at several lines names
    the operations that it makes `of`."""

    bottleneck: str
    text: str
    kernel: TracedKernel
    same_results: bool = True
    weight: float = 1.0
    of: frozenset[Op] = frozenset()


Changes = Callable[[TracedKernel, Line], Iterator[Changed]]
"""What a kind of change makes of a line of a kernel; nothing where it does not apply."""


def line_of(op: Op) -> Line | None:
    """The line of the source that an operation comes from."""
    place = resolve(op.location)
    return None if place is None else (place.file, place.line)


def at_line(kernel: TracedKernel, line: Line) -> list[Op]:
    """The operations of a line, those in loops included."""
    return [op for body in kernel.bodies for op in operations(body) if line_of(op) == line]
