"""Parameters of which the default tier runs a part of the combinations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import pytest

MARK = "further"
"""Of cases that run with --all-cases only."""


def seeded(name: str, values: Iterable[Any], default: int) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize` by random cases, of which the default tier runs the first
    `default`, and --all-cases all."""
    marks = getattr(pytest.mark, MARK)
    cases = [
        value if number < default else pytest.param(value, marks=marks)
        for number, value in enumerate(values)
    ]
    return pytest.mark.parametrize(name, cases)


def combined(axes: Mapping[str, Iterable[Any]]) -> pytest.MarkDecorator:
    """`pytest.mark.parametrize` by every combination of the values of two axes or more: names, as
    there, to values.

    The default tier runs one in as many as the second longest axis has values, so that every value
    is in some combination, and most pairs of three axes are; --all-cases runs all of them. What
    is a case of its own kind is a test of its own, and no value of an axis.

    Of axes of 3 and 2 values:
        >>> mark = combined({"rows, columns": [(1, 1), (2, 5), (3, 7)], "turned": [False, True]})
        >>> [case.values for case in mark.args[1] if not case.marks]
        [(1, 1, False), (2, 5, True), (3, 7, False)]
    """
    lists = {name: list(values) for name, values in axes.items()}
    names = sorted(lists, key=lambda name: -len(lists[name]))
    second = len(lists[names[1]])
    cases = []
    for places in product(*(range(len(lists[name])) for name in names)):
        default = (places[0] - sum(places[1:])) % second == 0
        values: list[Any] = []
        for name, place in zip(names, places):
            value = lists[name][place]
            values += value if "," in name else [value]
        cases.append(pytest.param(*values, marks=() if default else getattr(pytest.mark, MARK)))
    return pytest.mark.parametrize(", ".join(names), cases)
