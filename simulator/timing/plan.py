"""Streams made ready for the event model: every static instruction's costs, looked up once.

A planned instruction is a tuple (kind, waits, updates, interval, completion, extra): what the model
does with it, semaphores, ns that it holds its engine, ns until its result is visible, and what
only its kind needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from isa.access import AccessPattern
from isa.cost import elements
from isa.dtypes import DTYPES
from isa.enums import DgeMode, Engine, Memory
from isa.errors import NeuronError
from isa.fields import Kind
from isa.machine import control, tensor
from isa.program import CoreProgram
from isa.spec import Instruction, MachineInstruction
from isa.target import Target
from simulator.timing.dma import Transfer, plan_transfer
from simulator.timing.flow import REGISTER_ROWS

COMPUTE, COMPUTE_EXTRA, MULTIPLY, LOAD_TILE, DMA, CONTROL, REGISTER = range(7)
MEMORY_REGISTER, LOOP_BEGIN, LOOP_END, BRANCH, BARRIER, DRAIN, HALT = range(7, 14)

_KINDS: dict[type[MachineInstruction], int] = {
    tensor.LoadStationary: LOAD_TILE,
    tensor.MultiplyMoving: MULTIPLY,
    tensor.TransposeStationary: MULTIPLY,
    control.LoopBegin: LOOP_BEGIN,
    control.LoopEnd: LOOP_END,
    control.Branch: BRANCH,
    control.CoreBarrier: BARRIER,
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

Box = tuple[Memory, int, int, int, int]


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
    ports: int
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


def plan_core(program: CoreProgram, target: Target) -> dict[Engine, StreamPlan]:
    """Plans of a core's streams; empty streams have none."""
    plans = {}
    for engine, stream in program.streams.items():
        if stream:
            plans[engine] = _plan_stream(engine, stream, target)
    _keep_shared_ports(plans)
    for plan in plans.values():
        _finish(plan)
    return plans


def _plan_stream(engine: Engine, stream: list[Instruction], target: Target) -> StreamPlan:
    code: list[Code] = []
    for instruction in stream:
        row = instruction.row
        cost = row.cost
        if cost is None:
            raise NeuronError("not-supported", f"{row.name} has no cost, so it cannot be timed.")
        interval = cost.interval_ns(instruction, target)
        completion = cost.completion_ns(instruction, target)
        kind = _kind(row)
        extra = _extra(kind, instruction, target)
        code.append((kind, instruction.waits, instruction.updates, interval, completion, extra))
    plan = StreamPlan(engine, stream, code)
    if engine is not Engine.tensor:
        _find_dependences(plan)
    return plan


def _kind(row: type[MachineInstruction]) -> int:
    if row in _KINDS:
        return _KINDS[row]
    if row in REGISTER_ROWS:
        return REGISTER
    if row.asynchronous:
        return DMA
    return CONTROL if row.control else COMPUTE


def _extra(kind: int, instruction: Instruction, target: Target) -> Any:
    row, values = instruction.row, instruction.values
    if kind == DMA:
        on_engine = instruction.engine is Engine.gpsimd and DgeMode.swdge in values
        return Trigger(plan_transfer(instruction, target), on_engine)
    if kind != COMPUTE:
        return ControlFields(row, values) if row.control else None
    assert row.cost is not None
    return Compute(
        row.cost.drain_ns(instruction, target),
        _table(instruction),
        _ports(instruction, target),
    )


def _table(instruction: Instruction) -> str | None:
    for index, _, attribute in instruction.row.attributes:
        if attribute.kind is Kind.activation:
            return instruction.values[index].table_set
    return None


# Dependences between instructions of one engine. An engine streams: the next instruction may start
# while the last elements of the one before are on their way, unless it needs them.


def boxes(instruction: Instruction, reads: bool) -> list[Box]:
    """(memory, partitions from, to, bytes from, to) of the on-chip operands read, or written."""
    row = instruction.row
    found = []
    for index in row.reads if reads else row.writes:
        pattern = instruction.values[index]
        if isinstance(pattern, AccessPattern):
            found += _pattern_boxes(pattern)
    return found


def _pattern_boxes(pattern: AccessPattern) -> list[Box]:
    found = [] if pattern.vector_offset is None else _pattern_boxes(pattern.vector_offset)
    if pattern.memory.on_chip:
        size = DTYPES[pattern.dtype].size
        reach = sum(abs(stride) * (count - 1) for stride, count in pattern.dims)
        start = pattern.start_partition
        end = pattern.offset + (reach + 1) * size
        found.append((pattern.memory, start, start + pattern.partitions, pattern.offset, end))
    return found


