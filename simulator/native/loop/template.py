"""Words of instructions that differ in nothing but where their operands lie.

A program repeats few instructions, on tiles all over its memories. What their records need is made
once: words that are laid out together, with a note which of them are addresses. All of the
instructions then get copies, with addresses of their own, as rows of one array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers
from simulator.native.codegen.text import WORD
from simulator.native.plans.plan import words_type

_OWN = -1


class Address(NamedTuple):
    """A word that is known once the words have a place: `base` bytes behind their beginning, or
    more than the offset of operand number `operand`."""

    base: int
    operand: int = _OWN


Word = int | Address


WordSpan = tuple[int, int, int]
"""Number of an operand, and from where to where it reaches, from its offset on."""


class Draft:
    """Words that are laid out one table after the other."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.own: list[int] = []
        self.moved: list[tuple[int, int]] = []
        self.extents: list[tuple[int, int, tuple[WordSpan, ...]]] = []

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

    def extent(self, lowest: int, highest: int, spans: Sequence[WordSpan]) -> None:
        """The words with these indices are the lowest and highest end of `spans`."""
        if len(spans) == 1:
            ((operand, low, high),) = spans
            self.words[lowest], self.words[highest] = low, high
            self.moved += [(lowest, operand), (highest, operand)]
        elif spans:
            self.extents.append((lowest, highest, tuple(spans)))


class RecordTemplate:
    """What instructions with operands of the same layouts have in common.

    `operands` are the (position as `plan.view_at` takes it, index of the first word of its
    `OPERAND`) of each; `noted` the indices of the words that hold addresses in the memory of an
    operand, for those whose memory may move. `own` are the words that hold addresses among the
    words themselves, and `record_own` those of the record. `work` is the work of queued jobs.
    """

    def __init__(
        self,
        draft: Draft,
        record: Sequence[Word],
        operands: Sequence[tuple[int, int]],
        noted: Sequence[tuple[int, tuple[int, ...]]],
        work: int,
    ) -> None:
        self._words = _integers(draft.words)
        self.own = _integers(draft.own)
        self._moved = _integers([index for index, _ in draft.moved])
        self._by = _integers([operand for _, operand in draft.moved])
        self._extents = tuple(draft.extents)
        self._record = _integers([w.base if isinstance(w, Address) else w for w in record])
        self.record_own = _integers([i for i, w in enumerate(record) if isinstance(w, Address)])
        self.operands = tuple(operands)
        self.noted = tuple(noted)
        self.work = work

    def place(self, offsets: Integers) -> tuple[Integers, Integers]:
        """The words, and the record, for each row of offsets of the operands."""
        words = np.repeat(self._words[None], len(offsets), axis=0)
        records = np.repeat(self._record[None], len(offsets), axis=0)
        begins = addresses(words)[:, None]
        words[:, self.own] += begins
        records[:, self.record_own] += begins
        words[:, self._moved] += offsets[:, self._by]
        for lowest, highest, spans in self._extents:
            numbers = [operand for operand, _, _ in spans]
            low, high = (_integers([span[at] for span in spans]) for at in (1, 2))
            words[:, lowest] = (offsets[:, numbers] + low).min(axis=1)
            words[:, highest] = (offsets[:, numbers] + high).max(axis=1)
        return words, records


def addresses(rows: Integers) -> Integers:
    """Where each row of an array of words is."""
    return rows.ctypes.data + np.arange(len(rows)) * rows.strides[0]


def _integers(values: Sequence[Any]) -> Integers:
    return np.frombuffer(words_type(len(values))(*values), np.int64)
