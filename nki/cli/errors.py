"""`nki errors`: the error catalogue."""

from __future__ import annotations

import difflib
import textwrap

import click

from nki.cli import options
from nki.cli.exit_codes import OK
from nki.report import Report, Table


def _codes(context: click.Context, parameter: click.Parameter, begun: str) -> list[str]:
    """What a shell offers for CODE."""
    from isa.errors import CATALOGUE
    from isa.errors.warned import WARNINGS

    return sorted(code for code in (*CATALOGUE, *WARNINGS) if code.startswith(begun))


@click.command("errors")
@click.argument("code", required=False, shell_complete=_codes)
@options.presented
@click.pass_context
def errors_command(context: click.Context, code: str | None) -> int:
    """Show the catalogue of errors and warnings, or one of them.

    CODE is the code or number: wrong-memory, NKI0102 or 102.
    """
    from isa.errors import CATALOGUE
    from isa.errors.warned import WARNINGS
    from nki.cli.exit_codes import exit_code_of

    catalogue = CATALOGUE | WARNINGS
    entries = {
        key: {
            "code": key,
            "number": entry.number,
            "title": entry.title,
            "why": entry.rule,
            "hint": entry.hint,
            "source": entry.document,
            "exit_code": exit_code_of(key, entry.number).number,
        }
        for key, entry in sorted(catalogue.items(), key=lambda item: item[1].number)
    }
    if code is None:
        rows = [(f"NKI{e['number']:04d}", e["code"], e["title"]) for e in entries.values()]
        table = Table.of("", ("number", "code", "title"), rows)
        options.show(context, Report({"errors": list(entries.values())}, [table]))
        return OK.number
    found = entries[_slug(code, {key: entry.number for key, entry in catalogue.items()})]
    options.show(context, Report({"errors": [found]}, [_explained(found)]))
    return OK.number


def _slug(text: str, numbers: dict[str, int]) -> str:
    """The code that a code or number means."""
    if text in numbers:
        return text
    digits = text.upper().removeprefix("NKI")
    if digits.isdigit():
        for slug, number in numbers.items():
            if number == int(digits):
                return slug
    having = [slug for slug in numbers if text.lower() in slug]
    close = having or difflib.get_close_matches(text, numbers, n=3, cutoff=0.4)
    hint = f"; similar: {', '.join(close)}" if close else ""
    raise click.BadParameter(f"there is no error {text!r}{hint}", param_hint="CODE")


def _explained(entry: dict[str, object]) -> str:
    lines = [f"NKI{entry['number']:04d} {entry['code']}: {entry['title']}"]
    labels = {"why": "why", "hint": "try", "source": "source", "exit_code": "exit"}
    for key, label in labels.items():
        if entry[key]:
            text = textwrap.wrap(str(entry[key]), 88)
            lines += [f"{label if not n else '':>8}  {line}" for n, line in enumerate(text)]
    return "\n".join(lines)
