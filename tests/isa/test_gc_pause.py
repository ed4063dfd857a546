"""Loading and running programs is not held up by the cyclic garbage collector."""

import gc

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl
from isa.gc_pause import collection_paused
from simulator.execute import LoadedProgram
from simulator.races.clocks import Clocks
from simulator.races.happens_before import check
from simulator.races.prepare import Prepared
from simulator.races.regions import TouchedRegion


@nki.jit(platform_target="trn2")
def many_instructions(a, index):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = nl.load(index)
    for number in range(100):
        tile = nl.ndarray((1, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a.select(0, rows[:, number % 4 : number % 4 + 1]))
        nl.store(out[number : number + 1], tile)
    return out


def test_no_collection_while_a_program_is_loaded_and_run():
    a = np.arange(100 * 8, dtype=np.float32).reshape(100, 8)
    index = np.array([[3, 1, 99, 7]], np.int32)
    program = nki.compile(many_instructions, a, index).program
    begun = []

    def count(phase, info):
        begun.append(phase)

    thresholds = gc.get_threshold()
    loaded = LoadedProgram(program)
    loaded.prepare([a, index])
    gc.collect()
    gc.callbacks.append(count)
    gc.set_threshold(40)
    try:
        loaded.execute()
        during = len(begun)
        kept = [[number] for number in range(100)]
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(count)
    assert during <= 2  # the start and the end of one, on the way in or out
    assert len(begun) > 0 and len(kept) == 100  # it collects again afterwards
    np.testing.assert_array_equal(
        loaded.tensors.result(program.results[0]), a[index[0, np.arange(100) % 4]]
    )


def test_a_proof_leaves_nothing_to_collect():
    """What a check has made goes with it, as collecting so many objects takes as long as the
    check."""
    a, index = np.zeros((100, 8), np.float32), np.zeros((1, 4), np.int32)
    program = nki.compile(many_instructions, a, index).program
    gc.collect()
    with collection_paused():
        assert check(program) == []
        left = [
            one
            for one in gc.get_objects()
            # A proxy answers for what may be gone.
            if issubclass(type(one), (Prepared, Clocks, TouchedRegion))
        ]
    assert not left
