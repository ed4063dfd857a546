"""Splits a step in two: the same work on each half of a dimension of its result.

Nothing is emitted otherwise than for one core. A half is a step like any other, on views of the
same buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from graph_compiler.host_kernels.bodies import FoldKernel, SortKernel
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.host_kernels.movement import DynamicCopy
from graph_compiler.lower.nests.nest import PARTITIONS, divisor
from graph_compiler.lower.products.convolution import ConvolutionStep
from graph_compiler.lower.products.product import Contraction
from graph_compiler.schedule.contractions import Axes
from graph_compiler.schedule.steps import KernelCall, Place, item_size
from graph_compiler.schedule.views import View

Halves = tuple[Any, Any]


def halves(step: Any) -> Iterator[Halves]:
    """Ways to cut a step in two, outer dimensions first; none of steps that stay whole."""
    if isinstance(step, Contraction):
        yield from _of_product(step)
    elif isinstance(step, ConvolutionStep):
        yield from step.halves()
    elif isinstance(step, KernelCall):
        cut = _CUTS.get(type(step.kernel))
        if cut is not None:
            yield from cut(step, step.kernel)


def _in_two(count: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Where halves of a dimension begin, and how long they are."""
    half = (count + 1) // 2
    return (0, half), (half, count - half)


def _moved(call: KernelCall, kernel: Any, steps: Sequence[int], start: int) -> KernelCall:
    """A call of another kernel whose first places are `start` times these bytes further on."""
    distances = iter(steps)
    words = [
        Place(word.buffer, word.offset + start * next(distances, 0))
        if isinstance(word, Place)
        else word
        for word in call.words
    ]
    return KernelCall(kernel, words, [*call.reads], [*call.writes])


def _cut(
    call: KernelCall,
    count: int,
    steps: Sequence[int],
    kernel: Callable[[int], Any],
) -> Halves:
    """A call in two, given the kernel for so many elements of the dimension."""
    one, other = (_moved(call, kernel(size), steps, start) for start, size in _in_two(count))
    return one, other


