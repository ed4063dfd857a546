"""The machine-instruction table, a file an engine or family."""

from isa.machine import control, dma, elementwise, gpsimd, scalar, scan, tensor, vector
from isa.spec import MACHINE_INSTRUCTIONS

__all__ = [
    "MACHINE_INSTRUCTIONS",
    "control",
    "dma",
    "elementwise",
    "gpsimd",
    "scalar",
    "scan",
    "tensor",
    "vector",
]
