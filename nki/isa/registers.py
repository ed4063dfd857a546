"""Registers that authors make."""

from __future__ import annotations

from isa.errors import NeuronError
from isa.fields import REGISTER
from nki.errors import USER_FRAMES
from nki.ir.builder.registers import VirtualRegister
from nki.ir.context import caller, current
from nki.ir.views.tensor import NkiTensor
from nki.isa.calls import FUNCTIONS


def register_alloc(x: int | NkiTensor | None = None) -> VirtualRegister:
    """A new register, holding the integer `x` if given, or the one element of the tensor `x`.

    `x` has 32 bits; a tensor is in SBUF and has shape (1, 1). Raises value-not-allowed,
    shape-mismatch, wrong-memory, dtype-not-allowed.

    Source: SDK nki/api/nki.isa.rst#nki.isa.register_alloc

    >>> import nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    ...     nisa.register_store(tile, nisa.register_alloc(7))
    ...     out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> print(kernel())
    [[7]]
    """
    with USER_FRAMES:
        if isinstance(x, NkiTensor):
            register = current("nisa.register_alloc").register_alloc(None, caller())
            FUNCTIONS["register_load"](dst=register, src=x)
            return register
        if x is not None and not isinstance(x, VirtualRegister):
            try:
                x = x.__index__()
                if not REGISTER[0] <= x <= REGISTER[1]:
                    raise AttributeError
            except AttributeError:
                raise NeuronError(
                    "value-not-allowed",
                    what=f"register_alloc({x!r})",
                    why="A register begins with an integer of 32 bits, a tensor's element, or with "
                    "nothing.",
                    hint="Pass an int of 32 bits, or a tensor of one element.",
                ) from None
        return current("nisa.register_alloc").register_alloc(x, caller())
