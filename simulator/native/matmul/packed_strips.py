"""Strips of moving tiles that stay packed for as long as nothing writes the tile.

A tile that is multiplied several times, as keys and values of attention are, need not be packed
each time. Every thread has memory of its own with a place for each line of cache of the partitions
of SBUF: for the strip of 32 columns of 16 bits that begins there. When a strip comes for the second
time, and was not written in between (`simulator.native.loop.written`), it is packed there, else
into memory that is used again at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simulator.memory import LINE, bytes_at_line
from simulator.native.codegen.structure import Structure, StructureAt, StructureText
from simulator.native.codegen.text import Value
from simulator.native.matmul.image_layout import Word, header_word

STRIP = Structure("address", "depth", "seen", "time", "smallest")
"""What is known of a strip: which one, of how many rows; when what was `seen` last had been
written, and what was packed, 0 if nothing was; the least of its magnitudes. Each has a line of
cache, in the order of strips; behind them are the places."""

DEEPEST_KEPT = 128
"""Rows of the strips that there is room for."""

_PLACE = LINE * DEEPEST_KEPT + LINE
"""Bytes from one place to the next: lines of the same number do not take turns in one set of the
cache."""


def room_for_strips(pitch: int) -> Any:
    """Memory for all strips of one thread, where partitions are `pitch` bytes apart."""
    return bytes_at_line((LINE + _PLACE) * -(-pitch // LINE), zero=True)


class KeptStrip:
    """A strip: `place` is where it is packed, or to be packed."""

    def __init__(self, kept: KeptStrips, address: Value, strip: Value) -> None:
        self.f = f = kept.f
        self._kept = kept
        self._header = header = kept.known_of(address)
        self._address = address
        same = f.compare("icmp eq", header.get("address"), address)
        same = same & f.compare("icmp eq", header.get("depth"), kept.depth)
        same = same & kept.usable
        self._seen = same & f.compare("icmp eq", header.get("seen"), kept.time)
        self._there = same & f.compare("icmp eq", header.get("time"), kept.time)
        kept_there = self._seen | self._there
        self.place = f.select(kept_there, kept.place_of(address), strip)

    def smallest(self, pack: Callable[[], Value]) -> Value:
        """The least of its magnitudes; packs the strip, by `pack()` that gives it, unless it is."""
        f, header = self.f, self._header

        def make() -> None:
            header.set("smallest", pack())
            header.set("address", self._address)
            header.set("depth", self._kept.depth)
            header.set("time", f.select(self._seen, self._kept.time, f.integer(0)))
            header.set("seen", self._kept.time)

        f.when(self._there ^ 1, make)
        return header.get("smallest")

    def instead(self, rows: Value, along: Value) -> tuple[Value, Value]:
        """What is read of a later strip, where that is packed as this one is: the place of its
        first line, and the distance of others; else its rows, as given."""
        f = self.f
        lines = self._kept.place_of(f.convert("ptrtoint", rows, "i64"))
        return f.select(self._there, lines, rows), f.select(self._there, f.integer(LINE), along)


class KeptStrips:
    """Emits the look for strips of a moving tile of `depth` rows that was written at `time`; rows
    are `along` bytes apart. `image` is that of the loaded tile, whose header tells where they
    are."""

    def __init__(
        self, f: StructureText, image: Value, along: Value, depth: Value, time: Value
    ) -> None:
        self.f = f
        self.depth, self.time = depth, time
        self._memory = f.convert("inttoptr", header_word(f, image, Word.kept), "ptr")
        self._origin = header_word(f, image, Word.origin)
        pitch = header_word(f, image, Word.pitch)
        self._pitch = f.intrinsic("smax", pitch, f.integer(1))
        usable = f.compare("icmp ne", self._memory, Value("null", "ptr"))
        for condition in (
            f.compare("icmp ne", time, f.integer(0)),
            f.compare("icmp eq", along, pitch),
            f.compare("icmp sle", depth, f.integer(DEEPEST_KEPT)),
        ):
            usable = usable & condition
        self._usable = self.usable = usable
        self._nothing = f.scratch("i64", len(STRIP.names))

    def find(self, tile: Value, strip: Value) -> KeptStrip:
        """The strip that begins at `tile`; where it is not kept, it is packed into `strip`."""
        f = self.f
        address = f.convert("ptrtoint", tile, "i64")
        first = self._within(address) & (LINE - 1)
        aligned = f.compare("icmp eq", first, f.integer(0))
        self.usable = self._usable & aligned
        return KeptStrip(self, address, strip)

    def known_of(self, address: Value) -> StructureAt:
        """The `STRIP` of one that begins at an address; one that nobody needs if it is not kept."""
        f = self.f
        place = f.element_at(self._memory, self._number(address), LINE)
        return StructureAt(f, STRIP, f.select(self.usable, place, self._nothing))

    def place_of(self, address: Value) -> Value:
        """The place of a strip that begins at an address."""
        f = self.f
        lines = self._pitch + (LINE - 1)
        first = self._memory + (lines & -LINE)
        return f.element_at(first, self._number(address), _PLACE)

    def _number(self, address: Value) -> Value:
        """The number of a strip that begins at an address."""
        return self.f.binary("lshr", self._within(address), self.f.integer(LINE.bit_length() - 1))

    def _within(self, address: Value) -> Value:
        """Where in its partition an address is."""
        f = self.f
        return f.binary("urem", address - self._origin, self._pitch)
