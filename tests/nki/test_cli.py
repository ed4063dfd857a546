"""The command line: what commands print, write and return, for good and for bad input."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import zlib
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from isa.errors import CATALOGUE
from isa.errors.warned import WARNINGS
from isa.machine import MACHINE_INSTRUCTIONS
from isa.operations import OPERATIONS
from nki.cli import main
from nki.cli.application import COMMANDS
from nki.cli.exit_codes import EXIT_CODES, exit_code_of

ROOT = Path(__file__).resolve().parents[2]

KERNELS = '''
"""Kernels for the tests of the command line. Nothing here is a notebook cell."""
from __future__ import annotations

import dataclasses
import pathlib

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


@dataclasses.dataclass
class Options:
    factor: float = 2.0


def scaled_numpy(a, factor=2.0):
    return a.astype(np.float32) * factor


def wrong_numpy(a):
    return a.astype(np.float32) * 2.01


def body(a, factor):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        rows = nl.ds(start, 128)
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[rows, :])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
        nisa.dma_copy(dst=out[rows, :], src=tile)
    return out


@nki.jit
def scaled(a, factor=2.0):
    pathlib.Path(__file__).with_suffix(".traced").touch()
    return body(a, Options(factor).factor)


def scaled_plain(a):
    return body(a, 2.0)


@nki.jit
def rows(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(a.shape[0] // 128):
        tile = nl.ndarray((128, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(i * 128, 128), :])
        nisa.dma_copy(dst=out[nl.ds(i * 128, 128), :], src=tile)
    return out


@nki.jit
def too_tall(a):
    tile = nl.ndarray((256, 4), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    return tile


@nki.jit
def raises(a):
    return {}["missing"]


@nki.jit
def forgets(a):
    return nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)


NOT_A_KERNEL = 3
'''


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return str(path)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    """Exit code and data of a command line with --json."""
    code, out, err = run(capsys, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


INPUT = ("--input", "a=normal(256,64):bfloat16", "--target", "trn2")


# Running


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


# Compiling and containers


def compiled(file: str, capsys: pytest.CaptureFixture[str]) -> str:
    container = str(Path(file).with_name("rows.neff"))
    code, data = run_json(
        capsys,
        *("compile", f"{file}:rows", "--input", "a=(M,64):bfloat16", "--target", "trn2"),
        *("--symbol", "M:multiple_of=128,max=1024", "-o", container),
    )
    assert code == 0 and data["bytes"] == os.path.getsize(container)
    assert [symbol["name"] for symbol in data["symbols"]] == ["M"]
    assert data["parameters"] == [{"name": "a", "shape": ["M", "64"], "dtype": "bfloat16"}]
    (core,) = data["cores"]
    assert core["instructions"]["sync"]["DmaCopy"] >= 1
    assert core["memory"]["sbuf"]["peak_bytes_per_partition"] >= 128
    assert core["memory"]["sbuf"]["capacity_bytes_per_partition"] == 224 * 1024
    return container


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


def test_disassembly_can_be_limited_to_an_engine(file, capsys) -> None:
    container = compiled(file, capsys)
    code, whole, _ = run(capsys, "disasm", container)
    assert code == 0 and whole.startswith(".program") and ".stream sync" in whole
    code, part, _ = run(capsys, "disasm", container, "--engine", "sync")
    assert code == 0 and "DmaCopy" in part and ".stream" not in part
    assert all(line.strip() in whole for line in part.splitlines()[1:])
    code, out, err = run(capsys, "disasm", container, "--engine", "pool")
    assert code == 2 and "gpsimd" in err and out == ""


def test_disassembly_shows_the_loops(file, capsys) -> None:
    container = compiled(file, capsys)
    code, out, _ = run(capsys, "disasm", container, "--loops")
    assert code == 0 and "; core 0, sync: " in out and "DmaCopy" in out
    code, one, _ = run(capsys, "disasm", container, "--loops", "--engine", "gpsimd")
    assert code == 0 and one.startswith("; core 0, gpsimd: ") and one.strip() in out


def test_a_damaged_container_is_refused(file, capsys) -> None:
    path = Path(compiled(file, capsys))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    code, out = run_json(capsys, "disasm", str(path))
    assert code == 5 and out["error"]["code"] == "container-corrupt"
    path.write_bytes(data[:500])
    code, out = run_json(capsys, "run", str(path), "--input", "a=ones(128,64):bfloat16")
    assert code == 5 and out["error"]["code"] == "container-truncated"


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


# Bad input


@pytest.mark.parametrize(
    ("arguments", "error", "exit_code", "words"),
    [
        (["run", "{dir}/no.py:k"], "file-not-found", 6, ["no.py"]),
        (["run", "{dir}:k"], "file-not-found", 6, ["folder"]),
        (["run", "{file}:scalde", *INPUT], "unknown-kernel", 2, ["scaled, ", "too_tall"]),
        (["run", "{file}", *INPUT], "unknown-kernel", 2, ["scaled", "rows"]),
        (["run", "{file}:NOT_A_KERNEL"], "unknown-kernel", 2, ["int"]),
        (["run", "{file}:scaled", "--input", "b=ones(2,2)"], "unknown-input", 2, ["a, factor"]),
        (["run", "{file}:scaled"], "unknown-input", 2, ["needs a", "a, factor"]),
        (["run", "{file}:scaled", *INPUT, *INPUT], "unknown-input", 2, ["twice"]),
        (
            ["run", "{file}:scaled", "--input", "a=norml(2,2)"],
            "bad-input-spec",
            2,
            ["mean normal?"],
        ),
        (["run", "{file}:scaled", *INPUT, "--arg", "a=1"], "unknown-input", 2, ["--arg"]),
        (["run", "{file}:scaled", "--input", "a=(2,2)"], "bad-input-spec", 2, ["no values"]),
        (["run", "{file}:scaled", "--input", "a=@no.npy"], "file-not-found", 6, ["no.npy"]),
        (["run", "{file}:scaled", "--input", "a=@{file}"], "bad-input-spec", 2, ["not a NumPy"]),
        (["run", "{file}:scaled", *INPUT, "--mode", "fast"], "unknown-mode", 2, ["eager"]),
        (["run", "{file}:scaled", *INPUT, "--target", "trn9"], "unknown-target", 2, ["trn9"]),
        (["run", "{file}:scaled", *INPUT, "--expect", "no"], "unknown-function", 2, ["no"]),
        (["run", "{file}:scaled", *INPUT, "--arg", "factor"], "bad-input-spec", 2, ["--arg scale"]),
        (
            ["compile", "{file}:scaled", *INPUT, "--symbol", "N:max"],
            "bad-input-spec",
            2,
            ["--symbol M"],
        ),
        (["compile", "{file}:rows", "--input", "a=(N,4)"], "bad-input-spec", 2, ["--symbol N"]),
        (["compile", "{file}:rows", *INPUT, "--symbol", "N"], "bad-input-spec", 2, ["no --input"]),
        (["compile", "{file}:rows", *INPUT, "--symbol", "N:m=1"], "bad-input-spec", 2, ["max"]),
        (["run", "{file}:too_tall", *INPUT], "partition-limit", 3, ["256"]),
        (["run", "{file}:forgets", *INPUT], "output-not-written", 4, []),
    ],
)
def test_bad_input_has_a_code_an_exit_code_and_a_way_out(
    file, capsys, arguments, error, exit_code, words
) -> None:
    filled = [a.format(file=file, dir=os.path.dirname(file)) for a in arguments]
    code, data = run_json(capsys, *filled)
    assert (data["error"]["code"], code, data["exit_code"]) == (error, exit_code, exit_code)
    assert data["error"]["number"] == CATALOGUE[error].number
    for word in words:
        assert word in data["error"]["what"] + data["error"]["hint"]
    code, out, err = run(capsys, *filled)
    assert (code, out) == (exit_code, "")
    assert f"NKI{CATALOGUE[error].number:04d}" in err
    assert "Traceback" not in err
    for label in ("what:", "why:", "try:"):
        assert label in err


def test_close_names_come_first(file, capsys) -> None:
    _, data = run_json(capsys, "run", f"{file}:too_tal", *INPUT)
    listed = data["error"]["what"].partition("its kernels are ")[2]
    assert listed.startswith("too_tall")
    assert set(listed.split(", ")) == {"scaled", "rows", "too_tall", "raises", "forgets"}
    assert "too_tall" in data["error"]["hint"]


def test_a_refused_kernel_shows_its_own_line_with_a_caret(file, capsys) -> None:
    _, _, err = run(capsys, "run", f"{file}:too_tall", *INPUT)
    line = "tile = nl.ndarray((256, 4), dtype=a.dtype, buffer=nl.sbuf)"
    number = KERNELS.splitlines().index("    " + line) + 1
    assert f"{file}:{number} in too_tall" in err
    shown = err.splitlines()
    index = next(n for n, text in enumerate(shown) if line in text)
    caret = shown[index + 1]
    start, end = caret.index("^"), caret.rindex("^") + 1
    assert shown[index][start:end] == line.partition("= ")[2]
    _, data = run_json(capsys, "run", f"{file}:too_tall", *INPUT)
    assert data["error"]["location"]["line"] == number
    assert data["error"]["location"]["function"] == "too_tall"


def test_own_frames_are_shown_only_on_request(file, capsys, monkeypatch) -> None:
    monkeypatch.delenv("NKI_TRACEBACK", raising=False)
    own = f'File "{ROOT}'
    code, _, err = run(capsys, "run", f"{file}:raises", *INPUT)
    assert code == 3 and own not in err
    assert err.rstrip().splitlines()[-2].startswith("KeyError: 'missing'")
    frames = [line for line in err.splitlines() if line.strip().startswith("File")]
    assert len(frames) == 1 and file in frames[0] and "in raises" in frames[0]
    code, _, err = run(capsys, "run", f"{file}:raises", *INPUT, "--traceback")
    assert code == 3 and own in err
    code, _, err = run(capsys, "run", f"{file}:too_tall", *INPUT, "--traceback")
    assert code == 3 and own in err and "NKI0101" in err
    code, _, err = run(capsys, "run", f"{file}:too_tall", *INPUT)
    assert own not in err, "--traceback holds for its own command only"
    monkeypatch.setenv("NKI_TRACEBACK", "1")
    assert own in run(capsys, "run", f"{file}:raises", *INPUT)[2]


def test_an_exception_of_the_file_itself_is_the_users(capsys, tmp_path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nki\n\nvalue = 1 / 0\n")
    code, _, err = run(capsys, "run", f"{path}:k")
    assert code == 3 and "ZeroDivisionError" in err and f'"{path}", line 3' in err
    path = tmp_path / "syntax.py"
    path.write_text("def k(a):\n    return (\n")
    code, _, err = run(capsys, "run", f"{path}:k")
    assert code == 3 and "SyntaxError" in err and f'"{path}", line 2' in err


def test_a_defect_of_ours_says_so(file, capsys, monkeypatch) -> None:
    # It raises TypeError in the caller's frame.
    monkeypatch.setattr("simulator.parallel_slices.load", dict)
    code, out, err = run(capsys, "profile", f"{file}:scaled", *INPUT)
    assert (code, out) == (70, "")
    assert "internal error: TypeError" in err and "--traceback" in err
    assert run_json(capsys, "profile", f"{file}:scaled", *INPUT)[0] == 70


def test_usage_errors_end_with_exit_code_2(file, capsys) -> None:
    code, _, err = run(capsys, "run", f"{file}:scaled", "--no-such-option")
    assert code == 2 and "--no-such-option" in err and "nki run --help" in err
    code, data = run_json(capsys, "run", f"{file}:scaled", "--lnc", "3")
    assert code == 2 and data["error"]["code"] == "usage" and data["exit_code"] == 2
    assert run(capsys, "nonsense")[0] == 2


def test_interruption_has_its_exit_code(file, capsys, monkeypatch) -> None:
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("nki.cli.launch.prepare", interrupt)
    assert run(capsys, "run", f"{file}:scaled")[0] == 130


# Files


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


# Catalogue, help


def test_every_error_can_be_looked_up(capsys) -> None:
    code, data = run_json(capsys, "errors")
    assert code == 0
    assert {e["code"]: e["number"] for e in data["errors"]} == {
        code: entry.number for code, entry in (CATALOGUE | WARNINGS).items()
    }
    for text in ("wrong-memory", "102", "NKI0102", "nki0102"):
        code, out, _ = run(capsys, "errors", text)
        assert code == 0 and "wrong-memory" in out and "why" in out and "try" in out
    code, _, err = run(capsys, "errors", "wrong-memry")
    assert code == 2 and "wrong-memory" in err


def test_every_error_has_an_exit_code_of_the_table() -> None:
    assert len({row.number for row in EXIT_CODES}) == len(EXIT_CODES)
    for code, entry in CATALOGUE.items():
        assert exit_code_of(code, entry.number) in EXIT_CODES
        assert exit_code_of(code, entry.number).number not in (0, 1)


def test_help_lists_commands_and_exit_codes(capsys) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    for command in COMMANDS:
        assert f"  {command.name} " in out
        assert run(capsys, command.name, "--help")[0] == 0
    for row in EXIT_CODES:
        assert f"{row.number:>4}  {row.name}" in out
    assert run(capsys) == (2, out, "")
    assert run(capsys, "--version")[1].startswith("nki, version")


def test_operations_can_be_looked_up(capsys) -> None:
    code, out, _ = run(capsys, "isa")
    assert code == 0 and "nc_matmul" in out and "MultiplyMoving" in out
    assert "nki.isa.nc_matmul(" in run(capsys, "isa", "nc_matmul")[1]
    assert "0x11" in run(capsys, "isa", "MultiplyMoving")[1]
    code, _, err = run(capsys, "isa", "nc_matmull")
    assert code == 2 and "nc_matmul" in err


@pytest.mark.parametrize("name", [*MACHINE_INSTRUCTIONS, *OPERATIONS])
def test_every_row_has_a_card(capsys, name):
    row = {**MACHINE_INSTRUCTIONS, **OPERATIONS}[name]
    code, out, _ = run(capsys, "isa", name)
    words = " ".join(inspect.getdoc(row).split()[:4])
    assert code == 0 and words.replace("`", "") in out.replace("`", "").replace("\n", " ")
    assert [field for field in row.fields if not re.search(rf"\b{field}\b", out)] == []


def test_names_of_cards_as_kernels_spell_them(capsys):
    _, expected, _ = run(capsys, "isa", "nc_matmul")
    for name in ("nisa.nc_matmul", "nki.isa.nc_matmul", "NC_Matmul"):
        assert run(capsys, "isa", name)[1] == expected
    assert run(capsys, "isa", "iota")[1] != run(capsys, "isa", "Iota")[1]


def test_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "nki.cli", "errors"]
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, text=True)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")
