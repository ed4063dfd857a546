"""The event loop: compiled and as Python the same, bit for bit; and its control flow by hand."""

import cProfile

import numpy as np
import pytest
from hypothesis import given, settings
from random_timed_programs import ALONE, built, graphs
from timing_programs import Builder, hbm, matmul_hoisted_loads, matmul_loads_inside, sbuf

from isa.enums import DgeMode, Engine
from isa.files.stream import Stream, in_columns
from isa.machine import control, elementwise
from simulator.timing import critical, dependences, events, plan, ports, simulate
from simulator.timing.assumptions import NOTHING


def both_ways(program, monkeypatch, **options):
    """Timelines of a program from Python and from compiled code."""
    found = []
    for worth in (10**9, 0):
        with monkeypatch.context() as patch:
            patch.setattr(events.advance, "worth", worth)
            patch.setattr(critical._walk, "worth", worth)
            found.append(simulate(program, **options))
    return found


def assert_same(one, other):
    assert one.total_ns == other.total_ns
    assert one.critical.spent == other.critical.spent
    assert one.critical.stalls == other.critical.stalls
    for a, b in zip(one.cores, other.cores, strict=True):
        assert a.engines == b.engines
        assert a.dma_active == b.dma_active and a.bytes == b.bytes
        for track, other in zip(a.tracks, b.tracks, strict=True):
            assert list(track.spans) == list(other.spans), track.name


@settings(max_examples=25, deadline=None)
@given(graphs())
def test_random_programs_are_timed_alike_by_python_and_compiled_code(graph):
    with pytest.MonkeyPatch.context() as monkeypatch:
        for assume in (NOTHING, ALONE):
            assert_same(*both_ways(built(graph), monkeypatch, assume=assume))


def test_loops_are_timed_alike_by_python_and_compiled_code(monkeypatch):
    for program in (matmul_loads_inside(4, 8), matmul_hoisted_loads(1, 4, 16, DgeMode.none)):
        assert_same(*both_ways(program, monkeypatch))


def test_time_is_linear_in_rounds():
    """Twice the tiles take twice the time, once the pipeline is full."""
    totals = [simulate(matmul_loads_inside(n, 16), keep_spans=False).total_ns for n in (8, 16, 24)]
    assert totals[2] - totals[1] == pytest.approx(totals[1] - totals[0], rel=0.02)


def test_iterations_are_those_of_the_innermost_loop():
    b = Builder()
    b.loop(Engine.sync, 2)
    b.loop(Engine.sync, 3)
    b.load(sbuf(64), hbm(128, 64, 64), mode=DgeMode.none)
    b.end(Engine.sync)
    b.add(control.Nop, Engine.sync)
    b.end(Engine.sync)
    timeline = simulate(b.program())
    tracks = {track.name: track.spans for track in timeline.cores[0].tracks}
    assert [round_ for *_, round_ in tracks["loads"]] == [0, 1, 2, 0, 1, 2]
    nops = [round_ for *_, index, round_ in tracks["sync sequencer"] if index == 4]
    assert nops == [0, 1]
    starts = np.array(tracks["loads"].start)
    assert (np.diff(starts) > 0).all()


def test_no_python_runs_for_each_instruction_of_a_long_program(monkeypatch):
    """Static instructions are laid out and timed in columns, by template."""
    walks = events.advance, critical._walk, dependences._look_back, plan._places, ports._banks
    for walk in walks:
        monkeypatch.setattr(walk, "worth", 0)

    def calls(copies):
        b = Builder()
        for number in range(copies):
            place = 512 * (number % 7)
            operands = sbuf(64, offset=place), sbuf(64, offset=place + 4096)
            b.add(elementwise.TensorCopy, Engine.vector, *operands, waits=[(0, 1)])
            b.load(operands[1], hbm(128, 64, 64), updates=[(0, 1)], mode=DgeMode.none)
        program = b.program()
        streams = program.cores[0].streams
        for engine in streams:
            streams[engine] = Stream(in_columns(streams[engine]))
        counted = cProfile.Profile()
        timeline = counted.runcall(simulate, program, keep_spans=False, keep_path=True)
        assert timeline.instructions == 2 * copies
        return sum(entry.callcount for entry in counted.getstats())

    calls(10)
    assert calls(2000) == calls(1000)
