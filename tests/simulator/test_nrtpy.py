"""The runtime of containers: what the SDK says of nrtpy, and the scripts of its tutorials."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.runtime import nrtpy
from simulator.runtime.nrtpy import NrtError, NrtpyError, NrtpyModel, NrtpyTensor
from simulator.runtime.status import Status

ROOT = Path(__file__).resolve().parents[2]


@nki.jit
def add(a_input, b_input):
    a = nl.load(a_input)
    b = nl.load(b_input)
    out = nl.ndarray(a_input.shape, dtype=a_input.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.add(a, b))
    return out


@nki.jit
def gathered(table, skipping):
    idx = nl.ndarray((4, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=idx, value=99999)
    dst = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=dst, value=2.0)
    mode = nisa.oob_mode.skip if skipping else nisa.oob_mode.error
    rows = table.ap(pattern=[[8, 4], [1, 8]], offset=0, vector_offset=idx, indirect_dim=0)
    nisa.dma_copy(dst=dst, src=rows, oob_mode=mode)
    out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, dst)
    return out


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("NEURON_RT_VISIBLE_CORES", raising=False)
    nrtpy.reset()
    yield
    nrtpy.reset()


@pytest.fixture(scope="module")
def neff(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("neff") / "kernel.neff"
    spec = nki.TensorSpec((4, 3), nl.float16)
    nki.compile(add, spec, spec, target="trn2").save(path)
    return path


def tensors(core_id: int = 0) -> dict[str, NrtpyTensor]:
    array = np.arange(12, dtype=np.float16).reshape(4, 3)
    return {
        name: NrtpyTensor.from_numpy(array, name=name, core_id=core_id)
        for name in ("a_input", "b_input")
    }


def test_a_model_runs_and_says_its_interface(neff: Path, tmp_path: Path) -> None:
    model = NrtpyModel.load_from_neff(neff)
    info = model.input_tensors_info["a_input"]
    assert (model.name, info.shape, info.size) == ("kernel", [4, 3], 24)
    wanted = np.arange(12, dtype=np.float16).reshape(4, 3) * 2
    outputs = model(inputs=tensors(), save_trace=True, ntff_name=tmp_path / "t.ntff")
    assert outputs is not None and (tmp_path / "t.ntff").stat().st_size > 0
    (result,) = outputs.values()
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result.numpy(), wanted)
    result.write_from_numpy(np.zeros((4, 3), np.float16))
    assert model(inputs=tensors(), outputs=outputs) is None
    np.testing.assert_array_equal(result.numpy(), wanted)


def test_benchmarks_have_device_and_host_times(neff: Path) -> None:
    model = NrtpyModel.load_from_neff(neff)
    stats = model.benchmark(tensors(), warmup_iter=1, benchmark_iter=3)
    _, profile = nki.load(neff).profile(*(tensor.numpy() for tensor in tensors().values()))
    assert stats.durations_ms == [profile.total_ns / 1e6] * 3
    assert (stats.mean_ms, stats.std_dev_ms, stats.iterations, stats.warmup_iterations) == (
        pytest.approx(stats.max_ms),
        0.0,
        3,
        1,
    )
    host = model.benchmark(tensors(), warmup_iter=0, benchmark_iter=2, mode="host")
    assert host.min_ms <= host.mean_ms <= host.max_ms and len(host.durations_ms) == 2
    with pytest.raises(ValueError, match="mode"):
        model.benchmark(tensors(), mode="wall")
    with pytest.raises(ValueError, match="benchmark_iter"):
        model.benchmark(tensors(), benchmark_iter=0)


def test_what_cannot_be_loaded_has_a_status(neff: Path, tmp_path: Path) -> None:
    with pytest.raises(NrtError) as missing:
        NrtpyModel.load_from_neff("nonexistent.neff")
    assert str(missing.value) == "NRT Error NRT_FAILURE(1): Failed to load model"
    broken = tmp_path / "broken.neff"
    broken.write_bytes(neff.read_bytes()[:-9])
    for path, core, status in (
        (broken, 0, Status.NRT_INVALID),
        (neff, 99, Status.NRT_LOAD_NOT_ENOUGH_NC),
    ):
        with pytest.raises(NrtError) as refused:
            NrtpyModel.load_from_neff(path, core_id=core)
        assert refused.value.status_code == status


def test_tensors_that_do_not_fit_are_refused(neff: Path) -> None:
    model = NrtpyModel.load_from_neff(neff)
    good = tensors()
    wrong = NrtpyTensor.from_numpy(np.zeros((3, 4), np.float16))
    for inputs in ({}, good | {"c": wrong}, good | {"a_input": wrong}, tensors(core_id=1)):
        with pytest.raises(NrtError, match=r"NRT_INVALID\(2\): Failed to execute model"):
            model(inputs=inputs)
    with pytest.raises(ValueError, match="24"):
        good["a_input"].write_from_numpy(np.zeros(3, np.float16))
    nrtpy.get_nrtpy_singleton().free_tensor(good["a_input"])
    with pytest.raises(NrtpyError, match="freed"):
        model(inputs=good)


def test_memory_is_counted_and_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    device = nrtpy.get_nrtpy_singleton()
    monkeypatch.setattr(device, "_room", 100)
    first = device.allocate_tensor(80)
    with pytest.raises(NrtError, match=r"NRT_RESOURCE\(4\): Failed to allocate tensor"):
        device.allocate_tensor(21)
    del first
    second = device.allocate_tensor(100)
    device.free_tensor(second)
    device.free_tensor(second)
    assert device.allocate_tensor(100).size == 100


def test_visible_cores_are_configured_before_the_first_use() -> None:
    for wrong in (1, ["0"], [True]):
        with pytest.raises(TypeError):
            nrtpy.configure(visible_cores=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        nrtpy.configure(visible_cores=[-1])
    nrtpy.configure(visible_cores=range(2, 4))
    tensor = NrtpyTensor.from_numpy(np.ones(3), core_id=1)
    assert nrtpy.get_nrtpy_singleton().get_visible_neuron_core_count() == 2
    with pytest.raises(RuntimeError, match="reset"):
        nrtpy.configure(visible_cores=[0])
    with pytest.raises(NrtError, match="NRT_INVALID"):
        NrtpyTensor.from_numpy(np.ones(3), core_id=2)
    nrtpy.reset()
    with pytest.raises(NrtpyError):
        tensor.numpy()


@pytest.mark.parametrize("skipping", [False, True])
def test_an_index_outside_is_reported_or_skipped(tmp_path: Path, skipping: bool) -> None:
    path = tmp_path / "gather.neff"
    nki.compile(gathered, nki.TensorSpec((16, 8), nl.float32), skipping, target="trn2").save(path)
    model = NrtpyModel.load_from_neff(path)
    inputs = {"table": NrtpyTensor.from_numpy(np.ones((16, 8), np.float32))}
    if skipping:
        outputs = model(inputs=inputs)
        assert outputs is not None
        assert (next(iter(outputs.values())).numpy() == 2.0).all()
        return
    with pytest.raises(NrtError) as error:
        model(inputs=inputs)
    assert str(error.value) == "NRT Error NRT_EXEC_OOB(1006): Failed to execute model"
    assert "99999" in error.value.__notes__[0]


PAGES = ("tutorial-debug-neff-nrtpy.rst", "tutorial-validate-benchmark.rst")


def blocks(page: str) -> list[str]:
    """The Python blocks of a page, each with the import changed."""
    found = re.findall(r"\.\. code-block:: python\n\n((?:   .*\n|\n)+)", page)
    return [
        re.sub(r"\bfrom nrtpy\b", "from simulator.runtime.nrtpy", textwrap.dedent(block))
        for block in found
    ]


def script(folder: Path, text: str) -> str:
    """What a script prints, run in a folder."""
    command = [sys.executable, "-c", text]
    environment = {"PYTHONPATH": f"{ROOT}:{folder}", "PATH": "", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_official_tutorials_run(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    checkout = request.config.getoption("--neuron-sdk")
    if checkout is None:
        pytest.skip("needs --neuron-sdk=PATH, a checkout of aws-neuron/aws-neuron-sdk")
    debug, validate = ((checkout / "neuron-runtime" / "nrtpy" / p).read_text() for p in PAGES)
    oob, compiles, debugs, fixed, validates, confirms = blocks(debug)
    (tmp_path / "oob_kernel.py").write_text(oob)
    (tmp_path / "fixed_kernel.py").write_text(fixed)
    assert "NEFF saved: ./oob_neff/kernel.neff" in script(tmp_path, compiles)
    said = script(tmp_path, debugs)
    assert "src_tensor: shape=[128, 512], size=262144" in said
    assert "NRT Error NRT_EXEC_OOB(1006): Failed to execute model" in said
    assert "(128, 512)" in script(tmp_path, validates)
    # The page prints five ones, but its patterns ([[512, 128], [1, 1]]) copy one element a row.
    assert "[1. 0. 0. 0. 0.]" in script(tmp_path, confirms)
    spec = nki.TensorSpec((4, 3), nl.float16)
    (tmp_path / "add_neff").mkdir()
    nki.compile(add, spec, spec, target="trn2").save(tmp_path / "add_neff" / "kernel.neff")
    said = script(tmp_path, "\n".join(blocks(validate)))
    assert "Results: 5 passed, 0 failed" in said and "OK: 1.00x" in said
    assert (tmp_path / "kernel_trace.ntff").stat().st_size > 0
