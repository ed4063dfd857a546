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
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

from isa.errors import NeuronError
from isa.program import SourceLocation
from nki.frameworks.callables import innermost

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
_PACKAGES = (
    *(os.path.join(_ROOT, package, "") for package in ("isa", "nki", "simulator")),
    "<nki.isa.",
)
_COMPOUND = (ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp)
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")


def resolve(location: Any) -> SourceLocation | None:
    """The source line and columns of a (code, offset) pair; None and resolved ones pass through."""
    if location is None or isinstance(location, SourceLocation):
        return location
    code, offset = location
    found = _resolve(code.co_filename, code, offset)
    file = shown_file(code)
    return found if file == found.file else replace(found, file=file)


def located(error: NeuronError, location: Any) -> NeuronError:
    """The error with a source line, unless it has one."""
    if error.location is None:
        error.location = resolve(location)
    return error


def shown_file(code: CodeType) -> str:
    """The file of a function; of one in a notebook its cell, as IPython calls it, In[3], in place
    of the temporary file that IPython gives it."""
    file = code.co_filename
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(file)
    return str(name[1]) if name else file


@cache
def _resolve(file: str, code: CodeType, offset: int) -> SourceLocation:
    # `file` keeps functions apart that are equal but for their file, as Python's `==` does not.
    line, end_line, column, end_column = _position(code, offset)
    text = linecache.getline(file, line).rstrip("\n")
    start = len(text.encode()[:column].decode(errors="replace"))
    if offset < 0:
        start, end = len(text) - len(text.lstrip()), len(text)
    elif end_line != line:
        end = len(text)
    else:
        end = len(text.encode()[:end_column].decode(errors="replace"))
    return SourceLocation(file, line, start, end, code.co_name, text)


