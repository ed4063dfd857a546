"""Errors of Python about tensors, registers and names of this API, as errors of the catalogue.

Python itself refuses `len(tile)`, `tile.sum()`, `nl.laod(a)` or `nl.load(a, mask=m)`, with messages
that do not know what to write instead. Where a kernel ends with one, it is translated; a kernel
that catches it sees Python's own exception.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

from isa.errors import NeuronError
from isa.errors.calls import called_name, wrong_call
from isa.wording import did_you_mean
from nki.ir.nodes import Register
from nki.ir.views.refused import NoNumber
from nki.keywords import meant_by

_REGISTER_LOAD = (
    "nisa.register_load(register, element) for loop bounds and offsets; Python has no value of a "
    "tile"
)

_ATTRIBUTES = {
    "T": "nl.transpose(tile), or permute(...) of a view in HBM",
    "astype": "nl.copy(tile, dtype=...)",
    "to": "nl.copy(tile, dtype=...)",
    "cast": "nl.copy(tile, dtype=...)",
    "copy": "nl.copy(tile)",
    "clone": "nl.copy(tile)",
    "dot": "nl.matmul(a, b)",
    "mm": "nl.matmul(a, b)",
    "item": _REGISTER_LOAD,
    "tolist": "nl.device_print; Python has no values of a tile",
    "numpy": "nl.device_print; Python has no values of a tile",
    "fill": "nisa.memset(dst=tile, value=...)",
    "fill_": "nisa.memset(dst=tile, value=...)",
    "zero_": "nisa.memset(dst=tile, value=0)",
    "flatten": "tile.reshape(shape)",
    "ravel": "tile.reshape(shape)",
}
"""Attributes of arrays, and what to write for them; others are functions of nki.language."""

_OF_TENSORS = (
    (r"no len\(\)", "tile.shape[0]; tile.shape has the sizes of all dimensions"),
    (r"not callable", "brackets, tile[...], for a part of it, or a function of nki.language"),
    (r"__format__", "nl.device_print for the values; tile.name and tile.shape are known here"),
    (
        r"(float|int|complex)\(\)|real number|as an integer|indices must be|__round__",
        _REGISTER_LOAD,
    ),
    (r"item deletion|__delitem__", "views: a part of a tile is tile[start:stop]"),
    (r"unary \+", "the tile itself"),
)
"""What to write where Python's message about a tensor has these words."""

_OF_A_TENSOR = ("shape", "dtype", "buffer", "ap", "reshape", "permute", "vector_select", "select")
"""Attributes of tensors that Python's own values lack."""

_PLAIN = frozenset({int, float, bool, complex, str, bytes, list, tuple, dict, type(None)})

_AS_IT_IS = "Arrays become tensors of a kernel; numbers, lists and None are there as they are."
_CONVERT = "Pass an array where a tensor is meant: np.asarray(value, np.float32)."

_AS_NUMBER = "A register's value exists only while the kernel runs on the device."
_BOUND = (
    "As a loop bound: nl.dynamic_range. As an index: scalar_offset of NkiTensor.ap, or "
    "nl.ds(register, size)."
)


def translated(error: Exception) -> NeuronError | None:
    """The error of the catalogue for an exception that ends a kernel; None for the kernel's own.

    >>> found = translated(TypeError("object of type 'NkiTensor' has no len()"))
    >>> found.code, found.hint
    ('not-supported', 'Write tile.shape[0]; tile.shape has the sizes of all dimensions.')
    >>> translated(TypeError("object of type 'int' has no len()")) is None
    True
    """
    if isinstance(error, AttributeError):
        return _attribute(error)
    return _wrong_type(error) if isinstance(error, TypeError) else None


