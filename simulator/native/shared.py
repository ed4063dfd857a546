"""What the records of one core's streams share."""

from __future__ import annotations

import ctypes
from typing import Any

from simulator.checks.marks import Region
from simulator.foresight import Foresight
from simulator.native.loop import BEGIN
from simulator.native.structure import Memory
from simulator.native.template import Computation, Template
from simulator.views import Window


class Shared:
    """Computations and templates by what they do, layouts of windows, and where regions begin.
    `foresight` is as of `simulator.native.program`."""

    def __init__(self, memory: Memory, foresight: Foresight) -> None:
        self.foresight = foresight
        self.computations: dict[Any, Computation | None] = {}
        self.templates: dict[Any, Template | None] = {}
        self._memory = memory
        self._layouts: dict[tuple[Any, ...], int] = {}
        self._count = 0
        self._begins: dict[int, tuple[Region, list[Any]]] = {}

    def layout(self, window: Window) -> int:
        """A number, equal for windows that differ in nothing but an offset that no register
        moves."""
        if window.dynamic or window.index is not None:
            key: tuple[Any, ...] = (id(window.buffer), id(window))
        else:
            key = (
                *(id(window.buffer), window.origin, window.shape, window.strides),
                *(window.name, window.skip),
            )
        number = self._layouts.get(key)
        if number is None:
            self._count += 1
            number = self._layouts[key] = self._count
        return number

    def forget(self, buffer: Any) -> None:
        """A buffer is used no more: another one at its place has layouts of its own."""
        for key in [key for key in self._layouts if key[0] == id(buffer)]:
            del self._layouts[key]

    def begins(self, words: Any, region: Region) -> None:
        """The `BEGIN` of an allocation is told its region."""
        if words[_REGION] != region.number:
            words[_REGION] = region.number
            self._begins.setdefault(region.number, (region, []))[1].append(words)

    def name_rivals(self, region: Region) -> None:
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
