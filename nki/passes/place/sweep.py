"""Next-fit, or first-fit, allocation of one memory in one sweep over its live ranges.

Live ranges come in the author's order. Next-fit takes the first gap after the range placed before,
and wraps round.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import islice
from typing import TYPE_CHECKING

from nki.passes.place.packing import ALIGNMENT

if TYPE_CHECKING:
    from nki.passes.place.live_ranges import Life

Taken = list[tuple[int, int, int]]
"""(offset, end, last position) of what is placed, by offset."""


class OffsetSweep:
    """Gives the live ranges `moving`, which come by their first position, their `offsets`.

    With `rotate` each is looked a place for from the `cursor` on, the end of the one before, and
    else from the lowest offset on. The `fixed` ones, whose tensors have an address of the author's,
    keep their bytes.
    """

    def __init__(
        self, moving: list[Life], fixed: list[Life], capacity: int, bank: int, rotate: bool
    ) -> None:
        self.moving = moving
        self.capacity = capacity
        self.offsets: list[int] = []
        self.cursor = 0
        self._fixed = fixed
        self._bank = bank
        self._rotate = rotate
        self._alignments = (bank, ALIGNMENT) if bank and rotate else (ALIGNMENT,)
        self._live: Taken = []
        self._expiry: Taken = []  # (last position, offset, end)

    def run(self, count: int | None = None) -> Life | None:
        """Places the next `count` live ranges, or all; returns the first that does not fit."""
        live, expiry, unit = self._live, self._expiry, self._alignments[0]
        done = len(self.offsets)
        for life in self.moving[done : None if count is None else done + count]:
            size = life.size
            if expiry and expiry[0][0] < life.first:
                self._expire(life.first)
            offset = -(-self.cursor // unit) * unit
            end = offset + size
            at = bisect_left(live, (offset,))
            if (
                self._fixed
                or (at and live[at - 1][1] > offset)
                or end > (live[at][0] if at < len(live) else self.capacity)
            ):
                found = self._gap(self._taken(life), size)
                if found is None:
                    return life
                offset = found
                end = offset + size
                at = bisect_left(live, (offset,))
            live.insert(at, (offset, end, life.last))
            insort(expiry, (life.last, offset, end))
            self.offsets.append(offset)
            if self._rotate:
                self.cursor = end
        return None

    def rounds(self, size: int, count: int) -> Life | None:
        """Places the next `count` live ranges, which repeat every `size`, beginning anew each time;
        returns the first that does not fit.

        Where what is live is as at an earlier beginning, the places that follow are a copy.
        """
        begin = len(self.offsets)
        stop = begin + count
        until = self.moving[stop - 1].first
        seen: dict[tuple[tuple[int, int, int], ...], int] = {}
        for at in range(begin, stop, size):
            self.cursor = 0
            self._expire(self.moving[at].first)
            if not self._fixed:  # those that are still to come count too
                before = seen.setdefault(self._state(self.moving[at].first, until), at)
                if before < at:
                    self._copy(at - before, stop, until)
                    break
            failed = self.run(min(size, stop - at))
            if failed is not None:
                return failed
        return None

    def _state(self, position: int, until: int) -> tuple[tuple[int, int, int], ...]:
        """The bytes that are taken, and for how long from a position on; whatever lives to the
        position `until` lives as long as matters."""
        return tuple(
            (offset, end, last - position if last < until else -1)
            for offset, end, last in self._live
        )

    def _copy(self, distance: int, stop: int, until: int) -> None:
        """Places the live ranges before `stop`, the last of which begins at the position `until`,
        like those that come `distance` before."""
        done = len(self.offsets)
        wanted = stop - done
        self.offsets += (self.offsets[-distance:] * (wanted // distance + 1))[:wanted]
        self.cursor = self.offsets[-1] + self.moving[stop - 1].size
        kept = [taken for taken in self._live if taken[2] >= until]
        kept += [
            (offset, offset + life.size, life.last)
            for life, offset in zip(self.moving[done:stop], self.offsets[done:])
            if life.last >= until
        ]
        self._live[:] = sorted(kept)
        self._expiry[:] = sorted((last, offset, end) for offset, end, last in kept)

    def _expire(self, position: int) -> None:
        """What ends before a position is no longer live."""
        while self._expiry and self._expiry[0][0] < position:
            last, offset, end = self._expiry.pop(0)
            del self._live[bisect_left(self._live, (offset, end, last))]

    def _taken(self, life: Life) -> Taken:
        """What is live, and the tensors of fixed address that live together with `life`."""
        blocked = [
            (other.address[1], other.address[1] + other.size, other.last)
            for other in self._fixed
            if other.first <= life.last and life.first <= other.last
        ]
        return _disjoint(sorted(self._live + blocked)) if blocked else self._live

    def _gap(self, taken: Taken, size: int) -> int | None:
        """The first free offset at or after the cursor, wrapping round; None if there is none.

        PSUM tensors start a bank of their own while there is one, and never cross a bank's end
        unless they are larger than a bank.
        """
        for alignment in self._alignments:
            for low in (self.cursor, 0) if self.cursor else (0,):
                offset = _fit(taken, size, low, self.capacity, alignment, self._bank)
                if offset is not None:
                    return offset
        return None


def _disjoint(taken: Taken) -> Taken:
    """Places, by offset, those that overlap as one: authors may give several tensors the same."""
    merged: Taken = []
    for start, end, last in taken:
        if merged and start < merged[-1][1]:
            low, high, until = merged.pop()
            merged.append((low, max(high, end), max(until, last)))
        else:
            merged.append((start, end, last))
    return merged


def _fit(taken: Taken, size: int, low: int, capacity: int, alignment: int, bank: int) -> int | None:
    """The first free offset from `low` on; `taken` are disjoint, by offset."""
    offset = -(-low // alignment) * alignment
    candidate: int
    for start, end, _ in islice(taken, max(bisect_left(taken, (offset,)) - 1, 0), None):
        if end <= offset:
            continue
        candidate = _within_bank(offset, size, alignment, bank)
        if candidate + size <= start:
            return candidate
        offset = max(offset, -(-end // alignment) * alignment)
    candidate = _within_bank(offset, size, alignment, bank)
    return candidate if candidate + size <= capacity else None


def _within_bank(offset: int, size: int, alignment: int, bank: int) -> int:
    if bank and offset % bank and (offset % bank + size > bank):
        return -(-offset // bank) * bank
    return offset
