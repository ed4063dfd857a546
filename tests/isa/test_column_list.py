"""A list that is in columns until somebody looks: it is the list of its items, whatever is done."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.columns.column_list import ColumnList


class Squares(NamedTuple):
    order: Any


def squares(numbers: list[int], looked: list[int]) -> ColumnList[int, Squares]:
    def expand(columns: Squares) -> list[int]:
        looked.append(1)
        return [int(number) ** 2 for number in columns.order]

    return ColumnList(Squares(np.array(numbers, np.int64)), expand)


CHANGES = st.lists(
    st.tuples(st.sampled_from(["insert", "set", "delete", "append"]), st.integers(-9, 9)),
    max_size=8,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-50, 50), max_size=8), CHANGES)
def test_changes_are_those_of_a_list(numbers: list[int], changes: list[tuple[str, int]]) -> None:
    mine: Any = squares(numbers, [])
    plain = [number**2 for number in numbers]
    for change, place in changes:
        for items in (mine, plain):
            if change == "insert":
                items.insert(place, 7)
            elif change == "append":
                items.append(place)
            elif -len(items) <= place < len(items):
                if change == "set":
                    items[place] = 8
                else:
                    del items[place]
        assert len(mine) == len(plain) and list(mine) == plain
    assert mine == plain and mine[::-1] == plain[::-1] and repr(mine) == repr(plain)


def test_columns_stay_until_an_item_is_asked_for() -> None:
    looked: list[int] = []
    items = squares([1, 2, 3], looked)
    assert len(items) == 3 and items.columns is not None and not looked
    assert items[1] == 4 and items.columns is None
    assert list(items) == [1, 4, 9] and looked == [1]
