"""What the error catalogue says of one kind of error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """One kind of error: stable number, one-line title, the rule, and the usual way out."""

    number: int
    title: str
    rule: str
    hint: str = ""
    document: str = ""
