"""What commands print: tables and facts, as rich tables in a terminal, as plain text elsewhere.

A `Report` carries the same content twice: `sections` for people, `data` for programs (`--json`).
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from isa.sections import Facts, Section, Table, plain_text


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


def _print_rich(sections: Sequence[Section], stream: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    for number, section in enumerate(sections):
        if number:
            console.print()
        if isinstance(section, str):
            console.print(Text(section), soft_wrap=True)
            continue
        if section.title:
            console.print(Text(section.title, style="bold"), soft_wrap=True)
        console.print(_rich_table(section))


def _rich_table(section: Table | Facts) -> Any:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    table = RichTable(
        box=box.SIMPLE_HEAD if isinstance(section, Table) else None,
        show_header=isinstance(section, Table),
        pad_edge=False,
        padding=(0, 1, 0, 1),
    )
    if isinstance(section, Facts):
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in section.items:
            table.add_row(Text("  " + name), Text(value))
        return table
    for number, column in enumerate(section.columns, start=1):
        table.add_column(
            column.removeprefix(">"),
            justify="right" if column.startswith(">") else "left",
            no_wrap=number < len(section.columns),
            overflow="fold",
        )
    for row in section.rows:
        table.add_row(*[Text(cell) for cell in row])
    return table


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
