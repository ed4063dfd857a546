"""How commands end that fail: codes, lines of the user's file, frames."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_lines import INPUT, KERNELS, run, run_json

from isa.errors import CATALOGUE

ROOT = Path(__file__).resolve().parents[2]


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


def test_a_closed_pipe_is_no_error() -> None:
    command = [sys.executable, "-m", "nki.cli", "errors"]
    reader, writer = os.pipe()
    os.close(reader)
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, cwd=ROOT, text=True)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, "")
