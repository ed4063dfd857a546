"""Tensors that are bound to the storage of others, and what Python may not do with tensors."""

import operator

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


def traced(body):
    nki.jit(platform_target="trn2")(lambda a: body(nl.load(a), a))(np.ones((4, 6), np.float32))


def code(body):
    with pytest.raises(NeuronError) as caught:
        traced(body)
    return caught.value.code


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_tensor_on_the_storage_of_another(mode):
    def kernel(a):
        tile = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=1.0)
        part = nl.NkiTensor((4, 2, 2), nl.float32, tile.storage)
        assert (part.shape, part.strides, part.offset) == ((4, 2, 2), (6, 2, 1), 0)
        nisa.memset(dst=part, value=2.0)
        bits = nl.NkiTensor(shape=(2, 1), dtype=nl.bfloat16, storage=tile.storage, buffer=nl.sbuf)
        assert bits.strides == (12, 1) and bits.name == tile.name
        nisa.memset(dst=bits, value=0.0)
        out = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        flat = nl.NkiTensor((24,), nl.float32, out.storage, buffer=nl.shared_hbm)
        assert flat.strides == (1,) and not flat.on_chip
        return out

    result = nki.simulate(nki.jit(platform_target="trn2")(kernel), mode=mode)(
        np.zeros((1, 1), np.float32)
    )
    expected = np.ones((4, 6), np.float32)
    expected[:, :4] = 2
    expected[:2].view(np.uint16)[:, 0] = 0
    np.testing.assert_array_equal(result, expected)


def test_a_signature_has_attributes_only():
    tensor = nl.NkiTensor((128, 64), nl.bfloat16, None, name="weights")
    assert (tensor.shape, tensor.strides, tensor.offset) == ((128, 64), (64, 1), 0)
    assert (tensor.dtype, tensor.buffer, tensor.name) == (nl.bfloat16, nl.sbuf, "weights")
    assert (tensor.ndim, tensor.size) == (2, 128 * 64)
    hbm = nl.NkiTensor((4, 128, 64), nl.float32, None, nl.shared_hbm)
    assert not hbm.on_chip and hbm.is_contiguous() and not hbm.is_indirect()

    def takes(tile, _):
        nisa.tensor_copy(dst=tile, src=nl.NkiTensor((4, 6), nl.float32, None))

    assert code(takes) == "not-a-tensor"


def test_what_does_not_fit_its_storage():
    for build, expected in (
        (lambda t, a: nl.NkiTensor((4, 7), nl.float32, t.storage), "out-of-bounds"),
        (lambda t, a: nl.NkiTensor((5, 6), nl.float32, t.storage), "out-of-bounds"),
        (lambda t, a: nl.NkiTensor((4, 6), nl.float32, t.storage, nl.psum), "wrong-memory"),
        (lambda t, a: nl.NkiTensor((4, 6), nl.float32, a.storage), "wrong-memory"),
        (lambda t, a: nl.NkiTensor((4, 6), "float99", t.storage), "dtype-not-allowed"),
    ):
        assert code(build) == expected


@pytest.mark.parametrize(
    ("apply", "function"),
    [
        (operator.add, "add"),
        (operator.sub, "subtract"),
        (operator.mul, "multiply"),
        (operator.truediv, "divide"),
        (operator.matmul, "matmul"),
        (operator.lt, "less"),
        (operator.and_, "bitwise_and"),
        (operator.lshift, "left_shift"),
        (operator.pow, "power"),
    ],
)
def test_python_operators_name_the_function_instead(apply, function):
    with pytest.raises(NeuronError, match=rf"nl\.{function}\(") as caught:
        traced(lambda tile, _: apply(tile, tile))
    assert caught.value.code == "not-supported"
    assert code(lambda tile, _: apply(tile, 2.0)) == "not-supported"


def test_elements_are_not_python_values():
    assert code(lambda tile, _: list(tile)) == "not-supported"
    assert code(lambda tile, _: tile.__setitem__(0, [1])) == "not-supported"
    assert code(lambda _, a: a.__setitem__(0, 1)) == "not-supported"
    assert code(lambda tile, _: -tile) == "not-supported"
