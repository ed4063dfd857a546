"""Sizes of the machine that plans are made of. They are those of every target."""

from __future__ import annotations

from isa.dtypes import DTYPES
from isa.target import TARGETS

PARTITIONS = min(target.partitions.value for target in TARGETS.values())

BANKS = min(target.psum_banks.value for target in TARGETS.values())
"""Banks of PSUM."""

BANK = min(target.psum_bank_bytes.value for target in TARGETS.values())
"""Bytes of a partition in a bank of PSUM."""

SUMS = BANK // DTYPES["float32"].size
"""Columns of fp32 sums in a bank of PSUM: what the tensor engine writes at a time."""
