"""What commands print: tables and facts, as rich tables in a terminal, as plain text elsewhere.

A `Report` carries the same content twice: `sections` for people, `data` for programs (`--json`).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO

from isa.sections import Facts, Notes, Section, Table, in_columns, notes_text, plain_text, wrapped


@dataclass(slots=True)
class Report:
    """What a command found. `data` has stable keys and values that JSON can hold."""

    data: dict[str, Any]
    sections: list[Section] = field(default_factory=list)


def print_report(report: Report, as_json: bool, stream: TextIO | None = None) -> None:
    """Print to `stream` (default: stdout): JSON, rich in a terminal, or plain text."""
    stream = sys.stdout if stream is None else stream
    if as_json:
        stream.write(json_text(report.data))
    elif is_terminal(stream):
        _print_rich(report.sections, stream)
    else:
        stream.write(plain_text(report.sections))


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether a stream (default: stdout) is a terminal, for which reports are rich tables."""
    return (sys.stdout if stream is None else stream).isatty()


def json_text(data: Any) -> str:
    """JSON with a stable order and layout; NumPy numbers become plain ones.

    JSON has no infinities and no NaN: they are the strings "inf", "-inf" and "nan".
    """
    return json.dumps(_jsonable(data), indent=2, allow_nan=False) + "\n"


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    if isinstance(value, (str, bool)) or value is None:
        return value
    if hasattr(value, "tolist"):
        return _jsonable(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, int) else str(value)


_GAP = 2
"""Spaces between columns."""

_FOLDED = 12
"""Columns of text are folded down to this many characters where a terminal is narrow."""


def _print_rich(sections: Sequence[Section], stream: TextIO) -> None:
    """Nothing is cut: what is too wide is folded, and where that does not do, rows are lists."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for number, section in enumerate(sections):
        if number:
            console.print()
        if isinstance(section, str):
            console.print(Text(_wrapped(section, console.width)), soft_wrap=True)
            continue
        if section.title:
            console.print(Text(_wrapped(section.title, console.width), style="bold"))
        if isinstance(section, Notes):
            console.print(Text(notes_text(section, console.width)), soft_wrap=True)
            continue
        if isinstance(section, Facts):
            console.print(_rich_facts(section, console.width))
            continue
        widths = _widths(section, console.width)
        if widths is None:
            console.print(Text(_listed(section, console.width)), soft_wrap=True)
        else:
            console.print(_rich_table(section, widths))


def _rich_facts(facts: Facts, width: int) -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    if facts.side_by_side > 1:
        columns = in_columns(facts)
        widths = [max(len(cell) for cell in cells) for cells in zip(*columns.rows)]
        if sum(widths) + _GAP * len(widths) <= width:
            return _rich_table(columns, widths)
    table = RichTable(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 1))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in facts.items:
        table.add_row(Text("  " + name), Text(value))
    return table


def _rich_table(section: Table, widths: Sequence[int]) -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    headed = any(column.removeprefix(">") for column in section.columns)
    table = RichTable(box=None, show_header=headed, padding=(0, 0, 0, _GAP))
    for column, width in zip(section.columns, widths):
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        name = Text(column.removeprefix(">"), style="bold cyan")
        table.add_column(name, justify=justify, width=width, overflow="fold")
    for row in section.rows:
        table.add_row(*[Text(cell) for cell in row])
    return table


def _widths(section: Table, width: int) -> list[int] | None:
    """The columns' widths on a terminal: the whole ones if they fit; else headings are folded
    between words, then text. None if that does not do."""
    wanted, least = [], []
    for column, cells in zip(section.columns, zip(*section.rows)):
        name, size = column.removeprefix(">"), max(map(len, cells))
        heading = max(map(len, name.split()), default=0)
        wanted.append(max(size, len(name)))
        least.append(max(heading, size if column.startswith(">") else min(size, _FOLDED)))
    spare = width - _GAP * len(wanted) - sum(least)
    if not wanted or spare < 0:
        return None if wanted else []
    widths = least[:]
    for number in sorted(range(len(wanted)), key=lambda n: wanted[n] - least[n]):
        more = min(wanted[number] - least[number], spare)
        widths[number] += more
        spare -= more
    return widths


def _listed(section: Table, width: int) -> str:
    """Each row as its headings with their cells, from line to line as they fit."""
    names = [column.removeprefix(">") for column in section.columns]
    lines = []
    for row in section.rows:
        pairs = ", ".join(f"{name} {cell}" for name, cell in zip(names, row) if cell)
        lines.append(wrapped(pairs, width, "  ", "    "))
    return "\n".join(lines)


def _wrapped(text: str, width: int) -> str:
    """Lines that are too long are continued below their own beginning."""
    lines = []
    for line in text.splitlines():
        indent = " " * (len(line) - len(line.lstrip()))
        lines.append(line if len(line) <= width else wrapped(line, width, other=indent))
    return "\n".join(lines)


__all__ = [
    "Facts",
    "Report",
    "Section",
    "Table",
    "is_terminal",
    "json_text",
    "plain_text",
    "print_report",
]
