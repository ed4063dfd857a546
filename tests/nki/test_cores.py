"""Launches on a number of cores that the kernel or the target does not have."""

import numpy as np
import pytest
import spine_kernels as kernels

import nki

A = np.zeros((64, 8), np.float32)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_barrier_needs_two_cores(mode, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(nki.NeuronError) as error:
        nki.simulate(kernels.exchange_halves, mode=mode)(A)
    assert error.value.code == "core-mismatch"
    assert "this launch has 1" in error.value.what
    assert "core_barrier" in error.value.location.text


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_trn1_has_no_logical_cores_of_two(mode, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(nki.NeuronError) as error:
        nki.simulate(kernels.softmax[2], mode=mode)(A)
    assert error.value.code == "generation"
    assert "kernel[2] on trn1" in error.value.what


def test_both_cores_run_a_kernel_that_splits_its_work(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
    a = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
    expected = kernels.exchange_halves_numpy(a)
    np.testing.assert_array_equal(kernels.exchange_halves[2](a), expected)


@pytest.mark.parametrize("cores", [2, (2,)])
def test_a_grid_of_one_dimension_is_a_number_of_cores(cores):
    assert kernels.exchange_halves[cores].cores == 2


@pytest.mark.parametrize("cores", [3, 0, (2, 2), ()])
def test_other_grids_are_refused(cores):
    with pytest.raises(nki.NeuronError, match="1 or 2 physical cores"):
        kernels.exchange_halves[cores]
