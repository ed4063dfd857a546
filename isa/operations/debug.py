"""Operations that let a running kernel say something."""

from __future__ import annotations

from isa.enums import Engine
from isa.fields import SBUF_OR_HBM, Attribute, Kind, Read
from isa.machine import debug
from isa.spec import Operation


class DevicePrint(Operation):
    """Print a message and a tensor when the kernel runs; `nl.device_print` in kernels.

    `prefix` is the message, as the code points of its characters.
    """

    name = "device_print"
    machine = debug.PrintTensor
    document = "nki/api/nki/language/__init__.py device_print"
    engines = (Engine.sync,)
    public = False
    tensor = Read(SBUF_OR_HBM)
    prefix = Attribute(kind=Kind.integers)
