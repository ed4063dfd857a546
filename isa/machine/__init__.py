"""The machine-instruction table, a file an engine or family."""

from isa.machine import (
    accumulate,
    activation2,
    control,
    debug,
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
    "activation2",
    "control",
    "debug",
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
