"""Physical access patterns: which bytes an instruction operand touches.

An operand is a start partition and a number of partitions, a start offset, and up to four
[stride, count] dimensions (SDK nki/guides/architecture/trainium_inferentia2_arch.rst, "Accessing
SBUF/PSUM"; SDK nki/deep-dives/nki-aps.rst). Offsets are bytes, strides are elements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from typing import Any

from isa.dtypes import DTYPES
from isa.enums import Memory

UNBOUNDED = 1 << 62
"""Upper end of a byte range that a register without known bounds makes unknown."""

RegisterRanges = Mapping[int, int | tuple[int, int]]
"""Register values by number: one value, or the lowest and highest (inclusive)."""


Limits = tuple[Any, Any, tuple[tuple[int, Any], ...]]


@dataclass(slots=True, repr=False)
class AccessPattern:
    """An operand of a compiled instruction.

    On chip: partitions `start_partition .. start_partition + partitions`, each reading `dims`
    (stride in elements, count) from byte `offset` of the partition; `tensor` is -1. In HBM:
    `tensor` indexes the program's tensors, `start_partition` is 0, `partitions` is 1, and all
    dimensions are in `dims`, outermost first. `registers` are (register number, bytes) pairs:
    register value times bytes is added to `offset` when the instruction issues.
    `offset`, `partitions` and `dims` entries may be polynomials until the program is bound.

    `vector_offset`: an SBUF access pattern of one index a partition; row i of the outermost
    dimension then starts at `offset + index[i] * vector_stride` elements instead of i * stride.
    `vector_bound` is the number of rows that may be indexed.

    `limits`, where there are any, say in which bytes of its tensor a run has to find that an access
    stays: (first, one past the last, registers), where (register number, bytes) pairs move both.
    """

    memory: Memory
    dtype: str
    offset: Any
    dims: tuple[tuple[Any, Any], ...]
    start_partition: int = 0
    partitions: Any = 1
    tensor: int = -1
    registers: tuple[tuple[int, Any], ...] = ()
    vector_offset: AccessPattern | None = None
    vector_stride: Any = 0
    vector_bound: Any = 0
    limits: Limits | None = None

    def __hash__(self) -> int:
        return hash((self.memory, self.tensor, self.start_partition, self.dtype))


@dataclass(slots=True, repr=False)
class Footprint:
    """The bytes that an access touches, in normal form.

    In each of the partitions `start_partition .. start_partition + partitions`, the bytes `start +
    sum(i * stride) + b` for every i below its count in `dims` and b below `width`. `dims` are pairs
    (stride in bytes, count). Strides are positive and descend, counts are above 1. `width` is 0
    when no byte is touched. `tensor` is -1 on chip.
    """

    memory: Memory
    tensor: int
    start_partition: int
    partitions: int
    start: int
    dims: tuple[tuple[int, int], ...]
    width: int

    @property
    def end(self) -> int:
        """One past the last byte."""
        return self.start + sum(s * (n - 1) for s, n in self.dims) + self.width

    @property
    def contiguous(self) -> bool:
        """Whether the bytes of a partition are one run."""
        return not self.dims

    def __repr__(self) -> str:
        where = f"tensor {self.tensor}" if self.tensor >= 0 else self.memory.value
        dims = "".join(f" + {s}*[0..{n})" for s, n in self.dims)
        last = self.start_partition + self.partitions
        return (
            f"<{where} partitions {self.start_partition}..{last} "
            f"bytes {self.start}{dims} + [0..{self.width})>"
        )


def footprint(pattern: AccessPattern, registers: RegisterRanges | None = None) -> Footprint:
    """The bytes that a bound access may touch.

    Exact for known registers; the union over a register's range; every byte (from 0 to UNBOUNDED)
    when a register's range is not known. Row indices may select any of their `vector_bound` rows.
    The index tile of a `vector_offset` is an access of its own.
    """

    def touched(start: int, dims: tuple[tuple[int, int], ...], width: int) -> Footprint:
        partitions = pattern.start_partition, pattern.partitions
        return Footprint(pattern.memory, pattern.tensor, *partitions, start, dims, width)

    size = DTYPES[pattern.dtype].size
    start = pattern.offset
    dims: list[tuple[int, int]] = []
    for number, step in pattern.registers:
        known = None if registers is None else registers.get(number)
        if known is None:
            return touched(0, (), UNBOUNDED)
        low, high = known if isinstance(known, tuple) else (known, known)
        start += low * step
        dims.append((step, high - low + 1))
    shape = pattern.dims
    if pattern.vector_offset is not None:
        dims.append((pattern.vector_stride * size, pattern.vector_bound))
        if shape and shape[0][1] == 0:
            return touched(start, (), 0)
        shape = shape[1:]
    dims += [(stride * size, count) for stride, count in shape]
    if pattern.partitions == 0:
        return touched(start, (), 0)
    width = size
    strided = []
    for stride, count in dims:
        if count <= 0:
            return touched(start, (), 0)
        if stride < 0:
            start += stride * (count - 1)
            stride = -stride
        if stride and count > 1:
            strided.append((stride, count))
    strided.sort()
    kept: list[tuple[int, int]] = []
    for stride, count in strided:
        if not kept and stride <= width:
            width += stride * (count - 1)
        elif kept and stride == kept[-1][0] * kept[-1][1]:
            kept[-1] = (kept[-1][0], kept[-1][1] * count)
        else:
            kept.append((stride, count))
    return touched(start, tuple(reversed(kept)), width)


def overlaps(a: AccessPattern | Footprint, b: AccessPattern | Footprint) -> bool:
    """Whether two bound accesses share a byte; exact for strided accesses, not their hulls.

    On-chip accesses are taken to be of one core. Where registers move them, footprints for ranges
    of registers tell whether they may share one.
    """
    if a.tensor != b.tensor or (a.tensor < 0 and a.memory is not b.memory):
        return False
    if isinstance(a, AccessPattern):
        a = footprint(a)
    if isinstance(b, AccessPattern):
        b = footprint(b)
    if not a.width or not b.width:
        return False
    if (
        a.start_partition >= b.start_partition + b.partitions
        or b.start_partition >= a.start_partition + a.partitions
        or a.start >= b.end
        or b.start >= a.end
    ):
        return False
    if not a.dims and not b.dims:
        return True
    # Bytes meet where sum(i * stride of a) - sum(j * stride of b) is in [low, high]. Turning j
    # around makes every coefficient positive.
    shift = b.start - a.start + sum(s * (n - 1) for s, n in b.dims)
    steps = sorted((*a.dims, *b.dims), reverse=True)
    return _reaches(steps, shift - a.width + 1, shift + b.width - 1)


def _reaches(steps: list[tuple[int, int]], low: int, high: int) -> bool:
    """Whether some sum of i * stride, 0 <= i < count, lies in [low, high].

    A search over the steps, largest first, that leaves out what the greatest common divisor and
    the reach of the smaller steps exclude, and never enters a state twice.
    """
    reach = [0] * (len(steps) + 1)
    divisor = [0] * (len(steps) + 1)
    for k in range(len(steps) - 1, -1, -1):
        stride, count = steps[k]
        reach[k] = reach[k + 1] + stride * (count - 1)
        divisor[k] = gcd(divisor[k + 1], stride)
    span = high - low
    seen: set[tuple[int, int]] = set()
    work = [(0, low)]
    while work:
        k, first = work.pop()
        last = first + span
        if last < 0 or first > reach[k]:
            continue
        if first <= 0 or last >= reach[k]:  # the sum 0 or the largest sum is in the window
            return True
        if k == len(steps) or (last // divisor[k]) * divisor[k] < first:
            continue
        stride, count = steps[k]
        if k == len(steps) - 1:
            if min(last // stride, count - 1) * stride >= first:
                return True
            continue
        lowest = max(0, -((reach[k + 1] - first) // stride))  # the rest must reach `first`
        for i in range(lowest, min(count - 1, last // stride) + 1):
            state = (k + 1, first - i * stride)
            if state not in seen:
                seen.add(state)
                work.append(state)
    return False


def byte_hull(pattern: AccessPattern) -> tuple[int, int]:
    """First byte and one past the last that an access may touch, in its partitions or tensor;
    (0, UNBOUNDED) where registers move it."""
    touched = footprint(pattern)
    return touched.start, touched.end


def elements(pattern: AccessPattern) -> int:
    """How many elements an access reads or writes."""
    count = pattern.partitions
    for _, n in pattern.dims:
        count *= n
    return count
