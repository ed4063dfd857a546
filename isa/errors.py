"""The error catalogue's form, and the one exception class that every layer raises.

A code is a short slug (`wrong-memory`); `CATALOGUE` maps it to its number, title and rule. `nki`
adds the kernel's own line (snippet, caret) when it renders an error; `nki.errors` re-exports.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One kind of error: stable number, one-line title, the rule, and the usual way out."""

    number: int
    title: str
    rule: str
    hint: str = ""
    document: str = ""


CATALOGUE: dict[str, CatalogueEntry] = {}


class NeuronError(Exception):
    """An error that the user can act on.

    `what` states the fact with its values, `why` the rule (default: the catalogue's), `hint` the
    way out, `location` the kernel's line (`isa.program.SourceLocation`, or None), `notes` further
    lines such as a live set.
    """

    def __init__(
        self,
        code: str,
        what: str,
        why: str = "",
        hint: str = "",
        location: Any = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        entry = CATALOGUE[code]
        self.code = code
        self.number = entry.number
        self.title = entry.title
        self.what = what
        self.why = why or entry.rule
        self.hint = hint or entry.hint
        self.location = location
        self.notes = notes
        super().__init__(f"[NKI{entry.number:04d} {code}] {what}")
