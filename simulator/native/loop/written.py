"""Write timestamps of blocks of SBUF: they tell whether a packed copy of a tile is still valid.

The clock counts queued jobs. Each block of `BLOCK` bytes of a partition, for all partitions
together, has the time of the last queued job that writes some of it. An instruction that is not
queued may write anywhere, so it sets one timestamp for all blocks (`anything`). A packed copy is
kept with the timestamp of its source (`WrittenText.time`), and is valid while that is the same.
"""

from __future__ import annotations

from typing import Any

from simulator.native.codegen.structure import Structure, StructureAt, StructureText, WordMemory
from simulator.native.codegen.text import WORD, Value

WRITTEN = Structure("now", "anything", "count")
"""`now`: the time; `anything`: when something ran that may have written anything. Behind it are the
times of `count` blocks."""

BLOCK = 512
"""Bytes of a partition whose time is one."""


def new_written(memory: WordMemory, partition_bytes: int) -> Any:
    """A `WRITTEN` for partitions of this size."""
    count = -(-partition_bytes // BLOCK)
    return memory.words([*WRITTEN.words(now=1, anything=1, count=count), *[0] * count])


class WrittenText:
    """Writes into `f` what keeps the times."""

    def __init__(self, f: StructureText, written: Value) -> None:
        self.f = f
        self._written = StructureAt(f, WRITTEN, written)

    def _blocks(self, low: Value, high: Value) -> tuple[Value, Value]:
        """Addresses of the times of some bytes: the first one, and behind the last one."""
        f = self.f
        count = self._written.get("count")
        shift = f.integer(BLOCK.bit_length() - 1)
        first = f.intrinsic("smax", f.binary("ashr", low, shift), f.integer(0))
        last = f.binary("ashr", high + (BLOCK - 1), shift)
        return first, f.intrinsic("smin", last, count)

    def _time_at(self, block: Value) -> Value:
        f = self.f
        return f.element_at(self._written.pointer + WRITTEN.size, block, WORD)

    def write(self, low: Value, high: Value) -> None:
        """A job is queued that writes these bytes of partitions."""
        f = self.f
        now = self._written.add("now", f.integer(1))
        f.loop(*self._blocks(low, high), 1, lambda block: f.store(now, self._time_at(block)))

    def write_anything(self) -> None:
        """Something runs that may write any bytes."""
        self._written.set("anything", self._written.add("now", self.f.integer(1)))

    def time(self, low: Value, high: Value) -> Value:
        """When these bytes may have been written last; never 0."""
        f = self.f

        def later(block: Value, time: Value) -> list[Value]:
            return [f.intrinsic("smax", time, f.load(self._time_at(block), "i64"))]

        start = [self._written.get("anything")]
        (time,) = f.loop(*self._blocks(low, high), 1, later, start)
        return time
