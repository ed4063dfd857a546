"""Steps that hold others, and how steps are emitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import nki.language as nl
from graph_compiler.execute.bodies import Fold, Scatter, Sort
from graph_compiler.execute.loops import Loop
from graph_compiler.execute.movement import DynamicCopy
from graph_compiler.execute.steps import Call, Place
from graph_compiler.execute.views import Buffer, View
from graph_compiler.lower.counted import Count
from graph_compiler.lower.device import Device
from graph_compiler.lower.elementwise import emit_loop
from graph_compiler.lower.folds import emit_fold
from graph_compiler.lower.groups import grouped
from graph_compiler.lower.movement import emit_dynamic_copy, emit_scatter
from graph_compiler.lower.sorting import emit_sort
from nki.ir.views.tensor import NkiTensor

_EMITTERS: dict[type, Callable[[Device, Any, Any], None]] = {
    Loop: emit_loop,
    DynamicCopy: emit_dynamic_copy,
    Scatter: emit_scatter,
    Fold: emit_fold,
    Sort: emit_sort,
}
"""How the kernels of calls are emitted."""


def emit(device: Device, steps: list[Any]) -> None:
    """Steps one after another."""
    made = [step for step in steps if not step.writes or any(b.size for b in step.writes)]
    for step in grouped(device, made, device.uses):
        device.forget(step.writes)
        kernel = step.kernel if isinstance(step, Call) else step
        with device.builder.at(device.place_in_graph(kernel)):
            if isinstance(step, Call):
                _EMITTERS[type(kernel)](device, kernel, step.words)
            else:
                step.emit(device)


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
class While(Flagged):
    """A loop, with the steps that compute whether it goes on."""

    condition: list[Any]

    @property
    def inner(self) -> list[list[Any]]:
        return [self.condition, self.body]

    def emit(self, device: Device) -> None:
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
    """A loop whose trips are known."""

    count: Count
    body: list[Any]
    reads: ClassVar[tuple[Buffer, ...]] = ()
    writes: ClassVar[tuple[Buffer, ...]] = ()
    views: ClassVar[tuple[View, ...]] = ()

    @property
    def inner(self) -> list[list[Any]]:
        """The steps inside."""
        return [self.body]

    def emit(self, device: Device) -> None:
        with device.builder.loop(0, self.count.trips) as trip:
            self.count.variable = trip
            emit(device, self.body)
        device.forget()


@dataclass(frozen=True)
class Barrier:
    """The cores meet: what each has written is there for the others."""

    reads: ClassVar[tuple[Buffer, ...]] = ()
    writes: ClassVar[tuple[Buffer, ...]] = ()
    views: ClassVar[tuple[View, ...]] = ()
    inner: ClassVar[tuple[list[Any], ...]] = ()

    def emit(self, device: Device) -> None:
        device.forget()
        device.meet()


@dataclass(frozen=True)
class When(Flagged):
    """Steps that run where a flag holds."""

    def emit(self, device: Device) -> None:
        builder = device.builder
        device.forget()
        with builder.when(builder.register(_flag(device, self.flag), "taken")):
            emit(device, self.body)
            device.forget()


def _flag(device: Device, place: Place) -> NkiTensor:
    """A pred as an integer that a register takes."""
    tile = device.tile((1, 1), "uint8")
    device.copy(tile, device.elements(place, "pred", [(0, 1), (0, 1)]))
    return nl.copy(tile, dtype="int32")
