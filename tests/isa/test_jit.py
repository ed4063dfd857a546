"""A walk gives the same as Python and compiled, and numba loads only for large ones."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.columns.jit import ColumnFunction, jit_when_long


@jit_when_long("order")
def _by_deadline(deadline, order):
    """Places in ascending order of deadlines, by repeated selection."""
    done = [False] * len(deadline)
    for place in range(len(deadline)):
        best = -1
        for at in range(len(deadline)):
            if not done[at] and (best < 0 or deadline[at] < deadline[best]):
                best = at
        done[best] = True
        order[place] = best
    return len(deadline)


@given(st.lists(st.integers(-9, 9), min_size=1, max_size=20))
def test_python_and_compiled_code_give_what_numpy_gives(values: list[int]) -> None:
    deadline = np.array(values, np.int64)
    for work in (0, _by_deadline.worth):
        order = np.zeros_like(deadline)
        assert _by_deadline(work, deadline, order) == deadline.size
        assert (order == np.argsort(deadline, kind="stable")).all()


def test_numba_loads_where_there_is_enough_to_do() -> None:
    code = """
import sys, numpy as np
from isa.columns.jit import ColumnFunction, jit_when_long
@jit_when_long("sums", worth=100)
def running(values, sums):
    total = 0
    for at in range(len(values)):
        total += values[at]
        sums[at] = total
for size in (99, 100):
    sums = np.zeros(size, np.int64)
    running(size, np.ones(size, np.int64), sums)
    print(sums[-1], "numba" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout.split() == ["99", "False", "100", "True"], result.stderr


def test_a_name_that_is_no_parameter_is_refused() -> None:
    def function(values: list[int]) -> None:
        values[0] = 1

    with pytest.raises(ValueError):
        ColumnFunction(function, ("other",), 1)
