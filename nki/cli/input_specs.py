"""Tensors and values on the command line: the grammar of --input, --symbol and --arg.

    NAME=KIND(SIZE,...)[:DTYPE]    KIND: normal, uniform, zeros, ones, arange
    NAME=(SIZE,...)[:DTYPE]        shape and dtype only (nki compile, nki ir)
    NAME=[VALUES][:DTYPE]          a (nested) list of numbers
    NAME=@FILE.npy[:DTYPE]         an array from a file, converted to DTYPE

Without a dtype: float32, int32 for lists of integers, the file's own. normal and uniform (0 to 1)
are for float dtypes. A SIZE is a number or the name of a --symbol.
"""

from __future__ import annotations

import ast
import difflib
import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from isa.dtypes import DTYPES, normalise
from isa.errors import NeuronError

KINDS = ("normal", "uniform", "zeros", "ones", "arange")
_RANDOM = ("normal", "uniform")
GRAMMAR = tuple((__doc__ or "").split("\n\n")[1].splitlines())
"""The forms of --input, a line each."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_PARAMETER = re.compile(r"[A-Za-z_][^=]*")
_SIZE = re.compile(r"\s*(\d+|[A-Za-z_]\w*)\s*")
_DTYPE = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One --input. `shape` is None for files and lists; `kind` is one of `KINDS`, "shape",
    "values" or "file", for which `source` is the list or the path. `dtype` None: not stated."""

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
            self.fail("expected the end here")


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
    kind = "shape"
    if not cursor.text.startswith("(", start):
        kind = cursor.match(_NAME, "(shape), " + ", ".join(KINDS) + ", [values] or @file.npy")
        if kind not in KINDS:
            cursor.fail(f"{kind} is none of {', '.join(KINDS)}", at=start)
    shape = _read_shape(cursor, symbols)
    dtype = _read_dtype(cursor) or "float32"
    cursor.end()
    if kind in _RANDOM and not (DTYPES[dtype].is_float and DTYPES[dtype].lanes == 1):
        cursor.fail(
            f"{kind} values are floats, {dtype} is not", "Use arange, ones, zeros or @file.npy."
        )
    return InputSpec(name, kind, shape, dtype, text=text)


def _read_shape(cursor: _Cursor, symbols: Mapping[str, Any]) -> tuple[Any, ...]:
    cursor.expect("(")
    sizes: list[Any] = []
    while not cursor.accept(")"):
        start = cursor.position
        size = cursor.match(_SIZE, "a size or `)`")
        if size.isdigit():
            if int(size) == 0:
                cursor.fail("a size is at least 1", at=start)
            sizes.append(int(size))
        elif size in symbols:
            sizes.append(symbols[size])
        else:
            known = f"; declared are {', '.join(symbols)}" if symbols else ""
            cursor.fail(
                f"there is no symbol {size}{known}",
                f"Declare it: --symbol {size}:multiple_of=128,max=8192.",
                at=start,
            )
        if not cursor.accept(",") and not cursor.text.startswith(")", cursor.position):
            cursor.fail("expected `,` or `)`")
    if not sizes:
        cursor.fail("a tensor has at least one dimension", at=cursor.position - 1)
    return tuple(sizes)


def _read_dtype(cursor: _Cursor) -> str | None:
    if not cursor.accept(":"):
        return None
    start = cursor.position
    name = cursor.match(_DTYPE, "a dtype")
    if name not in DTYPES:
        close = difflib.get_close_matches(name, DTYPES, n=1)
        cursor.fail(
            f"there is no dtype {name}; dtypes are {', '.join(DTYPES)}",
            f"Did you mean {close[0]}?" if close else "",
            at=start,
        )
    return name


