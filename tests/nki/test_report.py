"""Reports as plain text, rich tables and JSON."""

from __future__ import annotations

import io
import json
import re

import pytest

from isa.sections import Notes, Prose
from nki.report import Facts, Report, Table, plain_text, print_report


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        """What was written, without styles."""
        return re.sub(r"\x1b\[[\d;]*m", "", self.getvalue())


def test_reports_are_rich_in_a_terminal_plain_elsewhere_and_json_on_request() -> None:
    report = Report({"x": 1}, [Table.of("title", ("name",), [("[red]cell[/red]",)]), "line"])
    terminal, plain, structured = Terminal(), io.StringIO(), Terminal()
    print_report(report, False, terminal)
    print_report(report, False, plain)
    print_report(report, True, structured)
    assert "\x1b[1m" in terminal.getvalue() and "[red]cell[/red]" in terminal.getvalue()
    assert plain.getvalue() == plain_text(report.sections)
    assert json.loads(structured.getvalue()) == {"x": 1}


FIGURES = Table.of(
    "figures",
    ("engine", ">busy cycles", ">busy %", "most for"),
    [("TensorE", "133,888", "35.1", "queue qSyncIO0 of the engine SyncE"), ("x", "1", "2.0", "")],
)


@pytest.mark.parametrize("width", [52, 60, 80, 200])
def test_a_terminal_shows_all_that_plain_text_has(width, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    facts = Facts.of("", bound=Prose("VectorE waits 9.6 us " * 8), path="/a/long/" + "path" * 9)
    pairs = Facts("official", tuple((f"metric_{n}", f"{n},000") for n in range(5)), side_by_side=2)
    notes = Notes(
        "advice", ("load it once, before the loop: 24.61 -> 17.07 us",), True, ("2 more",)
    )
    terminal = Terminal()
    print_report(Report({}, [facts, FIGURES, pairs, notes, "a word " * 30]), False, terminal)
    found = terminal.shown()
    assert all(len(line) <= width for line in found.splitlines())
    plain = plain_text([facts, FIGURES, pairs, notes, "a word " * 30])
    assert sorted("".join(found.split())) == sorted("".join(plain.split()))
    for number in ("133,888", "35.1", "4,000"):
        assert number in found.split()


def test_rows_too_wide_for_a_terminal_are_lists(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "36")
    terminal = Terminal()
    print_report(Report({}, [FIGURES]), False, terminal)
    assert terminal.shown().splitlines() == [
        "figures",
        "  engine TensorE, busy cycles",
        "    133,888, busy % 35.1, most for",
        "    queue qSyncIO0 of the engine",
        "    SyncE",
        "  engine x, busy cycles 1, busy %",
        "    2.0",
    ]
