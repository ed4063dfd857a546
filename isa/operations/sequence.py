"""Operations of the GpSimd engine on sequences: segments, non-zero positions, top-k."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine
from isa.fields import INT32, SBUF, Attribute, Kind, Read, Update, Write
from isa.machine import sequence
from isa.spec import Operation

_IDS = frozenset({"float32", "int32"})


class SequenceBounds(Operation):
    """dst [1, 2, n] = where the segment of each element begins, and one past where it ends.

    A segment is a run of equal ids; id 0 is padding and gives n and -1. One partition; ids are not
    negative. Raises shape-mismatch, dtype-not-allowed, wrong-memory (PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def bounds(ids):
        ...     tile = nl.ndarray((1, 2, ids.shape[1]), dtype=ids.dtype, buffer=nl.sbuf)
        ...     nisa.sequence_bounds(dst=tile, segment_ids=nl.load(ids))
        ...     out = nl.ndarray(tile.shape, dtype=ids.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(bounds(np.array([[1, 1, 1, 2, 2, 0]], np.int32)))
        [[[ 0  0  0  3  3  6]
          [ 3  3  3  5  5 -1]]]
    """

    name = "sequence_bounds"
    machine = sequence.SequenceBounds
    engines = (Engine.gpsimd,)
    dst = Write(SBUF, dtypes=_IDS)
    segment_ids = Read(SBUF, dtypes=_IDS, permuted=True)
    rules = (
        rules.sizes.partition_count("segment_ids", 1),
        rules.sizes.same_partitions("dst", "segment_ids"),
        rules.sizes.row_elements_of("dst", "segment_ids", lambda n: 2 * n, "two for each of"),
    )


class NonzeroWithCount(Operation):
    """In partitions 0, 16, 32 ..., dst = positions of src's non-zero elements, padding, and count.

    Positions are in ascending order, with `index_offset` added; `padding_val` fills the rest, and
    the last element of dst, which has one more than src, is how many there are. The other
    partitions of dst keep what they hold, and those of src are not read. gen3 on. Raises
    generation, shape-mismatch, dtype-not-allowed, wrong-memory (PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def positions(a):
        ...     tile = nl.ndarray((1, a.shape[1] + 1), dtype=nl.int32, buffer=nl.sbuf)
        ...     nisa.nonzero_with_count(dst=tile, src=nl.load(a), index_offset=16)
        ...     out = nl.ndarray(tile.shape, dtype=nl.int32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(positions(np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.int32)))
        [[17 18 21 -1 -1 -1 -1 -1  3]]
    """

    name = "nonzero_with_count"
    machine = sequence.NonzeroWithCount
    engines = (Engine.gpsimd,)
    generations = (3, 4)
    dst = Update(SBUF, dtypes=frozenset({"int32"}))
    src = Read(SBUF, dtypes=_IDS, permuted=True)
    index_offset = Attribute(kind=Kind.integer, default=0, limits=INT32)
    padding_val = Attribute(kind=Kind.integer, default=-1, limits=INT32)
    rules = (
        rules.sizes.same_partitions("dst", "src"),
        rules.sizes.row_elements_of("dst", "src", lambda n: n + 1, "one more than"),
        rules.gather.same_lanes("src", "dst"),
    )

    @classmethod
    def signature_decides(cls, values: tuple[Any, ...]) -> bool:
        """Slices that start differently may or may not come to lie in the same partitions."""
        dst, src, *_ = values
        return dst.first == src.first


class TopK(Operation):
    """val_dst [P, K] = the K largest of n elements in ascending order, idx_dst where they are.

    Every 16 partitions of src hold a sequence: element i is in partition i % 16, column i // 16.
    All 16 partitions receive its result. Of equal values the earlier count as larger, and NaN as
    largest (no document says). 8 <= n < 65536, 1 <= K < 32768, K <= n. Raises shape-mismatch,
    dtype-not-allowed, value-not-allowed, wrong-memory (PSUM).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def two_largest(a):
        ...     values = nl.ndarray((16, 2), dtype=nl.bfloat16, buffer=nl.sbuf)
        ...     indices = nl.ndarray((16, 2), dtype=nl.uint32, buffer=nl.sbuf)
        ...     nisa.topk(val_dst=values, idx_dst=indices, src=nl.load(a), n=20)
        ...     out = nl.ndarray(indices.shape, dtype=nl.uint32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=indices)
        ...     return out
        >>> import ml_dtypes
        >>> a = np.zeros((16, 2), ml_dtypes.bfloat16)
        >>> a[5, 0], a[3, 1] = 7, 9  # elements 5 and 19
        >>> print(two_largest(a)[0])
        [ 5 19]
    """

    name = "topk"
    machine = sequence.TopK
    engines = (Engine.gpsimd,)
    val_dst = Write(SBUF, dtypes=frozenset({"bfloat16"}))
    idx_dst = Write(SBUF, dtypes=frozenset({"uint32"}))
    src = Read(SBUF, dtypes=frozenset({"bfloat16"}), permuted=True)
    n = Attribute(kind=Kind.integer)
    rules = (
        rules.sizes.same_partitions("val_dst", "idx_dst", "src"),
        rules.sizes.same_row_elements("val_dst", "idx_dst"),
        rules.sequence.top_k_counts,
    )
