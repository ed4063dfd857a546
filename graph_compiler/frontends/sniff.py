"""Loading a graph from a file of any known format, recognised by content."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

from graph_compiler.hlo.graph import Module
from graph_compiler.hlo.proto import MAX_BYTES, find_module, from_proto
from graph_compiler.hlo.text import parse_text
from graph_compiler.hlo.verify import verify
from isa.errors import NeuronError
from nki import progress
from nki.errors import named_arguments

_HLO_TEXT = re.compile(rb"(?:\s++|//[^\n]*+\n|(?>/\*.*?\*/))*+HloModule\b", re.DOTALL)
"""The first word behind comments. Nothing that matched is tried another way: time is linear."""

_HEAD = 65536
"""Bytes in which the first word of a text is looked for, behind comments."""


def sniff(data: bytes) -> str:
    """The format of a file's bytes: "proto", "text" (HLO), "stablehlo", or "" for none of them.

    >>> sniff(b"HloModule m"), sniff(b"module @m {"), sniff(b"%PDF-1.7")
    ('text', 'stablehlo', '')
    """
    from graph_compiler.frontends.stablehlo import is_stablehlo

    head = data[:_HEAD]
    if _HLO_TEXT.match(head):
        return "text"
    if is_stablehlo(head):
        return "stablehlo"
    # Protos start with their first field, of two bytes: tag and length of a name or a message.
    if data[:1] == b"\x0a" and (not head[:512].isascii() or b"\x12" in head[:512]):
        return "proto"
    return "proto" if find_module(data) is not None else ""


def _text(data: bytes) -> Module:
    try:
        return parse_text(data.decode())
    except UnicodeDecodeError as error:
        raise NeuronError("hlo-syntax", f"byte {error.start} of the text is not UTF-8") from None


def _stablehlo(data: bytes) -> Module:
    from graph_compiler.frontends import stablehlo

    return stablehlo.load(data)


_READERS: dict[str, Callable[[bytes], Module]] = {
    "proto": from_proto,
    "text": _text,
    "stablehlo": _stablehlo,
}


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file. Raises NeuronError: file-not-found, hlo-too-large, argument-kind."""
    try:
        name = os.fspath(path)
    except TypeError:
        raise NeuronError(
            "argument-kind",
            "load takes a path, the bytes of a file, or a lowered or exported program, not "
            f"{type(path).__name__}.",
            hint="Pass the path, or what its file's read() gives.",
        ) from None
    try:
        size = os.path.getsize(name)
        if size >= MAX_BYTES:
            raise NeuronError("hlo-too-large", f"{name} has {size} bytes.")
        with open(name, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:  # ValueError: a null character in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise NeuronError("file-not-found", f"{name!r} cannot be read: {reason}") from None


@named_arguments
def load(source: Any, check: bool = True) -> Module:
    """The graph in a file, in the bytes of one, or in what jax and torch hand out.

    Reads HloModuleProto (also within HloProto and HloSnapshot), HLO text and, with the optional
    `jax` extra, StableHLO text and bytecode; the content says which. Takes also what
    `jax.jit(f).lower(...)`, `jax.export.export(...)(...)` and `torch.export.export(...)` return
    (the weights of the last become constants). With `check`, the graph is
    verified (`graph_compiler.verify`). Raises NeuronError: file-not-found, format-unknown,
    argument-kind, the errors of the formats, and those of `verify`.

    >>> load(b"HloModule twice\\nENTRY e { x = s8[2] parameter(0) ROOT y = s8[2] add(x, x) }")
    <module twice: 1 computations>
    """
    return load_with_format(source, check)[0]


def load_with_format(source: Any, check: bool = True) -> tuple[Module, str]:
    """What `load` gives, and the format that it was read from: as `sniff` names it, or whose."""
    progress.stage("read the graph")
    module, form = _held(source) or _in_bytes(source)
    if check:
        progress.stage("check the graph")
        verify(module)
    return module, form


def _held(source: Any) -> tuple[Module, str] | None:
    from graph_compiler.frontends.held import held

    return None if isinstance(source, (str, bytes, bytearray, memoryview)) else held(source)


def _in_bytes(source: Any) -> tuple[Module, str]:
    given = isinstance(source, (bytes, bytearray, memoryview))
    data = bytes(source) if given else read_file(source)
    form = sniff(data)
    reader = _READERS.get(form)
    if reader is None:
        what = f"The first bytes are {data[:16]!r}." if data else "The file is empty."
        raise NeuronError("format-unknown", what)
    return reader(data), form
