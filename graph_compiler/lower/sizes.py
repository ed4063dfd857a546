"""Sizes of the machine that plans are made of, which are those of every target, and its dtypes."""

from __future__ import annotations

from graph_compiler.hlo.types import PRIMITIVE_TYPES
from isa import dtypes
from isa.target import TARGETS

PARTITIONS = min(target.partitions.value for target in TARGETS.values())

HALF = PARTITIONS // 2
"""Partitions of a half: operands of products may begin at the second one, if they have no more."""

QUARTER = 32
"""Partitions of a quarter: what engines and products write may begin at each."""

QUARTERS = PARTITIONS // QUARTER
"""Quarters of all partitions."""

BANKS = min(target.psum_banks.value for target in TARGETS.values())
"""Banks of PSUM."""

BANK = min(target.psum_bank_bytes.value for target in TARGETS.values())
"""Bytes of a partition in a bank of PSUM."""

BIT_FOR_BIT = 3
"""The generation from which on the tensor engine transposes all bits as they are; before, it
multiplies by an identity matrix (SDK nki/api/nki.isa.rst#nki.isa.nc_transpose)."""

SUMS = BANK // dtypes.DTYPES["float32"].size
"""Columns of fp32 sums in a bank of PSUM: what the tensor engine writes at a time."""

FLOATS = {2: "bfloat16", 4: "float32"}
"""As what elements pass through the tensor engine bit for bit, by their bytes."""

WORDS = {2: "uint16", 4: "uint32"}
"""As what they leave PSUM."""

DTYPES: dict[str, str] = {
    name: "uint8" if name == "pred" else row.dtype
    for name, row in PRIMITIVE_TYPES.items()
    if row.dtype is not None and row.bits <= 32 and row.dtype != "float8_e8m0fnu"
}
"""The dtype of tensors that hold a primitive type; a pred is 0 or 1."""

FP32_INTEGERS = 1 << 24
"""Integers up to which fp32 has all of them."""

_HALF = frozenset({"bf16", "f16"})


def widens(source: str, type: str) -> bool:
    """Whether engines read numbers of a type as those of another one."""
    return source in _HALF and type == "f32"
