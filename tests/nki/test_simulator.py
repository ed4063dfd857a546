"""`nki.simulator.simulate_kernel`, as the harnesses of public kernels call it."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.simulator import simulate_kernel


def halves(a, factor=2.0):
    """Each core multiplies its share of the rows."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = a.shape[0] // nl.num_programs(0)
    first = nl.program_id(0) * rows
    tile = nl.load(a[first : first + rows])
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
    nl.store(out[first : first + rows], tile)
    return out


@pytest.mark.parametrize("kernel", [halves, nki.jit(halves)], ids=["function", "kernel"])
def test_arguments_by_place_and_by_name_on_cores(kernel):
    a = np.arange(24, dtype=np.float32).reshape(8, 3)
    np.testing.assert_array_equal(simulate_kernel(kernel, (a,), {}), 2 * a)
    np.testing.assert_array_equal(simulate_kernel(kernel, (a, 3.0)), 3 * a)
    np.testing.assert_array_equal(simulate_kernel(kernel, (), {"a": a}, lnc=2), 2 * a)
    by_name = {"a": a, "factor": 5.0}
    np.testing.assert_array_equal(simulate_kernel(kernel, args=[], kwargs=by_name, _lnc=2), 5 * a)
    assert nki.simulator.simulate_kernel is simulate_kernel


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("backend", [None, "numpy"])
def test_a_simulation_launches_on_cores_as_kernels_do(mode, backend):
    a = np.arange(24, dtype=np.float32).reshape(8, 3)
    simulation = nki.simulate(halves, mode=mode, backend=backend)
    np.testing.assert_array_equal(simulation[2](a), 2 * a)
    np.testing.assert_array_equal(simulation[(2,)](a=a, factor=3.0), 3 * a)
    np.testing.assert_array_equal(simulation(a), 2 * a)
    with pytest.raises(nki.NeuronError) as caught:
        simulation[3]
    assert "3" in caught.value.what


def test_cores_are_one_or_two():
    with pytest.raises(nki.NeuronError) as caught:
        simulate_kernel(halves, (np.zeros((6, 2), np.float32),), lnc=3)
    assert "3" in caught.value.what