def _read_file(cursor: _Cursor, name: str) -> InputSpec:
    rest = cursor.text[cursor.position :]
    path, colon, _ = rest.rpartition(":")
    if not colon or rest.endswith(".npy"):
        path = rest
    cursor.position += len(path)
    if not path:
        cursor.fail("expected the path of a .npy file")
    dtype = _read_dtype(cursor)
    cursor.end()
    return InputSpec(name, "file", None, dtype, path, cursor.text)


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


def kind_of(dtype: str) -> str:
    """The kind of values that suits a data type: random floats; zeros, which are indices too."""
    row = DTYPES[dtype]
    return "normal" if row.is_float and row.lanes == 1 else "zeros"


def make_array(spec: InputSpec, seed: int) -> Any:
    """The NumPy array that a spec describes.

    Random values depend on the seed and the parameter's name only. Raises bad-input-spec for a
    spec without values, file-not-found for a file that is not there or holds no array.
    """
    import numpy as np

    if spec.kind == "file":
        return _load(spec)
    if spec.kind == "values":
        return _from_values(spec)
    shape, row = spec.shape or (), DTYPES[spec.dtype or "float32"]
    if spec.kind == "shape":
        raise NeuronError(
            "bad-input-spec",
            f"--input {spec.text} has a shape and no values",
            hint=f"Say which values: {spec.text.replace('=', f'={kind_of(row.name)}', 1)}.",
        )
    random = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    makers: dict[str, Any] = {
        "normal": lambda: random.standard_normal(shape, dtype=np.float32),
        "uniform": lambda: random.random(shape, dtype=np.float32),
        "zeros": lambda: np.zeros(shape, np.int8),
        "ones": lambda: np.ones(shape, np.int8),
        "arange": lambda: np.arange(int(np.prod(shape))).reshape(shape),
    }
    try:
        return row.array(makers[spec.kind]())
    except (MemoryError, ValueError, OverflowError) as error:
        raise NeuronError(
            "bad-input-spec", f"--input {spec.text}: no array can have this shape here: {error}"
        ) from error


def _load(spec: InputSpec) -> Any:
    import numpy as np

    path = spec.source
    if not os.path.isfile(path):
        raise NeuronError("file-not-found", f"--input {spec.text}: there is no file {path}")
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise NeuronError(
            "bad-input-spec",
            f"--input {spec.text}: {path} is not a NumPy array file: {error}",
            hint="Write it with numpy.save(path, array).",
        ) from error
    if spec.dtype is None:
        return array
    wanted = DTYPES[spec.dtype]
    # NumPy files hold bfloat16 and the like as raw bytes.
    raw = array.dtype.kind == "V" and array.dtype.itemsize == wanted.size
    return array.view(wanted.numpy) if raw else wanted.array(array)


def _from_values(spec: InputSpec) -> Any:
    import numpy as np

    try:
        array = np.array(spec.source)
    except ValueError:
        array = np.array(None)
    if array.dtype.kind not in "bif" or array.size == 0:
        raise NeuronError(
            "bad-input-spec",
            f"--input {spec.text}: the values are not a full array of numbers",
            hint="Give all rows the same length: [[1,2],[3,4]].",
        )
    default = "float32" if array.dtype.kind == "f" else "int32"
    return DTYPES[spec.dtype or default].array(array)


def make_tensor_spec(spec: InputSpec) -> Any:
    """The `nki.TensorSpec` of a spec: its shape and dtype, whatever its values."""
    from nki import TensorSpec

    if spec.shape is None:
        array = make_array(spec, 0)
        return TensorSpec(array.shape, normalise(array.dtype))
    return TensorSpec(spec.shape, spec.dtype or "float32")


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
            close = difflib.get_close_matches(name, parameters, n=1)
            raise NeuronError(
                "unknown-input",
                f"{what} has no parameter {name}; its parameters are {listed}",
                hint=f"Did you mean {close[0]}?" if close else "",
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
                f"--input '{(examples or {}).get(name, f'{name}=normal(128,512):float32')}'"
                for name in missing
            ),
        )
