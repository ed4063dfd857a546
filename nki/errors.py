"""Errors as the user reads them: code, what, where (the line with a caret), why, try.

The catalogue itself is `isa.errors.CATALOGUE`, so that every layer can raise from it.
"""

from __future__ import annotations

import contextlib
import functools
import sysconfig
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

from isa.errors import CATALOGUE, STANDING, CatalogueEntry, NeuronError, calls
from isa.errors.built_in import built_in
from isa.errors.warned import WARNINGS
from isa.program import SourceLocation
from nki.ir.context import CURRENT
from nki.ir.locations import author_location, is_own_file, resolve, shown_file
from nki.keywords import meant_by
from nki.settings import traceback_wanted

_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")

__all__ = [
    "CATALOGUE",
    "CatalogueEntry",
    "NeuronError",
    "USER_FRAMES",
    "catalogue_page",
    "explain",
    "snippet",
    "user_frames",
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
    head = [f"error[NKI{error.number:04d}] {error.code}: {error.title}", f"   what: {error.what}"]
    way_out = [f"    try: {error.hint}"] if error.hint else []
    return "\n".join([*head, *_reasons(error), *way_out, *_noted(error)])


def _reasons(error: NeuronError) -> list[str]:
    """Where, with the source line, and why."""
    lines = []
    place = resolve(error.location)
    if place is not None and place.line:
        lines.append(f"  where: {place.file}:{place.line} in {place.function}")
        lines.extend(f"         {line}" for line in snippet(place))
    return [*lines, f"    why: {error.why}"]


def _noted(error: NeuronError) -> list[str]:
    return [f"         {note}" for note in error.notes]


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
    """The error with the user's frames only in its traceback, so that it ends at the last one."""
    frames: list[TracebackType] = []
    traceback = error.__traceback__
    while traceback is not None:
        if not _is_own(traceback.tb_frame):
            frames.append(traceback)
        traceback = traceback.tb_next
    result: TracebackType | None = None
    for frame in reversed(frames):
        result = TracebackType(result, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return error.with_traceback(result)


def _is_own(frame: FrameType) -> bool:
    """Whether a frame runs this project's code, functions that are generated for it included."""
    name = frame.f_code.co_filename
    if is_own_file(name) or name == contextlib.__file__:
        return True
    module = str(frame.f_globals.get("__name__"))
    if module.startswith("torch._dynamo."):  # between a launch and its code
        return True
    return name.startswith("<") and module.partition(".")[0] in ("isa", "simulator", "nki")


def user_frames(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorates a public entry point: a `NeuronError` leaves it without frames of this project. So
    the last line of an uncaught error's traceback is the user's. The rest of the explanation
    (source, why) is below its message. NKI_TRACEBACK=1 keeps all frames.

    A call with other arguments than the function has is an error of the catalogue, too. Other
    exceptions pass: the kernel's own, without the frames between its launch and its code, and
    defects of ours, whose frames tell where.
    """

    named = named_arguments(function)

    @functools.wraps(function)
    def entry(*args: _Parameters.args, **kwargs: _Parameters.kwargs) -> _Result:
        with USER_FRAMES:
            return named(*args, **kwargs)

    return entry


def named_arguments(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
    """Decorates a public function as `isa.errors.calls` does. Its errors know words of other
    libraries and name the author's line."""
    return calls.named_arguments(function, _explained)


def _explained(error: TypeError, function: Callable[..., Any]) -> NeuronError | None:
    found = calls.refused_call(error, function, meant_by)
    if found is not None:
        found.location = resolve(author_location())
    return found


class _UserFrames:
    """A context that does what `user_frames` does, for parts of a function.

    Python adds the frame of a `raise` to the traceback, but not that of a `with` whose `__exit__`
    lets the exception go on. So the traceback set here is what the caller gets.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: object
    ) -> None:
        if error is None or CURRENT.get() is not None:
            return  # a kernel called inside a kernel: the outer one's launch ends it
        if not isinstance(error, NeuronError):
            if _is_authors(error) and not traceback_wanted():
                without_own_frames(error)
            return
        if error.location is None:  # the launch, or the call of what is no kernel, is to blame
            error.location = resolve(author_location())
        annotate(error)
        if traceback_wanted():
            return
        without_own_frames(error)
        if _is_own_chain(error.__cause__ or error.__context__):
            error.__cause__ = None
            error.__suppress_context__ = True


USER_FRAMES = _UserFrames()


def _is_authors(error: BaseException) -> bool:
    """Whether an exception comes from the author's code, or from a name that it misspells, and not
    from ours or a library that ours calls."""
    caller: FrameType | None = None  # what runs below our innermost frame
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if not _is_own(frame):
            caller = caller or frame
        elif frame.f_code.co_name != "__getattr__" or caller is None:
            caller = None
        traceback = traceback.tb_next
    return caller is not None and not caller.f_code.co_filename.startswith(_LIBRARIES)


_LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))


def _is_own_chain(error: BaseException | None) -> bool:
    """Whether an exception that led to another was caught by this project's code."""
    start = None if error is None else error.__traceback__
    return start is not None and _is_own(start.tb_frame)


def is_authors_file(name: str) -> bool:
    """Whether code in a file is neither this project's nor Python's own. Packages that are
    installed count: kernels come in some."""
    of_python = name.startswith((_LIBRARIES[0], "<frozen")) and "-packages" not in name
    return not of_python and not is_own_file(name)


def _name_place(error: NeuronError) -> None:
    """Let the message name the kernel's line, and who called the function that it is in."""
    place = error.location = resolve(error.location)
    if place is None or error.callers:
        return
    below: list[str] = []
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if is_authors_file(code.co_filename) and not _is_own(traceback.tb_frame):
            if (shown_file(code), code.co_name) == (place.file, place.function):
                error.callers = ("called from " + ", from ".join(below),) if below else ()
            below.insert(0, f"{shown_file(code)}:{traceback.tb_lineno} in {code.co_name}")
        traceback = traceback.tb_next


def annotate(error: NeuronError) -> None:
    """Let Python print where, why and notes below the error's message (once)."""
    _name_place(error)
    if not hasattr(error, "__notes__"):
        # The message has those of runs that were ended.
        notes = [] if error.code in STANDING else _noted(error)
        error.add_note("\n".join([*_reasons(error), *notes]))


def catalogue_page() -> str:
    """The error catalogue as a Markdown page: one section an error, by number."""
    lines = [
        "# Errors",
        "",
        "Every error carries a number and a code; both are stable. The message shows the values,",
        "the kernel's line, the rule and a way out. Numbers from 801 on are warnings",
        "(`isa.errors.warned.NeuronWarning`).",
        "",
    ]
    for code, entry in sorted((CATALOGUE | WARNINGS).items(), key=lambda item: item[1].number):
        lines += [f"## NKI{entry.number:04d} {code}", "", f"**{entry.title}**", "", entry.rule, ""]
        if entry.hint:
            lines += [f"*Try:* {entry.hint}", ""]
        if exceptions := built_in(code, entry.number):
            names = ", ".join(f"`{kind.__name__}`" for kind in exceptions)
            lines += [f"*Caught as:* `nki.NeuronError`, {names}", ""]
        if entry.document:
            lines += [f"*Source:* {entry.document}", ""]
    return "\n".join(lines)
