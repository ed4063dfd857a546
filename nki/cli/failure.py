"""What a failed command prints, and the exit code that it ends with."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from nki.cli import exit_codes
from nki.shadowed import ShadowedPackageError

_INSTALLED = {"site-packages", "dist-packages"}
"""Folders with libraries, wherever they are: of the environment, the system or the user."""


@dataclass(frozen=True, slots=True)
class Presentation:
    """How a command talks: `as_json` for programs, `own_frames` shows this project's frames."""

    as_json: bool = False
    own_frames: bool = False


def keep_frames() -> None:
    """Let errors keep this project's frames, in the current context."""
    with suppress(ImportError):  # `nki doctor` works without our other packages
        from nki.settings import OWN_FRAMES

        OWN_FRAMES.set(True)


def report_failure(error: BaseException, presentation: Presentation) -> int:
    """Print an error (stderr; JSON: stdout) and return the exit code that belongs to it."""
    try:
        from isa.errors import NeuronError
        from nki.settings import traceback_wanted
    except ImportError:
        return _report_broken_installation(error)
    if isinstance(error, ShadowedPackageError):
        return _report_broken_installation(error)
    presentation = replace(presentation, own_frames=traceback_wanted())
    if isinstance(error, NeuronError):
        return _report_neuron_error(error, presentation)
    return _report_exception(error, presentation)


def report_usage(what: str, hint: str, presentation: Presentation) -> int:
    """Print a mistake in the command line that is in no catalogue, such as an unknown option."""
    code = exit_codes.USAGE.number
    if presentation.as_json:
        _print_json({"code": "usage", "number": None, "what": what, "hint": hint}, code)
    else:
        print(f"error: {what}", file=sys.stderr)
        if hint:
            print(f"  try: {hint}", file=sys.stderr)
    return code


def _report_neuron_error(error: Any, presentation: Presentation) -> int:
    from nki.errors import explain

    code = exit_codes.exit_code_of(error.code, error.number).number
    if presentation.as_json:
        _print_json(error_data(error), code)
        return code
    if presentation.own_frames:
        traceback.print_tb(error.__traceback__)
    print(explain(error), file=sys.stderr)
    return code


def error_data(error: Any) -> dict[str, Any]:
    """A NeuronError for programs; `location` is null where no line of a kernel is known."""
    from nki.ir.locations import resolve

    place = resolve(error.location)
    location = None
    if place is not None and place.line:
        location = {
            "file": place.file,
            "line": place.line,
            "column": place.column,
            "end_column": place.end_column,
            "function": place.function,
            "text": place.text,
        }
    return {
        "code": error.code,
        "number": error.number,
        "title": error.title,
        "what": error.what,
        "why": error.why,
        "hint": error.hint,
        "notes": list(error.notes),
        "location": location,
    }


def _report_exception(error: BaseException, presentation: Presentation) -> int:
    """Anything that is not in the catalogue: the user's own exception, or a defect of ours."""
    frames = users_frames(error.__traceback__)
    is_users = frames is not None or isinstance(error, SyntaxError)
    row = exit_codes.KERNEL if is_users else exit_codes.INTERNAL
    what = "".join(traceback.format_exception_only(error)).strip()
    if presentation.as_json:
        _print_json({"code": row.name, "number": None, "what": what, "hint": ""}, row.number)
        return row.number
    if presentation.own_frames:
        traceback.print_exception(error)
    elif is_users:
        shown = traceback.TracebackException(type(error), error, frames)
        print("".join(shown.format(chain=False)), end="", file=sys.stderr)
        print("  try: --traceback also shows the frames below this line.", file=sys.stderr)
    else:
        print(f"internal error: {what}", file=sys.stderr)
        print(
            "  This is a defect of nki, not of the kernel.\n"
            "  try: run again with --traceback and report what it prints.",
            file=sys.stderr,
        )
    return row.number


def users_frames(start: TracebackType | None) -> TracebackType | None:
    """The part of a traceback that runs in the user's files; None when there is none.

    Frames before the first of the user's (ours, click's) and what the user's last frame called
    (ours and the libraries below) are left out.
    """
    standard = sysconfig.get_paths()["stdlib"]
    frames: list[TracebackType] = []
    current = start
    while current is not None:
        name = current.tb_frame.f_code.co_filename
        installed = _INSTALLED.intersection(Path(name).parts)
        if not (installed or _is_own(name) or name.startswith((standard, "<frozen"))):
            frames.append(current)
        current = current.tb_next
    result: TracebackType | None = None
    for frame in reversed(frames):
        result = TracebackType(result, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return result


def _is_own(filename: str) -> bool:
    from nki.ir.locations import is_own_file

    return is_own_file(filename)


def _report_broken_installation(error: BaseException) -> int:
    """`isa` cannot even be imported: most likely another package has its name."""
    print(
        f"error: {type(error).__name__}: {error}\n"
        "  try: nki doctor says which packages are imported and from where.",
        file=sys.stderr,
    )
    return exit_codes.INTERNAL.number


def _print_json(error: dict[str, Any], exit_code: int) -> None:
    from nki.report import json_text

    sys.stdout.write(json_text({"error": error, "exit_code": exit_code}))
