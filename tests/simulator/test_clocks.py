"""The walk of vector clocks: the same as Python and compiled."""

import numpy as np
import pytest
from hand_built import GPSIMD, SCALAR, SYNC, VECTOR, Builder, hbm, sbuf

from isa.machine import control
from simulator.races.clocks import Clocks, ExpansionSteps, follow
from simulator.races.expand import expand
from simulator.races.prepare import Prepared


def program(extra_wait: bool):
    """Loops, a drain, a barrier, and units left over; or one more wait than there are units."""
    builder = Builder(cores=2)
    for core in (0, 1):
        builder.nop(VECTOR, updates=[(1, 2)], core=core)
        for engine in (SYNC, VECTOR):

            def body(engine=engine, core=core):
                if engine is SYNC:
                    builder.dma(SYNC, sbuf(0), hbm(core), waits=[1], updates=[(0, 2)], core=core)
                else:
                    builder.copy(VECTOR, sbuf(64), sbuf(0), waits=[(0, 2)], updates=[1], core=core)

            builder.loop(engine, 0, 0, 3, body, core=core)
        builder.add(SYNC, control.DrainQueue, (0,), updates=[2], core=core)
        barrier = hbm(2, 0, (1, 8)), (0, 1)
        builder.add(GPSIMD, control.CoreBarrier, barrier, waits=[2], updates=[3], core=core)
        builder.nop(SCALAR, waits=[3], core=core)
    if extra_wait:
        builder.nop(SCALAR, waits=[3])
    return builder.program()


@pytest.mark.parametrize("extra_wait", [False, True])
def test_python_and_compiled_code_follow_alike(extra_wait, monkeypatch):
    prepared = Prepared(program(extra_wait))
    steps = ExpansionSteps(prepared, expand(prepared, None, 0))
    found = []
    for worth in (1, 10**9):
        monkeypatch.setattr(follow, "worth", worth)
        found.append(Clocks(prepared, steps))
    compiled, plain = found
    for name, column in vars(compiled).items():
        if isinstance(column, np.ndarray):
            np.testing.assert_array_equal(column, getattr(plain, name), name)
    assert len(plain.stuck) == extra_wait
    assert plain.arrival.max() == 1
