"""How initialisation marks pass through each machine instruction.

The default serves element-wise rows: an output element is initialised when the elements that it is
computed from are. Rows of other forms register a function, keyed on the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from isa.array_tiles import ArrayTile
from isa.errors import NeuronError
from isa.machine import control, dma, ranks, scalar, tensor, vector
from isa.machine.tensor import tile_of
from isa.spec import MachineInstruction
from simulator.checks.tracked import Tracked
from simulator.row_table import RowTable
from simulator.views import Array, Indirect

if TYPE_CHECKING:
    from simulator.checks.initialised import Shadow

Mask = Array | None
Operands = tuple[Tracked | None, ...]

PROPAGATION: RowTable[Callable[[InstructionUse], None]] = RowTable()
"""By row name; rows that are not here are element-wise."""

propagates = PROPAGATION.of
"""Decorates what passes the marks of rows on."""


@dataclass(slots=True, eq=False, repr=False)
class InstructionUse:
    """One execution of an instruction, as propagation sees it."""

    shadow: Shadow
    row: type[MachineInstruction]
    state: Any
    values: Sequence[Any]
    operands: Operands
    location: Any

    def value(self, field: str) -> Any:
        """The value of a field."""
        return self.values[self.row.places[field]]

    def given(self, field: str) -> Tracked | None:
        """The view in a field; None for numbers, and for what was not given."""
        return self.operands[self.row.places[field]]

    def operand(self, field: str) -> Tracked:
        """The view in a field that always has one."""
        tracked = self.given(field)
        assert tracked is not None, f"{field} is no view"
        return tracked

    def read(self, operand: Tracked) -> Mask:
        """Mask of the operand's initialised elements (None: all), recording a finding."""
        mask = operand.mask()
        if mask is not None:
            self.shadow.found(self, operand, mask)
        return mask


def refuse_unwritten(use: InstructionUse, mask: Mask, purpose: str) -> None:
    """Raise uninitialised-control unless all of what decides what runs was written, by its mask."""
    if mask is not None and not mask.all():
        missing = mask.size - int(np.count_nonzero(mask))
        raise NeuronError(
            "uninitialised-control",
            f"{missing} of {mask.size} elements of what {purpose} were never written, or depend on "
            f"what was not, when {use.row.name} reads them.",
        )


def both(left: Mask, right: Mask) -> Mask:
    """Initialised in both; None stands for everywhere."""
    if left is None:
        return right
    return left if right is None else left & right


def _every(mask: Array, axis: int) -> Array:
    return np.logical_and.reduce(mask, axis=axis)


