"""The happens-before check on straight-line programs written by hand."""

from __future__ import annotations

import itertools

import pytest
from hand_built import (
    GPSIMD,
    SCALAR,
    SYNC,
    TENSOR,
    VECTOR,
    Builder,
    assert_minimal,
    hbm,
    kinds,
    sbuf,
)

from isa.access import AccessPattern
from isa.enums import Memory
from isa.machine import control
from isa.program import Program
from simulator.races.happens_before import check

# -- engines ---------------------------------------------------------------------------------


def test_one_engine_orders_itself():
    b = Builder()
    b.fill(VECTOR, sbuf(0))
    b.copy(VECTOR, sbuf(64), sbuf(0))
    b.copy(VECTOR, sbuf(0), sbuf(64))
    assert check(b.program()) == []


def test_raw_between_engines_needs_a_wait():
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[0])
    b.copy(SCALAR, sbuf(64), sbuf(0), waits=[0])
    assert_minimal(b.program())


@pytest.mark.parametrize(
    "first, second, kind",
    [
        ((sbuf(0), sbuf(512)), (sbuf(64), sbuf(0)), "RAW"),
        ((sbuf(512), sbuf(0)), (sbuf(0), sbuf(64)), "WAR"),
        ((sbuf(0), sbuf(512)), (sbuf(0), sbuf(64)), "WAW"),
    ],
)
def test_kinds(first, second, kind):
    b = Builder()
    b.copy(SCALAR, *first)
    b.copy(VECTOR, *second)
    assert kinds(b.program()) == [kind]


def test_reads_do_not_conflict():
    b = Builder()
    b.copy(SCALAR, sbuf(64), sbuf(0))
    b.copy(VECTOR, sbuf(128), sbuf(0))
    assert check(b.program()) == []


def test_order_through_a_third_engine():
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[0])
    b.nop(GPSIMD, waits=[0], updates=[1])
    b.copy(SCALAR, sbuf(64), sbuf(0), waits=[1])
    assert_minimal(b.program())


def test_an_update_covers_what_its_engine_did_before():
    b = Builder()
    b.fill(VECTOR, sbuf(0))
    b.fill(VECTOR, sbuf(512), updates=[0])
    b.copy(SCALAR, sbuf(64), sbuf(0), waits=[0])
    assert_minimal(b.program())


def test_an_update_says_nothing_of_what_comes_after():
    b = Builder()
    b.fill(VECTOR, sbuf(512), updates=[0])
    b.fill(VECTOR, sbuf(0))
    b.copy(SCALAR, sbuf(64), sbuf(0), waits=[0])
    assert kinds(b.program()) == ["RAW"]


def test_units_are_first_in_first_out():
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[0])
    b.fill(VECTOR, sbuf(64), updates=[0])
    b.copy(SCALAR, sbuf(128), sbuf(0), waits=[0])
    b.copy(SCALAR, sbuf(192), sbuf(64), waits=[0])
    assert_minimal(b.program())
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[0])
    b.fill(VECTOR, sbuf(64), updates=[0])
    b.copy(SCALAR, sbuf(192), sbuf(64), waits=[0])
    assert kinds(b.program()) == ["RAW"]


def test_amounts_are_cumulative():
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[(0, 16)])
    b.fill(VECTOR, sbuf(64), updates=[(0, 16)])
    b.copy(SCALAR, sbuf(192), sbuf(64), waits=[(0, 17)])
    assert check(b.program()) == []
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[(0, 16)])
    b.fill(VECTOR, sbuf(64), updates=[(0, 16)])
    b.copy(SCALAR, sbuf(192), sbuf(64), waits=[(0, 16)])
    assert kinds(b.program()) == ["RAW"]


def test_a_storage_that_begins_overwrites():
    b = Builder()
    b.copy(SCALAR, sbuf(64), sbuf(0))
    b.add(VECTOR, control.StorageBegin, (sbuf(0),))
    assert kinds(b.program()) == ["WAR"]


def test_partitions_and_bytes_that_differ_do_not_conflict():
    b = Builder()
    b.fill(VECTOR, sbuf(0, first=0, partitions=64))
    b.fill(SCALAR, sbuf(0, first=64, partitions=64))
    b.fill(GPSIMD, sbuf(64))
    assert check(b.program()) == []


