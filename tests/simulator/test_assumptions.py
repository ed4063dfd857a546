"""What-ifs of the timing model: with less in the way no program takes longer."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_timed_programs import ALONE, NO_MORE, built, graphs

from isa.target import TARGETS
from simulator.profile.what_if import limits
from simulator.timing import simulate
from simulator.timing.assumptions import UNLIMITED


@settings(max_examples=40, deadline=None)
@given(graphs(), st.floats(1, 100))
def test_more_bandwidth_never_slows(graph, times):
    one = built(graph)
    rate = TARGETS[graph[0]].dma_bytes_per_ns_per_engine.value
    before = simulate(one, keep_spans=False, assume=ALONE).total_ns
    for faster in (rate * times, math.inf):
        figures = (*ALONE.figures, ("dma_bytes_per_ns_per_engine", faster))
        after = simulate(one, keep_spans=False, assume=replace(ALONE, figures=figures)).total_ns
        assert after <= before * NO_MORE
        before = after


@settings(max_examples=20, deadline=None)
@given(graphs())
def test_a_limit_is_the_time_without_it(graph):
    one = built(graph)
    timeline = simulate(one)
    for limit in limits(one, None, timeline):
        again = simulate(one, assume=UNLIMITED[limit.name])
        assert limit.total_ns == again.total_ns
        assert sum(again.critical.spent.values()) == pytest.approx(again.total_ns)