def spread(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """A mask over [P, *free] or a column [P, 1] as one over `shape`."""
    if mask is None or mask.shape == shape:
        return mask
    size = 1
    for count in shape:
        size *= count
    if mask.size == size:
        return mask.reshape(shape)
    column = mask.reshape((mask.shape[0],) + (1,) * (len(shape) - 1))
    return np.broadcast_to(column, shape)


def element_wise_mask(use: InstructionUse, shape: tuple[int, ...]) -> Mask:
    """Marks of an element-wise function of all operands that are read."""
    mask: Mask = None
    for position in use.row.reads:
        operand = use.operands[position]
        if operand is not None:
            mask = both(mask, spread(use.read(operand), shape))
    return mask


def element_wise(use: InstructionUse) -> None:
    for position in use.row.writes:
        operand = use.operands[position]
        if operand is not None:
            operand.write(element_wise_mask(use, operand.view.shape))


@propagates(vector.TensorReduce)
def _tensor_reduce(use: InstructionUse) -> None:
    dst, data, axes = use.operand("dst"), use.operand("data"), use.value("axes")
    mask = use.read(data)
    if mask is not None:
        mask = _every(mask.reshape(*mask.shape[: mask.ndim - axes], -1), -1)
    dst.write(mask)


@propagates(vector.Transpose32)
def _transpose32(use: InstructionUse) -> None:
    mask = use.read(use.operand("data"))
    use.operand("dst").write(None if mask is None else mask.reshape(mask.shape[0], -1).T)


@propagates(tensor.LoadStationary)
def _load_stationary(use: InstructionUse) -> None:
    load_marks(use, use.read(use.operand("src")))


@propagates(tensor.LoadStationaryPairs)
def _load_stationary_pairs(use: InstructionUse) -> None:
    mask = use.read(use.operand("src"))
    merged = None if mask is None else mask.reshape(2 * mask.shape[0], -1)
    load_marks(use, merged)


def tile_key(use: InstructionUse) -> tuple[int, ArrayTile]:
    """The core, and the place of the array whose tile an instruction loads or multiplies by."""
    return use.state.number, tile_of(use.row, use.values)


def load_marks(use: InstructionUse, mask: Mask) -> None:
    """Marks [k, *free] of a tile that is loaded into the array."""
    key = tile_key(use)
    if mask is None:
        use.shadow.stationary.pop(key, None)
    else:
        use.shadow.stationary[key] = mask.reshape(mask.shape[0], -1)


@propagates(tensor.MultiplyMoving, tensor.MultiplyMovingOneZero, tensor.TransposeMoving)
def _multiply_moving(use: InstructionUse) -> None:
    multiply_marks(use, use.read(use.operand("moving")), use.value("accumulate"))


@propagates(tensor.MultiplyMovingPairs)
def _multiply_moving_pairs(use: InstructionUse) -> None:
    mask = use.read(use.operand("moving"))
    merged = None if mask is None else mask.reshape(2 * mask.shape[0], -1)
    multiply_marks(use, merged, use.value("accumulate"))


def multiply_marks(use: InstructionUse, streamed: Mask, accumulate: bool) -> None:
    """A result is initialised when its column of the loaded tile and its column of `streamed`
    [k, *free] are, and, accumulating, what it is added to."""
    dst = use.operand("dst")
    stationary = use.shadow.stationary.get(tile_key(use))
    held = use.read(dst) if accumulate else None
    if stationary is None and streamed is None:
        dst.write(held)
        return
    shape = dst.view.shape
    mask = np.ones((shape[0], dst.view.size // max(shape[0], 1)), np.bool_)
    if stationary is not None:
        mask &= _every(stationary, 0)[:, None]
    if streamed is not None:
        mask &= _every(streamed.reshape(streamed.shape[0], -1), 0)[None, :]
    dst.write(both(mask.reshape(shape), held))


@propagates(tensor.TransposeStationary)
def _transpose_stationary(use: InstructionUse) -> None:
    mask = use.shadow.stationary.get(tile_key(use))
    dst = use.operand("dst")
    if mask is not None and use.value("multiplied"):
        mask = np.broadcast_to(_every(mask, 0), mask.shape)
    dst.write(None if mask is None else mask.T)


@propagates(scalar.ActReadAccumulator)
def read_accumulators(use: InstructionUse) -> None:
    dst = use.operand("dst")
    rows = use.shadow.accumulator_marks(use.state, dst.view.shape[0])
    if rows.all():
        dst.write(None)
        return
    use.shadow.found_registers(use, rows)
    dst.write(rows.copy())


@propagates(dma.DmaCopy)
def _dma_copy(use: InstructionUse) -> None:
    dst_value, src_value = use.value("dst"), use.value("src")
    if dst_value is None or src_value is None:
        return
    _moved(use, ["src"])


@propagates(dma.DmaCompute)
def _dma_compute(use: InstructionUse) -> None:
    _moved(use, [source for source in dma.SOURCES.names if use.value(source) is not None])


def _moved(use: InstructionUse, sources: Sequence[str]) -> None:
    """dst = an element-wise function of the sources, of which rows may be skipped."""
    dst, dst_value = use.operand("dst"), use.value("dst")
    shape = dst_value.shape
    mask: Mask = None
    moved: Mask = None
    for source in sources:
        part, rows = gathered(use, use.operand(source), use.value(source))
        mask = both(mask, None if part is None else part.reshape(shape))
        moved = both(moved, rows)
    if isinstance(dst_value, Indirect):
        _scatter(use, dst_value, mask, moved)
        return
    if moved is not None:
        # Rows that were skipped keep their marks.
        count = moved.size
        old = dst.mask()
        inner = dst.view.size // max(count, 1)
        kept = np.ones((count, inner), np.bool_) if old is None else old.reshape(count, inner)
        new = np.ones((count, inner), np.bool_) if mask is None else mask.reshape(count, inner)
        merged = np.where(moved[:, None], new, kept)
        dst.write(None if merged.all() else merged.reshape(shape))
        return
    dst.write(None if mask is None else mask.reshape(shape))


def gathered(use: InstructionUse, src: Tracked, value: Any) -> tuple[Mask, Mask]:
    """Marks of the rows read, and which rows are moved at all (None: all)."""
    if not isinstance(value, Indirect):
        return use.read(src), None
    base = src.mask()
    index, inside = value.rows()
    if base is None or not base.shape[0]:
        return None, inside
    rows = base[index if inside is None else np.where(inside, index, 0)]
    if inside is not None:
        rows[~inside] = True
    if rows.all():
        return None, inside
    use.shadow.found(use, src, rows)
    return rows, inside


def _scatter(use: InstructionUse, value: Indirect, mask: Mask, moved: Mask) -> None:
    dst = use.operand("dst")
    index, inside = value.rows()
    moved = both(moved, inside)
    rows = None if mask is None else mask.reshape(index.size, *value.base.shape[1:])
    if moved is not None:
        index, rows = index[moved], None if rows is None else rows[moved]
    found, counts = np.unique(index, return_counts=True)
    if (counts > 1).any():
        position = int(np.argmax(counts > 1))
        use.shadow.found_repeated(use, int(found[position]), int(counts[position]))
    dst.write_rows(index, rows)


@propagates(control.RegisterLoad)
def _register_load(use: InstructionUse) -> None:
    refuse_unwritten(use, use.operand("src").mask(), "a register loads")


@propagates(control.RegisterStore)
def _register_store(use: InstructionUse) -> None:
    use.operand("dst").write(None)


@propagates(control.SendReceive)
def _send_receive(use: InstructionUse) -> None:
    """What arrives is the other core's, and followed where it is delivered."""
    use.read(use.operand("src"))


@propagates(control.CoreBarrier)
def _core_barrier(use: InstructionUse) -> None:
    """The tensor of a barrier is named, not accessed."""


@propagates(control.PrintTensor)
def _print_tensor(use: InstructionUse) -> None:
    use.read(use.operand("tensor"))


@propagates(ranks.RankExchange)
def _rank_exchange(use: InstructionUse) -> None:
    use.read(use.operand("src"))
    use.operand("dst").write(None)


@propagates(ranks.RankNumber)
def _rank_number(use: InstructionUse) -> None:
    use.operand("dst").write(None)
