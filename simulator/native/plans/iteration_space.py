"""One iteration space for operands of different shapes and strides.

Operands correspond element by element in row-major order, whatever their shapes. `space` splits
their dimensions until all have the same ones. Then it joins neighbours that are one run of memory
for every operand. So most tiles end as rows of one contiguous dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Dim = tuple[int, int]
"""(count, byte stride)"""

IterationSteps = tuple[int, ...]


class IterationSpace(NamedTuple):
    """`counts` of the dimensions, outermost first, and for each operand its byte strides."""

    counts: tuple[int, ...]
    strides: tuple[IterationSteps, ...]

    def padded(self, rank: int) -> IterationSpace | None:
        """The space with outer dimensions of one element up to `rank` of them; None beyond."""
        missing = rank - len(self.counts)
        if missing < 0:
            return None
        return IterationSpace(
            (1,) * missing + self.counts, tuple((0,) * missing + steps for steps in self.strides)
        )


def dims(shape: Sequence[int], strides: Sequence[int]) -> list[Dim]:
    """The dimensions of a view, outermost first."""
    return list(zip(shape, strides))


def column(shape: Sequence[int], strides: Sequence[int], elements: int) -> list[Dim]:
    """One element a partition, for each of the `elements` that another operand has there."""
    return [(shape[0], strides[0]), (elements, 0)]


def _joined(operand: Sequence[Dim]) -> list[Dim]:
    """The dimensions of more than one element, neighbours that are one run as one: it can be split
    wherever another operand needs it."""
    joined: list[Dim] = []
    for count, stride in operand:
        if count == 1:
            continue
        if joined and joined[-1][1] == count * stride:
            joined[-1] = joined[-1][0] * count, stride
        else:
            joined.append((count, stride))
    return joined


def space(operands: Sequence[Sequence[Dim]]) -> IterationSpace | None:
    """The common space of operands with equal numbers of elements, at least one; else None."""
    remaining = [_joined(operand) for operand in operands]
    counts: list[int] = []
    steps: list[list[int]] = [[] for _ in operands]
    while any(remaining):
        if not all(remaining):
            return None
        count = min(operand[-1][0] for operand in remaining)
        if count == 0:
            return None
        strides = []
        for operand in remaining:
            extent, stride = operand.pop()
            if extent % count:
                return None
            if extent != count:
                operand.append((extent // count, stride * count))
            strides.append(stride)
        if counts and all(s[-1] * counts[-1] == new for s, new in zip(steps, strides)):
            counts[-1] *= count
            continue
        counts.append(count)
        for operand_steps, stride in zip(steps, strides):
            operand_steps.append(stride)
    return IterationSpace(tuple(reversed(counts)), tuple(tuple(reversed(s)) for s in steps))


def partitioned(operands: Sequence[Sequence[Dim]]) -> IterationSpace | None:
    """The space with partitions as its first dimension, which is joined with no other one."""
    free = space([operand[1:] for operand in operands])
    if free is not None and not free.counts:
        free = free.padded(1)
    return None if free is None else by_partitions(operands, free)


def by_partitions(operands: Sequence[Sequence[Dim]], free: IterationSpace) -> IterationSpace:
    """The space of the operands whose dimensions but the first, partitions, have a space."""
    strides = tuple((operand[0][1], *steps) for operand, steps in zip(operands, free.strides))
    return IterationSpace((operands[0][0][0], *free.counts), strides)


def by_partition(operands: Sequence[Sequence[Dim]]) -> IterationSpace | None:
    """The space with partitions as the one dimension and all elements of a partition as the other;
    None unless these are one dimension for every operand."""
    found = partitioned(operands)
    return found if found is None or len(found.counts) == 2 else None


def separate(dimensions: Iterable[Dim], size: int) -> bool:
    """Whether elements of `size` bytes share none, as far as their strides, in order, tell."""
    extent = size
    for stride, count in sorted((abs(stride), count) for count, stride in dimensions if count > 1):
        if stride < extent:
            return False
        extent += stride * (count - 1)
    return True


class ViewFootprint(NamedTuple):
    """The bytes that a view covers: a repetition every `pitch` bytes of ranges of `extent` bytes
    from `low`, relative to the address of its first element, `reach` bytes in all."""

    pitch: int
    low: int
    extent: int
    reach: int


def footprint(shape: Sequence[int], strides: Sequence[int], size: int) -> ViewFootprint:
    """The footprint of a view on elements of `size` bytes; its first dimension is repeated."""
    low, extent = 0, size
    for count, stride in zip(shape[1:], strides[1:]):
        span = (count - 1) * stride
        extent += abs(span)
        low += min(span, 0)
    pitch = strides[0] if shape else 0
    return ViewFootprint(pitch, low, extent, (shape[0] - 1) * pitch if shape else 0)


def disjoint(first: int, left: ViewFootprint, second: int, right: ViewFootprint) -> bool:
    """Whether two views, at these addresses, certainly share no byte."""
    start, other = first + left.low, second + right.low
    left_low, right_low = start + min(left.reach, 0), other + min(right.reach, 0)
    left_high = start + max(left.reach, 0) + left.extent
    right_high = other + max(right.reach, 0) + right.extent
    if left_high <= right_low or right_high <= left_low:
        return True
    pitch = max(left.pitch, right.pitch)
    if pitch <= 0 or any(operand.reach and operand.pitch != pitch for operand in (left, right)):
        return False
    distance = (other - start) % pitch
    return left.extent <= distance and distance + right.extent <= pitch
