"""Limits for which no rule says which is best: plans to choose from.

From -O2 on a graph is compiled and timed with each plan (`graph_compiler.compiled`), as far as that
many operations are worth it, and the fastest is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from graph_compiler.lower.sizes import widens
from graph_compiler.schedule.fusion import ElementExpression, Lazy, Literal


@dataclass(slots=True)
class PlanLimits:
    """`right`: bytes of a partition that the right operand of a product in a group of rows may
    take. A weight that stays for all of the rows is loaded once, and leaves less room for the
    loads that come before their use.

    `resident`: bytes of a partition that rows of a group and all right operands in it may take.

    `repeated`: the cost of a value up to which several users each compute it for themselves. A
    value that is kept takes room, and is computed once.

    `loaded`: the elements of a row that all partitions have, up to which each of them loads it. A
    longer one is loaded once, and the tensor engine spreads it.

    `transposed`: the elements of rows up to which the tensor engine transposes them for a product.
    Longer ones are transposed by DMA engines, which are slower, but leave nothing to copy out of
    PSUM.

    `elements`: elements of a batch that go through a group together. Each transfer of more of them
    is longer, and fewer groups of them overlap.

    `relaid`: elements of rows that memory has not up to which groups go along them. Whether these
    are faster is close where rows are short.

    `alone`: the first core does all, where there are several.

    `asked`: what was compared with which limit."""

    right: int = 24 << 10
    resident: int = 80 << 10
    repeated: int = 1
    loaded: int = 1 << 30
    transposed: int = 1 << 30
    elements: int = 4
    relaid: int = 1 << 30
    alone: bool = False
    asked: set[tuple[str, int]] = field(default_factory=set)

    @property
    def name(self) -> str:
        """What is other than usual.

        >>> PlanLimits().name, PlanLimits(right=8192, repeated=6).name
        ('usual limits', 'right 8192, repeated 6')
        """
        usual, names = (
            PlanLimits(),
            (
                *("right", "resident", "repeated", "loaded", "transposed", "elements"),
                *("relaid", "alone"),
            ),
        )
        found = {name: getattr(self, name) for name in names}
        changed = [f"{n} {v}" for n, v in found.items() if v != getattr(usual, n)]
        return ", ".join(changed) or "usual limits"

    def allows(self, right: int) -> bool:
        """Whether a product with a right operand of so many bytes may be in a group."""
        return self._within("right", right)

    def keeps(self, size: int) -> bool:
        """Whether so many bytes of a partition stay for all tiles of rows of a group."""
        return self._within("resident", size)

    def repeats(self, value: ElementExpression) -> bool:
        """Whether several users each compute a value. Rows that are too long to stay on chip are
        not kept for little."""
        cost = _cost(value)
        if math.prod(value.dims[-1:]) > _LONG:
            return cost <= _LITTLE
        return self._within("repeated", cost)

    def loads(self, elements: int) -> bool:
        """Whether each partition loads a row of so many elements for itself."""
        return self._within("loaded", elements)

    def turns(self, elements: int) -> bool:
        """Whether the tensor engine turns rows of so many elements, which DMA engines could."""
        return self._within("transposed", elements)

    def together(self, elements: int) -> int:
        """How many of so many elements of a batch go through a group together."""
        return elements if self._within("elements", elements) else self.elements

    def relays(self, elements: int) -> bool:
        """Whether a group goes along rows of so many elements that memory has not."""
        return self._within("relaid", elements)

    def _within(self, limit: str, size: int) -> bool:
        self.asked.add((limit, size))
        return bool(size <= getattr(self, limit))

    def decisions(self, asked: Iterable[tuple[str, int]]) -> tuple[bool, ...]:
        """What would be within these limits of what was compared with others, and `alone`."""
        return self.alone, *(size <= getattr(self, limit) for limit, size in sorted(asked))


def _cost(value: Lazy) -> int:
    """What a value costs for each of its elements: not what is computed once a row, nor what
    engines widen while they read it."""
    if not isinstance(value, ElementExpression) or _is_by_row(value):
        return 0
    (first, *_) = value.arguments
    inner = sum(map(_cost, value.arguments))
    own = value.cost - sum(
        one.cost for one in value.arguments if isinstance(one, ElementExpression)
    )
    return inner if value.op in _CONVERSIONS and widens(first.type, value.type) else inner + own


_CONVERSIONS = frozenset({"convert"})


def _is_by_row(value: Lazy) -> bool:
    """Whether a value is the same along its last dimension."""
    if isinstance(value, ElementExpression):
        return all(map(_is_by_row, value.arguments))
    return isinstance(value, Literal) or (value.dims[-1:] > (1,) and not value.strides[-1])


_LONG = 8192
"""Elements of a row that is too long to stay on chip for others."""

_SPREAD = 255
"""Elements of a row above which the tensor engine may spread it."""

_TURNED = 511
"""Elements of a row above which DMA engines may turn it: transfers of fewer take too long each."""

_LITTLE = 6
"""The cost up to which a value is less to compute again than to store and to load."""


def plans(cores: int = 1) -> tuple[PlanLimits, ...]:
    """The limits to try for so many cores; the first ones are for whoever tries no others. Where
    there are several cores, the first one alone has the plans that it would have without them."""
    small, large, most = 8 << 10, 72 << 10, 128 << 10
    ways = (
        PlanLimits(),
        PlanLimits(relaid=0),
        PlanLimits(repeated=6),
        PlanLimits(right=large, resident=most),
        PlanLimits(right=large),
        PlanLimits(right=large, resident=most, loaded=_SPREAD),
        PlanLimits(transposed=_TURNED),
        PlanLimits(loaded=_SPREAD),
        PlanLimits(right=small),
        PlanLimits(right=small, repeated=6),
        PlanLimits(elements=16),
    )
    alone = [replace(way, alone=True, asked=set()) for way in ways] if cores > 1 else []
    return *ways[:1], *alone, *ways[1:]
