"""The machine-instruction table, a file an engine or family."""

from isa.machine import (
    accumulate,
    control,
    dma,
    elementwise,
    gather,
    gpsimd,
    mx,
    random,
    scalar,
    scan,
    search,
    sequence,
    statistics,
    tensor,
    vector,
)
from isa.spec import MACHINE_INSTRUCTIONS

__all__ = [
    "MACHINE_INSTRUCTIONS",
    "accumulate",
    "control",
    "dma",
    "elementwise",
    "gather",
    "gpsimd",
    "mx",
    "random",
    "scalar",
    "scan",
    "search",
    "sequence",
    "statistics",
    "tensor",
    "vector",
]
