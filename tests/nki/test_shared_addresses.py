"""Tensors at one address are separate tensors, and an error about their contents says so."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.errors import explain

A = np.ones((4, 8), np.float32)
MODES = ("device", "reference", "eager")


def placed(partitions, columns, partition, byte, name=""):
    where = {"buffer": nl.sbuf, "address": (partition, byte)}
    return nl.ndarray((partitions, columns), dtype=nl.float32, name=name, **where)


def stored(a, tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def refused(kernel, mode):
    with pytest.raises(nki.NeuronError, match="NKI0401 uninitialised-output") as caught:
        nki.simulate(nki.jit(kernel), mode=mode)(A)
    printed = "\n".join(caught.value.__notes__)
    assert ("shares bytes" in printed) == ("shares bytes" in explain(caught.value))
    assert "where:" in printed
    return printed


@pytest.mark.parametrize("mode", MODES)
def test_what_another_tensor_holds_there_is_not_read(mode):
    def kernel(a):
        written, alias = placed(4, 8, 0, 64, "written"), placed(4, 4, 0, 80, "alias")
        nisa.memset(written, 1.0)
        return stored(a, alias)

    printed = refused(kernel, mode)
    assert "alias at address=(0, 80) shares bytes with written at address=(0, 64)" in printed
    assert "read written, or a view of it" in printed


@pytest.mark.parametrize("mode", MODES)
def test_tensors_side_by_side_are_not_named(mode):
    def kernel(a):
        below, beside = placed(4, 8, 32, 64), placed(4, 8, 0, 96)
        nisa.memset(below, 1.0)
        nisa.memset(beside, 1.0)
        return stored(a, placed(4, 8, 0, 64))

    assert "shares bytes" not in refused(kernel, mode)


@pytest.mark.parametrize("mode", MODES)
def test_an_address_is_used_again_when_its_tensor_is_done(mode):
    def kernel(a):
        first = placed(4, 8, 0, 64)
        nisa.memset(first, 1.0)
        one = stored(a, first)
        second = placed(4, 8, 0, 64)
        nisa.memset(second, 2.0)
        return one, stored(a, second)

    one, two = nki.simulate(nki.jit(kernel), mode=mode)(A)
    np.testing.assert_array_equal(one, A)
    np.testing.assert_array_equal(two, 2 * A)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shift", [0, 12, 32])
def test_tensors_in_use_together_share_no_bytes(mode, shift):
    def kernel(a):
        one, other = placed(4, 8, 0, 64, "one"), placed(4, 8, 0, 64 + shift, "other")
        nisa.memset(one, 1.0)
        nisa.memset(other, 2.0)
        nisa.tensor_tensor(dst=one, data1=one, data2=other, op=nl.add)
        return stored(a, one)

    simulate = nki.simulate(nki.jit(kernel), mode=mode)
    if shift == 32:
        np.testing.assert_array_equal(simulate(A), 3 * A)
        return
    with pytest.raises(nki.NeuronError, match="share bytes of sbuf while both are in use") as error:
        simulate(A)
    assert error.value.code == "address-overlap" and "def kernel" not in str(error.value)
