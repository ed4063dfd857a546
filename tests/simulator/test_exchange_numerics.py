"""Tiles exchanged by the two cores of a logical NeuronCore, in all modes."""

import contextlib

import numpy as np
import pytest
from operation_checks import BF16, F32, assert_same, covers, load, normal, run, sbuf

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.timing import simulate

MODES = ("device", "reference", "eager")


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def swap(src, dst, pipe=0, **options):
    other = 1 - nl.program_id(0)
    nisa.sendrecv(
        src=src, dst=dst, send_to_rank=other, recv_from_rank=other, pipe_id=pipe, **options
    )


def share(a, dtype=None):
    """A result of two halves, of which each core writes its own."""
    out = nl.ndarray((2, *a.shape), dtype=dtype or a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out[nl.program_id(0)], src=a)
    return out


@covers("sendrecv")
@pytest.mark.parametrize("dtype", [F32, BF16, np.dtype(np.uint8)])
@pytest.mark.parametrize("engine", [nisa.dma_engine.dma, nisa.dma_engine.gpsimd_dma])
def test_tiles_change_places(engine, dtype):
    """Views of any partition and stride; the destination is next to what is sent."""

    @nki.jit
    def kernel(a):
        both = sbuf((20, 2, 6), a.dtype)
        nisa.dma_copy(dst=both[:, 0, :], src=a[nl.program_id(0)])
        swap(both[3:20, 0, 1:6], both[3:20, 1, 0:5], dma_engine=engine)
        nisa.dma_copy(dst=both[0:3, 1, :], src=both[0:3, 0, :])
        nisa.dma_copy(dst=both[3:20, 1, 5:6], src=both[3:20, 0, 0:1])
        return share(both[:, 1, :])

    a = (normal(301, (2, 20, 6)) * 50 + 100).astype(dtype)
    expected = a.copy()
    expected[:, 3:, 5] = a[:, 3:, 0]
    expected[:, 3:, :5] = a[::-1, 3:, 1:]
    assert_same(run("sendrecv", kernel[2], a), expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_tile_is_exchanged_in_place(mode):
    def kernel(a):
        tile = load(a[nl.program_id(0)])
        swap(tile, tile)
        return share(tile)

    a = normal(302, (2, 8, 4))
    assert_same(nki.simulate(nki.jit(kernel)[2], mode=mode)(a), a[::-1])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dynamic", [False, True])
def test_exchanges_pair_in_their_order(dynamic, mode):
    """A running sum that both cores pass to each other, in a loop; the cores compute unlike."""

    def kernel(a, count):
        core = nl.program_id(0)
        total, received = load(a[core]), sbuf((8, 4), nl.float32)
        stop = nisa.register_alloc()
        nisa.register_load(stop, load(count))
        for _ in nl.dynamic_range(stop) if dynamic else range(3):
            swap(total, received, pipe=2)
            if core == 0:
                nisa.tensor_scalar(received, received, op0=nl.multiply, operand0=2.0)
            nisa.tensor_tensor(dst=total, data1=total, data2=received, op=nl.add)
        return share(total)

    a = normal(303, (2, 8, 4))
    totals = [a[0], a[1]]
    for _ in range(3):
        totals = [totals[0] + 2 * totals[1], totals[1] + totals[0]]
    count = np.array([[3]], np.int32)
    assert_same(nki.simulate(nki.jit(kernel)[2], mode=mode)(a, count), np.stack(totals))


@pytest.mark.parametrize("mode", MODES)
def test_pipes_pair_separately(mode):
    """Barriers and exchanges of two pipes, in the same order on both cores."""

    def kernel(a):
        mine = load(a[nl.program_id(0)])
        first, second = sbuf(mine.shape, a.dtype), sbuf(mine.shape, a.dtype)
        swap(mine, first, pipe=0)
        swap(first, second, pipe=5)
        out = share(second)
        nisa.core_barrier(out, (0, 1))
        result = nl.ndarray(out.shape, dtype=out.dtype, buffer=nl.shared_hbm)
        other = 1 - nl.program_id(0)
        nisa.dma_copy(dst=result[other], src=out[other])
        return result

    a = normal(304, (2, 8, 4))
    assert_same(nki.simulate(nki.jit(kernel)[2], mode=mode)(a), a)


def refused(kernel, *arrays, mode="device"):
    with pytest.raises(nki.NeuronError) as error:
        nki.simulate(nki.jit(kernel)[2], mode=mode)(*arrays)
    assert "nisa.sendrecv" in error.value.location.text or "swap(" in error.value.location.text
    return error.value


@pytest.mark.parametrize("mode", MODES)
def test_a_partner_that_does_not_come(mode):
    def kernel(a):
        tile = load(a[nl.program_id(0)])
        if nl.program_id(0) == 1:
            swap(tile, tile)
        return share(tile)

    error = refused(kernel, normal(305, (2, 8, 4)), mode=mode)
    assert error.code == "deadlock"
    assert "equally often" in error.hint


@pytest.mark.parametrize("mode", MODES)
def test_a_partner_whose_loop_ends_earlier(mode):
    """The counts are known on the device only."""

    def kernel(a, counts):
        core = nl.program_id(0)
        tile, stop = load(a[core]), nisa.register_alloc()
        nisa.register_load(stop, load(counts[nl.ds(core, 1), :]))
        for _ in nl.dynamic_range(stop):
            swap(tile, tile)
        return share(tile)

    a, counts = normal(310, (2, 8, 4)), np.array([[2], [3]], np.int32)
    assert_same(nki.simulate(nki.jit(kernel)[2], mode=mode)(a, counts[[0, 0]]), a)
    error = refused(kernel, a, counts, mode=mode)
    assert error.code == "deadlock"
    assert "equally often" in error.hint
    assert "ore 1 waits" in error.what


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "engine", [nisa.engine.gpsimd, nisa.engine.vector, nisa.engine.tensor, nisa.engine.sync]
)
def test_a_barrier_on_any_engine_orders_shared_memory(engine, mode):
    def kernel(a):
        core = nl.program_id(0)
        shared = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        result = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for _ in range(2):
            nisa.dma_copy(dst=shared[core], src=load(a[core]))
            nisa.core_barrier(shared, cores=[0, 1], engine=engine)
            nisa.dma_copy(dst=result[core], src=shared[1 - core])
            nisa.core_barrier(data=result, cores=(0, 1), engine=engine)
        return result

    a = normal(311, (2, 8, 4))
    assert_same(nki.simulate(nki.jit(kernel)[2], mode=mode)(a), a[::-1])


