"""The rule of PSUM banks: what the tensor engine writes at once lies in one of them."""

from __future__ import annotations

from typing import Any

from isa.dtypes import DTYPES
from isa.enums import Engine
from isa.rules.form import OperationCall, Violation, in_psum, rule
from isa.spec import ISA
from isa.target import Target

WHOLE_PSUM = 4
"""From this generation on, the result of one instruction may span banks."""


def _row_bytes(storage: Any) -> int:
    return int(storage.pitch) * DTYPES[storage.dtype].size


def _bytes(access: Any) -> tuple[int, int] | None:
    """The first byte of a partition that an access covers, and the one behind its last. They count
    from the address of its tensor, or from where that begins. None where they vary."""
    numbers = (access.offset, *access.shape, *access.strides)
    if access.vector_offset is not None or not all(type(number) is int for number in numbers):
        return None
    size, storage = DTYPES[access.dtype].size, access.storage
    begin = access.offset * size % _row_bytes(storage)
    reaches = [(n - 1) * step * size for n, step in zip(access.shape[1:], access.strides[1:])]
    first = begin + sum(reach for reach in reaches if reach < 0)
    last = begin + sum(reach for reach in reaches if reach > 0) + size
    base = 0 if storage.address is None else int(storage.address[1])
    return base + first, base + last


def _check(access: Any, target: Target) -> Violation | None:
    storage, bank = access.storage, target.psum_bank_bytes.value
    # A tensor without address starts a bank, or lies within one.
    if storage.address is None and _row_bytes(storage) <= bank:
        return None
    covered = _bytes(access)
    if covered is None or covered[0] // bank == (covered[1] - 1) // bank:
        return None
    low, high = covered
    place = f"the partitions of {storage.name}" if storage.address is None else "its partitions"
    return Violation(
        "psum-bank",
        f"dst covers bytes {low} to {high - 1} of {place} in PSUM; a bank has {bank}, one ends at "
        f"{(low // bank + 1) * bank - 1}",
        operand="dst",
    )


@rule(
    ISA + "nc_matmul",
    "Before gen4, the tensor engine writes each partition of dst within one bank of PSUM.",
)
def one_bank(call: OperationCall) -> Violation | None:
    dst, engine = call.dst, call.field("engine", Engine.tensor)
    if call.target.generation >= WHOLE_PSUM or engine is not Engine.tensor or not in_psum(dst):
        return None
    return _check(dst, call.target)
