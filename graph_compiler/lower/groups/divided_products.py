"""Softmax's division behind the product with the values: [rows, columns] instead of [rows, depth].

Before: `weights = e / sum(e)`, rounded, then `weights x values`; after: `(e rounded x values) *
(1 / sum(e))`. Each weight is rounded to as many bits as before, since a factor of a whole row
does not change how numbers round, and sums are fp32 in both. The nest that computes e writes what
the product reads, so that no nest stands between them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import nki.language as nl
from graph_compiler.lower.groups.members import LEFT, Member, RowNest, RowProduct, is_function
from graph_compiler.lower.nests.arithmetic import MODERATE
from graph_compiler.schedule.views import Buffer
from nki.ir.views.tensor import NkiTensor


@dataclass(frozen=True, slots=True)
class Divided:
    """Members that divide rows for a product, and make these: the latter as it is without the
    former."""

    nest: int
    maker: int
    rows: RowNest
    least: float
    """What sums below it are divided by."""

    def factor(self, total: NkiTensor) -> NkiTensor:
        """What results are multiplied by, from the sums of rows."""
        if self.least > -math.inf:
            total = nl.maximum(total, self.least, dtype="float32")
        return nl.reciprocal(total, dtype="float32")


def divided_products(
    members: list[Member],
    summed: Mapping[int, int],
    inside: Container[Buffer],
    alone: Container[Buffer],
) -> dict[int, Divided]:
    """Products whose left operand is a quotient by a number of each row, by member. `summed`: nests
    that sum up rows, with those that make the rows; `inside`: buffers that members read and no
    other step; `alone`: those that one member reads."""
    found = {}
    for number, nest in enumerate(members):
        least = _least_divisor(nest) if isinstance(nest, RowNest) else None
        if least is None:
            continue
        assert isinstance(nest, RowNest)
        target, rows, divisor = nest.uses
        readers = [n for n, other in enumerate(members) if target.buffer in other.reads]
        makers = [n for n, other in enumerate(members) if other.uses[0].buffer is rows.buffer]
        sums = [n for n, other in enumerate(members) if rows.buffer in other.reads and n != number]
        if len(readers) != 1 or len(makers) != 1:
            continue
        if target.buffer not in alone or rows.buffer not in inside:
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
            found[reader] = Divided(number, maker, replace(made, loop=own, places=places), least)
    return found


def _least_divisor(nest: RowNest) -> float | None:
    """The least number by which a nest divides rows, by one number each, about 1 in size, and
    rounds at most; None of other nests."""
    loop = nest.loop
    if loop.fold is not None or len(loop.leaves) != 2 or not loop.steps:
        return None
    steps, divisor, least = list(loop.steps), 1, -math.inf
    if [step.op for step in steps[:2]] == _AT_LEAST and sorted(steps[1].arguments) == [1, 2]:
        least, divisor, steps = steps[0].attribute, 3, steps[2:]
    number = 2 + len(loop.steps) - len(steps)
    first, *others = steps
    rounds = all(step.op in _ROUNDED and step.arguments == (number,) for step in others)
    alike = not any(axis.strides[2] for axis in nest.inner)
    quotient = first.arguments == (0, divisor) and first.attribute == MODERATE
    return least if quotient and rounds and len(others) <= 1 and alike else None


_AT_LEAST = ["literal", "maximum"]
_ROUNDED = frozenset({"convert"})
