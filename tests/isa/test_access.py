"""Footprints, overlaps and bounds of access patterns against brute-force sets of byte addresses."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.access import (
    UNBOUNDED,
    AccessPattern,
    byte_hull,
    elements,
    footprint,
    overlaps,
)
from isa.dtypes import DTYPES
from isa.enums import Memory


def addresses(pattern, registers=None, indices=None):
    """(partition, byte) of every element in order, by NumPy index arithmetic."""
    size = DTYPES[pattern.dtype].size
    base = pattern.offset + sum(step * registers[n] for n, step in pattern.registers)
    grid = np.array([base])
    for axis, (stride, count) in enumerate(pattern.dims):
        steps = np.arange(count) * stride
        if axis == 0 and indices is not None:
            steps = np.asarray(indices) * pattern.vector_stride
        grid = (grid[:, None] + steps * size).reshape(-1)
    byte = (grid[:, None] + np.arange(size)).reshape(-1)
    rows = range(pattern.start_partition, pattern.start_partition + pattern.partitions)
    return [(p, int(b)) for p in rows for b in byte]


def bytes_of(touched):
    """The set that a footprint describes."""
    rows = range(touched.start_partition, touched.start_partition + touched.partitions)
    result = set()
    for position in product(*(range(n) for _, n in touched.dims)):
        first = touched.start + sum(i * s for i, (s, _) in zip(position, touched.dims))
        result |= {(p, first + b) for p in rows for b in range(touched.width)}
    return result


@st.composite
def patterns(draw, negative=True, tensor=None):
    dims = tuple(
        (draw(st.integers(-9 if negative else 0, 24)), draw(st.integers(0, 4)))
        for _ in range(draw(st.integers(0, 4)))
    )
    if draw(st.booleans()):
        dims = tuple(sorted(((s, max(n, 1)) for s, n in dims), reverse=True))
    dtype = draw(st.sampled_from(["uint8", "bfloat16", "float32"]))
    offset = draw(st.integers(0, 60))
    if draw(st.booleans()) if tensor is None else tensor:
        return AccessPattern(Memory.private_hbm, dtype, offset, dims, tensor=3)
    return AccessPattern(
        Memory.sbuf,
        dtype,
        offset,
        dims,
        start_partition=draw(st.sampled_from([0, 1, 2])),
        partitions=draw(st.integers(1, 2)),
    )


@given(patterns())
@settings(max_examples=300, deadline=None)
def test_footprint_is_the_set_of_bytes(pattern):
    touched = footprint(pattern)
    expected = set(addresses(pattern))
    assert bytes_of(touched) == expected
    if expected:
        low, high = byte_hull(pattern)
        assert low == min(b for _, b in expected) and high == max(b for _, b in expected) + 1
        assert all(s > touched.width and n > 1 for s, n in touched.dims)
        assert list(touched.dims) == sorted(touched.dims, reverse=True)
    assert elements(pattern) * DTYPES[pattern.dtype].size == len(addresses(pattern))


@given(patterns(tensor=True), patterns(tensor=True))
@settings(max_examples=500, deadline=None)
def test_overlap_is_a_common_byte(a, b):
    expected = not set(addresses(a)).isdisjoint(addresses(b))
    assert overlaps(a, b) == expected
    assert overlaps(b, a) == expected


@given(patterns(tensor=False), patterns(tensor=False))
@settings(max_examples=200, deadline=None)
def test_overlap_on_chip(a, b):
    assert overlaps(a, b) == (not set(addresses(a)).isdisjoint(addresses(b)))


@given(patterns(), st.lists(st.tuples(st.integers(-9, 40), st.integers(0, 3)), max_size=2))
@settings(max_examples=200, deadline=None)
def test_register_ranges_give_the_union(pattern, terms):
    pattern.registers = tuple((n, step) for n, (step, _) in enumerate(terms))
    ranges = {n: (1, 1 + extra) for n, (_, extra) in enumerate(terms)}
    expected = set()
    for values in product(*(range(low, high + 1) for low, high in ranges.values())):
        binding = dict(enumerate(values))
        exact = set(addresses(pattern, binding))
        assert bytes_of(footprint(pattern, binding)) == exact
        expected |= exact
    assert bytes_of(footprint(pattern, ranges)) == expected


def test_unknown_register_means_everything():
    pattern = AccessPattern(Memory.sbuf, "float32", 64, ((1, 4),), 0, 32, registers=((5, 16),))
    assert byte_hull(pattern) == (0, UNBOUNDED)
    far = AccessPattern(Memory.sbuf, "float32", 1 << 16, ((1, 4),), 0, 32)
    assert overlaps(pattern, far)
    assert not overlaps(footprint(pattern, {5: (0, 9)}), far)
    other = AccessPattern(Memory.sbuf, "float32", 0, ((1, 4),), 64, 32)
    assert not overlaps(pattern, other)


def test_row_indices_reach_every_row():
    index = AccessPattern(Memory.sbuf, "uint32", 0, ((1, 1),), 0, 3)
    gather = AccessPattern(
        Memory.private_hbm, "float32", 8, ((16, 3), (1, 4)), tensor=0,
        vector_offset=index, vector_stride=16, vector_bound=10,
    )  # fmt: skip
    expected = set()
    for row in range(10):
        expected |= set(addresses(gather, indices=[row, row, row]))
    assert bytes_of(footprint(gather)) == expected


def test_accesses_of_different_memories_never_meet():
    here = AccessPattern(Memory.sbuf, "float32", 0, ((1, 8),), 0, 128)
    for other in (
        AccessPattern(Memory.psum, "float32", 0, ((1, 8),), 0, 128),
        AccessPattern(Memory.private_hbm, "float32", 0, ((1, 8),), tensor=0),
    ):
        assert not overlaps(here, other)
    one, two = (AccessPattern(Memory.shared_hbm, "float32", 0, ((1, 8),), tensor=t) for t in (0, 1))
    assert not overlaps(one, two)


def test_interleaved_accesses_do_not_meet():
    """Hulls that coincide, at sizes where no enumeration is possible."""

    def column(offset):
        dims = ((512, 4096), (2, 256))
        return AccessPattern(Memory.private_hbm, "bfloat16", offset, dims, tensor=0)

    assert not overlaps(column(0), column(2))
    assert overlaps(column(0), column(4))
    left = AccessPattern(Memory.private_hbm, "float32", 0, ((1024, 8192), (1, 512)), tensor=0)
    right = AccessPattern(Memory.private_hbm, "float32", 2048, ((1024, 8192), (1, 512)), tensor=0)
    assert not overlaps(left, right)
    wider = AccessPattern(Memory.private_hbm, "float32", 2044, ((1024, 8192), (1, 512)), tensor=0)
    assert overlaps(left, wider)
    sevens = AccessPattern(Memory.private_hbm, "uint8", 0, ((7, 9999),), tensor=0)
    elevens = AccessPattern(Memory.private_hbm, "uint8", 3, ((11, 9999),), tensor=0)
    assert overlaps(sevens, elevens)
