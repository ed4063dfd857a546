"""Allocations in columns: the records that they stand for, and what happens when these change."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from isa.program import OnChipAllocation
from isa.storages import Storages, in_columns

NAMES = st.sampled_from(["tile", "tile.", "t00", "0", ""])
NUMBERS = st.sampled_from(["", "0", "7", "12", "10000000000000000", "99999999999999999"])
RECORDS = st.builds(
    OnChipAllocation,
    st.tuples(NAMES, NUMBERS).map("".join),
    memory=st.sampled_from(["sbuf", "psum"]),
    dtype=st.sampled_from(["float32", "bfloat16"]),
    shape=st.sampled_from([(128, 4), (64, 2, 2)]),
    start_partition=st.sampled_from([0, 32]),
    partitions=st.just(128),
    offset=st.integers(0, 200_000),
    bytes_per_partition=st.sampled_from([8, 16]),
    location=st.integers(0, 3),
)


def tiles(*names: str) -> list[OnChipAllocation]:
    return [
        OnChipAllocation(name, "sbuf", "float32", (128, 4), 0, 128, 64 * number, 16, 1)
        for number, name in enumerate(names)
    ]


@settings(deadline=None, max_examples=100)
@given(st.lists(RECORDS, max_size=20))
def test_allocations_are_their_records(records):
    storages = Storages(in_columns(records))
    assert len(storages) == len(records) == in_columns(storages).order.size
    assert storages == records == storages


def test_what_is_the_same_but_for_offset_and_number_has_one_form():
    columns = in_columns(tiles("tile", "tile.1", "sum", "tile.2"))
    assert [form.stem for form in columns.forms] == ["tile", "tile.", "sum"]
    assert columns.order.tolist() == [0, 1, 2, 1]
    assert [rows.tolist() for rows in columns.numbers] == [
        [[-1, 0]],
        [[1, 64], [2, 192]],
        [[-1, 128]],
    ]


def test_allocations_change_as_a_list_does():
    storages, listed = Storages(in_columns(tiles("a", "b1", "b2"))), tiles("a", "b1", "b2")
    other = replace(listed[0], name="c")
    for sequence in (storages, listed):
        sequence[1].offset = 8
        sequence.append(other)
        del sequence[0]
    assert storages == listed
    assert in_columns(storages).order.size == 3
