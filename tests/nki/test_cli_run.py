"""The command `nki run`: what it prints, compares and writes."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from command_lines import INPUT, compiled, run, run_json


def test_a_run_shows_shapes_values_and_the_comparison(file, capsys) -> None:
    code, out, err = run(capsys, "run", f"{file}:scaled", *INPUT, "--expect", "scaled_numpy")
    assert (code, err) == (0, "")
    assert "[256, 64]" in out and "bfloat16" in out and "trn2" in out
    assert "agrees" in out
    assert "tolerance * max(|expected|, rms(expected))" in out, "the bound is stated"


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_every_mode_gives_what_numpy_gives(file, capsys, mode) -> None:
    folder = Path(file).parent / "out"
    code, data = run_json(
        capsys,
        *("run", f"{file}:scaled", *INPUT, "--arg", "factor=3.0", "--mode", mode),
        *("--save-outputs", str(folder), "--expect", "scaled_numpy", "--seed", "7"),
    )
    assert code == 0 and data["mode"] == mode and data["seed"] == 7
    random = np.random.default_rng([7, zlib.crc32(b"a")])
    a = random.standard_normal((256, 64), dtype=np.float32).astype(ml_dtypes.bfloat16)
    expected = (a.astype(np.float32) * 3.0).astype(ml_dtypes.bfloat16)
    (path,) = data["saved"]
    saved = np.load(path).view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(saved, expected)
    (output,) = data["outputs"]
    assert output["maximum"] == float(expected.max())
    assert output["first"] == expected.reshape(-1)[:4].astype(float).tolist()


def test_a_difference_ends_with_exit_code_1_after_all_is_shown(file, capsys) -> None:
    code, data = run_json(capsys, "run", f"{file}:scaled", *INPUT, "--expect", "wrong_numpy")
    assert code == 0, "bfloat16 outputs agree within two units in the last place"
    tight = ("--expect", "wrong_numpy", "--tolerance", "1e-3")
    code, data = run_json(capsys, "run", f"{file}:scaled", *INPUT, *tight)
    assert code == 1
    (comparison,) = data["comparison"]
    assert not comparison["agrees"] and comparison["elements_outside"] > 0
    assert data["outputs"]


def test_a_reference_may_be_in_another_file(file, capsys, tmp_path) -> None:
    other = tmp_path / "reference.py"
    other.write_text("def twice(anything):\n    return anything * 2\n")
    expect = ("--expect", f"{other}:twice")
    assert run(capsys, "run", f"{file}:scaled", *INPUT, *expect)[0] == 0


def test_a_plain_function_is_a_kernel_and_files_are_inputs(file, capsys, tmp_path) -> None:
    array = np.arange(128 * 3, dtype=np.float32).reshape(128, 3)
    np.save(tmp_path / "a.npy", array)
    target = ("--target", "trn1", "--lnc", "1")
    code, data = run_json(
        capsys, "run", f"{file}:scaled_plain", "--input", f"a=@{tmp_path / 'a.npy'}", *target
    )
    assert code == 0 and data["target"] == "trn1"
    assert data["outputs"][0]["maximum"] == 2.0 * 383


def test_updated_inputs_are_outputs(capsys, tmp_path) -> None:
    path = tmp_path / "update.py"
    path.write_text(
        "import nki.isa as nisa, nki.language as nl\n"
        "def update(a):\n"
        "    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)\n"
        "    nisa.memset(dst=tile, value=5.0)\n"
        "    nisa.dma_copy(dst=a, src=tile)\n"
        "def fives(a):\n"
        "    return a * 0 + 5\n"
    )
    for mode in ("device", "reference", "eager"):
        code, data = run_json(
            capsys,
            *("run", f"{path}:update", "--input", "a=zeros(4,8):float32", "--expect", "fives"),
            *("--mode", mode),
        )
        assert code == 0
        assert [output["name"] for output in data["outputs"]] == ["a"]
        assert data["outputs"][0]["mean"] == 5.0


def test_the_default_target_is_the_documented_one_or_the_environments(
    file, capsys, monkeypatch
) -> None:
    inputs = ("--input", "a=ones(128,4):float32")
    monkeypatch.delenv("NEURON_PLATFORM_TARGET_OVERRIDE", raising=False)
    assert run_json(capsys, "run", f"{file}:scaled", *inputs)[1]["target"] == "trn3"
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "gen3")
    assert run_json(capsys, "run", f"{file}:scaled", *inputs)[1]["target"] == "trn2"


def test_a_container_runs_for_every_admitted_size(file, capsys) -> None:
    container = compiled(file, capsys)
    for size in (128, 384, 1024):
        inputs = ("--input", f"a=normal({size},64):bfloat16")
        code, data = run_json(capsys, "run", container, *inputs)
        assert code == 0 and data["outputs"][0]["shape"] == [size, 64]
        assert data["outputs"][0]["first"] != [0, 0, 0, 0]
    code, data = run_json(capsys, "run", container, "--input", "a=zeros(100,64):bfloat16")
    assert data["error"]["code"] == "guard-refused" and code == data["exit_code"] == 3


@pytest.mark.parametrize("command", ["run", "profile"])
@pytest.mark.parametrize(
    ("arguments", "error", "exit_code"),
    [
        (["--input", "a=zeros(128,64):float32"], "input-mismatch", 5),
        (["--input", "a=zeros(128,65):bfloat16"], "input-mismatch", 5),
        (["--input", "b=zeros(128,64):bfloat16"], "unknown-input", 2),
        ([], "unknown-input", 2),
        (["--input", "a=zeros(128,64):bfloat16", "--arg", "k=1"], "unknown-input", 2),
        (["--input", "a=zeros(128,64):bfloat16", "--target", "trn1"], "unknown-target", 2),
        (["--input", "a=zeros(128,64):bfloat16", "--expect", "f"], "unknown-function", 2),
    ],
)
def test_a_container_refuses_what_it_is_not_for(
    file, capsys, command, arguments, error, exit_code
) -> None:
    code, data = run_json(capsys, command, compiled(file, capsys), *arguments)
    assert (data["error"]["code"], code) == (error, exit_code)


def test_a_container_runs_where_no_kernel_source_is(file, capsys) -> None:
    container = compiled(file, capsys)
    os.unlink(file)
    inputs = ("--input", "a=ones(256,64):bfloat16")
    code, data = run_json(capsys, "run", container, *inputs)
    assert code == 0 and data["outputs"][0]["mean"] == 1.0
