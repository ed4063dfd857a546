"""Operations of the vector engine for means and variances."""

from __future__ import annotations

from isa import rules
from isa.enums import Engine
from isa.machine import statistics
from isa.spec import Operation


class BnStats(Operation):
    """dst [P, 6] = count, mean and variance * count of the even elements of each partition of
    data, then of its odd elements; for bn_aggr.

    data has at most 512 elements a partition (nl.tile_size.bn_stats_fmax). fp32 throughout. Raises
    tile-limit, shape-mismatch.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def even_and_odd(a):
        ...     stats = nl.ndarray((a.shape[0], 6), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.bn_stats(dst=stats, data=nl.load(a))
        ...     out = nl.ndarray(stats.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=stats)
        ...     return out
        >>> print(even_and_odd(np.array([[1, 10, 2, 20, 3]], np.float32)))
        [[ 3.  2.  2.  2. 15. 50.]]
    """

    name = "bn_stats"
    machine = statistics.BnStats
    engines = (Engine.vector,)
    rules = (
        rules.sizes.same_partitions("dst", "data"),
        rules.sizes.row_elements("dst", 6),
        rules.sizes.row_elements_within("data", "batch_norm_free_max"),
    )


class BnAggr(Operation):
    """dst [P, 2] = mean and variance of all elements that the triples of data describe.

    data holds (count, mean, variance * count) triples, as bn_stats writes them: two from each call.
    The variance is that of the whole population (divided by the count). Raises shape-mismatch.

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def mean_and_variance(a):
        ...     stats = nl.ndarray((a.shape[0], 6), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.bn_stats(dst=stats, data=nl.load(a))
        ...     both = nl.ndarray((a.shape[0], 2), dtype=nl.float32, buffer=nl.sbuf)
        ...     nisa.bn_aggr(dst=both, data=stats)
        ...     out = nl.ndarray(both.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=both)
        ...     return out
        >>> print(mean_and_variance(np.array([[1, 2, 3, 6]], np.float32)))
        [[3.  3.5]]
    """

    name = "bn_aggr"
    machine = statistics.BnAggregate
    engines = (Engine.vector,)
    rules = (
        rules.sizes.same_partitions("dst", "data"),
        rules.sizes.row_elements("dst", 2),
        rules.sizes.row_elements_multiple("data", 3),
    )
