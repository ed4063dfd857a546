"""`nki migrate`: superseded spellings in kernel files, listed and rewritten."""

from __future__ import annotations

import tokenize
from dataclasses import asdict
from typing import Any

import click

from nki.cli import options
from nki.cli.exit_codes import OK
from nki.report import Report, Table


@click.command("migrate")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--check", is_flag=True, help="List only; change no file.")
@options.presented
@click.pass_context
def migrate_command(context: click.Context, files: tuple[str, ...], check: bool) -> int:
    """Rewrite spellings of earlier versions of NKI in Python files.

    Lists what it replaced, and what is left to do by hand. Only the spellings change; the rest of
    a file stays as it is.
    """
    rows, data = [], []
    for name in files:
        for finding in _migrate(name, check):
            done = finding["replacement"] is not None
            what = finding["replacement"] if done else f"by hand: {finding['note']}"
            place = f"{name}:{finding['line']}:{finding['column'] + 1}"
            rows.append((place, finding["old"], finding["since"], what))
            data.append({"file": name, **finding})
    columns = ("place", "spelling", "superseded since", "replacement")
    sections: list[Any] = [Table.of("", columns, rows)] if rows else ["nothing to migrate"]
    options.show(context, Report({"changed": not check, "findings": data}, sections))
    return OK.number


def _migrate(name: str, check: bool) -> list[dict[str, Any]]:
    """The findings of one file, which is rewritten unless `check`."""
    from isa.errors import NeuronError
    from nki.cli.output_files import write_file
    from nki.migration import findings, migrated

    try:
        with tokenize.open(name) as stream:
            encoding = stream.encoding
        with open(name, encoding=encoding, newline="") as stream:
            source = stream.read()
    except OSError as error:
        raise NeuronError("file-not-found", f"{name}: {error.strerror}") from None
    found = findings(source, name)
    changed = migrated(source, name)
    if changed != source and not check:
        write_file(name, lambda stream: stream.write(changed.encode(encoding)))
    keys = ("line", "column", "old", "new", "since", "replacement", "note")
    return [{key: asdict(finding)[key] for key in keys} for finding in found]
