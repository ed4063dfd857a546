"""The event model against published figures of trn2, and against what must hold for any program.

Row names (DM001, KO001, ...) are those of the published calibration data.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing_programs import (
    Builder,
    hbm,
    matmul_hoisted_loads,
    matmul_loads_inside,
    program,
    psum,
    sbuf,
)

from isa.access import AccessPattern
from isa.alu import ACTIVATIONS, ALU
from isa.enums import (
    Condition,
    DgeMode,
    Engine,
    Memory,
    OobMode,
    ReduceCommand,
    RegisterOperation,
)
from isa.errors import NeuronError
from isa.machine import control, dma, elementwise, gpsimd, scalar, tensor, vector
from isa.program import RegisterReference
from isa.target import TARGETS
from simulator.timing import lower_bounds, simulate

PE, DVE, ACT, POOL, SP = (
    Engine.tensor,
    Engine.vector,
    Engine.scalar,
    Engine.gpsimd,
    Engine.sync,
)


def spans(timeline, name, core=0):
    track = next(track for track in timeline.cores[core].tracks if track.name == name)
    return list(track.spans)


def activate(b, dst, src, function="exp", **options):
    return b.add(
        scalar.Activate, ACT, dst, src, ACTIVATIONS[function], None, 1.0, ReduceCommand.idle,
        **options,
    )  # fmt: skip


def multiply(b, n=512, dtype="bfloat16", load=True):
    if load:
        b.add(tensor.LoadStationary, PE, sbuf(128, dtype), 0, 0)
    b.add(tensor.MultiplyMoving, PE, psum(n), sbuf(n, dtype), True, 0, 0)


class Trace:
    """A control trace by hand: {(core, engine): events}."""

    def __init__(self, events):
        self._events = events

    def events(self, core, engine):
        return self._events.get((core, engine), [])


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


def test_one_dma_engine_moves_8_kib_rows():
    """DM001: 4 rows of 8 KiB, all in the partitions of one engine, take it 1416 ns."""
    b = Builder()
    b.load(sbuf(4096, "bfloat16", partitions=4), hbm(4, 4096, 4096, "bfloat16"))
    ((start, end, *_),) = spans(simulate(b.program()), "loads")
    assert end - start == pytest.approx(1416, rel=0.07)


def test_time_from_trigger_to_first_byte():
    """DM004: 739 ns from a software-generated trigger to the first DMA activity."""
    b = Builder(queues=(("loads", POOL),))
    b.load(sbuf(128, "bfloat16"), hbm(128, 128, 128, "bfloat16"), mode=DgeMode.swdge, engine=POOL)
    timeline = simulate(b.program())
    ((_, issued, *_),) = spans(timeline, "gpsimd")
    ((first, *_),) = spans(timeline, "loads")
    assert first - issued == pytest.approx(739, rel=0.02)


# DM005 - DM015: throughput of transfers of 128 partitions against that of 32 KiB a partition.
CURVE = {
    32: 0.0132, 64: 0.0264, 128: 0.0504, 256: 0.1031, 1024: 0.4233, 4096: 0.9664, 8192: 0.9832
}  # fmt: skip


def test_dma_bandwidth_curve():
    def rate(size):
        b = Builder(queues=(("loads", POOL),))
        for _ in range(40):
            b.load(
                sbuf(size, "int8"), hbm(128, size, size, "int8"), mode=DgeMode.swdge, engine=POOL
            )
        timeline = simulate(b.program())
        found = spans(timeline, "loads")
        return 39 * 128 * size / (found[-1][1] - found[0][1])

    plateau = rate(32768)
    assert plateau == pytest.approx(368, rel=0.03)  # nki-dma-bandwidth-guide.rst
    for size, fraction in CURVE.items():
        assert rate(size) / plateau == pytest.approx(fraction, rel=0.07)


@pytest.mark.parametrize(("store", "fixed", "slope"), [(False, 1957, 1.3046), (True, 1692, 0.9628)])
def test_isolated_transfer_law(store, fixed, slope):
    """The measured law: a fixed time, and the bytes of the busiest engine at 23 B/ns."""
    for columns in (128, 512, 1024):
        b = Builder()
        b.add(control.Nop, SP, waits=[(0, 1)])
        chip, memory = sbuf(columns), hbm(128, columns, 8192)
        b.load(*((memory, chip) if store else (chip, memory)), updates=[(0, 1)], engine=POOL)
        measured = fixed + slope * 8 * columns * 4 / 23
        assert simulate(b.program()).total_ns == pytest.approx(measured, rel=0.20)


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


def test_dependent_chain_on_the_scalar_engine():
    """Performance guide, figure 16: 189 ns between dependent one-element instructions on trn1."""
    b = Builder("trn1")
    for _ in range(10):
        b.add(elementwise.TensorCopy, ACT, sbuf(1), sbuf(1))
    starts = [start for start, *_ in spans(simulate(b.program()), "scalar")]
    assert starts[-1] - starts[-2] == pytest.approx(189, rel=0.03)


def test_long_dependent_instructions_stream_into_each_other():
    """Mamba tutorial (MB003): dependent 2 N instructions leave the vector engine 98.7 % busy."""
    b = Builder("trn1")
    for _ in range(160):
        b.add(elementwise.TensorTensor, DVE, sbuf(512), sbuf(512), sbuf(512), ALU["multiply"])
    timeline = simulate(b.program())
    assert timeline.cores[0].engines[DVE].busy / timeline.total_ns > 0.98
    assert timeline.total_ns == pytest.approx(148_990, rel=0.03)


def test_what_needs_the_last_element_waits_for_completion():
    b = Builder()
    total = sbuf(1, offset=8192)
    b.add(vector.TensorReduce, DVE, total, sbuf(2048), ALU["add"], 1, False)
    b.add(elementwise.TensorScalar, DVE, sbuf(2048), sbuf(2048), ALU["multiply"], total, False,
          None, None, False)  # fmt: skip
    (_, free, *_), (start, *_) = spans(simulate(b.program()), "vector")
    assert start - free == pytest.approx(155, rel=0.05)


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


@pytest.mark.parametrize(("target", "excluded"), [("trn1", True), ("trn2", False)])
def test_vector_and_gpsimd_in_sbuf(target, excluded):
    """Gen2: one of them at a time. Later both, unless VectorE runs in a fast mode."""
    b = Builder(target)
    for index in range(20):
        b.add(elementwise.TensorTensor, DVE, sbuf(512), sbuf(512, offset=4096),
              sbuf(512, offset=8192), ALU["add"])  # fmt: skip
        b.add(gpsimd.Iota, POOL, sbuf(512, "int32", offset=16384 + index), ((1, 512),), 0, 1)
    timeline = simulate(b.program())
    overlap = _overlap(spans(timeline, "vector"), spans(timeline, "gpsimd"))
    assert (overlap == 0) == excluded


def test_fast_vector_modes_share_the_bus_with_gpsimd():
    b = Builder("trn2")
    for _ in range(20):
        b.add(elementwise.TensorCopy, DVE, sbuf(512, "bfloat16"), sbuf(512, "bfloat16"))
        b.add(gpsimd.Iota, POOL, sbuf(512, "int32", offset=16384), ((1, 512),), 0, 1)
    timeline = simulate(b.program())
    assert _overlap(spans(timeline, "vector"), spans(timeline, "gpsimd")) == 0


@pytest.mark.parametrize(("target", "bank", "excluded"), [
    ("trn1", 1, True), ("trn2", 0, True), ("trn2", 1, False)
])  # fmt: skip
def test_vector_and_scalar_in_psum(target, bank, excluded):
    """Gen2: one of them at a time. Later both, unless they meet in one bank."""
    b = Builder(target)
    for _ in range(20):
        b.add(elementwise.TensorCopy, DVE, sbuf(512), psum(512))
        b.add(elementwise.TensorCopy, ACT, sbuf(512, offset=8192), psum(512, offset=2048 * bank))
    timeline = simulate(b.program())
    assert (_overlap(spans(timeline, "vector"), spans(timeline, "scalar")) == 0) == excluded


def _overlap(a, b):
    return sum(max(0.0, min(s[1], t[1]) - max(s[0], t[0])) for s in a for t in b)


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


def test_transfers_use_the_engines_of_their_partitions():
    """Two transfers on different engines overlap; two on the same follow each other."""

    def span(second_start):
        b = Builder(queues=(("one", SP), ("two", ACT)))
        b.load(sbuf(8192, partitions=8), hbm(8, 8192, 8192))
        b.load(sbuf(8192, partitions=8, start=second_start), hbm(8, 8192, 8192), engine=ACT)
        tracks = simulate(b.program()).cores[0].tracks
        found = [span for track in tracks if track.queue >= 0 for span in track.spans]
        return max(end for _, end, *_ in found) - min(start for start, *_ in found)

    assert span(0) == pytest.approx(2 * span(8), rel=0.01)


def test_strided_hbm_rows_cost_a_descriptor_an_element():
    def active(stride):
        b = Builder()
        source = AccessPattern(
            Memory.shared_hbm, "float32", 0, ((512 * stride, 128), (stride, 512)), tensor=0
        )
        b.load(sbuf(512), source)
        return simulate(b.program()).cores[0]

    assert active(1).descriptors == 128
    assert active(2).descriptors == 128 * 512
    assert active(2).dma_work > 40 * active(1).dma_work


def test_casting_transfers_run_at_half_rate():
    def active(dtype):
        b = Builder()
        b.load(sbuf(8192, dtype), hbm(128, 8192, 8192))
        return simulate(b.program()).cores[0].dma_active

    assert active("int32") == pytest.approx(2 * active("float32"), rel=0.03)


@pytest.mark.parametrize(("on_chip", "fraction"), [(True, 0.5), (False, 0.9)])
def test_transposes_run_at_a_part_of_the_rate(on_chip, fraction):
    """ARCH3: of the DMA throughput they achieve up to 90 % from HBM, 50 % from SBUF."""

    def active(row):
        b = Builder()
        chip = sbuf(8192, "bfloat16", offset=64 << 10)
        source = chip if on_chip else hbm(128, 8192, 8192, "bfloat16")
        b.add(row, SP, sbuf(8192, "bfloat16"), source, 0, DgeMode.none, OobMode.error)
        return simulate(b.program()).cores[0].dma_active

    assert active(dma.DmaTranspose) * fraction == pytest.approx(active(dma.DmaCopy), rel=0.03)


def test_bytes_by_direction():
    b = Builder()
    b.load(sbuf(512), hbm(128, 512, 512))
    b.load(hbm(128, 512, 512), sbuf(512), engine=POOL)
    b.load(hbm(128, 512, 512), hbm(128, 512, 512))
    core = simulate(b.program()).cores[0]
    size = 128 * 512 * 4
    assert core.bytes == {"hbm->sbuf": size, "sbuf->hbm": size, "hbm->hbm": size}
    assert (core.hbm_read_bytes, core.hbm_write_bytes) == (2 * size, 2 * size)


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


def test_nested_loops_and_registers_without_a_trace():
    """A triangle: the inner bound is the outer loop's register, times two by a register add."""
    b = Builder()
    outer, inner, bound = (RegisterReference(n) for n in range(3))
    b.add(control.LoopBegin, DVE, outer, 0, 5, 1, 6)
    b.add(control.RegisterAlu, DVE, bound, RegisterOperation.multiply, outer, 2)
    b.add(control.LoopBegin, DVE, inner, 0, bound, 1, 5)
    b.add(elementwise.TensorCopy, DVE, sbuf(64), sbuf(64, offset=1024))
    b.add(control.LoopEnd, DVE, 2)
    b.add(control.LoopEnd, DVE, 0)
    b.add(control.Halt, DVE)
    timeline = simulate(b.program())
    assert timeline.cores[0].engines[DVE].executed[3] == sum(2 * i for i in range(5))
    assert [s[3] for s in spans(timeline, "vector")] == [j for i in range(5) for j in range(2 * i)]


