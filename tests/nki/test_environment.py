"""Environment variables of the vendor's tools."""

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.settings import target, target_source

A = np.ones((2, 3), np.float32)


@nki.jit
def which(a):
    out = nl.ndarray((1, 2), dtype=nl.float32, buffer=nl.shared_hbm)
    tile = nl.ndarray((1, 2), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile[:, 0:1], value=float(nisa.get_nc_version().value))
    nisa.memset(dst=tile[:, 1:2], value=float(nl.num_programs()))
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize(("name", "generation"), [("gen2", 2), ("gen3", 3), ("gen4", 4)])
def test_the_version_of_a_test_wins_over_the_platform(monkeypatch, mode, name, generation):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert (target().generation, target_source()) == (3, "NEURON_PLATFORM_TARGET_OVERRIDE")
    monkeypatch.setenv("NKI_NC_VERSION", name)
    assert (target().generation, target_source()) == (generation, "NKI_NC_VERSION")
    assert nki.simulate(which, mode=mode)(A)[0, 0] == generation
    named = nki.jit(which.function, platform_target="trn2")
    assert nki.simulate(named, mode=mode)(A)[0, 0] == 3


def test_an_unknown_version(monkeypatch):
    monkeypatch.setenv("NKI_NC_VERSION", "gen9")
    with pytest.raises(nki.NeuronError, match="gen9") as caught:
        which(A)
    assert caught.value.code == "unknown-target"


@pytest.mark.parametrize("name", ["NKI_NC_VERSION", "NEURON_PLATFORM_TARGET_OVERRIDE"])
def test_an_unknown_target_names_the_variable(monkeypatch, name):
    monkeypatch.delenv("NKI_NC_VERSION", raising=False)
    monkeypatch.setenv(name, "gen9")
    with pytest.raises(nki.NeuronError, match=f"{name} is 'gen9'"):
        which(A)
    with pytest.raises(nki.NeuronError, match=r"unknown-target. 'gen8'"):
        nki.compile(which, A, target="gen8")


@pytest.mark.parametrize(
    "name",
    [
        "NEURON_LOGICAL_NC_CONFIG",
        "NEURON_PLATFORM_TARGET_OVERRIDE",
        "NKI_BACKEND",
        "NKI_CHECKS",
        "NKI_NC_VERSION",
        "NKI_NUM_THREADS",
        "NKI_PRECISE_FP",
    ],
)
def test_an_empty_variable_counts_as_none(monkeypatch, name):
    monkeypatch.setenv(name, "")
    assert which(A).shape == (1, 2)


def test_the_configured_size_of_a_logical_core(monkeypatch):
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert which[2](A)[0, 1] == 2
    with pytest.raises(
        nki.NeuronError, match=r"kernel\[2\]|NEURON_LOGICAL_NC_CONFIG is 2"
    ) as caught:
        which(A)
    assert caught.value.code == "core-mismatch"
    assert nki.simulate(which)(A)[0, 1] == 1  # the simulator takes what the launch says
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    assert which(A)[0, 1] == 1 and which[1](A)[0, 1] == 1
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "3")
    with pytest.raises(nki.NeuronError, match="it is 1 or 2"):
        which(A)


def test_simulator_variable(monkeypatch):
    """Plain calls run on the simulator with and without it, of jax arrays too."""
    expected = which(A)
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    np.testing.assert_array_equal(which(A), expected)
    jax = pytest.importorskip("jax")
    result = which(jax.numpy.asarray(A))
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(result, expected)


