"""Streams made ready for the event model: every static instruction's costs, looked up once.

A planned instruction is a tuple (kind, waits, updates, interval, completion, extra): what the model
does with it, semaphores, ns that it holds its engine, ns until its result is visible, and what
only its kind needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from typing import Any

from isa.access import AccessPattern
from isa.cost import elements
from isa.dtypes import DTYPES
from isa.enums import DgeMode, Engine, Memory
from isa.errors import NeuronError
from isa.fields import Kind
from isa.machine import control, mx, tensor
from isa.program import CoreProgram
from isa.sequencer import REGISTER_ROWS
from isa.spec import Instruction, MachineInstruction
from isa.target import Target
from simulator.timing.dependences import Box, needs_last, overlap, read_boxes, written_boxes
from simulator.timing.dma import Transfer, plan_transfer, transfer_key
from simulator.timing.events import (
    BARRIER,
    BRANCH,
    COMPUTE,
    COMPUTE_EXTRA,
    CONTROL,
    DMA,
    DRAIN,
    HALT,
    LOAD_TILE,
    LOOP_BEGIN,
    LOOP_END,
    MEMORY_REGISTER,
    MULTIPLY,
    REGISTER,
)

_KINDS: dict[type[MachineInstruction], int] = {
    tensor.LoadStationary: LOAD_TILE,
    tensor.LoadStationaryPairs: LOAD_TILE,
    mx.LoadStationaryMx: LOAD_TILE,
    mx.MultiplyMovingMx: MULTIPLY,
    tensor.MultiplyMoving: MULTIPLY,
    tensor.MultiplyMovingOneZero: MULTIPLY,
    tensor.MultiplyMovingPairs: MULTIPLY,
    tensor.TransposeMoving: MULTIPLY,
    tensor.TransposeStationary: MULTIPLY,
    control.LoopBegin: LOOP_BEGIN,
    control.LoopEnd: LOOP_END,
    control.Branch: BRANCH,
    control.CoreBarrier: BARRIER,
    control.SendReceive: BARRIER,
    control.DrainQueue: DRAIN,
    control.Halt: HALT,
    control.RegisterLoad: MEMORY_REGISTER,
    control.RegisterStore: MEMORY_REGISTER,
}

LOOK_BACK = 4
"""Earlier instructions of its engine that an instruction is checked against for its operands;
after that many issues their results are there."""

SHARED_PORT = 1 << 8
"""Bit of a port mask for the bus that VectorE and GpSimd share; the bits below are PSUM banks."""


@dataclass(slots=True)
class Compute:
    """What decides when an instruction of a compute engine starts, besides semaphores.

    `results`, `firsts`: earlier instructions (indices) of its engine whose last, whose first
    result it needs. `drain`: ns from an element's entry until its result is there. `noted`: a later
    instruction names this one. `ports`: mask of what it occupies and another engine may want.
    `table`: activation table that it needs.
    """

    drain: float
    table: str | None
    ports: int = 0
    results: tuple[int, ...] = ()
    firsts: tuple[int, ...] = ()
    noted: bool = False


@dataclass(slots=True)
class Trigger:
    """A DMA trigger: its transfer, whether writing the descriptors occupies the engine itself, and
    the earlier instructions of its engine that produce what it moves."""

    transfer: Transfer
    on_engine: bool
    results: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlFields:
    """Row and values of a control instruction."""

    row: type[MachineInstruction]
    values: tuple[Any, ...]


Code = tuple[int, Any, Any, float, float, Any]


@dataclass(slots=True)
class StreamPlan:
    """A stream ready to be timed."""

    engine: Engine
    instructions: list[Instruction]
    code: list[Code]


def plan_core(
    program: CoreProgram,
    target: Target,
    ports_apart: bool = False,
    independent: Set[tuple[Engine, int]] = frozenset(),
) -> dict[Engine, StreamPlan]:
    """Plans of a core's streams; empty streams have none. With `ports_apart` no engine occupies a
    port that another one wants; the instructions in `independent` need no result of their own
    engine."""
    planner = _Planner(target)
    plans = {e: planner.stream(e, list(stream)) for e, stream in program.streams.items() if stream}
    if not ports_apart:
        planner.enter_ports(plans)
    for engine, index in independent:
        kind, *_, compute = plans[engine].code[index]
        if kind == COMPUTE:
            compute.results = compute.firsts = ()
    for plan in plans.values():
        _finish(plan)
    return plans


class _Planner:
    """Plans streams of one core; transfers that differ only in addresses are planned once."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.transfers: dict[Any, Transfer] = {}

    def stream(self, engine: Engine, stream: list[Instruction]) -> StreamPlan:
        target = self.target
        code: list[Code] = []
        for instruction in stream:
            row = instruction.row
            if row.cost is None:
                raise NeuronError("not-supported", f"{row.name} has no cost: it cannot be timed.")
            measured = row.cost.measure(instruction, target)
            kind = _KINDS.get(row)
            if kind is None:
                kind = _KINDS[row] = _kind(row)
            extra: Any = None
            if kind == COMPUTE:
                extra = Compute(measured.drain_ns, _table(instruction))
            elif kind == DMA:
                on_engine = engine is Engine.gpsimd and DgeMode.swdge in instruction.values
                extra = Trigger(self._transfer(instruction), on_engine)
            elif row.control:
                extra = ControlFields(row, instruction.values)
            interval, completion = measured[:2]
            code.append((kind, instruction.waits, instruction.updates, interval, completion, extra))
        plan = StreamPlan(engine, stream, code)
        if any(c[0] == COMPUTE for c in code):
            _find_dependences(plan)
        return plan

    def _transfer(self, instruction: Instruction) -> Transfer:
        key = transfer_key(instruction)
        known = self.transfers.get(key)
        if known is None:
            known = self.transfers[key] = plan_transfer(instruction, self.target)
        return known

    def enter_ports(self, plans: dict[Engine, StreamPlan]) -> None:
        """Enter into instructions which ports they occupy, as far as another engine uses them."""
        computing: dict[Engine, list[tuple[Compute, Instruction]]] = {}
        for engine, plan in plans.items():
            for code, instruction in zip(plan.code, plan.instructions):
                if code[0] == COMPUTE:
                    computing.setdefault(engine, []).append((code[5], instruction))
        if Engine.vector not in computing or computing.keys() <= {Engine.vector}:
            return
        for found in computing.values():
            for compute, instruction in found:
                compute.ports = ports(instruction, self.target)
        used = {e: _union(c.ports for c, _ in found) for e, found in computing.items()}
        others = used.get(Engine.scalar, 0) | used.get(Engine.gpsimd, 0)
        for engine, found in computing.items():
            wanted = others if engine is Engine.vector else used[Engine.vector]
            for compute, _ in found:
                compute.ports &= wanted


