"""Where accesses on chip start: what is known of their partitions before tensors have places."""

from __future__ import annotations

from math import gcd
from typing import Any

from isa.affine import Affine, Polynomial, bounds
from isa.dtypes import DTYPES
from isa.memory import start_partitions


def start_partition(access: Any) -> int | None:
    """The partition of its tensor at which an on-chip access starts; None where it varies."""
    if not isinstance(access.offset, int):
        return None
    storage = access.storage
    pitch = storage.pitch * DTYPES[storage.dtype].size
    return access.offset * DTYPES[access.dtype].size // pitch


def first_partition(access: Any) -> int:
    """The partition at which an on-chip access starts, where its tensor is placed as the author
    has it: at its address, else from partition 0 on."""
    storage, offset = access.storage, access.offset
    address = getattr(storage, "address", None)
    first = 0 if address is None else int(address[0])
    if not isinstance(offset, int):
        offset = offset.constant
    pitch = storage.pitch * DTYPES[storage.dtype].size // DTYPES[access.dtype].size
    return first + (offset // pitch if offset and pitch else 0)


def lanes_behind(result: Any, dst: Any) -> int:
    """How many partitions behind those of `result` the accumulate registers are that belong to the
    partitions of `dst`; 0 for operands that are no accesses."""
    if not (hasattr(result, "storage") and hasattr(dst, "storage")):
        return 0
    return first_partition(dst) - first_partition(result)


def has_address(*accesses: Any) -> bool:
    """Whether the author placed the tensor of one of these."""
    return any(getattr(access.storage, "address", None) is not None for access in accesses)


def base_partitions(access: Any) -> tuple[int, ...]:
    """The partitions at which the tensor of an on-chip access may start: the author's address, or
    what the compiler can choose from."""
    storage = access.storage
    address = getattr(storage, "address", None)
    return (int(address[0]),) if address is not None else start_partitions(storage.shape[0])


def possible_starts(value: Any, limit: int = 128) -> tuple[int, ...] | range:
    """The partitions at which an access may start; empty where they cannot be known."""
    storage = value.storage
    pitch = storage.pitch * DTYPES[storage.dtype].size
    size = DTYPES[value.dtype].size
    address = getattr(storage, "address", None)
    first = address[0] if address is not None else 0
    offset = value.offset
    if isinstance(offset, int):
        return (first + offset * size // pitch,)
    low, high = bounds(offset)
    if low is None or high is None:
        return ()
    start, end = first + low * size // pitch, first + high * size // pitch
    if start == end:
        return (start,)
    if not isinstance(offset, Affine) or any(
        isinstance(c, Polynomial) or c * size % pitch for _, c in offset.terms
    ):
        return ()
    step = gcd(*(c * size // pitch for _, c in offset.terms))
    return range(start, min(end, limit - 1) + 1, step)


def starts_in_memory(access: Any) -> tuple[int, ...]:
    """The partitions of the memory at which an access may start, wherever its tensor is put; empty
    where that is not known."""
    first = start_partition(access)
    return () if first is None else tuple(base + first for base in base_partitions(access))
