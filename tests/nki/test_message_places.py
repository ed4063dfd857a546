"""Messages that say where: results that are none, symbol ranges, slices that end early."""

import numpy as np
import pytest

import nki
import nki.language as nl
from isa.errors import NeuronError
from nki.errors import explain

X = np.ones((128, 32), np.float32)


def refusal(kernel, *inputs, mode="device"):
    with pytest.raises(NeuronError) as caught:
        nki.simulate(nki.jit(kernel), mode=mode)(*inputs)
    return caught.value


def on_chip(a):
    tile = nl.load(a)
    return tile


def a_number(a):
    nl.load(a)
    return 5


def one_of_two(a):
    if a.shape[0] == 128:
        return nl.load(a)
    return a


def added_slices(a):
    tall = nl.load(a[0:200, :])
    wide = nl.load(a[0:64, 8:32])
    return nl.add(tall, wide)


@pytest.mark.parametrize("mode", ["device", "eager"])
def test_a_result_that_is_none_names_its_return(mode):
    for kernel, text in (
        (on_chip, "return tile"),
        (a_number, "return 5"),
        (one_of_two, "def one_of_two(a):"),
    ):
        error = refusal(kernel, X, mode=mode)
        assert error.code == "output-not-hbm"
        assert (error.location.text.strip(), error.location.function) == (text, kernel.__name__)


@pytest.mark.parametrize("mode", ["device", "eager"])
def test_a_mismatch_names_the_slices_that_end_early(mode):
    error = refusal(added_slices, X, mode=mode)
    assert error.code == "shape-mismatch"
    line = added_slices.__code__.co_firstlineno + 1
    (note,) = error.notes
    assert "to 200 of dimension 0, whose size is 128" in note and note.endswith(f".py:{line}")
    assert note in explain(error)


def test_symbols_without_values_name_their_line():
    with pytest.raises(NeuronError) as caught:
        nki.symbol("M", max=-3)
    assert caught.value.location.text.strip() == 'nki.symbol("M", max=-3)'


def test_a_size_outside_a_symbols_range_names_the_dimension():
    columns = nki.symbol("columns", multiple_of=16, max=64)

    def copied(a, b):
        out = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(b))
        return out

    spec = nki.TensorSpec((128, columns), nl.float32)
    compiled = nki.compile(copied, nki.TensorSpec((128, 32), nl.float32), spec)
    for size in (40, 80):
        with pytest.raises(NeuronError) as caught:
            compiled(X, np.ones((128, size), np.float32))
        assert caught.value.code == "guard-refused"
        assert f"columns = {size} from dimension 1 of input 1" in caught.value.what


def made(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


def both_at_once(a):
    first, second = nl.load(a), made((128, 32))
    nl.store(second[0:64, :], first[0:64, :])
    return second


def four_at_once(a):
    first, second, number, third = nl.load(a), made((128, 32)), 1, made((128, 32))
    nl.store(third, first)
    nl.store(second[number:, :], first[number:, :])
    return second, third


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("kernel", [both_at_once, four_at_once])
def test_tensors_of_one_statement_are_named_each(kernel, mode):
    error = refusal(kernel, X, mode=mode)
    assert error.code == "output-not-written" and error.what.startswith("Output second: ")
