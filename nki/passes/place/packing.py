"""Allocation with all live ranges in view, for where one sweep in the author's order fails.

What is live at any time may fit into a memory and still leave no gap that is large enough: the
sweep places early tensors without knowing the later ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from importlib.util import find_spec
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from isa.memory import start_partitions

if TYPE_CHECKING:
    from nki.ir.nodes import Tensor
    from nki.passes.place.live_ranges import Life

ALIGNMENT = 16
"""Bytes. SBUF needs 1 and PSUM 4 (SDK nki.language.tile_size); 16 keeps any dtype aligned."""

Offsets = dict["Life", int]

_EFFORT = 20.0
"""Limit of the exact search, in the solver's deterministic units (about seconds)."""


def largest_first(
    moving: list[Life], fixed: list[Life], capacity: int, bank: int, unit: int
) -> Offsets | None:
    """Every tensor at its lowest offset free for its whole life, the largest first, or those that
    live longest; None where one does not fit. Offsets are multiples of `unit`; none crosses a bank
    of `bank` bytes (0: no banks) unless it is larger than one."""
    for key in _ORDERS:
        found = _greedy(sorted(moving, key=key), fixed, capacity, bank, unit)
        if found is not None:
            return found
    return None


def _size(life: Life) -> tuple[int, ...]:
    return -life.size, life.first


def _duration(life: Life) -> tuple[int, ...]:
    return life.first - life.last, -life.size, life.first


def _area(life: Life) -> tuple[int, ...]:
    return (life.first - life.last - 1) * life.size, life.first


_ORDERS = (_size, _duration, _area)
"""By bytes, by length of life, by both."""


def _greedy(
    order: list[Life], fixed: list[Life], capacity: int, bank: int, unit: int
) -> Offsets | None:
    placed = {life: life.address[1] for life in fixed}
    for life in order:
        taken = sorted(
            (offset, offset + other.size)
            for other, offset in placed.items()
            if other.first <= life.last and life.first <= other.last
        )
        offset = 0
        for start, end in taken:
            if offset + life.size <= start:
                break
            offset = max(offset, _start(-(-end // unit) * unit, life.size, bank))
        if offset + life.size > capacity:
            return None
        placed[life] = offset
    return {life: placed[life] for life in order}


def side_by_side(
    moving: list[Life], fixed: list[Life], capacity: int, unit: int, movable: Collection[Tensor]
) -> dict[Life, tuple[int, int]] | None:
    """(start partition, offset) for every tensor, those of few rows in any partitions that engines
    can address: two of 64 rows share the bytes of one of 128. The largest first, at the lowest
    offset free for its whole life and there in the last partitions. If that fails, those that stay
    at partition 0 come before the `movable` ones, or those of many rows before those of few. None
    where one does not fit.
    """
    largest = sorted(moving, key=lambda one: (-one.size, one.first))
    bound_first = sorted(largest, key=lambda one: one.tensor in movable)
    rows_first = sorted(largest, key=lambda one: -one.size * one.rows)
    for order in (largest, bound_first, rows_first):
        found = _beside(order, fixed, capacity, unit, movable)
        if found is not None:
            return found
    return None


def _beside(
    order: list[Life], fixed: list[Life], capacity: int, unit: int, movable: Collection[Tensor]
) -> dict[Life, tuple[int, int]] | None:
    placed: dict[Life, tuple[int, int]] = {life: life.address for life in fixed}
    for life in order:
        starts = start_partitions(life.rows) if life.tensor in movable else (0,)
        near = [
            (first, first + other.rows, low, low + other.size)
            for other, (first, low) in placed.items()
            if other.first <= life.last and life.first <= other.last
        ]
        near.sort(key=lambda taken: taken[2])
        offset, last = min((_lowest(near, start, life, unit), -start) for start in starts)
        if offset + life.size > capacity:
            return None
        placed[life] = -last, offset
    return {life: placed[life] for life in order}


def _lowest(near: list[tuple[int, int, int, int]], start: int, life: Life, unit: int) -> int:
    """The lowest free offset for a tensor at partition `start`, among (first partition, partition
    after the last, low, high) in order of `low`."""
    offset = 0
    for first, after, low, high in near:
        if first >= start + life.rows or start >= after:
            continue
        if offset + life.size <= low:
            break
        offset = max(offset, -(-high // unit) * unit)
    return offset


def _start(offset: int, size: int, bank: int) -> int:
    """The first start from `offset` on that keeps a tensor inside one bank."""
    if bank and offset % bank and offset % bank + size > bank:
        return -(-offset // bank) * bank
    return offset


def solver_is_installed() -> bool:
    """Whether the exact search can run: the `solver` extra is installed."""
    return find_spec("ortools") is not None


def solve(
    moving: list[Life], fixed: list[Life], capacity: int, bank: int, unit: int
) -> Offsets | None:
    """Offsets by exact search; None where there are none, or none was found within a fixed effort.

    Rectangles of live positions by bytes must not overlap: a constraint that CP-SAT has built in.
    One worker and a limit counted in steps, so that the same kernel gets the same addresses.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    times: list[Any] = []
    spaces: list[Any] = []
    starts: dict[Life, Any] = {}

    def occupy(first: int, last: int, start: Any, length: int) -> None:
        name = f"{len(times)}"
        times.append(model.new_fixed_size_interval_var(first, last - first + 1, name))
        spaces.append(model.new_fixed_size_interval_var(start, length, name))

    for number, life in enumerate(moving):
        start = model.new_int_var(0, max(0, (capacity - life.size) // unit), f"start{number}")
        if bank:  # one of several banks starts one
            room = max(0, bank - life.size) // unit
            inside = model.new_int_var(0, room, f"inside{number}")
            which = model.new_int_var(0, capacity // bank - 1, f"bank{number}")
            model.add(start == which * (bank // unit) + inside)
        starts[life] = start
        occupy(life.first, life.last, start, -(-life.size // unit))
    for first, last, low, high in _blocked(fixed):
        occupy(first, last, low // unit, -(-high // unit) - low // unit)
    model.add_no_overlap_2d(times, spaces)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = _EFFORT
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return {life: solver.value(start) * unit for life, start in starts.items()}


def _blocked(fixed: list[Life]) -> Iterator[tuple[int, int, int, int]]:
    """Disjoint rectangles (first and last position, bytes from and below) that fixed tensors cover,
    which may lie beside one another on other partitions."""
    times = sorted({life.first for life in fixed} | {life.last + 1 for life in fixed})
    for first, after in pairwise(times):
        end = -1
        low = 0
        there = [life for life in fixed if life.first <= first <= life.last]
        for life in sorted(there, key=lambda one: one.address[1]):
            start = life.address[1]
            if start > end:
                if end >= 0:
                    yield first, after - 1, low, end
                low = start
            end = max(end, start + life.size)
        if end >= 0:
            yield first, after - 1, low, end