def _kind(row: type[MachineInstruction]) -> int:
    if row in REGISTER_ROWS:
        return REGISTER
    if row.asynchronous:
        return DMA
    return CONTROL if row.control else COMPUTE


def _table(instruction: Instruction) -> str | None:
    for index, _, attribute in instruction.row.attributes:
        if attribute.kind is Kind.activation:
            return instruction.values[index].loaded_table
    return None


def _find_dependences(plan: StreamPlan) -> None:
    """Enter which of the engine's instructions just before it an instruction takes data from."""
    code = plan.code
    written = {
        i: written_boxes(instruction)
        for i, instruction in enumerate(plan.instructions)
        if code[i][0] == COMPUTE
    }
    recent: list[int] = []
    loops: list[int] = []
    for index, planned in enumerate(code):
        kind = planned[0]
        if kind in (COMPUTE, DMA):
            if recent:
                _note_dependences(plan, index, recent, written)
            if kind == COMPUTE:
                recent = [*recent[1 - LOOK_BACK :], index]
        elif kind == LOOP_BEGIN:
            loops.append(index)
        elif kind == LOOP_END and loops:
            # What the end of one round gives to the beginning of the next.
            body = [i for i in range(loops.pop(), index) if code[i][0] in (COMPUTE, DMA)]
            for position, i in enumerate(body[:LOOK_BACK]):
                before = [j for j in body[position - LOOK_BACK :] if j >= i and j in written]
                _note_dependences(plan, i, before, written)


