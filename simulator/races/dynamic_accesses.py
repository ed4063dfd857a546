"""Accesses of several cores to one shared tensor at places that registers or indices decide.

The proof of a program cannot tell them apart (nki-library core/subkernels/find_nonzero_indices.py:
each core appends to rows of its own, at offsets that it has counted;
core/moe/moe_cte/bwmm_shard_on_block_mx.py: each scatters to the half of a tensor that it has
cleared, by indices that could reach further). A run knows the places, and notes them. It refuses
accesses of two cores to one byte, one of them a write, without a barrier between. Where the write
comes second, a warning says so: the reader has what was there before, as on cores that run in step,
and public kernels rely on it (nki-library experimental/transformer/attention_block_tkg.py: one core
puts the new token into a block of the cache of which the other has read all tokens, to mask those
that are not there yet).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from isa.access import AccessPattern, Footprint, footprint
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import Program, SourceLocation
from isa.spec import Instruction
from simulator.views import Indirect

_WORK = 10_000
"""Effort of solving whether two strided views meet, beyond which their bytes are marked."""


_PAGE_BITS, _PAGES = 12, 64
"""Pages in which accesses are looked for, and how many of them an access is entered in at most."""


class UnorderedReadWarning(RuntimeWarning):
    """One core writes what another has read, and nothing orders the two."""


class DynamicAccess(NamedTuple):
    """One access: the bytes' hull, the view, those of its rows that indices pick (None: all),
    whether it writes."""

    low: int
    high: int
    view: Any
    rows: frozenset[int] | None
    writes: bool


def access_of(value: Any, writes: bool) -> DynamicAccess | None:
    """An access to an operand; None for one outside its tensor, which is skipped."""
    view, rows = value, None
    if isinstance(value, Indirect):
        view, indices = value.base, np.array(value.index).reshape(-1)
        rows = frozenset(indices[(indices >= 0) & (indices < len(view))].tolist())
    if view is None or (rows is not None and not rows):
        return None
    low, high = hull(view if rows is None else view[min(rows) : max(rows) + 1])
    return DynamicAccess(low, high, view, rows, writes)


class _Made:
    """The accesses of a core behind so many barriers, by the pages that their hulls touch."""

    def __init__(self, barriers: int) -> None:
        self.barriers = barriers
        self._all: list[DynamicAccess] = []
        self._wide: list[DynamicAccess] = []
        self._pages: dict[int, list[DynamicAccess]] = {}

    def add(self, access: DynamicAccess) -> None:
        self._all.append(access)
        pages = _pages(access.low, access.high)
        if len(pages) > _PAGES:
            self._wide.append(access)
            return
        for page in pages:
            self._pages.setdefault(page, []).append(access)

    def near(self, low: int, high: int) -> Iterable[DynamicAccess]:
        """Those that may have a byte from `low` and below `high`, perhaps with repetitions."""
        pages = _pages(low, high)
        if len(pages) > _PAGES:
            return self._all
        return chain(self._wide, *(self._pages.get(page, ()) for page in pages))


def _pages(low: int, high: int) -> range:
    return range(low >> _PAGE_BITS, ((high - 1) >> _PAGE_BITS) + 1)


class DynamicAccesses:
    """What the cores of a program have accessed in `tensors` since their last barriers."""

    def __init__(self, program: Program, told_apart: Callable[[Instruction], bool]) -> None:
        """`told_apart`: whether what an instruction does is compared with its replicas already."""
        users: dict[int, dict[int, list[tuple[Instruction, AccessPattern]]]] = {}
        moved, picked = set[int](), set[int]()
        for number, core in enumerate(program.cores if len(program.cores) > 1 else ()):
            for stream in core.streams.values():
                for instruction in stream:
                    for _, pattern in _shared(instruction):
                        mine = users.setdefault(pattern.tensor, {}).setdefault(number, [])
                        mine.append((instruction, pattern))
                        if pattern.registers:
                            moved.add(pattern.tensor)
                        elif pattern.vector_offset is not None:
                            picked.add(pattern.tensor)
        shared = {tensor for tensor, cores in users.items() if len(cores) > 1}
        for tensor in shared & picked - moved:
            reaches = [
                _Reach(pattern for instruction, pattern in uses if not told_apart(instruction))
                for uses in users[tensor].values()
            ]
            if _picked_may_meet(reaches):
                moved.add(tensor)
        self.tensors = frozenset(shared & moved)
        self._place = program.place
        self._made: dict[int, _Made] = {}

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
        """`compute`, after a look at what other cores have accessed, as `note` takes it."""
        writes, location = instruction.row.writes, instruction.location
        positions = [i for i, pattern in _shared(instruction) if pattern.tensor in self.tensors]

        def call() -> Any:
            for position in positions:
                self.note(core, barriers(), values[position], location, position in writes)
            return compute()

        return call

    def note(
        self, core: int, barriers: int, value: Any, location: int, writes: bool = True
    ) -> None:
        """An instruction accesses `value`, an operand. Raises race; warns of a write behind another
        core's read."""
        reader = self._noted(core, barriers, value, writes)
        if reader is not None:
            self._warn(core, reader, location)

    def _noted(self, core: int, barriers: int, value: Any, writes: bool) -> int | None:
        """Note an access; a core that has read what it writes, if there is one. Raises race."""
        access = access_of(value, writes)
        if access is None:
            return None
        low, high = access.low, access.high
        reader = None
        for other, made in self._made.items():
            if other == core or made.barriers != barriers:
                continue
            for old in made.near(low, high):
                if (
                    old.low < high
                    and low < old.high
                    and (old.writes or (writes and reader is None))
                    and meet(old, access)
                ):
                    if not old.writes:
                        reader = other
                        continue
                    raise NeuronError(
                        "race",
                        what=f"core {core} {'writes' if writes else 'reads'} what core {other} "
                        "writes, at a place that a register or an index decides; nothing orders "
                        "the two",
                    )
        mine = self._made.get(core)
        if mine is None or mine.barriers != barriers:
            mine = self._made[core] = _Made(barriers)  # nothing before a barrier matters behind it
        mine.add(access)
        return reader

    def _warn(self, core: int, reader: int, location: int) -> None:
        warn_of_read(core, reader, self._place(location))


