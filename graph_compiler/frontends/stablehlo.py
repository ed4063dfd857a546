"""StableHLO in and out: MLIR text, MLIR bytecode and portable artifacts, by jaxlib's converters.

XLA's own conversion to HLO defines what a StableHLO program means as a graph, so it is used rather
than imitated. jaxlib offers it as `jaxlib.xla_client._xla.mlir` (jax 0.4 to 0.10). Conversions
run in a process of their own: the C++ code ends its process on some invalid programs.
"""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

from isa.errors import NeuronError

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Module

BYTECODE_MAGIC = b"ML\xefR"
"""First bytes of MLIR bytecode, portable artifacts included (mlir.llvm.org/docs/BytecodeFormat)."""

SECONDS = 600
"""Longest time that one conversion may take."""

_MISSING = 3
"""Exit code of the converter where jaxlib cannot be imported."""

_REFUSED = 4
"""Exit code of the converter where XLA refuses the program."""

_FIRST_WORD = re.compile(
    rb"(?:\s|//[^\n]*\n|#[^\n]*\n|![^\n]*\n)*(module\b|func\.func\b|\"builtin)"
)

_POSITION = re.compile(r"^(?:-|loc\(unknown\)|<unknown>):(\d+):(\d+): ")

_TO_HLO = """
    graph = mlir.mlir_module_to_xla_computation(source, use_tuple_args=False, return_tuple=False)
    result = graph.as_serialized_hlo_module_proto()
"""

_FROM_HLO = """
    result = mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(source)).encode()
"""


def _converter(conversion: str) -> str:
    """A Python program that converts `source`, its standard input, to its standard output."""
    return f"""
import sys
try:
    from jaxlib import xla_client
    mlir = xla_client._xla.mlir
except (ImportError, AttributeError) as error:
    sys.stderr.write(str(error))
    sys.exit({_MISSING})
source = sys.stdin.buffer.read()
try:{conversion}
except Exception as error:
    sys.stderr.write(str(error))
    sys.exit({_REFUSED})
sys.stdout.buffer.write(result)
"""


def is_stablehlo(data: bytes) -> bool:
    """Whether a file's bytes look like an MLIR module, text or bytecode.

    >>> is_stablehlo(b"// a comment\\nmodule @jit_f {"), is_stablehlo(b"HloModule jit_f")
    (True, False)
    """
    return data.startswith(BYTECODE_MAGIC) or _FIRST_WORD.match(data) is not None


def to_proto(source: str | bytes) -> bytes:
    """A StableHLO program as a serialized HloModuleProto.

    `source`: MLIR text, MLIR bytecode or a portable artifact, with a public function `main`.
    Raises NeuronError: `missing-extra` without jaxlib, `front-end` where XLA refuses the program.
    """
    data = source.encode() if isinstance(source, str) else bytes(source)
    result = _run(_TO_HLO, data, "reading StableHLO")
    if result.returncode == 0:
        return result.stdout
    raise _refusal(data, result)


def _run(conversion: str, data: bytes, purpose: str) -> subprocess.CompletedProcess[bytes]:
    """What became of a conversion. Raises NeuronError missing-extra, front-end (out of time)."""
    command = [sys.executable, "-c", _converter(conversion)]
    try:
        result = subprocess.run(command, input=data, capture_output=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise NeuronError(
            "front-end", f"{purpose}: XLA took more than {SECONDS} s for the conversion"
        ) from None
    if result.returncode == _MISSING:
        complaint = result.stderr.decode(errors="replace")
        raise NeuronError(
            "missing-extra",
            f"{purpose} needs jaxlib, which cannot be used here ({complaint})",
            hint="Run `pip install 'opennki[jax]'`, or use the HLO proto of the same program.",
        )
    return result


def from_module(module: Module) -> str:
    """A graph as a StableHLO program, in MLIR text, as XLA itself writes it.

    Raises NeuronError: `missing-extra` without jaxlib, `front-end` where StableHLO cannot state
    the graph.
    """
    from graph_compiler.frontends.handover import proto_for_xla

    result = _run(_FROM_HLO, proto_for_xla(module), "writing StableHLO")
    if result.returncode == 0:
        return result.stdout.decode()
    complaint = result.stderr.decode(errors="replace").strip().partition("\n")[0]
    reason = complaint if result.returncode == _REFUSED else _fatal(result)
    raise NeuronError(
        "front-end", f"XLA cannot state the module `{module.name}` in StableHLO: {reason}"
    )


def _fatal(result: subprocess.CompletedProcess[bytes]) -> str:
    """Why a converter ended its own process."""
    lines = result.stderr.decode(errors="replace").splitlines()
    fatal = [line for line in lines if re.match(r"F\d{4} ", line)]
    return fatal[0].partition("] ")[2] if fatal else f"exit code {result.returncode}"


def load(source: str | bytes) -> Module:
    """A StableHLO program as a graph. Arguments and errors as of `to_proto`."""
    from graph_compiler.hlo.proto import from_proto

    return from_proto(to_proto(source))


def _refusal(data: bytes, result: subprocess.CompletedProcess[bytes]) -> NeuronError:
    """The error for a program that XLA refuses, or on which it ends its process."""
    if result.returncode != _REFUSED:
        return NeuronError("front-end", f"XLA stopped on the StableHLO program: {_fatal(result)}")
    complaint = result.stderr.decode(errors="replace")
    # "UNKNOWN: -:3:2: error: MESSAGE", followed by notes and the operation in generic form.
    first = re.sub(r"^[A-Z_]+: ", "", complaint.strip()).partition("\n")[0]
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
