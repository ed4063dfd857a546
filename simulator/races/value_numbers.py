"""Numbers for what memories hold, equal where values are the same whatever the data of a run are.

A number stands for how a value was made: the instruction, and the numbers of what it has read. So
two cores hold the same value where both have made it in the same way from the same arguments (value
numbering, as compilers do it to find common subexpressions). Between two meetings of cores each
sees its own writes to shared HBM; behind a meeting all see those of all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator
from functools import cache
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


class Numbering:
    """Gives equal keys equal numbers."""

    def __init__(self) -> None:
        self._numbers: dict[Key, int] = {}

    def of(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


class Digests(Numbering):
    """Numbers that are digests of their keys: nothing is kept, however many there are. Two keys of
    a million have the same with a probability of 10^-7."""

    def __init__(self) -> None:
        """Nothing is kept."""

    def of(self, *key: Hashable) -> int:
        digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") >> 1  # a number of 64 bits with a sign


class Box(NamedTuple):
    """Rows and columns of a memory, as those of `simulator.races.regions.Region`; `exact`: all
    bytes of them are meant. `column` is that of the first byte that is, in the first row."""

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


class Contents:
    """What was written to one memory, the oldest first. A row for each write: the box that it has
    left, whether all of that, the row and the column where the value began, and its number. Of
    exact writes what later ones cover is dropped."""

    __slots__ = ("_rows", "_used")

    def __init__(self, rows: Any = None, used: int = 0) -> None:
        self._rows = np.zeros((16, 8), np.int64) if rows is None else rows
        self._used = used

    def copy(self) -> Contents:
        return Contents(self._rows.copy(), self._used)

    def place(self, box: Box, pieces: Any) -> None:
        """Put pieces of values into a box, in place of what is there if it is exact."""
        if box.exact and self._used:
            rows = self._rows[: self._used]
            meets = _meeting(rows, box)
            kept = rows[~meets]
            rest = _rest(rows[meets], box)
            self._used = 0
            self._append(kept)
            self._append(rest)
        self._append(pieces)

    def _append(self, pieces: Any) -> None:
        while self._used + len(pieces) > len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[self._used : self._used + len(pieces)] = pieces
        self._used += len(pieces)

    def pieces(self, box: Box) -> tuple[Any, bool]:
        """What is in a box, seen from its first byte, and whether that is all of the box."""
        rows = self._rows[: self._used]
        found = rows[_meeting(rows, box)]
        covers = (found[:, 0] <= box.row0) & (found[:, 1] >= box.row1) & (found[:, 4] != 0)
        covers &= (found[:, 2] <= box.column0) & (found[:, 3] >= box.column1)
        whole = np.flatnonzero(covers)
        if whole.size:
            found = found[whole[-1] :].copy()
        np.clip(found[:, :2], box.row0, box.row1, out=found[:, :2])
        np.clip(found[:, 2:4], box.column0, box.column1, out=found[:, 2:4])
        found -= (box.row0, box.row0, box.column, box.column, 0, box.row0, box.column, 0)
        apart, filled = _apart(found)
        if apart:
            found = found[np.lexsort(found.T[::-1])]
        rows, columns = box.extent
        return found, bool(whole.size or (apart and box.exact and filled == rows * columns))


def _meeting(rows: Any, box: Box) -> Any:
    """Which pieces share a byte with a box."""
    meets = (rows[:, 0] < box.row1) & (rows[:, 1] > box.row0)
    return meets & (rows[:, 2] < box.column1) & (rows[:, 3] > box.column0)


def _rest(pieces: Any, box: Box) -> Any:
    """What pieces have outside of a box: at most four rectangles of each. Those that are not exact
    stay as they are, unless all of them is inside."""
    found: list[tuple[int, ...]] = []
    for row0, row1, column0, column1, exact, *value in pieces.tolist():
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
        found.extend((*one, exact, *value) for one in outside)
    return np.array(found, np.int64).reshape(-1, 8)


def _apart(pieces: Any) -> tuple[bool, int]:
    """Whether no two pieces share a byte, and the bytes of those that are exact."""
    if len(pieces) > _MOST_PIECES:
        return False, 0
    row0, row1, column0, column1, exact = pieces[:, :5].T
    meets = (row0[:, None] < row1) & (column0[:, None] < column1)
    meets &= meets.T
    sizes = (row1 - row0) * (column1 - column0)
    return int(meets.sum()) == len(pieces), int(sizes[exact != 0].sum())


_MOST_PIECES = 512
"""Pieces of one operand that are looked at pair by pair."""


Place = tuple[Hashable, bool, Box]
"""A memory, whether it is shared, and a box in it."""


class Tile(NamedTuple):
    """What was in a box: rows and columns, its pieces if they are all known, and its number."""

    extent: tuple[int, int]
    pieces: Any
    number: int


class Memories:
    """The contents of the memories of several cores, of which those in HBM are common to all.

    `read` and `write` are told the core, the memory, whether it is shared, and the box.
    """

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._common: dict[Hashable, Contents] = {}
        self._own: dict[tuple[int, Hashable], Contents] = {}
        self._pending: dict[int, dict[Hashable, tuple[Hashable, Box, Any]]] = {}

    def write(self, core: int, memory: Hashable, shared: bool, box: Box, number: int) -> None:
        """A core writes a value with a number."""
        row0, row1, column0, column1, exact, column = box
        piece = np.array([[row0, row1, column0, column1, exact, row0, column, number]])
        self._place(core, (memory, shared, box), piece)

    def read(self, core: int, memory: Hashable, shared: bool, box: Box) -> int:
        """The number of what is in a box. Of a memory on chip what was never written counts as
        the same on all cores: reading it is an error of its own."""
        contents = self._contents(core, memory, shared)
        if contents is None:
            pieces, whole = (), False
        else:
            found, whole = contents.pieces(box)
            pieces = tuple(found.ravel().tolist())
        if shared and not whole:
            return self._numbering.of("initial", memory, *box, *pieces)
        return self._numbering.of("read", *pieces)

    def tile(self, core: int, memory: Hashable, shared: bool, box: Box) -> Tile:
        """What is in a box, to be put elsewhere."""
        contents = self._contents(core, memory, shared)
        pieces, whole = (None, False) if contents is None else contents.pieces(box)
        known = pieces if whole and box.exact else None
        return Tile(box.extent, known, self.read(core, memory, shared, box))

    def put(self, core: int, place: Place, tile: Tile) -> None:
        """A core gets a tile: what is in it was made as it was made."""
        memory, shared, to = place
        if tile.pieces is None or not to.exact or to.extent != tile.extent:
            self.write(core, memory, shared, to, self._numbering.of("copied", tile.number))
            return
        distance = (to.row0, to.row0, to.column, to.column, 0, to.row0, to.column, 0)
        self._place(core, place, tile.pieces + distance)

    def _contents(self, core: int, memory: Hashable, shared: bool) -> Contents | None:
        """What a core sees of a memory."""
        own = self._own.get((core, memory))
        return self._common.get(memory) if own is None and shared else own

    def _place(self, core: int, place: Place, pieces: Any) -> None:
        memory, shared, box = place
        own = self._own.get((core, memory))
        if own is None:
            before = self._common.get(memory) if shared else None
            own = self._own[core, memory] = before.copy() if before is not None else Contents()
        own.place(box, pieces)
        if shared:
            pending = self._pending.setdefault(core, {})
            # Nothing is left of what was in an exact box before.
            key = (memory, box) if box.exact else len(pending)
            pending.pop(key, None)
            pending[key] = memory, box, pieces

    def forget(self, core: int, memory: Hashable) -> None:
        """A core has no such memory any more."""
        self._own.pop((core, memory), None)

    def meet(self, cores: Iterable[int]) -> None:
        """Cores meet: what each has written to shared memories all of them see."""
        for core in sorted(cores):
            for memory, box, pieces in self._pending.pop(core, {}).values():
                self._common.setdefault(memory, Contents()).place(box, pieces)
                self._own.pop((core, memory), None)


class EngineStates:
    """The numbers of what the engines of each core hold."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._held: dict[tuple[int, Engine, str], int] = {}

    def read(self, core: int, instruction: Instruction) -> Iterator[int]:
        """The states that an instruction uses. Nobody says that cores that were not told to begin
        at the same random numbers would draw the same."""
        for name in _states(instruction, "reads"):
            key = core, instruction.engine, name
            if key not in self._held:
                first = core if name == RANDOM else -1
                self._held[key] = self._numbering.of("first", name, first)
            yield self._held[key]

    def write(self, core: int, instruction: Instruction, number: int) -> None:
        """An instruction with a number changes the states that it does."""
        for name in _states(instruction, "writes"):
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
