"""Loops of which as many copies pay as there may be, against what each number of copies takes."""

import pytest
from traced import loops, sbuf, traced

import nki.isa as nisa
import nki.language as nl
from isa.target import TARGETS
from nki.passes.analysis.content import forget
from nki.passes.order import rotate
from nki.passes.order.independent import Independent, independent
from nki.passes.order.modelled import modelled, some_trips
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
    found = independent(loop, loop.body, TARGETS["trn2"])
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
    monkeypatch.setattr(Independent, "most_copies_pay", lambda *_: False)
    assert steps() == found
    (times,) = tried
    assert max(times) in found and all(times.values())
    assert min(times, key=lambda copies: times[copies].total_ns) == max(times)


@pytest.mark.parametrize(("links", "trips", "wide"), [(2, 32, 64), (4, 20, 256)])
def test_where_one_tensor_is_held_all_the_time_one_copy_need_not_be_timed(links, trips, wide):
    kernel = chained(links, trips, wide)
    (loop,) = loops(kernel.bodies[0])
    estimated = independent(loop, loop.body, TARGETS["trn2"]).with_one_copy(trips)
    timed = modelled(kernel, [some_trips(loop, trips, loop.body)])
    assert estimated.total_ns == pytest.approx(timed.total_ns, rel=0.01)
    assert estimated.busiest_ns == pytest.approx(timed.busiest_ns, rel=0.01)


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


def summed(a, out, row, x, total):
    nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.add)


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
