"""Tensors and values on the command line: the grammar of --input, --symbol and --arg.

    NAME=KIND(SIZE,...)[:DTYPE]    KIND: normal, uniform, randint, onehot, ... with options
    NAME=(SIZE,...)[:DTYPE]        shape and dtype only (nki compile, nki ir)
    NAME=[VALUES][:DTYPE]          a (nested) list of numbers
    NAME=@FILE[:ENTRY][:DTYPE]     an array of a .npy, .npz, .pt or .safetensors file
    NAME=EXPRESSION[:DTYPE]        of numbers, kinds and other inputs: 2*a.T+normal(4,8)

Kinds are normal, uniform, zeros, ones, arange, randint, choice, permutation and onehot (both along
the last dimension). Options stand behind the sizes: normal(4,8,scale=1,mean=0),
uniform(4,8,low=0,high=1), randint(4,8,low=0,high=10) without 10, choice(4,8,of=[1,2]). Behind sizes
in parentheses they need no names: normal((4,8),0.5), randint((4,8),0,10). Without sizes a kind has
those of the input that like= names, randint(0,10,like=a), of the inputs in its expression,
a+randint(0,10), or of the parameter of a container, randint(0,10).

Without a dtype: float32, int32 for randint, permutation and lists of whole numbers, the file's own.
normal and uniform are for float dtypes. A SIZE is a number or the name of a --symbol. A file with
several arrays gives the one called ENTRY, else the one called like the parameter.

Expressions have + - * / // % ** @, comparisons, .T, indices, and abs, exp, sqrt, round, minimum,
maximum, where and transpose. Low-precision inputs count as float32 in them.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.wording import did_you_mean
from nki.cli.array_files import SUFFIXES
from nki.cli.input_values import FUNCTIONS, KINDS, check_expression, default_dtype

GRAMMAR = tuple((__doc__ or "").split("\n\n")[1].splitlines())
"""The forms of --input, a line each."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_PARAMETER = re.compile(r"[A-Za-z_][^=]*")
_SIZE = re.compile(r"\s*(\d+|[A-Za-z_]\w*)\s*")
_DTYPE = re.compile(r"\w+")
_STATED_DTYPE = re.compile(r":\w*$")
_SHAPE = re.compile(r"\([\w\s,;]*\)?\s*(:|$)")
_CALL = re.compile(r"([A-Za-z_]\w*)(\(?)")
_LIKE = re.compile(r"[(,]\s*like\s*=")
_PAIR = re.compile(r"\(\s*([-+]?\d+)\s*,\s*([-+]?\d+)\s*\)")
_OPTION = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*")
_VALUE = re.compile(r"\s*(\[[^\]]*\]|[-+.\w]+)\s*")
_SUFFIX = "|".join(re.escape(suffix) for suffix in SUFFIXES)
_FILE = re.compile(rf"(.*?(?:{_SUFFIX})|[^:]*)(?::([^:]*))?(?::([^:]*))?$")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One --input. `kind` is one of `KINDS` or "shape", which have a shape (None: of a container's
    parameter), or "values", "file" or "expression". `source`: the options of a kind, the list, the
    path and the entry (or None), or the tree. `dtype` None: not stated."""

    name: str
    kind: str
    shape: tuple[Any, ...] | None
    dtype: str | None
    source: Any = None
    text: str = ""


_FORMS = {
    "--arg": (
        "An argument is NAME=VALUE: a number, true, false, none, a quoted or plain text.",
        "For example: --arg scale=0.5.",
    ),
    "--symbol": (
        "A symbol is NAME, or NAME:LIMIT=NUMBER,... with the limits multiple_of, min and max.",
        "For example: --symbol M:multiple_of=128,max=8192.",
    ),
}
"""What an option takes, and an example, by its name; those of --input are the catalogue's."""


_IN_PARENTHESES = "Sizes in parentheses come first, options behind them: randint((128,512),0,2)."


class _Cursor:
    """A position in the text of an option; errors point at it."""

    def __init__(self, option: str, text: str) -> None:
        self.option = option
        self.text = text
        self.position = 0

    def fail(self, what: str, hint: str = "", at: int | None = None) -> NoReturn:
        position = self.position if at is None else at
        notes = [self.text, " " * position + "^"]
        if self.option == "--input":
            notes += ["", "The forms are:", *(line.strip() for line in GRAMMAR)]
        form, example = _FORMS.get(self.option, ("", ""))
        raise NeuronError(
            "bad-input-spec",
            f"{self.option} {self.text}: {what}",
            why=form,
            hint=hint or example,
            notes=tuple(notes),
        )

    def accept(self, text: str) -> bool:
        if not self.text.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected `{text}`")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        found = pattern.match(self.text, self.position)
        if found is None:
            self.fail(f"expected {what}")
        self.position = found.end()
        return found[0].strip()

    def end(self) -> None:
        if self.position < len(self.text):
            behind = self.text.startswith("(", self.position)
            self.fail("expected the end here", _IN_PARENTHESES if behind else "")