def test_psum_is_not_sbuf():
    b = Builder()
    b.fill(VECTOR, sbuf(0))
    b.fill(SCALAR, AccessPattern(Memory.psum, "uint8", 0, ((1, 64),), 0, 128))
    assert check(b.program()) == []


def test_overwritten_accesses_still_order_what_they_covered():
    b = Builder()
    b.fill(VECTOR, sbuf(0, 256), updates=[0])
    b.fill(SCALAR, sbuf(0, 128), waits=[0], updates=[1])
    b.copy(GPSIMD, sbuf(512, 128), sbuf(0, 128), waits=[1])
    b.copy(GPSIMD, sbuf(512, 128), sbuf(128, 128))
    assert check(b.program()) == []
    b.copy(TENSOR, sbuf(1024, 128), sbuf(128, 128))
    (race,) = check(b.program())
    assert (race.kind, race.first.engine, race.second.engine) == ("RAW", VECTOR, TENSOR)


# -- strided accesses ------------------------------------------------------------------------


def test_interleaved_strides_do_not_conflict():
    b = Builder()
    b.fill(VECTOR, sbuf(0, dims=((2, 32),)))
    b.fill(SCALAR, sbuf(1, dims=((2, 32),)))
    assert check(b.program()) == []


def test_meeting_strides_conflict():
    b = Builder()
    b.fill(VECTOR, sbuf(0, dims=((2, 32),)))
    b.fill(SCALAR, sbuf(1, dims=((3, 32),)))
    assert kinds(b.program()) == ["WAW"]


def test_tiles_of_an_hbm_matrix_do_not_conflict():
    b = Builder(tensors=1)
    for queue, (row, column) in enumerate(itertools.product((0, 16), (0, 64))):
        tile = hbm(0, row * 128 + column, (128, 16), (1, 64))
        engine = (SYNC, GPSIMD, SCALAR, VECTOR)[queue]
        b.dma(engine, tile, sbuf(64 * queue, 64, 0, 16), queue=queue)
    assert check(b.program()) == []
    b.dma(TENSOR, hbm(0, 40 * 128 - 1, (1, 1)), sbuf(0, 1, 0, 1), queue=5)
    b.dma(TENSOR, hbm(0, 5 * 128 + 60, (1, 8)), sbuf(0, 8, 0, 1), queue=5)
    races = [r for r in check(b.program()) if r.kind == "WAW"]
    assert {(r.first.engine, r.second.engine) for r in races} == {
        (SYNC, TENSOR),
        (GPSIMD, TENSOR),
    }


# -- DMA -------------------------------------------------------------------------------------


def dma_pipeline() -> Builder:
    b = Builder(tensors=2)
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)), queue=0, updates=[0])
    b.copy(VECTOR, sbuf(64), sbuf(0), waits=[0], updates=[1])
    b.dma(GPSIMD, hbm(1, 0, (64, 128), (1, 64)), sbuf(64), queue=1, waits=[1])
    return b


def test_load_compute_store():
    assert_minimal(dma_pipeline().program())


def test_issuing_is_not_completing():
    b = Builder()
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)))
    b.nop(SYNC, updates=[0])
    b.copy(VECTOR, sbuf(64), sbuf(0), waits=[0])
    assert kinds(b.program()) == ["RAW"]


def test_its_own_engine_does_not_wait_for_a_transfer():
    b = Builder()
    b.dma(SCALAR, sbuf(0), hbm(0, 0, (64, 128), (1, 64)), updates=[0])
    b.copy(SCALAR, sbuf(64), sbuf(0))
    assert kinds(b.program()) == ["RAW"]
    b = Builder()
    b.dma(SCALAR, sbuf(0), hbm(0, 0, (64, 128), (1, 64)), updates=[0])
    b.copy(SCALAR, sbuf(64), sbuf(0), waits=[0])
    assert_minimal(b.program())


def test_an_engine_finishes_before_it_issues():
    b = Builder()
    b.fill(SCALAR, sbuf(0))
    b.dma(SCALAR, hbm(0, 0, (64, 128), (1, 64)), sbuf(0))
    assert check(b.program()) == []


