"""What every machine instruction computes, in plain NumPy: the reference semantics.

`KERNELS[row name](state, *values)` executes one instruction. `values` align with the row's
`field_names`; each operand is a view (`simulator.views`), a number where the row allows an
immediate, or None; register-valued attributes have been read already. `state` is a
`simulator.device_state.CoreState`, in which the caller has set `engine` and, for rows with
accumulate registers, `start_partition`. Operands may differ in shape when their elements per
partition agree.

Every executor calls these same functions, or native code with the same results
(`simulator.kernels`), so executors agree bit for bit. Arithmetic writes one NaN, the positive quiet
one; copies between equal dtypes keep the bits. Callers hold `quiet()` around their calls:
infinities and NaN are results here, not warnings. Control instructions belong to the executors,
except what `control` offers for their memory side.

`table` finds the function of a row. Rows that state their meaning have theirs from `meaning`
(`elementwise`); those of other rows are in a file a family, named as in `isa.machine`. `reduction`
has the order of sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.oracle import (  # noqa: F401  (each registers its kernels)
    accumulate,
    control,
    dma,
    gather,
    gpsimd,
    mx,
    random,
    ranks,
    search,
    sequence,
    statistics,
    tensor,
    vector,
)
from simulator.oracle.control import fill_sentinel, load_register, store_register
from simulator.oracle.meaning import kernel_of
from simulator.oracle.table import KERNELS, NumpyKernel

__all__ = [
    "KERNELS",
    "NumpyKernel",
    "fill_sentinel",
    "kernel_of",
    "load_register",
    "quiet",
    "store_register",
]


def quiet() -> Any:
    """Context in which NumPy reports no floating-point conditions."""
    return np.errstate(all="ignore")
