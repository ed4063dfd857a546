"""nl.rand, nl.dropout, nl.random_seed, and tensors in HBM that are made full."""

import numpy as np
import pytest
from language_references import NUMPY, run

import nki
import nki.language as nl
from isa.errors import NeuronError

TARGETS = ["trn1", "trn2", "trn3"]
SEED = np.array([[1234]], np.int32)


def drawn(shape, dtype="float32", target="trn2", buffer=nl.sbuf):
    return run(lambda _: sbuf(nl.rand(shape, dtype, buffer)), SEED, target=target)


def sbuf(tensor):
    return tensor if tensor.on_chip else nl.load(tensor)


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_are_uniform_and_the_same_every_time(target):
    numbers = drawn((128, 512), target=target)
    assert numbers.min() >= 0 and numbers.max() < 1
    counts, _ = np.histogram(numbers, bins=32, range=(0, 1))
    expected = numbers.size / 32
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < 31 + 6 * np.sqrt(62)
    pairs = np.corrcoef(numbers[:, :-1].ravel(), numbers[:, 1:].ravel())[0, 1]
    assert abs(pairs) < 5 / np.sqrt(numbers.size)
    assert len(np.unique(numbers[:, 0])) == 128  # a generator a partition
    np.testing.assert_array_equal(numbers, drawn((128, 512), target=target))


@pytest.mark.parametrize("target", TARGETS)
def test_a_seed_starts_the_numbers_again(target):
    def body(seed):
        nl.random_seed(seed)
        first = nl.rand((128, 16), dtype=nl.float32)
        again = nl.rand((128, 16), dtype=nl.float32)
        nl.random_seed(seed)
        third = nl.rand((128, 16), dtype=nl.float32)
        return nl.add(nl.equal(first, third), nl.multiply(nl.equal(first, again), 8.0))

    result = run(body, SEED, target=target)
    assert np.mean(result == 1) > 0.99 and set(np.unique(result)) <= {1, 9}
    by_seed = [
        run(lambda s: (nl.random_seed(s), nl.rand((4, 64), nl.float32))[1], SEED + n, target=target)
        for n in range(2)
    ]
    assert np.mean(by_seed[0] == by_seed[1]) < 0.1


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "int32", "uint8"])
@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_numbers_of_other_dtypes_and_in_hbm(dtype, target):
    for buffer in (nl.sbuf, nl.psum, nl.private_hbm):
        numbers = drawn((96, 50), dtype, target, buffer).astype(float)
        assert numbers.min() >= 0 and numbers.max() <= 1 and abs(numbers.mean() - 0.5) < 0.03


@pytest.mark.parametrize("target", TARGETS)
def test_dropout(target):
    x = np.arange(1, 128 * 200 + 1, dtype=np.float32).reshape(128, 200)
    for rate in (0.0, 0.3, 1.0):
        kept = run(lambda a, r=rate: nl.dropout(a, r), x, target=target)
        assert np.all((kept == x) | (kept == 0))
        assert abs(np.mean(kept == 0) - rate) < 5 * np.sqrt(0.25 / x.size)
    rates = np.linspace(0, 1, 128, dtype=np.float32).reshape(128, 1)
    kept = run(nl.dropout, x, rates, target=target)
    np.testing.assert_allclose(np.mean(kept == 0, axis=1), rates[:, 0], atol=0.17)
    as_half = run(lambda a: nl.dropout(a, 0.5, dtype=nl.bfloat16), x, target=target)
    assert as_half.dtype == NUMPY["bfloat16"]


def test_what_is_refused():
    for body, code in (
        (lambda s: nl.dropout(s, 1.5), "value-not-allowed"),
        (lambda s: nl.dropout(None, 0.5), "not-a-tensor"),
        (lambda s: nl.random_seed(7), "not-a-tensor"),
        (lambda s: nl.random_seed(nl.zeros((2, 1), nl.int32)), "shape-mismatch"),
        (lambda s: nl.rand((4, 4), "float99"), "dtype-not-allowed"),
    ):
        with pytest.raises(NeuronError) as caught:
            run(body, SEED)
        assert caught.value.code == code


@pytest.mark.parametrize("shape", [(3, 5), (128, 1000), (7,), (2, 3, 64, 32), (130, 3)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_tensors_in_hbm_are_filled(shape, dtype):
    def kernel():
        return (
            nl.full(shape, 3, dtype=dtype, buffer=nl.shared_hbm),
            nl.zeros(shape, dtype=dtype, buffer=nl.shared_hbm),
            nl.ones(shape, dtype=dtype, buffer=nl.shared_hbm),
        )

    for mode in ("device", "eager"):
        for value, result in zip((3, 0, 1), nki.simulate(nki.jit(kernel), mode=mode)()):
            np.testing.assert_array_equal(result, np.full(shape, value, NUMPY[dtype]))
            assert result.dtype == NUMPY[dtype]
