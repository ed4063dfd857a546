"""What shells offer while a user types an `nki` command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nki
from nki.cli import main

ROOT = Path(nki.__file__).resolve().parents[1]

NO_FILES_OF_THE_USER = {"bash": ["--norc"], "fish": ["--no-config"], "zsh": ["-f"]}


def offered(monkeypatch: pytest.MonkeyPatch, capsys, words: str) -> list[str]:
    """The words that bash gets for a line that ends where the user types."""
    monkeypatch.setattr(sys, "argv", ["nki"])
    monkeypatch.setenv("NKI_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    assert main() == 0
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("nki do", ["doctor"]),
        ("nki d", ["diff", "disasm", "doctor"]),
        ("nki isa tensor_tens", ["tensor_tensor", "tensor_tensor_scan"]),
        ("nki errors wrong-mem", ["wrong-memory"]),
        ("nki doctor --js", ["--json"]),
        ("nki run --target tr", ["trn1", "trn2", "trn3"]),
    ],
)
def test_commands_names_and_options_are_offered(monkeypatch, capsys, words, wanted) -> None:
    assert offered(monkeypatch, capsys, words) == wanted


def test_kernels_of_a_file_are_offered_and_the_file_is_not_run(
    monkeypatch, capsys, tmp_path
) -> None:
    file = tmp_path / "kernels.py"
    file.write_text(
        "@nki.jit\ndef scale(a): ...\n"
        "def numpy(a): ...\n"
        "@jit(target='trn2')\ndef sum(a): ...\n"
        "1 / 0\n"
    )
    both = [f"{file}:scale", f"{file}:sum"]
    assert offered(monkeypatch, capsys, f"nki run {file}:") == both
    assert offered(monkeypatch, capsys, f"nki profile {file}:su") == both[1:]
    assert not any(offered(monkeypatch, capsys, f"nki run {tmp_path}/no.py:"))


TYPED = {
    "bash": """
        COMP_WORDBREAKS=$' :='; COMP_LINE=$LINE_TYPED; COMP_POINT=${#COMP_LINE}
        complete -p nki >&2; _nki_completion nki; printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "fish": 'complete -C "$LINE_TYPED"',
    "zsh": """
        words=(${(z)LINE_TYPED}); CURRENT=${#words}
        compadd() { print -l -- $completions }
        _describe() { print -l -- ${completions_with_descriptions%%:*} }
        _nki_completion
    """,
}
"""What offers the last word of a line in a shell that has read what turns completion on."""

OFFERS = {
    "nki do": (["doctor"],) * 3,
    "nki isa tensor_tens": (["tensor_tensor", "tensor_tensor_scan"],) * 3,
    "nki run kernels.py:s": (["scale", "sum"], *(["kernels.py:scale", "kernels.py:sum"],) * 2),
}
"""Lines with what bash, which goes on behind the colon, fish and zsh offer."""


@pytest.mark.parametrize("line", OFFERS)
@pytest.mark.parametrize("shell", TYPED)
def test_a_shell_offers_it(monkeypatch, capsys, tmp_path, shell, line) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"no {shell} here")
    monkeypatch.setattr(sys, "argv", ["nki"])
    monkeypatch.setenv("NKI_COMPLETE", f"{shell}_source")
    assert main() == 0
    script = capsys.readouterr().out
    (tmp_path / "kernels.py").write_text("@nki.jit\ndef scale(a): ...\n@jit\ndef sum(a): ...\n")
    command = tmp_path / "nki"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nki.cli "$@"\n')
    command.chmod(0o755)
    paths = os.pathsep.join((str(tmp_path), os.environ["PATH"]))
    known = "compdef() { :; }\n" if shell == "zsh" else ""
    result = subprocess.run(
        [program, *NO_FILES_OF_THE_USER[shell], "-c", known + script + TYPED[shell]],
        env={
            "PATH": paths,
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "LINE_TYPED": line,
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    offers = [word.split("\t")[0] for word in result.stdout.splitlines()]
    assert offers == OFFERS[line][[*TYPED].index(shell)], result.stderr
