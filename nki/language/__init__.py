"""`nki.language`: tensors, memories, data types, loops, and the operators of `op=` arguments."""

from isa.enums import Memory as MemoryRegion
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
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
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
from nki.language.indexing import ds
from nki.language.objects import NKIObject
from nki.language.operators import OPERATORS
from nki.language.program import no_reorder, num_programs, program_id, program_ndim
from nki.language.ranges import (
    affine_range,
    dynamic_range,
    fori_loop,
    sequential_range,
    static_range,
    while_loop,
)
from nki.language.tensor import NkiTensor
from nki.language.tile_size import tile_size
from nki.superseded import superseded_names

DType = str

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
hbm = private_hbm


globals().update(OPERATORS)

__getattr__ = superseded_names(__name__, {"bool": bool_, "range": range})

__all__ = [
    "DType",
    "MemoryRegion",
    "NKIObject",
    "NkiTensor",
    "affine_range",
    "bfloat16",
    "bool_",
    "ds",
    "dynamic_range",
    "empty_like",
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
    "hbm",
    "int16",
    "int32",
    "int8",
    "is_hbm",
    "is_on_chip",
    "is_psum",
    "is_sbuf",
    "load",
    "ndarray",
    "no_reorder",
    "num_programs",
    "ones",
    "private_hbm",
    "program_id",
    "program_ndim",
    "psum",
    "sbuf",
    "sequential_range",
    "shared_constant",
    "shared_hbm",
    "static_range",
    "store",
    "tfloat32",
    "tile_size",
    "uint16",
    "uint32",
    "uint8",
    "while_loop",
    "zeros",
    "zeros_like",
    *OPERATORS,
]
