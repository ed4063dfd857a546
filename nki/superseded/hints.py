"""The hint that a spelling of an earlier version gets, at the user's line; what it stands for."""

from __future__ import annotations

import builtins
import difflib
import importlib
import sys
import warnings
from collections.abc import Callable
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

from nki.superseded.table import (
    CALLS,
    EARLIER_MODULES,
    ENUMERATIONS,
    MEANT,
    MODULES,
    NUMBERS_SINCE,
    SUPERSEDED,
    Superseded,
)


class MigrationWarning(DeprecationWarning):
    """A kernel uses a spelling that a newer version of NKI replaced; the message names both."""


_HINTS = {row.old: row for row in SUPERSEDED}
_MODULE_HINTS = {row.old: row for row in MODULES}
_CALL_HINTS = {row.old: row for row in CALLS}


def hint(old: str) -> None:
    """Warn at the line outside this project that uses the spelling `old`, once a line: names stand
    in the innermost loops of kernels."""
    warn_once(old, *_user_line())


def _row(old: str) -> Superseded:
    row = _HINTS.get(old)
    if row is None:
        module, _, name = old.rpartition(".")
        home = _MODULE_HINTS[module]
        row = Superseded(old, f"{home.new}.{name}", home.since)
    return row


def note_on_superseded(old: str) -> str | None:
    """What replaces a spelling, None for a name that is none.

    >>> note_on_superseded("nki.isa.tensor_copy_dynamic_src")
    'use nki.isa.tensor_copy (give the offset as src.ap(..., scalar_offset=...))'
    """
    row = _HINTS.get(old)
    return None if row is None else _replacement(row)


def _replacement(row: Superseded) -> str:
    return f"use {row.new}" + (f" ({row.note})" if row.note else "")


def hint_at_call(old: str) -> None:
    """Warn at the line outside this project that makes the call `old`, once a line."""
    warn_once(_CALL_HINTS[old], *_user_line())


def hint_at_number(parameter: str, number: int, member: str) -> None:
    """Warn at the line outside this project that gives a number where a member has a name, once a
    line."""
    new = f"nki.isa.{ENUMERATIONS.get(parameter, parameter)}.{member}"
    warn_once(Superseded(f"{parameter}={number}", new, NUMBERS_SINCE), *_user_line())


@lru_cache(1 << 12)
def warn_once(spelling: str | Superseded, code: CodeType, file: str, line: int) -> None:
    """Code objects are equal whatever file they are from, so the file counts too."""
    row = _row(spelling) if isinstance(spelling, str) else spelling
    frame = _user_frame(sys._getframe(1))
    warnings.warn_explicit(
        f"{row.old} is superseded since NKI {row.since}: {_replacement(row)}",
        MigrationWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        module=frame.f_globals.get("__name__") or "<unknown>",
        registry=frame.f_globals.setdefault("__warningregistry__", {}),
    )


def superseded_names(module: str) -> Callable[[str], Any]:
    """A module's `__getattr__`, for names that work with a hint and modules that are gone."""

    def __getattr__(name: str) -> Any:
        dotted = f"{module}.{name}"
        if dotted in EARLIER_MODULES:
            return importlib.import_module(dotted)
        if (row := _kept(module, dotted)) is not None:
            hint(dotted)
            return meaning_of(row)
        note = note_on_superseded(dotted)
        meant = "" if note is None else f": {note}"
        if dotted in MEANT:
            meant = f". Did you mean: {MEANT[dotted]}?"
        elif not meant and _in_kernel():  # a kernel asks, and no hasattr of ours
            near = difflib.get_close_matches(name, dir(sys.modules[module]), 1)
            meant = f". Did you mean: {near[0]!r}?" if near else ""
        raise AttributeError(f"module {module!r} has no attribute {name!r}{meant}")

    return __getattr__


def _in_kernel() -> bool:
    """Whether a kernel runs. Python asks `nki` for its modules while `nki.ir.context` loads."""
    current = getattr(sys.modules.get("nki.ir.context"), "CURRENT", None)
    return current is not None and current.get() is not None


def _kept(module: str, dotted: str) -> Superseded | None:
    """The row of a name that still works; None for others."""
    row = _HINTS.get(dotted)
    if row is None and module in _MODULE_HINTS and _MODULE_HINTS[module].meaning:
        names = importlib.import_module(_MODULE_HINTS[module].meaning).__all__
        return _row(dotted) if dotted.rpartition(".")[2] in names else None
    return row if row is not None and row.rewrite else None


def meaning_of(row: Superseded) -> Any:
    """What an old name stands for.

    >>> meaning_of(_HINTS["nki.isa.tensor_engine"])
    <Engine.tensor: 1>
    """
    first, *rest = (row.meaning or row.new).split(".")
    value: Any = importlib.import_module(first) if rest else getattr(builtins, first)
    for name in rest:
        value = getattr(value, name)
    return value


def _user_line() -> tuple[CodeType, str, int]:
    frame = _user_frame(sys._getframe(1))
    return frame.f_code, frame.f_code.co_filename, frame.f_lineno


def _user_frame(frame: FrameType) -> FrameType:
    """The innermost frame that runs neither this project nor Python's import system."""
    from nki.ir.locations import is_own_file

    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not (is_own_file(name) or name.startswith("<frozen importlib")):
            break
        frame = frame.f_back
    return frame
