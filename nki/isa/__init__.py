"""`nki.isa`: one function per public row of the operation table, and the names they take."""

from __future__ import annotations

from typing import Any

from isa.enums import DgeMode as dge_mode
from isa.enums import DmaEngine as dma_engine
from isa.enums import Engine as engine
from isa.enums import MatmulPerfMode as matmul_perf_mode
from isa.enums import NcVersion as nc_version
from isa.enums import OobMode as oob_mode
from isa.enums import ReduceCommand as reduce_cmd
from isa.errors import NeuronError
from isa.errors import NeuronError as NkiValidationError
from isa.fields import REGISTER
from isa.operations import OPERATIONS
from nki import settings
from nki.errors import USER_FRAMES
from nki.ir.context import CURRENT, NkiInstruction, caller, current
from nki.ir.registers import VirtualRegister
from nki.ir.views.tensor import NkiTensor
from nki.isa.calls import function
from nki.superseded import superseded_names

_superseded = superseded_names(
    __name__,
    {
        "tensor_engine": engine.tensor,
        "vector_engine": engine.vector,
        "scalar_engine": engine.scalar,
        "gpsimd_engine": engine.gpsimd,
        "unknown_engine": engine.unknown,
    },
)


def __getattr__(name: str) -> Any:
    """Superseded names, and the module `constants`, which loads when it is first named."""
    if name == "constants":
        import importlib

        return importlib.import_module(f"{__name__}.constants")
    return _superseded(name)


def get_nc_version() -> nc_version:
    """The NeuronCore generation of the running kernel's target, else of the default target.

    >>> import numpy as np, nki, nki.isa as nisa
    >>> @nki.jit(platform_target="trn2")
    ... def kernel():
    ...     print(nisa.get_nc_version() >= nisa.nc_version.gen3)
    >>> kernel()
    True
    """
    context = CURRENT.get()
    target = settings.target() if context is None else context.target
    return nc_version(target.generation)


FIRST_REVISION = 0
"""The revision of every generation's silicon that the tables describe."""


def get_nc_sub_version() -> int:
    """The revision of the target's silicon within its generation: 0, the first one.

    Source: SDK nki/api/nki.isa.rst#nki.isa.get_nc_sub_version

    >>> import nki.isa as nisa
    >>> nisa.get_nc_sub_version()
    0
    """
    return FIRST_REVISION


def register_alloc(x: int | NkiTensor | None = None) -> VirtualRegister:
    """A new register, holding the integer `x` if given, or the one element of the tensor `x`.

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


FUNCTIONS = {row.name: function(row) for row in OPERATIONS.values() if row.public}
"""The functions of this module that come from the operation table."""

globals().update(FUNCTIONS)

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "dge_mode",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "gpsimd_engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "register_alloc",
    "scalar_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
    *FUNCTIONS,
]