def read_inputs(texts: Sequence[str], symbols: Mapping[str, Any]) -> dict[str, InputSpec]:
    """The specs of all --input options by name.

    Raises bad-input-spec, or unknown-input for a name that comes twice.
    """
    specs: dict[str, InputSpec] = {}
    for text in texts:
        spec = read_input(text, symbols)
        if spec.name in specs:
            raise NeuronError(
                "unknown-input",
                f"--input {spec.name} comes twice: {specs[spec.name].text} and {text}",
                why="Every tensor parameter takes one --input.",
                hint="Leave one of them out.",
            )
        specs[spec.name] = spec
    return specs


def read_input(text: str, symbols: Mapping[str, Any]) -> InputSpec:
    """One --input; `symbols` are the launch symbols that its shape may name."""
    cursor = _Cursor("--input", text)
    name = cursor.match(_PARAMETER, "the name of a parameter")
    cursor.expect("=")
    if cursor.accept("@"):
        return _read_file(cursor, name)
    if cursor.text.startswith("[", cursor.position):
        return _read_values(cursor, name)
    start = cursor.position
    if _SHAPE.match(text, start):
        return _read_made(cursor, name, "shape", symbols)
    found = _CALL.match(text, start)
    if found is None or (found[1] in FUNCTIONS and found[2]):
        return _read_expression(cursor, name)
    kind = found[1]
    if kind not in KINDS and found[2]:
        what = f"{kind} is none of {', '.join(KINDS)}"
        cursor.fail(what, did_you_mean(kind, KINDS), at=start)
    if kind not in KINDS or _goes_on(text, found) or _LIKE.search(text, start):
        return _read_expression(cursor, name)
    cursor.position = found.end(1)
    return _read_made(cursor, name, kind, symbols)


def _goes_on(text: str, call: re.Match[str]) -> bool:
    """Whether an operator stands behind the parenthesis that closes a call."""
    depth = 0
    for place in range(call.end(1), len(text)):
        depth += (text[place] in "([") - (text[place] in ")]")
        if depth == 0:
            return text[place + 1 :].lstrip()[:1] in tuple("+-*/%@<>=!.[")
    return False


def _read_made(cursor: _Cursor, name: str, kind: str, symbols: Mapping[str, Any]) -> InputSpec:
    """What has a shape: a kind of values, or the shape alone."""
    defaults = KINDS[kind].options if kind in KINDS else {}
    shape, given = _read_pair(cursor, kind) or _read_shape(cursor, symbols, tuple(defaults))
    if shape is None and kind == "shape":
        cursor.fail("a tensor has at least one dimension", at=cursor.position - 1)
    options = {**defaults, **given}
    for option, value in options.items():
        if value is None:
            cursor.fail(f"{kind} needs {option}=", at=cursor.position - 1)
    stated = _read_dtype(cursor)
    cursor.end()
    row = DTYPES[stated or "float32"]
    if kind in KINDS and KINDS[kind].only == "floats" and not (row.is_float and not row.is_packed):
        cursor.fail(
            f"{kind} values are floats, {row.name} is not",
            "Use randint, arange, ones, zeros or @file.npy.",
        )
    dtype = stated or (default_dtype(kind) if shape is not None else None)
    return InputSpec(name, kind, shape, dtype, options, cursor.text)


def _read_pair(cursor: _Cursor, kind: str) -> tuple[None, dict[str, Any]] | None:
    """Two numbers that are options and no sizes, where the kind has such: randint(0,10)."""
    pair = KINDS[kind].pair if kind in KINDS else ()
    found = _PAIR.match(cursor.text, cursor.position) if pair else None
    if found is None:
        return None
    cursor.position = found.end()
    return None, dict(zip(pair, map(int, found.groups())))


