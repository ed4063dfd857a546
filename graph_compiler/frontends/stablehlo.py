"""StableHLO in and out: MLIR text, MLIR bytecode and portable artifacts, by jaxlib's converters.

XLA's own conversion to HLO defines what a StableHLO program means as a graph, so it is used rather
than imitated (`converter`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graph_compiler.frontends.converter import FROM_HLO, REFUSED, TO_HLO, Conversion, convert
from graph_compiler.hlo.arguments import bytes_argument
from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module

BYTECODE_MAGIC = b"ML\xefR"
"""First bytes of MLIR bytecode, portable artifacts included (mlir.llvm.org/docs/BytecodeFormat)."""

_FIRST_WORD = re.compile(
    rb"(?:\s++|//[^\n]*+\n|#[^\n]*+\n|![^\n]*+\n)*+(module\b|func\.func\b|\"builtin)"
)

_POSITION = re.compile(r"^(?:-|loc\(unknown\)|<unknown>):(\d+):(\d+): ")


def is_stablehlo(data: bytes) -> bool:
    """Whether a file's bytes look like an MLIR module, text or bytecode.

    >>> is_stablehlo(b"// a comment\\nmodule @jit_f {"), is_stablehlo(b"HloModule jit_f")
    (True, False)
    """
    return data.startswith(BYTECODE_MAGIC) or _FIRST_WORD.match(data) is not None


def to_proto(source: str | bytes) -> bytes:
    """A StableHLO program as a serialized HloModuleProto.

    `source`: MLIR text, MLIR bytecode or a portable artifact, with a public function `main`.
    Raises NeuronError: `missing-extra` without jaxlib, `front-end` where XLA refuses the program or
    takes too long, `hlo-too-large` where it takes too much memory.
    """
    given = source.encode(errors="replace") if isinstance(source, str) else source
    data = bytes_argument(given, "stablehlo.load")
    result = convert(TO_HLO, data, "reading StableHLO")
    if result.code == 0:
        return result.result
    raise _refusal(data, result)


def from_module(module: Module) -> str:
    """A graph as a StableHLO program, in MLIR text, as XLA itself writes it.

    Raises NeuronError: `missing-extra` without jaxlib, `front-end` where StableHLO cannot state
    the graph.
    """
    from graph_compiler.frontends.handover import proto_for_xla

    result = convert(FROM_HLO, proto_for_xla(module), "writing StableHLO")
    if result.code == 0:
        return result.result.decode()
    complaint = result.complaint.strip().partition("\n")[0]
    reason = complaint if result.code == REFUSED else result.fatal
    raise NeuronError(
        "front-end", f"XLA cannot state the module `{module.name}` in StableHLO: {reason}"
    )


def load(source: str | bytes) -> Module:
    """A StableHLO program as a graph. Arguments and errors as of `to_proto`."""
    from graph_compiler.hlo.proto import from_proto

    return from_proto(to_proto(source))


def _refusal(data: bytes, result: Conversion) -> NeuronError:
    """The error for a program that XLA refuses, or on which it ends its process."""
    if result.code != REFUSED:
        return NeuronError("front-end", f"XLA stopped on the StableHLO program: {result.fatal}")
    # "UNKNOWN: -:3:2: error: MESSAGE", followed by notes and the operation in generic form.
    first = re.sub(r"^[A-Z_]+: ", "", result.complaint.strip()).partition("\n")[0]
    position = _POSITION.match(first)
    message = _POSITION.sub("", first).removeprefix("error: ")
    if position is None or data.startswith(BYTECODE_MAGIC) or position[1] == "0":
        return NeuronError("front-end", f"XLA refuses the StableHLO program: {message}")
    number, column = int(position[1]), int(position[2])
    lines = data.decode(errors="replace").splitlines()
    text = lines[number - 1] if number <= len(lines) else ""
    return NeuronError(
        "front-end",
        f"XLA refuses line {number} of the StableHLO program: {message}",
        notes=(text[:200], " " * (column - 1) + "^") if column <= 200 else (text[:200],),
    )
