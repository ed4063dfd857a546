"""Words of instructions that differ in nothing but where their operands lie.

A program repeats few instructions, on tiles all over its memories. What their records need is made
once, as words that are laid out together, with a note which of them are addresses; each of the
instructions then gets a copy, with its own addresses.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

from simulator.checks.marks import Box
from simulator.native.operands import OPERAND
from simulator.native.plan import words_type
from simulator.native.text import WORD
from simulator.views import Window

_OWN = -1

_OPERAND_TYPE = words_type(len(OPERAND.names))


class Address(NamedTuple):
    """A word that is known once the words have a place: `base` bytes behind their beginning, or
    more than the offset of operand number `operand`."""

    base: int
    operand: int = _OWN


Word = int | Address


Span = tuple[int, int, int]
"""Number of an operand, and from where to where it reaches, from its offset on."""


class Draft:
    """Words that are laid out one table after the other."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.own: list[int] = []
        self.moved: list[tuple[int, int]] = []
        self.extents: list[tuple[int, int, tuple[Span, ...]]] = []

    def add(self, words: Sequence[Word]) -> Address:
        """Append words; where they begin."""
        first = len(self.words)
        for index, word in enumerate(words, first):
            if type(word) is Address:
                base, operand = word
                if operand == _OWN:
                    self.own.append(index)
                else:
                    self.moved.append((index, operand))
                self.words.append(base)
            else:
                self.words.append(word)  # type: ignore[arg-type]
        return Address(WORD * first)

    def extent(self, lowest: int, highest: int, spans: Sequence[Span]) -> None:
        """The words with these indices are the lowest and highest end of `spans`."""
        if len(spans) == 1:
            ((operand, low, high),) = spans
            self.words[lowest], self.words[highest] = low, high
            self.moved += [(lowest, operand), (highest, operand)]
        elif spans:
            self.extents.append((lowest, highest, tuple(spans)))


class Placed(NamedTuple):
    """An operand of shared records: its position among the values (as `plan.view_at` takes it), its
    words, its window, and the allocation that it lies in, if that is known."""

    position: int
    words: Any
    window: Window
    holder: Box | None


class Computation(NamedTuple):
    """What the records of equal instructions have in common: the words of a record, and operands.
    `words` are all words that these have to themselves; `buffers` the ids of the tensors' memories
    whose addresses are among them."""

    record: list[int]
    operands: list[Placed]
    words: Any
    buffers: frozenset[int]


class Template:
    """What instructions with operands of the same layouts have in common.

    `record` are the words of their record. `positions` are those of the operands, each with where
    its `OPERAND` is; `noted` the indices of the words that hold addresses in the memory of an
    operand, for those whose memory may move. `work` is the work of queued jobs.
    """

    def __init__(
        self,
        draft: Draft,
        record: Sequence[Word],
        positions: Sequence[tuple[int, int]],
        noted: Sequence[tuple[int, tuple[int, ...]]],
        work: int,
    ) -> None:
        self._type = words_type(max(len(draft.words), 1))
        self._words = bytes(self._type(*draft.words))
        self._own = tuple(draft.own)
        self._moved = tuple(draft.moved)
        self._extents = tuple(draft.extents)
        self._record = [word.base if isinstance(word, Address) else word for word in record]
        self._record_own = tuple(i for i, word in enumerate(record) if isinstance(word, Address))
        self._positions = tuple(positions)
        self.noted = tuple(noted)
        self.work = work

    def place(self, windows: Sequence[Window], holders: Sequence[Box | None]) -> Computation:
        """The words for operands in these windows, which lie in these allocations."""
        words = self._type.from_buffer_copy(self._words)
        place = ctypes.addressof(words)
        for index in self._own:
            words[index] += place
        offsets = [window.offset for window in windows]
        for index, operand in self._moved:
            words[index] += offsets[operand]
        for lowest, highest, spans in self._extents:
            words[lowest] = min([offsets[operand] + low for operand, low, _ in spans])
            words[highest] = max([offsets[operand] + high for operand, _, high in spans])
        record = self._record.copy()
        for index in self._record_own:
            record[index] += place
        operands = [
            Placed(position, _OPERAND_TYPE.from_buffer(words, at), window, holder)
            for (position, at), window, holder in zip(self._positions, windows, holders)
        ]
        buffers = frozenset([id(window.buffer) for window in windows if not window.on_chip])
        return Computation(record, operands, words, buffers)