def test_trace_gives_trip_counts_branches_and_rows():
    b = Builder(queues=(("gathers", POOL),))
    count, flag = RegisterReference(0), RegisterReference(1)
    b.add(control.RegisterLoad, POOL, count, hbm(1, 1, 1, "int32"))
    b.add(control.LoopBegin, POOL, RegisterReference(2), 0, count, 1, 6)
    b.add(control.Branch, POOL, Condition.eq, flag, 0, 5)
    gathered = AccessPattern(
        Memory.shared_hbm, "float32", 0, ((0, 128), (1, 512)), tensor=0,
        vector_offset=sbuf(1, "int32"), vector_stride=512, vector_bound=4096,
    )  # fmt: skip
    b.load(sbuf(512), gathered, mode=DgeMode.swdge, engine=POOL)
    b.add(elementwise.Memset, POOL, sbuf(64, offset=9000), 0)
    b.add(control.LoopEnd, POOL, 1)
    built = b.program()
    with pytest.raises(NeuronError) as error:
        simulate(built)
    assert error.value.code == "missing-argument"
    trace = Trace({(0, POOL): [3, 0, 128, 1, 0, 32]})
    timeline = simulate(built, trace)
    core = timeline.cores[0]
    assert list(core.engines[POOL].executed) == [1, 1, 3, 2, 2, 3]
    assert core.bytes == {"hbm->sbuf": (128 + 32) * 512 * 4}
    assert lower_bounds(built, trace)["dma"] == pytest.approx((128 + 32) * 2048 / 368)
    with pytest.raises(NeuronError) as error:
        simulate(built, Trace({(0, POOL): [3, 0]}))
    assert error.value.code == "input-mismatch"


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
            b.add(tensor.MultiplyMoving, PE, dst, moving, True, 0, 0, **options)
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


def test_spans_may_be_left_out():
    built = matmul_loads_inside(2, 4)
    without = simulate(built, keep_spans=False)
    assert without.total_ns == simulate(built).total_ns
    assert all(track.spans is None for track in without.cores[0].tracks)


def test_fixed_overhead_is_apart_from_the_total():
    timeline = simulate(Builder().program())
    assert timeline.total_ns == 0
    assert timeline.overhead_ns == TARGETS["trn2"].kernel_overhead_ns.value


def test_a_transfer_waits_for_what_its_engine_computes():
    b = Builder(queues=(("stores", ACT),))
    b.add(elementwise.TensorCopy, ACT, sbuf(512), sbuf(512, offset=8192))
    b.load(hbm(128, 512, 512), sbuf(512), engine=ACT)
    timeline = simulate(b.program())
    ((_, free, *_),) = spans(timeline, "scalar")
    ((issue, *_),) = spans(timeline, "scalar sequencer")
    assert issue == pytest.approx(free + 190, rel=0.01)
