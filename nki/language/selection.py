"""where and gather_flattened; broadcast_to and expand_dims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from isa.affine import identical
from isa.dtypes import DTYPES, DTypeLike
from isa.enums import Memory
from isa.errors import NeuronError
from isa.machine.gather import KEEP
from isa.memory import QUADRANT
from isa.operations.gather import NcNGather, NcStreamShuffle
from isa.operations.gpsimd import Iota
from isa.rules.form import shown
from nki.ir.context import caller
from nki.ir.views.layout import dense_strides
from nki.ir.views.tensor import NkiTensor
from nki.language.lowering.emitter import Emitter, dtype_of
from nki.language.lowering.promotion import promote

_OUTSIDE = 2**31 - 1
"""A position in no tile."""


def where(condition: NkiTensor, x: Any, y: Any, dtype: DTypeLike | None = None) -> NkiTensor:
    """x where condition is not 0, y elsewhere, as a new tile in SBUF.

    x and y are tiles of condition's shape, or numbers (one of the three at most a [P, 1] column is
    not supported). `dtype` of the result: that of x and y, promoted, by default. Values are chosen,
    not computed: NaN and infinity of the other operand have no effect.

    Raises not-a-tensor, wrong-memory, shape-mismatch.
    Source: SDK nki/api/nki/language/__init__.py (where)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a, b):
    ...     tile = nl.load(a)
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.where(nl.greater(tile, 0.0), tile, nl.load(b)))
    ...     return out
    >>> print(kernel(np.array([[-1, 2]], np.float32), np.array([[10, 20]], np.float32)))
    [[10.  2.]]
    """
    e = Emitter("where", caller())
    mask = e.tile("condition", condition)
    tiles = [v for v in (x, y) if isinstance(v, NkiTensor)]
    for name, value in (("x", x), ("y", y)):
        if isinstance(value, NkiTensor):
            e.same_shape(mask, e.tile(name, value), f"condition and {name}")
        elif not isinstance(value, (int, float)):
            e.tile(name, value)
    default = mask.dtype if not tiles else promote(tiles[0].dtype, tiles[-1].dtype)
    result = e.result(mask.shape, dtype_of(dtype, default))
    if isinstance(y, NkiTensor):
        e.copy(result, y)
    else:
        e.fill(result, y)
    predicate = _predicate(e, mask)
    e.choose(result, e.converted(x, result.dtype) if isinstance(x, NkiTensor) else x, predicate)
    return result


def _predicate(e: Emitter, mask: NkiTensor) -> NkiTensor:
    """A mask as unsigned integers: integers as they are, floats by a comparison with 0."""
    row = DTYPES[mask.dtype]
    if row.is_float or row.is_packed or row.size > 4 or mask.buffer is Memory.psum:
        predicate = e.part(mask.shape, "uint8")
        e.scalar(predicate, mask, "not_equal", 0.0)
        return predicate
    return mask.view(f"uint{8 * row.size}")


def gather_flattened(
    data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: DTypeLike | None = None
) -> NkiTensor:
    """result[p, ...] = data[p, indices[p, ...]], the free dimensions of data counted as one.

    The result, a new tile in SBUF, has the shape of `indices`, which are uint32 (other integers are
    converted). `dtype` of the result: that of data by default. Another `axis` than 0 is the one
    free dimension that indices count along, as in numpy.take_along_axis. Data and indices agree in
    the others. The documents say no more of `axis` than what its name says. An index outside is an
    error when the kernel runs.

    Raises not-a-tensor, wrong-memory, out-of-bounds (axis), shape-mismatch, dtype-not-allowed.
    Source: SDK nki/api/nki/language/__init__.py (gather_flattened)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a, indices):
    ...     out = nl.ndarray(indices.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.gather_flattened(nl.load(a), nl.load(indices)))
    ...     return out
    >>> a = np.array([[10, 11, 12], [20, 21, 22]], np.float32)
    >>> print(kernel(a, np.array([[2, 0], [1, 1]], np.uint32)))
    [[12. 10.]
     [21. 21.]]
    """
    e = Emitter("gather_flattened", caller())
    table, positions = e.in_sbuf(e.tile("data", data)), e.in_sbuf(e.tile("indices", indices))
    dimension = _free_axis(axis, len(table.shape))
    wanted = dtype_of(dtype, table.dtype)
    if dimension:
        _agree_beside(table, positions, dimension)
    picked = _as_positions(e, positions)
    if dimension and len(table.shape) > 2:
        picked = _flat_positions(e, table, picked, dimension)
    result = e.working(positions.shape, wanted, table.dtype)
    e(NcNGather, dst=result, data=table, indices=picked)
    return e.finish(result, wanted)


def _free_axis(axis: Any, rank: int) -> int:
    """`axis` counted from the front; 0 stands for all free dimensions."""
    if isinstance(axis, bool) or not isinstance(axis, int) or not -rank <= axis < rank:
        raise NeuronError(
            "out-of-bounds",
            what=f"axis of nl.gather_flattened is {axis!r}; data has {rank} dimensions",
            hint=f"Pass 0 for all free dimensions, or one from 1 to {rank - 1}.",
        )
    return axis % rank


def _agree_beside(data: NkiTensor, indices: NkiTensor, axis: int) -> None:
    """Raises shape-mismatch unless two shapes agree in all dimensions but `axis`."""
    agree = len(data.shape) == len(indices.shape) and all(
        _same(size, other)
        for d, (size, other) in enumerate(zip(data.shape, indices.shape))
        if d != axis
    )
    if not agree:
        raise NeuronError(
            "shape-mismatch",
            what=f"data and indices of nl.gather_flattened have shapes {list(data.shape)} and "
            f"{list(indices.shape)}; axis is {axis}",
            why="Each index takes an element of data at its own place in the other dimensions.",
            hint="Leave axis out to count all free dimensions as one.",
        )


def _flat_positions(e: Emitter, data: NkiTensor, indices: NkiTensor, axis: int) -> NkiTensor:
    """Positions along one free dimension as positions in all of them. What lies outside the
    dimension becomes a position outside data, which the gather finds."""
    steps = dense_strides(data.shape)
    pairs = [
        [0 if d == axis else steps[d], count] for d, count in enumerate(indices.shape) if d > 0
    ]
    elsewhere = e.part(indices.shape, "uint32")
    e(Iota, dst=elsewhere, pattern=pairs)
    moved = e.part(indices.shape, "uint32")
    e.scalar_then_tensor(moved, indices, "multiply", steps[axis], "add", elsewhere)
    inside = e.part(indices.shape, "uint8")
    e.scalar(inside, indices, "less", data.shape[axis])
    flat = e.part(indices.shape, "uint32")
    e.fill(flat, _OUTSIDE)
    e.choose(flat, moved, inside)
    return flat


def _as_positions(e: Emitter, indices: NkiTensor) -> NkiTensor:
    """Indices as uint32: patterns of int32 stand as they are."""
    return indices.view("uint32") if indices.dtype == "int32" else e.converted(indices, "uint32")


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view of a tile with a new dimension of size 1 at position `axis`.

    Raises view-not-allowed (position 0 of a tile, its partition dimension), out-of-bounds.
    Source: SDK nki/api/nki/language/__init__.py (expand_dims)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a):
    ...     print(nl.expand_dims(nl.load(a), 1).shape)
    >>> kernel(np.zeros((2, 3), np.float32))
    (2, 1, 3)
    """
    if not isinstance(x, NkiTensor):
        raise NeuronError("not-a-tensor", what=f"x of nl.expand_dims is {shown(x)}, not a tile")
    return x.expand_dim(axis)


