"""The operation table, a file an engine or family, named as in `isa.machine`."""

from isa.operations import (
    accumulate,
    activation2,
    control,
    dma,
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
from isa.spec import OPERATIONS

__all__ = [
    "OPERATIONS",
    "accumulate",
    "activation2",
    "control",
    "dma",
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
