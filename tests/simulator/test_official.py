"""The figures of a profile under the vendor's names: which there are, and what they count."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from timing_programs import Builder, hbm, sbuf

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import DgeMode, Engine
from simulator.profile import profile
from simulator.profile.official import METRICS
from simulator.timing import simulate

FACTS = Path(__file__).parents[3] / "shared" / "facts" / "runtime.md"
POOL, SP = Engine.gpsimd, Engine.sync


@nki.jit
def one_product(a, b):
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    x, y = nl.load(a), nl.load(b)
    summed = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=summed, stationary=x, moving=y)
    result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=result, op=nl.exp, data=summed)
    nl.store(out, result)
    return out


def test_each_documented_figure_has_a_row():
    """The documents' names are in a list of facts that this project does not write."""
    if not FACTS.is_file():
        pytest.skip("the collected facts are not beside the repository")
    lines = FACTS.read_text(encoding="utf-8").splitlines()
    documented = next(line for line in lines if line.startswith("`total_time`"))
    assert set(METRICS) == set(re.findall(r"`(\w+)`", documented))


def test_a_row_is_computed_or_says_why_not():
    assert len(METRICS) == 101
    for metric in METRICS.values():
        assert (metric.value is None) == bool(metric.reason), metric.name
    assert sum(metric.value is not None for metric in METRICS.values()) == 86


def test_bytes_on_chip_and_work_are_those_of_the_operands():
    a, b = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)
    found = nki.profile(one_product, target="trn2")(a, b)[1].to_dict()["summary"]
    result = 128 * 512 * 4
    assert found["psum_write_bytes"] == found["psum_read_bytes"] == result
    assert found["psum_read_sbuf_write_bytes"] == result
    assert found["psum_read_sbuf_write_count"] == 1
    assert found["sbuf_write_bytes"] == a.nbytes + b.nbytes + result, "two loads, one result"
    assert found["sbuf_read_bytes"] == a.nbytes + b.nbytes + result, "both operands, the store"
    assert found["inputs_and_weights_size_bytes"] == a.nbytes + b.nbytes
    assert found["matmul_instruction_count"] == found["activate_instruction_count"] == 1
    assert found["adjusted_hardware_flops"] == 4 * found["hardware_flops"], "float32"
    assert found["dma_transfer_count"] == 3
    assert found["dma_transfer_average_bytes"] == (a.nbytes + b.nbytes + result) / 3
    rate = found["peak_flops_bandwidth_ratio"]
    best = found["mfu_inst_max_achievable_estimated_percent"]
    assert best == pytest.approx(100 * found["mm_arithmetic_intensity"] / rate)


@pytest.mark.parametrize(
    ("dtype", "target", "factor"),
    [
        (nl.bfloat16, "trn2", 1.0),
        (nl.float8_e4m3, "trn1", 1.0),
        (nl.float8_e4m3, "trn2", 0.5),
        (nl.float32, "trn1", 4.0),
    ],
)
def test_flops_in_terms_of_bfloat16_have_the_documented_factors(dtype, target, factor):
    specs = nki.TensorSpec((128, 128), dtype), nki.TensorSpec((128, 512), dtype)
    found = nki.profile(one_product, target=target)(*specs)[1].to_dict()["summary"]
    assert found["adjusted_hardware_flops"] == factor * found["hardware_flops"]


def test_transfers_are_told_apart_by_who_makes_their_descriptors():
    b = Builder()
    b.load(sbuf(512), hbm(128, 512, 512), mode=DgeMode.none)
    b.load(sbuf(512), hbm(128, 512, 512), mode=DgeMode.hwdge, engine=POOL)
    b.load(sbuf(512), hbm(128, 512, 512), mode=DgeMode.hwdge, engine=POOL)
    program = b.program()
    timeline = simulate(program)
    found = profile(program, timeline).to_dict()["summary"]
    each = 128 * 512 * 4
    assert (found["static_dma_size"], found["hardware_dynamic_dma_size"]) == (each, 2 * each)
    assert found["static_dma_packet_percent"] == pytest.approx(100 / 3)
    assert found["dynamic_dma_packet_percent"] == pytest.approx(200 / 3)
    assert found["software_dynamic_dma_packet_count"] == 0
    spans = [
        span
        for track in timeline.cores[0].tracks
        if track.queue >= 0 and track.engine is SP
        for span in track.spans
    ]
    moved = sum(end - start for start, end, _, _ in spans)
    tail = found["static_dma_active_time"] * 1e9 - moved
    assert 0 <= tail < 2000, "bytes are on their way behind the engines, then written"
    assert found["dynamic_dma_active_time_percent"] == pytest.approx(
        100 * found["hardware_dynamic_dma_active_time"] / found["total_time"]
    )


def test_the_time_in_which_anything_is_active_is_the_union_of_the_spans():
    a, b = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)
    program = nki.compile(one_product, a, b, target="trn2").program
    timeline = simulate(program)
    found = profile(program, timeline).to_dict()["summary"]
    core = timeline.cores[0]
    assert timeline.worked is not None
    longest = max(*(one.active for one in core.engines.values()), core.dma_active)
    together = sum(one.active for one in core.engines.values()) + core.dma_active
    assert longest < timeline.worked.active_ns <= together
    assert timeline.worked.active_ns <= timeline.worked.span_ns <= timeline.total_ns
    spans = [
        (start, end)
        for track in core.tracks
        if "sequencer" not in track.name
        for start, end, _, _ in track.spans
    ]
    covered, reached = 0.0, 0.0
    for start, end in sorted(spans):
        covered += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    assert covered <= timeline.worked.active_ns, "spans end before results are written"
    assert found["total_active_time"] == pytest.approx(timeline.worked.active_ns / 1e9)
    percent = found["total_active_time_percent"]
    assert percent == pytest.approx(100 * timeline.worked.active_ns / timeline.worked.span_ns)