def _note_dependences(
    plan: StreamPlan, index: int, earlier: list[int], written: dict[int, list[Box]]
) -> None:
    needed = read_boxes(plan.instructions[index])
    for other in earlier:
        if not overlap(needed, written[other]):
            continue
        kind, _, _, _, _, mine = plan.code[index]
        _, _, _, interval, _, producer = plan.code[other]
        instruction, source = plan.instructions[index], plan.instructions[other]
        if kind == DMA or needs_last(instruction, source, written[other]):
            if other not in mine.results:
                mine.results += (other,)
                producer.noted = True
        elif producer.drain > interval and other not in mine.firsts:
            mine.firsts += (other,)
            producer.noted = True


# Ports that engines share (ARCH2, ARCH3): on gen2 VectorE and GpSimd exclude each other from SBUF,
# VectorE and ScalarE from PSUM; later only from one PSUM bank, and VectorE's fast modes occupy the
# bus that it shares with GpSimd.


def ports(instruction: Instruction, target: Target) -> int:
    """Mask of the ports that an instruction of a compute engine occupies."""
    engine = instruction.engine
    touched = read_boxes(instruction) + written_boxes(instruction)
    in_sbuf = any(box[0] is Memory.sbuf for box in touched)
    bank = target.psum_bank_bytes.value
    banks = 0
    for memory, _, _, start, end in touched:
        if memory is Memory.psum:
            if target.generation == 2:
                banks = SHARED_PORT - 1
            for number in range(start // bank, -(-end // bank)):
                banks |= 1 << number
    if engine is Engine.scalar:
        return banks
    if engine is Engine.gpsimd:
        return SHARED_PORT if in_sbuf else 0
    assert instruction.row.cost is not None
    fast = 2 * instruction.row.cost.cycles(instruction, target) <= _most_elements(instruction)
    shares = in_sbuf if target.generation == 2 else in_sbuf and fast
    return banks | (SHARED_PORT if shares else 0)


def _most_elements(instruction: Instruction) -> int:
    patterns = [v for v in instruction.values if isinstance(v, AccessPattern)]
    return max((elements(p) for p in patterns), default=0)


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _finish(plan: StreamPlan) -> None:
    """Instructions that nothing but their semaphores holds up go the fast way."""
    for index, (kind, *costs, extra) in enumerate(plan.code):
        if kind == COMPUTE and (
            extra.results or extra.firsts or extra.noted or extra.ports or extra.table
        ):
            plan.code[index] = (COMPUTE_EXTRA, *costs, extra)


def on_data_path(code: Code) -> bool:
    """Whether a planned instruction occupies its engine's data path in the open.

    Tile loads of the tensor engine usually hide behind the multiplication before."""
    kind, extra = code[0], code[5]
    return kind in (COMPUTE, COMPUTE_EXTRA, MULTIPLY) or (kind == DMA and extra.on_engine)


TRANSPOSES: frozenset[type[MachineInstruction]] = frozenset(
    {tensor.TransposeMoving, tensor.TransposeStationary}
)
"""Rows whose array work moves data and computes nothing."""


PRODUCTS = frozenset({row for row, kind in _KINDS.items() if kind == MULTIPLY} - TRANSPOSES)
"""Rows whose array work multiplies `moving` with the loaded tile."""


def flops(instruction: Instruction) -> float:
    """Floating-point operations of the PE array in one execution, 2 a multiply-accumulate."""
    count = _FLOPS.get(instruction.row)
    return 0.0 if count is None else count(instruction)


def _multiply_flops(instruction: Instruction) -> float:
    dst, moving = instruction.values[0], instruction.values[1]
    lanes = DTYPES[moving.dtype].lanes
    return 2.0 * lanes * moving.partitions * dst.partitions * elements(moving)


def _transpose_flops(instruction: Instruction) -> float:
    dst = instruction.values[0]
    return 2.0 * dst.partitions * elements(dst) * elements(dst)


_FLOPS: dict[type[MachineInstruction], Callable[[Instruction], float]] = {
    tensor.MultiplyMoving: _multiply_flops,
    tensor.MultiplyMovingOneZero: _multiply_flops,
    tensor.MultiplyMovingPairs: _multiply_flops,
    mx.MultiplyMovingMx: _multiply_flops,
    tensor.TransposeMoving: _multiply_flops,
    tensor.TransposeStationary: _transpose_flops,
}
