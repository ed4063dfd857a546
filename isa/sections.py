"""Tables and facts of reports, as data, and as aligned text."""

from __future__ import annotations

import html as markup
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column headings. Columns whose heading starts with ">" are right-aligned."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @staticmethod
    def of(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
        """A table of anything that `str` turns into text."""
        return Table(title, tuple(columns), tuple(tuple(str(c) for c in row) for row in rows))


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with values, one a line, or `side_by_side` of them where there is room."""

    title: str
    items: tuple[tuple[str, str], ...]
    side_by_side: int = 1

    @staticmethod
    def of(title: str, **items: Any) -> Facts:
        """Facts by keyword, underscores in names becoming spaces; None values are left out."""
        pairs = (
            (name.replace("_", " "), value if isinstance(value, Prose) else str(value))
            for name, value in items.items()
            if value is not None
        )
        return Facts(title, tuple(pairs))


class Prose(str):
    """A value of `Facts` that is a sentence: it is continued on another line where it is long."""


@dataclass(frozen=True, slots=True)
class Notes:
    """Sentences, each behind a number or a dash, and the lines that stand below them all."""

    title: str
    items: tuple[str, ...]
    numbered: bool = False
    end: tuple[str, ...] = ()

    def marked(self) -> list[tuple[str, str]]:
        """The mark of each, with the sentence."""
        return [
            (f"  {number}. " if self.numbered else "- ", item)
            for number, item in enumerate(self.items, start=1)
        ]


Section = Table | Facts | Notes | str
"""A part of a report; a string is printed as it is."""

WIDTH = 100
"""Columns of plain text."""


def wrapped(text: str, width: int, first: str = "", other: str = "") -> str:
    """Text in lines, in which numbers stay with their units, and no word is cut.

    >>> print(wrapped("it takes 12.5 us, 40 % less", 12))
    it takes
    12.5 us,
    40 % less
    """
    joined = text.replace(" us", "\0us").replace(" %", "\0%")
    lines = textwrap.wrap(
        joined,
        width,
        initial_indent=first,
        subsequent_indent=other,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines).replace("\0", " ")


def notes_text(notes: Notes, width: int) -> str:
    """Notes in lines."""
    lines = [wrapped(item, width, mark, " " * len(mark)) for mark, item in notes.marked()]
    below = [wrapped(line, width, "  ", "    ") for line in notes.end]
    return "\n".join([*lines, *below])


def plain_text(sections: Sequence[Section]) -> str:
    """The sections as aligned text, separated by empty lines, without trailing spaces."""
    texts = []
    for section in sections:
        lines = [section] if isinstance(section, str) else _plain_lines(section)
        texts.append("\n".join(line.rstrip() for line in lines) + "\n")
    return "\n".join(texts)


def _plain_lines(section: Table | Facts | Notes) -> list[str]:
    lines = [section.title] if section.title else []
    if isinstance(section, Notes):
        return [*lines, notes_text(section, WIDTH - 2)]
    if isinstance(section, Facts) and section.side_by_side > 1:
        return lines + _plain_lines(in_columns(section))[1:]
    if isinstance(section, Facts):
        width = max((len(name) for name, _ in section.items), default=0)
        indent = "\n" + " " * (width + 4)
        values = (
            wrapped(value, WIDTH - width - 6) if isinstance(value, Prose) else value
            for _, value in section.items
        )
        return lines + [
            f"  {name:<{width}}  {value.replace(chr(10), indent)}"
            for (name, _), value in zip(section.items, values)
        ]
    right = [column.startswith(">") for column in section.columns]
    headings = [column.removeprefix(">") for column in section.columns]
    rows = [headings, *section.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(headings))]
    for row in rows:
        cells = (
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right)
        )
        lines.append("  " + "  ".join(cells))
    return lines


def in_columns(facts: Facts) -> Table:
    """Facts as rows of several names with values, without headings.

    >>> in_columns(Facts("", (("a", "1"), ("b", "2"), ("c", "3")), 2)).rows
    (('a', '1', 'b', '2'), ('c', '3', '', ''))
    """
    missing = -len(facts.items) % facts.side_by_side
    cells = [text for item in (*facts.items, *[("", "")] * missing) for text in item]
    size = 2 * facts.side_by_side
    rows = [cells[at : at + size] for at in range(0, len(cells), size)]
    return Table.of("", ("", ">") * facts.side_by_side, rows)


def html(sections: Sequence[Section]) -> str:
    """The sections as HTML, with the same content as the text.

    >>> html([Table.of("t", ("name", ">ns"), [("a<b", 1)])])
    '<h3>t</h3><div style="overflow-x:auto"><table cellpadding="3"><tr><th align="left">name</th>\
<th align="right">ns</th></tr><tr><td align="left">a&lt;b</td><td align="right">1</td></tr></table>\
</div>'
    """
    return "\n".join(_html(section) for section in sections)


def _html(section: Section) -> str:
    if isinstance(section, str):
        return f"<pre>{markup.escape(section)}</pre>"
    title = f"<h3>{markup.escape(section.title)}</h3>" if section.title else ""
    if isinstance(section, Notes):
        kind = "ol" if section.numbered else "ul"
        items = "".join(f"<li>{markup.escape(item)}</li>" for item in section.items)
        end = "<br>".join(map(markup.escape, section.end))
        return f"{title}<{kind}>{items}</{kind}>{end}"
    if isinstance(section, Facts):
        return title + _html_table([_cell("th", n) + _cell("td", v) for n, v in section.items])
    places = ["right" if column.startswith(">") else "left" for column in section.columns]
    names = [column.removeprefix(">") for column in section.columns]
    rows = ["".join(_cell("th", *pair) for pair in zip(names, places))]
    rows += ["".join(_cell("td", *pair) for pair in zip(row, places)) for row in section.rows]
    return title + _html_table(rows)


def _cell(tag: str, text: str, place: str = "left") -> str:
    return f'<{tag} align="{place}">{markup.escape(text)}</{tag}>'


def _html_table(rows: Sequence[str]) -> str:
    """A table that scrolls where the page is narrow."""
    lines = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div style="overflow-x:auto"><table cellpadding="3">{lines}</table></div>'
