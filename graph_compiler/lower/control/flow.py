"""Steps that hold others, and how steps are emitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import nki.language as nl
from graph_compiler.host_kernels.bodies import FoldKernel, ScatterKernel, SortKernel
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.movement import DynamicCopy
from graph_compiler.lower.control.step_order import by_first_use, nests_at_products, others_ahead
from graph_compiler.lower.device import HELD, DeviceProgram, HeldRows, kernel_of
from graph_compiler.lower.groups.groups import grouped
from graph_compiler.lower.movement.blocks import emit_dynamic_copy
from graph_compiler.lower.movement.scatters import emit_scatter
from graph_compiler.lower.movement.sorting import emit_sort
from graph_compiler.lower.nests.column_folds import emit_nest
from graph_compiler.lower.nests.folds import emit_fold
from graph_compiler.lower.nests.nest import PARTITIONS
from graph_compiler.lower.products.computed_operands import without_operands
from graph_compiler.lower.rewrites.trips import Count
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.schedule.fusion import is_whole
from graph_compiler.schedule.steps import KernelCall, Place, item_size
from graph_compiler.schedule.views import Buffer, View, count_of
from nki.ir.views.tensor import NkiTensor

_EMITTERS: dict[type, Callable[[DeviceProgram, Any, Any], None]] = {
    LoopNest: emit_nest,
    DynamicCopy: emit_dynamic_copy,
    ScatterKernel: emit_scatter,
    FoldKernel: emit_fold,
    SortKernel: emit_sort,
}
"""How the kernels of calls are emitted."""


def emit(device: DeviceProgram, steps: list[Any]) -> None:
    """Steps one after another."""
    made = [step for step in steps if not step.writes or any(b.size for b in step.writes)]
    made = by_first_use(device, without_operands(device, made, device.uses))
    for step in grouped(device, nests_at_products(device, others_ahead(device, made)), device.uses):
        device.forget(step.writes)
        kernel = kernel_of(step)
        nodes, start = device.builder.nodes, len(device.builder.nodes)
        with device.builder.at(device.place_in_graph(kernel)):
            if isinstance(step, KernelCall):
                _EMITTERS[type(kernel)](device, kernel, step.words)
            else:
                step.emit(device)
        device.first_of_steps.update(nodes[start : start + 1])


@dataclass(frozen=True)
class Flagged:
    """Steps of which a pred decides, at the place `flag`, whether they run. What they read and
    write is said by themselves."""

    flag: Place
    body: list[Any]
    writes: ClassVar[tuple[Buffer, ...]] = ()
    views: ClassVar[tuple[View, ...]] = ()

    @property
    def reads(self) -> list[Buffer]:
        """What is read beside the steps inside."""
        return [self.flag.buffer]

    @property
    def inner(self) -> list[list[Any]]:
        """The steps inside."""
        return [self.body]


@dataclass(frozen=True)
class WhileStep(Flagged):
    """A loop, with the steps that compute whether it goes on."""

    condition: list[Any]

    @property
    def inner(self) -> list[list[Any]]:
        return [self.condition, self.body]

    def emit(self, device: DeviceProgram) -> None:
        device.forget()
        emit(device, self.condition)
        builder = device.builder
        register = builder.register(_flag(device, self.flag), "goes_on")
        device.forget()
        with builder.while_(register):
            emit(device, self.body)
            emit(device, self.condition)
            builder.emit("register_load", dst=register, src=_flag(device, self.flag))
            device.forget()


@dataclass(frozen=True)
class Counted:
    """A loop whose trips are known. `carried`: values that each trip makes for the next one, as a
    whole; their rows stay on chip between trips, where they take little room."""

    count: Count
    body: list[Any]
    carried: tuple[View, ...] = ()
    reads: ClassVar[tuple[Buffer, ...]] = ()
    writes: ClassVar[tuple[Buffer, ...]] = ()

    @property
    def views(self) -> Sequence[View]:
        """What is carried."""
        return self.carried

    @property
    def inner(self) -> list[list[Any]]:
        """The steps inside."""
        return [self.body]

    def emit(self, device: DeviceProgram) -> None:
        number = device.loops = device.loops + 1
        kept = {
            place: _rows_on_chip(device, view)
            for place, view in enumerate(self.carried)
            if _stays(device, view) and (number, place) not in device.stored_between_trips
        }
        missing = []
        with device.builder.loop(0, self.count.trips) as trip:
            self.count.variable = trip
            for place, tiles in kept.items():
                view = self.carried[place]
                device.hold(view.buffer, tiles, view.dims[-1], view.type)
                held = HeldRows(tiles, view.dims[-1], view.type, device.builder.depth)
                device.carried[view.buffer] = held
            emit(device, self.body)
            for place, tiles in kept.items():
                view = self.carried[place]
                del device.carried[view.buffer]
                made = device.held_rows(view.buffer, view.dims[-1], view.type)
                if [tile.shape for tile in made] != [tile.shape for tile in tiles]:
                    missing.append((number, place))
                elif made != tiles:
                    for tile, own in zip(tiles, made):
                        device.builder.emit("tensor_copy", dst=tile, src=own)
        if missing:
            raise NotOnChip(missing)
        device.forget()


class NotOnChip(Exception):
    """Rows of values that a loop carries are not on chip behind its body. `values`: the loop's
    number, and the place among what it carries; the graph is to be emitted without them."""

    def __init__(self, values: list[tuple[int, int]]) -> None:
        super().__init__(values)
        self.values = values


def _stays(device: DeviceProgram, view: View) -> bool:
    """Whether a value in memory of its own has rows that may stay on chip through a loop."""
    if device.homes.get(view.buffer, device.builder.core) is None or not view.dims:
        return False
    rows, step = count_of(view.dims[:-1]), view.dims[-1]
    taken = -(-rows // PARTITIONS) * step * item_size(view.type)
    return is_whole(view) and 0 < taken <= HELD // 4


def _rows_on_chip(device: DeviceProgram, view: View) -> list[NkiTensor]:
    """Tiles with all rows of a value: copies of those that there are, else loaded."""
    rows, step = count_of(view.dims[:-1]), view.dims[-1]
    made = device.held_rows(view.buffer, step, view.type)
    tiles = []
    for number, first in enumerate(range(0, rows, PARTITIONS)):
        tile = device.tile((min(PARTITIONS, rows - first), step), DTYPES[view.type])
        if made:
            device.builder.emit("tensor_copy", dst=tile, src=made[number])
        else:
            pattern = [(step, tile.shape[0]), (1, step)]
            device.copy(tile, device.elements(Place(view.buffer), view.type, pattern, first * step))
        tiles.append(tile)
    return tiles


@dataclass(frozen=True)
class Barrier:
    """The cores meet: what each has written is there for the others."""

    reads: ClassVar[tuple[Buffer, ...]] = ()
    writes: ClassVar[tuple[Buffer, ...]] = ()
    views: ClassVar[tuple[View, ...]] = ()
    inner: ClassVar[tuple[list[Any], ...]] = ()

    def emit(self, device: DeviceProgram) -> None:
        device.forget()
        device.meet()


@dataclass(frozen=True)
class When(Flagged):
    """Steps that run where a flag holds."""

    def emit(self, device: DeviceProgram) -> None:
        builder = device.builder
        device.forget()
        with builder.when(builder.register(_flag(device, self.flag), "taken")):
            emit(device, self.body)
            device.forget()


def _flag(device: DeviceProgram, place: Place) -> NkiTensor:
    """A pred as an integer that a register takes."""
    tile = device.tile((1, 1), "uint8")
    device.copy(tile, device.elements(place, "pred", [(0, 1), (0, 1)]))
    return nl.copy(tile, dtype="int32")
