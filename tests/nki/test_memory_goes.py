"""The memories of devices go when a run is over: nothing waits for a cyclic collection, which
tracing and running pause."""

import gc

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit(platform_target="trn2")
def added(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("mode", ["eager", "reference", "device"])
def test_no_memory_of_a_device_is_left_in_a_cycle(mode):
    nki.simulate(added, mode=mode)(np.ones((128, 16), np.float32))
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        nki.simulate(added, mode=mode)(np.zeros((128, 16), np.float32))
        gc.collect()
        left = {type(one).__name__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not left & {"Arena", "Device", "LoadedProgram", "EagerContext", "ndarray"}


@nki.jit(platform_target="trn2")
def unequal(a):
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile[:, :4], op=nl.add)


@nki.jit(platform_target="trn2")
def misspelt(a):
    return nl.load(a).sum()


@pytest.mark.parametrize("kernel", [unequal, misspelt])
@pytest.mark.parametrize("mode", ["eager", "reference", "device"])
def test_nor_is_the_error_of_a_kernel(kernel, mode):
    def fail():
        try:  # what pytest.raises gives holds the error in a cycle
            nki.simulate(kernel, mode=mode)(np.zeros((128, 16), np.float32))
        except Exception as error:
            return type(error).__name__
        raise AssertionError("the kernel is wrong")

    fail()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        name = fail()
        gc.collect()
        left = {type(one).__name__ for one in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not left & {name, "EagerContext", "Device"}