def test_transfers_of_one_queue_may_overlap():
    b = Builder()
    tile = hbm(0, 0, (64, 128), (1, 64))
    b.dma(SYNC, tile, sbuf(0), updates=[0])
    b.dma(SYNC, sbuf(64), tile)
    assert kinds(b.program()) == ["RAW"]
    b = Builder()
    b.dma(SYNC, tile, sbuf(0), updates=[0])
    b.dma(SYNC, sbuf(64), tile, waits=[0])
    assert_minimal(b.program())


def test_a_queue_completes_in_order():
    b = Builder()
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)))
    b.dma(SYNC, sbuf(64), hbm(0, 0, (64, 128), (1, 64)), updates=[0])
    b.copy(VECTOR, sbuf(128), sbuf(0), waits=[0])
    assert_minimal(b.program())


def test_queues_are_not_ordered_among_each_other():
    b = Builder()
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)), queue=0)
    b.dma(SYNC, sbuf(64), hbm(0, 0, (64, 128), (1, 64)), queue=1, updates=[0])
    b.copy(VECTOR, sbuf(128), sbuf(0), waits=[0])
    assert kinds(b.program()) == ["RAW"]


def test_a_drained_queue_has_completed():
    b = Builder()
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)), queue=0)
    b.add(SYNC, control.DrainQueue, (0,), updates=[0])
    b.copy(VECTOR, sbuf(128), sbuf(0), waits=[0])
    assert_minimal(b.program())
    b = Builder()
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)), queue=0)
    b.add(SYNC, control.DrainQueue, (1,), updates=[0])
    b.copy(VECTOR, sbuf(128), sbuf(0), waits=[0])
    assert kinds(b.program()) == ["RAW"]


def test_indices_of_a_scatter_are_read_by_the_transfer():
    index = AccessPattern(Memory.sbuf, "int32", 256, ((1, 1),), 0, 128)
    rows = hbm(0, 0, (64, 128), (1, 64), vector_offset=index, vector_stride=64, vector_bound=512)
    b = Builder()
    b.dma(SYNC, rows, sbuf(0), updates=[0])
    b.fill(VECTOR, sbuf(256, 4), waits=[0])
    assert_minimal(b.program())


def test_a_scatter_may_touch_every_row():
    index = AccessPattern(Memory.sbuf, "int32", 256, ((1, 1),), 0, 128)
    rows = hbm(0, 0, (64, 128), (1, 32), vector_offset=index, vector_stride=64, vector_bound=512)
    for offset, found in ((500 * 64, ["WAW"]), (500 * 64 + 32, []), (512 * 64, [])):
        b = Builder()
        b.dma(SYNC, rows, sbuf(0, 32), queue=0)
        b.dma(GPSIMD, hbm(0, offset, (1, 32)), sbuf(64, 32, 0, 1), queue=1)
        assert kinds(b.program()) == found


# -- structure -------------------------------------------------------------------------------


def test_two_producers_without_order():
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[0])
    b.fill(GPSIMD, sbuf(64), updates=[0])
    b.copy(SCALAR, sbuf(128), sbuf(0), waits=[(0, 2)])
    assert "semaphore-shared" in kinds(b.program())


def test_two_consumers():
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[(0, 2)])
    b.nop(SCALAR, waits=[0])
    b.nop(GPSIMD, waits=[0])
    assert kinds(b.program()) == ["semaphore-shared"]


def test_an_engine_may_prime_the_semaphore_of_its_queue():
    b = Builder()
    b.nop(SYNC, updates=[0])
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)), updates=[0])
    b.nop(VECTOR, waits=[0])
    b.copy(VECTOR, sbuf(128), sbuf(0), waits=[0])
    assert check(b.program()) == []


def test_priming_behind_a_transfer_in_flight_has_no_order():
    b = Builder()
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)), updates=[0])
    b.nop(SYNC, updates=[0])
    b.copy(VECTOR, sbuf(128), sbuf(0), waits=[0])
    assert "semaphore-shared" in kinds(b.program())


def test_a_queue_has_one_engine():
    b = Builder()
    b.dma(SYNC, sbuf(0), hbm(0, 0, (64, 128), (1, 64)))
    b.dma(SCALAR, sbuf(64), hbm(0, 0, (64, 128), (1, 64)))
    assert kinds(b.program()) == ["queue-shared"]


def test_deadlock_is_a_finding():
    b = Builder()
    b.nop(VECTOR, waits=[0], updates=[1])
    b.nop(SCALAR, waits=[1], updates=[0])
    (race,) = check(b.program())
    assert race.kind == race.code == "deadlock"
    assert "semaphore 0" in race.explain() and "semaphore 1" in race.explain()


