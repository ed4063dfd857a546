"""The event model against published figures of trn2, and against what must hold for any program.

Row names (DM001, KO001, ...) are those of the published calibration data.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_programs import (
    ACT,
    DVE,
    PE,
    POOL,
    SP,
    Builder,
    activate,
    hbm,
    matmul_hoisted_loads,
    matmul_loads_inside,
    multiply,
    program,
    psum,
    sbuf,
    spans,
)

from isa.access import AccessPattern
from isa.array_tiles import ARRAY_TILES, WHOLE_ARRAY, ArrayTile
from isa.enums import DgeMode, Memory
from isa.errors import NeuronError
from isa.machine import control, elementwise, tensor
from isa.target import TARGETS
from simulator.timing import lower_bounds, simulate

# Published kernels: fp32 matmul 4096 x 8192 x 8192 on trn2 (32 x 16 output tiles, K of 64 tiles),
# simulated at 1/16 of its output tiles. (total, DMA active, TensorE active) in ms.


@pytest.mark.parametrize("mode", [DgeMode.hwdge, DgeMode.none])
@pytest.mark.parametrize(
    ("make", "published"),
    [
        (lambda mode: matmul_loads_inside(32, 64, mode), (39.89, 39.87, 34.82)),  # KO007 3 1
        (lambda mode: matmul_hoisted_loads(2, 16, 64, mode), (28.20, 28.12, 28.16)),  # KO014 10 8
    ],
)
def test_published_matmuls(make, published, mode):
    timeline = simulate(make(mode), keep_spans=False)
    times = (timeline.total_ns, timeline.dma_active_ns, timeline.active_ns(PE))
    for measured, predicted in zip(published, times):
        assert predicted * 16e-6 == pytest.approx(measured, rel=0.10)


# Published and measured laws of single instructions and transfers, trn2.


@pytest.mark.parametrize(
    ("dtype", "completion", "passes"), [("bfloat16", 203.0, 1), ("float32", 381.3, 4)]
)
def test_isolated_matmul_completion(dtype, completion, passes):
    """Load, cold multiplication (at half rate) and drain: 203 + 2 N / 2.4 ns; fp32 381 + ..."""
    b = Builder()
    multiply(b, 512, dtype)
    measured = completion + 2 * passes * 512 / 2.4
    assert simulate(b.program()).total_ns == pytest.approx(measured, rel=0.03)


def test_matmul_interval_when_warm():
    """VG020: 860 ns between fp32 matmuls. AG018: 2048 bf16 matmuls reach 77.2 TFLOP/s."""
    b = Builder()
    for _ in range(40):
        multiply(b, 512, "float32")
    starts = [start for start, *_ in spans(simulate(b.program()), "tensor")]
    assert starts[-1] - starts[-2] == pytest.approx(860, rel=0.02)
    b = Builder()
    b.loop(PE, 2048)
    multiply(b)
    b.end(PE)
    timeline = simulate(b.program())
    assert timeline.cores[0].flops == 2048 * 2 * 128 * 128 * 512
    assert timeline.cores[0].flops / timeline.total_ns / 1e3 == pytest.approx(77.2, rel=0.03)


# What the machine does while it computes.


def test_tile_loads_hide_behind_the_multiplication():
    b = Builder()
    for _ in range(200):
        multiply(b)
    loads_hidden = simulate(b.program()).total_ns
    b = Builder()
    for _ in range(200):
        multiply(b, load=False)
    assert loads_hidden == pytest.approx(simulate(b.program()).total_ns, rel=0.001)


def test_load_bound_when_the_moving_tile_is_short():
    b = Builder()
    for _ in range(100):
        multiply(b, 8, "float32")
    starts = [start for start, *_ in spans(simulate(b.program()), "tensor")]
    assert starts[-1] - starts[-2] == pytest.approx(3.15 * 128 / 2.4, rel=1e-6)


def test_throttling_of_the_tensor_engine():
    """Half rate for a window of 3 us, full rate after it, and again half rate after a pause."""

    def starts(target):
        b = Builder(target)
        for index in range(60):
            multiply(b)
            if index == 29:
                b.add(control.Nop, PE, waits=[(0, 1)])
        activate(b, sbuf(30000), sbuf(30000), updates=[(0, 1)])
        timeline = simulate(b.program())
        return [start for start, *_ in spans(timeline, "tensor")], timeline

    times, timeline = starts("trn2")
    gaps = [b - a for a, b in pairwise(times)]
    full = 521 / 2.4  # with the 9 cycles between two products
    assert gaps[0] == pytest.approx(2 * full)
    assert gaps[10] == pytest.approx(full) and gaps[28] == pytest.approx(full)
    assert gaps[30] == pytest.approx(2 * full) and gaps[45] == pytest.approx(full)
    assert timeline.cores[0].throttled == pytest.approx(2 * 3000 / 2, rel=0.2)
    times, timeline = starts("trn1")
    assert timeline.cores[0].throttled == 0
    assert times[1] - times[0] == pytest.approx((512 + 128 / 4) / 2.8)  # the load is not hidden


def test_activation_tables_load_when_the_function_changes():
    def loads(*functions):
        b = Builder()
        for function in functions:
            activate(b, sbuf(512), sbuf(512, offset=8192), function)
        return simulate(b.program()).cores[0]

    assert loads("exp", "exp", "exp").table_loads == 1
    core = loads("exp", "sigmoid", "exp")
    assert core.table_loads == 3
    assert core.table_load_ns == 3 * TARGETS["trn2"].activation_table_load_ns.value


def test_table_load_runs_ahead_of_the_wait():
    b = Builder()
    activate(b, sbuf(8), sbuf(8, offset=8192), waits=[(0, 1)])
    b.add(elementwise.TensorCopy, DVE, sbuf(8192), sbuf(8192), updates=[(0, 1)])
    (_, loaded, *_), (start, *_) = spans(simulate(b.program()), "scalar")
    assert loaded == pytest.approx(1283) and start > 4000


def test_hardware_descriptors_hide_behind_scalar_compute():
    """nki-dge.rst: triggered from the scalar engine, they overlap with earlier compute."""

    def run(with_transfers):
        b = Builder(queues=(("loads", ACT),))
        for index in range(20):
            b.add(elementwise.TensorCopy, ACT, sbuf(2048), sbuf(2048, offset=16384))
            if with_transfers:
                b.load(sbuf(64, offset=32768 + index), hbm(128, 64, 64), engine=ACT)
        return simulate(b.program()).cores[0].engines[ACT].busy, simulate(b.program()).total_ns

    busy, total = run(True)
    assert total < busy + 3000 and busy == run(False)[0]


# DMA engines and queues.


def test_queue_completes_in_order_and_drain_waits_for_it():
    b = Builder(queues=(("loads", SP),))
    b.load(sbuf(16384), hbm(128, 16384, 16384))
    b.load(sbuf(16), hbm(128, 16, 16), updates=[(0, 1)])
    b.add(control.DrainQueue, SP, 0, updates=[(1, 1)])
    b.add(control.Nop, PE, waits=[(0, 1)])
    b.add(control.Nop, DVE, waits=[(1, 1)])
    timeline = simulate(b.program())
    large = spans(timeline, "loads")[0][1]
    assert timeline.cores[0].engines[PE].finished > large
    assert timeline.cores[0].engines[DVE].finished > large


# Control flow, with and without a trace.


def test_deadlock_names_who_waits():
    b = Builder()
    b.add(control.Nop, SP, waits=[(0, 1)], updates=[(1, 1)])
    b.add(control.Nop, PE, waits=[(1, 2)], updates=[(0, 1)], line=4)
    with pytest.raises(NeuronError) as error:
        simulate(b.program())
    assert error.value.code == "deadlock"
    assert {note.split(":")[0] for note in error.value.notes} == {"core 0 sync", "core 0 tensor"}


def test_cores_meet_at_a_barrier():
    builders = []
    for length in (64, 20000):
        b = Builder()
        activate(b, sbuf(length), sbuf(length), "exp", updates=[(0, 1)])
        data = AccessPattern(Memory.shared_hbm, "float32", 0, ((1, 4),), tensor=0)
        b.add(control.CoreBarrier, POOL, data, (0, 1), waits=[(0, 1)])
        b.add(elementwise.Memset, POOL, sbuf(64), 0)
        builders.append(b)
    timeline = simulate(program(builders))
    starts = [spans(timeline, "gpsimd", core)[0][0] for core in (0, 1)]
    slow = timeline.cores[1].engines[ACT].finished
    assert starts[0] == starts[1] == pytest.approx(slow + 2000 + 50, rel=0.001)
    lone = program([builders[0]])
    with pytest.raises(NeuronError, match="wait"):
        simulate(lone)


# Properties of every program.


@st.composite
def pipelines(draw):
    """A chain load -> compute on some engines -> store over a loop, with buffers between."""
    b = Builder(draw(st.sampled_from(["trn1", "trn2", "trn3"])))
    trips = draw(st.integers(0, 12))
    columns = draw(st.sampled_from([1, 7, 64, 512, 2048]))
    partitions = draw(st.sampled_from([1, 32, 128]))
    mode = DgeMode.none if b.target == "trn1" else draw(st.sampled_from(list(DgeMode)[2:]))
    engines = draw(st.lists(st.sampled_from([DVE, ACT, PE]), unique=True, max_size=3))
    tile = sbuf(columns, partitions=partitions)
    part = draw(st.sampled_from(ARRAY_TILES))
    stages = [SP, *engines, POOL]
    for link, consumer in enumerate(stages[1:]):
        depth = draw(st.integers(1, 3))
        b.add(control.Nop, consumer, updates=[(2 * link + 1, depth)])
    for stage, engine in enumerate(stages):
        b.loop(engine, trips)
        waits, updates = [], []
        if stage:
            waits.append((2 * stage - 2, 1))
            updates.append((2 * stage - 1, 1))
        if stage < len(stages) - 1:
            waits.append((2 * stage + 1, 1))
            updates.append((2 * stage, 1))
        options = {"waits": waits, "updates": updates}
        if engine is SP:
            b.load(tile, hbm(partitions, columns, columns), mode=mode, **options)
        elif engine is POOL:
            b.load(
                hbm(partitions, columns, columns), tile, mode=DgeMode.none, engine=POOL, **options
            )
        elif engine is PE:
            moving = sbuf(min(columns, 512), partitions=partitions)
            dst = psum(min(columns, 512))
            b.add(tensor.MultiplyMoving, PE, dst, moving, True, part, **options)
        elif engine is ACT:
            activate(b, tile, tile, draw(st.sampled_from(["exp", "square"])), **options)
        else:
            b.add(elementwise.TensorCopy, DVE, tile, tile, **options)
        b.end(engine)
    return b.program()


@settings(max_examples=40, deadline=None)
@given(pipelines())
def test_properties_of_any_timeline(built):
    timeline = simulate(built)
    bounds = lower_bounds(built)
    for name, bound in bounds.items():
        assert timeline.total_ns >= bound * (1 - 1e-9), name
    assert simulate(built).total_ns == timeline.total_ns
    for core in timeline.cores:
        assert core.dma_active <= timeline.total_ns + 1e-6
        assert core.dma_work <= 16 * core.dma_active + 1e-6
        for time in core.engines.values():
            assert time.busy <= time.active + 1e-6
            assert time.active <= time.finished + 1e-6 <= timeline.total_ns + 2e-6
        for track in core.tracks:
            ends = 0.0
            for start, end, *_ in track.spans:
                assert ends - 1e-6 <= start <= end
                ends = end


def products(*parts, columns=512):
    """A product in each of these parts of the array, each with a tile of its own."""
    b = Builder()
    for part in parts:
        b.add(tensor.LoadStationary, PE, sbuf(32, "bfloat16"), part)
        b.add(tensor.MultiplyMoving, PE, psum(columns), sbuf(columns, "bfloat16"), True, part)
    return b.program()


QUARTERS = [ArrayTile(0, column, 128, 32) for column in range(0, 128, 32)]


def test_products_in_parts_of_the_array_run_beside_each_other():
    """SDK nki.isa.nc_matmul, "Tiling mode": products in other parts run in parallel. Each is issued
    64 cycles after the one before; 512 columns take 512 cycles and more."""
    alone = simulate(products(QUARTERS[0])).total_ns
    four = simulate(products(*QUARTERS)).total_ns
    assert four - alone == pytest.approx(3 * 64 / 2.4)
    rows = [ArrayTile(row, 0, 32, 128) for row in range(0, 128, 32)]
    assert simulate(products(*rows)).total_ns == four


def test_products_in_one_part_or_in_parts_that_meet_follow_each_other():
    alone = simulate(products(QUARTERS[0])).total_ns
    follows = simulate(products(WHOLE_ARRAY, WHOLE_ARRAY)).total_ns
    assert follows - alone > 512 / 2.4
    for pair in (
        (QUARTERS[0], QUARTERS[0]),
        (WHOLE_ARRAY, QUARTERS[1]),
        (QUARTERS[1], WHOLE_ARRAY),
        (ArrayTile(0, 0, 64, 128), QUARTERS[3]),
    ):
        assert simulate(products(*pair)).total_ns == follows


def test_an_engine_is_not_busy_twice_while_products_run_beside_each_other():
    timeline = simulate(products(*QUARTERS, *QUARTERS))
    (core,) = timeline.cores
    busy = core.engines[PE].busy
    assert 2 * 512 / 2.4 < busy <= core.engines[PE].active
    assert {track.name for track in core.tracks if track.spans} >= {
        f"tensor {part.name}" for part in QUARTERS
    }


def test_spans_may_be_left_out():
    built = matmul_loads_inside(2, 4)
    without = simulate(built, keep_spans=False)
    assert without.total_ns == simulate(built).total_ns
    assert all(track.spans is None for track in without.cores[0].tracks)


def test_fixed_overhead_is_apart_from_the_total():
    timeline = simulate(Builder().program())
    assert timeline.total_ns == 0
    assert timeline.overhead_ns == TARGETS["trn2"].kernel_overhead_ns.value
