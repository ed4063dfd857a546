"""Skipping what repeats in the walk over signals: it finds what the whole walk finds."""

import sys
from itertools import pairwise

import numpy as np
import pytest
from hand_built import GPSIMD, SCALAR, SYNC, VECTOR, Builder, hbm, sbuf
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_kernels import LADDER

import nki
import nki.language as nl
from simulator.checks.happens_before import Analysis
from simulator.checks.periods import Watch
from simulator.checks.straight import Streams, proved

ENGINES = (SCALAR, GPSIMD, VECTOR, SYNC)
ALL, NOTHING = 1, sys.maxsize


def found(program, least):
    """What the walk finds, and how many signals it skips: those that are worth it."""
    streams = Streams(program)
    assert streams.plain
    clocks = streams.clocks()
    skipped = []
    skip = Watch._skip

    def noted(watch, since, period):
        skipped.append(sum(period.passed) * period.times)
        skip(watch, since, period)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watch, "_skip", noted)
        finished = clocks.follow(least)
    return (finished, clocks.began.columns(), clocks.learned.columns()), sum(skipped)


def skipped_alike(program):
    """How many signals are skipped, with the same outcome."""
    (finished, *notes), none = found(program, NOTHING)
    (shortened, *others), skipped = found(program, ALL)
    assert none == 0
    assert finished == shortened
    if finished:
        for columns, same in zip(notes, others):
            for column, its in zip(columns, same):
                np.testing.assert_array_equal(column, its)
    return skipped


@st.composite
def looped(draw):
    """A program of a prologue, a body a number of times, and an epilogue.

    Places of the body copy from tile to tile, each what the one before it has made. A semaphore
    leads from place to place and back, with units from the beginning on; few of them are missing,
    or too many units there. Others lead from the prologue to the epilogue. A body may be irregular.
    """
    cores = draw(st.integers(1, 2))
    builder = Builder(cores)
    engines = st.lists(st.sampled_from(ENGINES), min_size=2, max_size=4)
    places = [(engine, core) for core in range(cores) for engine in draw(engines)]
    place = st.integers(0, len(places) - 1)
    buffers, mostly = draw(st.integers(1, 3)), st.sampled_from([True] * 9 + [False])
    edges = []
    for number, ((_, before), (_, core)) in enumerate(pairwise(places)):
        units = draw(st.integers(1, 2))
        if before == core and draw(mostly):
            edges.append((2 * number, number, number + 1, 0, units))
        if before == core and draw(mostly):
            begin = min(draw(st.integers(1, 4)), buffers) if draw(mostly) else buffers + 1
            edges.append((2 * number + 1, number + 1, number, begin * units, units))
    odd = draw(st.dictionaries(st.integers(0, 40), place, max_size=2))
    late = draw(st.lists(place, max_size=2))

    def step(number, turn, waits=(), updates=()):
        engine, core = places[number]
        tile = sbuf(64 * (number * buffers + turn % buffers))
        read = sbuf(64 * (max(number - 1, 0) * buffers + turn % buffers))
        sync = {"waits": waits, "updates": updates, "core": core}
        if engine is SYNC:
            builder.dma(engine, tile, hbm(core, 64 * number, (1, 64)), queue=core, **sync)
        elif engine is GPSIMD:
            builder.nop(engine, **sync)
        else:
            builder.copy(engine, tile, read, **sync)

    def at(number, **sync):
        builder.nop(places[number][0], core=places[number][1], **sync)

    for semaphore, source, _, begin, _ in edges:
        if begin:
            at(source, updates=[(semaphore, begin)])
    for semaphore, source in enumerate(late, 20):
        at(source, updates=[semaphore])
    for turn in range(draw(st.integers(3, 40))):
        for number in range(len(places)):
            waits = [(s, units) for s, _, target, _, units in edges if target == number]
            updates = [(s, units) for s, source, _, _, units in edges if source == number]
            if odd.get(turn) == number:
                step(number, turn)
                updates = updates[draw(st.integers(0, 1)) :]
            step(number, turn, waits, updates)
    for semaphore, source in enumerate(late, 20):
        near = max(source - 1, 0)
        at(near if places[near][1] == places[source][1] else source, waits=[semaphore])
        step(source, 0)
    return builder.program()


@settings(max_examples=30, deadline=None)
@given(looped())
def test_what_is_skipped_is_found_as_in_the_whole_walk(program):
    skipped_alike(program)
    if proved(program):
        assert Analysis(program).findings(None, None, 1) == []


def two_loops(turns, tail):
    """Two engines that take turns, twice with another period; `tail` comes behind."""
    builder = Builder()
    builder.nop(SCALAR, updates=[(1, 2)])
    for turn in range(turns):
        builder.copy(VECTOR, sbuf(turn % 2 * 64), sbuf(256), waits=[1], updates=[0])
        builder.copy(SCALAR, sbuf(512), sbuf(turn % 2 * 64), waits=[0], updates=[1])
    for turn in range(turns):
        tile, other = turn % 2 * 64, 128 + turn % 2 * 64
        builder.fill(VECTOR, sbuf(tile), waits=[1])
        builder.copy(VECTOR, sbuf(other), sbuf(tile), updates=[0])
        builder.copy(SCALAR, sbuf(512), sbuf(other), waits=[0], updates=[1])
    tail(builder)
    return builder.program()


def test_loops_one_after_the_other_are_skipped():
    program = two_loops(300, lambda builder: None)
    assert skipped_alike(program) > 1000
    assert proved(program)


@pytest.mark.parametrize(
    "tail",
    [
        lambda builder: builder.fill(VECTOR, sbuf(192)),  # which SCALAR reads
        lambda builder: builder.copy(VECTOR, sbuf(256), sbuf(512)),
        lambda builder: builder.nop(VECTOR, waits=[(1, 3)]),
    ],
    ids=["WAR", "RAW", "deadlock"],
)
def test_what_is_wrong_only_behind_the_loops_is_seen(tail):
    program = two_loops(60, tail)
    skipped_alike(program)
    assert not proved(program)
    assert Analysis(program).findings(None, None, 1)


@pytest.mark.parametrize("kernel", LADDER[1:3], ids=lambda kernel: kernel.__name__)
def test_kernels_are_followed_as_in_the_whole_walk(kernel):
    specs = [nki.TensorSpec((1024, columns), nl.bfloat16) for columns in (16384, 1024)]
    assert skipped_alike(nki.compile(kernel, *specs, target="trn2").program) > 500
