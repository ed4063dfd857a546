"""Graphs printed as NKI source: what runs from that gives the results of the compiled graph, to the
bit."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import conformance_models
import numpy as np
import pytest

from graph_compiler import compile, load, parse_text
from graph_compiler.command import main
from nki.cli import main as nki_command

PRODUCT = """HloModule m
ENTRY e { x = f32[150,256] parameter(0)
  y = f32[256,64] parameter(1)
  c = f32[64] constant({C})
  b = f32[150,64] broadcast(c), dimensions={1}
  z = f32[150,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[150,64] add(z, b)
  ROOT r = f32[150,64] tanh(s) }""".replace("{C}", "{" + ",".join(map(str, range(64))) + "}")

ROWS = """HloModule m
ENTRY e { x = bf16[40,30] parameter(0)
  i = s32[6,1] parameter(1)
  ROOT r = bf16[6,30] gather(x, i), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,30} }"""

LOOP = """HloModule m
body { s = (s32[], f32[5,20], f32[20]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[5,20] get-tuple-element(s), index=1
  t = f32[20] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  j = s32[] add(i, one)
  row = f32[1,20] dynamic-slice(a, i, zero), dynamic_slice_sizes={1,20}
  flat = f32[20] reshape(row)
  u = f32[20] subtract(flat, t)
  ROOT r = (s32[], f32[5,20], f32[20]) tuple(j, a, u) }
condition { s = (s32[], f32[5,20], f32[20]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { a = f32[5,20] parameter(0)
  t = f32[20] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[5,20], f32[20]) tuple(zero, a, t)
  w = (s32[], f32[5,20], f32[20]) while(s), condition=condition, body=body
  ROOT r = f32[20] get-tuple-element(w), index=2 }"""


def as_kernel(source: str, path: Path) -> Any:
    """The kernel of a source, from a file."""
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    defined = (value for value in vars(module).values() if not isinstance(value, ModuleType))
    (kernel,) = (value for value in defined if hasattr(value, "trace"))
    return kernel


def printed(model: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    words = ["compile", model, "--framework", "XLA", "--target", "trn2", "--pipeline", "tensorize"]
    capsys.readouterr()
    assert main([*words, "--logfile", str(folder / "log")]) == 0
    return capsys.readouterr().out


def differing_from_source(module: Any, source: str, inputs: list[Any], folder: Path) -> list[int]:
    """The results of a graph that its source does not give."""
    compiled = compile(module, "trn2")
    expected = compiled(*inputs)
    found = as_kernel(source, folder / "source_of_graph.py")(*compiled._given(inputs))
    found = found if isinstance(found, tuple) else (found,)
    assert len(found) == len(expected)
    return [
        number
        for number, (one, other) in enumerate(zip(found, expected))
        if np.asarray(one).tobytes() != other.tobytes()
    ]


@pytest.mark.parametrize("text", [PRODUCT, ROWS, LOOP])
def test_the_source_of_a_graph_gives_its_results(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = parse_text(text)
    rng = np.random.default_rng(0)
    inputs = [
        rng.integers(0, 40, item.shape.dimensions).astype(np.int32)
        if item.shape.element_type == "s32"
        else rng.standard_normal(item.shape.dimensions).astype(item.shape.numpy_dtype())
        for item in module.parameters
    ]
    (tmp_path / "m").write_text(text)
    source = printed(str(tmp_path / "m"), tmp_path, capsys)
    assert differing_from_source(module, source, inputs, tmp_path) == []


def test_nki_run_takes_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m").write_text(PRODUCT)
    file = tmp_path / "source.py"
    file.write_text(printed(str(tmp_path / "m"), tmp_path, capsys))
    given = ["--input", "p0=ones(150,256):float32", "--input", "p1=zeros(256,64):float32"]
    code = nki_command(["run", f"{file}:m", *given, "--save-outputs", str(tmp_path / "results")])
    assert code == 0
    (saved,) = (tmp_path / "results").glob("*.npy")
    bias = np.tanh(np.arange(64, dtype=np.float32))
    np.testing.assert_allclose(np.load(saved), np.broadcast_to(bias, (150, 64)), rtol=1e-6)


MODELS = ("mamba_scan_infer_f32", "lstm_train_adam", "mnist_cnn_train_nnx")


@pytest.mark.parametrize("name", MODELS)
def test_nki_run_of_the_sources_of_models_gives_their_results(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], pytestconfig: pytest.Config
) -> None:
    """The command, on files of arrays."""
    if not pytestconfig.getoption("--all-conformance"):
        pytest.skip("slow: --all-conformance runs it")
    model = conformance_models.models().get(name)
    if model is None:
        pytest.skip("the conformance models are not beside this checkout")
    file = tmp_path / "source.py"
    file.write_text(printed(str(model.path), tmp_path, capsys))
    inputs = list(conformance_models.inputs_of(model))
    compiled = compile(load(model.path), "trn2")
    kernel = as_kernel(file.read_text(), tmp_path / "read.py")
    results = tmp_path / "results"
    words = ["--target", "trn2", "--save-outputs", str(results)]
    parameters = inspect.signature(kernel).parameters
    for parameter, array in zip(parameters, compiled._given(inputs), strict=True):
        np.save(tmp_path / f"{parameter}.npy", array)
        words += ["--input", f"{parameter}=@{tmp_path / parameter}.npy"]
    assert nki_command(["run", f"{file}:{kernel.__name__}", *words]) == 0
    expected = compiled(*inputs)
    assert len(list(results.iterdir())) == len(expected)
    for number, wanted in enumerate(expected):
        found = np.load(results / f"output{number}.npy")
        assert found.tobytes() == wanted.tobytes(), number