# -- cores -----------------------------------------------------------------------------------


def exchange(barrier: bool, shared: bool = True) -> Program:
    """Each core writes its half of a tensor and reads the other's."""
    b = Builder(cores=2, tensors=2, shared=shared)
    for core in (0, 1):
        half = hbm(0, core * 4096, (32, 128), (1, 32))
        other = hbm(0, (1 - core) * 4096, (32, 128), (1, 32))
        b.dma(SYNC, half, sbuf(0, 32), queue=0, updates=[0], core=core)
        if barrier:
            b.add(
                GPSIMD,
                control.CoreBarrier,
                (hbm(0, 0, (1, 8192)), (0, 1)),
                waits=[0],
                updates=[1],
                core=core,
            )
        else:
            b.nop(GPSIMD, waits=[0], updates=[1], core=core)
        b.dma(SCALAR, sbuf(64, 32), other, queue=1, waits=[1], core=core)
    return b.program()


def test_a_barrier_orders_the_cores():
    assert_minimal(exchange(barrier=True))


def test_without_a_barrier_the_cores_race():
    races = check(exchange(barrier=False))
    assert {race.kind for race in races} == {"cross-core"}
    assert {race.memory for race in races} == {"HBM tensor 't0'"}
    assert all(race.first.core != race.second.core for race in races)


def test_memories_on_chip_are_per_core():
    b = Builder(cores=2)
    b.fill(VECTOR, sbuf(0), core=0)
    b.fill(SCALAR, sbuf(0), core=1)
    assert check(b.program()) == []


def test_a_barrier_that_one_core_lacks():
    b = Builder(cores=2)
    b.add(GPSIMD, control.CoreBarrier, (hbm(0, 0, (1, 8)), (0, 1)), core=0)
    assert kinds(b.program()) == ["absent"]


def test_barriers_meet_by_number():
    b = Builder(cores=2, tensors=1)
    barrier = (hbm(0, 0, (1, 8)), (0, 1))
    tile = hbm(0, 0, (1, 64))
    for core in (0, 1):
        b.add(GPSIMD, control.CoreBarrier, barrier, core=core)
        if core == 0:
            b.dma(GPSIMD, tile, sbuf(0, 64, 0, 1), core=0)
            b.add(GPSIMD, control.DrainQueue, (0,), core=0)
        b.add(GPSIMD, control.CoreBarrier, barrier, core=core)
    b.dma(GPSIMD, sbuf(0, 64, 0, 1), tile, core=1)
    assert check(b.program()) == []
    b = Builder(cores=2, tensors=1)
    for core in (0, 1):
        b.add(GPSIMD, control.CoreBarrier, barrier, core=core)
        b.add(GPSIMD, control.CoreBarrier, barrier, core=core)
        if core == 0:
            b.dma(GPSIMD, tile, sbuf(0, 64, 0, 1), core=0)
    b.dma(GPSIMD, sbuf(0, 64, 0, 1), tile, core=1)
    assert kinds(b.program()) == ["cross-core"]


@pytest.mark.parametrize("barrier", [True, False])
def test_a_barrier_comes_behind_what_its_engine_did(barrier):
    b = Builder(cores=2)
    b.copy(VECTOR, hbm(0, 0, (1, 64)), sbuf(0), core=0)
    for core in (0, 1) if barrier else ():
        b.add(VECTOR, control.CoreBarrier, (hbm(1, 0, (1, 8)), (0, 1)), core=core)
    b.copy(VECTOR, sbuf(0), hbm(0, 0, (1, 64)), core=1)
    assert kinds(b.program()) == ([] if barrier else ["cross-core"])


def test_barriers_of_one_core_have_an_order():
    barrier = (hbm(0, 0, (1, 8)), (0, 1))
    for ordered in (True, False):
        b = Builder(cores=2, tensors=1)
        for core in (0, 1):
            b.add(GPSIMD, control.CoreBarrier, barrier, updates=[0] if ordered else [], core=core)
            b.add(VECTOR, control.CoreBarrier, barrier, waits=[0] if ordered else [], core=core)
        assert kinds(b.program()) == ([] if ordered else ["barrier-shared"])


# -- reports ---------------------------------------------------------------------------------
