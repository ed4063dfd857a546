"""Which instructions streams execute, with a control trace and without."""

from __future__ import annotations

import pytest
from timing_programs import DVE, POOL, Builder, hbm, sbuf, spans

from isa.access import AccessPattern
from isa.enums import Condition, DgeMode, Memory, RegisterOperation
from isa.errors import NeuronError
from isa.machine import control, elementwise
from isa.program import RegisterReference
from simulator.timing import lower_bounds, simulate


class Trace:
    """A control trace by hand: {(core, engine): events}."""

    def __init__(self, events):
        self._events = events

    def events(self, core, engine):
        return self._events.get((core, engine), [])


def test_nested_loops_and_registers_without_a_trace():
    """A triangle: the inner bound is the outer loop's register, times two by a register add."""
    b = Builder()
    outer, inner, bound = (RegisterReference(n) for n in range(3))
    b.add(control.LoopBegin, DVE, outer, 0, 5, 1, 6)
    b.add(control.RegisterAlu, DVE, bound, RegisterOperation.multiply, outer, 2)
    b.add(control.LoopBegin, DVE, inner, 0, bound, 1, 5)
    b.add(elementwise.TensorCopy, DVE, sbuf(64), sbuf(64, offset=1024))
    b.add(control.LoopEnd, DVE, 2)
    b.add(control.LoopEnd, DVE, 0)
    b.add(control.Halt, DVE)
    timeline = simulate(b.program())
    assert timeline.cores[0].engines[DVE].executed[3] == sum(2 * i for i in range(5))
    assert [s[3] for s in spans(timeline, "vector")] == [j for i in range(5) for j in range(2 * i)]


def test_trace_gives_trip_counts_branches_and_rows():
    b = Builder(queues=(("gathers", POOL),))
    count, flag = RegisterReference(0), RegisterReference(1)
    b.add(control.RegisterLoad, POOL, count, hbm(1, 1, 1, "int32"))
    b.add(control.LoopBegin, POOL, RegisterReference(2), 0, count, 1, 6)
    b.add(control.Branch, POOL, Condition.eq, flag, 0, 5)
    gathered = AccessPattern(
        Memory.shared_hbm, "float32", 0, ((0, 128), (1, 512)), tensor=0,
        vector_offset=sbuf(1, "int32"), vector_stride=512, vector_bound=4096,
    )  # fmt: skip
    b.load(sbuf(512), gathered, mode=DgeMode.swdge, engine=POOL)
    b.add(elementwise.Memset, POOL, sbuf(64, offset=9000), 0)
    b.add(control.LoopEnd, POOL, 1)
    built = b.program()
    with pytest.raises(NeuronError) as error:
        simulate(built)
    assert error.value.code == "missing-argument"
    trace = Trace({(0, POOL): [3, 0, 128, 1, 0, 32]})
    timeline = simulate(built, trace)
    core = timeline.cores[0]
    assert list(core.engines[POOL].executed) == [1, 1, 3, 2, 2, 3]
    assert core.bytes == {"hbm->sbuf": (128 + 32) * 512 * 4}
    assert lower_bounds(built, trace)["dma"] == pytest.approx((128 + 32) * 2048 / 368)
    with pytest.raises(NeuronError) as error:
        simulate(built, Trace({(0, POOL): [3, 0]}))
    assert error.value.code == "input-mismatch"