def warn_of_read(core: int, reader: int, place: SourceLocation | None) -> None:
    """Warn of a core's write at a line, behind the read of another one."""
    warnings.warn_explicit(
        f"core {core} writes what core {reader} has read, at a place that a register or an "
        "index decides, and nothing orders the two: on a device the reader may get either. "
        "nisa.core_barrier orders them.",
        UnorderedReadWarning,
        place.file if place else "<kernel>",
        place.line if place else 0,
    )


class _Reach:
    """The bytes of one tensor that a core may access: `picked` by indices, and all of them."""

    def __init__(self, patterns: Iterable[AccessPattern]) -> None:
        touched = [(footprint(p), p.vector_offset is not None) for p in patterns]
        self.picked = _hull_of(found for found, by_index in touched if by_index)
        self.all = _hull_of(found for found, _ in touched)


def _hull_of(touched: Iterable[Footprint]) -> tuple[int, int] | None:
    """From the first byte of footprints to the one behind the last; None where there are none."""
    bounds = [(found.start, found.end) for found in touched if found.width]
    return (min(bounds)[0], max(end for _, end in bounds)) if bounds else None


def _picked_may_meet(reaches: Sequence[_Reach]) -> bool:
    """Whether what indices pick on one core may meet what another one accesses."""
    return any(
        one is not other
        and one.picked is not None
        and other.all is not None
        and one.picked[0] < other.all[1]
        and other.all[0] < one.picked[1]
        for one in reaches
        for other in reaches
    )


def _shared(instruction: Instruction) -> Iterator[tuple[int, AccessPattern]]:
    """The operands of an instruction that are in shared HBM."""
    if instruction.row.control:
        return
    for position, _, _ in instruction.row.operands:
        pattern = instruction.values[position]
        if isinstance(pattern, AccessPattern) and pattern.memory is Memory.shared_hbm:
            yield position, pattern


def hull(view: Any) -> tuple[int, int]:
    """The addresses of the first byte of a view, and of the one after its last."""
    reach = [(count - 1) * stride for count, stride in zip(view.shape, view.strides)]
    first = int(view.ctypes.data)
    end = first + view.itemsize + sum(r for r in reach if r > 0)
    return first + sum(r for r in reach if r < 0), end


def meet(one: DynamicAccess, other: DynamicAccess) -> bool:
    """Whether two accesses share a byte."""
    if one.rows is not None and other.rows is not None and _same_place(one.view, other.view):
        return bool(one.rows & other.rows)
    if not _intervals_meet(_intervals(one), _intervals(other)):
        return False
    for access, rest in ((one, other), (other, one)):
        if access.rows is not None:
            rows = (access._replace(view=access.view[row], rows=None) for row in access.rows)
            return any(meet(row, rest) for row in rows)
    return _share(one.view, other.view)


def _intervals(access: DynamicAccess) -> np.ndarray[Any, np.dtype[np.int64]]:
    """First byte and the one after the last of each row of an access, [rows, 2] in ascending order;
    of the whole view where no indices pick rows."""
    if access.rows is None:
        return np.array([(access.low, access.high)])
    low, high = hull(access.view[0])
    starts = low + np.sort(np.fromiter(access.rows, np.int64)) * access.view.strides[0]
    return np.stack([starts, starts + (high - low)], axis=1)


def _intervals_meet(
    one: np.ndarray[Any, np.dtype[np.int64]], other: np.ndarray[Any, np.dtype[np.int64]]
) -> bool:
    """Whether an interval of one list, [n, 2] ascending, meets one of another."""
    # Of the intervals that start before an end, those that have ended before its start are over.
    before = np.searchsorted(other[:, 0], one[:, 1], "left")
    over = np.searchsorted(other[:, 1], one[:, 0], "right")
    return bool((before > over).any())


def _same_place(one: Any, other: Any) -> bool:
    return all(
        getattr(one, name) == getattr(other, name) for name in ("shape", "strides", "dtype")
    ) and bool(one.ctypes.data == other.ctypes.data)


def _share(one: Any, other: Any) -> bool:
    try:
        return bool(np.shares_memory(one, other, max_work=_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        low, high = (bound(edges) for bound, edges in zip((max, min), zip(hull(one), hull(other))))
        return bool((_bytes_of(one, low, high) & _bytes_of(other, low, high)).any())


def _bytes_of(view: Any, low: int, high: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which addresses from `low` and below `high` hold a byte of a view."""
    starts = np.array([view.ctypes.data - low])
    for count, stride in (*zip(view.shape, view.strides), (view.itemsize, 1)):
        starts = np.add.outer(starts, np.arange(count) * stride).ravel()
    found = np.zeros(high - low, bool)
    found[starts[(starts >= 0) & (starts < high - low)]] = True
    return found