def broadcast_to(x: NkiTensor, shape: Sequence[Any], dtype: DTypeLike | None = None) -> NkiTensor:
    """A tile of `shape` in which dimensions of size 1 of x are repeated; NumPy's, of equal rank.

    x itself if it has that shape and dtype, else a new tile in SBUF. Raises not-a-tensor,
    wrong-memory, shape-mismatch.
    Source: SDK nki/api/nki/language/__init__.py (broadcast_to)

    >>> import numpy as np, nki, nki.language as nl
    >>> @nki.jit
    ... def kernel(a, row):
    ...     out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    ...     nl.store(out, nl.add(nl.load(a), nl.broadcast_to(nl.load(row), a.shape)))
    ...     return out
    >>> print(kernel(np.zeros((2, 3), np.float32), np.array([[1, 2, 3]], np.float32)))
    [[1. 2. 3.]
     [1. 2. 3.]]
    """
    e = Emitter("broadcast_to", caller())
    tile, wanted = e.tile("x", x), tuple(shape)
    target = dtype_of(dtype, tile.dtype)
    repeated = [d for d, (old, new) in enumerate(zip(tile.shape, wanted)) if not _same(old, new)]
    if len(wanted) != len(tile.shape) or not all(_same(tile.shape[d], 1) for d in repeated):
        raise NeuronError(
            "shape-mismatch",
            what=f"nl.broadcast_to of shape {list(tile.shape)} to {list(wanted)}",
            why="Both shapes have the same number of dimensions, and those that differ have size "
            "1 in the tile.",
            hint="Insert dimensions with nl.expand_dims.",
        )
    if not repeated:
        return tile if target == tile.dtype else e.finish(tile, target)
    if 0 in repeated:
        tile = _over_partitions(e, tile, wanted[0])
    for dimension in repeated:
        if dimension:
            tile = tile.broadcast(dimension, wanted[dimension])
    result = e.result(wanted, target)
    e.copy(result, tile)
    return result


def _same(left: Any, right: Any) -> bool:
    return identical(left, right)


def _over_partitions(e: Emitter, row: NkiTensor, count: int) -> NkiTensor:
    """One partition copied to `count`, a quadrant at a time."""
    result = e.part((count, *row.shape[1:]), row.dtype)
    for start in range(0, count, QUADRANT):
        part = min(QUADRANT, count - start)
        mask = (0,) * part + (KEEP,) * (QUADRANT - part)
        quadrant = result[start : start + part]
        e(NcStreamShuffle, dst=quadrant, src=row, shuffle_mask=mask)
    return result
