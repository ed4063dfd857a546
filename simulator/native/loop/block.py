"""Records and words of instructions that share a template: an array of rows, and their marks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from isa.columns import Integers
from simulator.by_identity import ByIdentity
from simulator.checks.grids import GridSizes
from simulator.checks.initialised import Shadow
from simulator.checks.regions import MarkedBox
from simulator.native.codegen.structure import WordMemory
from simulator.native.loop.operand_marks import FoundRegions, OperandPlace, mark, regions_of
from simulator.native.loop.operands import OPERAND
from simulator.native.loop.template import RecordTemplate, addresses
from simulator.views import Window


class RecordBlock:
    """The uses of a template. `windows` are those of the operands of one of them. By use and
    operand, `offsets` says where the operand begins, and `holders` the number of the allocation
    that it lies in, -1 where that is not known. The words belong to `memory`."""

    __slots__ = ("_template", "holders", "offsets", "records", "windows", "words")

    def __init__(
        self,
        template: RecordTemplate,
        windows: Sequence[Window],
        offsets: Integers,
        holders: Integers,
        memory: WordMemory,
    ) -> None:
        self._template = template
        self.windows = list(windows)
        self.offsets = offsets
        self.holders = holders
        self.words, self.records = template.place(offsets)
        memory.keep(self.words)

    def operands(self, use: int | None = None) -> list[OperandPlace]:
        """The operands of all uses, or of one."""
        rows = slice(None) if use is None else slice(use, use + 1)
        return [
            OperandPlace(
                position,
                position in self._template.written,
                self.words[rows, first : first + len(OPERAND.names)],
                window,
                self.offsets[rows, number],
                self.holders[rows, number],
            )
            for number, ((position, first), window) in enumerate(
                zip(self._template.operands, self.windows)
            )
        ]

    def noted(self) -> list[tuple[Window, list[int]]]:
        """The columns of words that hold addresses in memory which may move, by whose it is."""
        return [(self.windows[number], [*indices]) for number, indices in self._template.noted]

    def move(self, old: object, new: np.ndarray) -> None:
        """A tensor is in another buffer from now on."""
        for window in self.windows:
            if window.buffer is old:  # of rows that indices pick from
                window.move(new)

    def apart(self, use: int, memory: WordMemory) -> RecordBlock:
        """One use, with words of its own."""
        found: RecordBlock = object.__new__(RecordBlock)
        found._template, found.windows = self._template, self.windows
        found.offsets, found.holders, found.words, found.records = (
            rows[use : use + 1].copy()
            for rows in (self.offsets, self.holders, self.words, self.records)
        )
        memory.keep(found.words)
        distance = addresses(found.words)[0] - addresses(self.words)[use]
        found.words[:, self._template.own] += distance
        found.records[:, self._template.record_own] += distance
        return found

    def regions(
        self, boxes: Sequence[MarkedBox], shadow: Shadow, sizes: ByIdentity[GridSizes]
    ) -> list[FoundRegions]:
        """The regions in which the operands lie. If another region that holds them should live,
        Python finds that. `sizes`, by the memory of arenas, learn what marks suit the operands."""
        return [regions_of(place, boxes, shadow, sizes) for place in self.operands()]

    def mark(self, regions: Sequence[FoundRegions], shadow: Shadow) -> None:
        """Tell all operands where their marks are, and in which regions they lie."""
        for place, found in zip(self.operands(), regions):
            mark(place, found, shadow)
