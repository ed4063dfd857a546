"""Exit codes of commands."""

from __future__ import annotations

from command_lines import run, run_json

from isa.errors import CATALOGUE
from isa.errors.warned import WARNINGS
from nki.cli.application import COMMANDS
from nki.cli.exit_codes import EXIT_CODES, exit_code_of


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
