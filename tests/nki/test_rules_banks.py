"""Before gen4 the result of one instruction of the tensor engine lies in one PSUM bank (SDK
nki.isa.nc_matmul, "Tile size"): refused in every mode, at the author's line."""

import numpy as np
import pytest
from limits import tile, traced
from surface import psum

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

MODES = ("eager", "reference", "device")
A = np.arange(32 * 16, dtype=np.float32).reshape(32, 16) % 7
B = np.arange(32 * 32, dtype=np.float32).reshape(32, 32) % 5
BANK = 512
"""fp32 elements."""


def product(place):
    """A kernel that multiplies into what `place` makes."""

    def kernel(a, b):
        dst = place()
        nisa.nc_matmul(dst=dst, stationary=nl.load(a), moving=nl.load(b))  # here
        out = nl.ndarray((16, 32), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(dst))
        return out

    return kernel


def at(byte):
    return lambda: nl.ndarray((16, 32), dtype=nl.float32, buffer=nl.psum, address=(0, byte))


PLACES = {
    # name: (dst, in one bank)
    "end of the first": (lambda: psum((16, 2 * BANK))[:, BANK - 32 : BANK], True),
    "begin of the second": (lambda: psum((16, 2 * BANK))[:, BANK : BANK + 32], True),
    "one element too far": (lambda: psum((16, 2 * BANK))[:, BANK - 31 : BANK + 1], False),
    "every 16th": (lambda: psum((16, 2 * BANK))[:, 0 : 32 * 16 : 16], True),
    "every 17th": (lambda: psum((16, 2 * BANK))[:, 0 : 32 * 17 : 17], False),
    "end of the third in two dimensions": (
        lambda: psum((16, 4, BANK))[:, 2, BANK - 32 : BANK],
        True,
    ),
    "two banks in two dimensions": (lambda: psum((16, 4, BANK))[:, 1:3, 0:16], False),
    "address of the end": (at(2048 - 128), True),
    "address across": (at(2048 - 124), False),
    "address of the last bytes": (at(8 * 2048 - 128), True),
}


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("name", PLACES)
def test_a_product_in_a_bank(name, target):
    place, inside = PLACES[name]
    kernel = nki.jit(product(place), platform_target=target)
    for mode in MODES:
        if inside or target == "trn3":
            np.testing.assert_array_equal(nki.simulate(kernel, mode=mode)(A, B), A.T @ B)
            continue
        with pytest.raises(NeuronError) as caught:
            nki.simulate(kernel, mode=mode)(A, B)
        assert caught.value.code == "psum-bank"
        assert "# here" in caught.value.location.text


def test_a_slice_is_looked_at_after_others_of_its_shape():
    wide, data = (lambda: psum((32, 2 * BANK))), (lambda: tile(16, 32))

    def turn(*starts):
        tensor = wide()
        for start in starts:
            nisa.nc_transpose(tensor[:, start : start + 16], data(), engine=nisa.engine.tensor)

    traced(lambda: turn(0, BANK - 16, BANK, 2 * BANK - 16), "trn2")
    with pytest.raises(NeuronError) as caught:
        traced(lambda: turn(0, BANK - 15), "trn2")
    assert caught.value.code == "psum-bank"


@pytest.mark.parametrize("mode", MODES)
def test_an_address_behind_the_memory(mode):
    kernel = nki.jit(product(at(8 * 2048 - 124)), platform_target="trn3")
    with pytest.raises(NeuronError) as caught:
        nki.simulate(kernel, mode=mode)(A, B)
    assert caught.value.code == "address-out-of-range"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("byte", [2, 2050])
def test_an_address_between_words(mode, byte):
    """Addresses are multiples of psum_min_align (SDK nki/api/nki.language.tile_size.rst)."""

    def kernel():
        tensor = nl.ndarray((4, 8), dtype=nl.bfloat16, buffer=nl.psum, address=(0, byte))  # here
        nisa.memset(tensor, 0.0)
        out = nl.ndarray((4, 8), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(tensor))
        return out

    with pytest.raises(NeuronError) as caught:
        nki.simulate(nki.jit(kernel), mode=mode)()
    assert caught.value.code == "value-not-allowed"
    assert "# here" in caught.value.location.text
