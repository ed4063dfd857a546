"""Flows of semaphores against units in a queue: the first given is the first taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.enums import Engine
from simulator.profile.flows import flows
from simulator.timing.timeline import Spans, Track

PAIRS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=2, unique_by=lambda p: p[0]
)


def engine_track(engine: Engine, updates: list, waits: list, starts: list[float]) -> tuple:
    """A stream whose instructions run once each, a unit of time long, and its track."""
    stream = [
        SimpleNamespace(updates=tuple(u), waits=tuple(w), row=SimpleNamespace(asynchronous=False))
        for u, w in zip(updates, waits)
    ]
    start, index = np.array(starts), np.arange(len(starts))
    return stream, Track(engine.name, engine, spans=Spans.of(start, start + 1, index, index))


def in_a_queue(events: list[tuple[float, int, list, Any]]) -> set[tuple[int, Any, Any]]:
    """(semaphore, giver, taker) of the last unit of each wait. Events: time, 0 for a wait and 1 for
    an update, the pairs, and whose they are."""
    found = set()
    for semaphore in range(3):
        units = [
            who
            for _, kind, pairs, who in sorted(events, key=lambda e: e[:2])
            if kind == 1
            for s, amount in pairs
            if s == semaphore
            for _ in range(amount)
        ]
        taken = 0
        for _, kind, pairs, who in sorted(events, key=lambda e: e[:2]):
            for s, amount in pairs if kind == 0 else ():
                if s == semaphore:
                    taken += amount
                    if taken <= len(units):
                        found.add((semaphore, units[taken - 1], who))
    return found


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(PAIRS, PAIRS), min_size=1, max_size=8), st.data())
def test_units_are_taken_in_order(instructions: list, data: Any) -> None:
    split = data.draw(st.integers(0, len(instructions)))
    streams, tracks, events = {}, [], []
    times = iter(data.draw(st.permutations(range(3 * len(instructions)))))
    parts = (Engine.vector, instructions[:split]), (Engine.scalar, instructions[split:])
    for number, (engine, part) in enumerate(parts):
        starts = sorted(float(next(times)) / 2 for _ in part)
        updates, waits = [u for u, _ in part], [w for _, w in part]
        streams[engine], track = engine_track(engine, updates, waits, starts)
        tracks.append(track)
        for span, (update, wait, start) in enumerate(zip(updates, waits, starts)):
            events += [(start, 0, wait, (number, span)), (start + 1, 1, update, (number, span))]
    gives = [time for time, kind, pairs, _ in events if kind == 1 and pairs]
    if len(set(gives)) < len(gives):
        return  # two at one moment have no order
    found: Any = flows(SimpleNamespace(streams=streams), SimpleNamespace(tracks=tracks))
    rows = zip(found.semaphore, found.giver_track, found.giver, found.taker_track, found.taker)
    assert {(int(s), (int(a), int(b)), (int(c), int(d))) for s, a, b, c, d in rows} == in_a_queue(
        events
    )


def test_a_core_without_spans_has_no_flows() -> None:
    track = Track("vector", Engine.vector)
    found: Any = flows(SimpleNamespace(streams={}), SimpleNamespace(tracks=[track]))
    assert [column.size for column in found] == [0] * 5
