"""Allocation: tensors that live together never share bytes, whatever fits in order is placed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.enums import Memory
from isa.errors import NeuronError
from isa.target import TARGETS
from nki.ir.nodes import Tensor
from nki.passes.place.allocate import place
from nki.passes.place.live_ranges import Life
from nki.passes.place.packing import largest_first, solve

TRN2 = TARGETS["trn2"]


def life(number, first, last, free, memory=Memory.sbuf, address=None, dtype="uint8"):
    tensor = Tensor(number, f"t{number}", memory, dtype, (128, free), address=address)
    return Life(tensor, first, last)


def share(one, other, placed):
    (p0, b0), (p1, b1) = placed[one.tensor], placed[other.tensor]
    together = one.first <= other.last and other.first <= one.last
    return together and b0 < b1 + other.size and b1 < b0 + one.size and p0 < 128 and p1 < 128


lives = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(1, 40_000)), max_size=24
)


@settings(max_examples=150, deadline=None)
@given(lives)
def test_tensors_that_live_together_do_not_share_bytes(rows):
    all_lives = [life(i, first, first + n, size) for i, (first, n, size) in enumerate(rows)]
    capacity = TRN2.sbuf_bytes_per_partition.value
    try:
        placed = place(all_lives, Memory.sbuf, TRN2)
    except NeuronError as error:
        assert error.code == "sbuf-overflow"
        most = max(
            sum(x.size + 15 for x in all_lives if x.first <= at <= x.last) for at in range(53)
        )
        assert most > capacity or "no free bytes in one piece" in error.notes[-1]
        return
    for index, one in enumerate(all_lives):
        assert 0 <= placed[one.tensor][1] <= capacity - one.size
        assert not any(share(one, other, placed) for other in all_lives[index + 1 :])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 3), st.integers(1, 512)), max_size=8))
def test_psum_tiles_do_not_cross_banks(rows):
    all_lives = [
        life(i, first, first + n, size, Memory.psum, dtype="float32")
        for i, (first, n, size) in enumerate(rows)
    ]
    placed = place(all_lives, Memory.psum, TRN2)
    bank = TRN2.psum_bank_bytes.value
    for one in all_lives:
        offset = placed[one.tensor][1]
        assert offset // bank == (offset + one.size - 1) // bank


def test_space_is_taken_round_robin():
    all_lives = [life(i, 2 * i, 2 * i + 1, 1024) for i in range(8)]
    placed = place(all_lives, Memory.sbuf, TRN2)
    assert [placed[x.tensor][1] for x in all_lives] == [1024 * i for i in range(8)]


def test_a_fixed_address_keeps_others_away_only_while_it_is_used():
    fixed = life(0, 0, 3, 4096, address=(0, 0))
    during, after = life(1, 2, 3, 64), life(2, 4, 5, 229_376)
    placed = place([fixed, during, after], Memory.sbuf, TRN2)
    assert placed[fixed.tensor] == (0, 0)
    assert placed[during.tensor][1] >= 4096
    assert placed[after.tensor][1] == 0


def test_two_fixed_addresses_that_overlap_in_use_are_refused():
    one, other = life(0, 0, 3, 4096, address=(0, 0)), life(1, 3, 5, 64, address=(0, 4000))
    with pytest.raises(NeuronError) as error:
        place([one, other], Memory.sbuf, TRN2)
    assert error.value.code == "address-overlap"


spans = st.tuples(st.integers(0, 9), st.integers(1, 6))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(spans, spans, spans), max_size=8))
def test_fixed_addresses_are_refused_where_a_byte_is_used_twice_at_once(rows):
    fixed = []
    for number, ((top, height), (low, size), (first, length)) in enumerate(rows):
        shape, place_of = (height, size), (top, low)
        tensor = Tensor(number, f"t{number}", Memory.sbuf, "uint8", shape, address=place_of)
        fixed.append(Life(tensor, first, first + length - 1))
    used = np.zeros((16, 16, 16), np.int64)
    for (top, height), (low, size), (first, length) in rows:
        used[top : top + height, low : low + size, first : first + length] += 1
    if used.max() <= 1:
        assert len(place(fixed, Memory.sbuf, TRN2)) == len(fixed)
        return
    with pytest.raises(NeuronError) as error:
        place(fixed, Memory.sbuf, TRN2)
    assert error.value.code == "address-overlap"


def test_overflow_names_what_is_live():
    all_lives = [life(i, 0, 9, 100_000) for i in range(3)]
    with pytest.raises(NeuronError) as error:
        place(all_lives, Memory.sbuf, TRN2)
    assert error.value.code == "sbuf-overflow"
    assert "300000 of 229376" in error.value.what
    assert sum("t0" in note or "t1" in note for note in error.value.notes) == 2


UNIT = TRN2.sbuf_bytes_per_partition.value // 16


def holes(*rows):
    """Live ranges from (first, last, sixteenths of SBUF)."""
    return [life(i, first, last, UNIT * size) for i, (first, last, size) in enumerate(rows)]


def test_what_a_sweep_fragments_is_placed_largest_first():
    # Lowest gap first puts the long thin ones between the short wide ones, which then leave holes.
    rows = [(0, 1, 4), (0, 9, 1), (0, 1, 4), (0, 9, 1), (0, 1, 4), (0, 9, 1), (2, 9, 13)]
    all_lives = holes(*rows)
    placed = place(all_lives, Memory.sbuf, TRN2)
    for index, one in enumerate(all_lives):
        assert not any(share(one, other, placed) for other in all_lives[index + 1 :])


PUZZLE = [(4, 7, 6), (7, 9, 6), (6, 6, 4), (5, 5, 5), (1, 4, 7), (7, 9, 4)]
"""Fits, but not in any of the greedy orders."""


def test_what_no_greedy_order_places_is_searched_for():
    pytest.importorskip("ortools", reason="needs opennki[solver]")
    all_lives = holes(*PUZZLE)
    placed = place(all_lives, Memory.sbuf, TRN2)
    for index, one in enumerate(all_lives):
        assert not any(share(one, other, placed) for other in all_lives[index + 1 :])
    assert placed == place(all_lives, Memory.sbuf, TRN2)


def test_without_the_solver_the_error_names_it(monkeypatch):
    monkeypatch.setattr("nki.passes.place.allocate.solver_is_installed", lambda: False)
    with pytest.raises(NeuronError) as caught:
        place(holes(*PUZZLE), Memory.sbuf, TRN2)
    assert caught.value.code == "sbuf-overflow" and "opennki[solver]" in caught.value.hint
    assert "no free bytes in one piece" in caught.value.notes[-1]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(1, 9)), max_size=5),
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, 12)), max_size=3),
)
def test_the_search_keeps_clear_of_fixed_addresses(rows, blocks):
    pytest.importorskip("ortools", reason="needs opennki[solver]")
    moving = holes(*((first, first + n, size) for first, n, size in rows))
    fixed = [
        life(100 + i, first, first + n, 3 * UNIT, address=(0, at * UNIT))
        for i, (first, n, at) in enumerate(blocks)
    ]
    capacity = TRN2.sbuf_bytes_per_partition.value
    found = solve(moving, fixed, capacity, 0, 16)
    greedy = largest_first(moving, fixed, capacity, 0, 16)
    assert found is not None or greedy is None
    if found is not None:
        placed = {x.tensor: (0, offset) for x, offset in found.items()}
        placed |= {x.tensor: x.address for x in fixed}
        for index, one in enumerate(moving):
            assert 0 <= found[one] <= capacity - one.size
            assert not any(share(one, x, placed) for x in (*moving[index + 1 :], *fixed))


def test_the_search_keeps_psum_tiles_inside_banks():
    pytest.importorskip("ortools", reason="needs opennki[solver]")
    tiles = [life(i, 0, 1, 300, Memory.psum, dtype="float32") for i in range(8)]
    bank, capacity = TRN2.psum_bank_bytes.value, TRN2.psum_bytes_per_partition.value
    found = solve(tiles, [], capacity, bank, 16)
    assert sorted(offset // bank for offset in found.values()) == list(range(8))
    assert all(offset % bank + 1200 <= bank for offset in found.values())


@pytest.mark.parametrize(("count", "fits"), [(4, True), (5, False)])
def test_the_search_starts_psum_tiles_of_several_banks_at_a_bank(count, fits):
    """Where a result could cross a bank is known from its place in its tensor."""
    pytest.importorskip("ortools", reason="needs opennki[solver]")
    tiles = [life(i, 0, 1, 768, Memory.psum, dtype="float32") for i in range(count)]
    bank, capacity = TRN2.psum_bank_bytes.value, TRN2.psum_bytes_per_partition.value
    found = solve(tiles, [], capacity, bank, 16)
    assert (found is not None) is fits
    assert found is None or all(offset % bank == 0 for offset in found.values())
