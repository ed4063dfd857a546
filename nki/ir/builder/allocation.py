"""What a new tensor must fulfil: sizes, partitions, addresses, data of constants."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from isa.affine import Affine, Polynomial, bounds
from isa.dtypes import DTYPES, normalise
from isa.enums import Memory
from isa.errors import NeuronError
from isa.memory import alignment, bytes_per_partition
from isa.target import Target
from nki.ir.context import Context, Location
from nki.ir.views.indexing import index_form
from nki.ir.views.tensor import NkiTensor

_VECTOR = (
    "Keep a vector in one partition: vector.reshape((1, n)) in HBM, n its size, then load it. To "
    "have it in every partition, load vector.reshape((1, n)).broadcast(0, 128)."
)
"""What to do with a vector that has more elements than there are partitions."""


def allocate(
    context: Context,
    shape: Sequence[Any],
    dtype: Any,
    buffer: Any,
    name: str,
    address: Any,
    location: Location,
) -> NkiTensor:
    """A new tensor on behalf of the caller at `location`, as `nl.ndarray` documents it."""
    sizes = sizes_of(shape)
    if dtype.__class__ is not str or dtype not in DTYPES:
        dtype = normalise(dtype)
    if buffer.__class__ is not Memory:
        raise NeuronError(
            "value-not-allowed",
            what=f"buffer={buffer!r}",
            why="A buffer is a memory region.",
            hint="Use nl.sbuf, nl.psum, nl.hbm, nl.private_hbm or nl.shared_hbm.",
        )
    if not buffer.on_chip:
        if address is not None:
            raise NeuronError(
                "value-not-allowed",
                what=f"address={address!r} for a tensor in {buffer.value}",
                why="Only tensors in SBUF and PSUM can be placed by address.",
                hint="Leave address out.",
            )
        return context.allocate(sizes, dtype, buffer, name, None, location)
    storage_shape = sizes
    for size in sizes:
        if size.__class__ is not int:
            storage_shape = tuple(_greatest(size) for size in sizes)
            break
    partitions = context.target.partitions.value
    if storage_shape[0] > partitions:
        raise NeuronError(
            "partition-limit",
            what=f"shape {list(sizes)} in {buffer.value} has {storage_shape[0]} partitions, the "
            f"memory has {partitions}",
            hint=_VECTOR if len(sizes) == 1 else "",
        )
    if address is not None:
        address = _address(address, storage_shape[0], partitions)
        size = prod(storage_shape[1:]) * DTYPES[dtype].size
        _check_place(address, storage_shape[0], size, buffer, context.target)
    tensor = context.allocate(storage_shape, dtype, buffer, name, address, location)
    if storage_shape is sizes:
        return tensor
    view = tensor[tuple(slice(0, size) for size in sizes)]
    return view if len(view.shape) == len(sizes) else tensor


def sizes_of(shape: Any) -> tuple[Any, ...]:
    """A shape as a tuple of ints and polynomials, all at least 1."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for size in sizes:
        if size.__class__ is not int or size < 1:
            sizes = tuple(index_form(size, "a size") for size in sizes)
            break
    if not sizes:
        raise NeuronError(
            "value-not-allowed",
            what="shape () has no dimensions",
            why="A tensor has at least one dimension.",
            hint="Use shape (1, 1) for a single element.",
        )
    for size in sizes:
        if (size.__class__ is int and size < 1) or isinstance(size, Affine):
            raise NeuronError(
                "value-not-allowed",
                what=f"shape {list(sizes)} has size {size}",
                why="Sizes are at least 1, and the same in every iteration of a rolled loop.",
                hint="Allocate the largest size and take a view of it.",
            )
    return sizes


def _greatest(size: Any) -> int:
    """What an on-chip dimension reserves: the size, or the most that a symbolic one can be."""
    high = bounds(size)[1] if isinstance(size, Polynomial) else size
    if high is None:
        raise NeuronError(
            "value-not-allowed",
            what=f"an on-chip tensor has size {size}, which has no upper limit",
            why="On-chip storage is reserved for the largest size.",
            hint='Give the symbol a maximum: nki.symbol("M", max=...).',
        )
    return high


def _address(address: Any, partitions: int, limit: int) -> tuple[int, int]:
    try:
        start, offset = (index_form(part, "address") for part in address)
    except (TypeError, ValueError):
        start = offset = -1
    if start.__class__ is not int or offset.__class__ is not int or start < 0 or offset < 0:
        raise NeuronError(
            "value-not-allowed",
            what=f"address={address!r}",
            why="An address is (start partition, byte offset in the partition).",
            hint="For example address=(0, 4096).",
        )
    if start + partitions > limit:
        raise NeuronError(
            "partition-limit",
            what=f"{partitions} partitions from partition {start} on, of {limit}",
        )
    return start, offset


def _check_place(
    address: tuple[int, int], partitions: int, size: int, memory: Memory, target: Target
) -> None:
    """Raise address-out-of-range for a tensor that ends behind its memory's partitions,
    value-not-allowed for one that starts between the bytes where tensors may."""
    (start, offset), capacity = address, bytes_per_partition(memory, target)
    unit = alignment(memory, target)
    if offset % unit:
        raise NeuronError(
            "value-not-allowed",
            what=f"address={address!r} in {memory.value}, whose addresses are multiples of {unit}",
            why="A tensor in PSUM starts at a multiple of nl.tile_size.psum_min_align bytes.",
            hint=f"Start at byte {offset - offset % unit} or {offset - offset % unit + unit}.",
        )
    if offset + size > capacity:
        raise NeuronError(
            "address-out-of-range",
            f"address={address!r} and {size} bytes a partition need partitions {start} to "
            f"{start + partitions} and bytes {offset} to {offset + size} of {memory.value}, whose "
            f"partitions have {capacity} bytes",
        )


_CONSTANTS = frozenset(DTYPES) - {"bool", "float8_e4m3", "int64", "uint64"}
"""Data types of constants (SDK nki.language.shared_constant)."""


def constant_data(constant: Any) -> tuple[np.ndarray, str]:
    """An array as a constant holds it, and its data type. Raises dtype-not-allowed."""
    data = np.asarray(constant)
    data = np.ascontiguousarray(data, data.dtype.newbyteorder("="))
    dtype = normalise(data.dtype)
    if dtype not in _CONSTANTS:
        raise NeuronError(
            "dtype-not-allowed",
            what=f"nl.shared_constant of {dtype}",
            why="Constants have 8 to 32 bits, and are no bool and no float8_e4m3.",
            hint="Convert the array: constant.astype(numpy.int32).",
        )
    return data.reshape(data.shape or (1,)), dtype
