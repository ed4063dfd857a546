"""Kernels with settings to choose from, and what exhaustive search finds of them."""

from __future__ import annotations

import itertools

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


def settings(choices):
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]


@nki.jit
def shifted(a, pieces, shift=0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    width = a.shape[1] // pieces
    assert width % 2 == 0, "pieces are even"
    for start in range(0, a.shape[1], width):
        tile = nl.load(a[:, nl.ds(start, width)])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1 + shift)
        nl.store(out[:, nl.ds(start, width)], tile)
    return out


A = np.zeros((128, 512), np.float32)
