"""From code objects and instruction offsets to lines, columns and variable names.

Traces keep (code object, instruction offset) pairs only; everything here happens when something
is reported, or once a code object, and is remembered.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import sys
from functools import cache
from types import CodeType, FrameType
from typing import Any

from isa.program import SourceLocation

_PACKAGES = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), package, "")
    for package in ("isa", "nki", "simulator")
)
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")


def resolve(location: Any) -> SourceLocation | None:
    """The source line and columns of a (code, offset) pair; None and resolved ones pass through."""
    if location is None or isinstance(location, SourceLocation):
        return location
    code, offset = location
    return _resolve(code, offset)


@cache
def _resolve(code: CodeType, offset: int) -> SourceLocation:
    line, end_line, column, end_column = _position(code, offset)
    text = linecache.getline(code.co_filename, line).rstrip("\n")
    start = len(text.encode()[:column].decode(errors="replace"))
    if end_line != line:
        end = len(text)
    else:
        end = len(text.encode()[:end_column].decode(errors="replace"))
    return SourceLocation(code.co_filename, line, start, end, code.co_name, text)


def _position(code: CodeType, offset: int) -> tuple[int, int, int, int]:
    """Line, end line, column and end column (bytes) of the instruction at an offset."""
    position = _positions(code)[offset // 2] if offset >= 0 else (None,) * 4
    line, end_line, column, end_column = position
    line = code.co_firstlineno if line is None else line
    return line, end_line or line, column or 0, end_column or 0


@cache
def _positions(code: CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())


def author_location(frame: FrameType | None = None) -> tuple[CodeType, int] | None:
    """The innermost call that was not made by this project's own packages."""
    frame = sys._getframe(1) if frame is None else frame
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def error_location(error: BaseException) -> tuple[CodeType, int] | None:
    """The innermost frame of an error's traceback that is not this project's own."""
    found = None
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not code.co_filename.startswith(_PACKAGES):
            found = code, traceback.tb_lasti
        traceback = traceback.tb_next
    return found


def variable_name(location: tuple[CodeType, int]) -> str:
    """The Python variable that the call at a location is assigned to, or "tensor"."""
    code, offset = location
    return _assigned_names(code).get(offset, "tensor")


@cache
def _assigned_names(code: CodeType) -> dict[int, str]:
    """Variable name by offset of the call whose result it gets."""
    names: dict[int, str] = {}
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    for call, store in zip(instructions, instructions[1:]):
        if not call.opname.startswith("CALL"):
            continue
        if store.opname.startswith(_STORES):
            name = store.argval
            names[call.offset] = name[0] if isinstance(name, tuple) else name
        elif store.opname == "RETURN_VALUE" and code.co_name.isidentifier():
            names[call.offset] = code.co_name
    return names


def is_while_condition(location: tuple[CodeType, int]) -> bool:
    """Whether the truth value taken at a location is the whole condition of a `while`."""
    return _is_while_condition(*location)


@cache
def _is_while_condition(code: CodeType, offset: int) -> bool:
    position = _position(code, offset)
    conditions = _while_conditions(code.co_filename)
    if conditions is not None:
        return position in conditions
    # Without source: the compiler repeats the condition of a loop at the loop's end.
    jumps = [
        i
        for i in dis.get_instructions(code)
        if "JUMP" in i.opname and "IF" in i.opname and _position(code, i.offset) == position
    ]
    return len(jumps) > 1


@cache
def _while_conditions(filename: str) -> frozenset[tuple[int, int, int, int]] | None:
    """Positions of the conditions of all `while` statements of a file; None without source."""
    lines = linecache.getlines(filename)
    try:
        tree = ast.parse("".join(lines)) if lines else None
    except SyntaxError:
        tree = None
    if tree is None:
        return None
    return frozenset(
        (
            node.test.lineno,
            node.test.end_lineno or node.test.lineno,
            node.test.col_offset,
            node.test.end_col_offset or 0,
        )
        for node in ast.walk(tree)
        if isinstance(node, ast.While)
    )
