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
    from isa.files.complete import complete

    plans = [_plan(name) for name in files]  # of all files, before the first is changed
    rows, data = [], []
    for name, (found, changed) in zip(files, plans):
        if changed is not None and not check:
            with complete(name) as part:
                part.write_bytes(changed)
        for finding in found:
            done = finding["replacement"] is not None
            what = finding["replacement"] if done else f"by hand: {finding['note']}"
            place = f"{name}:{finding['line']}:{finding['column'] + 1}"
            rows.append((place, finding["old"], finding["since"], what))
            data.append({"file": name, **finding})
    columns = ("place", "spelling", "superseded since", "replacement")
    sections: list[Any] = [Table.of("", columns, rows)] if rows else ["nothing to migrate"]
    options.show(context, Report({"changed": not check, "findings": data}, sections))
    return OK.number


def _plan(name: str) -> tuple[list[dict[str, Any]], bytes | None]:
    """The findings of one file, and what it is to hold; None where nothing changes."""
    from isa.errors import NeuronError
    from nki.superseded.migration import findings, migrated

    try:
        with tokenize.open(name) as stream:
            encoding = stream.encoding
        with open(name, encoding=encoding, newline="") as stream:
            source = stream.read()
    except OSError as error:
        raise NeuronError("file-not-found", f"{name}: {error.strerror}") from None
    keys = ("line", "column", "old", "new", "since", "replacement", "note")
    found = [{key: asdict(finding)[key] for key in keys} for finding in findings(source, name)]
    changed = migrated(source, name)
    return found, None if changed == source else changed.encode(encoding)
