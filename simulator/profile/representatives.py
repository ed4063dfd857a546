"""Instructions that stand for many of a stream, for what asks about each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from isa.columns import Integers
from isa.enums import Engine
from isa.files.stream import Pairs, Stream
from isa.machine.control import StorageBegin
from isa.program import Program
from isa.spec import Instruction
from simulator.timing.timeline import Timeline


class Representatives(NamedTuple):
    """Instructions that stand for those of a stream: `order` has which one for each. They are as
    the others but for semaphores and the offsets of operands."""

    instructions: list[Instruction]
    order: Integers


def representatives(stream: Sequence[Instruction]) -> Representatives:
    """Those of a stream; in one that is not in columns each stands for itself."""
    columns = stream.columns if isinstance(stream, Stream) else None
    if columns is None:
        return Representatives(list(stream), np.arange(len(stream)))
    return Representatives(columns.templates, columns.order)


class Executed(NamedTuple):
    """An instruction that stands for those that ran on one engine: how often these did, what they
    occupied of it in ns, and what the DMA engines together spent on their transfers."""

    core: int
    engine: Engine
    instruction: Instruction
    times: int
    ns: float
    dma_ns: float


def executed(program: Program, timeline: Timeline) -> Iterator[Executed]:
    """All that ran in a bound program, by its timing."""
    for number, (core, measured) in enumerate(zip(program.cores, timeline.cores)):
        for engine, time in measured.engines.items():
            instructions, order = representatives(core.streams[engine])
            columns = (
                np.bincount(order, column, minlength=len(instructions)).tolist()
                for column in (time.executed, time.by_instruction, time.dma_work)
            )
            for instruction, times, ns, dma_ns in zip(instructions, *columns):
                if times:
                    yield Executed(number, engine, instruction, int(times), ns, dma_ns)


def signals(stream: Sequence[Instruction]) -> Iterator[tuple[Instruction, Pairs]]:
    """Instructions that update semaphores, and which; those that are alike once."""
    columns = stream.columns if isinstance(stream, Stream) else None
    if columns is None:
        yield from ((one, one.updates) for one in stream if one.updates)
        return
    for template, numbers in zip(columns.templates, columns.numbers):
        for pair in np.unique(numbers[:, 0]).tolist():
            _, updates = columns.semaphores[pair]
            if updates:
                yield template, updates


def needing(found: Representatives) -> Integers:
    """For each instruction of a stream the one that a wait of it is for: the next one, where an
    allocation begins."""
    begins = np.array([one.row is StorageBegin for one in found.instructions], bool)
    last = found.order.size - 1
    places = np.arange(last + 1)
    places = np.where(begins[found.order], last, places) if last >= 0 else places
    return np.minimum.accumulate(places[::-1])[::-1]
