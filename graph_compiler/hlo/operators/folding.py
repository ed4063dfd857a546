"""Folding arrays with a computation: what it is when it is common, and in general.

A computation of two scalars that is one binary instruction folds with a NumPy ufunc; any other
is applied to whole arrays, neighbours first, as a tree that keeps the order of the elements
(the specification leaves the tree open). Sums and products accumulate in float64 (of floats) and
round once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graph_compiler.hlo.operators.elementwise.binary import maximum, minimum
from graph_compiler.hlo.operators.numerics import narrow, precise_dtype, widen, widen_precise

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Computation
    from graph_compiler.hlo.operators.row import Array, Evaluation

Combine: TypeAlias = "Callable[[list[Array], list[Array]], list[Array]]"
"""Combines N arrays that come first with N that come later, element by element."""


@dataclass(frozen=True, slots=True)
class BinaryFold:
    """A binary instruction as a fold: its ufunc, and whether it accumulates more precisely."""

    ufunc: np.ufunc
    accumulates: bool = False


FOLDS: dict[str, BinaryFold] = {
    "add": BinaryFold(np.add, accumulates=True),
    "multiply": BinaryFold(np.multiply, accumulates=True),
    "maximum": BinaryFold(np.maximum),
    "minimum": BinaryFold(np.minimum),
    "and": BinaryFold(np.bitwise_and),
    "or": BinaryFold(np.bitwise_or),
    "xor": BinaryFold(np.bitwise_xor),
}
"""Opcodes that fold with a ufunc. Signed zeros of maximum and minimum may come out either way."""


def binary_opcode(computation: Computation) -> str | None:
    """The opcode of a computation that is one binary instruction of FOLDS on its parameters."""
    root = computation.root
    if root.opcode not in FOLDS or len(root.operands) != 2 or not root.shape.is_scalar:
        return None
    if root.shape.primitive.bits < 8:
        return None
    numbers = [item.parameter_number for item in root.operands if item.opcode == "parameter"]
    return root.opcode if sorted(numbers) == [0, 1] else None


def chosen_parameter(computation: Computation) -> int | None:
    """The number of the parameter that a computation returns unchanged, if it does."""
    root = computation.root
    return root.parameter_number if root.opcode == "parameter" else None


def result_dtypes(computation: Computation) -> list[np.dtype[Any]]:
    root = computation.root.shape
    shapes = root.tuple_shapes if root.is_tuple else (root,)
    return [shape.numpy_dtype() for shape in shapes]


class Folder:
    """A computation ready to fold N arrays.

    `combine(first, later)`; `widen` and `narrow` convert to and from the type that accumulates.
    """

    def __init__(self, computation: Computation, context: Evaluation) -> None:
        self.computation = computation
        self.context = context
        self.dtypes = result_dtypes(computation)
        opcode = binary_opcode(computation)
        self.fold = FOLDS[opcode] if opcode is not None else None

    def widen(self, arrays: Sequence[Array]) -> list[Array]:
        converted = [array.astype(dtype, copy=False) for array, dtype in zip(arrays, self.dtypes)]
        if self.fold is None:
            return converted
        return [
            widen_precise(array) if self.fold.accumulates else widen(array) for array in converted
        ]

    def narrow(self, arrays: Sequence[Array]) -> list[Array]:
        return [narrow(np.asarray(array), dtype) for array, dtype in zip(arrays, self.dtypes)]

    def combine(self, first: Sequence[Array], later: Sequence[Array]) -> list[Array]:
        if self.fold is not None:
            if self.fold.ufunc is np.maximum:
                return [maximum(first[0], later[0])]
            if self.fold.ufunc is np.minimum:
                return [minimum(first[0], later[0])]
            return [self.fold.ufunc(first[0], later[0])]
        return list(self.context.elementwise(self.computation, [*first, *later]))

    def reduce(self, arrays: Sequence[Array], initial: Sequence[Array]) -> list[Array]:
        """Folds the last axis of each array behind `initial`."""
        if self.fold is not None:
            array = arrays[0].astype(self.dtypes[0], copy=False)
            start = initial[0].astype(self.dtypes[0])
            if self.fold.accumulates:
                accumulator = precise_dtype(array.dtype)
                wide = array if array.dtype in _NATIVE else widen(array)
                total = self.fold.ufunc.reduce(wide, axis=-1, dtype=accumulator)
                total = self.fold.ufunc(total, start.astype(accumulator))
            else:
                wide = widen(array)
                total = self.fold.ufunc.reduce(wide, axis=-1, initial=widen(start)[()])
            return self.narrow([np.asarray(total)])
        return self._tree(list(self.widen(arrays)), self.widen(initial))

    def _tree(self, arrays: list[Array], initial: list[Array]) -> list[Array]:
        while arrays[0].shape[-1] > 1:
            count = arrays[0].shape[-1]
            pairs = count // 2 * 2
            combined = self.combine(
                [array[..., 0:pairs:2] for array in arrays],
                [array[..., 1:pairs:2] for array in arrays],
            )
            if pairs < count:
                combined = [
                    np.concatenate([part, array[..., pairs:]], axis=-1)
                    for part, array in zip(combined, arrays)
                ]
            arrays = combined
        if arrays[0].shape[-1] == 0:
            shape = arrays[0].shape[:-1]
            return [np.broadcast_to(start, shape) for start in initial]
        rest = [array[..., 0] for array in arrays]
        return self.narrow(
            self.combine([np.broadcast_to(s, r.shape) for s, r in zip(initial, rest)], rest)
        )

    def windows(self, arrays: list[Array], axis: int, size: int, dilation: int) -> list[Array]:
        """At every start along `axis`, the fold of `size` elements `dilation` apart.

        Powers of two by doubling, then joined in order: log(size) combinations an element.
        """
        if self.fold is not None and self.fold.ufunc is np.add and dilation == 1 and size > 64:
            cumulated = _prefix_windows(arrays[0], axis, size)
            if cumulated is not None:
                return [cumulated]
        count = arrays[0].shape[axis] - (size - 1) * dilation
        power, span = arrays, 1
        result: list[Array] | None = None
        done, left = 0, size
        while left:
            if left & 1:
                part = [_from(array, axis, done * dilation, count) for array in power]
                result = part if result is None else self.combine(result, part)
                done += span
            left >>= 1
            if left:
                length = power[0].shape[axis] - span * dilation
                power = self.combine(
                    [_from(array, axis, 0, length) for array in power],
                    [_from(array, axis, span * dilation, length) for array in power],
                )
                span *= 2
        assert result is not None
        return result


def _prefix_windows(array: Array, axis: int, size: int) -> Array | None:
    """Sums of windows as long as half the array or more: a cumulated sum where only zeros of
    padding leave the window, None otherwise."""
    count = array.shape[axis] - size + 1
    leaving = _from(array, axis, 0, count - 1)
    if not leaving.any():
        return _from(np.cumsum(array, axis=axis), axis, size - 1, count)
    entering = _from(array, axis, size, count - 1)
    if not entering.any():
        reversed_sum = np.flip(np.cumsum(np.flip(array, axis), axis=axis), axis)
        return _from(reversed_sum, axis, 0, count)
    return None


def _from(array: Array, axis: int, start: int, count: int) -> Array:
    index: list[Any] = [slice(None)] * array.ndim
    index[axis] = slice(start, start + count)
    return array[tuple(index)]


_NATIVE = frozenset(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
)
"""Types that a NumPy reduction converts while it reads."""
