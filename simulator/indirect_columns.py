"""On-chip operands whose columns are picked by indices (tensor indirection of gen4).

Engines read such an operand through a tile of their own: it is filled before the instruction
computes, and what the instruction writes goes out of it afterwards. So the kernels of all
instructions serve.

The indices lie in the partitions of the operand (SDK nki.language.NkiTensor.indirect): each group
of 16 partitions (32 for the tensor engine) reads its own, index i from row i % group and column
i // group of the group's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from isa.enums import Engine
from isa.fields import Role
from isa.rules.indirection import group_of
from simulator.checks.regions import CLEAN, INITIALISED, TAINTED
from simulator.checks.tracked import Tracked
from simulator.views import Array, bits


class StagingTile:
    """The tile through which an instruction reads and writes a `PickedColumns` operand."""

    __slots__ = ("columns", "group", "role", "tile")

    def __init__(self, tile: Array, engine: Engine, role: Role) -> None:
        self.columns: Any = None  # a `PickedColumns`, once its place is known
        self.group = group_of(engine)
        self.role = role
        self.tile = tile

    def fill(self) -> None:
        columns = self.columns
        positions = columns.positions(self.group)
        bits(self.tile)[...] = np.take_along_axis(bits(columns.base), positions, axis=1)

    def empty(self) -> None:
        columns = self.columns
        positions = columns.positions(self.group)
        np.put_along_axis(bits(columns.base), positions, bits(self.tile), axis=1)


def through(stages: Iterable[StagingTile], compute: Callable[[], Any]) -> Callable[[], Any]:
    """`compute` on the tiles, filled before and emptied afterwards."""
    read = [stage for stage in stages if stage.role.reads]
    written = [stage for stage in stages if stage.role.writes]

    def call() -> Any:
        for stage in read:
            stage.fill()
        result = compute()
        for stage in written:
            stage.empty()
        return result

    return call


class TrackedColumns(Tracked):
    """The shadow side of a `PickedColumns` operand; `view` is the tile."""

    __slots__ = ("base", "stage")

    def __init__(self, base: Tracked, index: Tracked, stage: StagingTile) -> None:
        super().__init__(base.space, stage.tile, base.name, index)
        self.base = base
        self.stage = stage

    def rebind(self, view: Any) -> None:
        assert self.index is not None
        self.base.rebind(view.base)
        self.index.rebind(view.index)
        self.region = self.base.region

    def locate(self) -> Any:
        self.region = self.base.locate()
        return self.region

    def expose(self) -> None:
        self.base.expose()

    def give_sentinel(self) -> None:
        self.base.give_sentinel()

    def mask(self) -> Array | None:
        assert self.index is not None
        held, known = self.base.mask(), self.index.mask()
        self.region = self.base.region
        if held is None and known is None:
            return None
        columns, group = self.stage.columns, self.stage.group
        result = np.ones(self.view.shape, np.bool_)
        if held is not None:
            result &= np.take_along_axis(held, columns.positions(group), axis=1)
        if known is not None:
            result &= columns.spread(known.reshape(result.shape[0], -1), group)
        return None if result.all() else result

    def write(self, mask: Array | None) -> None:
        region = self.locate()
        if mask is None and region.state == CLEAN:
            return
        region.spell_out()
        marks = self.space.marks_of(self.base.view)
        positions = self.stage.columns.positions(self.stage.group)
        full, half = (_repeated(mark, marks.dtype) for mark in (INITIALISED, TAINTED))
        values = full if mask is None else np.where(mask.reshape(self.view.shape), full, half)
        np.put_along_axis(marks, positions, values, axis=1)


def _repeated(mark: int, dtype: np.dtype[Any]) -> Any:
    """A mark in every byte of an element."""
    return np.full(dtype.itemsize, mark, np.uint8).view(dtype)[0]
