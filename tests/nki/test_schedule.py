"""Scheduling: what may overtake what, and that a new order pays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from isa.target import TARGETS
from nki.ir.nodes import operations
from nki.passes import lower
from nki.passes.analysis import dependences, overlaps
from nki.passes.analysis.steps import ENGINE_INDEX
from nki.passes.order import pipeline, schedule
from nki.passes.order.list_schedule import NO_TENSORS, list_schedule
from nki.trace.tracer import trace
from simulator.timing import simulate

TRN2 = TARGETS["trn2"]
RNG = np.random.default_rng(0)
A = RNG.standard_normal((512, 1024), dtype=np.float32)


def tile(columns=1024):
    return nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)


def program(kernel, *inputs):
    return nki.compile(nki.jit(kernel), *inputs, target="trn2").program


def lines(built, engine, kernel):
    """The lines of a kernel, from its first, whose instructions an engine runs, in its order."""
    first = kernel.__code__.co_firstlineno
    found = [built.locations[i.location].line - first for i in built.cores[0].streams[engine]]
    return [line for line in found if line >= 0]


def two_tiles(a):
    out = nl.ndarray((256, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
    x, y = tile(), tile()
    nisa.dma_copy(dst=x, src=a[0:128, :])
    nisa.dma_copy(dst=y, src=a[128:256, :])
    nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
    nisa.activation(dst=x, op=nl.exp, data=x)
    nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
    nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0)
    nisa.activation(dst=y, op=nl.exp, data=y)
    nisa.tensor_scalar(dst=y, data=y, op0=nl.multiply, operand0=0.5)
    nisa.dma_copy(dst=out[0:128, :], src=x)
    nisa.dma_copy(dst=out[128:256, :], src=y)
    return out


def test_an_engine_runs_what_need_not_wait():
    assert lines(program(two_tiles, A), Engine.vector, two_tiles) == [5, 8, 7, 10]


def test_the_new_order_takes_less_time(monkeypatch):
    fast = simulate(program(two_tiles, A)).total_ns
    stages = lower.Expand(), lower.Schedule(gain=0.0), lower.Synchronise(), lower.Emit()
    monkeypatch.setattr(lower, "LOWERING", stages)  # nothing is that much faster
    monkeypatch.setattr(pipeline, "GAIN", 0.0)
    kept = program(two_tiles, A)
    assert lines(kept, Engine.vector, two_tiles) == [5, 7, 8, 10]
    assert fast < simulate(kept).total_ns


def test_no_reorder_keeps_the_authors_order():
    def kernel(a):
        with nl.no_reorder():
            return two_tiles(a)

    built = program(kernel, A)
    assert lines(built, Engine.vector, two_tiles) == [5, 7, 8, 10]


def test_depends_on_is_kept():
    def kernel(a):
        out = nl.ndarray((256, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y = tile(), tile()
        nisa.dma_copy(dst=x, src=a[0:128, :])
        nisa.dma_copy(dst=y, src=a[128:256, :])
        nisa.activation(dst=x, op=nl.exp, data=x)
        last = nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
        nisa.tensor_scalar(dst=y, data=y, op0=nl.add, operand0=1.0).depends_on(last)
        nisa.dma_copy(dst=out[0:128, :], src=x)
        nisa.dma_copy(dst=out[128:256, :], src=y)
        return out

    assert lines(program(kernel, A), Engine.vector, kernel) == [6, 7]


@pytest.mark.parametrize("carried", [False, True])
def test_accumulate_registers_that_are_carried_keep_the_order(carried):
    first = nisa.reduce_cmd.reset if carried else nisa.reduce_cmd.reset_reduce
    later = nisa.reduce_cmd.reduce if carried else nisa.reduce_cmd.reset_reduce

    def kernel(a):
        out = nl.ndarray((128, 2), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y, one, other = tile(), tile(), tile(1), tile(1)
        nisa.dma_copy(dst=x, src=a[0:128, :])
        nisa.dma_copy(dst=y, src=a[128:256, :])
        for _ in range(4):
            nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
        nisa.activation(dst=x, op=nl.copy, data=x, reduce_op=nl.add, reduce_cmd=first)
        options = {"op": nl.square, "reduce_op": nl.add, "reduce_cmd": later}
        nisa.activation(dst=x, data=x, reduce_res=one, **options)
        nisa.activation(dst=y, data=y, reduce_res=other, **options)
        nisa.dma_copy(dst=out[:, 0:1], src=one)
        nisa.dma_copy(dst=out[:, 1:2], src=other)
        return out

    jitted = nki.jit(kernel, platform_target="trn2")
    results = [nki.simulate(jitted, mode=m)(A) for m in ("device", "reference", "eager")]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    order = lines(program(kernel, A), Engine.scalar, kernel)
    assert (order == sorted(order)) is carried


def test_nothing_crosses_a_register_instruction():
    def kernel(a, counts):
        out = nl.ndarray((128, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y, n = tile(), tile(), nl.load(counts)
        nisa.dma_copy(dst=x, src=a[0:128, :])
        nisa.activation(dst=x, op=nl.exp, data=x)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.multiply, operand0=0.5)
        row = nisa.register_alloc()
        nisa.register_load(row, n)
        nisa.memset(dst=y, value=0.0, engine=nisa.engine.vector)
        nisa.dma_copy(dst=y[0:1, :], src=a[nl.ds(row, 1), :])
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)
        nisa.dma_copy(dst=out, src=x)
        return out

    counts = np.array([[7]], np.int32)
    order = lines(program(kernel, A, counts), Engine.vector, kernel)
    assert order == sorted(order)


durations = st.floats(1.0, 500.0)
graphs = st.lists(
    st.tuples(st.integers(0, 4), durations, durations, st.sets(st.integers(0, 30), max_size=4)),
    min_size=1,
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(graphs, st.integers(1, 8))
def test_orders_respect_dependences_and_the_window(rows, window):
    timings = [
        [(engine, interval, interval + more, None, None)] for engine, interval, more, _ in rows
    ]
    before = [
        {number - 1 - back for back in distances if back < number}
        for number, (*_, distances) in enumerate(rows)
    ]
    pairs = [(late, early) for late, earlier in enumerate(before) for early in earlier]
    late, early = np.array(pairs, np.int64).reshape(-1, 2).T
    before_each, after_each = dependences.neighbours(late, early, len(rows))
    count = len(rows)

    def scheduled(gain, work):
        order = np.arange(count)
        columns = *schedule.timing_columns(timings), *before_each, *after_each
        time = list_schedule(
            *(work, np.array([0]), np.array([count]), np.arange(count), *columns),
            *(*schedule.waiting_ns(TRN2), gain, window, *NO_TENSORS, order),
        )
        return order.tolist(), time

    _, author = scheduled(0.0, count)
    order, time = scheduled(1e9, count)
    if count < 2:
        return
    if count > 55:
        assert scheduled(1e9, list_schedule.worth) == (order, time)
    place = {number: at for at, number in enumerate(order)}
    assert sorted(order) == list(range(len(rows)))
    for number, earlier in enumerate(before):
        assert all(place[other] < place[number] for other in earlier)
        overtaken = sum(place[other] > place[number] for other in range(number))
        assert overtaken < window
    busy = [sum(row[1] for row in rows if row[0] == engine) for engine in range(5)]
    assert min(author, time) >= max(busy)


def test_columns_that_are_written_one_by_one_do_not_slow_the_pass_down():
    """What an access is compared with does not grow with the accesses before it."""
    compared = []
    overlap, listed = overlaps.may_overlap, overlaps.counted
    for count in (100, 400):

        def kernel(a, count=count):
            out = nl.ndarray((128, count), dtype=a.dtype, buffer=nl.shared_hbm)
            x, sums = tile(), tile(count)
            nisa.dma_copy(dst=x, src=a[0:128, :])
            for i in range(count):
                nisa.tensor_reduce(dst=sums[:, i : i + 1], op=nl.add, data=x, axis=1)
            nisa.dma_copy(dst=out, src=sums)
            return out

        calls = 0

        def counted(*args, **options):
            nonlocal calls
            calls += 1
            return overlap(*args, **options)

        def listing(many):
            nonlocal calls
            calls += int(many.sum())
            return listed(many)

        overlaps.may_overlap, overlaps.counted = counted, listing
        try:
            program(kernel, A)
        finally:
            overlaps.may_overlap, overlaps.counted = overlap, listed
        compared.append(calls / count)
    assert compared[1] < 2 * compared[0] + 1


def test_orders_that_load_activation_tables_more_often_are_not_taken():
    def kernel(a):
        out = nl.ndarray((512, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
        tiles = [tile() for _ in range(4)]
        for i, x in enumerate(tiles):
            nisa.dma_copy(dst=x, src=a[i * 128 : (i + 1) * 128, :])
        for op in (nl.exp, nl.gelu):
            for x in tiles:
                nisa.activation(dst=x, op=op, data=x)
        for i, x in enumerate(tiles):
            nisa.dma_copy(dst=out[i * 128 : (i + 1) * 128, :], src=x)
        return out

    scheduled = simulate(program(kernel, A))
    kept, schedule.GAIN = schedule.GAIN, 0.0
    try:
        author = simulate(program(kernel, A))
    finally:
        schedule.GAIN = kept
    assert scheduled.total_ns <= author.total_ns


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_prints_come_in_the_authors_order(mode, capsys):
    def kernel(a):
        out = nl.ndarray((128, 1024), dtype=a.dtype, buffer=nl.shared_hbm)
        x, y = tile(), tile(1)
        nisa.memset(dst=y, value=0.0)
        nisa.dma_copy(dst=x, src=a[0:128, :])
        nisa.activation(dst=x, op=nl.exp, data=x)
        nl.device_print("first", x[0:1, 0:1])
        nl.device_print("second", y[0:1, :])
        nisa.dma_copy(dst=out, src=x)
        return out

    nki.simulate(nki.jit(kernel, platform_target="trn2"), mode=mode)(A)
    said = capsys.readouterr().out
    assert 0 <= said.index("first") < said.index("second")


@pytest.mark.parametrize("carried", ["state", "edge"])
def test_a_stretch_without_what_another_stretch_carries(carried):
    """Engine state and edges by name that only the loop has, and dependences that only tensors
    make ahead of it."""

    @nki.jit(platform_target="trn2")
    def kernel(a):
        tile = nl.load(a)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        for _ in nl.dynamic_range(2):
            bits = nl.ndarray(a.shape, dtype=nl.uint32, buffer=nl.sbuf)
            if carried == "state":
                nisa.rng(dst=bits)
                nisa.rng(dst=bits)
            else:
                first = nisa.memset(dst=bits, value=1)
                nisa.tensor_scalar(tile, tile, nl.add, 1.0).depends_on(first)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        return out

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(kernel(a), 2 * (a + 1) + 2 * (carried == "edge"))


@nki.jit
def small_tiles_in_the_place_of_a_large_one(a):
    out = nl.ndarray((128, 9600), dtype=a.dtype, buffer=nl.shared_hbm)
    large = tile(46_000)
    nisa.dma_copy(dst=large[:, nl.ds(0, 4800)], src=a)
    for source in (large, out):
        first = 0 if source is large else 4800
        for column in range(0, 4800, 16):
            small = tile(16)
            nisa.dma_copy(dst=small, src=source[:, nl.ds(column, 16)])
            nisa.dma_copy(dst=out[:, nl.ds(first + column, 16)], src=small)
    return out


def test_what_takes_the_bytes_of_a_tensor_does_not_follow_every_read_of_it(monkeypatch):
    """300 tiles would come after 300 reads each: 90,000 pairs."""
    found = []
    run = lower.Schedule.run

    def spied(self, steps):
        result = run(self, steps)
        found.extend(core.dependences.steps.values.size for core in result.cores)
        return result

    monkeypatch.setattr(lower.Schedule, "run", spied)
    a = RNG.standard_normal((128, 4800), dtype=np.float32)
    result = small_tiles_in_the_place_of_a_large_one(a)
    assert 1200 < sum(found) < 6000
    np.testing.assert_array_equal(result, np.concatenate([a, a], axis=1))


def products_by_many_tiles(stationary, moving):
    """Eight products of as many columns as rows, each by a tile of its own."""
    out = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles, x = tile(), tile(128)
    nisa.dma_copy(dst=tiles, src=stationary)
    nisa.dma_copy(dst=x, src=moving)
    total = nl.zeros((128, 128), dtype=nl.float32, buffer=nl.psum)
    for number in range(8):
        nisa.nc_matmul(dst=total, stationary=tiles[:, 128 * number : 128 * (number + 1)], moving=x)
    result = tile(128)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_tiles_that_are_loaded_beside_products_take_no_time_of_their_own(target):
    """Products are estimated to keep the tensor engine busy as long as the event model has it."""
    arguments = {"stationary": A[:128], "moving": A[:128, :128]}
    built = nki.compile(nki.jit(products_by_many_tiles), *arguments.values(), target=target)
    (core,) = simulate(built.program).cores
    row = TARGETS[target]
    (body,) = trace(products_by_many_tiles, arguments, row).bodies
    products = [op for op in operations(body) if op.row.name == "nc_matmul"]
    assert len(products) == 8
    busy = schedule.busy_ns(map(schedule.costs_of(row).of_operation, products))
    estimated = busy[ENGINE_INDEX[Engine.tensor]]
    at_full_rate = core.engines[Engine.tensor].busy - core.throttled
    np.testing.assert_allclose(estimated, at_full_rate, rtol=0.1)
