"""Markdown of the reference pages."""

from __future__ import annotations

from nki.row_pages.markdown import table


def test_bars_and_line_breaks_do_not_break_a_table() -> None:
    text = table(("a", "b"), [("x | y", "two\nlines"), (1, "")])
    assert text.splitlines() == ["| a | b |", "|---|---|", "| x \\| y | two lines |", "| 1 |  |"]
    assert table(("a",), []) == ""
