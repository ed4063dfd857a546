"""Numbers for what memories hold, equal where values are the same whatever the data of a run are.

A number stands for how a value was made: the instruction, and the numbers of what it has read. So
two cores hold the same value where both have made it in the same way from the same arguments (value
numbering, as compilers do it to find common subexpressions). Between two meetings of cores each
sees its own writes to shared HBM; behind a meeting all see those of all.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from isa.alu import AluOperator
from isa.enums import Engine, ReduceCommand
from isa.fields import Kind
from isa.machine.dma import DmaCopy
from isa.machine.elementwise import TensorCopy, TensorTensor
from isa.machine.random import RANDOM
from isa.machine.scalar import TABLE
from isa.spec import Instruction

_TIMING_ONLY = frozenset({TABLE, "printed"})
"""State of engines that decides nothing about results."""

_NO_VALUE = frozenset({Kind.register, Kind.target, Kind.engine, Kind.dma_engine, Kind.dge_mode})
"""Kinds of attributes that say where a result goes, or who does the work."""

Key = tuple[Hashable, ...]


class ValueNumbering:
    """Gives equal keys equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}

    def of(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


class Digests(ValueNumbering):
    """Numbers that are hashes of their keys: nothing is kept, however many there are. Two keys have
    the same with a probability of some 10^-18. A key has words and integers of at least -1 (Python
    gives -1 and -2 one hash)."""

    def __init__(self) -> None:
        """Nothing is kept."""

    def of(self, *key: Hashable) -> int:
        return hash(key) & _LARGEST


_LARGEST = (1 << 63) - 1

_FAR = 1 << 60
"""What makes a place positive, for keys."""


class MemoryBox(NamedTuple):
    """Rows and columns of a memory, as those of a `TouchedRegion`; `exact`: all bytes of them are
    meant. `column` is that of the first byte that is, in the first row."""

    row0: int
    row1: int
    column0: int
    column1: int
    exact: bool
    column: int

    @property
    def extent(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.row1 - self.row0, self.column1 - self.column0


Piece = tuple[int, int, int, int, int, int, int, int]
"""A part of what a memory holds: the box that a write has left there, whether all of that, the row
and the column where the value began, and its number. A box is its first row, the row behind the
last, its first column, and the column behind the last."""

_FEW = 8
"""So many pieces are looked at one by one; more are columns of integers."""

_LOOSE = 256
"""Pieces of one memory that are not exact, beyond which one number stands for all."""

_MOST_PIECES = 512
"""Pieces of one operand that are looked at pair by pair."""


class MemoryContents:
    """What was written to one memory, in pieces, the oldest first. Of exact writes what later ones
    cover is dropped. It does not grow with the writes: exact ones have room for so many, and others
    are gathered in one piece when they are many."""

    __slots__ = ("_few", "_loose", "_rows", "_used")

    def __init__(self) -> None:
        self._few: list[Piece] | None = []
        self._rows: Any = None
        self._used = 0
        self._loose = 0

    def place(self, box: MemoryBox, pieces: Sequence[Piece]) -> None:
        """Put pieces of values into a box, in place of what is there if it is exact."""
        few = self._few
        if few is not None:
            if box.exact and few:
                few = _without(few, box)
            few += pieces
            self._few = few
            if len(few) > _FEW:
                self._rows, self._used, self._few = np.zeros((16, 8), np.int64), 0, None
                self._append(np.array(few))
        else:
            if box.exact:
                rows = self._rows[: self._used]
                meets = _meeting(rows, box)
                kept, rest = rows[~meets], _without(rows[meets].tolist(), box)
                self._used = 0
                self._append(kept)
                self._append(np.array(rest, np.int64).reshape(-1, 8))
            self._append(np.array(pieces, np.int64).reshape(-1, 8))
        if not box.exact:
            self._loose += len(pieces)
            if self._loose > _LOOSE:
                self._gather()

    def _append(self, pieces: Any) -> None:
        while self._used + len(pieces) > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._used : self._used + len(pieces)] = pieces
        self._used += len(pieces)

    def add(self, later: MemoryContents) -> None:
        """Put what another memory holds in place of what is here."""
        for piece in later.every():
            self.place(MemoryBox(*piece[:4], bool(piece[4]), 0), (piece,))

    def _gather(self) -> None:
        """One piece in place of all that are not exact, where these are many; its number stands for
        all that is here."""
        every = self.every()
        loose = [one for one in every if not one[4]]
        self._loose = len(loose)
        if self._loose <= _LOOSE // 2:
            return
        row0, row1, column0, column1 = (
            end(one[at] for one in loose) for at, end in enumerate((min, max, min, max))
        )
        number = Digests().of("gathered", *chain.from_iterable(every))
        rest = [one for one in every if one[4]]
        self._few, self._rows, self._used = [], None, 0
        gathered = row0, row1, column0, column1, 0, row0, column0, number
        self.place(MemoryBox(0, 0, 0, 0, False, 0), [*rest, gathered])
        self._loose = 1

    def every(self) -> list[Piece]:
        """All pieces, the oldest first."""
        if self._few is not None:
            return self._few
        return [tuple(one) for one in self._rows[: self._used].tolist()]

    def pieces(self, box: MemoryBox) -> list[Piece]:
        """What has a byte in a box."""
        if self._few is not None:
            return [one for one in self._few if _meets(one, box)]
        rows = self._rows[: self._used]
        return [tuple(one) for one in rows[_meeting(rows, box)].tolist()]


def within(pieces: list[Piece], box: MemoryBox) -> tuple[list[Piece], bool]:
    """What pieces have in a box, seen from its first byte, and whether that is all of the box."""
    box0, box1, left, right, exact, column = box
    found: list[Piece] = []
    whole = False
    for row0, row1, column0, column1, full, begin, at, number in pieces:
        if full and row0 <= box0 and row1 >= box1 and column0 <= left and column1 >= right:
            found.clear()
            whole = True
        found.append(
            (
                max(row0, box0) - box0,
                min(row1, box1) - box0,
                max(column0, left) - column,
                min(column1, right) - column,
                full,
                begin - box0,
                at - column,
                number,
            )
        )
    if len(found) == 1:
        if whole or not exact:
            return found, whole
        row0, row1, column0, column1, full = found[0][:5]
        size = (row1 - row0) * (column1 - column0) if full else 0
        return found, size == (box1 - box0) * (right - left)
    apart, filled = _apart(found)
    if apart:
        found.sort()
    return found, whole or (apart and exact and filled == (box1 - box0) * (right - left))


def _meets(piece: Piece, box: MemoryBox) -> bool:
    """Whether a piece shares a byte with a box."""
    return (
        piece[0] < box.row1
        and piece[1] > box.row0
        and piece[2] < box.column1
        and piece[3] > box.column0
    )


def _meeting(rows: Any, box: MemoryBox) -> Any:
    """Which pieces, as rows of integers, share a byte with a box."""
    meets = (rows[:, 0] < box.row1) & (rows[:, 1] > box.row0)
    return meets & (rows[:, 2] < box.column1) & (rows[:, 3] > box.column0)


def _without(pieces: Sequence[Piece], box: MemoryBox) -> list[Piece]:
    """What pieces have outside of a box, at most four rectangles each, behind those that are not in
    it at all. Those that are not exact stay as they are, unless all of them is inside."""
    kept, found = [], []
    for piece in pieces:
        if not _meets(piece, box):
            kept.append(piece)
            continue
        row0, row1, column0, column1, exact, begin, at, number = piece
        top, bottom = max(row0, box.row0), min(row1, box.row1)
        left, right = max(column0, box.column0), min(column1, box.column1)
        rectangles = (
            (row0, top, column0, column1),
            (bottom, row1, column0, column1),
            (top, bottom, column0, left),
            (top, bottom, right, column1),
        )
        outside = [one for one in rectangles if one[0] < one[1] and one[2] < one[3]]
        if outside and not exact:
            outside = [(row0, row1, column0, column1)]
        found += [(*one, exact, begin, at, number) for one in outside]
    return kept + found


def _apart(pieces: list[Piece]) -> tuple[bool, int]:
    """Whether no two pieces share a byte, and the bytes of those that are exact."""
    if not pieces:
        return True, 0
    if len(pieces) > _MOST_PIECES:
        return False, 0
    row0, row1, column0, column1, exact = np.array(pieces)[:, :5].T
    meets = (row0[:, None] < row1) & (column0[:, None] < column1)
    meets &= meets.T
    sizes = (row1 - row0) * (column1 - column0)
    return int(meets.sum()) == len(pieces), int(sizes[exact != 0].sum())


MemoryPlace = tuple[Hashable, bool, MemoryBox]
"""A memory, whether it is shared, and a box in it."""


class BoxContents(NamedTuple):
    """What was in a box: rows and columns, its pieces if they are all known, and its number."""

    extent: tuple[int, int]
    pieces: list[Piece] | None
    number: int


class Memories:
    """The contents of the memories of several cores, of which those in HBM are common to all.

    `read` and `write` are told the core, the memory, whether it is shared, and the box.
    """

    def __init__(self, numbering: ValueNumbering) -> None:
        self._numbering = numbering
        self._common: dict[Hashable, MemoryContents] = {}
        # By core: its own memories, what it wrote to shared ones since the last meeting, and what
        # it sees of those that it has read since.
        self._own: dict[int, dict[Hashable, MemoryContents]] = {}
        self._since: dict[int, dict[Hashable, MemoryContents]] = {}
        self._seen: dict[int, dict[Hashable, MemoryContents]] = {}

    def write(self, core: int, memory: Hashable, shared: bool, box: MemoryBox, number: int) -> None:
        """A core writes a value with a number."""
        row0, row1, column0, column1, exact, column = box
        piece = row0, row1, column0, column1, int(exact), row0, column, number
        self._place(core, (memory, shared, box), (piece,))

    def read(self, core: int, memory: Hashable, shared: bool, box: MemoryBox) -> int:
        """The number of what is in a box. Of a memory on chip what was never written counts as
        the same on all cores: reading it is an error of its own."""
        place = memory, shared, box
        return self._number(place, *self._pieces(core, place))

    def _number(self, place: MemoryPlace, pieces: list[Piece], whole: bool) -> int:
        memory, shared, box = place
        # Values may begin before the box, and boxes that are not exact before their first byte.
        key = [
            (a, b, c + _FAR, d + _FAR, exact, e + _FAR, f + _FAR, number)
            for a, b, c, d, exact, e, f, number in pieces
        ]
        if shared and not whole:
            return self._numbering.of("initial", memory, *box, *key)
        return self._numbering.of("read", *key)

    def tile(self, core: int, memory: Hashable, shared: bool, box: MemoryBox) -> BoxContents:
        """What is in a box, to be put elsewhere."""
        place = memory, shared, box
        pieces, whole = self._pieces(core, place)
        number = self._number(place, pieces, whole)
        return BoxContents(box.extent, pieces if whole and box.exact else None, number)

    def put(self, core: int, place: MemoryPlace, tile: BoxContents) -> None:
        """A core gets a tile: what is in it was made as it was made."""
        memory, shared, to = place
        if tile.pieces is None or not to.exact or to.extent != tile.extent:
            self.write(core, memory, shared, to, self._numbering.of("copied", tile.number))
            return
        row, column = to.row0, to.column
        pieces: list[Piece] = [
            (a + row, b + row, c + column, d + column, exact, e + row, f + column, number)
            for a, b, c, d, exact, e, f, number in tile.pieces
        ]
        self._place(core, place, pieces)

    def copy(self, core: int, target: MemoryPlace, source: MemoryPlace) -> int:
        """A core copies a tile as it is: the number of what is in it; -1 where it stays."""
        if target == source:
            return -1
        tile = self.tile(core, *source)
        self.put(core, target, tile)
        return tile.number

    def _place(self, core: int, place: MemoryPlace, pieces: Sequence[Piece]) -> None:
        memory, shared, box = place
        contents = (self._since if shared else self._own).setdefault(core, {})
        if memory not in contents:
            contents[memory] = MemoryContents()
        contents[memory].place(box, pieces)
        if shared and memory in self._seen.get(core, ()):
            self._seen[core][memory].place(box, pieces)

    def _pieces(self, core: int, place: MemoryPlace) -> tuple[list[Piece], bool]:
        """What a core sees in a box, and whether that is all of it."""
        memory, shared, box = place
        contents = self._shared(core, memory) if shared else self._own.get(core, {}).get(memory)
        pieces = [] if contents is None else contents.pieces(box)
        return within(pieces, box) if pieces else (pieces, False)

    def _shared(self, core: int, memory: Hashable) -> MemoryContents | None:
        """What a core sees of a shared memory: what all have written, and what it has since."""
        common, since = self._common.get(memory), self._since.get(core, {}).get(memory)
        if common is None or since is None:
            return common or since
        seen = self._seen.setdefault(core, {})
        if memory not in seen:
            seen[memory] = MemoryContents()
            seen[memory].add(common)
            seen[memory].add(since)
        return seen[memory]

    def forget(self, core: int, memory: Hashable) -> None:
        """A core has no such memory any more."""
        self._own.get(core, {}).pop(memory, None)

    def meet(self, cores: Iterable[int]) -> None:
        """Cores meet: what each has written to shared memories all of them see."""
        for core in sorted(cores):
            self._seen.pop(core, None)
            for memory, contents in self._since.pop(core, {}).items():
                self._common.setdefault(memory, MemoryContents()).add(contents)


class EngineStates:
    """The numbers of what the engines of each core hold."""

    def __init__(self, numbering: ValueNumbering) -> None:
        self._numbering = numbering
        self._held: dict[tuple[int, Engine, str], int] = {}

    def read(self, core: int, instruction: Instruction) -> Iterator[int]:
        """The states that an instruction uses. Nobody says that cores that were not told to begin
        at the same random numbers would draw the same."""
        for name in _states(instruction, "reads") if instruction.row.state else ():
            key = core, instruction.engine, name
            if key not in self._held:
                first = core if name == RANDOM else -1
                self._held[key] = self._numbering.of("first", name, first)
            yield self._held[key]

    def write(self, core: int, instruction: Instruction, number: int) -> None:
        """An instruction with a number changes the states that it does."""
        for name in _states(instruction, "writes") if instruction.row.state else ():
            self._held[core, instruction.engine, name] = self._numbering.of("state", name, number)


def _states(instruction: Instruction, how: str) -> list[str]:
    """The states of the engine that an instruction reads or writes."""
    idle = any(value is ReduceCommand.idle for value in instruction.values)
    return [
        state.name
        for state in instruction.row.state
        if state.name not in _TIMING_ONLY and getattr(state, how) and (state.idle or not idle)
    ]


COPIES = frozenset({DmaCopy, TensorCopy})
"""Rows that leave all bits as they are between operands of one dtype."""


def interchangeable(instruction: Instruction) -> bool:
    """Whether it does not matter in which order an instruction's two tensors come."""
    return instruction.row is TensorTensor and any(
        type(value) is AluOperator and value.commutative for value in instruction.values
    )


@cache
def deciding_attributes(row: Any) -> tuple[int, ...]:
    """The positions of the attributes that results follow from."""
    return tuple(
        position
        for position, name, attribute in row.attributes
        if attribute.kind not in _NO_VALUE and name != "queue"
    )


def fixed_key(instruction: Instruction) -> list[Hashable]:
    """What results follow from besides attributes and operands: the row, and the engine unless it
    only starts a transfer."""
    row = instruction.row
    return [row.name, "" if row.asynchronous else instruction.engine]
