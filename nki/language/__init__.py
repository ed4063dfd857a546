"""`nki.language`: tensors, memories, data types, loops, and functions of tiles, the element-wise
ones of which are also the operators of `op=` arguments.

`allocation` makes tensors (`dtypes`), `ranges` loops, `program` the launch grid. Functions of tiles
are in `operators`, `reductions`, `matrices`, `normalisation`, `selection` and `random`; `lowering`
makes operations of `nki.isa` of them. `printing` prints from kernels, `tile_size` has limits,
`python_mistakes` explains errors of Python.
"""

from isa.enums import Memory as MemoryRegion
from nki.ir.views.indexing import ds
from nki.ir.views.objects import NKIObject
from nki.ir.views.tensor import NkiTensor
from nki.language import dtypes as _dtypes
from nki.language.allocation import (
    empty_like,
    full,
    is_hbm,
    is_on_chip,
    is_psum,
    is_sbuf,
    load,
    ndarray,
    ones,
    shared_constant,
    store,
    zeros,
    zeros_like,
)
from nki.language.dtypes import (
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e4m3fn,
    float8_e5m2,
    float8_e8m0fnu,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from nki.language.matrices import load_transpose2d, matmul, shared_identity_matrix, transpose
from nki.language.normalisation import rms_norm, softmax
from nki.language.operators import OPERATORS as _OPERATORS
from nki.language.printing import device_print
from nki.language.program import no_reorder, num_programs, program_id, program_ndim
from nki.language.random import dropout, rand, random_seed
from nki.language.ranges import (
    affine_range,
    dynamic_range,
    fori_loop,
    sequential_range,
    static_range,
    while_loop,
)
from nki.language.reductions import all, max, mean, min, prod, sum, var
from nki.language.selection import broadcast_to, expand_dims, gather_flattened, where
from nki.language.tile_size import tile_size
from nki.superseded import superseded_names as _superseded_names
from nki.superseded.removed import advice as _advice

DType = str

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
hbm = private_hbm


globals().update(_OPERATORS)

_superseded = _superseded_names(__name__)


def __getattr__(name: str) -> object:
    """Packed data types (see `nki.language.dtypes`), superseded names, advice on removed ones."""
    if name in _dtypes.PACKED:
        value = globals()[name] = getattr(_dtypes, name)
        return value
    if (message := _advice(name)) is not None:
        raise AttributeError(message)
    return _superseded(name)


__all__ = [
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiTensor",
    "affine_range",
    "all",
    "bfloat16",
    "bool_",
    "broadcast_to",
    "dropout",
    "device_print",
    "ds",
    "dynamic_range",
    "empty_like",
    "expand_dims",
    "float16",
    "float32",
    "float4_e2m1fn_x4",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e4m3fn_x4",
    "float8_e5m2",
    "float8_e5m2_x4",
    "float8_e8m0fnu",
    "fori_loop",
    "full",
    "gather_flattened",
    "hbm",
    "int16",
    "int32",
    "int8",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "load",
    "load_transpose2d",
    "matmul",
    "max",
    "mean",
    "min",
    "ndarray",
    "no_reorder",
    "num_programs",
    "ones",
    "private_hbm",
    "prod",
    "program_id",
    "program_ndim",
    "psum",
    "rand",
    "random_seed",
    "rms_norm",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "shared_identity_matrix",
    "softmax",
    "static_range",
    "store",
    "sum",
    "tfloat32",
    "tile_size",
    "transpose",
    "uint16",
    "uint32",
    "uint8",
    "var",
    "where",
    "while_loop",
    "zeros",
    "zeros_like",
    *_OPERATORS,
]


def __dir__() -> list[str]:
    return sorted(__all__)