def _overlap(a: list[Box], b: list[Box]) -> bool:
    return any(
        m is n and p < s and r < q and x < v and u < y for m, p, q, x, y in a for n, r, s, u, v in b
    )


def _find_dependences(plan: StreamPlan) -> None:
    """Enter which of the engine's instructions just before it an instruction takes data from."""
    recent: list[int] = []
    loops: list[int] = []
    for index, (kind, *_) in enumerate(plan.code):
        if kind == LOOP_BEGIN:
            loops.append(index)
        elif kind == LOOP_END and loops:
            first = loops.pop()
            body = [i for i in range(first, index) if plan.code[i][0] in (COMPUTE, DMA)]
            for position, i in enumerate(body[:LOOK_BACK]):
                _note_dependences(plan, i, [j for j in body[position - LOOK_BACK :] if j >= i])
        elif kind in (COMPUTE, DMA):
            _note_dependences(plan, index, recent[-LOOK_BACK:])
            recent.append(index)


def _note_dependences(plan: StreamPlan, index: int, earlier: list[int]) -> None:
    code, stream = plan.code, plan.instructions
    needed = boxes(stream[index], reads=True)
    if not needed:
        return
    for other in earlier:
        kind, _, _, interval, _, extra = code[other]
        if kind != COMPUTE or not _overlap(needed, boxes(stream[other], reads=False)):
            continue
        mine = code[index][5]
        if code[index][0] == DMA or _needs_last(stream[index], stream[other]):
            if other not in mine.results:
                mine.results += (other,)
                extra.noted = True
        elif extra.drain > interval and other not in mine.firsts:
            mine.firsts += (other,)
            extra.noted = True


def _needs_last(consumer: Instruction, producer: Instruction) -> bool:
    """Whether the first elements of the consumer need the last ones of the producer."""
    written = [producer.values[i] for i in producer.row.writes]
    streamed = [producer.values[i] for i in producer.row.reads]
    amount = max((elements(p) for p in streamed if isinstance(p, AccessPattern)), default=0)
    if any(elements(p) < amount for p in written):
        return True
    produced = boxes(producer, reads=False)
    return any(
        field.column
        and isinstance(consumer.values[i], AccessPattern)
        and _overlap(_pattern_boxes(consumer.values[i]), produced)
        for i, _, field in consumer.row.operands
        if field.role.reads
    )


# Ports that engines share (ARCH2, ARCH3): on gen2 VectorE and GpSimd exclude each other from SBUF,
# VectorE and ScalarE from PSUM; later only from one PSUM bank, and VectorE's fast modes occupy the
# bus that it shares with GpSimd.


def _ports(instruction: Instruction, target: Target) -> int:
    engine = instruction.engine
    touched = boxes(instruction, reads=True) + boxes(instruction, reads=False)
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


def _keep_shared_ports(plans: dict[Engine, StreamPlan]) -> None:
    """Drop from every port mask what no other engine of the core ever occupies."""
    computes = {
        engine: [extra for *_, extra in plan.code if isinstance(extra, Compute)]
        for engine, plan in plans.items()
    }
    used = {engine: _union(c.ports for c in found) for engine, found in computes.items()}
    vector = used.get(Engine.vector, 0)
    others = used.get(Engine.scalar, 0) | used.get(Engine.gpsimd, 0)
    for engine, found in computes.items():
        wanted = others if engine is Engine.vector else vector
        for compute in found:
            compute.ports &= wanted


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


TRANSPOSES: frozenset[type[MachineInstruction]] = frozenset({tensor.TransposeStationary})
"""Rows whose array work moves data and computes nothing."""


def flops(instruction: Instruction) -> float:
    """Floating-point operations of the PE array in one execution, 2 a multiply-accumulate."""
    count = _FLOPS.get(instruction.row)
    return 0.0 if count is None else count(instruction)


def _multiply_flops(instruction: Instruction) -> float:
    dst, moving = instruction.values[0], instruction.values[1]
    return 2.0 * moving.partitions * dst.partitions * elements(moving)


def _transpose_flops(instruction: Instruction) -> float:
    dst = instruction.values[0]
    return 2.0 * dst.partitions * elements(dst) * elements(dst)


_FLOPS: dict[type[MachineInstruction], Callable[[Instruction], float]] = {
    tensor.MultiplyMoving: _multiply_flops,
    tensor.TransposeStationary: _transpose_flops,
}
