"""Sweeps and tuned kernels against the times that `nki.profile` gives one by one."""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from matmul_kernels import blocked, matmul_numpy

import nki
import nki.isa as nisa
import nki.language as nl
from nki.tuning import stored_times

CHOICES = {"block_m": [1, 2], "block_n": [1, 2], "block_k": [1, 2]}


@pytest.fixture(autouse=True)
def _nothing_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(stored_times, "_TIMES", {})


def operands(k, m, n):
    generator = np.random.default_rng(1)
    return [generator.standard_normal(shape).astype(np.float32) for shape in ((k, m), (k, n))]


def settings(choices):
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]


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
def shifted(a, pieces, shift=0):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    width = a.shape[1] // pieces
    assert width % 2 == 0, "pieces are even"
    for start in range(0, a.shape[1], width):
        tile = nl.load(a[:, nl.ds(start, width)])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1 + shift)
        nl.store(out[:, nl.ds(start, width)], tile)
    return out


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


A = np.zeros((128, 512), np.float32)


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


def test_times_are_kept_by_content():
    calls = []

    @nki.jit
    def copy(a, pieces):
        calls.append(pieces)
        return shifted(a, pieces)

    run = nki.sweep(copy, {"pieces": [1, 2]}, processes=1)
    first, traced = run(A), len(calls)
    assert traced
    assert run(A).measurements == first.measurements
    del calls[traced:]  # what a kernel appends to is part of its content


def test_settings_that_do_not_compile_are_in_the_table_with_the_reason(capfd):
    found = nki.sweep(shifted, {"pieces": [256, 512, 1]}, processes=1)(A)
    assert [bool(m.error) for m in found.measurements] == [False, True, False]
    assert "pieces are even" in found.text()
    assert "pieces are even" in found._repr_html_()
    assert found.best.setting == {"pieces": 1}
    assert capfd.readouterr() == ("", "")  # a bar is for terminals only


@pytest.mark.parametrize("parallel", ["threads", "spawned processes"])
def test_any_executor_gives_the_same_times(parallel):
    expected = nki.sweep(blocked, {"block_m": [1, 2]}, processes=1)
    spec = nki.TensorSpec((512, 256), nl.float32), nki.TensorSpec((512, 1024), nl.float32)
    expected = expected(*spec).measurements
    stored_times._TIMES.clear()
    for file in stored_times.Cache(stored_times._version()).folder.iterdir():
        file.unlink()
    executor = (
        ThreadPoolExecutor(2)
        if parallel == "threads"
        else ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    )
    with executor:
        found = nki.sweep(blocked, {"block_m": [1, 2]}, executor=executor)(*spec).measurements
    assert found == expected


def test_a_benchmark_is_the_time_of_a_profile():
    found = nki.benchmark(shifted)(A, pieces=4)
    metrics = nki.profile(shifted)(A, pieces=4)[1]
    assert (found.total_ns, found.device_ns) == (metrics.total_ns, metrics.device_ns)
    assert found.hbm_bytes == 2 * A.nbytes


def test_a_kernel_whose_loop_depends_on_data_is_run():
    @nki.jit
    def repeated(a, count):
        tile, number = nl.load(a), nl.load(count)
        register = nisa.register_alloc(None)
        nisa.register_load(register, number)

        def body(_):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, register, body)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    def time(count):
        return nki.benchmark(repeated)(A, np.array([[count]], np.int32)).total_ns

    assert time(40) - time(20) == pytest.approx(time(20) - time(0), rel=0.1)


def test_a_sweep_is_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    figure = nki.sweep(shifted, {"pieces": [1, 2, 4]}, processes=1)(A).plot()
    assert len(figure.axes[0].patches) == 3
    figure.savefig(tmp_path / "sweep.png")


def test_a_grid_without_settings_is_refused():
    with pytest.raises(nki.NeuronError, match="no settings"):
        nki.sweep(shifted, {"pieces": []})