def all_modes(kernel, *arrays):
    """The result, the same in every mode."""
    results = [nki.simulate(nki.jit(kernel)[2], mode=mode)(*arrays) for mode in MODES]
    for result in results[1:]:
        assert_same(result, results[0])
    return results[0]


def test_a_core_that_waits_keeps_its_tiles():
    """While one core waits for the other, its engines load the next tiles."""

    def kernel(a):
        core = nl.program_id(0)
        got = []
        for step in range(4):
            mine = load(a[core, :, step * 4 : step * 4 + 4])
            got.append(sbuf((8, 4), a.dtype))
            swap(mine, got[-1])
        total = sbuf((8, 4), a.dtype)
        nisa.memset(total, 0)
        for received in got:
            nisa.tensor_tensor(dst=total, data1=total, data2=received, op=nl.add)
        return share(total)

    a = normal(315, (2, 8, 16))
    expected = a[::-1, :, 0:4]
    for step in range(1, 4):
        expected = expected + a[::-1, :, step * 4 : step * 4 + 4]
    assert_same(all_modes(kernel, a), expected)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_pipes_in_another_order(order):
    """Operations with different pipe_ids do not block each other (SDK nki.isa.sendrecv)."""

    def kernel(a):
        core = nl.program_id(0)
        mine, got = load(a[core]), sbuf((8, 12), a.dtype)
        for pipe in order if core else (0, 1, 2):
            part = slice(pipe * 4, pipe * 4 + 4)
            swap(mine[:, part], got[:, part], pipe=pipe)
        return share(got)

    a = normal(309, (2, 8, 12))
    assert_same(all_modes(kernel, a), a[::-1])


