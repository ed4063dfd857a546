"""Rotated loops: how many copies, what is left, and that results and times are those of straight
code."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traced import loops, sbuf, traced

import nki
import nki.isa as nisa
import nki.language as nl
from nki.passes.analysis.content import forget
from nki.passes.order import pipeline, rotate
from nki.passes.order.iterations import Iterations
from nki.passes.order.modelled import Modelled
from nki.passes.order.rotate import RotateBuffers
from nki.passes.order.trips import at_most_once
from nki.passes.place.spill import SpillWarning
from simulator.races.happens_before import check
from simulator.timing import simulate

P = 128


def streamed(a, rolled=True, columns=None):
    """Loads, computes and stores tile by tile."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for row in nl.dynamic_range(0, a.shape[0], P) if rolled else range(0, a.shape[0], P):
        x, y = (sbuf(P, a.shape[1], dtype=a.dtype) for _ in range(2))
        nisa.dma_copy(dst=x, src=a[nl.ds(row, P), :])
        nisa.activation(dst=y, op=nl.square, data=x)
        nisa.dma_copy(dst=out[nl.ds(row, P), :], src=y)
    return out


def rotated(*shape):
    return RotateBuffers().run(traced(streamed, shape))


def modelled(kernel, *specs):
    return simulate(nki.compile(nki.jit(kernel), *specs, target="trn2").program).total_ns


