"""Sweeps against a search of all offsets, and places that repeat where live ranges do."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matmul_kernels import blocked, hoisted, tiled

import nki
import nki.language as nl
import nki.passes.place.allocate as allocation
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.nodes import Tensor
from nki.passes.place.allocate import place, place_all
from nki.passes.place.live_ranges import Life
from nki.passes.place.sweep import OffsetSweep
from nki.pipeline import compile_kernel, optimise
from nki.verification import verify_program

TRN2 = TARGETS["trn2"]
CAPACITY = {
    Memory.sbuf: TRN2.sbuf_bytes_per_partition.value,
    Memory.psum: TRN2.psum_bytes_per_partition.value,
}


def life(first, last, size, memory=Memory.sbuf, address=None):
    return Life(Tensor(0, "t", memory, "uint8", (128, size), address=address), first, last)


def by_trying(moving, fixed, capacity, bank, rotate, begins=()):
    """The offsets of a sweep, found by trying all; None where something does not fit."""
    offsets, cursor = [], 0
    for number, one in enumerate(moving):
        if number in begins:
            cursor = 0
        taken = [(at, at + x.size) for x, at in zip(moving, offsets) if x.last >= one.first]
        for x in fixed:
            if x.first <= one.last and one.first <= x.last:
                taken.append((x.address[1], x.address[1] + x.size))

        def free(at, size=one.size, taken=taken):
            inside = not bank or at % bank == 0 or at % bank + size <= bank
            return inside and all(at + size <= low or high <= at for low, high in taken)

        found = None
        for unit in (bank, 16) if bank and rotate else (16,):
            tried = range(0, capacity - one.size + 1, unit)
            later = [at for at in tried if rotate and at >= cursor]
            found = next(filter(free, [*later, *tried]), None)
            if found is not None:
                break
        if found is None:
            return None
        offsets.append(found)
        cursor = found + one.size
    return offsets


rows = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(1, 90)), max_size=12)
"""Of live ranges: the distance from the one before, how long they last, bytes."""


def listed(*parts):
    """Live ranges, each beginning a distance after the one before."""
    at, result = 1, []
    for apart, long, size in [row for part in parts for row in part]:
        at += apart
        result.append(life(at, at + long, size))
    return result


@given(
    rows,
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(0, 15)), max_size=2),
    st.sampled_from([(256, 0), (256, 64), (160, 32)]),
    st.booleans(),
)
def test_a_sweep_takes_the_first_free_offset(all_rows, blocks, memory, rotate):
    moving = listed(all_rows)
    capacity, bank = memory
    fixed = [life(at, at + long, 16, address=(0, 10 * low)) for at, long, low in blocks]
    sweep = OffsetSweep(moving, fixed, capacity, bank, rotate)
    failed = sweep.run()
    expected = by_trying(moving, fixed, capacity, bank, rotate)
    assert (sweep.offsets if failed is None else None) == expected


@given(
    rows,
    rows.filter(len),
    rows,
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(0, 30),
    st.sampled_from([(512, 0), (512, 64), (224, 0)]),
)
def test_rounds_that_are_copied_are_those_of_the_whole_sweep(
    before, body, after, size, count, rest, memory
):
    # `size` times round the loop are a round, and the last round may be shorter than the others
    rest %= size * len(body)
    repeated = body * (size * count + size)
    repeated = repeated[: size * count * len(body) + rest]
    moving = listed(before, repeated, after)
    begin, stop = len(before), len(before) + len(repeated)
    sweep = OffsetSweep(moving, [], *memory, rotate=True)
    failed = sweep.run(begin) or sweep.rounds(size * len(body), len(repeated)) or sweep.run()
    begins = range(begin, stop, size * len(body))
    expected = by_trying(moving, [], *memory, True, begins)
    assert (sweep.offsets if failed is None else None) == expected


def test_rounds_are_copied(monkeypatch):
    copied = []
    copy = OffsetSweep._copy
    monkeypatch.setattr(
        OffsetSweep,
        "_copy",
        lambda self, apart, *rest: copied.append(apart) or copy(self, apart, *rest),
    )
    kept = life(0, 10_000, 100)
    moving = [kept, *listed([(1, 2, 48), (1, 3, 96)] * 300)]
    sweep = OffsetSweep(moving, [], 512, 0, rotate=True)
    assert sweep.run(1) is None
    assert sweep.rounds(10, 600) is None
    assert copied == [10]
    assert sweep.offsets == by_trying(moving, [], 512, 0, True, range(1, 601, 10))


allocations = st.tuples(
    st.sampled_from(list(CAPACITY)), st.integers(0, 3), st.integers(0, 12), st.integers(1, 60)
)
"""(memory, distance from the one before, how long they last, thousandths of the memory)."""

inner_loops = st.tuples(st.integers(1, 20), st.lists(allocations, min_size=1, max_size=3))
nests = st.tuples(st.just(1), st.lists(allocations | inner_loops, min_size=1, max_size=4))
"""Allocations, and loops of them with how often they run."""


def unrolled(nest):
    if len(nest) == 4:
        return [nest]
    times, inner = nest
    return [one for part in inner for one in unrolled(part)] * times


def lives_of(allocations, begin=1):
    at, result = begin, {memory: [] for memory in CAPACITY}
    for memory, apart, long, share in allocations:
        at += apart
        result[memory].append(life(at, at + long, share * CAPACITY[memory] // 1024, memory))
    return result


def assert_apart(lives, placed):
    """No two live ranges that overlap in time share bytes, and none leaves the memory."""
    for memory, own in lives.items():
        live = []
        for one in sorted(own, key=lambda x: x.first):
            low = placed[one.tensor][1]
            assert 0 <= low <= CAPACITY[memory] - one.size
            live = [x for x in live if x[2] >= one.first]
            assert all(low + one.size <= x[0] or x[1] <= low for x in live)
            live.append((low, low + one.size, one.last))


def places_repeat(own, placed, size):
    """Whether the places of the second half come again, after a quarter of all live ranges at the
    latest; the last `size` do not count."""
    at = np.array([placed[one.tensor][1] for one in own])[len(own) // 2 : -size]
    return any((at[apart:] == at[:-apart]).all() for apart in range(1, len(own) // 4 + 1))


@settings(max_examples=30, deadline=None)
@given(nests, nests, st.integers(30, 40))
def test_nests_of_loops_are_placed_apart_and_repeat(before, nest, times):
    body = unrolled(nest)
    begun = unrolled(before)
    lives = lives_of([*begun, *body * times])
    try:
        alone = {memory: place(own, memory, TRN2) for memory, own in lives.items()}
        with patch.object(allocation, "_MANY", 0):
            placed = place_all(lives, TRN2)
    except allocation.NeuronError:
        return
    assert_apart(lives, placed)
    if all(alone[memory].items() <= placed.items() for memory in lives):
        return
    for memory, own in lives.items():
        size = sum(one[0] is memory for one in body)
        if size:
            assert places_repeat(own[-size * times :], placed, size)


@pytest.mark.parametrize("fixed", [(), ((0, 10_000),), ((40, 120), (150, 200))])
def test_where_a_rotation_wraps_at_ever_other_places_it_begins_anew(fixed):
    body = [(Memory.sbuf, 1, 3, 3), (Memory.sbuf, 1, 3, 7)] * 20
    body += [(Memory.sbuf, 1, 3, 11), (Memory.psum, 1, 2, 128)]
    times, size = 60, len(body) - 1
    lives = lives_of(body * times)
    tiles = list(lives[Memory.sbuf])
    lives[Memory.sbuf] += [life(*span, 1_000, address=(0, 5_000)) for span in fixed]
    alone = {memory: place(own, memory, TRN2) for memory, own in lives.items()}
    placed = place_all(lives, TRN2)
    assert_apart(lives, placed)
    assert not places_repeat(tiles, alone[Memory.sbuf], size)
    assert places_repeat(tiles, placed, size)


def traced(kernel, m, k, n, dtype=nl.bfloat16):
    return kernel.trace(nki.TensorSpec((k, m), dtype), nki.TensorSpec((k, n), dtype), target="trn2")


@pytest.mark.parametrize(
    ("kernel", "m", "k", "n"), [(hoisted, 1024, 1024, 2048), (blocked, 2048, 1024, 2048)]
)
def test_rotations_that_repeat_by_themselves_stay(monkeypatch, kernel, m, k, n):
    placed = optimise(traced(kernel, m, k, n)).placement
    assert len(placed) > allocation._MANY
    monkeypatch.setattr(allocation, "_MANY", len(placed) + 1)
    alone = optimise(traced(kernel, m, k, n)).placement
    assert list(placed.values()) == list(alone.values())


def test_programs_whose_places_repeat_have_no_races():
    forms = {}
    verify_program(compile_kernel(traced(tiled, 1024, 2048, 2048), forms.__setitem__))
    placement = forms["allocate"].placement
    at = [where[1] for tensor, where in placement.items() if tensor.memory is Memory.sbuf]
    size = 2 * 2048 // 128 + 1
    assert any(at[300 + n * size : -size] == at[300 : -(n + 1) * size] for n in range(1, 11))
