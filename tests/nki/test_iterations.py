"""Loops of which as many copies pay as there may be, against what each number of copies takes."""

import pytest
from traced import loops, sbuf, traced

import nki.isa as nisa
import nki.language as nl
from isa.target import TARGETS
from nki.ir.nodes import Loop
from nki.passes.analysis.content import forget
from nki.passes.order import rotate
from nki.passes.order.iterations import Iterations, iterations_of
from nki.passes.order.modelled import modelled
from nki.passes.order.pipeline import pipelined
from nki.passes.order.rotate import RotateBuffers

P = 128


def chained(links, trips, wide=64, functions=(nl.square,), change=lambda *_: None):
    """A kernel whose loop computes one link of a tile after the other; `change` does something with
    the tile before it is stored, and with one from outside the loop."""

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        total = sbuf(P, wide)
        nisa.memset(dst=total, value=0.0)

        def tile(row):
            x, y = (sbuf(P, wide) for _ in range(2))
            nisa.dma_copy(dst=x, src=a[nl.ds(row, P), :wide])
            for link in range(links):
                nisa.activation(dst=y, op=functions[link % len(functions)], data=x)
                nisa.tensor_scalar(dst=x, data=y, op0=nl.add, operand0=1.0)
            change(a, out, row, x, total)
            nisa.dma_copy(dst=out[nl.ds(row, P), :wide], src=x)

        nl.fori_loop(0, trips * P, tile, P)
        return out

    return traced(kernel, (trips * P, max(wide, 64)))


def pays(kernel, most=8):
    """Whether `most` copies pay by the body alone."""
    (loop,) = loops(kernel.bodies[0])
    found = iterations_of(loop, loop.body, TARGETS["trn2"])
    return found is not None and found.most_copies_pay(most)


@pytest.mark.parametrize(("links", "trips", "wide"), [(40, 64, 64), (20, 8, 256), (30, 5, 128)])
def test_where_most_copies_pay_trials_find_that_too(monkeypatch, links, trips, wide):
    """The rotated loop is the one that is found by timing all numbers of copies."""
    kernel = chained(links, trips, wide)

    def steps():
        forget()
        return [loop.step // P for loop in loops(RotateBuffers().run(kernel).bodies[0])]

    tried = []
    fewest = rotate.fewest

    def counted(wanted, one, spent):
        times = {copies: spent(copies) for copies in wanted}
        tried.append(times)
        return fewest(wanted, one, times.__getitem__)

    monkeypatch.setattr(rotate, "fewest", counted)
    found = steps()
    assert not tried
    monkeypatch.setattr(Iterations, "most_copies_pay", lambda *_: False)
    assert steps() == found
    (times,) = tried
    assert max(times) in found and all(times.values())
    assert min(times, key=lambda copies: times[copies].total_ns) == max(times)


def summed(a, out, row, x, total):
    nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)


@pytest.mark.parametrize("change", [lambda *_: None, summed])
@pytest.mark.parametrize("copies", [1, 2, 8])
@pytest.mark.parametrize(
    ("links", "trips", "wide"), [(3, 64, 64), (4, 20, 256), (6, 27, 512), (12, 64, 64)]
)
def test_what_copies_take_is_what_the_event_model_says(
    monkeypatch, links, trips, wide, copies, change
):
    """Of trips that are found in order by the list schedule's clock, against those that are copied,
    compiled and timed; the least time is one that they do not go below."""
    kernel = chained(links, trips, wide, change=change)
    (loop,) = loops(kernel.bodies[0])
    alone = iterations_of(loop, loop.body, TARGETS["trn2"])
    assert alone.shares_nothing is (change is not summed)
    estimated = alone.with_copies(copies, trips)
    monkeypatch.setattr(rotate._Rotation, "_copies", lambda *_: copies)
    body = RotateBuffers().run(kernel).bodies[0]
    first = next(at for at, node in enumerate(body) if isinstance(node, Loop))
    timed = modelled(kernel, pipelined(kernel, body[first:]))
    assert estimated.total_ns == pytest.approx(timed.total_ns, rel=0.04)
    assert estimated.busiest_ns == pytest.approx(timed.busiest_ns, rel=0.01)
    assert estimated.busiest_ns < estimated.least_ns <= min(timed.total_ns, estimated.total_ns)


def test_each_of_many_trips_takes_as_long_as_the_last_of_some():
    (loop,) = loops(chained(3, 256).bodies[0])
    alone = iterations_of(loop, loop.body, TARGETS["trn2"])
    twelve, sixteen, many = (alone.with_copies(4, trips).total_ns for trips in (12, 16, 256))
    assert many - sixteen == pytest.approx(60 * (sixteen - twelve), rel=0.05)


