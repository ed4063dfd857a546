"""`nki.isa`: one function per public row of the operation table, and the names they take.

`calls` makes the functions from the rows, with `documentation` for signatures and `annotations` for
types. `notation` reads arguments as authors write them. `enumerations`, `registers` and
`generation` are the other public names.
"""

from isa.errors import NeuronError as NkiValidationError
from nki.ir.builder.registers import VirtualRegister
from nki.ir.context import NkiInstruction
from nki.isa.calls import FUNCTIONS as _FUNCTIONS
from nki.isa.enumerations import (
    dge_mode,
    dma_engine,
    engine,
    matmul_perf_mode,
    nc_version,
    oob_mode,
    reduce_cmd,
)
from nki.isa.generation import get_nc_sub_version, get_nc_version
from nki.isa.registers import register_alloc
from nki.superseded import superseded_names as _superseded_names

globals().update(_FUNCTIONS)

__getattr__ = _superseded_names(__name__)

__all__ = [
    "NkiInstruction",
    "NkiValidationError",
    "VirtualRegister",
    "dge_mode",
    "dma_engine",
    "engine",
    "get_nc_sub_version",
    "get_nc_version",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "register_alloc",
    *_FUNCTIONS,
]


def __dir__() -> list[str]:
    return sorted(__all__)
