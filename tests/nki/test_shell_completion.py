"""What shells offer while a user types an `nki` command."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from nki.cli import main


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


def test_a_shell_can_read_what_turns_completion_on(monkeypatch, capsys) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash here")
    monkeypatch.setattr(sys, "argv", ["nki"])
    monkeypatch.setenv("NKI_COMPLETE", "bash_source")
    assert main() == 0
    script = capsys.readouterr().out
    check = f"{script}\ncomplete -p nki"
    result = subprocess.run([bash, "-c", check], capture_output=True, text=True, check=True)
    assert result.stdout.rstrip().endswith(" nki")