def rows_at(index):
    """The kernels of SDK neuron-runtime/nrtpy/tutorial-debug-neff-nrtpy.rst, oob_dma_kernel and
    fixed_dma_kernel: element 0 of row `index`, 8 times."""

    @nki.jit(platform_target="trn2")
    def dma_kernel(src_tensor):
        idx = nl.ndarray((8, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=idx, value=index)
        dst = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.sbuf)
        src = src_tensor.ap([[4, 8], [1, 1]], offset=0, vector_offset=idx, indirect_dim=0)
        nisa.dma_copy(dst=dst, src=src)
        out = nl.ndarray((8, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out, dst)
        return out

    return dma_kernel


def test_the_folder_of_compiled_programs(monkeypatch, tmp_path):
    """ "Even though execution fails, the NEFF is preserved": it fails again when loaded."""
    src = np.arange(32, dtype=np.float32).reshape(8, 4)
    path = tmp_path / "made" / "kernel.neff"
    monkeypatch.setenv("NKI_ARTIFACTS_DIR", str(path.parent))
    with pytest.raises(nki.NeuronError, match="99999"):
        rows_at(99999)(src)
    with pytest.raises(nki.NeuronError, match="99999"):
        nki.load(path)(src)
    np.testing.assert_array_equal(rows_at(3)(src), np.full((8, 1), 12))
    np.testing.assert_array_equal(nki.load(path)(2 * src), np.full((8, 1), 24))
    monkeypatch.setenv("NKI_ARTIFACTS_DIR", str(path / "inside"))
    with pytest.raises(nki.NeuronError, match=r"not-writable.*NKI_ARTIFACTS_DIR"):
        rows_at(2)(src)


@nki.jit(platform_target="trn2")
def shown(a):
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    print(tile)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_the_mode_of_a_program_that_says_none(monkeypatch, capsys):
    """NKI_MODE=eager lets `print` show values at every call, with no change to the program."""
    a = np.array([[1.5, -4.0]], np.float32)

    def printed(call):
        np.testing.assert_array_equal(call(a), 2 * a)
        return capsys.readouterr().out

    assert "[3. -8.]" not in printed(shown) and printed(shown) == ""  # traced once
    monkeypatch.setenv("NKI_MODE", "eager")
    for call in (shown, shown, nki.simulate(shown)):
        assert str(2 * a) in printed(call)
    text = printed(nki.simulate(shown, mode="reference"))
    assert "NKI_MODE=eager" in text and str(2 * a) not in text
    monkeypatch.setenv("NKI_MODE", "fast")
    with pytest.raises(nki.NeuronError, match=r"unknown-mode.*'fast'"):
        shown(a)


@nki.jit(platform_target="trn2")
def halves(a):
    """a * 3 stored as bfloat16; clears the first row of `a`."""
    tile = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
    out = nl.ndarray(a.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    nisa.dma_copy(dst=a[0:1], src=nl.zeros((1, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf))
    return out


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_low_precision_kept_as_fp32(monkeypatch, mode):
    bfloat16 = ml_dtypes.bfloat16
    given = np.array([[1.0, 1.0078125], [2.015625, 100.5]], bfloat16)
    exact = given.astype(np.float32) * 3
    rounded = nki.simulate(halves, mode=mode)(given.copy())
    assert rounded.dtype == bfloat16 and not np.array_equal(rounded.astype(np.float32), exact)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    a = given.copy()
    result = nki.simulate(halves, mode=mode)(a)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, exact)
    np.testing.assert_array_equal(a, [[0, 0], given[1]])
    monkeypatch.setenv("NKI_PRECISE_FP", "1")
    assert nki.simulate(halves, mode=mode)(given.copy()).dtype == bfloat16


def padded(a):
    """The last column of the result is padding that is never written, the one before of nothing."""
    out = nl.ndarray((2, 5), dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((2, 4), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[:, 0:3], src=a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nisa.dma_copy(dst=out[:, 0:4], src=tile)
    return out


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_padding_may_be_declared_harmless(monkeypatch, mode):
    """With the values that SDK nki/guides/nki_simulator.rst has, "Uninitialized Memory
    Detection"."""
    for value in ("", "refused"):
        monkeypatch.setenv("NKI_UNWRITTEN", value)
        with pytest.raises(nki.NeuronError, match="uninitialised-output"):
            nki.simulate(padded, mode=mode)(A)
    monkeypatch.setenv("NKI_UNWRITTEN", "allowed")
    with pytest.warns(RuntimeWarning, match="NKI0805 unwritten-result"):
        result = nki.simulate(padded, mode=mode)(A)
    np.testing.assert_array_equal(result, np.pad(2 * A, ((0, 0), (0, 2)), constant_values=np.nan))
    monkeypatch.setenv("NKI_UNWRITTEN", "yes")
    with pytest.raises(nki.NeuronError, match="it is allowed or refused"):
        nki.simulate(padded, mode=mode)(A)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_integers_that_nobody_wrote_are_four(monkeypatch, mode):
    def empty(a):
        return nl.ndarray((2, 5), dtype=nl.int32, buffer=nl.shared_hbm)

    monkeypatch.setenv("NKI_UNWRITTEN", "allowed")
    with pytest.warns(RuntimeWarning, match="unwritten-result"):
        assert (nki.simulate(empty, mode=mode)(A) == 4).all()
