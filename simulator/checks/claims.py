"""Accesses of several cores to one shared tensor at places that registers decide.

The proof of a program cannot tell them apart (nki-library core/subkernels/find_nonzero_indices.py:
each core appends to rows of its own, at offsets that it has counted). A run knows the places: it
notes them, and refuses two of different cores that meet, one of them a write, with no barrier
between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import Program
from isa.spec import Instruction
from simulator.views import Indirect

_WORK = 10_000
"""Effort of solving whether two strided views meet, beyond which their bytes are marked."""


class Claim(NamedTuple):
    """One access: barriers of its core before it, the bytes' hull, the view, those of its rows that
    indices pick (None: all), whether it writes."""

    barriers: int
    low: int
    high: int
    view: Any
    rows: frozenset[int] | None
    writes: bool


class Claims:
    """What the cores of a program have accessed in `tensors` since their last barriers."""

    def __init__(self, program: Program) -> None:
        moved: set[int] = set()
        users: dict[int, set[int]] = {}
        for number, core in enumerate(program.cores if len(program.cores) > 1 else ()):
            for stream in core.streams.values():
                for instruction in stream:
                    for _, pattern in _shared(instruction):
                        users.setdefault(pattern.tensor, set()).add(number)
                        if pattern.registers:
                            moved.add(pattern.tensor)
        self.tensors = frozenset(tensor for tensor in moved if len(users[tensor]) > 1)
        self._made: dict[int, list[Claim]] = {}

    def restart(self) -> None:
        self._made.clear()

    def concern(self, instruction: Instruction) -> bool:
        """Whether an instruction accesses one of the tensors."""
        return bool(self.tensors) and any(
            pattern.tensor in self.tensors for _, pattern in _shared(instruction)
        )

    def checking(
        self,
        instruction: Instruction,
        core: int,
        barriers: Callable[[], int],
        values: Sequence[Any],
        compute: Callable[[], Any],
    ) -> Callable[[], Any]:
        """`compute`, after a look at what other cores have accessed. Raises race."""
        writes = instruction.row.writes
        positions = [i for i, pattern in _shared(instruction) if pattern.tensor in self.tensors]

        def call() -> Any:
            for position in positions:
                self._claim(core, barriers(), values[position], position in writes)
            return compute()

        return call

    def _claim(self, core: int, barriers: int, value: Any, writes: bool) -> None:
        view, rows = value, None
        if isinstance(value, Indirect):
            view, indices = value.base, np.array(value.index).reshape(-1)
            rows = frozenset(indices[(indices >= 0) & (indices < len(view))].tolist())
        if view is None:
            return  # outside its tensor, and skipped
        low, high = _hull(view)
        claim = Claim(barriers, low, high, view, rows, writes)
        for other, claims in self._made.items():
            if other == core:
                continue
            for old in claims:
                if (
                    old.barriers == barriers
                    and old.low < high
                    and low < old.high
                    and (writes or old.writes)
                    and _meet(old, claim)
                ):
                    raise NeuronError(
                        "race",
                        what=f"core {core} {_does(writes)} what core {other} {_does(old.writes)}, "
                        "at a place that a register decides; nothing orders the two",
                    )
        mine = self._made.setdefault(core, [])
        if mine and mine[-1].barriers != barriers:
            mine.clear()  # behind a barrier nothing before it matters
        mine.append(claim)


def _shared(instruction: Instruction) -> Iterator[tuple[int, AccessPattern]]:
    """The operands of an instruction that are in shared HBM."""
    if instruction.row.control:
        return
    for position, _, _ in instruction.row.operands:
        pattern = instruction.values[position]
        if isinstance(pattern, AccessPattern) and pattern.memory is Memory.shared_hbm:
            yield position, pattern


def _hull(view: Any) -> tuple[int, int]:
    """The addresses of the first byte of a view, and of the one after its last."""
    reach = [(count - 1) * stride for count, stride in zip(view.shape, view.strides)]
    first = int(view.ctypes.data)
    end = first + view.itemsize + sum(r for r in reach if r > 0)
    return first + sum(r for r in reach if r < 0), end


def _meet(one: Claim, other: Claim) -> bool:
    """Whether two accesses share a byte."""
    if one.rows is not None and other.rows is not None and _same_place(one.view, other.view):
        return bool(one.rows & other.rows)
    for claim, rest in ((one, other), (other, one)):
        if claim.rows is not None:
            rows = (claim._replace(view=claim.view[row], rows=None) for row in claim.rows)
            return any(_meet(row, rest) for row in rows)
    return _share(one.view, other.view)


def _same_place(one: Any, other: Any) -> bool:
    return all(
        getattr(one, name) == getattr(other, name) for name in ("shape", "strides", "dtype")
    ) and bool(one.ctypes.data == other.ctypes.data)


def _share(one: Any, other: Any) -> bool:
    try:
        return bool(np.shares_memory(one, other, max_work=_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        low, high = (
            bound(edges) for bound, edges in zip((max, min), zip(_hull(one), _hull(other)))
        )
        return bool((_bytes_of(one, low, high) & _bytes_of(other, low, high)).any())


def _bytes_of(view: Any, low: int, high: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which addresses from `low` and below `high` hold a byte of a view."""
    starts = np.array([view.ctypes.data - low])
    for count, stride in (*zip(view.shape, view.strides), (view.itemsize, 1)):
        starts = np.add.outer(starts, np.arange(count) * stride).ravel()
    found = np.zeros(high - low, bool)
    found[starts[(starts >= 0) & (starts < high - low)]] = True
    return found


def _does(writes: bool) -> str:
    return "writes" if writes else "reads"


__all__ = ["Claim", "Claims"]
