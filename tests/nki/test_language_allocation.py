"""New tensors: filled, like others, loaded, stored, constant; in every dtype."""

import ml_dtypes
import numpy as np
import pytest
from language_references import NUMPY, rounded, run

import nki
import nki.language as nl
from isa.dtypes import DTYPES
from isa.errors import NeuronError

RNG = np.random.default_rng(3)
CONSTANT_DTYPES = [
    *("float32", "float16", "bfloat16", "int32", "int16", "int8", "uint32", "uint16", "uint8"),
    *("float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"),
]
"""Element types of nl.shared_constant (SDK nki/api/nki/language/__init__.py, shared_constant)."""


@pytest.mark.parametrize("dtype", NUMPY)
def test_filled_tiles(dtype):
    def body(a):
        full, like = nl.full((4, 6), 3, dtype=dtype), nl.zeros_like(a)
        assert (full.dtype, full.shape, full.buffer) == (dtype, (4, 6), nl.sbuf)
        ones = nl.ones(a.shape, dtype=dtype, buffer=nl.psum)
        assert ones.buffer == nl.psum
        empty = nl.empty_like(a, dtype=nl.float32, buffer=nl.psum)
        assert (empty.dtype, empty.buffer) == ("float32", nl.psum)
        zeros = nl.zeros_like(a, dtype=nl.bfloat16, name="nothing")
        assert (zeros.dtype, zeros.name) == ("bfloat16", "nothing")
        return nl.add(nl.add(full, nl.copy(ones)), nl.add(like, zeros, dtype=dtype))

    actual = run(body, np.ones((4, 6), NUMPY[dtype]))
    assert actual.dtype == NUMPY[dtype]
    np.testing.assert_array_equal(actual, np.full((4, 6), 4, NUMPY[dtype]))


@pytest.mark.parametrize("to", NUMPY)
@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16", "uint8"])
def test_load_and_store_convert(dtype, to):
    x = RNG.integers(0, 100, (4, 9)).astype(NUMPY[dtype])

    def kernel(inputs):
        (a,) = inputs
        tile = nl.load(a, dtype=to)
        assert (tile.dtype, tile.shape, tile.buffer) == (to, a.shape, nl.sbuf)
        out = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    actual = nki.simulate(nki.jit(platform_target="trn3")(kernel))([x])
    expected = rounded(x.astype(np.float64), NUMPY[to]).astype(np.float32)
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("dtype", CONSTANT_DTYPES)
def test_constants_of_every_documented_dtype(dtype, tmp_path):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = (2.0 ** RNG.integers(-3, 4, (3, 8)) if kind.kind not in "iu" else
              RNG.integers(0, 100, (3, 8))).astype(kind)  # fmt: skip
    file = tmp_path / "constant.npy"
    np.save(file, values.astype(np.float32))

    def kernel():
        constant = nl.shared_constant(values)
        assert (constant.dtype, constant.shape, constant.buffer) == (dtype, (3, 8), nl.shared_hbm)
        out = nl.ndarray((3, 8), dtype=dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(constant))
        other = nl.ndarray((3, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(other, nl.load(nl.shared_constant(str(file))))
        return out, other

    for mode in ("device", "reference", "eager"):
        out, other = nki.simulate(nki.jit(platform_target="trn3")(kernel), mode=mode)()
        np.testing.assert_array_equal(out.view(np.uint8), values.view(np.uint8))
        np.testing.assert_array_equal(other, values.astype(np.float32))


def test_cores_share_a_constant_and_may_not_differ():
    values = np.arange(8, dtype=np.float32).reshape(2, 4)

    def kernel(scale):
        core = nl.program_id(0)
        table = nl.shared_constant(values * (core + 1) ** scale)
        out = nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[nl.ds(core, 1), :], nl.load(table[nl.ds(core, 1), :]))
        return out

    np.testing.assert_array_equal(nki.jit(kernel)[2](0), values)
    with pytest.raises(NeuronError) as caught:
        nki.jit(kernel)[2](1)
    assert caught.value.code == "core-mismatch"


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_constants_are_not_written(mode):
    """They come with the program, which all calls of a kernel share."""
    data = np.arange(6, dtype=np.float32).reshape(2, 3)

    def kernel(a):
        constant = nl.shared_constant(data)
        nl.store(constant[0:1], nl.load(a))
        return a

    with pytest.raises(NeuronError, match="'constant' is a constant, and is written") as caught:
        nki.simulate(kernel, mode=mode)(np.ones((1, 3), np.float32))
    assert caught.value.location.text.strip().startswith("nl.store(constant")
    with pytest.raises(NeuronError, match="shared_constant of tensor 'a'"):
        nki.simulate(lambda a: nl.shared_constant(a), mode=mode)(data)


def test_dtypes_are_strings_that_name_their_row():
    names = [name for name in nl.__all__ if isinstance(getattr(nl, name), str)]
    assert len(names) >= 18
    for name in names:
        dtype = getattr(nl, name)
        assert str(dtype) in DTYPES and dtype == str(dtype), name
    assert nl.float32 == "float32" and nl.bfloat16 in ("float32", "bfloat16")


def test_what_stays_between_0_and_1_dimensions_is_refused():
    def code(body):
        with pytest.raises(NeuronError) as caught:
            run(body, np.ones((2, 2), np.float32))
        return caught.value.code

    assert code(lambda a: nl.zeros((), nl.float32)) == "value-not-allowed"
    assert code(lambda a: nl.zeros((0, 4), nl.float32)) == "value-not-allowed"
    assert code(lambda a: nl.zeros((129, 4), nl.float32)) == "partition-limit"
    assert code(lambda a: nl.full((4, 4), 0.5, nl.int32)) == "value-not-allowed"
    assert code(lambda a: nl.full((4, 4), 300, nl.uint8)) == "value-not-allowed"
    assert code(lambda a: nl.full((4, 4), "x", nl.float32)) == "value-not-allowed"
    assert code(lambda a: nl.full((4, 4), [1.0], nl.float32)) == "value-not-allowed"
    assert code(lambda a: nl.full((4, 4), a, nl.float32)) == "value-not-allowed"
    assert code(lambda a: nl.zeros((4, 4), float)) == "dtype-not-allowed"
    assert code(lambda a: nl.zeros((4, 4), nl.float32, buffer="sbuf")) == "value-not-allowed"
    assert code(lambda a: nl.load(7)) == "not-a-tensor"
    assert code(lambda a: nl.store(a, 7)) == "not-a-tensor"
