"""Operations that let a running kernel say something."""

from __future__ import annotations

from typing import Any

from isa.enums import Engine
from isa.fields import SBUF_OR_HBM, Attribute, Kind, Read
from isa.machine import debug
from isa.spec import Instruction, Operation


class DevicePrint(Operation):
    """Print a message and a tensor when the kernel runs; `nl.device_print` in kernels.

    `prefix` is the message, as the code points of its characters.
    """

    name = "device_print"
    document = "nki/api/nki/language/__init__.py device_print"
    engines = (Engine.sync,)
    public = False
    tensor = Read(SBUF_OR_HBM)
    prefix = Attribute(kind=Kind.integers)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(debug.PrintTensor, Engine.sync, values),)
