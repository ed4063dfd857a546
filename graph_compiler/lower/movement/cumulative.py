"""Cumulative sums, products, largest and smallest numbers of rows: one pass of the vector engine.

HLO says them as windows of a whole row, of which each begins, or ends, one element further on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import nki.language as nl
from graph_compiler.hlo.operators.folding import binary_opcode
from graph_compiler.lower.nests.nest import PARTITIONS, numbers
from graph_compiler.lower.sizes import DTYPES
from graph_compiler.lower.steps import MoveStep
from graph_compiler.schedule.fusion import Literal, contiguous
from graph_compiler.schedule.nodes import Node
from graph_compiler.schedule.schedule import Scheduler
from graph_compiler.schedule.steps import place_of
from graph_compiler.schedule.views import View, count_of
from isa.alu import ALU
from isa.enums import ReduceCommand
from isa.operations.scan import TensorScalarCumulative
from nki.ir.views.tensor import NkiTensor

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

_IDENTITIES = {"maximum": -np.inf, "minimum": np.inf, "add": 0.0, "multiply": 1.0}
"""Opcodes by which the engine goes on, and the numbers that change nothing."""

_SHORTEST = 9
"""Elements of a row from which on one pass is faster than one for each doubling of a window."""

_SHORTEST_EXCHANGED = 64
"""The same where dimensions are exchanged for it."""

_LONGEST = 4096
"""Elements of a partition that an operation takes."""


@dataclass(frozen=True)
class CumulativeStep(MoveStep):
    """A step: each element becomes the fold of its row up to there, or from there on where it goes
    `backward`. Rows lie one after another, of `source` and of `target`."""

    count: int
    fold: str
    backward: bool

    def emit(self, device: DeviceProgram) -> None:
        """All rows: neighbouring ones in a partition where they are short and many."""
        rows = count_of(self.target.dims) // self.count
        each = max(1, min(_LONGEST // self.count, rows // (2 * PARTITIONS)))
        block = PARTITIONS * each
        for number in numbers(device.builder, rows // block):
            self._rows(device, number * block, PARTITIONS, each)
        done = rows // block * block
        while done < rows:
            partitions = min(PARTITIONS, rows - done)
            self._rows(device, done, partitions, 1)
            done += partitions

    def _rows(self, device: DeviceProgram, first: Any, partitions: int, each: int) -> None:
        """So many rows of each of so many partitions, from one on."""
        width = each * self.count
        here = [(width, partitions), (1, width)]
        source, target = (
            device.elements(place_of(view), view.type, here, first * self.count)
            for view in (self.source, self.target)
        )
        loaded = device.tile((partitions, width), DTYPES[self.source.type])
        device.copy(loaded, source)
        made = device.tile((partitions, width), "float32")
        for row in range(each):
            self._row(device, loaded, made, row * self.count)
        if made.dtype != DTYPES[self.target.type]:
            made = nl.copy(made, dtype=DTYPES[self.target.type])
        device.copy(target, made)

    def _row(self, device: DeviceProgram, loaded: NkiTensor, made: NkiTensor, first: int) -> None:
        """The row of each partition that begins at an element, part by part."""
        options: dict[str, Any] = {"reduce_cmd": ReduceCommand.reset_reduce}
        for start in range(0, self.count, _LONGEST):
            size = min(_LONGEST, self.count - start)
            src, dst = (self._part(tile, first, start, size) for tile in (loaded, made))
            device.builder.emit(
                TensorScalarCumulative,
                dst=dst,
                src=src,
                op0=ALU["multiply"],
                imm0=1.0,
                op1=ALU[self.fold],
                **options,
            )
            last = self._part(made, first, start + size - 1, 1)
            options = {"reduce_cmd": ReduceCommand.load_reduce, "imm1": last}

    def _part(self, tile: NkiTensor, first: int, start: int, size: int) -> NkiTensor:
        """Elements of a row in the order in which they are folded."""
        rows, pitch = tile.shape
        if not self.backward:
            return tile[:, first + start : first + start + size]
        return tile.ap([[pitch, rows], [-1, size]], first + self.count - 1 - start)


def cumulative(scheduler: Scheduler, node: Node) -> View | None:
    """Windows along a dimension that grow by an element each; None of others. Where it is not the
    last one, dimensions are exchanged before and after."""
    item = node.instruction
    assert item is not None
    fold = binary_opcode(item.called[0])
    if len(node.operands) != 2 or fold not in _IDENTITIES or 0 in node.dims:
        return None
    operand, initial = node.operands
    if node.type not in _TYPES or operand.type != node.type or operand.dims != node.dims:
        return None
    start = scheduler.value(initial)
    if not isinstance(start, Literal) or start.value != _IDENTITIES[fold]:
        return None
    parts = item.attribute("window").dimensions
    axes = [axis for axis, part in enumerate(parts) if part.size > 1]
    if len(axes) != 1 or not all(map(_is_plain, parts)):
        return None
    (axis,) = axes
    count, behind = node.dims[axis], count_of(node.dims[axis + 1 :])
    low, high = parts[axis].padding_low, parts[axis].padding_high
    whole = parts[axis].size == count and sorted((low, high)) == [0, count - 1]
    if not whole or count < (_SHORTEST if behind == 1 else _SHORTEST_EXCHANGED):
        return None
    order = [number for number in range(len(node.dims)) if number != axis] + [axis]
    dims = tuple(node.dims[number] for number in order)
    program, value = scheduler.program, scheduler.view(operand)
    turned = value.placed(dims, tuple(value.strides[number] for number in order))
    source, target = contiguous(program, turned), program.buffer(node.type, dims)
    step = CumulativeStep(target, source, count, fold, low == 0)
    program.steps.append(step)  # type: ignore[arg-type]
    strides = tuple(target.strides[order.index(number)] for number in range(len(order)))
    return target.placed(node.dims, strides)


def _is_plain(part: Any) -> bool:
    """Whether a window goes element by element, and pads nothing where it has one."""
    steps = part.stride, part.window_dilation, part.base_dilation
    padded = part.padding_low or part.padding_high
    return all(step in (0, 1) for step in steps) and (part.size > 1 or not padded)


_TYPES = frozenset({"f32", "bf16", "f16"})