def _position(code: CodeType, offset: int) -> tuple[int, int, int, int]:
    """Line, end line, column and end column (bytes) of the instruction at an offset."""
    position = _positions(code)[offset // 2] if offset >= 0 else (None,) * 4
    line, end_line, column, end_column = position
    line = code.co_firstlineno if line is None else line
    return line, end_line or line, column or 0, end_column or 0


@cache
def _positions(code: CodeType) -> list[tuple[int | None, int | None, int | None, int | None]]:
    return list(code.co_positions())


def author_location() -> tuple[CodeType, int] | None:
    """The innermost call that was not made by this project's own packages."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


CallPath = tuple[str | tuple[CodeType, int], ...]
"""The author's calls that lead somewhere, innermost first: the variable that gets what each gives,
or its place where there is none."""


def call_path(until: CodeType) -> CallPath:
    """The author's calls below the innermost one that stands in `until`."""
    path: list[str | tuple[CodeType, int]] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not until:
        code, offset = frame.f_code, frame.f_lasti
        if not is_own_file(code.co_filename):
            path.append(_assigned_names(code).get(offset) or (code, offset))
        frame = frame.f_back
    return tuple(path)


def error_location(error: BaseException) -> tuple[CodeType, int] | None:
    """The innermost frame of an error's traceback that is neither this project's nor one of
    Python's own modules."""
    found = None
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if not is_own_file(code.co_filename) and not _is_of_python(code.co_filename):
            found = code, traceback.tb_lasti
        traceback = traceback.tb_next
    return found


def _is_of_python(filename: str) -> bool:
    """Whether a file is a module that comes with Python, and no installed package."""
    inside = filename.startswith(_PYTHON) and not filename.startswith(_INSTALLED)
    return inside or filename.startswith("<frozen ")


_PYTHON = os.path.dirname(os.__file__) + os.sep
_INSTALLED = os.path.join(_PYTHON, "site-packages")


def is_call(location: tuple[CodeType, int], name: str) -> bool:
    """Whether a location is a call of the function `name`, by the source text."""
    place = resolve(location)
    return place is not None and place.text[place.column :].startswith(f"{name}(")


def variable_name(location: Any, default: str) -> str:
    """The Python variable that the call at a location is assigned to (or iterated into); `default`
    for locations that are no calls."""
    if location.__class__ is not tuple:
        return default
    code, offset = location
    return _assigned_names(code).get(offset, default)


def tensor_name(location: Any) -> str | None:
    """As `variable_name` of a tensor that is made at a location, but None where a function makes
    it for its caller: then `name_for_caller` knows."""
    if location.__class__ is tuple and _is_returned(*location):
        return None
    return variable_name(location, "tensor")


def name_for_caller(location: Any) -> str:
    """The variable that gets a tensor which a function makes, at a location that is running now,
    and returns: the one of the caller that does not return it in turn."""
    name = variable_name(location, "tensor")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (frame.f_code, frame.f_lasti) != location:
        frame = frame.f_back
    while frame is not None and _is_returned(frame.f_code, frame.f_lasti):
        frame = frame.f_back
        if frame is None or is_own_file(frame.f_code.co_filename):
            break
        given = _assigned_names(frame.f_code).get(frame.f_lasti)
        if given is not None and given != frame.f_code.co_name:
            name = given
    return name


@cache
def _is_returned(code: CodeType, offset: int) -> bool:
    """Whether what the call at an offset gives is what its function returns."""
    name = _assigned_names(code).get(offset)
    return name is not None and name in _returned_names(code)


@cache
def _returned_names(code: CodeType) -> frozenset[str]:
    """The local variables that a function returns, one at a time; its own name stands for the
    results of calls that it returns at once."""
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    found = {code.co_name}
    for value, then in pairwise(instructions):
        if then.opname == "RETURN_VALUE" and value.opname.startswith("LOAD_FAST"):
            found.add(value.argval)
    return frozenset(found)


@cache
def _assigned_names(code: CodeType) -> dict[int, str]:
    """Variable name by offset of the call whose result it gets."""
    names: dict[int, str] = {}
    instructions = [i for i in dis.get_instructions(code) if i.opname != "CACHE"]
    of_tuples = _names_in_tuples(instructions)
    for index, call in enumerate(instructions[:-1]):
        if not call.opname.startswith("CALL"):
            continue
        following = instructions[index + 1 : index + 4]
        store = following[0]
        if [i.opname for i in following[:2]] == ["GET_ITER", "FOR_ITER"]:
            store = following[-1]
        elif len(following) > 1 and following[1].opname == "STORE_ATTR":
            store = following[1]
        name: str
        if store.opname.startswith(_STORES):
            name = store.argval[0] if isinstance(store.argval, tuple) else store.argval
        elif store.opname == "RETURN_VALUE" and code.co_name.isidentifier():
            name = code.co_name
        elif call.offset in of_tuples:
            name = of_tuples[call.offset]
        else:
            continue
        # A frame that is calling stands anywhere between the call and what follows it.
        for offset in range(call.offset, following[0].offset, 2):
            names[offset] = name
    return names


def _names_in_tuples(instructions: list[dis.Instruction]) -> dict[int, str]:
    """Variable name by offset of the call, where a statement assigns several at once: what its
    instructions leave on Python's stack is followed."""
    names: dict[int, str] = {}
    stack: list[Any] = []  # the offset of the call that gave a value, a tuple of them, or None
    for one in instructions:
        if one.is_jump_target or one.opcode in dis.hasjrel or one.opcode in dis.hasjabs:
            stack.clear()
        count = one.arg or 0
        stack[:0] = [None] * (count + 2 - len(stack) if count < 256 else 0)
        if one.opname == "SWAP":
            stack[-1], stack[-count] = stack[-count], stack[-1]
        elif one.opname == "BUILD_TUPLE" and count:
            stack[-count:] = [tuple(stack[-count:])]
        elif one.opname == "UNPACK_SEQUENCE":
            held = stack.pop()
            stack += reversed(held) if isinstance(held, tuple) else [None] * count
        elif one.opname.startswith(_STORES):
            if one.opname == "STORE_ATTR":
                stack.pop()
            for name in one.argval if isinstance(one.argval, tuple) else (one.argval,):
                if isinstance(given := stack.pop(), int):
                    names[given] = name
        else:
            _follow_stack(stack, one)
    return names


def _follow_stack(stack: list[Any], one: dis.Instruction) -> None:
    """What an instruction leaves on the stack, as far as its calls are concerned."""
    effect = dis.stack_effect(one.opcode, one.arg, jump=False)
    if effect > 0:
        stack += [None] * effect
        return
    del stack[len(stack) + effect :]
    if one.opname != "POP_TOP" and stack:
        stack[-1] = one.offset if one.opname.startswith("CALL") else None


def definition(function: Any) -> tuple[CodeType, int] | None:
    """Where a function begins; None for what is written in no file."""
    code = getattr(innermost(function), "__code__", None)
    return (code, -1) if isinstance(code, CodeType) else None


def return_location(function: Any) -> tuple[CodeType, int] | None:
    """The only statement that returns a function's value; of several, the function's first line."""
    code = getattr(innermost(function), "__code__", None)
    if not isinstance(code, CodeType):
        return None
    offsets = []
    nothing = False
    for instruction in dis.get_instructions(code):
        if instruction.opname == "RETURN_CONST":
            nothing = instruction.argval is None
        if instruction.opname.startswith("RETURN_") and not nothing:
            offsets.append(instruction.offset)
        nothing = instruction.opname == "LOAD_CONST" and instruction.argval is None
    return code, offsets[0] if len(offsets) == 1 else -1


def is_while_condition(location: tuple[CodeType, int]) -> bool:
    """Whether the truth value taken at a location is the whole condition of a `while`."""
    return _is_while_condition(*location)


def is_comparison(frame: FrameType) -> bool:
    """Whether the author's own `==`, `!=` or `<` is what runs in a frame; `in`, and what libraries
    compare, is not."""
    code = frame.f_code
    return dis.opname[code.co_code[frame.f_lasti]] == "COMPARE_OP" and not is_own_file(
        code.co_filename
    )


def asked_by_assert(name: str, made: object, frame: FrameType) -> bool | None:
    """Whether `assert` is what asks for the truth of a tensor in a frame, if the call just before
    has made the tensor. None if the tensor was there before: its truth may mean that there is one.
    `name`, `made`: of the tensor, and where the call is that made it, a pair of its code and its
    place there; tensors of graphs have another location."""
    if name.startswith(_PYTEST):
        return True
    code, offset = frame.f_code, frame.f_lasti
    if not isinstance(made, tuple) or made[0] is not code:
        return None
    last, asserts = _truth_asked(code, offset)
    return asserts if last < made[1] < offset else None


_PYTEST = "@py_assert"
"""How the variables are called in which pytest keeps what an `assert` calls."""


@cache
def _truth_asked(code: CodeType, offset: int) -> tuple[int, bool]:
    """Of an instruction that takes a truth value: what the one before it, which may have made the
    value, comes behind, and whether it belongs to an `assert` of nothing else."""
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PRECALL")]
    index = next(n for n, i in enumerate(instructions) if i.offset >= offset)
    last = instructions[index - 2].offset if index > 1 else -1
    if instructions[index].opname == "TO_BOOL":  # since Python 3.13
        index += 1
    jump, then = instructions[index : index + 2]
    if not jump.opname.startswith("POP_JUMP"):
        return last, False
    if jump.opname.endswith("IF_FALSE"):
        then = next(i for i in instructions if i.offset == jump.argval)
    return last, then.opname == "LOAD_ASSERTION_ERROR"


def while_exit(location: tuple[CodeType, int]) -> SourceLocation | None:
    """The `break` or `return` that may leave the `while` whose condition is at a location."""
    code, offset = location
    loop = (_while_loops(code.co_filename) or {}).get(_position(code, offset))
    statement = None if loop is None else _exit_of(loop.body)
    if statement is None:
        return None
    text = linecache.getline(code.co_filename, statement.lineno).rstrip("\n")
    start, end = statement.col_offset, statement.end_col_offset or 0
    return SourceLocation(shown_file(code), statement.lineno, start, end, code.co_name, text)


def _exit_of(body: list[ast.stmt]) -> ast.stmt | None:
    """The first statement that leaves the loop around `body`."""
    for statement in body:
        if isinstance(statement, (ast.Break, ast.Return)):
            return statement
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        inner = isinstance(statement, (ast.For, ast.While))
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            for child in getattr(statement, name, []):
                block = [child] if isinstance(child, ast.stmt) else child.body
                found = _exit_of(block)
                leaves = name == "body" and inner and isinstance(found, ast.Break)
                if found is not None and not leaves:
                    return found
    return None


@cache
def _is_while_condition(code: CodeType, offset: int) -> bool:
    position = _position(code, offset)
    loops = _while_loops(code.co_filename)
    if loops is not None:
        return position in loops
    # Without source: the compiler repeats the condition of a loop at the loop's end.
    jumps = [
        i
        for i in dis.get_instructions(code)
        if "JUMP" in i.opname and "IF" in i.opname and _position(code, i.offset) == position
    ]
    return len(jumps) > 1


@cache
def _while_loops(filename: str) -> dict[tuple[int, int, int, int], ast.While] | None:
    """The `while` statements of a file by the positions that the jumps of their conditions have,
    where the condition is one value; None without source."""
    lines = linecache.getlines(filename)
    try:
        tree = ast.parse("".join(lines)) if lines else None
    except SyntaxError:
        tree = None
    if tree is None:
        return None
    loops = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.While) and not isinstance(node.test, _COMPOUND):
            # Python 3.11 puts the jump at the whole statement, later versions at the condition.
            for part in (node, node.test):
                end_line, end_column = part.end_lineno or part.lineno, part.end_col_offset or 0
                loops[part.lineno, end_line, part.col_offset, end_column] = node
    return loops


def same_statement(left: tuple[CodeType, int], right: tuple[CodeType, int]) -> bool:
    """Whether two locations are copies of the same expression."""
    return left == right or (left[0] is right[0] and _position(*left) == _position(*right))


def is_own_file(filename: str) -> bool:
    """Whether a file belongs to this project's packages (generated functions included)."""
    return filename.startswith(_PACKAGES)
