"""Operations that move elements by index, between or within partitions."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine
from isa.fields import SBUF, Attribute, Kind, Read, Update, Write
from isa.machine import gather
from isa.spec import Operation


class NcStreamShuffle(Operation):
    """Partition i of each quadrant of dst = partition shuffle_mask[i] of the same quadrant of src.

    A quadrant is 32 partitions, counted from where src and dst start; 255 leaves a partition of dst
    as it is. Bits are moved. dst may be src. Raises shape-mismatch, dtype-not-allowed,
    value-not-allowed (a mask that is not 32 integers, or names a partition that src lacks),
    view-not-allowed (the start partition).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def first_row_everywhere(a):
        ...     tile = nl.ndarray((32, a.shape[1]), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.nc_stream_shuffle(dst=tile, src=nl.load(a), shuffle_mask=[0] * 32)
        ...     out = nl.ndarray(tile.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(first_row_everywhere(np.array([[1, 2], [3, 4]], np.float32)).sum(axis=0))
        [32. 64.]
    """

    name = "nc_stream_shuffle"
    machine = gather.StreamShuffle
    engines = (Engine.vector,)
    dst = Update()
    src = Read()
    shuffle_mask = Attribute(kind=Kind.integers)
    rules = (
        rules.operands.same_dtype("dst", "src"),
        rules.sizes.same_row_elements("dst", "src"),
        rules.gather.shuffle_starts,
        rules.gather.shuffle_mask,
    )


class NcNGather(Operation):
    """dst[p, i] = data[p, indices[p, i]], the free dimensions of each counted as one.

    Bits are moved. An index outside its partition's elements is an error when the kernel runs
    (dynamic-out-of-bounds). Raises shape-mismatch, dtype-not-allowed (dst not data's, indices not
    uint32), wrong-memory (PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def picked(a, indices):
        ...     tile = nl.ndarray(indices.shape, dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.nc_n_gather(dst=tile, data=nl.load(a), indices=nl.load(indices))
        ...     out = nl.ndarray(tile.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> a = np.array([[10, 11, 12], [20, 21, 22]], np.float32)
        >>> print(picked(a, np.array([[2, 2], [0, 1]], np.uint32)))
        [[12. 12.]
         [20. 21.]]
    """

    name = "nc_n_gather"
    machine = gather.GatherElements
    engines = (Engine.gpsimd,)
    dst = Write(SBUF)
    data = Read(SBUF, permuted=True)
    indices = Read(SBUF, dtypes=frozenset({"uint32"}))
    rules = (
        rules.operands.same_elements("dst", "indices"),
        rules.sizes.same_partitions("dst", "data"),
        rules.operands.same_dtype("dst", "data"),
    )


class LocalGather(Operation):
    """Each group of 16 partitions of dst = elements of the same partitions of src_buffer, at
    positions that the group's 16 partitions of index share.

    A group's positions are index's elements, partition after partition, then column after column,
    the first `num_valid_indices` of them (all by default). From each position, which counts
    elements of src_buffer's free dimensions, `num_elem_per_idx` elements are taken. Bits are moved.
    A position outside is an error when the kernel runs (dynamic-out-of-bounds). Raises
    shape-mismatch, dtype-not-allowed, value-not-allowed, wrong-memory (PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def three_columns(a, index):
        ...     tile = nl.ndarray((a.shape[0], 3), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.local_gather(
        ...         dst=tile, src_buffer=nl.load(a), index=nl.load(index), num_valid_indices=3
        ...     )
        ...     out = nl.ndarray(tile.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> a = np.arange(64, dtype=np.float32).reshape(16, 4)
        >>> print(three_columns(a, np.array([[3], [0], [2]] + [[0]] * 13, np.uint16))[:2])
        [[3. 0. 2.]
         [7. 4. 6.]]
    """

    name = "local_gather"
    machine = gather.LocalGather
    engines = (Engine.gpsimd,)
    dst = Write(SBUF)
    src_buffer = Read(SBUF, permuted=True)
    index = Read(SBUF, dtypes=frozenset({"uint16"}))
    num_elem_per_idx = Attribute(kind=Kind.integer, choices=(1, 2, 4, 8, 16, 32), default=1)
    num_valid_indices = Attribute(kind=Kind.integer, optional=True, default=None)
    rules = (
        rules.sizes.same_partitions("dst", "src_buffer", "index"),
        rules.operands.same_dtype("dst", "src_buffer"),
        rules.gather.gather_groups,
        rules.gather.gather_count,
        rules.gather.same_lanes("src_buffer", "index"),
    )

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """Slices that start differently may or may not come to lie in the same partitions."""
        _, src, index, *_ = values
        return src.first == index.first

    @classmethod
    def resolve(cls, values: tuple[Any, ...], target: Any) -> tuple[Any, ...]:
        *others, count = values
        return (*others, rules.gather.gather_positions(others[2]) if count is None else count)
