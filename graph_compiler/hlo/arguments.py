"""Checks of what the public functions of this package are given."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from graph_compiler.hlo.graph import Module
from isa.errors import NeuronError


def module_argument(value: Any, function: str) -> Module:
    """A graph. Raises NeuronError argument-kind.

    >>> module_argument("model.hlo.pb", "evaluate")
    Traceback (most recent call last):
    ...
    isa.errors.NeuronError: [NKI0711 argument-kind] evaluate takes a graph, not str 'model.hlo.pb'.
      try: Read the graph first: graph_compiler.load(path), or parse_text(text) of HLO text.
    """
    if isinstance(value, Module):
        return value
    hint = "Graphs come from graph_compiler.load, parse_text, from_proto and the front-ends."
    if isinstance(value, (str, bytes, bytearray, os.PathLike)):
        hint = "Read the graph first: graph_compiler.load(path), or parse_text(text) of HLO text."
    elif callable(value):
        hint = "Trace the function first: graph_compiler.frontends.jax.trace(function, *arguments)."
    raise NeuronError("argument-kind", f"{function} takes a graph, not {_shown(value)}.", hint=hint)


def text_argument(value: Any, function: str) -> str:
    """A text. Raises NeuronError argument-kind."""
    if isinstance(value, str):
        return value
    raise NeuronError(
        "argument-kind",
        f"{function} takes a str, not {_shown(value)}.",
        hint="Decode bytes, or give them to graph_compiler.load, which reads every format.",
    )


def bytes_argument(value: Any, function: str) -> bytes:
    """Bytes, of whatever holds them. Raises NeuronError argument-kind."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise NeuronError(
        "argument-kind",
        f"{function} takes bytes, not {_shown(value)}.",
        hint="Pass what open(path, 'rb').read() gives, or the path to graph_compiler.load.",
    )


def sequence_argument(
    value: Any,
    function: str,
    members: str = "the inputs of each rank",
    hint: str = "Pass a list with a list of arrays for every rank.",
) -> Sequence[Any]:
    """A sequence of `members`. Raises NeuronError argument-kind."""
    if hasattr(value, "__len__") and not isinstance(value, (str, bytes, dict)):
        return value  # type: ignore[no-any-return]
    raise NeuronError(
        "argument-kind",
        f"{function} takes a list of {members}, not {_shown(value)}.",
        hint=hint,
    )


def count_argument(value: Any, name: str, least: int, most: int) -> int:
    """A whole number within limits. Raises NeuronError argument-kind, value-not-allowed."""
    try:
        number = value.__index__()
    except AttributeError:
        what = f"{name} is {_shown(value)}; it is an integer."
        raise NeuronError("argument-kind", what) from None
    if not least <= number <= most:
        raise NeuronError("value-not-allowed", f"{name} is {number}; it is {least} to {most}.")
    return int(number)


def _shown(value: Any) -> str:
    """An argument's type, and its value if that is short."""
    text = repr(value) if isinstance(value, (str, bytes, int, float)) else ""
    return f"{type(value).__name__} {text}".rstrip() if len(text) <= 60 else type(value).__name__
