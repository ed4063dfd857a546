"""The one exception class that every layer raises, with a code of the catalogue.

`nki` adds the kernel's own line (snippet, caret) when it renders an error; `nki.errors` re-exports.

`entry` is the form of a row; `kernels`, `programs`, `graphs` and `warned` are the rows; `built_in`
says which exception of Python an error is, too.
"""

from __future__ import annotations

from dataclasses import is_dataclass
from typing import Any, Self

from isa.errors.built_in import also, built_in
from isa.errors.entry import CatalogueEntry
from isa.errors.graphs import GRAPH_ERRORS
from isa.errors.kernels import KERNEL_ERRORS
from isa.errors.programs import PROGRAM_ERRORS

__all__ = ["CATALOGUE", "STANDING", "CatalogueEntry", "NeuronError"]

CATALOGUE: dict[str, CatalogueEntry] = {**KERNEL_ERRORS, **PROGRAM_ERRORS, **GRAPH_ERRORS}
"""A row for each kind of error by its code, a short slug (`wrong-memory`)."""

STANDING = frozenset({"loop-limit", "time-limit", "memory-limit", "simulated-time-limit"})
"""Codes of runs that were ended. Their notes say where each engine stood, which is what an author
needs to know, and are part of the text."""


class NeuronError(Exception):
    """An error that the user can act on.

    `what` states the fact with its values, `why` the rule (default: the catalogue's), `hint` the
    way out, `location` the kernel's line (`isa.program.SourceLocation`, or None), `notes` further
    lines such as a live set, `callers` who called the function of the line. Its text has what,
    where and the way out, and the notes of `STANDING`. It is also one of the exceptions that
    `isa.errors.built_in` names.

    >>> error = NeuronError("value-not-allowed", "cores is 3", why="A device has 2.", hint="Use 2.")
    >>> print(error.code, "|", error.what, "|", error.why, "|", error.hint)
    value-not-allowed | cores is 3 | A device has 2. | Use 2.
    >>> isinstance(error, AssertionError)
    True
    """

    def __new__(cls, code: str, *_: Any, **__: Any) -> Self:
        kind: Any = cls
        return super().__new__(also(kind, built_in(code, CATALOGUE[code].number)))

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
        self.callers: tuple[str, ...] = ()
        super().__init__(f"[NKI{entry.number:04d} {code}] {what}")

    def __str__(self) -> str:
        head = f"[NKI{self.number:04d} {self.code}] {self.what}"
        lines = [head]
        if is_dataclass(self.location) and getattr(self.location, "line", None):
            place: Any = self.location
            lines += [f"at {place.file}:{place.line} in {place.function}", *self.callers]
        if self.code in STANDING:
            lines += self.notes
        if self.hint:
            lines.append(f"try: {self.hint}")
        return "\n  ".join(lines)

    def __reduce__(self) -> tuple[Any, ...]:
        """Between processes; a line that is known as code only stays where that is."""
        place = self.location if is_dataclass(self.location) else None
        arguments = self.code, self.what, self.why, self.hint, place, self.notes
        kept = {name: getattr(self, name, None) for name in ("__notes__", "callers")}
        return NeuronError, arguments, {name: value for name, value in kept.items() if value}
