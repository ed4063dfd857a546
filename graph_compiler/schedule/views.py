"""Strided views of buffers, and what operators that move no data do to them.

Reshapes, transposes, broadcasts, slices and reversals move no element: they are other strides on
the same buffer. Strides and offsets count elements; a repeated dimension has stride 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction

Dims = tuple[int, ...]


class Buffer:
    """Memory of `size` bytes. `kind`: "input", "output" or "constant" with its `number`, or
    "arena"."""

    __slots__ = ("kind", "number", "size")

    def __init__(self, size: int, kind: str = "arena", number: int = 0) -> None:
        self.size = size
        self.kind = kind
        self.number = number


@dataclass(slots=True, eq=False, repr=False)
class View:
    """Elements of a primitive type in a buffer."""

    buffer: Buffer
    type: str
    dims: Dims
    strides: Dims
    offset: int = 0

    def placed(self, dims: Dims, strides: Dims, offset: int = 0) -> View:
        """The same buffer under other strides, `offset` further on."""
        return View(self.buffer, self.type, dims, strides, self.offset + offset)

    @property
    def is_row_major(self) -> bool:
        """Whether the elements lie one after another in row-major order."""
        return collapsed(self.dims, [self.strides])[1][0] in ((), (1,))


def count_of(dims: Sequence[int]) -> int:
    """The number of elements."""
    return math.prod(dims)


def row_major(dims: Sequence[int]) -> Dims:
    """Strides of elements that lie one after another."""
    strides = [1] * len(dims)
    for axis in range(len(dims) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * dims[axis + 1]
    return tuple(strides)


def collapsed(dims: Sequence[int], operands: Sequence[Sequence[int]]) -> tuple[Dims, list[Dims]]:
    """Dimensions without those of one element, neighbours joined that are one run for every
    operand; and the operands' strides of them."""
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in operands]
    for axis, size in enumerate(dims):
        if size == 1:
            continue
        strides = [operand[axis] for operand in operands]
        if sizes and all(s[-1] == new * size for s, new in zip(steps, strides)):
            sizes[-1] *= size
            for s, new in zip(steps, strides):
                s[-1] = new
        else:
            sizes.append(size)
            for s, new in zip(steps, strides):
                s.append(new)
    return tuple(sizes), [tuple(s) for s in steps]


def reshaped(dims: Dims, strides: Dims, sizes: Dims) -> Dims | None:
    """Strides of the same elements under other sizes; None where they are not evenly spaced."""
    runs, (steps,) = collapsed(dims, [strides])
    result = [0] * len(sizes)
    axis = len(sizes) - 1
    for count, stride in zip(reversed(runs), reversed(steps)):
        left, step = count, stride
        while left > 1:
            while axis >= 0 and sizes[axis] == 1:
                axis -= 1
            if axis < 0 or left % sizes[axis]:
                return None
            result[axis] = step
            step *= sizes[axis]
            left //= sizes[axis]
            axis -= 1
    return tuple(result)


def _reshape(view: View, instruction: Instruction) -> View | None:
    sizes = instruction.shape.dimensions
    strides = reshaped(view.dims, view.strides, sizes)
    return None if strides is None else view.placed(sizes, strides)


def _transpose(view: View, instruction: Instruction) -> View:
    axes = instruction.attribute("dimensions")
    return view.placed(
        tuple(view.dims[axis] for axis in axes), tuple(view.strides[axis] for axis in axes)
    )


def _broadcast(view: View, instruction: Instruction) -> View:
    sizes = instruction.shape.dimensions
    strides = [0] * len(sizes)
    for axis, place in enumerate(instruction.attribute("dimensions")):
        strides[place] = view.strides[axis]
    return view.placed(sizes, tuple(strides))


def _slice(view: View, instruction: Instruction) -> View:
    parts = instruction.attribute("slice_dimensions")
    strides = tuple(stride * part.stride for stride, part in zip(view.strides, parts))
    start = sum(stride * part.start for stride, part in zip(view.strides, parts))
    return view.placed(instruction.shape.dimensions, strides, start)


def _reverse(view: View, instruction: Instruction) -> View:
    strides, start = list(view.strides), 0
    for axis in instruction.attribute("dimensions"):
        start += (view.dims[axis] - 1) * strides[axis]
        strides[axis] = -strides[axis]
    return view.placed(view.dims, tuple(strides), start)


MOVES: dict[str, Callable[[View, Any], View | None]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast": _broadcast,
    "slice": _slice,
    "reverse": _reverse,
}
"""Opcodes whose result is a view of their operand; None where strides cannot say it."""
