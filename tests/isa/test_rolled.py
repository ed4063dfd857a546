"""Folding the repeats of sequences: nothing is lost, and what loops made becomes loops again."""

from __future__ import annotations

import json
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isa.columns.rolled import (
    LIMIT,
    Repeat,
    as_json,
    expand,
    expand_columns,
    from_json,
    roll,
    roll_rows,
    rows_from_json,
)

QUICK = settings(deadline=None, max_examples=60)
WORDS = st.integers(-(2**63), 2**63 - 1)


@st.composite
def loops(draw, depth: int = 3) -> list[int]:
    """What a nest of loops computes: bodies that grow by a constant in every round."""
    if not depth or draw(st.booleans()):
        return draw(st.lists(st.integers(-9, 9) | WORDS, min_size=1, max_size=4))
    body = draw(loops(depth - 1))
    step = draw(st.integers(-5, 5))
    rolled = [value + step * i for i in range(draw(st.integers(1, 6))) for value in body]
    return [*draw(loops(depth - 1)), *rolled, *draw(loops(depth - 1))]


@QUICK
@given(
    st.one_of(
        st.lists(WORDS, max_size=40),
        st.lists(st.integers(0, 2), max_size=400),
        loops().map(lambda values: [v for v in values if -(2**63) <= v < 2**63]),
    )
)
def test_expanding_gives_the_sequence_again(values):
    items = roll(values)
    assert expand(items).tolist() == values
    assert from_json(json.loads(json.dumps(as_json(items)))) == items


@QUICK
@given(st.lists(st.integers(0, 2), max_size=200) | loops(), st.booleans())
def test_no_repeat_is_missed_by_looking_for_keys_that_come_again(values, steps):
    values = [value for value in values if -(2**63) <= value < 2**63]
    with patch("isa.columns.rolled._comes_again", lambda keys, period: True):
        expected = roll(values, steps)
    assert roll(values, steps) == expected


@QUICK
@given(st.lists(st.integers(0, 3), max_size=60))
def test_names_repeat_unchanged_only(values):
    def steps(items):
        for item in items:
            if isinstance(item, Repeat):
                yield item.step
                yield from steps(item.items)

    items = roll(values, steps=False)
    assert expand(items).tolist() == values
    assert set(steps(items)) <= {0}


def _python(items):
    """Repeats expanded one by one."""
    for item in items:
        if isinstance(item, Repeat):
            for round_ in range(item.times):
                yield from (value + item.step * round_ for value in _python(item.items))
        else:
            yield item


@QUICK
@given(st.lists(st.integers(0, 3), max_size=60))
def test_a_repeat_means_its_items_again_and_again(values):
    assert list(_python(roll(values))) == values


def test_a_nest_of_loops_becomes_a_nest_of_repeats():
    values = [
        1_000_000 * m + 5000 * n + 64 * k + place
        for m in range(32)
        for n in range(16)
        for k in range(64)
        for place in (0, 7)
    ]
    inner = Repeat(64, 64, (0, 7))
    assert roll(values) == [Repeat(32, 1_000_000, (Repeat(16, 5000, (inner,)),))]


def test_long_bodies_are_found():
    """A period of 1,500, whose numbers have no pattern and come several times in a body."""
    body = Random(1).choices(range(100), k=1500)
    values = [value + 3 * i for i in range(20) for value in body]
    (repeat,) = roll(values)
    assert (repeat.times, repeat.step) == (20, 3)


def test_an_interruption_costs_little():
    values = [8 * i for i in range(10_000)]
    values[5_000] = 1
    assert len(json.dumps(as_json(roll(values)))) < 60


@pytest.mark.parametrize(
    "rows",
    [1, None, {"a": 1}, [None], [1.5], ["1"], [[2]], [[2, 0]], [[1, 0, 5]], [[2, 0.5, 5]], [True]],
)
def test_other_json_is_refused(rows):
    with pytest.raises((ValueError, TypeError)):
        from_json(rows)


def test_what_would_fill_the_memory_is_refused():
    with pytest.raises(ValueError, match="more than"):
        expand([Repeat(LIMIT, 0, (Repeat(LIMIT, 1, (0, 1)),))])


@QUICK
@given(st.lists(st.tuples(st.integers(0, 3), WORDS, st.integers(0, 5)), max_size=60))
def test_rows_come_back(rows):
    keys: dict[int, int] = {}
    order = [keys.setdefault(key, len(keys)) for key, _, _ in rows]
    numbers = [[(a, b) for o, (_, a, b) in zip(order, rows) if o == key] for key in keys.values()]
    rolled = rows_from_json(json.loads(json.dumps(roll_rows(order, numbers).as_json())))
    again, tables = expand_columns(rolled)
    assert again.tolist() == order
    assert [list(map(tuple, table.tolist())) for table in tables] == numbers


@pytest.mark.parametrize(
    "value",
    [
        [[0, 1], [[[5]]]],
        [[1, 0], [[[5]], [[6]]]],
        [[0], [[[5]], []]],
        [[0, 0], [[[5]]]],
        [[0], [[[5, 6]]]],
    ],
)
def test_rows_that_do_not_fit_are_refused(value):
    with pytest.raises(ValueError, match="rows"):
        expand_columns(rows_from_json(value))
