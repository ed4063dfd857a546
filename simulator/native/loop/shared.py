"""Tables that the records of one core's streams share."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from simulator.by_identity import ByIdentity
from simulator.checks.regions import MarkedBox, MarkedRegion
from simulator.native.codegen.structure import WordMemory
from simulator.native.loop.template import RecordTemplate
from simulator.native.loop.walk import BEGIN
from simulator.views import Window


class SharedTemplates:
    """What the streams of a core have in common: templates by what they do, numbers of layouts of
    windows, and where regions begin. `boxes`: by number, where the allocations lie that accesses
    are known to be in."""

    def __init__(self, memory: WordMemory, boxes: Sequence[MarkedBox]) -> None:
        self.boxes = boxes
        self.templates: dict[Any, RecordTemplate | None] = {}
        self._memory = memory
        self._layouts: dict[tuple[Any, ...], int] = {}
        self._buffers: ByIdentity[int] = ByIdentity()
        self._begins: dict[int, tuple[MarkedRegion, list[Any]]] = {}

    def layout(self, window: Window) -> int:
        """A number, equal for windows that differ in nothing but an offset that no register
        moves."""
        if window.dynamic or window.index is not None:
            key: tuple[Any, ...] = (window,)
        else:
            buffer = self._buffers.setdefault(window.buffer, len(self._buffers))
            key = (
                *(buffer, window.origin, window.shape, window.strides),
                *(window.name, window.skip),
            )
        return self._layouts.setdefault(key, len(self._layouts))

    def begins(self, words: Any, region: MarkedRegion) -> None:
        """The `BEGIN` of an allocation is told its region."""
        if words[_REGION] != region.number:
            words[_REGION] = region.number
            self._begins.setdefault(region.number, (region, []))[1].append(words)

    def name_rivals(self, region: MarkedRegion) -> None:
        """Tell the allocations of a region what its rivals are, a `RIVAL` each."""
        if region.number not in self._begins:
            return
        table, count = 0, len(region.rivals)
        for begin in self._begins[region.number][1]:
            if begin[_COUNT] != count:
                if not table:
                    rivals = self._memory.words([rival.number for rival in region.rivals])
                    table = ctypes.addressof(rivals)
                begin[_RIVALS], begin[_COUNT] = table, count

    def name_all_rivals(self) -> None:
        """Tell all allocations."""
        for region, _ in self._begins.values():
            self.name_rivals(region)


_REGION, _RIVALS, _COUNT = (BEGIN.indices[name] for name in ("region", "rivals", "rivals_count"))
