"""The left operand of a product in tiles of rows, loaded and turned when it is first used."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from graph_compiler.lower.products.array_halves import Share
from graph_compiler.lower.products.element_runs import ElementRun, count_of
from graph_compiler.lower.products.sides import Sides
from nki.ir.views.tensor import NkiTensor

_TOGETHER = 2 << 10
"""Bytes of a partition from which on no more tiles of rows are moved together: that would delay the
first product, and the end of the last transfer. Shorter runs are slow."""

LEFT, RIGHT, TARGET = range(3)
"""The operands of a product, and its result."""


class Elements(NamedTuple):
    """Neighbouring elements of a batch: where the first one's operands and result begin, and how
    far apart those of the others are."""

    left: Any
    right: Any
    target: Any
    number: int = 1
    steps: tuple[int, int, int] = (0, 0, 0)


class LeftOperand:
    """The left operand of some tiles of rows, of elements of the batch, loaded and turned when it
    is first used."""

    def __init__(
        self,
        sides: Sides,
        group: list[list[ElementRun]],
        places: Elements,
        in_memory: bool,
        following: int,
    ) -> None:
        self.sides = sides
        self.following = following
        """Rows of an element, where those of all elements are loaded as one sequence; else 0."""
        self.all: dict[int, list[NkiTensor]] = {}
        self.in_memory = in_memory
        self.group = group
        self.places = places
        self.found: dict[tuple[int, int], list[NkiTensor]] = {}
        rows = sides.depth.elements * sides.size
        limit = len(group) if places.number > 1 else -(-_TOGETHER // rows)
        self.packs = list(alike(group, limit, fewer=True))

    def rows(self, number: int) -> int:
        """How many rows a tile has."""
        return count_of(self.group[number])

    def tiles(self, element: int, number: int) -> list[NkiTensor]:
        """[partitions, rows] of one tile of rows for each tile of the depth."""
        if self.following:
            return self._of_all(element, number)
        if (element, number) not in self.found:
            (pack,) = (pack for pack in self.packs if number in pack)
            self._load(pack)
        return self.found[element, number]

    def _of_all(self, element: int, number: int) -> list[NkiTensor]:
        """The rows of a tile among those of all elements."""
        ((run,), places) = self.group[number], self.places
        before, several, base, _ = self._share(element)
        if before not in self.all:
            step = places.steps[LEFT] // self.following
            offset = places.left + before * places.steps[LEFT]
            count = several * self.following
            self.all[before] = self.sides.of_all_rows(count, step, offset, base)
        first = (element - before) * self.following + run.first
        end = first + run.step * (run.count - 1) + 1
        return [tile[:, first : end : run.step] for tile in self.all[before]]

    def _share(self, element: int) -> Share:
        """The share of the elements that one is in."""
        shares = self.sides.halves.shares(self.places.number)
        return next(share for share in reversed(shares) if share.first <= element)

    def _load(self, pack: list[int]) -> None:
        sides, places = self.sides, self.places
        rows = [run for number in pack for run in self.group[number]]
        if not self.in_memory or sides.by_dma or len(rows) == 1 == places.number:
            for element, number in product(range(places.number), pack):
                left = places.left + element * places.steps[LEFT]
                self.found[element, number] = sides.of_rows(self.group[number], left)
            return
        batch = places.steps[LEFT], places.number
        found = sides.of_rows_together(rows, batch, places.left)
        self.found.update(zip(product(range(places.number), pack), found))


def alike(group: list[list[ElementRun]], most: int, fewer: bool = False) -> Iterator[list[int]]:
    """Neighbouring tiles of rows that are moved together: at most so many, of one run each, as long
    and as far apart. The last ones may have one row `fewer`."""
    pack: list[int] = []
    for number, own in enumerate(group):
        before = group[pack[-1]] if pack else []
        together = len(before) == len(own) == 1 and len(pack) < most
        if together:
            (one,), (other,) = before, own
            together = (one.stride, one.step) == (other.stride, other.step)
            together = together and 0 <= one.count - other.count <= fewer
        if together and len(pack) > 1:
            earlier = group[pack[-2]][0].first
            together = other.first - one.first == one.first - earlier
        if pack and not together:
            yield pack
            pack = []
        pack.append(number)
    yield pack
