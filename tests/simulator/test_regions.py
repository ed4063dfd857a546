"""Numbers and views of regions: none is given twice, and freed ones come again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.checks.regions import CLEAN, DEAD, EMPTY, States


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
