"""Operations of the vector engine that look for values in each partition."""

from __future__ import annotations

from isa import rules
from isa.enums import Engine
from isa.fields import Attribute, Kind, Read, Write
from isa.machine import search
from isa.spec import Operation

_INDEX_DTYPES = frozenset({"uint16", "uint32"})
_LEAST, _MOST = 8, 16384


class Max8(Operation):
    """dst [P, 8] = the 8 largest elements of each partition of src, the largest first.

    src has 8 to 16384 elements a partition and is compared in fp32; NaN counts as largest. Raises
    tile-limit, shape-mismatch, view-not-allowed (more than 3 dimensions).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def largest(a):
        ...     found = nl.ndarray((a.shape[0], 8), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.max8(dst=found, src=nl.load(a))
        ...     out = nl.ndarray(found.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=found)
        ...     return out
        >>> print(largest(np.arange(20, dtype=np.float32).reshape(1, 20)))
        [[19. 18. 17. 16. 15. 14. 13. 12.]]
    """

    name = "max8"
    machine = search.Max8
    engines = (Engine.vector,)
    rules = (
        rules.sizes.same_partitions("dst", "src"),
        rules.sizes.row_elements("dst", 8),
        rules.sizes.row_elements_between("src", _LEAST, _MOST),
        rules.sizes.dimensions_at_most("src", 3),
        rules.sizes.dimensions_at_most("dst", 2),
    )


class NcFindIndex8(Operation):
    """dst [P, 8] = where in its partition of data each of the 8 values in vals is.

    Positions count from 0 over the free dimensions; a value that is not there gives all ones
    (0xFFFF or 0xFFFFFFFF). Equal values in vals get successive occurrences: the first slot the
    first one. Raises tile-limit, shape-mismatch, dtype-not-allowed (dst not uint16 or uint32).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def positions(a):
        ...     tile = nl.load(a)
        ...     values = nl.ndarray((a.shape[0], 8), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.max8(dst=values, src=tile)
        ...     found = nl.ndarray(values.shape, dtype=nl.uint32, buffer=nl.sbuf)
        ...     nisa.nc_find_index8(dst=found, data=tile, vals=values)
        ...     out = nl.ndarray(found.shape, dtype=nl.uint32, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=found)
        ...     return out
        >>> print(positions(np.array([[5, 1, 9, 5, 3, 2, 8, 7, 5, 6]], np.float32)))
        [[2 6 7 9 0 3 8 4]]
    """

    name = "nc_find_index8"
    machine = search.FindIndex8
    engines = (Engine.vector,)
    dst = Write(dtypes=_INDEX_DTYPES)
    data = Read()
    vals = Read()
    rules = (
        rules.sizes.same_partitions("dst", "data", "vals"),
        rules.sizes.row_elements("dst", 8),
        rules.sizes.row_elements("vals", 8),
        rules.sizes.row_elements_between("data", _LEAST, _MOST),
        rules.sizes.dimensions_at_most("data", 3),
        rules.sizes.dimensions_at_most("vals", 3),
        rules.sizes.dimensions_at_most("dst", 2),
    )


class NcMatchReplace8(Operation):
    """dst = data with the first occurrence of each of a partition's 8 values replaced by imm.

    `dst_idx` receives the positions that were replaced, all ones where a value is not there. Equal
    values in vals replace successive occurrences, the last slot the first one: the opposite of
    nc_find_index8. dst may be data itself. Raises shape-mismatch, dtype-not-allowed (dst_idx not
    uint16 or uint32).

    Example:
        >>> import numpy as np, nki, nki.isa as nisa, nki.language as nl
        >>> @nki.jit
        ... def without_largest(a):
        ...     tile = nl.load(a)
        ...     values = nl.ndarray((a.shape[0], 8), dtype=a.dtype, buffer=nl.sbuf)
        ...     nisa.max8(dst=values, src=tile)
        ...     nisa.nc_match_replace8(dst=tile, data=tile, vals=values, imm=-1.0)
        ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        ...     nisa.dma_copy(dst=out, src=tile)
        ...     return out
        >>> print(without_largest(np.array([[5, 1, 9, 5, 3, 2, 8, 7, 5, 6]], np.float32)))
        [[-1.  1. -1. -1. -1.  2. -1. -1. -1. -1.]]
    """

    name = "nc_match_replace8"
    machine = search.MatchReplace8
    engines = (Engine.vector,)
    dst = Write()
    data = Read()
    vals = Read()
    imm = Attribute(kind=Kind.float32)
    dst_idx = Write(optional=True, default=None, dtypes=_INDEX_DTYPES)
    rules = (
        rules.operands.same_elements("dst", "data"),
        rules.sizes.same_partitions("data", "vals", "dst_idx"),
        rules.sizes.row_elements("vals", 8),
        rules.sizes.row_elements("dst_idx", 8),
    )
