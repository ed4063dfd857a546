"""The quick proof of programs without control flow: what it accepts and what it leaves open."""

import numpy as np
import pytest
from hand_built import SCALAR, SYNC, VECTOR, Builder, hbm, sbuf
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_kernels import LADDER

import nki
import nki.language as nl
from isa.cells import Grid, decisive_pairs
from simulator.checks.happens_before import check
from simulator.checks.regions import Region, boxes_of
from simulator.checks.straight import proved

MATRICES = nki.TensorSpec((512, 512), nl.bfloat16), nki.TensorSpec((512, 1024), nl.bfloat16)


def waiting(program):
    """Every instruction of a program that waits, with one of its waits."""
    for core in program.cores:
        for stream in core.streams.values():
            for instruction in stream:
                for wait in instruction.waits:
                    yield instruction, wait


@pytest.mark.parametrize("kernel", LADDER, ids=lambda kernel: kernel.__name__)
def test_programs_are_proved_and_none_with_a_wait_less(kernel):
    program = nki.compile(kernel, *MATRICES, target="trn2").program
    assert proved(program)
    cases = list(waiting(program))
    assert cases
    for instruction, wait in cases[:: max(1, len(cases) // 12)]:
        waits = instruction.waits
        instruction.waits = tuple(other for other in waits if other != wait)
        assert not proved(program), f"{instruction} without {wait}"
        instruction.waits = waits
    assert proved(program)


@st.composite
def boxes(draw):
    start, size = st.integers(0, 6), st.integers(1, 5)
    row, column = draw(start), draw(start)
    memory = draw(st.integers(0, 1))
    return Region(memory, row, row + draw(size), column, column + draw(size))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(boxes(), st.booleans()), min_size=1, max_size=12))
def test_what_the_pairs_order_is_every_conflict(accesses):
    """Whoever orders the decisive pairs has ordered all accesses that share a byte, one of which
    writes: they are reached from pair to pair."""
    regions = [region for region, _ in accesses]
    place, cell = Grid(boxes_of(regions)).entries(np.arange(len(regions)))
    write = np.array([write for _, write in accesses])
    earlier, later = decisive_pairs(cell, write[place])
    reached = [{number} for number in range(len(accesses))]
    for new, old in sorted(zip(place[later].tolist(), place[earlier].tolist())):
        assert old < new
        reached[new] |= reached[old]
    for new, (a, writes) in enumerate(accesses):
        for old, (b, wrote) in enumerate(accesses[:new]):
            meet = (
                a.memory == b.memory
                and a.row0 < b.row1
                and b.row0 < a.row1
                and a.column0 < b.column1
                and b.column0 < a.column1
            )
            if meet and (writes or wrote):
                assert old in reached[new]


def finished(builder):
    return proved(builder.program()), not check(builder.program())


def test_a_wait_orders_what_comes_behind_it():
    builder = Builder()
    builder.fill(VECTOR, sbuf(0), updates=[0])
    builder.fill(VECTOR, sbuf(64))
    builder.copy(SCALAR, sbuf(128), sbuf(0), waits=[0])
    assert finished(builder) == (True, True)
    builder.copy(SCALAR, sbuf(128), sbuf(64))  # written behind what has been waited for
    assert finished(builder) == (False, False)


def test_transfers_of_one_queue_are_in_flight_together():
    builder = Builder()
    builder.dma(SYNC, sbuf(0), hbm(0, 0, (1, 64)), updates=[0])
    builder.dma(SYNC, sbuf(0), hbm(0, 64, (1, 64)))
    assert finished(builder) == (False, False)
    builder = Builder()
    builder.dma(SYNC, sbuf(0), hbm(0, 0, (1, 64)), updates=[0])
    builder.dma(SYNC, sbuf(0), hbm(0, 64, (1, 64)), waits=[0])
    assert finished(builder) == (True, True)


def test_accesses_with_gaps_that_interlock_are_left_open():
    builder = Builder()
    builder.fill(VECTOR, sbuf(0, dims=((2, 8),)))
    builder.fill(SCALAR, sbuf(1, dims=((2, 8),)))
    assert finished(builder) == (False, True)


def test_streams_that_get_stuck_are_left_open():
    builder = Builder()
    builder.fill(VECTOR, sbuf(0), waits=[0])
    assert finished(builder) == (False, False)


def test_a_semaphore_with_two_consumers_is_left_open():
    builder = Builder()
    builder.fill(VECTOR, sbuf(0), updates=[(0, 2)])
    builder.fill(SCALAR, sbuf(64), waits=[0])
    builder.dma(SYNC, sbuf(128), hbm(0, 0, (1, 64)), waits=[0])
    assert finished(builder) == (False, False)


def test_a_semaphore_with_two_producers_in_no_order_is_left_open():
    builder = Builder()
    builder.fill(VECTOR, sbuf(0), updates=[0])
    builder.fill(SCALAR, sbuf(64), updates=[0])
    builder.dma(SYNC, sbuf(128), hbm(0, 0, (1, 64)), waits=[(0, 2)])
    assert finished(builder) == (False, False)


def test_an_end_that_tells_others_is_left_open():
    builder = Builder()
    builder.fill(VECTOR, sbuf(0), updates=[0])
    builder.copy(SCALAR, sbuf(64), sbuf(0), waits=[0])
    program = builder.program()
    assert proved(program) and not check(program)
    program.cores[0].streams[SYNC][-1].updates = ((0, 1),)  # may come before the write
    assert not proved(program) and check(program)


def test_cores_that_share_a_tensor_need_an_order():
    builder = Builder(cores=2)
    for core in range(2):
        builder.dma(SYNC, hbm(0, 64 * core, (1, 64)), sbuf(0), core=core)
    assert finished(builder) == (True, True)
    builder.dma(SYNC, sbuf(64), hbm(0, 0, (1, 64)), core=1)
    assert finished(builder) == (False, False)


def test_loops_are_left_open():
    builder = Builder()
    builder.loop(VECTOR, 0, 0, 4, lambda: builder.fill(VECTOR, sbuf(0)))
    assert finished(builder) == (False, True)
