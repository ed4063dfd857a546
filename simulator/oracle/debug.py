"""What a running program prints."""

from __future__ import annotations

import numpy as np

from isa.machine import debug
from simulator.device_state import CoreState
from simulator.oracle.table import kernel
from simulator.printed import FILES
from simulator.views import Array


@kernel(debug.PrintTensor)
def print_tensor(state: CoreState, tensor: Array, prefix: tuple[int, ...]) -> None:
    """The message, marked on other cores than the first, and the elements as NumPy prints them."""
    message = "".join(map(chr, prefix))
    core = f" (core {state.number})" if state.number else ""
    print(f"{message}{core}\n{np.asarray(tensor)}", flush=True)
    files = FILES.get()
    if files is not None:
        files.write(message, state.number, np.asarray(tensor))
