"""The memory side of control instructions: registers to and from memory, the sentinel fill, what a
running program prints."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from isa.dtypes import DTYPES
from isa.errors import NeuronError
from isa.machine import control
from isa.sequencer import wrapped
from simulator.device_state import CoreState
from simulator.numerics.conversion import load_fp32, store_number
from simulator.oracle.table import kernel
from simulator.printed import FILES
from simulator.views import Array, bits, dtype_name

INTEGER_SENTINEL = 4
"""Fill of uninitialised integers, as documented for the official simulator; floats are NaN."""


def load_register(view: Array) -> int:
    """The one element of a view as a register's value.

    Raises NeuronError value-not-allowed when a float element holds no integer.
    """
    row = DTYPES[dtype_name(view)]
    if row.is_integer or row.is_packed:
        return wrapped(int(view.reshape(-1)[0]))
    value = float(load_fp32(view).reshape(-1)[0])
    if not value.is_integer():
        raise NeuronError(
            "value-not-allowed",
            f"A register is loaded from {value!r} ({row.name}).",
            why="Registers hold 32-bit integers.",
            hint="Load registers from integers; round first, with nisa.tensor_copy into int32.",
        )
    return wrapped(int(value))


def store_register(view: Array, value: int) -> None:
    """The one element of a view = a register's value, converted to the view's dtype."""
    if DTYPES[dtype_name(view)].is_integer:
        view[...] = np.array(value, np.int64).astype(view.dtype)
    else:
        store_number(view, value)


@cache
def sentinel_bits(name: str) -> Any:
    """Bit pattern of uninitialised elements of a dtype."""
    row = DTYPES[name]
    if row.is_float:
        return bits(np.full((), np.nan, np.float32).astype(row.numpy))[()]
    return np.dtype(f"uint{row.bits}").type(INTEGER_SENTINEL)


def fill_sentinel(view: Array) -> None:
    """Make every element of a view what uninitialised memory reads as."""
    bits(view)[...] = sentinel_bits(dtype_name(view))


@kernel(control.PrintTensor)
def print_tensor(state: CoreState, tensor: Array, prefix: tuple[int, ...]) -> None:
    """The message, marked on other cores than the first, and the elements as NumPy prints them."""
    message = "".join(map(chr, prefix))
    core = f" (core {state.number})" if state.number else ""
    print(f"{message}{core}\n{np.asarray(tensor)}", flush=True)
    files = FILES.get()
    if files is not None:
        files.write(message, state.number, np.asarray(tensor))
