"""The critical path and what-ifs: sums that must come out, times that must not grow, and causes of
programs that are known by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_timed_programs import ACT, ALONE, DVE, NO_MORE, PE, POOL, add, built, graphs
from timing_programs import Builder, hbm, program, psum, sbuf

from isa.alu import ACTIVATIONS, ALU
from isa.array_tiles import WHOLE_ARRAY
from isa.enums import DgeMode, ReduceCommand
from isa.machine import control, elementwise, gpsimd, scalar, tensor
from isa.target import TARGETS
from simulator.profile import profile
from simulator.profile.what_if import what_ifs
from simulator.timing import simulate
from simulator.timing.assumptions import Assumptions
from simulator.timing.critical import Cause


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_the_critical_path_is_the_whole_time(graph):
    timeline = simulate(built(graph))
    spent = timeline.critical.spent
    assert sum(spent.values()) == pytest.approx(timeline.total_ns)
    assert all(ns >= 0 for ns in spent.values())
    assert timeline.total_ns == simulate(built(graph), keep_spans=False).total_ns
    report = profile(built(graph), timeline)
    assert sum(one.percent for one in report.path) == pytest.approx(100)
    assert sum(one.percent for one in report.path_lines) == pytest.approx(100)
    assert all(wait.ns <= timeline.total_ns * NO_MORE for wait in report.waits)


@settings(max_examples=40, deadline=None)
@given(graphs(), st.data())
def test_a_dependence_less_never_slows(graph, data):
    if not graph[2]:
        return
    edge = data.draw(st.integers(0, len(graph[2]) - 1))
    before = simulate(built(graph), keep_spans=False, assume=ALONE).total_ns
    after = simulate(built(graph, without=edge), keep_spans=False, assume=ALONE).total_ns
    assert after <= before * NO_MORE


# Causes that are known by hand.


def causes(one):
    timeline = simulate(one)
    found = {}
    for (_, cause), ns in timeline.critical.spent.items():
        found[cause] = found.get(cause, 0.0) + ns
    return found, timeline


def test_a_load_what_it_is_needed_for_and_a_store():
    b, target = Builder(), TARGETS["trn2"]
    b.load(sbuf(512), hbm(128, 512, 512), mode=DgeMode.none, updates=[(0, 1)])
    b.add(
        elementwise.TensorTensor, DVE, sbuf(512), sbuf(512), sbuf(512), ALU["add"],
        waits=[(0, 1)], updates=[(1, 1)],
    )  # fmt: skip
    b.load(hbm(128, 512, 512), sbuf(512), mode=DgeMode.none, waits=[(1, 1)], engine=POOL)
    found, _ = causes(b.program())
    figures = {name: figure.value for name, figure in target.figures().items()}
    rate, descriptor = figures["dma_bytes_per_ns_per_engine"], figures["dma_descriptor_ns"]
    assert found == {
        Cause.TRIGGER: pytest.approx(2 * figures["dma_trigger_static_ns"]),
        Cause.DMA_LATENCY: pytest.approx(
            sum(
                figures[f"dma_{way}_{what}_ns"]
                for way in ("load", "store")
                for what in ("dispatch", "tail", "notify")
            )
            + figures["dma_load_lag"] * 8 * 2048 / rate
            + 2 * (figures["dma_trigger_latency_ns"] - figures["dma_trigger_static_ns"])
        ),
        Cause.BANDWIDTH: pytest.approx(2 * 8 * 2048 / rate),
        Cause.DESCRIPTORS: pytest.approx(2 * 8 * descriptor),
        Cause.COMPUTE: pytest.approx(512 / target.clock_ghz(DVE)),
        Cause.SEMAPHORE: pytest.approx(160 + figures["semaphore_ns"]),
    }


def test_a_transfer_on_one_engine_is_a_matter_of_balance():
    b = Builder()
    b.load(sbuf(8192, partitions=8), hbm(8, 8192, 8192), mode=DgeMode.none)
    found, _ = causes(b.program())
    moving = sum(found[c] for c in (Cause.DMA_BALANCE, Cause.BANDWIDTH, Cause.DESCRIPTORS))
    assert found[Cause.DMA_BALANCE] == pytest.approx(moving * 15 / 16)


def test_tables_are_charged_to_the_lines_that_switch():
    b = Builder()
    for line in range(6):
        b.add(
            scalar.Activate, ACT, sbuf(64), sbuf(64), ACTIVATIONS[("exp", "gelu")[line % 2]],
            None, 1.0, ReduceCommand.idle, line=line % 2,
        )  # fmt: skip
    report = profile(b.program(), simulate(b.program()))
    loads = {one.line: one.causes["table loads"] for one in report.path_lines}
    once = TARGETS["trn2"].activation_table_load_ns.value
    assert loads == {1: pytest.approx(3 * once), 2: pytest.approx(3 * once)}


def test_throttling_and_shared_ports_are_on_the_path():
    b = Builder()
    for _ in range(8):
        b.add(tensor.MultiplyMoving, PE, psum(512), sbuf(512, "bfloat16"), True, WHOLE_ARRAY)
    found, timeline = causes(b.program())
    assert found[Cause.THROTTLING] == pytest.approx(timeline.cores[0].throttled)
    b = Builder("trn1")
    for _ in range(8):
        add(b, DVE, 2048)
        b.add(gpsimd.Iota, POOL, sbuf(2048, "int32", offset=16384), ((1, 2048),), 0, 1)
    found, timeline = causes(b.program())
    apart = simulate(b.program(), assume=Assumptions(ports_apart=True)).total_ns
    assert timeline.total_ns > found[Cause.PORT] >= timeline.total_ns - apart > 0


def test_a_stall_names_what_ended_it():
    b = Builder()
    b.load(sbuf(512), hbm(128, 512, 512), mode=DgeMode.none, updates=[(0, 1)], line=3)
    add(b, DVE, 512, waits=[(0, 1)])
    (wait,) = profile(b.program(), simulate(b.program())).waits
    assert (wait.engine, wait.line, wait.awaited, wait.awaited_line) == ("VectorE", 1, "DMA", 4)
    assert wait.count == 1 and wait.percent > 50


def test_cores_meet_where_the_last_one_comes():
    """The path goes through the core that others wait for, whatever the others do."""
    cores = [Builder(), Builder()]
    for number, b in enumerate(cores):
        add(b, DVE, 512 if number else 8192)
        b.add(control.CoreBarrier, DVE, sbuf(1), (0, 1))
        add(b, DVE, 512)
    timeline = simulate(program(cores))
    work = [step for (step, cause), _ in timeline.critical.spent.items() if cause is Cause.COMPUTE]
    assert any(step.core == 0 and step.number == 0 for step in work)
    assert not any(step.core == 1 and step.number == 0 for step in work)
    assert sum(timeline.critical.spent.values()) == pytest.approx(timeline.total_ns)


def test_nothing_takes_no_time():
    one = Builder().program()
    timeline = simulate(one)
    assert timeline.critical.spent == {}
    found = what_ifs(one, None, timeline)
    assert not found.advice and not found.limits
