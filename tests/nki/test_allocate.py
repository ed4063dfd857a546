"""Allocation: tensors that live together never share bytes, whatever fits in order is placed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.enums import Memory
from isa.errors import NeuronError
from isa.target import TARGETS
from nki.ir.nodes import Tensor
from nki.passes.allocate import Life, place

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
        position = {x.tensor.name: x.first for x in all_lives}[error.what.split()[0]]
        live = sum(x.size + 15 for x in all_lives if x.first <= position <= x.last)
        # Refused only when the live set fills the memory, but for gaps between live tensors.
        assert live > capacity / 4
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


def test_overflow_names_what_is_live():
    all_lives = [life(i, 0, 9, 100_000) for i in range(3)]
    with pytest.raises(NeuronError) as error:
        place(all_lives, Memory.sbuf, TRN2)
    assert error.value.code == "sbuf-overflow"
    assert "300000 of 229376" in error.value.what
    assert sum("t0" in note or "t1" in note for note in error.value.notes) == 2
