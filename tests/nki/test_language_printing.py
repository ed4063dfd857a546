"""nl.device_print prints at run time, in order, in every mode."""

import json

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

MODES = ["device", "reference", "eager"]
A = np.array([[1, 2], [3, 4]], np.float32)


def printing(a):
    tile = nl.load(a)
    nl.device_print("before", tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=10.0)
    nl.device_print("after λ", tile[:, 1:2])
    nl.device_print("input", a[1])
    half = nl.copy(tile, dtype=nl.bfloat16)
    nl.device_print("", half)


EXPECTED = (
    "before\n[[1. 2.]\n [3. 4.]]\nafter λ\n[[20.]\n [40.]]\ninput\n[3. 4.]\n\n[[10 20]\n [30 40]]\n"
)


@pytest.mark.parametrize("mode", MODES)
def test_values_are_those_of_the_moment(mode, capfd):
    nki.simulate(nki.jit(printing), mode=mode)(A.copy())
    assert capfd.readouterr().out == EXPECTED


@pytest.mark.parametrize("mode", MODES)
def test_every_iteration_prints(mode, capfd):
    def kernel(a, count):
        stop = nisa.register_alloc()
        nisa.register_load(stop, nl.load(count))
        for i in nl.dynamic_range(stop):
            nl.device_print("row", nl.load(a[nl.ds(i, 1), :]))

    nki.simulate(nki.jit(kernel), mode=mode)(A.copy(), np.array([[2]], np.int32))
    assert capfd.readouterr().out == "row\n[[1. 2.]]\nrow\n[[3. 4.]]\n"


@pytest.mark.parametrize("mode", MODES)
def test_cores_say_who_they_are(mode, capfd):
    def kernel(a):
        nl.device_print("core", nl.load(a[nl.ds(nl.program_id(0), 1), :]))

    nki.simulate(nki.jit(kernel)[2], mode=mode)(A.copy())
    lines = capfd.readouterr().out.splitlines()
    pairs = sorted(zip(lines[::2], lines[1::2]))
    assert pairs == [("core", "[[1. 2.]]"), ("core (core 1)", "[[3. 4.]]")]


def test_the_message_is_in_the_container(tmp_path, capfd):
    compiled = nki.compile(nki.jit(printing), A)
    path = tmp_path / "printing.neff"
    compiled.save(path)
    nki.load(path)(A.copy())
    assert capfd.readouterr().out == EXPECTED


def test_what_is_refused():
    for body, code in (
        (lambda tile: nl.device_print(7, tile), "value-not-allowed"),
        (lambda tile: nl.device_print("x", 7), "not-a-tensor"),
        (
            lambda tile: nl.device_print("x", nl.matmul(tile, tile, transpose_x=True)),
            "wrong-memory",
        ),
    ):

        def kernel(a, body=body):
            body(nl.load(a))

        with pytest.raises(NeuronError) as caught:
            nki.jit(kernel)(A)
        assert caught.value.code == code


@pytest.mark.parametrize("mode", MODES)
def test_a_folder_gets_what_is_printed(mode, tmp_path, monkeypatch, capfd):
    """As the runtime lays it out: message, core, iteration."""

    def kernel(a):
        mine = nl.program_id(0)
        for factor in (1.0, 2.0):
            tile = nl.multiply(nl.load(a[nl.ds(mine, 1), :]), factor)
            nl.device_print("a/row", nl.copy(tile, dtype=nl.bfloat16))
        nl.device_print("..", tile)

    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path / "new"))
    nki.simulate(nki.jit(kernel, platform_target="trn2")[2], mode=mode)(A.copy())
    assert capfd.readouterr().out.count("a/row") == 4
    for core in range(2):
        for iteration in range(2):
            place = tmp_path / "new" / "a_row" / f"core_{core}" / str(iteration)
            assert json.loads((place / "tensor.json").read_text())["dtype"] == "bfloat16"
            found = np.load(place / "tensor.npy").view(ml_dtypes.bfloat16).astype(np.float32)
            np.testing.assert_array_equal(found, A[core : core + 1] * (iteration + 1))
        last = np.load(tmp_path / "new" / "_.." / f"core_{core}" / "0" / "tensor.npy")
        np.testing.assert_array_equal(last, 2 * A[core : core + 1])


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path / "file"))
    with pytest.raises(NeuronError) as caught:
        nki.simulate(nki.jit(printing))(A.copy())
    assert caught.value.code == "not-writable"
