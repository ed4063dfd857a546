"""Which engines start loads at dynamic addresses."""

import numpy as np
from traced import operations, sbuf, traced, value

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine
from nki.passes.order.queues import SpreadLoads
from nki.passes.order.rotate import RotateBuffers
from simulator.timing import simulate

P = 128


def summed(a, computes=0, **options):
    """Sums of four small blocks, each of which is loaded by a transfer of its own."""
    out = nl.ndarray((a.shape[0], P), dtype=a.dtype, buffer=nl.shared_hbm)
    for row in nl.dynamic_range(0, a.shape[0], P):
        total = sbuf(P, P, dtype=a.dtype)
        nisa.memset(dst=total, value=0.0)
        for start in range(0, 4 * P, P):
            block = sbuf(P, P, dtype=a.dtype)
            nisa.dma_copy(dst=block, src=a[nl.ds(row, P), nl.ds(start, P)], **options)
            for _ in range(computes):
                nisa.activation(dst=block, op=nl.square, data=block)
            nisa.tensor_tensor(dst=total, data1=total, data2=block, op=nl.add)
        nisa.dma_copy(dst=out[nl.ds(row, P), :], src=total)
    return out


def starters(kernel, *shape):
    loaded = SpreadLoads().run(RotateBuffers().run(traced(kernel, shape)))
    loads = operations(loaded, "dma_copy")
    return [value(op, "engine") for op in loads if value(op, "dst").storage.memory.on_chip]


def test_loads_that_bind_are_shared():
    found = starters(summed, 64 * P, 4 * P)
    scalar = found.count(Engine.scalar)
    assert abs(scalar - found.count(Engine.unknown)) <= 1 and scalar > 1


def test_a_named_engine_stays():
    named = starters(
        lambda a: summed(a, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync), 64 * P, 4 * P
    )
    assert set(named) == {Engine.sync}


def test_an_engine_that_is_busy_starts_none():
    assert Engine.scalar not in starters(lambda a: summed(a, computes=8), 64 * P, 4 * P)


def test_static_loads_stay_with_the_sync_engine():
    def kernel(a):
        for row in range(0, 4 * P, P):
            nisa.dma_copy(dst=sbuf(P, P), src=a[nl.ds(row, P), :])

    assert set(starters(kernel, 4 * P, P)) == {Engine.sync}


def test_sharing_pays():
    a = np.random.default_rng(0).integers(-4, 4, (16 * P, 4 * P)).astype(np.float32)
    compiled = nki.compile(nki.jit(summed), a, target="trn2")
    np.testing.assert_array_equal(compiled(a), a.reshape(16 * P, 4, P).sum(1))

    def by_sync_alone(a):
        return summed(a, dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.sync)

    spec = nki.TensorSpec((64 * P, 4 * P), nl.bfloat16)
    shared, alone = (
        simulate(nki.compile(nki.jit(kernel), spec, target="trn2").program).total_ns
        for kernel in (summed, by_sync_alone)
    )
    assert shared < 0.75 * alone