def _with(counts: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    return (*counts[:axis], size, *counts[axis + 1 :])


def _of_loop(call: KernelCall, loop: LoopNest) -> Iterator[Halves]:
    operands = [loop.output, *loop.leaves]
    if loop.fold is None and len(loop.counts) == 1:
        yield from _of_run(call, loop)
    for axis, count in enumerate(loop.counts):
        gone = bool(loop.reduced) and loop.reduced[axis]
        if count < 2 or gone or not loop.output[1][axis]:
            continue
        steps = [strides[axis] * item_size(type) for type, strides in operands]

        def kernel(size: int, axis: int = axis) -> LoopNest:
            return replace(loop, counts=_with(loop.counts, axis, size))

        yield _cut(call, count, steps, kernel)


def _of_run(call: KernelCall, loop: LoopNest) -> Iterator[Halves]:
    """A single dimension that lies in partitions as rows, where halves of it would not."""
    (count,) = loop.counts
    rows = divisor(count)
    if rows < PARTITIONS // 4 or divisor((count + 1) // 2) >= rows // 2 + PARTITIONS // 4:
        return
    inner = count // rows

    def spread(operand: tuple[str, tuple[int, ...]]) -> tuple[str, tuple[int, ...]]:
        type, (stride,) = operand
        return type, (inner * stride, stride)

    whole = replace(
        loop,
        counts=(rows, inner),
        output=spread(loop.output),
        leaves=tuple(map(spread, loop.leaves)),
    )
    yield from _of_loop(KernelCall(whole, call.words, call.reads, call.writes), whole)


def _of_fold(call: KernelCall, fold: FoldKernel) -> Iterator[Halves]:
    operands = [*fold.outputs, *fold.inputs]
    for axis, count in enumerate(fold.counts):
        if count < 2 or fold.reduced[axis]:
            continue
        steps = [strides[axis] * item_size(type) for type, strides in operands]

        def kernel(size: int, axis: int = axis) -> FoldKernel:
            return replace(fold, counts=_with(fold.counts, axis, size))

        yield _cut(call, count, steps, kernel)


def _of_sort(call: KernelCall, sort: SortKernel) -> Iterator[Halves]:
    operands = [*sort.outputs, *sort.inputs]
    for axis, count in enumerate(sort.counts[:-1]):
        if count < 2:
            continue
        steps = [strides[axis] * item_size(type) for type, strides in operands]

        def kernel(size: int, axis: int = axis) -> SortKernel:
            return replace(sort, counts=_with(sort.counts, axis, size))

        yield _cut(call, count, steps, kernel)


def _of_gather(call: KernelCall, copy: DynamicCopy) -> Iterator[Halves]:
    """Blocks out of an array: some of them each. Blocks into one may be for the same places."""
    for axis, count in enumerate(copy.batch):
        if count < 2 or copy.writes:
            continue
        steps = [
            copy.batch_outside[axis] * copy.size,
            copy.batch_inside[axis] * copy.size,
            *(copy.batch_starts[axis] * item_size(type) for _, type in copy.starts),
        ]

        def kernel(size: int, axis: int = axis) -> DynamicCopy:
            return replace(copy, batch=_with(copy.batch, axis, size))

        yield _cut(call, count, steps, kernel)


_CUTS: dict[type, Callable[[KernelCall, Any], Iterator[Halves]]] = {
    LoopNest: _of_loop,
    FoldKernel: _of_fold,
    SortKernel: _of_sort,
    DynamicCopy: _of_gather,
}


def _of_product(step: Contraction) -> Iterator[Halves]:
    """A product in two along its batch, its rows, its columns."""
    product = step.product
    rows = math.prod(count for count, _ in product.rows)
    batch = math.prod(count for count, _ in product.batch[0])
    if batch > 1:
        found = _outermost(product.batch[0])

        def of_batch(start: int, size: int) -> Contraction:
            left, right = (_part(axes, found, size) for axes in product.batch)
            return _contraction(
                step,
                (start * product.batch[0][found][1], left),
                (start * product.batch[1][found][1], right),
                start * step.batch[found][1],
                batch=_part(step.batch, found, size),
            )

        yield _both(of_batch, product.batch[0][found][0])
    if rows > 1:
        outer = _outermost(product.rows)
        within = rows // product.rows[outer][0]

        def of_rows(start: int, size: int) -> Contraction:
            return _contraction(
                step,
                (start * product.rows[outer][1], product.batch[0]),
                (0, product.batch[1]),
                start * within * step.rows_step,
                rows=_part(product.rows, outer, size),
            )

        yield _both(of_rows, product.rows[outer][0])
    ((columns, across),) = product.columns
    if columns > 1:

        def of_columns(start: int, size: int) -> Contraction:
            return _contraction(
                step,
                (0, product.batch[0]),
                (start * across, product.batch[1]),
                start,
                columns=[(size, across)],
            )

        yield _both(of_columns, columns)


def _both(make: Callable[[int, int], Contraction], count: int) -> Halves:
    one, other = (make(start, size) for start, size in _in_two(count))
    return one, other


def _outermost(axes: Axes) -> int:
    """The number of the first dimension that has several elements."""
    return next(number for number, (count, _) in enumerate(axes) if count > 1)


def _part(axes: Axes, number: int, size: int) -> Axes:
    """The dimensions with `size` elements of one of them."""
    return [(size if at == number else count, step) for at, (count, step) in enumerate(axes)]


def _contraction(
    step: Contraction,
    left: tuple[int, Axes],
    right: tuple[int, Axes],
    to: int,
    rows: Axes | None = None,
    columns: Axes | None = None,
    batch: Axes | None = None,
) -> Contraction:
    """A part of a product: where its operands begin, their batches, and where its target does."""
    product = step.product
    part = product.changed(
        _further(product.left, left[0]),
        _further(product.right, right[0]),
        (left[1], right[1]),
        rows,
        columns,
    )
    own = step.batch if batch is None else batch
    return Contraction(part, _further(step.target, to), step.rows_step, own)


def _further(view: View, distance: int) -> View:
    return view.placed(view.dims, view.strides, distance)
