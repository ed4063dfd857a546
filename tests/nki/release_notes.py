"""What tests of the release notes share: modes, data, and tiles as outputs."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

MODES = ("device", "reference", "eager")

RANDOM = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return RANDOM.standard_normal(shape).astype(dtype)


def like(tile, dtype=None, buffer=nl.sbuf):
    return nl.ndarray(tile.shape, dtype=dtype or tile.dtype, buffer=buffer)


def stored(*tiles):
    """The tiles as outputs of the kernel."""
    outputs = []
    for tile in tiles:
        if tile.buffer is nl.psum:
            copy = like(tile)
            nisa.tensor_copy(dst=copy, src=tile)
            tile = copy
        outputs.append(like(tile, buffer=nl.shared_hbm))
        nl.store(outputs[-1], tile)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def run(kernel, *arrays, mode):
    return nki.simulate(nki.jit(kernel), mode=mode)(*arrays)
