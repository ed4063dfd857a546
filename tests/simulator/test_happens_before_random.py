"""The happens-before check against an explicit graph of events, on random programs."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from hand_built import SCALAR, SYNC, VECTOR, Builder, sbuf
from hypothesis import given, settings
from hypothesis import strategies as st
from superfluous_waits import superfluous_waits

from isa.access import AccessPattern
from isa.enums import Engine
from isa.program import Program
from simulator.races.happens_before import check


@dataclass
class Operation:
    """A random instruction: its stream, bytes it reads and writes, and its semaphores."""

    engine: Engine
    queue: int
    dst: AccessPattern
    src: AccessPattern
    waits: dict[int, int] = field(default_factory=dict)
    updates: dict[int, int] = field(default_factory=dict)

    @property
    def stream(self) -> Any:
        return self.engine if self.queue < 0 else ("queue", self.queue)


FEEDS = {0: SYNC, 1: SCALAR}
ENGINES = (VECTOR, SCALAR, SYNC)


@st.composite
def patterns(draw):
    first = draw(st.integers(0, 2))
    dims = tuple(
        (draw(st.integers(-3, 4)), draw(st.integers(1, 3))) for _ in range(draw(st.integers(1, 2)))
    )
    return sbuf(draw(st.integers(20, 26)), 0, first, draw(st.integers(1, 3 - first)), dims=dims)


@st.composite
def programs(draw):
    operations: list[Operation] = []
    channels: dict[Any, int] = {}
    for position in range(draw(st.integers(2, 9))):
        queue = draw(st.sampled_from((-1, -1, 0, 1)))
        engine = FEEDS[queue] if queue >= 0 else draw(st.sampled_from(ENGINES))
        operation = Operation(engine, queue, draw(patterns()), draw(patterns()))
        for _ in range(draw(st.integers(0, 2)) if position else 0):
            producer = operations[draw(st.integers(0, position - 1))]
            key = (producer.stream, engine)
            semaphore = channels.setdefault(key, len(channels))
            amount = draw(st.integers(1, 2))
            producer.updates[semaphore] = producer.updates.get(semaphore, 0) + amount
            operation.waits[semaphore] = operation.waits.get(semaphore, 0) + amount
        operations.append(operation)
    return operations


def touched(pattern: AccessPattern) -> set[tuple[int, int]]:
    offsets = {
        pattern.offset + sum(stride * i for (stride, _), i in zip(pattern.dims, index))
        for index in itertools.product(*(range(count) for _, count in pattern.dims))
    }
    rows = range(pattern.start_partition, pattern.start_partition + pattern.partitions)
    return set(itertools.product(rows, offsets))


def racing_pairs(operations: list[Operation], ignored: Any = None) -> set[tuple[int, int]]:
    """Conflicting pairs without a path from the end of the one to the start of the other.

    Events: ("start", i) and ("end", i) of every operation, and ("issued", i) of transfers. The
    wait `ignored` (operation, semaphore) takes its units and orders nothing.
    """
    after: dict[Any, set[Any]] = defaultdict(set)
    streams: dict[Any, list[int]] = defaultdict(list)
    for i, operation in enumerate(operations):
        issued = ("issued" if operation.queue >= 0 else "end", i)
        after["start", i] |= {("end", i), issued}
        if streams[operation.engine]:
            j = streams[operation.engine][-1]
            previous = ("issued" if operations[j].queue >= 0 else "end", j)
            after[previous].add(("start", i))
        streams[operation.engine].append(i)
        if operation.queue >= 0:
            if streams[operation.stream]:
                after["end", streams[operation.stream][-1]].add(("end", i))
            streams[operation.stream].append(i)
    semaphores = {s for o in operations for s in o.waits}
    for semaphore in semaphores:
        units = [i for i, o in enumerate(operations) for _ in range(o.updates.get(semaphore, 0))]
        taken = 0
        for i, operation in enumerate(operations):
            if semaphore in operation.waits:
                taken += operation.waits[semaphore]
                for unit in units[:taken] if ignored != (i, semaphore) else ():
                    after["end", unit].add(("start", i))

    def reachable(event: Any) -> set[Any]:
        seen, stack = set(), [event]
        while stack:
            for following in after[stack.pop()] - seen:
                seen.add(following)
                stack.append(following)
        return seen

    pairs = set()
    reach = [reachable(("end", i)) for i in range(len(operations))]
    for i, j in itertools.combinations(range(len(operations)), 2):
        a, b = operations[i], operations[j]
        writes_a, writes_b = touched(a.dst), touched(b.dst)
        conflict = writes_a & writes_b or writes_a & touched(b.src) or touched(a.src) & writes_b
        if conflict and ("start", j) not in reach[i] and ("start", i) not in reach[j]:
            pairs.add((i, j))
    return pairs


def assemble(operations: list[Operation]) -> tuple[Program, dict[tuple[Engine, int], int]]:
    b = Builder()
    numbers = {}
    for i, o in enumerate(operations):
        sync = {"waits": list(o.waits.items()), "updates": list(o.updates.items())}
        if o.queue >= 0:
            index = b.dma(o.engine, o.dst, o.src, queue=o.queue, **sync)
        else:
            index = b.copy(o.engine, o.dst, o.src, **sync)
        numbers[o.engine, index] = i
    return b.program(), numbers


@settings(max_examples=300, deadline=None)
@given(programs())
def test_agrees_with_the_event_graph(operations):
    program, numbers = assemble(operations)
    races = check(program)
    found = {
        tuple(sorted(numbers[site.engine, site.index] for site in (race.first, race.second)))
        for race in races
    }
    expected = racing_pairs(operations)
    assert found <= expected
    # A race may hide another one behind it: both checks must agree on whether there is one.
    assert bool(found) == bool(expected)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_superfluous_waits_agree_with_the_event_graph(operations):
    program, numbers = assemble(operations)
    if racing_pairs(operations):
        return
    superfluous = {
        (numbers[engine, index], wait[0]) for _, engine, index, wait in superfluous_waits(program)
    }
    for i, operation in enumerate(operations):
        for semaphore in operation.waits:
            assert ((i, semaphore) in superfluous) == (
                not racing_pairs(operations, ignored=(i, semaphore))
            )