@pytest.mark.parametrize("partitions", [16, P])
def test_transfers_of_a_few_dma_engines_are_timed(partitions):
    """They go on beside each other where the list schedule has one after the other."""

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)

        def tile(row):
            x = sbuf(partitions, 64)
            nisa.dma_copy(dst=x, src=a[nl.ds(row, partitions), :])
            for _ in range(8):
                nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out[nl.ds(row, partitions), :], src=x)

        nl.fori_loop(0, 32 * P, tile, P)
        return out

    (loop,) = loops(traced(kernel, (32 * P, 64)).bodies[0])
    assert iterations_of(loop, loop.body, TARGETS["trn2"]).is_plain == (partitions == P)


def test_loads_that_may_be_spread_over_engines_are_timed():
    def loading(a, out, row, x, total):
        for _ in range(8):
            y = sbuf(P, 64)
            nisa.dma_copy(dst=y, src=a[nl.ds(row, P), :64])
            nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.add)

    for change, plain in ((loading, False), (lambda *_: None, True)):
        (loop,) = loops(chained(2, 32, change=change).bodies[0])
        assert iterations_of(loop, loop.body, TARGETS["trn2"]).is_plain == plain


@pytest.mark.parametrize(("functions", "plain"), [((nl.exp,), True), ((nl.exp, nl.gelu), False)])
def test_loops_that_change_activation_tables_are_timed(functions, plain):
    (loop,) = loops(chained(4, 32, functions=functions).bodies[0])
    assert iterations_of(loop, loop.body, TARGETS["trn2"]).is_plain == plain


@pytest.mark.parametrize(("wide", "room"), [(512, 56), (4096, 7)])
def test_copies_that_share_places_are_timed(monkeypatch, wide, room):
    """Those that have room at once are not: eight are taken as the body says."""
    kernel = chained(4, 32, wide=wide)
    (loop,) = loops(kernel.bodies[0])
    alone = iterations_of(loop, loop.body, TARGETS["trn2"])
    assert alone.is_plain and alone.room == room
    asked = []

    def eight(wanted, one, spent):
        asked.append(spent)
        return 8

    monkeypatch.setattr(rotate, "fewest", eight)
    forget()
    RotateBuffers().run(kernel)
    assert len(asked) == 1 + (room < 8)


def test_parts_of_a_tile_that_are_loaded_on_their_own_are_loaded_together():
    """Who overwrites a part waits for those that read this part, not for the others."""

    def parts(a, out, row, x, total):
        y = sbuf(P, 64)
        for start in range(0, 64, 16):
            nisa.tensor_scalar(
                dst=y[:, nl.ds(start, 16)], data=x[:, nl.ds(start, 16)], op0=nl.add, operand0=1.0
            )

    (loop,) = loops(chained(0, 32, change=parts).bodies[0])
    alone = iterations_of(loop, loop.body, TARGETS["trn2"])
    assert alone.now == [(number, 0) for number in range(1, 6)]


def test_copies_that_keep_an_engine_busy_are_timed():
    assert pays(chained(40, 64))
    assert not pays(chained(40, 64, wide=2048))
    assert not pays(chained(40, 64), most=64)


def test_loads_of_activation_tables_keep_the_engine_busy():
    """Copies that take turns load the tables in each of them again."""
    assert not pays(chained(40, 64, functions=(nl.exp, nl.gelu)))


def test_copies_that_do_not_fit_are_timed():
    assert pays(chained(200, 64, wide=512), most=2)
    assert not pays(chained(200, 64, wide=48 * 1024), most=2)


def stored_in_place(a, out, row, x, total):
    nisa.dma_copy(dst=out[0:P, :64], src=x)


def read_after_stores(a, out, row, x, total):
    nisa.dma_copy(dst=x, src=out[nl.ds(row, P), :64])


def through_hbm(a, out, row, x, total):
    held = nl.ndarray((P, 64), dtype=a.dtype, buffer=nl.private_hbm)
    nisa.dma_copy(dst=held, src=x)
    nisa.dma_copy(dst=x, src=held)


@pytest.mark.parametrize("change", [summed, stored_in_place, read_after_stores, through_hbm])
def test_iterations_that_may_follow_each_other_are_timed(change):
    assert pays(chained(40, 64))
    assert not pays(chained(40, 64, change=change))
