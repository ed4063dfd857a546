"""Convolutions that multiply pixels by zeros, which is right only where the pixels are finite.

Where several columns of results, or several groups of features, are one product, a pixel is
multiplied by zeros for those of them that do not see it. Zero times an infinity is NaN. So sums are
looked at before they are rounded, or pixels when they are loaded. Where one is not finite the
convolution is computed again, without such zeros.

On inf2 and trn1 nobody looks: their tensor engine multiplies to transpose, so an infinite pixel has
made NaN of others before (`--enable-saturate-infinity`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from graph_compiler.lower.sizes import BIT_FOR_BIT, PARTITIONS
from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, Memory
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

_COLUMNS = 128
"""Tiles that are looked at, each with a column of its own; further ones are added up."""


class ConvolutionPlan(Protocol):
    """A convolution, ready to be emitted."""

    @property
    def by_zeros(self) -> bool:
        """Whether it multiplies pixels by zeros for results that do not see them."""

    def watch(self, seen: NotFinite) -> None:
        """Have something look at what it computes, or computes with."""

    def emit(self) -> None:
        """Emit it."""

    def without_zeros(self) -> ConvolutionPlan:
        """The same by a plan that does not."""


def emit_right(device: DeviceProgram, plan: ConvolutionPlan) -> None:
    """A convolution, and where its pixels are not finite the same once more without zeros."""
    if not plan.by_zeros or device.target.generation < BIT_FOR_BIT:
        plan.emit()
        return
    seen = NotFinite(device)
    plan.watch(seen)
    plan.emit()
    builder = device.builder
    device.notes.recomputed += 1
    device.forget()
    with builder.when(builder.register(seen.any(), "not_finite")):
        plan.without_zeros().emit()
        device.forget()


class NotFinite:
    """Whether a tile that was looked at has an infinity, or NaN: 0 times any of its elements."""

    def __init__(self, device: DeviceProgram) -> None:
        self.device = device
        self._depth = device.builder.depth
        self._taken = 1
        self._sums = device.tile((PARTITIONS, _COLUMNS), "float32")
        device.builder.emit("memset", dst=self._sums, value=0.0, engine=Engine.gpsimd)

    def look(self, tile: NkiTensor) -> None:
        """Look at a tile on chip."""
        device, count = self.device, tile.shape[0]
        own = device.builder.depth == self._depth and self._taken < _COLUMNS
        if own:
            column = self._sums[:count, self._taken : self._taken + 1]
            self._taken += 1
        else:
            column = device.tile((count, 1), "float32")
        device.builder.emit(
            "activation_reduce",
            dst=device.tile(tile.shape, "bfloat16"),
            op=ACTIVATIONS["copy"],
            data=tile,
            scale=0.0,
            reduce_op=ALU["add"],
            reduce_res=column,
        )
        if not own:
            total = self._sums[:count, 0:1]
            add: dict[str, Any] = {"data1": total, "data2": column, "op": ALU["add"]}
            device.builder.emit("tensor_tensor", dst=total, **add)

    def any(self) -> NkiTensor:
        """1 where a tile has one, else 0: an integer that a register takes."""
        device = self.device
        emit, tile = device.builder.emit, device.tile
        column, ones = (tile((PARTITIONS, 1), "float32") for _ in range(2))
        columns = self._sums[:, : self._taken]
        emit("tensor_reduce", dst=column, op=ALU["add"], data=columns, axis=(1,))
        emit("memset", dst=ones, value=1.0, engine=Engine.gpsimd)
        total = tile((1, 1), "float32", Memory.psum)
        emit("nc_matmul", dst=total, stationary=column, moving=ones)
        found = tile((1, 1), "int32")
        emit("tensor_scalar", dst=found, data=total, op0=ALU["not_equal"], operand0=0.0)
        return found