def _read_expression(cursor: _Cursor, name: str) -> InputSpec:
    start = cursor.position
    rest = cursor.text[start:]
    body = _STATED_DTYPE.sub("", rest)
    if not body.strip():
        cursor.fail(f"expected (shape), {', '.join(KINDS)}, [values], @file or an expression")
    try:
        tree = ast.parse(body, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        at = start + max(getattr(error, "offset", 1) or 1, 1) - 1
        cursor.fail(f"expected an expression: {error.args[0]}", at=min(at, len(cursor.text)))
    if isinstance(tree, ast.Name) and tree.id in KINDS:
        cursor.position += len(tree.id)
        cursor.expect("(")
    wrong = check_expression(tree)
    if wrong is not None:
        cursor.fail(wrong[1], at=start + getattr(wrong[0], "col_offset", 0))
    cursor.position = start + len(body)
    dtype = _read_dtype(cursor)
    cursor.end()
    return InputSpec(name, "expression", None, dtype, tree, cursor.text)


def _read_shape(
    cursor: _Cursor, symbols: Mapping[str, Any], known: tuple[str, ...]
) -> tuple[tuple[Any, ...] | None, dict[str, Any]]:
    """Sizes, None without any, and those of the known options that stand behind them; behind sizes
    in parentheses of their own options may be without names."""
    cursor.expect("(")
    sizes: list[Any] = []
    options: dict[str, Any] = {}
    grouped = cursor.accept("(")
    while not cursor.accept(")"):
        start = cursor.position
        option = _OPTION.match(cursor.text, start)
        if option is not None and not grouped:
            options[option[1]] = _read_option(cursor, option, known)
        elif known and cursor.text.startswith("[", start):
            cursor.fail(
                "expected a size",
                f"Sizes come first, options behind them by name: (4,8,{known[0]}=[1,2]).",
                at=start,
            )
        else:
            sizes.append(_read_size(cursor, symbols, _IN_PARENTHESES if known else ""))
            _read_comma(cursor)
    if grouped:
        options = _read_options(cursor, known)
    if grouped and not sizes:
        cursor.fail("a tensor has at least one dimension", at=cursor.position - 1)
    return tuple(sizes) or None, options


def _read_size(cursor: _Cursor, symbols: Mapping[str, Any], hint: str = "") -> Any:
    start = cursor.position
    size = cursor.match(_SIZE, "a size or `)`")
    if size.isdigit():
        if int(size) == 0:
            cursor.fail("a size is at least 1", hint, at=start)
        return int(size)
    if size not in symbols:
        declared = f"; declared are {', '.join(symbols)}" if symbols else ""
        cursor.fail(
            f"there is no symbol {size}{declared}",
            f"Declare it: --symbol {size}:multiple_of=128,max=8192.",
            at=start,
        )
    return symbols[size]


def _read_comma(cursor: _Cursor) -> None:
    if not cursor.accept(",") and not cursor.text.startswith(")", cursor.position):
        cursor.fail("expected `,` or `)`")


def _read_options(cursor: _Cursor, known: tuple[str, ...]) -> dict[str, Any]:
    """What stands behind sizes in parentheses: values in the order of the options, or by name."""
    options: dict[str, Any] = {}
    _read_comma(cursor)
    while not cursor.accept(")"):
        option = _OPTION.match(cursor.text, cursor.position)
        if option is not None:
            options[option[1]] = _read_option(cursor, option, known)
            continue
        if len(options) == len(known):
            cursor.fail(f"expected `)`: there are {len(known)} options")
        options[known[len(options)]] = _read_value(cursor)
    return options


def _read_option(cursor: _Cursor, option: re.Match[str], known: tuple[str, ...]) -> Any:
    """The value of one NAME=VALUE."""
    if option[1] not in known:
        there = f"; there are {', '.join(known)}" if known else " here"
        cursor.fail(f"there is no option {option[1]}{there}")
    cursor.position = option.end()
    return _read_value(cursor)


def _read_value(cursor: _Cursor) -> Any:
    """A number or a list of numbers; also the comma behind it."""
    start = cursor.position
    text = cursor.match(_VALUE, "a number or [numbers]")
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        cursor.fail("expected a number or [numbers]", at=start)
    _read_comma(cursor)
    return value


def _read_dtype(cursor: _Cursor) -> str | None:
    if not cursor.accept(":"):
        return None
    start = cursor.position
    name = cursor.match(_DTYPE, "a dtype")
    if name not in DTYPES:
        listed = sorted(DTYPES, key=lambda known: (not DTYPES[known].is_float, known))
        cursor.fail(
            f"there is no dtype {name}; dtypes are {', '.join(listed)}",
            did_you_mean(name, DTYPES),
            at=start,
        )
    return name


def _read_file(cursor: _Cursor, name: str) -> InputSpec:
    found = _FILE.match(cursor.text, cursor.position)
    if found is None or not found[1]:
        cursor.fail(f"expected the path of a file ({', '.join(SUFFIXES)})")
    path, entry, stated = found.groups()
    if entry is not None and stated is None and (entry in DTYPES or path.endswith(".npy")):
        entry, stated = None, entry  # a file of one array has no entries: a dtype is meant
    cursor.position = found.end() - (len(stated) + 1 if stated is not None else 0)
    dtype = _read_dtype(cursor)
    cursor.end()
    return InputSpec(name, "file", None, dtype, (path, entry), cursor.text)


def _read_values(cursor: _Cursor, name: str) -> InputSpec:
    end = cursor.text.rfind("]") + 1
    start = cursor.position
    try:
        values = json.loads(cursor.text[start:end])
    except ValueError:
        cursor.fail("expected a list of numbers such as [[1,2],[3,4]]")
    cursor.position = max(end, start)
    dtype = _read_dtype(cursor)
    cursor.end()
    return InputSpec(name, "values", None, dtype, values, cursor.text)


def read_symbols(texts: Sequence[str]) -> dict[str, Any]:
    """Launch symbols by name: `M:multiple_of=128,max=8192`. Raises bad-input-spec."""
    import nki

    symbols: dict[str, Any] = {}
    for text in texts:
        cursor = _Cursor("--symbol", text)
        name = cursor.match(_NAME, "the name of a symbol")
        limits: dict[str, int] = {}
        if cursor.accept(":"):
            while True:
                start = cursor.position
                limit = cursor.match(_NAME, "multiple_of, min or max")
                if limit not in ("multiple_of", "min", "max"):
                    cursor.fail(f"{limit} is none of multiple_of, min, max", at=start)
                cursor.expect("=")
                limits[limit] = int(cursor.match(re.compile(r"\d+"), "a number"))
                if not cursor.accept(","):
                    break
        cursor.end()
        if name in symbols:
            cursor.fail(f"symbol {name} is declared twice", at=0)
        symbols[name] = nki.symbol(name, **limits)
    return symbols


_TENSOR = re.compile(
    rf"({'|'.join(KINDS)})?\s*\([\w\s,;=.()\[\]-]*\)\s*:\s*\w+$|({'|'.join(KINDS)})\(|@"
)
"""How an --input begins that can be no value of an --arg."""

_WORDS = {"true": True, "false": False, "none": None}


def read_arguments(texts: Sequence[str]) -> dict[str, Any]:
    """Compile-time arguments by name: numbers, true, false, none, quoted or plain text."""
    values: dict[str, Any] = {}
    for text in texts:
        cursor = _Cursor("--arg", text)
        name = cursor.match(_PARAMETER, "the name of a parameter")
        cursor.expect("=")
        rest = text[cursor.position :]
        if name in values:
            raise NeuronError("unknown-input", f"--arg {name} comes twice")
        if _TENSOR.match(rest):
            cursor.fail("this describes a tensor", f"Tensors are inputs: --input '{text}'.")
        values[name] = _literal(rest)
    return values


def _literal(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def match_parameters(
    specs: Mapping[str, Any],
    values: Mapping[str, Any],
    parameters: Mapping[str, bool],
    what: str,
    examples: Mapping[str, str] | None = None,
) -> None:
    """Check names of inputs and arguments against parameters (name -> whether it is required).
    `examples` are inputs that fit, by name, where they are known.

    Raises unknown-input, listing the parameters of `what`.
    """
    listed = ", ".join(parameters) or "(none)"
    for name in (*specs, *values):
        if name not in parameters:
            raise NeuronError(
                "unknown-input",
                f"{what} has no parameter {name}; its parameters are {listed}",
                hint=did_you_mean(name, parameters),
            )
    both = [name for name in specs if name in values]
    if both:
        raise NeuronError("unknown-input", f"{both[0]} is given by --input and by --arg")
    missing = [n for n, required in parameters.items() if required and n not in {*specs, *values}]
    if missing:
        raise NeuronError(
            "unknown-input",
            f"{what} needs {', '.join(missing)}; its parameters are {listed}",
            why="Every parameter without a default takes an --input (tensor) or an --arg (value).",
            hint=" ".join(
                f"--input '{examples[name]}'"
                if examples and name in examples
                else f"--input '{name}=normal(128,512):float32', or --arg {name}=1."
                for name in missing
            ),
        )
