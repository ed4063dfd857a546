"""Tuned kernels against the times that `nki.profile` gives one by one."""

from __future__ import annotations

import numpy as np
import pytest
from matmul_kernels import blocked, matmul_numpy
from tuned_kernels import A, settings, shifted

import nki
import nki.isa as nisa
import nki.language as nl
from nki.tuning import stored_times

CHOICES = {"block_m": [1, 2], "block_n": [1, 2], "block_k": [1, 2]}

pytestmark = pytest.mark.usefixtures("no_kept_times")


def operands(k, m, n):
    generator = np.random.default_rng(1)
    return [generator.standard_normal(shape).astype(np.float32) for shape in ((k, m), (k, n))]


def exhaustive(arrays, choices):
    """Every setting, and the time of its profile."""
    return [(s, nki.profile(blocked)(*arrays, **s)[1].total_ns) for s in settings(choices)]


def tuned_as_exhaustive_search(arrays, choices):
    tuned = nki.autotune(choices, reference=matmul_numpy, processes=2)(blocked)
    best = tuned.best(*arrays)
    times = exhaustive(arrays, choices)
    assert [(m.setting, m.total_ns) for m in tuned.sweep.measurements] == times
    assert best == min(times, key=lambda pair: pair[1])[0]
    return tuned


def test_autotune_finds_what_exhaustive_search_finds():
    arrays = operands(256, 256, 1024)
    tuned = tuned_as_exhaustive_search(arrays, CHOICES)
    np.testing.assert_allclose(tuned(*arrays), matmul_numpy(*arrays), rtol=1e-3, atol=1e-3)


def test_autotune_finds_the_best_of_64_settings(request):
    if not request.config.getoption("--all-settings"):
        pytest.skip("64 settings of the tutorial's matmul are tuned with --all-settings")
    sizes = [1, 2, 4, 8]
    choices = {"block_m": sizes, "block_n": sizes, "block_k": sizes}
    tuned_as_exhaustive_search(operands(1024, 1024, 4096), choices)


@nki.jit
def pieced(a, pieces):
    """As `shifted`, without an assertion: one that pytest rewrote has no content to keep by."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    width = a.shape[1] // pieces
    for start in range(0, a.shape[1], width):
        tile = nl.load(a[:, nl.ds(start, width)])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1)
        nl.store(out[:, nl.ds(start, width)], tile)
    return out


def test_the_gate_keeps_wrong_settings_out():
    """The fastest setting is wrong; the next one that is right is taken."""
    wide = np.zeros((128, 4096), np.float32)
    choices = [{"pieces": 2, "shift": 1}, {"pieces": 16, "shift": 0}, {"pieces": 1, "shift": 0}]
    tuned = nki.autotune(choices, reference=lambda a: a + 1, processes=1)(shifted)
    assert tuned.best(wide) == {"pieces": 1, "shift": 0}
    assert tuned.sweep.best.setting == choices[0]
    np.testing.assert_array_equal(tuned(wide), wide + 1)
    with pytest.raises(nki.NeuronError, match="No setting of shifted agrees"):
        nki.autotune(choices[:1], reference=lambda a: a + 1, processes=1)(shifted)(wide)


def test_the_best_is_kept_by_shape_target_and_reference(monkeypatch):
    tuned = nki.autotune({"pieces": [4, 1]}, reference=lambda a: a + 1, processes=1)(pieced)

    def again(tuned, *args):
        tuned.sweep = None
        tuned.best(*args)
        return tuned.sweep is not None

    assert again(tuned, A)
    assert not again(tuned, A + 5)
    monkeypatch.setattr(stored_times, "_TIMES", {})  # as in another process
    assert not again(tuned, A)
    assert again(tuned, A[:64])
    assert again(tuned.on("trn1"), A)
    other = nki.autotune({"pieces": [4, 1]}, reference=lambda a: 1 + a, processes=1)(pieced)
    assert again(other, A)
