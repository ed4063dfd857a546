"""`nki isa`: the reference page of an operation or machine instruction."""

from __future__ import annotations

import difflib
import re

import click

from nki.cli import options
from nki.cli.exit_codes import OK
from nki.report import Report, Table

_LINK = re.compile(r"\[([^\[\]]+)\]\((?:\.\./)*[\w/]+\.md\)")
"""A link to another page, which is none in a terminal."""


def _names(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """What a shell offers for NAME."""
    from isa.machine import MACHINE_INSTRUCTIONS
    from isa.operations import OPERATIONS

    public = [name for name, row in OPERATIONS.items() if row.public]
    return sorted(name for name in (*public, *MACHINE_INSTRUCTIONS) if name.startswith(begun))


@click.command("isa")
@click.argument("name", required=False, shell_complete=_names)
@options.presented
@click.pass_context
def isa_command(context: click.Context, name: str | None) -> int:
    """Show operations and machine instructions.

    With NAME the reference page of one: nc_matmul (operation), MultiplyMoving (instruction). Upper
    and lower case are the same, and nisa. before a name counts for nothing.
    """
    import nki.language as language
    from isa.machine import MACHINE_INSTRUCTIONS
    from isa.operations import OPERATIONS
    from nki.row_pages.machine import machine_page
    from nki.row_pages.operations import instructions_of, operation_page, used_by

    public = {n: row for n, row in sorted(OPERATIONS.items()) if row.public}
    if name is None:
        expansions = {n: instructions_of(row) for n, row in public.items()}
        rows = [(n, ", ".join(found)) for n, found in expansions.items()]
        table = Table.of("", ("operation", "machine instructions"), rows)
        options.show(context, Report({"operations": expansions}, [table]))
        return OK.number
    names = (*MACHINE_INSTRUCTIONS, *OPERATIONS)
    short = name.rpartition(".")[2]
    found = short if short in names else {n.lower(): n for n in names}.get(short.lower())
    if found in OPERATIONS:
        _show_page(context, found, operation_page(OPERATIONS[found]))
    elif found is not None:
        page = machine_page(MACHINE_INSTRUCTIONS[found], used_by().get(found, []))
        _show_page(context, found, page)
    else:
        close = difflib.get_close_matches(short, [*public, *MACHINE_INSTRUCTIONS], n=3)
        hint = f"; similar: {', '.join(close)}" if close else ""
        if short in language.__all__:
            hint = f"; nl.{short} is a function of nki.language: help(nki.language.{short})"
        raise click.BadParameter(
            f"there is no operation or machine instruction {name!r}{hint}", param_hint="NAME"
        )
    return OK.number


def _show_page(context: click.Context, name: str, text: str) -> None:
    _, _, body = text.partition("\n\n")
    plain = _LINK.sub(r"\1", body).rstrip("\n")
    options.show(context, Report({"name": name, "markdown": body}, [plain]))
