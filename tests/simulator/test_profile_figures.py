"""Profiles and trace files of small programs whose numbers are known by hand."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise

import pytest
from timing_programs import (
    Builder,
    hbm,
    matmul_hoisted_loads,
    matmul_loads_inside,
    program,
    psum,
    sbuf,
    storage,
)

from isa.alu import ALU
from isa.array_tiles import WHOLE_ARRAY
from isa.enums import DgeMode, Engine
from isa.errors import NeuronError
from isa.files.stream import Stream, in_columns
from isa.machine import control, elementwise, ranks, tensor
from simulator.profile import profile, write_perfetto
from simulator.timing import simulate

PE, DVE, POOL, SP = Engine.tensor, Engine.vector, Engine.gpsimd, Engine.sync


def profiled(built):
    return profile(built, simulate(built))


def engine(report, name):
    return next(e for e in report.engines if e.name == name)


def multiplications(count, n=512, dtype="bfloat16", target="trn2"):
    b = Builder(target)
    for _ in range(count):
        b.add(tensor.LoadStationary, PE, sbuf(128, dtype), WHOLE_ARRAY, line=1)
        b.add(tensor.MultiplyMoving, PE, psum(n), sbuf(n, dtype), True, WHOLE_ARRAY, line=2)
    return b.program()


def test_matmul_utilisation():
    report = profiled(multiplications(500))
    flops = 500 * 2 * 128 * 128 * 512
    assert report.flops == flops
    assert report.matmul_dtype == "bfloat16" and report.peak_tflops == 79
    assert report.mfu_percent == pytest.approx(100 * flops / (report.total_ns * 79e3))
    assert report.mfu_percent > 95
    assert report.bound == "TensorE"
    busy = engine(report, "TensorE")
    assert busy.busy_cycles == pytest.approx(2.4 * busy.busy_ns)
    assert busy.busy_ns == pytest.approx(500 * 521 / 2.4 + report.throttled_ns, rel=0.001)
    assert profiled(multiplications(50, dtype="float32")).peak_tflops == 20
    assert profiled(multiplications(50, target="trn1")).peak_tflops == 92


def test_bound_of_the_published_matmuls():
    """Tutorial: version 2 waits for loads; version 3 keeps TensorE and DMA busy alike."""
    inside = profiled(matmul_loads_inside(8, 64, DgeMode.none))
    assert inside.bound == "DMA bandwidth"
    assert inside.dma.active_percent > 99
    assert engine(inside, "TensorE").waits_for == "queue loads"
    hoisted = profiled(matmul_hoisted_loads(2, 16, 64))
    assert hoisted.bound in ("DMA bandwidth", "TensorE")
    assert engine(hoisted, "TensorE").busy_percent > 90
    assert hoisted.arithmetic_intensity > inside.arithmetic_intensity


def test_many_triggers_bind_their_engine():
    b = Builder()
    for _ in range(40):
        b.load(sbuf(16), hbm(128, 16, 16), mode=DgeMode.hwdge)
    report = profiled(b.program())
    assert report.bound == "DMA trigger (SyncE)"


def test_small_program_is_bound_by_latency():
    b = Builder()
    b.load(sbuf(64), hbm(128, 64, 64), updates=[(0, 1)])
    b.add(elementwise.TensorCopy, DVE, sbuf(64), sbuf(64), waits=[(0, 1)], updates=[(1, 1)])
    b.load(hbm(128, 64, 64), sbuf(64), waits=[(1, 1)], engine=POOL)
    report = profiled(b.program())
    assert report.bound == "DMA latency"
    assert "VectorE at line 1 waits" in report.reason and "for DMA at line 1" in report.reason


def test_transfers_on_few_partitions_are_a_matter_of_balance():
    b = Builder()
    for _ in range(40):
        b.load(sbuf(32768, partitions=4), hbm(4, 32768, 32768))
    report = profiled(b.program())
    assert report.bound == "DMA balance"
    assert report.dma.busy_percent == pytest.approx(report.dma.active_percent / 16, rel=0.01)


def test_lines_add_up_what_their_instructions_occupy():
    b = Builder()
    for line, columns in ((3, 2048), (5, 8192), (3, 2048)):
        b.add(elementwise.TensorTensor, DVE, sbuf(columns), sbuf(columns, offset=40000),
              sbuf(columns, offset=80000), ALU["add"], line=line)  # fmt: skip
    b.load(sbuf(512), hbm(128, 512, 512), line=5)
    first, second = profiled(b.program()).lines
    assert (first.file, first.line, second.line) == ("kernel.py", 6, 4)
    assert first.by_engine["VectorE"] == pytest.approx(8192 / 0.96)
    assert first.by_engine["DMA"] == pytest.approx(8 * (7.6 + 2048 / 23))
    assert second.by_engine == {"VectorE": pytest.approx(2 * 2048 / 0.96)}
    assert second.executed == 2


def test_memory_use_is_the_highest_byte():
    b = Builder()
    b.add(control.Halt, SP)
    b.storages = [storage("a", "sbuf", 0, 4096), storage("b", "sbuf", 65536, 1024)]
    sbuf_use, psum_use = profiled(b.program()).memories
    assert (sbuf_use.peak_bytes_per_partition, sbuf_use.bytes_per_partition) == (66560, 224 * 1024)
    assert psum_use.peak_bytes_per_partition == 0


def test_what_is_not_validated_is_said():
    assert not profiled(multiplications(2)).provenance
    notes = " ".join(profiled(multiplications(2, target="trn3")).provenance)
    assert "measured on trn2" in notes and "trn3" in notes
    two = [Builder(), Builder()]
    for b in two:
        b.add(elementwise.TensorTensor, POOL, sbuf(64), sbuf(64), sbuf(64), ALU["add"])
    notes = " ".join(profiled(program(two)).provenance)
    assert "Several cores" in notes and "TensorTensor on GpSimdE" in notes
    b = Builder()
    b.add(ranks.RankExchange, POOL, hbm(4, 64, 64), hbm(2, 64, 64), (0, 1, 1, 0), 2, False)
    assert "RankExchange on GpSimdE: COLLECTIVES" in " ".join(profiled(b.program()).provenance)


def test_dictionary_is_json_and_text_is_narrow():
    report = profiled(matmul_hoisted_loads(1, 2, 8))
    data = json.loads(json.dumps(report.to_dict()))
    assert data["bound"] == report.bound
    assert data["device_ns"] == report.total_ns + report.overhead_ns
    assert data["engines"][0]["name"] == "TensorE"
    text = report.text(lines=2)
    assert all(len(line) <= 100 for line in text.splitlines())
    assert "kernel on trn2" in text and report.bound in text and "more lines" in text


def test_empty_program():
    report = profiled(Builder().program())
    assert report.total_ns == 0 and report.bound == "nothing"
    assert report.text()


# Trace files.


@pytest.fixture
def small():
    b = Builder()
    b.storages = [storage("tile", "sbuf", 0, 2048)]
    b.loop(SP, 3)
    b.load(sbuf(512), hbm(128, 512, 512), waits=[(1, 1)], updates=[(0, 1)], line=2)
    b.end(SP)
    b.add(control.Nop, DVE, updates=[(1, 2)])
    b.loop(DVE, 3)
    b.add(elementwise.TensorCopy, DVE, sbuf(512, offset=4096), sbuf(512), waits=[(0, 1)],
          updates=[(1, 1)], line=3)  # fmt: skip
    b.end(DVE)
    return b.program()


def events_of(path):
    return json.loads(path.read_text())["traceEvents"]


def test_every_span_is_a_slice(tmp_path, small):
    timeline = simulate(small)
    path = tmp_path / "trace.json"
    written = write_perfetto(path, small, timeline)
    events = events_of(path)
    slices = [e for e in events if e["ph"] == "X"]
    spans = [s for track in timeline.cores[0].tracks for s in track.spans]
    assert written.slices == len(slices) == len(spans)
    assert sorted((round(1e3 * e["ts"]), round(1e3 * e["dur"])) for e in slices) == sorted(
        (round(s[0]), round(s[1]) - round(s[0])) for s in spans
    )
    names = {e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert names == {"vector", "vector sequencer", "sync sequencer", "queue loads"}
    assert written.tracks == len(names)
    assert [p.name for p in tmp_path.iterdir()] == ["trace.json"]


def test_slices_say_what_they_are(tmp_path, small):
    path = tmp_path / "trace.json"
    write_perfetto(path, small, simulate(small))
    copies = [e for e in events_of(path) if e["name"] == "TensorCopy"]
    assert [e["args"]["iteration"] for e in copies] == [0, 1, 2]
    arguments = copies[0]["args"]
    assert arguments["source"] == "kernel.py:4"
    assert arguments["src"] == "tile[128, 512] float32 in sbuf"
    assert (arguments["waits"], arguments["updates"]) == ("S[0] 1", "S[1] 1")
    load = next(e for e in events_of(path) if e.get("cat") == "dma")
    assert load["args"]["src"] == "a[128, 512] float32"


def test_tracks_are_well_formed(tmp_path):
    built = matmul_loads_inside(2, 16)
    path = tmp_path / "trace.json"
    write_perfetto(path, built, simulate(built))
    tracks = {}
    for event in events_of(path):
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["ts"] >= 0
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in tracks.values():
        for a, b in pairwise(events):
            assert round(1e3 * b["ts"]) >= round(1e3 * a["ts"]) + round(1e3 * a["dur"])


def test_bandwidth_counter_adds_up(tmp_path):
    built = matmul_loads_inside(2, 16)
    timeline = simulate(built)
    path = tmp_path / "trace.json"
    write_perfetto(path, built, timeline)
    points = [(e["ts"] * 1e3, e["args"]["GB/s"]) for e in events_of(path) if e["ph"] == "C"]
    area = sum(rate * (b[0] - a) for (a, rate), b in pairwise(points))
    assert area == pytest.approx(sum(timeline.cores[0].bytes.values()), rel=0.01)
    assert max(rate for _, rate in points) < 1.05 * 368


def test_zipped(tmp_path, small):
    path = tmp_path / "trace.json.gz"
    write_perfetto(path, small, simulate(small))
    assert json.loads(gzip.decompress(path.read_bytes()))["displayTimeUnit"] == "ns"


def test_nothing_half_written(tmp_path, small):
    timeline = simulate(small)
    with pytest.raises(NeuronError) as error:
        write_perfetto(tmp_path / "absent" / "trace.json", small, timeline)
    assert error.value.code == "not-writable"
    (tmp_path / "taken").mkdir()
    with pytest.raises(NeuronError):
        write_perfetto(tmp_path / "taken", small, timeline)
    with pytest.raises(NeuronError) as error:
        write_perfetto(tmp_path / "t.json", small, simulate(small, keep_spans=False))
    assert error.value.code == "missing-argument"
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]


def test_streams_in_columns_are_reported_as_those_in_lists():
    """A report asks templates of a stream in columns, and each instruction of another."""
    reports = []
    for held in (Stream, list):
        built = matmul_hoisted_loads(3, 2, 16)
        core = built.cores[0]
        for engine, stream in core.streams.items():
            columns = in_columns(list(stream), encoded=False)
            core.streams[engine] = Stream(columns) if held is Stream else list(stream)
        reports.append(profiled(built))
        if held is Stream:
            assert all(stream.columns is not None for stream in core.streams.values())
    one, other = reports
    assert one.waits and one.path_lines and one.path
    assert one == other
    assert one.text() == other.text()


def test_the_path_in_columns_is_its_tables():
    built = matmul_loads_inside(4, 16, DgeMode.none)
    timeline = simulate(built)
    report = profile(built, timeline)
    spent = timeline.critical.spent
    by_cause = {}
    for (_, cause), ns in spent.items():
        by_cause[cause.value] = by_cause.get(cause.value, 0.0) + ns
    for cause, ns in by_cause.items():
        found = sum(one.ns for one in report.path if one.cause == cause)
        assert found == pytest.approx(ns)
    held = sum(stall.ns for stall in timeline.critical.stalls.values())
    assert sum(one.ns for one in report.waits) == pytest.approx(held)
    times = sum(stall.count for stall in timeline.critical.stalls.values())
    assert sum(one.count for one in report.waits) == times
    assert sum(spent.values()) == pytest.approx(timeline.total_ns)
