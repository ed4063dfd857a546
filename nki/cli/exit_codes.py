"""Exit codes of the command line, and which error ends with which."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExitCode:
    """One exit code: the number, a short name, and when it is returned."""

    number: int
    name: str
    meaning: str


OK = ExitCode(0, "ok", "The command did what it was asked to do.")
CHECK_FAILED = ExitCode(
    1,
    "check-failed",
    "The outputs differ from those of --expect or --compare, the modes of `nki diff` differ, or "
    "`nki doctor` found a problem.",
)
USAGE = ExitCode(
    2,
    "usage",
    "The command line is wrong: an unknown option, kernel, input, target or mode, or an input "
    "description that cannot be read.",
)
KERNEL = ExitCode(
    3,
    "kernel",
    "The kernel was refused while tracing or compiling (errors NKI01xx to NKI03xx), or its "
    "Python file raised an exception.",
)
RUN = ExitCode(4, "run", "The program failed while it ran (errors NKI04xx).")
CONTAINER = ExitCode(
    5,
    "container",
    "A container cannot be read, or inputs do not fit (errors NKI05xx).",
)
FILE = ExitCode(6, "file", "A file was not found or cannot be written.")
GRAPH = ExitCode(7, "graph", "A graph cannot be read, or has findings (errors NKI07xx).")
INTERNAL = ExitCode(70, "internal", "A defect of this program; --traceback shows where.")
INTERRUPTED = ExitCode(130, "interrupted", "The command was interrupted (Ctrl-C).")
CLOSED = ExitCode(141, "closed", "Whatever read the output closed it.")

EXIT_CODES = (
    OK,
    CHECK_FAILED,
    USAGE,
    KERNEL,
    RUN,
    CONTAINER,
    FILE,
    GRAPH,
    INTERNAL,
    INTERRUPTED,
    CLOSED,
)
"""Every exit code, in order."""

_BY_HUNDRED = {1: KERNEL, 2: KERNEL, 3: KERNEL, 4: RUN, 5: CONTAINER, 6: USAGE, 7: GRAPH, 8: OK}
_BY_CODE = {
    "file-not-found": FILE,
    "not-writable": FILE,
    "hlo-option": USAGE,
    "ir-syntax": KERNEL,
    "ir-invalid": KERNEL,
    "not-supported": KERNEL,
}


def exit_code_of(code: str, number: int) -> ExitCode:
    """The exit code for an error of the catalogue, by its code and number."""
    return _BY_CODE.get(code) or _BY_HUNDRED[number // 100]


def exit_code_table() -> str:
    """The table as plain text, 80 columns wide."""
    lines = []
    for row in EXIT_CODES:
        first, *rest = textwrap.wrap(row.meaning, 56)
        lines.append(f"{row.number:>4}  {row.name:<12}  {first}")
        lines += [" " * 20 + line for line in rest]
    return "\n".join(lines)
