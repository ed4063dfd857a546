"""Loops on the device, counted by Python: every mode gives what the loops say."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

MODES = ("device", "reference", "eager")
in_every_mode = pytest.mark.parametrize("mode", MODES)


def counter():
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    return tile


def count(tile):
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1)


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@in_every_mode
@pytest.mark.parametrize("inner", ["for", "fori", "twice"])
def test_a_bound_that_the_body_of_an_inner_loop_writes(mode, inner):
    """Bounds are read when a loop begins: what its body writes counts from the next time on."""

    def kernel(bounds):
        bounds, total = nl.load(bounds), counter()
        stop = nisa.register_alloc(bounds[:, 0:1])

        def body(_):
            count(total)
            nisa.register_load(stop, bounds[:, 1:2])

        for _ in nl.dynamic_range(3):
            if inner == "fori":
                nl.fori_loop(0, stop, body)
                continue
            for _ in range(2 if inner == "twice" else 1):
                for i in nl.dynamic_range(stop):
                    body(i)
        return stored(total)

    result = nki.simulate(nki.jit(kernel), mode=mode)(np.array([[2, 5]], np.int32))
    assert result.item() == 2 + (5 * 5 if inner == "twice" else 2 * 5)
