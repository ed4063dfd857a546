"""Warnings of the catalogue: what runs, and is probably not what was meant."""

import warnings

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.warned import NeuronWarning

MODES = ["device", "reference", "eager"]
WIDE = np.arange(128 * 256, dtype=np.float32).reshape(128, 256)


def warned(kernel, *inputs, mode="device"):
    """The result, and the code and the line of the kernel of each warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = nki.simulate(kernel, mode=mode)(*inputs)
    first = kernel.__code__.co_firstlineno
    found = [w for w in caught if isinstance(w.message, NeuronWarning)]
    assert all(w.filename == __file__ and f"[NKI0{w.message.number}" in str(w) for w in found)
    return result, [(w.message.code, w.lineno - first) for w in found]


def stored(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def turned(a):
    tile = nl.ndarray((128, 256), a.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    for _ in range(2):
        nisa.dma_copy(dst=tile, src=a)
    return stored(tile)


def alike(a):
    tile = nl.ndarray((128, 2, 128), a.dtype, nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.dma_copy(dst=tile, src=a.reshape((128, 2, 128)))
    return stored(tile.reshape((128, 256)))


@pytest.mark.parametrize("mode", MODES)
def test_a_transfer_between_a_shape_and_its_transpose(mode):
    result, found = warned(turned, WIDE.reshape(256, 128), mode=mode)
    assert found == [("transposed-transfer", 2), ("transposed-transfer", 4)]
    assert np.array_equal(result, WIDE)  # in row-major order, as the documents say
    assert warned(alike, WIDE, mode=mode)[1] == []


def forgotten(a):
    stored(nl.load(a))


def written_in_place(a):
    nl.store(a, nl.load(a))


def printed(a):
    nl.device_print("a", nl.load(a))


@pytest.mark.parametrize("mode", MODES)
def test_a_kernel_without_a_result(mode, capsys):
    assert warned(forgotten, WIDE, mode=mode) == (None, [("nothing-returned", 0)])
    assert warned(written_in_place, WIDE.copy(), mode=mode)[1] == []
    assert warned(printed, WIDE, mode=mode)[1] == []
    assert warned(lambda a: print(a.shape), WIDE, mode=mode)[1] == []


def in_private_hbm(a):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.hbm)
    nl.store(out, nl.load(a))
    return out


def an_argument(a):
    nl.store(a, nl.load(a))
    return a


@pytest.mark.parametrize("mode", MODES)
def test_a_result_in_private_hbm(mode):
    result, found = warned(in_private_hbm, WIDE, mode=mode)
    assert found == [("private-result", 1)] and np.array_equal(result, WIDE)
    assert warned(an_argument, WIDE.copy(), mode=mode)[1] == []
