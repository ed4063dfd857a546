"""Where the time of a run goes: the critical path, backwards from the end, cause by cause.

Each node of the path (`simulator.timing.path`) is charged with the time from its start until it
hands over to the next one, and with what held it up before its start. These times follow one
another without gaps, so that they add up to the whole run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from isa.enums import Engine
from isa.target import Target
from simulator.timing import plan as p
from simulator.timing.dma import Transfer
from simulator.timing.path import Node, Path


class Cause(Enum):
    """What the time of a stretch of the critical path is spent on."""

    COMPUTE = "compute"
    TILE_LOAD = "stationary load"
    THROTTLING = "throttling"
    FILL_AND_DRAIN = "fill and drain"
    SEMAPHORE = "semaphores"
    TABLE_LOAD = "table loads"
    PORT = "shared port"
    BANDWIDTH = "DMA bandwidth"
    DESCRIPTORS = "DMA descriptors"
    DMA_BALANCE = "DMA balance"
    TRIGGER = "DMA trigger"
    DMA_LATENCY = "DMA latency"
    CONTROL = "control"
    BARRIER = "core barrier"


DMA_CAUSES = frozenset({Cause.BANDWIDTH, Cause.DESCRIPTORS, Cause.DMA_BALANCE, Cause.DMA_LATENCY})
"""Time of the DMA engines and rings, which no engine of the core spends."""


class PathStep(NamedTuple):
    """An instruction of a stream, by its number there, or the transfers that it triggers."""

    core: int
    engine: Engine
    number: int
    transfer: bool


@dataclass(slots=True)
class Stall:
    """How long, and how often, one step of the path had nothing to do until another handed over."""

    ns: float = 0.0
    count: int = 0


@dataclass(slots=True)
class CriticalPath:
    """Time by step and cause, which adds up to the run, and the waits that ended its stalls: by
    (step that waited, step it waited for)."""

    spent: dict[tuple[PathStep, Cause], float] = field(default_factory=dict)
    stalls: dict[tuple[PathStep, PathStep], Stall] = field(default_factory=dict)

    def charge(self, step: PathStep, cause: Cause, ns: float) -> None:
        if ns > 0:
            self.spent[step, cause] = self.spent.get((step, cause), 0.0) + ns


EVEN = 1 - 1e-9
"""The part of the work of a full set of DMA engines from which nothing but rounding is missing."""

Plans = list[dict[Engine, p.StreamPlan]]


def walk(path: Path, plans: Plans, target: Target) -> CriticalPath:
    """The critical path of a recorded run, from its end to its start."""
    found = CriticalPath()
    until, at = path.end
    following: PathStep | None = None
    while at >= 0:
        node = path.node(at)
        step = _step(path, node)
        code = plans[step.core][step.engine].code[step.number]
        begin, settled, start = node.begin, node.settled, node.start
        if step.transfer:
            _charge_transfer(found, step, code[5].transfer, (start, node.free, until), target)
            found.charge(step, Cause.DMA_LATENCY, start - begin)
        else:
            inside = following is not None and _same_stream(step, following)
            handed = Cause.FILL_AND_DRAIN if inside or following is None else Cause.SEMAPHORE
            _charge_step(found, step, code, (start, node.free, until), handed)
            found.charge(step, Cause.TABLE_LOAD, settled - begin)
            found.charge(step, Cause.PORT, start - settled)
        if node.predecessor >= 0 and not step.transfer and begin > node.idle:
            earlier = _step(path, path.node(node.predecessor))
            stall = found.stalls.setdefault((step, earlier), Stall())
            stall.ns += begin - node.idle
            stall.count += 1
        until, at, following = begin, node.predecessor, step
    return found


def _step(path: Path, node: Node) -> PathStep:
    core, engine = path.places[node.place]
    return PathStep(core, engine, node.number, node.transfer)


def _same_stream(one: PathStep, other: PathStep) -> bool:
    return one[:2] == other[:2] and not other.transfer


Span = tuple[float, float, float]
"""Start, until when the engine is occupied, until when the node is charged."""


def _charge_step(
    found: CriticalPath, step: PathStep, code: p.Code, span: Span, handed: Cause
) -> None:
    """An instruction: its work, what slows it down, and what comes behind it."""
    start, free, until = span
    cause = _WORK.get(code[0], Cause.COMPUTE)
    working = min(free, until) - start
    if code[0] == p.MULTIPLY:
        slowed = max(0.0, working - code[3])
        found.charge(step, Cause.THROTTLING, slowed)
        working -= slowed
    found.charge(step, cause, working)
    found.charge(step, handed, until - max(free, start))


_WORK = {
    p.LOAD_TILE: Cause.TILE_LOAD,
    p.DMA: Cause.TRIGGER,
    p.BARRIER: Cause.BARRIER,
    p.CONTROL: Cause.CONTROL,
    p.REGISTER: Cause.CONTROL,
    p.MEMORY_REGISTER: Cause.CONTROL,
    p.LOOP_BEGIN: Cause.CONTROL,
    p.LOOP_END: Cause.CONTROL,
    p.BRANCH: Cause.CONTROL,
    p.DRAIN: Cause.CONTROL,
    p.HALT: Cause.CONTROL,
}


def _charge_transfer(
    found: CriticalPath, step: PathStep, transfer: Transfer, span: Span, target: Target
) -> None:
    """A transfer: what all DMA engines together would take for its descriptors and its bytes, what
    it takes longer as some of them have less to do, and its completion."""
    start, last, until = span
    moving = max(0.0, min(last, until) - start)
    longest = max(ns for _, ns in transfer.work)
    even = transfer.engine_ns / (target.dma_engines.value * longest) if longest else 1.0
    even = 1.0 if even > EVEN else even
    share = transfer.overhead_ns / transfer.engine_ns if transfer.engine_ns else 0.0
    found.charge(step, Cause.DESCRIPTORS, moving * even * share)
    found.charge(step, Cause.BANDWIDTH, moving * even * (1 - share))
    found.charge(step, Cause.DMA_BALANCE, moving * (1 - even))
    found.charge(step, Cause.DMA_LATENCY, until - start - moving)
