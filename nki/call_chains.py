"""Call chains for errors that come when the code of the line that they name has returned.

Traces keep the innermost line of each operation. So an error of a pass or a run does not tell which
call of a shared function is meant. The kernel is traced once more, and it is watched who gets
there. Source: SDK release-notes/components/nki.rst, 0.4.0, "Improved error messages for nested NKI
calls".
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from isa.errors import NeuronError
from isa.program import SourceLocation
from nki.errors import annotate
from nki.ir.locations import definition, is_own_file, resolve, shown_file

_SHOWN = 3
"""Chains of calls that an error lists."""

Chain = tuple[str, ...]
"""The callers of a line, innermost first."""


@contextmanager
def explained(function: Any, retrace: Callable[[], Any] | None = None) -> Iterator[None]:
    """Lets errors inside name a line of the kernel `function`: its own first one where nothing is
    known that is nearer. `retrace` traces what runs, for what only tracing again can say."""
    try:
        yield
    except NeuronError as error:
        if error.location is None:
            error.location = resolve(definition(function))
        if retrace is not None:
            from nki.shared_addresses import name_overlaps

            name_overlaps(error, retrace)
            name_callers(error, retrace)
        raise


def name_callers(error: NeuronError, retrace: Callable[[], Any]) -> None:
    """Let an error that comes from no call of the author's list the calls that lead to its line.
    `retrace` traces what ran."""
    place = resolve(error.location)
    if place is None or sys.gettrace() is not None or _is_raised_there(error, place):
        return
    chains = [chain for chain in _chains(place, retrace) if chain]
    if not chains:
        return
    annotate(error)
    texts = ["called from " + ", from ".join(chain) for chain in chains[:_SHOWN]]
    if len(chains) > _SHOWN:
        texts.append(f"called from {len(chains) - _SHOWN} more places")
    error.notes += tuple(texts)
    error.callers = tuple(texts)
    error.add_note("\n".join(f"   note: {text}" for text in texts))


def _is_raised_there(error: NeuronError, place: SourceLocation) -> bool:
    """Whether the error was raised below the line, so that its traceback shows the callers."""
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if code.co_name == place.function and shown_file(code) == place.file:
            return True
        traceback = traceback.tb_next
    return False


def _chains(place: SourceLocation, retrace: Callable[[], Any]) -> list[Chain]:
    """The callers of a line of the kernel that is traced, in the order in which they come."""
    found: dict[Chain, None] = {}

    def enter(frame: FrameType, _: str, __: Any) -> Any:
        code = frame.f_code
        here = code.co_name == place.function and shown_file(code) == place.file
        return step if here else None

    def step(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno == place.line:
            found[_callers(frame)] = None
        return step

    quiet = warnings.catch_warnings(action="ignore")
    with quiet, contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        sys.settrace(enter)
        try:
            retrace()
        finally:
            sys.settrace(None)
    return list(found)


def _callers(frame: FrameType) -> Chain:
    """The author's frames below one, as text, to where this project calls the kernel."""
    chain = []
    caller = frame.f_back
    while caller is not None and not is_own_file(caller.f_code.co_filename):
        code = caller.f_code
        chain.append(f"{code.co_filename}:{caller.f_lineno} in {code.co_name}")
        caller = caller.f_back
    return tuple(chain)
