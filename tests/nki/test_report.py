"""Reports as plain text, rich tables and JSON."""

from __future__ import annotations

import io
import json

import numpy as np

from nki.report import Facts, Report, Table, json_text, plain_text, print_report


def test_plain_tables_are_aligned() -> None:
    table = Table.of("title", ("name", ">count"), [("a", 5), ("longer", 1234)])
    facts = Facts.of("", one=1, two_words="x\ny", none=None)
    assert plain_text([table, facts, "text"]) == (
        "title\n  name    count\n  a           5\n  longer   1234\n\n"
        "  one        1\n  two words  x\n             y\n\n"
        "text\n"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_reports_are_rich_in_a_terminal_plain_elsewhere_and_json_on_request() -> None:
    report = Report({"x": 1}, [Table.of("title", ("name",), [("[red]cell[/red]",)]), "line"])
    terminal, plain, structured = Terminal(), io.StringIO(), Terminal()
    print_report(report, False, terminal)
    print_report(report, False, plain)
    print_report(report, True, structured)
    assert "─" in terminal.getvalue() and "[red]cell[/red]" in terminal.getvalue()
    assert plain.getvalue() == plain_text(report.sections)
    assert json.loads(structured.getvalue()) == {"x": 1}


def test_json_holds_numpy_numbers_and_special_values() -> None:
    data = {"a": np.float32(1.5), "b": [np.nan, np.inf], "c": np.arange(2), "d": (True, None)}
    assert json.loads(json_text(data)) == {
        "a": 1.5,
        "b": ["nan", "inf"],
        "c": [0, 1],
        "d": [True, None],
    }
