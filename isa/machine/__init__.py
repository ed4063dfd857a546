"""The machine-instruction table, a file an engine or family.

`costs` has what all of them cost, `elementwise` the rows that several engines share, `control`
those that a sequencer executes itself.
"""

from isa.machine import (
    accumulate,
    activation2,
    control,
    dma,
    elementwise,
    gather,
    gpsimd,
    mx,
    random,
    ranks,
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
    "dma",
    "elementwise",
    "gather",
    "gpsimd",
    "mx",
    "random",
    "ranks",
    "scalar",
    "scan",
    "search",
    "sequence",
    "statistics",
    "tensor",
    "vector",
]