def test_pipes_in_another_order_with_work_between():
    """What comes between touches other tiles; what uses a received tile waits for it."""

    def kernel(a):
        core = nl.program_id(0)
        first, second = load(a[core, :, 0:4]), sbuf((8, 4), a.dtype)
        tiles = [first, second]
        got = [sbuf((8, 4), a.dtype), sbuf((8, 4), a.dtype)]
        nisa.dma_copy(dst=second, src=a[core, :, 4:8])
        sums = sbuf((8, 4), a.dtype)
        for step, pipe in enumerate((core, 1 - core)):
            swap(tiles[pipe], got[pipe], pipe=pipe)
            nisa.tensor_scalar(dst=sums, data=first, op0=nl.multiply, operand0=float(step))
        nisa.memset(dst=second, value=0.0)  # what was sent has left by now
        nisa.tensor_tensor(dst=sums, data1=sums, data2=got[1], op=nl.add)
        nisa.tensor_tensor(dst=sums, data1=sums, data2=got[0], op=nl.subtract)
        return share(sums)

    a = normal(312, (2, 8, 8))
    assert_same(all_modes(kernel, a), (a[..., :4] + a[::-1, :, 4:]) - a[::-1, :, :4])


def test_pipes_in_another_order_in_loops():
    """In each iteration, and of calls of one pipe, by their order."""

    def kernel(a):
        core = nl.program_id(0)
        mine, got = load(a[core]), sbuf((8, 4, 3), a.dtype)
        for i in nl.dynamic_range(2):
            for pipe in (core, 1 - core):
                part = nl.ds(pipe * 2, 2)
                swap(mine[:, part, nl.ds(i, 1)], got[:, part, nl.ds(i, 1)], pipe=pipe)
        nisa.core_barrier(mine, (0, 1))
        for k in range(2):
            for pipe in (5, 6) if core else (6, 5):
                part = pipe - 5 + 2 * k
                swap(mine[:, part : part + 1, 2], got[:, part : part + 1, 2], pipe=pipe)
        return share(got)

    a = normal(313, (2, 8, 4, 3))
    assert_same(all_modes(kernel, a), a[::-1])


@pytest.mark.parametrize("second", [0, 4096])
def test_pipes_in_another_order_with_tiles_at_addresses(second):
    """Tiles that take each other's place are not in use together."""

    def kernel(a):
        core = nl.program_id(0)
        got = []
        for pipe in (core, 1 - core):
            place = (0, second if pipe else 0)
            tile = nl.ndarray((8, 4), dtype=a.dtype, buffer=nl.sbuf, address=place)
            nisa.dma_copy(dst=tile, src=a[core, :, pipe * 4 : pipe * 4 + 4])
            got.append(sbuf((8, 4), a.dtype))
            swap(tile, got[-1], pipe=pipe)
        both = sbuf((8, 8), a.dtype)
        for pipe, received in zip((core, 1 - core), got):
            nisa.tensor_copy(dst=both[:, pipe * 4 : pipe * 4 + 4], src=received)
        return share(both)

    a = normal(314, (2, 8, 8))
    if second:
        assert_same(all_modes(kernel, a), a[::-1])
        return
    for mode in MODES:
        with pytest.raises(nki.NeuronError) as error:
            nki.simulate(nki.jit(kernel)[2], mode=mode)(a)
        assert error.value.code == "deadlock"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("between", ["tile", "barrier", "no_reorder"])
