"""Tables and facts of reports, as data, and as aligned text."""

from __future__ import annotations

import html as markup
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
    """Names with values, one a line."""

    title: str
    items: tuple[tuple[str, str], ...]

    @staticmethod
    def of(title: str, **items: Any) -> Facts:
        """Facts by keyword, underscores in names becoming spaces; None values are left out."""
        pairs = ((n.replace("_", " "), str(v)) for n, v in items.items() if v is not None)
        return Facts(title, tuple(pairs))


Section = Table | Facts | str
"""A part of a report; a string is printed as it is."""


def plain_text(sections: Sequence[Section]) -> str:
    """The sections as aligned text, separated by empty lines, without trailing spaces."""
    texts = []
    for section in sections:
        lines = [section] if isinstance(section, str) else _plain_lines(section)
        texts.append("\n".join(line.rstrip() for line in lines) + "\n")
    return "\n".join(texts)


def _plain_lines(section: Table | Facts) -> list[str]:
    lines = [section.title] if section.title else []
    if isinstance(section, Facts):
        width = max((len(name) for name, _ in section.items), default=0)
        indent = "\n" + " " * (width + 4)
        return lines + [
            f"  {name:<{width}}  {value.replace(chr(10), indent)}" for name, value in section.items
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


def html(sections: Sequence[Section]) -> str:
    """The sections as HTML, with the same content as the text.

    >>> html([Table.of("t", ("name", ">ns"), [("a<b", 1)])])
    '<h3>t</h3><table><tr><th>name</th><th>ns</th></tr><tr><td>a&lt;b</td><td align="right">1</td>\
</tr></table>'
    """
    return "\n".join(_html(section) for section in sections)


def _html(section: Section) -> str:
    if isinstance(section, str):
        return f"<pre>{markup.escape(section)}</pre>"
    title = f"<h3>{markup.escape(section.title)}</h3>" if section.title else ""
    if isinstance(section, Facts):
        rows = [
            f"<tr><th>{markup.escape(name)}</th><td>{markup.escape(value)}</td></tr>"
            for name, value in section.items
        ]
        return f"{title}<table>{''.join(rows)}</table>"
    places = [' align="right"' if column.startswith(">") else "" for column in section.columns]
    names = (markup.escape(column.removeprefix(">")) for column in section.columns)
    rows = ["".join(f"<th>{name}</th>" for name in names)]
    for row in section.rows:
        cells = (f"<td{place}>{markup.escape(cell)}</td>" for place, cell in zip(places, row))
        rows.append("".join(cells))
    return f"{title}<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
