"""The comparison of all accesses by cells: boxes, decisive pairs, and regions that interlock."""

import numpy as np
import pytest
from hand_built import GPSIMD, SCALAR, SYNC, VECTOR, Builder, hbm, kinds, sbuf
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_kernels import LADDER

import nki
import nki.language as nl
from isa.columns.cells import Grid, decisive_pairs
from simulator.races.happens_before import check

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
    assert check(program) == []
    cases = list(waiting(program))
    assert cases
    for instruction, wait in cases[:: max(1, len(cases) // 12)]:
        waits = instruction.waits
        instruction.waits = tuple(other for other in waits if other != wait)
        assert check(program, limit=1), f"{instruction} without {wait}"
        instruction.waits = waits
    assert check(program) == []


@st.composite
def boxes(draw):
    start, size = st.integers(0, 6), st.integers(1, 5)
    row, column = draw(start), draw(start)
    memory = draw(st.integers(0, 1))
    return memory, row, row + draw(size), column, column + draw(size)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(boxes(), st.booleans()), min_size=1, max_size=12))
def test_what_the_pairs_order_is_every_conflict(accesses):
    """Whoever orders the decisive pairs has ordered all accesses that share a byte, one of which
    writes: they are reached from pair to pair."""
    regions = [region for region, _ in accesses]
    place, cell = Grid(np.array(regions)).entries(np.arange(len(regions)))
    write = np.array([write for _, write in accesses])
    earlier, later = decisive_pairs(cell, write[place])
    reached = [{number} for number in range(len(accesses))]
    for new, old in sorted(zip(place[later].tolist(), place[earlier].tolist())):
        assert old < new
        reached[new] |= reached[old]
    for new, (a, writes) in enumerate(accesses):
        for old, (b, wrote) in enumerate(accesses[:new]):
            meet = a[0] == b[0] and all(
                a[low] < b[low + 1] and b[low] < a[low + 1] for low in (1, 3)
            )
            if meet and (writes or wrote):
                assert old in reached[new]


def interlocked(*starts):
    """Accesses of two engines to every second byte."""
    builder = Builder()
    for engine, start in zip((VECTOR, SCALAR, GPSIMD), starts):
        builder.fill(engine, sbuf(start, dims=((2, 8),)))
    return kinds(builder.program())


def test_accesses_with_gaps_are_told_apart_by_their_bytes():
    assert interlocked(0, 1) == []
    assert interlocked(0, 1, 16) == []
    assert interlocked(0, 1, 14) == ["WAW"]


@pytest.mark.parametrize("step", [1, 3])
def test_windows_that_are_cut_too_fine_are_compared_all_the_same(step):
    """Each of many windows meets all others: more cells than are looked at one by one."""
    count, wait = 600, 400
    for missing in (False, True):
        builder = Builder()
        for at in range(count):
            builder.copy(VECTOR, sbuf(9000), sbuf(step * at, step * count))
        builder.nop(VECTOR, updates=[0])
        for at in range(count):
            waits = [0] if at == (wait if missing else 0) else []
            builder.fill(SCALAR, sbuf(step * at, 1), waits=waits)
        assert kinds(builder.program()) == (["WAR"] if missing else [])


def test_what_comes_many_times_is_compared_with_what_comes_last():
    """Rounds are many, and only behind the last of them a wait is missing."""
    for missing in (False, True):
        builder = Builder()
        for turn in range(300):
            builder.fill(VECTOR, sbuf(64 * (turn % 2)), waits=[1] if turn > 1 else [], updates=[0])
            builder.copy(SCALAR, sbuf(512), sbuf(64 * (turn % 2)), waits=[0], updates=[1])
        builder.fill(VECTOR, sbuf(0), waits=[] if missing else [1, 1])
        assert kinds(builder.program()) == (["WAR"] if missing else [])


def test_an_end_that_tells_others_comes_behind_nothing_but_its_engine():
    builder = Builder()
    builder.fill(VECTOR, sbuf(0), updates=[0])
    builder.copy(SCALAR, sbuf(64), sbuf(0), waits=[0])
    program = builder.program()
    assert not check(program)
    program.cores[0].streams[SYNC][-1].updates = ((0, 1),)  # may come before the write
    assert check(program)


def test_cores_that_share_a_tensor_need_an_order():
    builder = Builder(cores=2)
    for core in range(2):
        builder.dma(SYNC, hbm(0, 64 * core, (1, 64)), sbuf(0), core=core)
    assert kinds(builder.program()) == []
    builder.dma(SYNC, sbuf(64), hbm(0, 0, (1, 64)), core=1)
    assert kinds(builder.program()) == ["cross-core"]