def test_pipes_that_wait_for_each_other(between, mode):
    """Each core goes on only when the other has gone on."""

    def kernel(a):
        core = nl.program_id(0)
        tile = load(a[core])
        other = tile if between == "tile" else load(a[core])
        order = nl.no_reorder() if between == "no_reorder" else contextlib.nullcontext()
        with order:
            swap(tile, tile, pipe=core)
            if between == "barrier":
                nisa.core_barrier(other, (0, 1))
            swap(other, other, pipe=1 - core)
        return share(tile)

    error = refused(kernel, normal(309, (2, 8, 4)), mode=mode)
    assert error.code == "deadlock"
    assert "same order" in error.hint


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", ["shape", "dtype", "self"])
def test_partners_that_do_not_fit(case, dynamic, mode):
    def kernel(a, count):
        core = nl.program_id(0)
        columns = 4 - core if case == "shape" else 4
        dtype = (nl.float32, nl.int32)[core] if case == "dtype" else nl.float32
        tile, other = sbuf((8, columns), dtype), sbuf((8, columns), dtype)
        nisa.memset(tile, 0)
        to = core if case == "self" else 1 - core
        stop = nisa.register_alloc()
        nisa.register_load(stop, load(count))
        for _ in nl.dynamic_range(stop) if dynamic else range(1):
            nisa.sendrecv(tile, other, send_to_rank=to, recv_from_rank=to, pipe_id=0)
        return share(load(a[core]))

    error = refused(kernel, normal(306, (2, 8, 4)), np.array([[1]], np.int32), mode=mode)
    assert error.code == "core-mismatch"
    assert {"shape": "[8, 3]", "dtype": "int32", "self": "to core"}[case] in error.what


@pytest.mark.parametrize(
    "options, text",
    [
        ({"send_to_rank": 2}, "send_to_rank is 2"),
        ({"dst": (8, 5)}, r"\[8, 5\]"),
        ({"dtype": nl.int32}, "int32"),
        ({"columns": 300, "dma_engine": nisa.dma_engine.gpsimd_dma}, "1200 bytes .* at most 1024"),
    ],
)
def test_refusals(options, text):
    @nki.jit
    def kernel():
        columns = options.get("columns", 4)
        src = sbuf((8, columns), nl.float32)
        dst = sbuf(options.get("dst", (8, columns)), options.get("dtype", nl.float32))
        other = 1 - nl.program_id(0)
        given = {k: v for k, v in options.items() if k in ("send_to_rank", "dma_engine")}
        ranks = {"send_to_rank": other, "recv_from_rank": other, "pipe_id": 0} | given
        nisa.sendrecv(src, dst, **ranks)

    with pytest.raises(nki.NeuronError, match=text):
        kernel.__getitem__(2).trace()


def test_one_core_alone_has_no_partner():
    @nki.jit
    def kernel(a):
        tile = load(a)
        nisa.sendrecv(tile, tile, 1, 1, 0)

    with pytest.raises(nki.NeuronError, match="needs 2 cores"):
        nki.simulate(kernel)(normal(307, (8, 4)))


@pytest.mark.parametrize("mode", MODES)
def test_what_was_never_written_stays_so_on_the_other_core(mode):
    def kernel(a, core):
        tile, received = sbuf((8, 4), a.dtype), sbuf((8, 4), a.dtype)
        columns = 4 if nl.program_id(0) == core else 3
        nisa.dma_copy(dst=tile[:, 0:columns], src=a[:, 0:columns])
        swap(tile, received)
        out = nl.ndarray((8, 4), dtype=a.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out, src=received)
        return out

    a = normal(308, (8, 4))
    assert_same(nki.simulate(nki.jit(kernel)[2], mode=mode)(a, 1), a)
    with pytest.raises(nki.NeuronError, match="8 of its 32 elements"):
        nki.simulate(nki.jit(kernel)[2], mode=mode)(a, 0)


def test_an_exchange_takes_the_time_of_a_barrier_and_its_bytes():
    """2 us (a third party's figure), and 128 x 2048 x 4 bytes at 16 x 23 bytes a ns."""

    def time(columns, swaps):
        @nki.jit
        def kernel(a):
            tile, other = load(a), sbuf(a.shape, nl.float32)
            for _ in range(swaps):
                swap(tile, other)
                swap(other, tile)
            return share(tile)

        spec = nki.TensorSpec((128, columns), nl.float32)
        return simulate(nki.compile(kernel[2], spec, target="trn2").program).total_ns

    each = (time(2048, 9) - time(2048, 1)) / 16
    assert each == pytest.approx(2000 + 128 * 2048 * 4 / (16 * 23), rel=0.1)
