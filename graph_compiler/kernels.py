"""NKI kernels that a graph calls: the custom call, and which kernel it names.

The call's target is `AwsNeuronCustomNativeKernel`, its backend configuration the base64 text of
JSON. `func_name` names the kernel; `klir_binary` has `aliases`, pairs of an operand and a result
that share memory (facts of public clients of the SDK's `nki` package).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graph_compiler.hlo.operators.row import subject
from isa.errors import NeuronError
from isa.wording import did_you_mean

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction

TARGET = "AwsNeuronCustomNativeKernel"
"""The target of custom calls of NKI kernels."""

Kernels = Mapping[str, Any]
"""Kernels by the name that custom calls have for them: what `nki.jit` returns, or anything with
`trace(*specs, target=)`."""


def configuration(name: str, target: str, inputs: list[str], outputs: list[str]) -> str:
    """The backend configuration of a call of the kernel `name`.

    >>> called_name_of = json.loads(base64.b64decode(configuration("k", "trn2", ["x"], ["out"])))
    >>> called_name_of["func_name"]
    'k'
    """
    text = {
        "func_name": name,
        "platform_target": target,
        "kernel_format": "nki",
        "kernel_version": 1,
        "klir_binary": {
            "binary": "",
            "input_names": inputs,
            "output_names": outputs,
            "version_identifier": "",
            "aliases": [],
        },
        "grid": 1,
        "has_collectives": False,
        "mac_count": 0,
    }
    return base64.b64encode(json.dumps(text).encode()).decode()


def is_kernel_call(item: Instruction) -> bool:
    """Whether an instruction calls an NKI kernel."""
    return bool(item.attributes.get("custom_call_target") == TARGET)


def kernel_of(item: Instruction, kernels: Kernels) -> Any:
    """The kernel that a custom call names. Raises hlo-unknown-kernel, and hlo-invalid for a
    configuration that names none."""
    name = _name_of(item)
    if name not in kernels:
        known = ", ".join(sorted(kernels)) or "none"
        raise NeuronError(
            "hlo-unknown-kernel",
            f"{subject(item)} calls the kernel {name!r}; given are: {known}.",
            hint=did_you_mean(name, kernels, quoted=True),
        )
    return kernels[name]


def _stated(item: Instruction) -> Any:
    """The configuration of a call; None where it is none."""
    given = item.attributes.get("backend_config") or ""
    try:
        return json.loads(base64.b64decode(given, validate=True))
    except (binascii.Error, ValueError, TypeError):
        return None


def binary_path(item: Instruction) -> str:
    """The file in which a call's kernel lies, "" where it names none."""
    stated = _stated(item) if is_kernel_call(item) else None
    parts = stated.get("klir_binary") if isinstance(stated, dict) else None
    path = parts.get("binary") if isinstance(parts, dict) else None
    return path if isinstance(path, str) else ""


def places_of_binary(path: str) -> tuple[Path, Path]:
    """Where a kernel's file may lie: at its path, or in its folder within the current one
    (EVRF059.rst of the SDK's compiler/error-codes)."""
    given = Path(path)
    return given, Path(given.parent.name, given.name)


VERSION = "version_identifier"
"""What a configuration says about the version that traced the kernel."""


def is_unversioned(item: Instruction) -> bool:
    """Whether a call names a kernel without the version that traced it (EVRF065.rst)."""
    stated = _stated(item) if is_kernel_call(item) else None
    if not isinstance(stated, dict):
        return False
    parts = stated.get("klir_binary")
    return not isinstance(parts, dict) or VERSION not in parts


def _name_of(item: Instruction) -> str:
    stated = _stated(item)
    name = stated.get("func_name") if isinstance(stated, dict) else None
    if not isinstance(name, str):
        raise NeuronError(
            "hlo-invalid",
            f"{subject(item)}: its configuration names no kernel.",
            why="It is base64 text of JSON with a func_name.",
        )
    return name
