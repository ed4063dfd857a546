"""Errors as the user reads them: code, what, where (the line with a caret), why, try.

The catalogue itself is `isa.errors.CATALOGUE`, so that every layer can raise from it.
"""

from __future__ import annotations

from types import TracebackType

from isa.errors import CATALOGUE, CatalogueEntry, NeuronError
from isa.program import SourceLocation
from nki.trace.locations import resolve

__all__ = [
    "CATALOGUE",
    "CatalogueEntry",
    "NeuronError",
    "catalogue_page",
    "explain",
    "snippet",
    "without_own_frames",
]


def explain(error: NeuronError) -> str:
    """The error in full, as the command line prints it.

    error[NKI0102]: wrong memory
      what: nc_matmul writes dst `result`, which is in sbuf
     where: kernel.py:12 in matmul
            |     nisa.nc_matmul(dst=result, stationary=a, moving=b)
            |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
       why: ...
       try: ...
    """
    lines = [f"error[NKI{error.number:04d}] {error.code}: {error.title}", f"   what: {error.what}"]
    place = resolve(error.location)
    if place is not None and place.line:
        lines.append(f"  where: {place.file}:{place.line} in {place.function}")
        lines.extend(f"         {line}" for line in snippet(place))
    lines.append(f"    why: {error.why}")
    if error.hint:
        lines.append(f"    try: {error.hint}")
    lines.extend(f"         {note}" for note in error.notes)
    return "\n".join(lines)


def snippet(place: SourceLocation) -> list[str]:
    """The source line with carets under the columns that matter; empty without source."""
    if not place.text.strip():
        return []
    text = place.text
    width = max(1, min(place.end_column, len(text)) - place.column)
    indent = len(text) - len(text.lstrip())
    column = max(place.column - indent, 0)
    return [f"|  {text.strip()}", f"|  {' ' * column}{'^' * width}"]


def without_own_frames(error: BaseException) -> BaseException:
    """The error with its traceback ending at the user's last frame."""
    from nki.trace.locations import is_own_file

    frames: list[TracebackType] = []
    traceback = error.__traceback__
    while traceback is not None:
        if not is_own_file(traceback.tb_frame.f_code.co_filename):
            frames.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for frame in reversed(frames):
        result = TracebackType(result, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return error.with_traceback(result)


def catalogue_page() -> str:
    """The error catalogue as a Markdown page: one section an error, by number."""
    lines = [
        "# Errors",
        "",
        "Every error carries a number and a code; both are stable. The message shows the values,",
        "the kernel's line, the rule and a way out.",
        "",
    ]
    for code, entry in sorted(CATALOGUE.items(), key=lambda item: item[1].number):
        lines += [f"## NKI{entry.number:04d} {code}", "", f"**{entry.title}**", "", entry.rule, ""]
        if entry.hint:
            lines += [f"*Try:* {entry.hint}", ""]
        if entry.document:
            lines += [f"*Source:* {entry.document}", ""]
    return "\n".join(lines)
