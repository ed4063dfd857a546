"""`nki.isa.constants`: the enumerations under the module name of NKI 0.2 and 0.3; see `nki.isa`."""

import nki.isa
from nki.superseded import superseded_names

_NAMES = (
    "dge_mode",
    "dma_engine",
    "engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
)

__getattr__ = superseded_names(
    __name__, {name: getattr(nki.isa, name) for name in _NAMES if hasattr(nki.isa, name)}
)
