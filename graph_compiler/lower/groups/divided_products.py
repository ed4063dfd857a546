"""Softmax's division behind the product with the values: [rows, columns] instead of [rows, depth].

Before: `weights = e / sum(e)`, rounded, then `weights x values`; after: `(e rounded x values) *
(1 / sum(e))`. Each weight is rounded to as many bits as before, since a factor of a whole row
does not change how numbers round, and sums are fp32 in both. The nest that computes e writes what
the product reads, so that no nest stands between them.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

from graph_compiler.lower.groups.members import LEFT, Member, RowNest, RowProduct, is_function
from graph_compiler.lower.nests.arithmetic import MODERATE
from graph_compiler.schedule.views import Buffer


@dataclass(frozen=True, slots=True)
class Divided:
    """Members that divide rows for a product, and make these: the latter as it is without the
    former."""

    nest: int
    maker: int
    rows: RowNest


def divided_products(
    members: list[Member], summed: Mapping[int, int], alone: Container[Buffer]
) -> dict[int, Divided]:
    """Products whose left operand is a quotient by a number of each row, by member. `summed`: nests
    that sum up rows, with those that make the rows; `alone`: buffers that one member reads and no
    other step."""
    found = {}
    for number, nest in enumerate(members):
        if not isinstance(nest, RowNest) or not _divides(nest):
            continue
        target, rows, divisor = nest.uses
        readers = [n for n, other in enumerate(members) if target.buffer in other.reads]
        makers = [n for n, other in enumerate(members) if other.uses[0].buffer is rows.buffer]
        sums = [n for n, other in enumerate(members) if rows.buffer in other.reads and n != number]
        if len(readers) != 1 or len(makers) != 1 or target.buffer not in alone:
            continue
        (reader,), (maker,) = readers, makers
        product, made = members[reader], members[maker]
        if not isinstance(product, RowProduct) or not isinstance(made, RowNest):
            continue
        if product.across != 1 or product.uses[LEFT] != target or not is_function(made):
            continue
        whole = target.step == rows.step and (target.low, rows.low) == (0, 0)
        only = [summed.get(n) for n in sums] == [maker] and rows == made.uses[0]
        divides = divisor.buffer in {members[n].uses[0].buffer for n in sums}
        if whole and only and divides:
            loop = made.loop
            last = loop.steps[-1]._replace(type=target.type)
            own = replace(
                loop, output=(target.type, loop.output[1]), steps=(*loop.steps[:-1], last)
            )
            places = [nest.places[0], *made.places[1:]]
            found[reader] = Divided(number, maker, replace(made, loop=own, places=places))
    return found


def _divides(nest: RowNest) -> bool:
    """Whether a nest divides rows by one number each, about 1 in size, and rounds at most."""
    loop = nest.loop
    if loop.fold is not None or len(loop.leaves) != 2 or not loop.steps:
        return False
    first, *others = loop.steps
    rounds = all(step.op in _ROUNDED and step.arguments == (2,) for step in others)
    alike = not any(axis.strides[2] for axis in nest.inner)
    quotient = first.arguments == (0, 1) and first.attribute == MODERATE
    return quotient and rounds and len(others) <= 1 and alike


_ROUNDED = frozenset({"convert"})
