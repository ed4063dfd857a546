"""Costs of templates: of instructions that differ only in addresses and semaphores.

Of a compiled program, such templates come with its streams (`isa.files.stream`). What a template
costs, and which transfer it starts, holds for every instruction of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isa.array_tiles import ARRAY_SIDE, WHOLE_ARRAY, ArrayTile
from isa.enums import DgeMode, Engine
from isa.errors import NeuronError
from isa.fields import Kind
from isa.machine import control, mx, tensor
from isa.machine.tensor import tile_of
from isa.sequencer import REGISTER_ROWS
from isa.spec import Instruction, MachineInstruction
from isa.target import Target
from simulator.timing import events as e
from simulator.timing.dma import Transfer, plan_transfer, transfer_key

KINDS: dict[type[MachineInstruction], int] = {
    tensor.LoadStationary: e.LOAD_TILE,
    tensor.LoadStationaryPairs: e.LOAD_TILE,
    mx.LoadStationaryMx: e.LOAD_TILE,
    mx.MultiplyMovingMx: e.MULTIPLY,
    tensor.MultiplyMoving: e.MULTIPLY,
    tensor.MultiplyMovingOneZero: e.MULTIPLY,
    tensor.MultiplyMovingPairs: e.MULTIPLY,
    tensor.TransposeMoving: e.MULTIPLY,
    tensor.TransposeStationary: e.MULTIPLY,
    control.LoopBegin: e.LOOP_BEGIN,
    control.LoopEnd: e.LOOP_END,
    control.Branch: e.BRANCH,
    control.CoreBarrier: e.BARRIER,
    control.SendReceive: e.BARRIER,
    control.DrainQueue: e.DRAIN,
    control.Halt: e.HALT,
    control.RegisterLoad: e.MEMORY_REGISTER,
    control.RegisterStore: e.MEMORY_REGISTER,
}
"""What the event loop does with rows; with others, what `kind_of` says."""


def kind_of(row: type[MachineInstruction]) -> int:
    """What the event loop does with instructions of a row."""
    known = KINDS.get(row)
    if known is not None:
        return known
    if row in REGISTER_ROWS:
        return e.REGISTER
    if row.asynchronous:
        return e.DMA
    return e.CONTROL if row.control else e.COMPUTE


@dataclass(slots=True)
class TimedTemplate:
    """Instructions of one stream that differ only in addresses and semaphores.

    `instruction` is one of them, with operands at offset 0. `interval`: ns that it holds its
    engine, `completion`: from its start until its result is visible, `drain`: from an element's
    entry until its result is there. `table`: the activation table that it needs. `part`: the part
    of the tensor engine's array that it occupies, if not all of it. A DMA trigger has a
    `transfer`; writing its descriptors may occupy the engine itself (`on_engine`).
    """

    instruction: Instruction
    kind: int
    interval: float
    completion: float
    drain: float = 0.0
    table: str | None = None
    part: ArrayTile | None = None
    transfer: Transfer | None = None
    on_engine: bool = False

    @property
    def steers(self) -> bool:
        """Whether it decides what its stream executes next, or how much of a transfer moves."""
        dynamic = self.transfer is not None and self.transfer.dynamic
        return dynamic or self.kind in (e.LOOP_BEGIN, e.LOOP_END, e.BRANCH, e.HALT)

    @property
    def writes_register(self) -> bool:
        """Whether it writes a register of its engine."""
        return self.instruction.row in REGISTER_ROWS

    @property
    def on_data_path(self) -> bool:
        """Whether it occupies its engine's data path in the open. Tile loads of the tensor engine
        usually hide behind the multiplication before."""
        return self.kind in (e.COMPUTE, e.MULTIPLY) or self.on_engine

    @property
    def duration(self) -> float:
        """ns from the start of one until it has ended: of those that compute with their results."""
        return self.completion if self.kind <= e.LOAD_TILE else self.interval

    @property
    def share(self) -> float:
        """How much of its engine's data path it occupies, 1 being all."""
        return 1.0 if self.part is None else self.part.rows * self.part.columns / ARRAY_SIDE**2

    def work(self, times: float) -> tuple[float, float]:
        """What of `times` intervals the data path, and what the sequencer, has to do."""
        spent = self.interval * times
        if self.on_data_path:
            return spent, 0.0
        return 0.0, 0.0 if self.kind == e.LOAD_TILE else spent


class TemplateTimer:
    """Makes templates; transfers that differ only in addresses are planned once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.transfers: dict[Any, Transfer] = {}

    def template(self, instruction: Instruction) -> TimedTemplate:
        """The template of an instruction."""
        row = instruction.row
        if row.cost is None:
            raise NeuronError("not-supported", f"{row.name} has no cost: it cannot be timed.")
        measured = row.cost.measure(instruction, self.target)
        found = TimedTemplate(
            instruction, kind_of(row), measured.interval_ns, measured.completion_ns
        )
        if found.kind == e.COMPUTE:
            found.drain, found.table = measured.drain_ns, _table(instruction)
        elif found.kind in (e.MULTIPLY, e.LOAD_TILE):
            part = tile_of(row, instruction.values)
            found.part = None if part == WHOLE_ARRAY else part
        elif found.kind == e.DMA:
            found.transfer = self._transfer(instruction)
            swdge = DgeMode.swdge in instruction.values
            found.on_engine = swdge and instruction.engine is Engine.gpsimd
        return found

    def _transfer(self, instruction: Instruction) -> Transfer:
        key = transfer_key(instruction)
        known = self.transfers.get(key)
        if known is None:
            known = self.transfers[key] = plan_transfer(instruction, self.target)
        return known


def _table(instruction: Instruction) -> str | None:
    for index, _, attribute in instruction.row.attributes:
        if attribute.kind is Kind.activation:
            found: str | None = instruction.values[index].loaded_table
            return found
    return None
