"""Two cores that make the same write: allowed while both write the same bytes."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.verification import CoreOrderWarning
from simulator.races.replicated import SharedRowWarning


def stored(value):
    """A kernel whose cores both store `value(core)` times the input."""

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        factor = float(value(nl.program_id(0)))
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out, src=tile)
        return out

    return nki.jit(kernel, platform_target="trn2")[2]


A = np.array([[1, -2, np.nan]], np.float32)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_cores_may_write_the_same(backend):
    result = nki.simulate(stored(lambda core: 3), backend=backend)(A)
    np.testing.assert_array_equal(result, 3 * A)


@pytest.mark.parametrize("mode", ["reference", "eager"])
def test_cores_that_write_different_values_in_other_modes(mode):
    with pytest.raises(nki.NeuronError, match=r"core [01] and core [01] both write"):
        nki.simulate(stored(lambda core: core + 1), mode=mode)(A)


@pytest.mark.parametrize("backend", ["native", "numpy"])
def test_cores_that_write_different_values(backend, monkeypatch):
    """A run sees it too where nothing was proven."""
    monkeypatch.setattr("nki.verification.verify_program", lambda program: None)
    with pytest.raises(nki.NeuronError, match="core 1 and core 0 both write") as caught:
        nki.simulate(stored(lambda core: core + 1), backend=backend)(A)
    assert caught.value.code == "race"
    assert caught.value.location.text.strip() == "nisa.dma_copy(dst=out, src=tile)"


def test_cores_may_clear_and_fill_alike():
    """Each core clears the tensor and then writes some rows of it, picked by an index."""

    @nki.jit(platform_target="trn2")
    def kernel(a, rows):
        out = nl.ndarray((4, 3), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=nl.zeros((4, 3), dtype=a.dtype, buffer=nl.sbuf))
        place = out.ap([[3, 2], [1, 3]], vector_offset=nl.load(rows), indirect_dim=0)
        nisa.dma_copy(dst=place, src=nl.load(a))
        return out

    a = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    expected = np.zeros((4, 3), np.float32)
    expected[[3, 1]] = a
    result = nki.simulate(kernel[2])(a, np.array([[3], [1]], np.uint32))
    np.testing.assert_array_equal(result, expected)


@nki.jit(platform_target="trn2")
def scattered(a, rows):
    """Core c writes row c of `a` to row rows[c], by the same line on both cores."""
    core = nl.program_id(0)
    out = nl.ndarray((4, 3), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=nl.zeros((4, 3), dtype=a.dtype, buffer=nl.sbuf))
    place = out.ap([[3, 1], [1, 3]], vector_offset=nl.load(rows[core : core + 1]), indirect_dim=0)
    nisa.dma_copy(dst=place, src=nl.load(a[core : core + 1]))
    return out


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("rows", [(2, 0), (3, 2)])
def test_scatters_to_rows_of_their_own(mode, rows):
    a = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    expected = np.zeros((4, 3), np.float32)
    expected[list(rows)] = a
    index = np.array(rows, np.uint32).reshape(2, 1)
    np.testing.assert_array_equal(nki.simulate(scattered[2], mode=mode)(a, index), expected)
    with pytest.warns(SharedRowWarning, match=r"scatter to the same rows \(1, 1 in all\)"):
        nki.simulate(scattered[2], mode=mode)(a, np.array([[1], [1]], np.uint32))


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_cores_in_step(mode):
    """The other core may clear what this one has filled, unless the two run in step."""

    @nki.jit(platform_target="trn2")
    def kernel(a):
        out = nl.ndarray((2, 3), dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=nl.zeros((2, 3), dtype=a.dtype, buffer=nl.sbuf))  # clear
        row = nl.program_id(0)
        tile = nl.load(out[row : row + 1])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=nl.load(a[row : row + 1]), op=nl.add)
        nisa.dma_copy(dst=out[row : row + 1], src=tile)
        nisa.dma_copy(dst=out, src=out)
        return out

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    simulate = nki.simulate(kernel[2], mode=mode)
    with pytest.warns(CoreOrderWarning, match="nothing orders the two but that the cores run"):
        result = simulate(a)
    np.testing.assert_array_equal(result, a)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_read_of_what_only_the_other_core_writes_is_a_race(mode):
    @nki.jit(platform_target="trn2")
    def kernel(a, ordered):
        out = nl.ndarray((2, 3), dtype=a.dtype, buffer=nl.shared_hbm)
        both = nl.ndarray((2, 2, 3), dtype=a.dtype, buffer=nl.shared_hbm)
        row = nl.program_id(0)
        nisa.dma_copy(dst=out[row : row + 1], src=a[row : row + 1])  # writes
        if ordered:
            nisa.core_barrier(out, (0, 1))
        tile = nl.load(out)  # reads
        nisa.dma_copy(dst=both[row], src=tile)
        return both

    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    simulate = nki.simulate(kernel[2], mode=mode)
    np.testing.assert_array_equal(simulate(a, True), np.stack([a, a]))
    with pytest.raises(nki.NeuronError, match="cross-core") as caught:
        simulate(a, False)
    assert caught.value.code == "race" and "# reads" in caught.value.location.text


def test_a_barrier_between_two_writes_orders_them():
    @nki.jit(platform_target="trn2")
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        tile = nl.load(a)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(core + 1))
        if core == 1:
            nisa.core_barrier(out, (0, 1))
        nisa.dma_copy(dst=out, src=tile)
        if core == 0:
            nisa.core_barrier(out, (0, 1))
        return out

    np.testing.assert_array_equal(nki.simulate(kernel[2])(A), 2 * A)


def test_writes_of_different_lines_are_a_race():
    @nki.jit(platform_target="trn2")
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=out, src=a)
        else:
            nisa.dma_copy(dst=out, src=a)
        return out

    with pytest.raises(nki.NeuronError, match="cross-core"):
        nki.compile(kernel[2], a=nki.TensorSpec((1, 3), nl.float32))