def test_a_loop_over_ints_has_several_copies_and_what_is_left_is_no_loop():
    nodes = rotated(51 * P, 2048).bodies[0]
    (loop,) = loops(nodes)
    copies = loop.step // P
    assert copies in rotate.COPIES and 51 % copies
    assert (loop.lower, loop.upper) == (0, 51 // copies * copies * P)
    assert (loop.variable.lower, loop.variable.upper) == (0, loop.upper - loop.step)
    names = [node.row.name for node in loop.body]
    assert names == names[: len(names) // copies] * copies
    assert len(nodes) == 1 + len(names) // copies * (51 % copies)


@given(*(st.floats(1.0, most) for most in (100.0, 20.0, 3.0)), st.integers(0, 5), st.booleans())
def test_the_fewest_copies_are_found_that_are_as_good_as_any(
    busy, alone, slower, without_room, timed
):
    """Against all numbers tried, where each takes so much longer than its part of what one copy
    takes, or the busiest engine. One copy may have been timed, or not."""
    numbers = [1, *rotate.COPIES]
    one = busy * alone
    times = {n: min(one, slower * max(busy, one / n)) for n in numbers}
    times |= dict.fromkeys(numbers[len(numbers) - without_room :], math.inf) | {1: one}
    tried = []

    def spent(copies):
        assert copies not in tried
        tried.append(copies)
        return Modelled(times[copies], busy, busy)

    found = rotate.fewest(numbers[1:], Modelled(one, busy, timed * busy), spent)
    assert found == min(n for n in numbers if rotate.PAYS * times[n] <= min(times.values()))
    assert set(tried) <= {1} or one * rotate.PAYS > busy
    if slower == 1.0:
        assert len({*tried} - {1}) <= 2 + without_room


def test_fewer_copies_than_some_that_are_too_slow_are_not_tried():
    """Four copies might take as little as sixteen by what one copy takes, but eight do not."""
    tried = []

    def spent(copies):
        tried.append(copies)
        return Modelled({8: 130.0, 16: 101.0}[copies], 100.0, 100.0)

    assert rotate.fewest([2, 4, 8, 16], Modelled(408.0, 100.0, 0.0), spent) == 16
    assert tried == [8, 16]


def test_one_copy_that_keeps_an_engine_busy_is_enough():
    """Even if it was estimated, and takes a little less than the estimate."""
    times = {1: 98.0, 2: 99.0, 4: 99.0}
    one = Modelled(100.0, 99.0, 0.0)
    assert rotate.fewest([2, 4], one, lambda n: Modelled(times[n], 99.0, 99.0)) == 1


@pytest.mark.parametrize("columns", [64, 512, 2048])
@pytest.mark.parametrize("trips", [51, 64])
def test_no_number_of_copies_takes_less_than_what_one_copy_says(monkeypatch, trips, columns):
    """The least time, which is more than the busiest engine computes: it waits for the first load,
    and others wait for it in the end."""
    tried = []

    def counted(wanted, one, spent):
        tried.append([spent(copies) for copies in (1, *wanted)])
        return wanted[0]

    monkeypatch.setattr(rotate, "fewest", counted)
    monkeypatch.setattr(Iterations, "is_plain", False)
    forget()
    rotated(trips * P, columns)
    forget()
    ((one, *others),) = tried
    assert one.busiest_ns + 2000 < one.least_ns
    assert one.least_ns <= 1.001 * min(other.total_ns for other in others)


@pytest.mark.parametrize("trips", [8, 64])
def test_no_trip_has_more_iterations_than_a_symbol_allows(trips):
    """Sixteen copies of a body that waits for what it stores pay where there are as many trips."""

    def bounced(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(a.shape[0] // P):
            held = nl.ndarray((P, 16), dtype=a.dtype, buffer=nl.private_hbm)
            nl.store(held, nl.load(a[nl.ds(i * P, P), :]))
            nl.store(out[nl.ds(i * P, P), :], nl.load(held))
        return out

    size = nki.symbol("M", multiple_of=P, max=trips * P)
    steps = {
        loop.step for loop in loops(RotateBuffers().run(traced(bounced, (size, 16))).bodies[0])
    }
    assert max(steps) <= trips
    assert (16 in steps) is (trips >= 16)


def test_an_order_found_for_a_trial_is_that_of_the_loop(monkeypatch):
    """No stretch is ordered twice: a trial of 16 iterations has the order of the loop of 51."""

    def chained(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for row in nl.dynamic_range(0, a.shape[0], P):
            x, y = (sbuf(P, a.shape[1], dtype=a.dtype) for _ in range(2))
            nisa.dma_copy(dst=x, src=a[nl.ds(row, P), :])
            for _ in range(20):
                nisa.activation(dst=y, op=nl.square, data=x)
                nisa.tensor_scalar(dst=x, data=y, op0=nl.add, operand0=1.0)
            nisa.dma_copy(dst=out[nl.ds(row, P), :], src=x)
        return out

    ordered = []
    order = pipeline._PipelinedBody._order

    def counted(body, stretch):
        ordered.append(len(stretch.operations))
        return order(body, stretch)

    monkeypatch.setattr(pipeline._PipelinedBody, "_order", counted)
    monkeypatch.setattr(Iterations, "is_plain", False)
    forget()
    kernel = RotateBuffers().run(traced(chained, (51 * P, 64)))
    tried = len(ordered)
    assert tried and len(set(ordered)) == tried
    pipeline.Pipeline().run(kernel)
    assert len(ordered) == tried


def test_a_small_loop_becomes_straight():
    assert not loops(rotated(8 * P, 64).bodies[0])
    assert loops(rotated(rotate.STRAIGHT * P, 64).bodies[0])


@pytest.mark.parametrize("columns", [512, 2048])
def test_a_rolled_loop_takes_as_long_as_straight_code(columns):
    spec = nki.TensorSpec((64 * P, columns), nl.bfloat16)
    straight = modelled(lambda a: streamed(a, False), spec)
    limit = 1.03 if columns == 2048 else 2.6  # descriptors at dynamic addresses bind small tiles
    assert modelled(streamed, spec) < limit * straight


def test_copies_fall_back_to_what_fits():
    """160 KiB of each partition are taken all the time, a tile with its result takes 32."""

    def kernel(a, b):
        kept = sbuf(P, 40 * 1024)
        nisa.dma_copy(dst=kept, src=b)
        out = streamed(a)
        nisa.dma_copy(dst=b, src=kept)
        return out

    specs = nki.TensorSpec((48 * P, 4096), nl.float32), nki.TensorSpec((P, 40 * 1024), nl.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = nki.compile(nki.jit(kernel), *specs, target="trn2").program
    assert check(program) == []
    assert not [one for one in caught if one.category is SpillWarning]


def test_remainders_over_symbols_run_at_most_once():
    rows = nki.symbol("M", multiple_of=P, max=8192)

    def kernel(a):
        for i in nl.affine_range(a.shape[0] // P):
            tile = sbuf(P, 512)
            nisa.dma_copy(dst=tile, src=a[nl.ds(i * P, P), :])
            nisa.dma_copy(dst=a[nl.ds(i * P, P), :], src=tile)

    first, *rest = loops(RotateBuffers().run(traced(kernel, (rows, 512))).bodies[0])
    assert [loop.step for loop in rest] == [first.step >> n for n in range(1, len(rest) + 1)]
    assert rest[-1].step == 1
    assert all(map(at_most_once, rest)) and not at_most_once(first)


@st.composite
def nests(draw):
    """(trips, step, inner trips, how the outer variable is used) of a kernel."""
    ints = st.integers
    return draw(
        st.tuples(ints(1, 9), ints(1, 3), ints(0, 5), st.sampled_from(["offset", "bound", "sum"]))
    )


def nested(a, nest):
    """Rows that a loop visits are summed with multiples of one another."""
    trips, step, inner, use = nest
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    total = sbuf(1, a.shape[1])
    nisa.memset(dst=total, value=0.0)
    for i in nl.dynamic_range(1, 1 + trips * step, step):
        x, y = sbuf(1, a.shape[1]), sbuf(1, a.shape[1])
        if use == "sum":
            index = nisa.register_alloc()
            nisa.register_move(index, i)
        else:
            index = i
        nisa.dma_copy(dst=x, src=a[nl.ds(index, 1), :])
        nisa.tensor_tensor(dst=y, data1=x, data2=total, op=nl.add)
        for _ in nl.dynamic_range(i) if use == "bound" else nl.dynamic_range(inner):
            nisa.tensor_scalar(dst=y, data=y, op0=nl.multiply, operand0=0.5)
            nisa.tensor_tensor(dst=total, data1=total, data2=x, op=nl.subtract)
        nisa.dma_copy(dst=out[nl.ds(index, 1), :], src=y)
    return out


def nested_numpy(a, nest):
    trips, step, inner, use = nest
    out, total = a.copy(), np.zeros_like(a[0])
    for i in range(1, 1 + trips * step, step):
        y = a[i] + total
        for _ in range(i if use == "bound" else inner):
            y, total = y * np.float32(0.5), total - a[i]
        out[i] = y
    return out


@settings(max_examples=8, deadline=None)
@given(nests(), st.booleans())
def test_rotated_loops_do_what_they_say(nest, pipelined):
    """Every loop keeps rolled, and rotates; where it is `pipelined`, its operations change places
    whether that pays or not."""
    a = np.random.default_rng(1).integers(-8, 8, (32, 6)).astype(np.float32)

    def kernel(a):
        return nested(a, nest)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(rotate, "STRAIGHT", 0)
        patch.setattr(rotate, "PAYS", 2.0)
        if pipelined:
            for name, value in (("GAIN", 2.0), ("BOUND", 0.0), ("FEW", 2), ("WINDOW", 1)):
                patch.setattr(pipeline, name, value)
        compiled = nki.compile(nki.jit(kernel), a, target="trn2")
        assert check(compiled.program) == []
        np.testing.assert_array_equal(compiled(a), nested_numpy(a, nest))
