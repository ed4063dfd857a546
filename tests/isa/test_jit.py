"""A walk gives the same as Python and compiled, and numba loads once a machine, for large ones."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.columns.jit import ColumnFunction, jit_when_long
from isa.columns.machine_code import walk_of


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


RUNNING = """
import sys, numpy as np
from isa.columns.jit import jit_when_long
FIRST = 0
@jit_when_long("sums", worth=300)
def running(values, sums):
    total = FIRST
    for at in range(len(values)):
        total += values[at]
        sums[at] = total
for size in (1, 299, 300):
    sums = np.zeros(size, np.int64)
    running(size, np.ones(size, np.int64), sums)
    print(sums[-1], *(name in sys.modules for name in ("llvmlite", "numba")))
"""


def running(cache: Path, code: str = RUNNING) -> list[str]:
    """What a process prints that walks three times, with a cache of its own."""
    command = [sys.executable, "-c", code]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert not result.returncode, result.stderr
    return result.stdout.splitlines()


def test_numba_loads_once_a_machine_where_there_is_enough_to_do(tmp_path: Path) -> None:
    """LLVM loads what is on disk: from the second walk on, as the first has little to do."""
    assert running(tmp_path) == ["1 False False", "299 True False", "300 True True"]
    assert running(tmp_path) == ["1 False False", "299 True False", "300 True False"]
    other = RUNNING.replace("FIRST = 0", "FIRST = 5")
    assert running(tmp_path, other) == ["6 False False", "304 True False", "305 True True"]


def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    running(tmp_path)
    (kept,) = (path for path in tmp_path.rglob("running_*"))
    kept.write_bytes(kept.read_bytes()[:-1])
    assert running(tmp_path)[-1] == "300 True True"


@given(
    st.lists(st.floats(allow_nan=False), max_size=3),
    st.integers(-(1 << 62), 1 << 62),
    st.floats(allow_nan=False),
    st.booleans(),
)
def test_machine_code_takes_and_gives_all_kinds_of_numbers(
    values: list[float], whole: int, part: float, flag: bool
) -> None:
    def taken(columns: Any, numbers: Any, flag: Any) -> Any:
        first, second = columns
        for row in range(len(second)):
            for at in range(len(first)):
                first[at] = -first[at]
                second[row][at] = 1 if flag else 2
        return numbers[0], numbers[1], len(first)

    column, square = np.array(values), np.zeros((3, len(values)), np.int8)
    columns = (column, square), (whole, part), flag
    walk = walk_of(taken, columns, compile_it=True)
    assert walk is not None and walk(*columns) == (whole, part, len(values))
    assert column.tolist() == [-value for value in values]
    assert (square == (1 if flag else 2)).all()


def test_an_error_of_a_walk_is_not_lost() -> None:
    def divided(values: Any) -> Any:
        return values[0] // values[1]

    columns = (np.array([7, 2]),)
    walk = walk_of(divided, columns, compile_it=True)
    assert walk is not None and walk(*columns) == 3
    with pytest.raises(RuntimeError, match="divided"):
        walk(np.array([7, 0]))
    with pytest.raises(ValueError, match="one behind the other"):
        walk(np.arange(4)[::2])


def test_a_name_that_is_no_parameter_is_refused() -> None:
    def function(values: list[int]) -> None:
        values[0] = 1

    with pytest.raises(ValueError):
        ColumnFunction(function, ("other",), 1)
