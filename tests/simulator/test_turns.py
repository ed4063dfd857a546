"""Turns and allocations found in columns, against streams that execute and bytes marked one by one.

Each test runs the walks as Python and as numba compiles them."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from programs import Builder, contiguous, hbm, sbuf

from isa.enums import STREAMS, Engine, Memory
from isa.machine.control import CoreBarrier, Nop
from isa.machine.elementwise import Memset
from isa.program import Program
from simulator.prepare import Barriers
from simulator.straight_line import live_ranges as lives
from simulator.straight_line import turns
from simulator.streams import BLOCKED, HALTED, RunningStream, take_turns

ENGINES = (Engine.gpsimd, Engine.vector)


@pytest.fixture(params=["Python", "compiled"], autouse=True)
def _walks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    for walk in (turns.take_turns_in_columns, lives.follow_lives):
        monkeypatch.setattr(walk, "worth", 0 if request.param == "compiled" else 1 << 40)


def executed(program: Program) -> tuple[list[list[Any]], bool]:
    """By core, engine and place of the instructions that the executor's streams begin, in their
    order; and whether all end."""
    begun: list[list[Any]] = [[] for _ in program.cores]
    barriers, streams = Barriers(), []
    arrived: dict[tuple[int, Engine], int] = {}
    for number, core in enumerate(program.cores):
        semaphores = [0] * 8
        for engine in STREAMS:
            instructions = core.streams.get(engine, [])
            state: Any = SimpleNamespace(registers={engine: []}, engine=engine, number=number)
            stream = RunningStream(engine, instructions, state, semaphores)
            streams += [stream] if instructions else []

            def act(stream: RunningStream, index: int) -> int | None:
                instruction = stream.instructions[index]
                place = stream.state.number, stream.engine
                if not stream.issued:
                    begun[stream.state.number].append((stream.engine, index))
                if instruction.row.meets:
                    meeting = instruction.row.meeting(instruction.values, stream.state.number)
                    if not stream.issued:
                        arrived[place] = barriers.arrive(stream.state.number, meeting)
                    return None if barriers.passed(meeting, arrived[place]) else BLOCKED
                return HALTED if index == len(stream.instructions) - 1 else None

            for index, one in enumerate(instructions):
                action = partial(act, stream, index)
                stream.steps.append((one.waits, action, one.updates, stream.fetches(one)))
    take_turns(streams)
    return begun, all(stream.halted for stream in streams)


SIGNALS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2)), max_size=2).map(tuple)
STEP = st.tuples(st.sampled_from("cccfb"), SIGNALS, SIGNALS)
STREAM = st.lists(STEP, max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(*[STREAM] * len(ENGINES)), min_size=1, max_size=2))
def test_streams_take_turns_as_the_executor_lets_them(cores: list[tuple[Any, ...]]) -> None:
    builder = Builder(len(cores))
    tensor = builder.tensor("a", "float32", (4, 8), "input")
    source, tile = hbm(tensor, "float32", contiguous((4, 8))), sbuf("float32", 0, 4, 8)
    for core, streams in enumerate(cores):
        for engine, steps in zip(ENGINES, streams, strict=True):
            for kind, waits, updates in steps:
                options = {"waits": waits, "updates": updates, "core": core}
                if kind == "f":
                    builder.dma(engine, tile, source, **options)
                elif kind == "b":
                    every = tuple(range(len(cores)))
                    builder.add(engine, CoreBarrier, source, every, **options)
                else:
                    builder.add(engine, Nop, **options)
            builder.add(engine, Nop, core=core)
    program = builder.finish()
    begun, complete = executed(program)
    found = turns.turns_of(program)
    assert (found is not None) == complete
    for stream in found.streams if found is not None else ():
        places = [begun[stream.core].index((stream.engine, at)) for at in range(len(stream.uses))]
        assert stream.turn.tolist() == [place + 1 for place in places]


BOX = st.tuples(
    *(st.sampled_from([Memory.sbuf, Memory.psum]), st.integers(0, 3), st.integers(1, 4)),
    *(st.integers(0, 6), st.integers(1, 4)),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.booleans(), BOX), min_size=1, max_size=14))
def test_allocations_live_until_their_bytes_begin_anew(steps: list[Any]) -> None:
    """Byte by byte: which allocation has it. An access has one allocation, which has lost none."""
    builder = Builder()
    owner: dict[Any, int] = {}
    bytes_of: list[set[Any]] = []
    expected: list[int] = []
    for begins, (memory, start, partitions, offset, count) in steps:
        pattern = sbuf("uint8", offset, partitions, count, start=start, memory=memory)
        touched = {
            (memory, row, byte)
            for row in range(start, start + partitions)
            for byte in range(offset, offset + count)
        }
        if begins:
            builder.begin(Engine.vector, pattern)
            owner |= dict.fromkeys(touched, len(bytes_of))
            bytes_of.append(touched)
            expected.append(len(bytes_of) - 1)
        else:
            builder.add(Engine.vector, Memset, pattern, 1.0)
            owners = {owner.get(byte, -1) for byte in touched}
            whole = len(owners) == 1 and all(
                owner[byte] == number for number in owners - {-1} for byte in bytes_of[number]
            )
            expected.append(owners.pop() if whole else -1)
    found = turns.turns_of(builder.finish())
    assert found is not None
    walks = lives.walks_of(found)
    assert (walks is None) == (-1 in expected)
    if walks is not None:
        assert walks[0].accesses.life.tolist() == expected
        ends = [max(t for t, life in enumerate(expected, 1) if life == n) for n in set(expected)]
        assert walks[0].lives.end.tolist() == ends
