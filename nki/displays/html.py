"""Reports as HTML: the tables and facts of `isa.sections`, with colours that suit any theme."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from isa.sections import Facts, Section

_CELL = "padding:1px 10px 1px 0;border:0"


def html_of(sections: Sequence[Section], title: str = "") -> str:
    """The sections below each other, as one element.

    >>> from isa.sections import Table
    >>> html_of([Table("t", ("name", ">bytes"), (("a", "12"),))])[:5]
    '<div '
    """
    parts = [f'<div style="font-weight:bold">{escape(title)}</div>'] if title else []
    parts += [_section(section) for section in sections]
    return f'<div style="font-size:13px">{"".join(parts)}</div>'


def _section(section: Section) -> str:
    if isinstance(section, str):
        return f"<pre>{escape(section)}</pre>"
    if isinstance(section, Facts):
        rows = [("<b>" + escape(name) + "</b>", escape(value)) for name, value in section.items]
        return _table(section.title, (), rows, (False, False))
    right = tuple(column.startswith(">") for column in section.columns)
    heads = tuple(escape(column.removeprefix(">")) for column in section.columns)
    cells = [tuple(escape(cell) for cell in row) for row in section.rows]
    return _table(section.title, heads, cells, right)


def _table(
    title: str,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Sequence[bool],
) -> str:
    """A table of cells that are HTML already."""

    def line(kind: str, cells: Sequence[str]) -> str:
        aligned = (
            f'<{kind} style="{_CELL};text-align:{"right" if is_right else "left"}">{cell}</{kind}>'
            for cell, is_right in zip(cells, right)
        )
        return f"<tr>{''.join(aligned)}</tr>"

    head = f"<thead>{line('th', heads)}</thead>" if heads else ""
    body = "".join(line("td", row) for row in rows)
    caption = (
        f'<caption style="text-align:left;caption-side:top">{escape(title)}</caption>'
        if title
        else ""
    )
    return f'<table style="margin:6px 0">{caption}{head}<tbody>{body}</tbody></table>'


__all__ = ["html_of"]
