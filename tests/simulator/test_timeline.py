"""Spans in little memory: what goes in comes out, as rows and as columns."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from isa.enums import Engine
from simulator.timing.timeline import CoreTimeline, EngineTime, Spans, Timeline

TIMES = st.floats(0, 1e9, allow_nan=False)
ROWS = st.lists(st.tuples(TIMES, TIMES, st.integers(0, 2**40), st.integers(0, 2**40)), max_size=9)


@given(ROWS)
def test_spans_are_the_rows_that_they_were_made_of(rows: list) -> None:
    columns = [np.array(column) for column in zip(*rows)] or [np.zeros(0)] * 4
    spans = Spans.of(*columns)
    assert len(spans) == len(rows) and list(spans) == rows
    start, end, index = spans.columns()
    assert [*zip(start, end, index)] == [row[:3] for row in rows]


def test_figures_of_several_cores() -> None:
    vector, scalar = Engine.vector, Engine.scalar
    times = [
        {vector: EngineTime(active=3.0), scalar: EngineTime(active=9.0)},
        {vector: EngineTime(active=5.0)},
    ]
    for engines in times:
        for time in engines.values():
            time.executed.extend([2, 1])
    timeline = Timeline("trn2", 10.0, 0.0, [CoreTimeline(engines=each) for each in times])
    assert timeline.instructions == 9
    assert [timeline.active_ns(engine) for engine in (vector, scalar, Engine.sync)] == [5, 9, 0]
