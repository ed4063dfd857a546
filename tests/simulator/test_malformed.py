"""Programs that no compiler wrote end with an error of the catalogue."""

from __future__ import annotations

import pytest

from isa.errors import NeuronError
from simulator.malformed import refuses_malformed


@refuses_malformed
def execute(problem: Exception | None, result: int) -> int:
    """Runs a program."""
    if problem is not None:
        raise problem
    return result


def test_what_works_is_left_alone() -> None:
    assert execute(None, 7) == 7
    assert (execute.__name__, execute.__doc__) == ("execute", "Runs a program.")


@pytest.mark.parametrize("problem", [IndexError("5"), KeyError("x"), TypeError(), AssertionError()])
def test_values_that_do_not_fit_are_an_error_with_its_cause(problem: Exception) -> None:
    with pytest.raises(NeuronError) as caught:
        execute(problem, 0)
    assert caught.value.code == "program-malformed" and type(problem).__name__ in caught.value.what
    assert caught.value.__cause__ is problem


def test_errors_of_the_catalogue_and_of_the_user_come_through() -> None:
    for problem in (NeuronError("deadlock", "x"), ZeroDivisionError(), KeyboardInterrupt()):
        with pytest.raises(type(problem)) as caught:
            execute(problem, 0)
        assert caught.value is problem


def test_memory_that_is_not_there_is_no_defect() -> None:
    with pytest.raises(NeuronError, match="more memory than this machine has"):
        execute(MemoryError(), 0)
