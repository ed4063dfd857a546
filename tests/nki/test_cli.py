"""The command line: what commands print, write and return, for good and for bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from command_lines import INPUT, KERNELS, run, run_json


def test_intermediate_forms_can_be_printed(file, capsys) -> None:
    shape = ("--input", "a=(256,64):bfloat16", "--target", "trn2")
    code, traced, _ = run(capsys, "ir", f"{file}:scaled", *shape)
    assert code == 0 and "tensor_scalar" in traced
    code, program, _ = run(capsys, "ir", f"{file}:scaled", *shape, "--after", "program")
    assert code == 0 and "TensorScalar" in program
    code, _, err = run(capsys, "ir", f"{file}:scaled", *shape, "--after", "nonsense")
    assert code == 2 and "trace" in err and "program" in err


def test_a_profile_names_the_bound_and_writes_a_trace(file, capsys, tmp_path) -> None:
    trace = tmp_path / "t.json"
    arguments = ("profile", f"{file}:scaled", *INPUT, "--expect", "scaled_numpy")
    code, out, err = run(capsys, *arguments, "--perfetto", str(trace))
    assert (code, err) == (0, "")
    for word in ("trn2", "bound", "TensorE", "VectorE", "DMA", "SBUF", "agrees", str(trace)):
        assert word in out
    assert "kernels.py:" in out, "hot lines"
    events = json.loads(trace.read_text())["traceEvents"]
    assert any(event.get("ph") == "X" for event in events)
    code, data = run_json(capsys, *arguments)
    assert data["profile"]["total_ns"] > 0
    assert data["comparison"][0]["agrees"]


def test_close_names_come_first(file, capsys) -> None:
    _, data = run_json(capsys, "run", f"{file}:too_tal", *INPUT)
    listed = data["error"]["what"].partition("its kernels are ")[2]
    assert listed.startswith("too_tall")
    assert set(listed.split(", ")) == {"scaled", "rows", "too_tall", "raises", "forgets"}
    assert "too_tall" in data["error"]["hint"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "{file}:scaled", *INPUT, "--save-outputs", "{dir}/no/such"],
        ["run", "{file}:scaled", *INPUT, "--save-outputs", "{file}"],
        ["compile", "{file}:scaled", *INPUT, "-o", "{dir}/no/k.neff"],
        ["compile", "{file}:scaled", *INPUT, "-o", "{dir}"],
        ["profile", "{file}:scaled", *INPUT, "--perfetto", "{dir}/no/t.json"],
        ["profile", "{file}:scaled", *INPUT, "--plot", "{dir}/no/t.png"],
    ],
)
def test_an_unwritable_path_is_refused_before_any_work(file, capsys, arguments) -> None:
    folder = Path(file).parent
    filled = [a.format(file=file, dir=folder) for a in arguments]
    code, data = run_json(capsys, *filled)
    assert code == 6 and data["error"]["code"] == "not-writable"
    assert sorted(p.name for p in folder.iterdir()) == ["kernels.py"], "the kernel was not traced"
    assert Path(file).read_text() == KERNELS


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["profile", "{file}:scaled", *INPUT, "--plot", "t.xyz"], "usage", ".png, .svg"),
        (["run", "{text}:scaled", *INPUT], "unknown-kernel", "is no Python file"),
        (["disasm", "{file}"], "unknown-kernel", "is a Python file"),
    ],
)
def test_a_wrong_kind_of_file_is_called_that(file, capsys, arguments, code, words) -> None:
    text = Path(file).with_suffix(".txt")
    text.write_text("raise SystemExit('run as Python')\n")
    error = run_json(capsys, *(a.format(file=file, text=text) for a in arguments))[1]["error"]
    assert error["code"] == code and words in error["what"]


def test_a_failed_run_writes_nothing(file, capsys) -> None:
    folder = Path(file).parent / "out"
    code, _, _ = run(capsys, "run", f"{file}:forgets", *INPUT, "--save-outputs", str(folder))
    assert code == 4 and not folder.exists()


def test_neighbours_of_a_kernel_file_can_be_imported_without_hiding_modules(
    capsys, tmp_path
) -> None:
    (tmp_path / "neighbour_of_kernel.py").write_text("FACTOR = 4.0\n")
    (tmp_path / "simulator.py").write_text("raise ImportError('the wrong simulator')\n")
    (tmp_path / "json.py").write_text(KERNELS + "\nimport neighbour_of_kernel\n")
    before = sys.modules["json"]
    reference = f"{tmp_path / 'json.py'}:scaled"
    assert run(capsys, "run", reference, *INPUT)[0] == 0
    assert sys.modules["json"] is before
