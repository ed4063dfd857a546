"""Which bytes of which buffers a step touches, to find where two cores must meet.

An extent is at least the bytes that are touched, and may be more: two steps whose extents are
disjoint have nothing to do with each other.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graph_compiler.host_kernels.bodies import FoldKernel, SortKernel
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.movement import DynamicCopy
from graph_compiler.lower.products.convolution import ConvolutionStep
from graph_compiler.lower.products.product import Contraction
from graph_compiler.schedule.steps import KernelCall, Place, item_size
from graph_compiler.schedule.views import Buffer, View


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes from `first` up to `last`, which is not one of them. `windows`: (period, first, last)
    where the remainders of places by a period are from a first one up to a last one only."""

    first: int
    last: int
    windows: tuple[tuple[int, int, int], ...] = ()

    def is_apart(self, other: Extent) -> bool:
        """Whether no byte is in both.

        >>> left, right = extent(0, [(4, 8), (4, 1)], 4), extent(4, [(4, 8), (4, 1)], 4)
        >>> left.is_apart(right), left.is_apart(extent(3, [(4, 8), (4, 1)], 4))
        (True, False)
        """
        if self.last <= other.first or other.last <= self.first:
            return True
        return any(
            one == period and (last <= low or high <= first)
            for one, first, last in self.windows
            for period, low, high in other.windows
        )


WHOLE = Extent(0, sys.maxsize)
"""All of a buffer, however large it is."""


def extent(offset: int, axes: Iterable[tuple[int, int]], size: int) -> Extent:
    """The bytes of elements of `size` bytes from an offset on, along (count, stride) axes."""
    first, reach = offset, 1
    windows: list[tuple[int, int, int]] = []
    moved = [(abs(stride), count, stride < 0) for count, stride in axes if stride and count > 1]
    steps = sorted(moved)
    first -= sum((count - 1) * stride for stride, count, down in steps if down)
    for at, (stride, count, _) in enumerate(steps):
        begin = first % stride
        regular = all(outer % stride == 0 for outer, _, _ in steps[at:])
        if regular and begin + reach <= stride and reach < stride:
            windows.append((stride, begin, begin + reach))
        reach += (count - 1) * stride
    found = tuple((period * size, low * size, high * size) for period, low, high in windows)
    return Extent(first * size, (first + reach) * size, found)


class Touch(NamedTuple):
    """What a step does to a buffer."""

    buffer: Buffer
    extent: Extent
    writes: bool


def touches(step: Any, windows: Mapping[Buffer, Buffer]) -> list[Touch]:
    """What a step reads and writes, those inside of it included. `windows`: buffers that are parts
    of others, anywhere in them."""
    return [
        Touch(windows[buffer], WHOLE, writes) if buffer in windows else touch
        for touch in _touches(step)
        for buffer, _, writes in [touch]
    ]


def _touches(step: Any) -> Iterator[Touch]:
    if isinstance(step, Contraction):
        yield from _of_product(step)
        return
    if isinstance(step, ConvolutionStep):
        for view in step.views:
            axes = list(zip(view.dims, view.strides))
            yield Touch(view.buffer, _of_view(view, axes), view is step.target)
        return
    if not isinstance(step, KernelCall):
        for buffers, writes in ((step.reads, False), (step.writes, True)):
            yield from (Touch(buffer, WHOLE, writes) for buffer in buffers)
        for inner in step.inner:
            for one in inner:
                yield from _touches(one)
        return
    places = [word for word in step.words if isinstance(word, Place)]
    found = _operands(step.kernel)
    known = set()
    for place, operand in zip(places, found):
        if operand is not None:
            size, axes, writes = operand
            known.add(place.buffer)
            yield Touch(place.buffer, extent(place.offset // size, axes, size), writes)
    rest = {place.buffer for place in places[len(found) :]}
    for buffers, writes in ((step.reads, False), (step.writes, True)):
        for buffer in buffers:
            if buffer not in known or buffer in rest:
                yield Touch(buffer, WHOLE, writes)


_Operand = tuple[int, list[tuple[int, int]], bool]
"""Bytes of an element, (count, stride) axes, and whether it is written."""


def _operands(kernel: Any) -> list[_Operand | None]:
    """The operands of a call, whose places are its first words; None for one that is touched at
    places which are computed while the call runs."""

    def of(type: str, counts: Sequence[int], strides: Sequence[int], writes: bool) -> _Operand:
        return item_size(type), list(zip(counts, strides)), writes

    if isinstance(kernel, LoopNest):
        type, strides = kernel.output
        leaves = [of(type, kernel.counts, s, False) for type, s in kernel.leaves]
        return [of(type, kernel.counts, strides, True), *leaves]
    if isinstance(kernel, (FoldKernel, SortKernel)):
        made = (
            kernel.counts if isinstance(kernel, FoldKernel) else (*kernel.counts[:-1], kernel.taken)
        )
        return [
            *(of(type, made, strides, True) for type, strides in kernel.outputs),
            *(of(type, kernel.counts, strides, False) for type, strides in kernel.inputs),
        ]
    if isinstance(kernel, DynamicCopy) and not kernel.writes:
        counts = (*kernel.batch, *kernel.counts)
        block = list(zip(counts, (*kernel.batch_inside, *kernel.inside)))
        return [
            None,
            (kernel.size, block, True),
            *(of(type, kernel.batch, kernel.batch_starts, False) for _, type in kernel.starts),
        ]
    return []


def _of_product(step: Contraction) -> Iterator[Touch]:
    product = step.product
    (left, right), rows, columns = product.batch, product.rows, product.columns
    count = math.prod(size for size, _ in rows)
    for view, axes, writes in (
        (product.left, [*left, *rows, *product.depth_left], False),
        (product.right, [*right, *columns, *product.depth_right], False),
        (step.target, [*step.batch, (count, step.rows_step), (columns[0][0], 1)], True),
    ):
        yield Touch(view.buffer, _of_view(view, axes), writes)


def _of_view(view: View, axes: list[tuple[int, int]]) -> Extent:
    return extent(view.offset, axes, item_size(view.type))


class Since:
    """What each of two cores has touched since they last met."""

    def __init__(self) -> None:
        self._made: tuple[dict[Buffer, set[Touch]], ...] = ({}, {})

    def meets(self, core: int, found: Iterable[Touch]) -> bool:
        """Whether the other core has written what a core touches, or touched what it writes."""
        other = self._made[1 - core]
        return any(
            (touch.writes or before.writes) and not touch.extent.is_apart(before.extent)
            for touch in found
            for before in other.get(touch.buffer, ())
        )

    def add(self, core: int, found: Iterable[Touch]) -> None:
        """A core touches these."""
        for touch in found:
            self._made[core].setdefault(touch.buffer, set()).add(touch)
