"""The happens-before check, against hand-built programs and a brute-force event graph."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.access import AccessPattern
from isa.enums import SEQUENCERS, Condition, DgeMode, Engine, Memory, OobMode, RegisterOperation
from isa.machine import control, dma, elementwise
from isa.program import (
    CoreProgram,
    Program,
    Queue,
    RegisterReference,
    SourceLocation,
    TensorDeclaration,
)
from isa.spec import Instruction
from simulator.checks.happens_before import Race, check, superfluous_waits

TENSOR, SCALAR, GPSIMD, VECTOR, SYNC = SEQUENCERS


def sbuf(offset: int, count: int = 64, first: int = 0, partitions: int = 128, **more: Any):
    """`count` bytes of each partition."""
    dims = more.pop("dims", ((1, count),))
    return AccessPattern(Memory.sbuf, "uint8", offset, dims, first, partitions, **more)


def hbm(tensor: int, offset: int = 0, *dims: tuple[int, int], **more: Any):
    return AccessPattern(Memory.shared_hbm, "uint8", offset, dims, tensor=tensor, **more)


class Builder:
    """Writes streams in the order of its calls; each call is a source line of its own."""

    def __init__(self, cores: int = 1, tensors: int = 3, shared: bool = True) -> None:
        self.streams = [{engine: [] for engine in SEQUENCERS} for _ in range(cores)]
        self.locations: list[SourceLocation] = []
        self.tensors = [
            TensorDeclaration(f"t{i}", "uint8", (1 << 16,), "internal", None if shared else 0)
            for i in range(tensors)
        ]

    def add(self, engine, row, values, waits=(), updates=(), core=0):
        waits = tuple((w, 1) if isinstance(w, int) else w for w in waits)
        updates = tuple((u, 1) if isinstance(u, int) else u for u in updates)
        stream = self.streams[core][engine]
        line = len(self.locations)
        self.locations.append(
            SourceLocation("kernel.py", line, 4, 20, "kernel", f"    line {line}")
        )
        stream.append(Instruction(row, engine, tuple(values), waits, updates, line))
        return len(stream) - 1

    def copy(self, engine, dst, src, **sync):
        return self.add(engine, elementwise.TensorCopy, (dst, src), **sync)

    def fill(self, engine, dst, **sync):
        return self.add(engine, elementwise.Memset, (dst, 0), **sync)

    def dma(self, engine, dst, src, queue=0, **sync):
        values = (dst, src, queue, DgeMode.none, OobMode.error)
        return self.add(engine, dma.DmaCopy, values, **sync)

    def nop(self, engine, **sync):
        return self.add(engine, control.Nop, (), **sync)

    def loop(self, engine, register, lower, upper, body, core=0, step=1):
        begin = self.add(
            engine,
            control.LoopBegin,
            (RegisterReference(register), lower, upper, step, 0),
            core=core,
        )
        body()
        self.add(engine, control.LoopEnd, (begin,), core=core)
        stream = self.streams[core][engine]
        stream[begin].values = (*stream[begin].values[:-1], len(stream))

    def while_(self, engine, register, body, core=0):
        condition = (Condition.eq, RegisterReference(register), 0, 0)
        head = self.add(engine, control.Branch, condition, core=core)
        body()
        self.add(engine, control.Branch, (Condition.always, 0, 0, head), core=core)
        stream = self.streams[core][engine]
        stream[head].values = (*stream[head].values[:-1], len(stream))

    def program(self) -> Program:
        cores = []
        for streams in self.streams:
            ended = {e: [*s, Instruction(control.Halt, e, ())] for e, s in streams.items()}
            cores.append(CoreProgram(ended, [Queue(f"q{i}", SYNC) for i in range(4)]))
        return Program("k", "trn2", cores, self.tensors, [], [], [], locations=self.locations)


def kinds(program: Program, **options: Any) -> list[str]:
    return sorted({race.kind for race in check(program, **options)})


def without(program: Program, core: int, engine: Engine, index: int, what: str) -> Program:
    """The program with the waits or updates of one instruction gone."""
    streams = [
        {
            e: [
                Instruction(
                    i.row,
                    i.engine,
                    i.values,
                    () if what == "waits" and (c, e, n) == (core, engine, index) else i.waits,
                    () if what == "updates" and (c, e, n) == (core, engine, index) else i.updates,
                )
                for n, i in enumerate(stream)
            ]
            for e, stream in body.streams.items()
        }
        for c, body in enumerate(program.cores)
    ]
    cores = [CoreProgram(s, b.queues) for s, b in zip(streams, program.cores)]
    return Program("k", "trn2", cores, program.tensors, [], [], [])


def assert_minimal(program: Program) -> None:
    """It passes; without any one wait, or any one update, it does not."""
    assert check(program) == []
    for core, body in enumerate(program.cores):
        for engine, stream in body.streams.items():
            for index, instruction in enumerate(stream):
                if instruction.waits:
                    assert check(without(program, core, engine, index, "waits"))
                if instruction.updates:
                    assert check(without(program, core, engine, index, "updates"))
    assert superfluous_waits(program) == []


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
    assert kinds(b.program()) == ["deadlock"]


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


def test_barriers_of_one_core_have_an_order():
    barrier = (hbm(0, 0, (1, 8)), (0, 1))
    for ordered in (True, False):
        b = Builder(cores=2, tensors=1)
        for core in (0, 1):
            b.add(GPSIMD, control.CoreBarrier, barrier, updates=[0] if ordered else [], core=core)
            b.add(VECTOR, control.CoreBarrier, barrier, waits=[0] if ordered else [], core=core)
        assert kinds(b.program()) == ([] if ordered else ["barrier-shared"])


# -- loops -----------------------------------------------------------------------------------


def double_buffer(upper: Any = 8, primes: int = 2, rows: int = 128) -> Program:
    """A load into two buffers in turn, a copy that frees them, over `upper` pairs of tiles.

    Semaphore 0: filled (queue to vector); 1: free (vector to sync), primed with both buffers.
    """
    b = Builder(tensors=2)
    dynamic = isinstance(upper, RegisterReference)
    if dynamic:
        for engine in (VECTOR, SYNC):
            b.add(engine, control.RegisterLoad, (upper, hbm(1, 0, (1, 1))))
    b.nop(VECTOR, updates=[(1, primes)])

    def load() -> None:
        for buffer in (0, 1):
            source = hbm(0, buffer * 8192, (64, rows), (1, 64), registers=((0, 16384),))
            b.dma(SYNC, sbuf(buffer * 64), source, waits=[1], updates=[0])

    def use() -> None:
        for buffer in (0, 1):
            b.copy(VECTOR, sbuf(256), sbuf(buffer * 64), waits=[0], updates=[1])

    b.loop(SYNC, 0, 0, upper, load)
    b.nop(SYNC, waits=[(1, primes)])
    b.loop(VECTOR, 0, 0, upper, use)
    return b.program()


def test_double_buffer():
    program = double_buffer()
    assert check(program) == []
    for engine, index in ((SYNC, 1), (SYNC, 2), (VECTOR, 2), (VECTOR, 3)):
        assert check(without(program, 0, engine, index, "waits"))
        assert check(without(program, 0, engine, index, "updates"))


def test_the_waits_of_a_double_buffer_are_all_needed_inside_the_loop():
    # What is left at the end orders nothing here: no instruction follows.
    assert superfluous_waits(double_buffer()) == [(0, SYNC, 4, (1, 2))]


def test_a_third_prime_lets_a_buffer_be_overwritten():
    # Before its last use, and before the load that precedes it has ended.
    assert kinds(double_buffer(primes=3)) == ["WAR", "WAW"]


def test_a_loop_that_ends_on_data():
    assert check(double_buffer(RegisterReference(5))) == []
    assert kinds(double_buffer(RegisterReference(5), primes=3)) == ["WAR", "WAW"]


def test_iterations_are_told():
    for race in check(double_buffer(primes=3)):
        assert race.first.iteration < race.second.iteration
        assert f"iteration {race.second.iteration[0]}" in race.explain()


def test_a_carried_dependence_shows_in_the_second_round():
    b = Builder()
    b.loop(VECTOR, 0, 0, 4, lambda: b.copy(VECTOR, sbuf(0), sbuf(64), updates=[0]))
    b.loop(SCALAR, 0, 0, 4, lambda: b.copy(SCALAR, sbuf(128), sbuf(0), waits=[0]))
    assert check(b.program(), iterations=1) == []
    assert kinds(b.program(), iterations=2) == ["WAR"]


def test_offsets_follow_the_loop_counter():
    def build(stride: int) -> Program:
        b = Builder()
        moving = sbuf(0, 32, registers=((3, stride),))

        def body() -> None:
            b.fill(VECTOR, moving)

        b.loop(VECTOR, 3, 0, 3, body)
        b.fill(SCALAR, sbuf(32, 32))
        return b.program()

    assert kinds(build(32)) == ["WAW"]
    assert check(build(64)) == []


def test_offsets_by_register_arithmetic():
    b = Builder()
    b.add(VECTOR, control.RegisterMove, (RegisterReference(1), 3))
    values = (RegisterReference(2), RegisterOperation.multiply, RegisterReference(1), 100)
    b.add(VECTOR, control.RegisterAlu, values)
    b.fill(VECTOR, sbuf(20, 10, registers=((2, 1),)))
    b.fill(SCALAR, sbuf(0, 320))
    b.fill(GPSIMD, sbuf(330, 100))
    assert check(b.program()) == []


def test_a_loaded_offset_may_be_anywhere():
    b = Builder(tensors=2)
    register = RegisterReference(4)
    b.add(SYNC, control.RegisterLoad, (register, hbm(1, 0, (1, 1))))
    b.dma(SYNC, hbm(0, 0, (1, 64), registers=((4, 64),)), sbuf(0, 64, 0, 1), queue=0)
    b.dma(GPSIMD, hbm(0, 9000, (1, 8)), sbuf(64, 8, 0, 1), queue=1)
    assert kinds(b.program()) == ["WAW"]
    b = Builder(tensors=2)
    b.add(SYNC, control.RegisterLoad, (register, hbm(1, 0, (1, 1))))
    b.dma(SYNC, hbm(0, 0, (1, 64)), sbuf(0, 8, 0, 8, registers=((4, 8),)), queue=0)
    b.fill(VECTOR, sbuf(4096, first=8, partitions=8))
    assert check(b.program()) == []
    b.streams[0][VECTOR].pop()
    b.fill(VECTOR, sbuf(4096, first=7, partitions=8))
    assert kinds(b.program()) == ["WAR"]


def test_register_loads_and_stores_access_memory():
    b = Builder()
    b.fill(VECTOR, sbuf(0, 4, 0, 1), updates=[0])
    b.add(SCALAR, control.RegisterLoad, (RegisterReference(0), sbuf(0, 4, 0, 1)), waits=[0])
    b.add(SCALAR, control.RegisterStore, (sbuf(8, 4, 0, 1), RegisterReference(0)), updates=[1])
    b.copy(GPSIMD, sbuf(16, 4, 0, 1), sbuf(8, 4, 0, 1), waits=[1])
    assert_minimal(b.program())


def test_loops_of_different_length_are_followed_to_their_end():
    b = Builder()
    b.loop(VECTOR, 0, 0, 9, lambda: b.nop(VECTOR, updates=[0]))
    b.loop(SCALAR, 0, 0, 8, lambda: b.nop(SCALAR, waits=[0]))
    b.nop(SCALAR, waits=[0])
    assert check(b.program()) == []


def while_program(wait: bool) -> Program:
    """Scalar decides; vector works on what scalar reads, until the cell is zero."""
    b = Builder()
    cell = sbuf(0, 4, 0, 1)
    register = RegisterReference(7)

    def work() -> None:
        b.fill(VECTOR, cell, waits=[1] if wait else [], updates=[0])
        b.add(VECTOR, control.RegisterLoad, (register, cell))

    def read() -> None:
        b.add(SCALAR, control.RegisterLoad, (register, cell), waits=[0], updates=[1])

    b.add(VECTOR, control.RegisterLoad, (register, cell))
    b.add(SCALAR, control.RegisterLoad, (register, cell), updates=[1])
    b.while_(VECTOR, 7, work)
    b.while_(SCALAR, 7, read)
    return b.program()


def test_a_while_loop():
    assert check(while_program(wait=True)) == []
    assert kinds(while_program(wait=False)) == ["WAR"]


def test_a_loop_that_does_not_run_orders_nothing():
    b = Builder(tensors=1)
    count = RegisterReference(9)
    for engine in (VECTOR, SCALAR):
        b.add(engine, control.RegisterLoad, (count, sbuf(0, 4, 0, 1)))
    b.fill(VECTOR, sbuf(64))
    b.loop(VECTOR, 0, 0, count, lambda: b.nop(VECTOR, updates=[0]))
    b.loop(SCALAR, 0, 0, count, lambda: b.nop(SCALAR, waits=[0]))
    b.copy(SCALAR, sbuf(128), sbuf(64))
    assert kinds(b.program()) == ["RAW"]


def test_nested_loops_are_capped_each():
    b = Builder()

    def inner(engine, **sync):
        return lambda: b.loop(engine, 1, 0, 1000, lambda: b.nop(engine, **sync))

    b.loop(VECTOR, 0, 0, 1000, inner(VECTOR, updates=[0]))
    b.loop(SCALAR, 0, 0, 1000, inner(SCALAR, waits=[0]))
    assert check(b.program()) == []


# -- reports ---------------------------------------------------------------------------------


def test_a_race_explains_itself():
    b = Builder()
    b.fill(VECTOR, sbuf(0, 64, 32, 32))
    b.copy(SCALAR, sbuf(128, 32), sbuf(32, 32))
    (race,) = check(b.program())
    assert isinstance(race, Race) and race.code == "race"
    assert race.rows == (32, 64) and race.columns == (32, 64)
    text = race.explain()
    for part in ("race", "vector[0] Memset", "scalar[0] TensorCopy", "partitions 32..63"):
        assert part in text
    assert "kernel.py:0" in text and "line 1" in text and "SBUF of core 0" in text
    assert race.error().code == "race" and race.error().location.line == 1


def test_the_limit_bounds_the_findings():
    b = Builder()
    for i in range(50):
        b.fill(VECTOR, sbuf(64 * i))
        b.fill(SCALAR, sbuf(64 * i))
    assert len(check(b.program())) == 50
    assert len(check(b.program(), limit=7)) == 7


def test_superfluous_waits_are_found():
    b = Builder()
    b.fill(VECTOR, sbuf(0), updates=[0, 1])
    b.copy(SCALAR, sbuf(64), sbuf(0), waits=[0])
    b.copy(GPSIMD, sbuf(128), sbuf(64), updates=[3])
    b.streams[0][SCALAR][-1].updates = ((2, 1),)
    b.streams[0][GPSIMD][-1].waits = ((1, 1), (2, 1))
    assert check(b.program()) == []
    assert superfluous_waits(b.program()) == [(0, GPSIMD, 0, (1, 1))]


# -- against an explicit event graph ---------------------------------------------------------


@dataclass
class Operation:
    """A random instruction: its stream, bytes it reads and writes, and its semaphores."""

    engine: Engine
    queue: int
    dst: AccessPattern
    src: AccessPattern
    waits: dict[int, int] = field(default_factory=dict)
    updates: dict[int, int] = field(default_factory=dict)

    @property
    def stream(self) -> Any:
        return self.engine if self.queue < 0 else ("queue", self.queue)


FEEDS = {0: SYNC, 1: SCALAR}
ENGINES = (VECTOR, SCALAR, SYNC)


@st.composite
def patterns(draw):
    first = draw(st.integers(0, 2))
    dims = tuple(
        (draw(st.integers(-3, 4)), draw(st.integers(1, 3))) for _ in range(draw(st.integers(1, 2)))
    )
    return sbuf(draw(st.integers(20, 26)), 0, first, draw(st.integers(1, 3 - first)), dims=dims)


@st.composite
def programs(draw):
    operations: list[Operation] = []
    channels: dict[Any, int] = {}
    for position in range(draw(st.integers(2, 9))):
        queue = draw(st.sampled_from((-1, -1, 0, 1)))
        engine = FEEDS[queue] if queue >= 0 else draw(st.sampled_from(ENGINES))
        operation = Operation(engine, queue, draw(patterns()), draw(patterns()))
        for _ in range(draw(st.integers(0, 2)) if position else 0):
            producer = operations[draw(st.integers(0, position - 1))]
            key = (producer.stream, engine)
            semaphore = channels.setdefault(key, len(channels))
            amount = draw(st.integers(1, 2))
            producer.updates[semaphore] = producer.updates.get(semaphore, 0) + amount
            operation.waits[semaphore] = operation.waits.get(semaphore, 0) + amount
        operations.append(operation)
    return operations


def touched(pattern: AccessPattern) -> set[tuple[int, int]]:
    offsets = {
        pattern.offset + sum(stride * i for (stride, _), i in zip(pattern.dims, index))
        for index in itertools.product(*(range(count) for _, count in pattern.dims))
    }
    rows = range(pattern.start_partition, pattern.start_partition + pattern.partitions)
    return set(itertools.product(rows, offsets))


def racing_pairs(operations: list[Operation], ignored: Any = None) -> set[tuple[int, int]]:
    """Conflicting pairs without a path from the end of the one to the start of the other.

    Events: ("start", i) and ("end", i) of every operation, and ("issued", i) of transfers. The
    wait `ignored` (operation, semaphore) takes its units and orders nothing.
    """
    after: dict[Any, set[Any]] = defaultdict(set)
    streams: dict[Any, list[int]] = defaultdict(list)
    for i, operation in enumerate(operations):
        issued = ("issued" if operation.queue >= 0 else "end", i)
        after["start", i] |= {("end", i), issued}
        if streams[operation.engine]:
            j = streams[operation.engine][-1]
            previous = ("issued" if operations[j].queue >= 0 else "end", j)
            after[previous].add(("start", i))
        streams[operation.engine].append(i)
        if operation.queue >= 0:
            if streams[operation.stream]:
                after["end", streams[operation.stream][-1]].add(("end", i))
            streams[operation.stream].append(i)
    semaphores = {s for o in operations for s in o.waits}
    for semaphore in semaphores:
        units = [i for i, o in enumerate(operations) for _ in range(o.updates.get(semaphore, 0))]
        taken = 0
        for i, operation in enumerate(operations):
            if semaphore in operation.waits:
                taken += operation.waits[semaphore]
                for unit in units[:taken] if ignored != (i, semaphore) else ():
                    after["end", unit].add(("start", i))

    def reachable(event: Any) -> set[Any]:
        seen, stack = set(), [event]
        while stack:
            for following in after[stack.pop()] - seen:
                seen.add(following)
                stack.append(following)
        return seen

    pairs = set()
    reach = [reachable(("end", i)) for i in range(len(operations))]
    for i, j in itertools.combinations(range(len(operations)), 2):
        a, b = operations[i], operations[j]
        writes_a, writes_b = touched(a.dst), touched(b.dst)
        conflict = writes_a & writes_b or writes_a & touched(b.src) or touched(a.src) & writes_b
        if conflict and ("start", j) not in reach[i] and ("start", i) not in reach[j]:
            pairs.add((i, j))
    return pairs


def assemble(operations: list[Operation]) -> tuple[Program, dict[tuple[Engine, int], int]]:
    b = Builder()
    numbers = {}
    for i, o in enumerate(operations):
        sync = {"waits": list(o.waits.items()), "updates": list(o.updates.items())}
        if o.queue >= 0:
            index = b.dma(o.engine, o.dst, o.src, queue=o.queue, **sync)
        else:
            index = b.copy(o.engine, o.dst, o.src, **sync)
        numbers[o.engine, index] = i
    return b.program(), numbers


@settings(max_examples=300, deadline=None)
@given(programs())
def test_agrees_with_the_event_graph(operations):
    program, numbers = assemble(operations)
    races = check(program)
    found = {
        tuple(sorted(numbers[site.engine, site.index] for site in (race.first, race.second)))
        for race in races
    }
    expected = racing_pairs(operations)
    assert found <= expected
    # A race may hide another one behind it: both checks must agree on whether there is one.
    assert bool(found) == bool(expected)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_superfluous_waits_agree_with_the_event_graph(operations):
    program, numbers = assemble(operations)
    if racing_pairs(operations):
        return
    superfluous = {
        (numbers[engine, index], wait[0]) for _, engine, index, wait in superfluous_waits(program)
    }
    for i, operation in enumerate(operations):
        for semaphore in operation.waits:
            assert ((i, semaphore) in superfluous) == (
                not racing_pairs(operations, ignored=(i, semaphore))
            )
