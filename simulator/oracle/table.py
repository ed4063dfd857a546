"""The table of kernels, keyed by machine-instruction row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from isa.spec import MachineInstruction

NumpyKernel = Callable[..., Any]

KERNELS: dict[str, NumpyKernel] = {}
"""Kernel of every computing machine-instruction row, by row name."""


def kernel(row: type[MachineInstruction]) -> Callable[[NumpyKernel], NumpyKernel]:
    """Registers the decorated function as the semantics of `row`."""

    def register(function: NumpyKernel) -> NumpyKernel:
        if row.name in KERNELS:
            raise ValueError(f"{row.name} has a kernel already")
        KERNELS[row.name] = function
        return function

    return register
