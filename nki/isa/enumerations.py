"""The enumerations under their names in `nki.isa`."""

from isa.enums import DgeMode as dge_mode
from isa.enums import DmaEngine as dma_engine
from isa.enums import Engine as engine
from isa.enums import MatmulPerfMode as matmul_perf_mode
from isa.enums import NcVersion as nc_version
from isa.enums import OobMode as oob_mode
from isa.enums import ReduceCommand as reduce_cmd

__all__ = [
    "dge_mode",
    "dma_engine",
    "engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
]