def _attribute(error: AttributeError) -> NeuronError | None:
    name, message = error.name or "", str(error)
    if "Instruction' object has no attribute" in message and error.obj is None:
        what = f"an assignment to what an instruction returns: {message}"
        return NeuronError("unknown-name", what, hint="Keep what belongs to it beside it.")
    if isinstance(error.obj, NoNumber):
        what = f"tensors have no attribute {name!r}"
        return NeuronError("unknown-name", what, hint=_instead(type(error.obj), name))
    if isinstance(error.obj, Register):
        hint = f"Write {_REGISTER_LOAD}." if name in _ATTRIBUTES else _BOUND
        what = f"registers have no attribute {name!r}"
        return NeuronError("unknown-name", what, hint=hint)
    if name in _OF_A_TENSOR and type(error.obj) in _PLAIN:
        given = type(error.obj).__name__
        what = f"{'None' if error.obj is None else given} has no attribute {name!r}"
        return NeuronError("not-a-tensor", what, why=_AS_IT_IS, hint=_CONVERT)
    if message.startswith("module 'nki") and "has no attribute" in message:
        _, _, meant = message.partition("Did you mean: ")
        return NeuronError("unknown-name", message, hint=f"Did you mean {meant}" if meant else "")
    if re.match(r"nl\.\w+ is not part of this API", message):
        return NeuronError("unknown-name", what=message)
    return None


def _instead(kind: type[Any], name: str) -> str:
    """What to write for an attribute that tensors lack."""
    import nki.language as nl

    if name in _ATTRIBUTES:
        return f"Write {_ATTRIBUTES[name]}."
    if name in nl.__all__:
        return f"Write nl.{name}(tile, ...)."
    public = [known for known in dir(kind) if not known.startswith("_")]
    return did_you_mean(name, public, quoted=True)


def _wrong_type(error: TypeError) -> NeuronError | None:
    message = str(error)
    if (call := _wrong_call(error)) is not None:
        return call
    if "VirtualRegister" in message:
        return NeuronError("register-arithmetic", f"Python: {message}", why=_AS_NUMBER, hint=_BOUND)
    if "NkiTensor" not in message:
        return None
    instead = next((text for words, text in _OF_TENSORS if re.search(words, message)), None)
    return NeuronError(
        "not-supported",
        what=f"Python: {message}",
        why="A tensor is a place in a memory of the device: what it holds is not known while the "
        "kernel is traced.",
        hint=f"Write {instead or 'a function of nki.language or nki.isa'}.",
    )


def _wrong_call(error: TypeError) -> NeuronError | None:
    """The error of a call whose arguments a function of this API does not have; None for other
    errors and functions.

    >>> found = _wrong_call(TypeError("load() got an unexpected keyword argument 'dtyp'"))
    >>> found.code, found.hint
    ('unknown-argument', 'Did you mean dtype=? It takes src, dtype.')
    >>> _wrong_call(TypeError("reload() got an unexpected keyword argument 'mask'")) is None
    True
    """
    qualified = called_name(error)
    called = qualified and _own_function(qualified, error.__traceback__)
    return wrong_call(error, called, meant_by) if called else None


def _own_function(qualified: str, traceback: TracebackType | None) -> Callable[..., Any] | None:
    """The function of this API that Python names in a message; None for one of the author's."""
    import nki.language
    from nki.language.operators import OPERATOR_KINDS

    home, _, name = qualified.rpartition(".")
    if home == "NkiTensor":
        return getattr(nki.language.NkiTensor, name, None)
    if home or name in OPERATOR_KINDS:
        return OPERATOR_KINDS.get(name)
    while traceback is not None:
        frame = traceback.tb_frame
        value = frame.f_locals.get(name, frame.f_globals.get(name))
        if value is not None and not str(getattr(value, "__module__", None)).startswith("nki."):
            return None
        traceback = traceback.tb_next
    for module in (nki.language, sys.modules.get("nki.isa")):  # no kernel calls it without loading
        found: Any = getattr(module, name, None) if name in getattr(module, "__all__", ()) else None
        if callable(found):
            return cast("Callable[..., Any]", found)
    return None
