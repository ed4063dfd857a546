"""New tensors: `ndarray` and its initialised forms, constants, loads and stores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from math import gcd
from typing import Any

from isa.dtypes import DTYPES, DTypeKind, DTypeLike, normalise
from isa.enums import Memory
from isa.errors import NeuronError
from isa.operations.dma import DmaCopy
from isa.operations.vector import Memset
from nki.ir.builder.allocation import allocate, constant_data
from nki.ir.builder.emission import emit
from nki.ir.context import Context, Location, caller, current
from nki.ir.views.tensor import NkiTensor

_MEMORIES = frozenset(Memory)


def ndarray(
    shape: Sequence[Any],
    dtype: DTypeLike,
    buffer: Memory = Memory.sbuf,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """A new tensor, uninitialised, in one of the device's memories.

    On chip (`nl.sbuf`, `nl.psum`) dimension 0 is the partition dimension, of at most 128. A size
    that depends on a launch symbol takes the storage of its maximum there. Without `name` the
    tensor is called as the variable it is assigned to. `address` fixes an on-chip tensor at
    (start partition, byte offset in the partition).

    Raises value-not-allowed (shape, buffer, address), dtype-not-allowed, partition-limit,
    address-out-of-range.
    Source: SDK nki/api/nki/language/__init__.py (ndarray)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def doubled(a):
    ...     tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    ...     nisa.dma_copy(dst=tile, src=a)
    ...     nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nisa.dma_copy(dst=out, src=tile)
    ...     return out
    >>> print(doubled(np.array([[1, 2, 3]], np.float32)))
    [[2. 4. 6.]]
    """
    return allocate(current("nl.ndarray"), shape, dtype, buffer, name, address, caller())


def zeros(
    shape: Sequence[Any], dtype: DTypeLike, buffer: Memory = Memory.sbuf, name: str = ""
) -> NkiTensor:
    """A new tensor filled with zeros, by way of SBUF where it is in HBM.

    Raises value-not-allowed (shape, buffer), dtype-not-allowed, partition-limit.
    Source: SDK nki/api/nki/language/__init__.py (zeros)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     out = nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.zeros((1, 3), dtype=nl.int32))
    ...     return out
    >>> print(kernel())
    [[0 0 0]]
    """
    return _filled(shape, 0, dtype, buffer, name, caller())


def ones(
    shape: Sequence[Any], dtype: DTypeLike, buffer: Memory = Memory.sbuf, name: str = ""
) -> NkiTensor:
    """A new tensor filled with ones, by way of SBUF where it is in HBM.

    Raises value-not-allowed (shape, buffer), dtype-not-allowed, partition-limit.
    Source: SDK nki/api/nki/language/__init__.py (ones)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     out = nl.ndarray((1, 3), dtype=nl.int32, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.ones((1, 3), dtype=nl.int32))
    ...     return out
    >>> print(kernel())
    [[1 1 1]]
    """
    return _filled(shape, 1, dtype, buffer, name, caller())


def full(
    shape: Sequence[Any],
    fill_value: Any,
    dtype: DTypeLike,
    buffer: Memory = Memory.sbuf,
    name: str = "",
) -> NkiTensor:
    """A new tensor filled with one value, by way of SBUF where it is in HBM.

    Raises value-not-allowed (shape, buffer, fill_value), dtype-not-allowed, partition-limit.
    Source: SDK nki/api/nki/language/__init__.py (full)

    >>> import nki, nki.language as nl
    >>> @nki.jit
    ... def kernel():
    ...     out = nl.ndarray((1, 3), dtype=nl.float32, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.full((1, 3), 0.5, dtype=nl.float32))
    ...     return out
    >>> print(kernel())
    [[0.5 0.5 0.5]]
    """
    return _filled(shape, fill_value, dtype, buffer, name, caller())


def _filled(
    shape: Any, value: Any, dtype: DTypeLike, buffer: Any, name: str, location: Location
) -> NkiTensor:
    context = current("a nki.language allocation")
    dtype = normalise(dtype)
    if DTYPES[dtype].kind is DTypeKind.float:
        try:
            value = float(value)
        except (TypeError, ValueError):
            raise NeuronError("value-not-allowed", what=f"a tensor filled with {value!r}") from None

    def fill(tile: NkiTensor) -> None:
        emit(context, Memset, {"dst": tile, "value": value}, location)

    return fill_in_parts(context, shape, dtype, buffer, name, location, fill, same=True)


_STAGED_ELEMENTS = 8192
"""Elements a partition of an SBUF tile through which a tensor in HBM is filled."""

_STAGE = "stage"
"""Name of such a tile."""


def fill_in_parts(
    context: Context,
    shape: Any,
    dtype: str,
    buffer: Any,
    name: str,
    location: Location,
    fill: Callable[[NkiTensor], None],
    same: bool = False,
) -> NkiTensor:
    """A new tensor that `fill` fills: as a whole on chip, else SBUF tiles that are copied to it.

    With `same` all elements are the same, so that one column serves for all.
    """
    tensor = allocate(context, shape, dtype, buffer, name, None, location)
    if tensor.on_chip:
        fill(tensor)
        return tensor
    size = tensor.size
    rows = gcd(size, context.target.partitions.value) if isinstance(size, int) else 1
    matrix = tensor.reshape((rows, size // rows))
    columns = matrix.shape[1]
    if same:
        tile = allocate(context, (rows, 1), dtype, Memory.sbuf, _STAGE, None, location)
        fill(tile)
        repeated = tile.broadcast(1, columns)
        emit(context, DmaCopy, {"dst": matrix, "src": repeated}, location)
        return tensor
    for start in range(0, columns, _STAGED_ELEMENTS):
        part = matrix[:, start : start + _STAGED_ELEMENTS]
        tile = allocate(context, part.shape, dtype, Memory.sbuf, _STAGE, None, location)
        fill(tile)
        emit(context, DmaCopy, {"dst": part, "src": tile}, location)
    return tensor


def zeros_like(
    x: NkiTensor, dtype: DTypeLike | None = None, buffer: Memory | None = None, name: str = ""
) -> NkiTensor:
    """Zeros in the shape (and, unless given, dtype and memory) of another tensor.

    Raises not-a-tensor, dtype-not-allowed, partition-limit.
    Source: SDK nki/api/nki/language/__init__.py (zeros_like)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def cleared(a):
    ...     nl.store(a, nl.zeros_like(nl.load(a)))
    >>> a = np.ones((1, 3), np.float32)
    >>> cleared(a)
    >>> print(a)
    [[0. 0. 0.]]
    """
    return _filled(x.shape, 0, dtype or x.dtype, buffer or x.buffer, name, caller())


def empty_like(
    x: NkiTensor, dtype: DTypeLike | None = None, buffer: Memory | None = None, name: str = ""
) -> NkiTensor:
    """A new uninitialised tensor in the shape of another.

    Raises not-a-tensor, dtype-not-allowed, partition-limit.
    Source: SDK nki/api/nki/language/__init__.py (empty_like)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def inverse(a):
    ...     tile = nl.load(a)
    ...     result = nl.empty_like(tile)
    ...     nisa.reciprocal(dst=result, data=tile)
    ...     out = nl.empty_like(a, buffer=nl.shared_hbm)
    ...     nl.store(out, result)
    ...     return out
    >>> print(inverse(np.array([[1, 2, 4]], np.float32)))
    [[1.   0.5  0.25]]
    """
    context = current("nl.empty_like")
    return allocate(context, x.shape, dtype or x.dtype, buffer or x.buffer, name, None, caller())


def load(src: NkiTensor, dtype: DTypeLike | None = None) -> NkiTensor:
    """A new SBUF tensor with the values of an HBM tensor, converted to `dtype` if given.

    What converts is the transfer, which then moves its bytes at `dma_compute_fraction` of the rate.
    Dimension 0 is the partitions: load a vector as `vector.reshape((1, -1))`.

    Raises not-a-tensor, wrong-memory, dtype-not-allowed, partition-limit.
    Source: SDK nki/api/nki/language/__init__.py (load)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def as_integers(a):
    ...     tile = nl.load(a, dtype=nl.int32)
    ...     out = nl.ndarray(a.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    ...     nl.store(out, tile)
    ...     return out
    >>> print(as_integers(np.array([[1, -2, 3]], np.float32)))
    [[ 1 -2  3]]
    """
    context = current("nl.load")
    location = caller()
    _need_tensor("src", src)
    _need_memory("src of nl.load", src, False)
    tile = allocate(context, src.shape, dtype or src.dtype, Memory.sbuf, "", None, location)
    emit(context, DmaCopy, {"dst": tile, "src": src}, location)
    return tile


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Write an on-chip tensor to HBM, converted to the dtype there.

    A transfer that converts moves its bytes at `dma_compute_fraction` of the rate.

    Raises not-a-tensor, wrong-memory, shape-mismatch.
    Source: SDK nki/api/nki/language/__init__.py (store)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def first_column_zero(a):  # an argument that is written to changes in place
    ...     nl.store(a[:, 0:1], nl.zeros((2, 1), dtype=a.dtype))
    >>> a = np.array([[1, 2], [3, 4]], np.float32)
    >>> first_column_zero(a)
    >>> print(a)
    [[0. 2.]
     [0. 4.]]
    """
    _need_tensor("dst", dst)
    _need_tensor("value", value)
    _need_memory("dst of nl.store", dst, False)
    _need_memory("value of nl.store", value, True)
    emit(current("nl.store"), DmaCopy, {"dst": dst, "src": value}, caller())


def _need_tensor(name: str, value: Any) -> None:
    if not isinstance(value, NkiTensor):
        raise NeuronError("not-a-tensor", what=f"{name} is {type(value).__name__}, not a tensor")


def _need_memory(name: str, value: NkiTensor, on_chip: bool) -> None:
    """Raises wrong-memory. Source: SDK nki/api/nki/language/__init__.py (load, store)."""
    if value.on_chip is not on_chip:
        raise NeuronError(
            "wrong-memory",
            what=f"{name} ({value.name}) is in {value.buffer.value}",
            why="nl.load reads HBM, and nl.store writes to HBM what is on chip.",
            hint="Copy with nisa.tensor_copy on chip, and with nisa.dma_copy elsewhere.",
        )


def shared_constant(constant: Any) -> NkiTensor:
    """A tensor in shared HBM that holds constant data: a NumPy array, or a path to a .npy file.

    Raises dtype-not-allowed (bool, float8_e4m3, 64 bits), file-not-found; value-not-allowed for a
    tensor, and where the kernel writes to the constant.
    Source: SDK nki/api/nki/language/__init__.py (shared_constant)

    >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
    >>> @nki.jit
    ... def weighted(a):
    ...     weights = nl.load(nl.shared_constant(np.array([[1, 10, 100]], np.float32)))
    ...     nisa.tensor_tensor(dst=weights, data1=nl.load(a), data2=weights, op=nl.multiply)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, weights)
    ...     return out
    >>> print(weighted(np.array([[1, 2, 3]], np.float32)))
    [[  1.  20. 300.]]
    """
    import numpy as np

    context = current("nl.shared_constant")
    location = caller()
    if isinstance(constant, (str, os.PathLike)):
        try:
            constant = np.load(constant, allow_pickle=False)
        except OSError as error:
            raise NeuronError("file-not-found", f"{constant}: {error.strerror}") from None
    if isinstance(constant, NkiTensor):
        raise NeuronError(
            "value-not-allowed",
            what=f"nl.shared_constant of tensor {constant.name!r}",
            why="A constant is part of the program; what a tensor holds comes with each run.",
            hint="Use the tensor itself, or pass an array that the kernel takes from a global.",
        )
    data, dtype = constant_data(constant)
    return context.allocate(data.shape, dtype, Memory.shared_hbm, "", None, location, data)


def is_hbm(buffer: Memory) -> bool:
    """Whether a memory region is in HBM.

    Source: SDK nki/api/nki/language/__init__.py (is_hbm)

    >>> import nki.language as nl
    >>> nl.is_hbm(nl.shared_hbm), nl.is_hbm(nl.sbuf)
    (True, False)
    """
    return buffer in _MEMORIES and not buffer.on_chip


def is_on_chip(buffer: Memory) -> bool:
    """Whether a memory region is SBUF or PSUM.

    Source: SDK nki/api/nki/language/__init__.py (is_on_chip)

    >>> import nki.language as nl
    >>> nl.is_on_chip(nl.psum), nl.is_on_chip(nl.hbm)
    (True, False)
    """
    return buffer in _MEMORIES and buffer.on_chip


def is_sbuf(buffer: Memory) -> bool:
    """Whether a memory region is SBUF.

    Source: SDK nki/api/nki/language/__init__.py (is_sbuf)

    >>> import nki.language as nl
    >>> nl.is_sbuf(nl.sbuf), nl.is_sbuf(nl.psum)
    (True, False)
    """
    return buffer is Memory.sbuf


def is_psum(buffer: Memory) -> bool:
    """Whether a memory region is PSUM.

    Source: SDK nki/api/nki/language/__init__.py (is_psum)

    >>> import nki.language as nl
    >>> nl.is_psum(nl.psum), nl.is_psum(nl.sbuf)
    (True, False)
    """
    return buffer is Memory.psum
