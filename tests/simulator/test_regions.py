"""Numbers and views of regions: none is given twice, and freed ones come again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.checks.marks import Space
from simulator.checks.regions import (
    CLEAN,
    DEAD,
    EMPTY,
    INITIALISED,
    MIXED,
    TAINTED,
    States,
)


@given(st.lists(st.integers(0, 9) | st.just("add"), max_size=40))
def test_numbers_are_those_of_regions_that_live(steps: list[int | str]) -> None:
    table, living = States(), {}
    for step in steps:
        if step == "add":
            number = table.add(EMPTY)
            assert number not in living and number != 0
            living[number] = EMPTY
        elif isinstance(step, int) and step < len(living):
            number = list(living)[step]
            table.give_back(number)
            del living[number]
            assert table.states[number] == DEAD
    assert {n for n in range(table.count) if table.states[n] == EMPTY} == set(living)


def test_the_table_grows() -> None:
    table = States()
    numbers = [table.add(CLEAN) for _ in range(600)]
    assert numbers == list(range(1, 601))
    assert len(table.fills) == len(table.states) >= 601
    assert bytes(table.states[:601]) == bytes([DEAD] + [CLEAN] * 600)


def test_a_view_that_is_to_be_filled_is_asked_for_once() -> None:
    table, memory = States(), np.zeros((4, 8), np.float32)
    number, view = table.add(EMPTY), table.view(memory[:2])
    assert table.view(memory[:2]) == view != table.view(memory[2:])
    table.fills[number] = view
    filled = table.to_fill(number)
    assert filled is not None and np.shares_memory(filled, memory) and filled.shape == (2, 8)
    assert table.to_fill(number) is None


@given(
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 29), st.integers(1, 12), st.booleans()), max_size=30),
)
def test_a_region_is_clean_when_the_last_of_its_units_is_written(
    native: bool, writes: list[tuple[int, int, bool]]
) -> None:
    """Values and uninitialised data in any order, some of them written behind Python's back."""
    table, buffer = States(), np.zeros(30, np.uint8)
    table.native = native
    space = Space(buffer, table=table)
    region = space.whole
    assert region is not None
    written = np.zeros(30, bool)
    for first, count, value in writes:
        region.spell_out()
        part = slice(first, first + count)
        region.marks()[:, part] = INITIALISED if value else TAINTED
        written[part] = value
        region.settle()
        assert region.state == (CLEAN if written.all() else MIXED)
