"""The happens-before check on loops, registers and data-dependent control flow."""

from __future__ import annotations

from typing import Any

from hand_built import (
    GPSIMD,
    SCALAR,
    SYNC,
    VECTOR,
    Builder,
    assert_minimal,
    hbm,
    kinds,
    sbuf,
    without,
)
from superfluous_waits import superfluous_waits

from isa.enums import RegisterOperation
from isa.machine import control
from isa.program import OnChipAllocation, Program, RegisterReference
from simulator.execute import ControlTrace
from simulator.races.happens_before import check


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


def test_the_waits_of_a_double_buffer_are_all_needed():
    # Nor can the wait behind it go: what it takes is left over by the loop.
    assert superfluous_waits(double_buffer()) == []


def test_a_wait_that_a_prime_implies_is_superfluous():
    b = Builder()
    b.copy(VECTOR, sbuf(64), sbuf(0), updates=[2])
    b.nop(VECTOR, updates=[1])
    b.nop(SCALAR, waits=[2])
    b.loop(SCALAR, 0, 0, 5, lambda: b.fill(SCALAR, sbuf(0), waits=[1], updates=[0]))
    b.nop(SCALAR, waits=[1])
    b.loop(VECTOR, 0, 0, 5, lambda: b.copy(VECTOR, sbuf(64), sbuf(0), waits=[0], updates=[1]))
    assert check(b.program()) == []
    assert superfluous_waits(b.program()) == [(0, SCALAR, 0, (2, 1))]


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


def test_a_loaded_offset_on_chip_stays_in_its_allocation():
    def found(offset: int) -> list[str]:
        b = Builder(tensors=2)
        register = RegisterReference(4)
        b.add(VECTOR, control.RegisterLoad, (register, hbm(1, 0, (1, 1))))
        b.fill(VECTOR, sbuf(320, 8, registers=((4, 8),)))
        b.fill(SCALAR, sbuf(offset, 8))
        program = b.program()
        program.cores[0].storages = [
            OnChipAllocation(name, "sbuf", "uint8", (128, 256), 0, 128, start, 256, 0)
            for name, start in (("first", 0), ("second", 256))
        ]
        return kinds(program)

    assert [found(offset) for offset in (0, 248, 256, 504, 512)] == [[], [], ["WAW"], ["WAW"], []]


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


def test_a_trace_tells_how_far_a_loop_went():
    b = Builder()
    count = RegisterReference(1)
    b.add(VECTOR, control.RegisterLoad, (count, hbm(1, 0, (1, 1))))
    moving = sbuf(0, 64, registers=((0, 64),))
    b.loop(VECTOR, 0, 0, count, lambda: b.fill(VECTOR, moving))
    b.fill(SCALAR, sbuf(5 * 64))
    program = b.program()
    assert check(program) == []
    assert check(program, trace=ControlTrace([{VECTOR: [5]}])) == []
    (race,) = check(program, trace=ControlTrace([{VECTOR: [6]}]))
    assert (race.kind, race.first.iteration) == ("WAW", ())
    assert race.second.iteration == (5,)


def test_a_trace_of_branches_and_dynamic_transfers():
    program = double_buffer(RegisterReference(5), primes=3)
    trace = ControlTrace([{SYNC: [2, 128, 128, 128, 128], VECTOR: [2]}])
    assert {race.kind for race in check(program, trace=trace)} == {"WAR", "WAW"}
    # Events of a loop: stay, back, leave.
    trace = ControlTrace([{VECTOR: [0, 1, 1], SCALAR: [0, 1, 1]}])
    assert check(while_program(wait=True), trace=trace) == []
