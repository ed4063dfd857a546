"""Which combinations of parameters the default tier runs."""

from __future__ import annotations

import doctest
from itertools import product
from typing import Any

import combinations
import pytest
from combinations import combined


@pytest.mark.parametrize("lengths", [(1, 1), (3, 4), (2, 2, 5), (4, 3, 4), (6, 1, 2, 3)])
def test_every_combination_is_a_case_and_every_value_is_in_the_default_tier(
    lengths: tuple[int, ...],
) -> None:
    axes = {f"axis{number}": range(length) for number, length in enumerate(lengths)}
    mark = combined(axes)
    names = mark.args[0].split(", ")
    order = [names.index(name) for name in axes]
    cases: list[tuple[Any, ...]] = [tuple(case.values[at] for at in order) for case in mark.args[1]]
    assert sorted(cases) == sorted(product(*axes.values()))
    default = [case for case, one in zip(cases, mark.args[1]) if not one.marks]
    for axis, length in enumerate(lengths):
        assert {case[axis] for case in default} == set(range(length))
    assert len(default) * sorted(lengths)[-2] == len(cases)


def test_the_example_runs() -> None:
    assert doctest.testmod(combinations).failed == 0


@combined({"size": [1, 2, 3], "turned": [False, True]})
def test_cases_that_are_left_out_are_left_out(
    size: int, turned: bool, request: pytest.FixtureRequest
) -> None:
    config = request.config
    named = any("[" in argument for argument in config.args)
    assert turned == (size == 2) or config.getoption("--all-cases") or named
