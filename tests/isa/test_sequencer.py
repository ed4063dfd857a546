"""What sequencers compute, against NumPy's integers of 32 bits and Python's ranges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.enums import Condition, RegisterOperation
from isa.machine import control
from isa.program import RegisterReference
from isa.sequencer import CONDITIONS, OPERATIONS, Registers, trips, wrapped

WORDS = st.integers(-(1 << 31), (1 << 31) - 1)
NUMPY = {
    RegisterOperation.add: np.add,
    RegisterOperation.subtract: np.subtract,
    RegisterOperation.multiply: np.multiply,
    RegisterOperation.minimum: np.minimum,
    RegisterOperation.maximum: np.maximum,
}
COMPARED = {
    Condition.eq: np.equal,
    Condition.ne: np.not_equal,
    Condition.lt: np.less,
    Condition.le: np.less_equal,
    Condition.gt: np.greater,
    Condition.ge: np.greater_equal,
}


@given(WORDS, WORDS)
def test_registers_are_integers_of_32_bits(left: int, right: int) -> None:
    assert set(OPERATIONS) == set(RegisterOperation) and set(CONDITIONS) == set(Condition)
    a, b = np.array([left], np.int32), np.array([right], np.int32)
    for operation, function in NUMPY.items():
        assert wrapped(OPERATIONS[operation](left, right)) == function(a, b)[0]
    for condition, function in COMPARED.items():
        assert CONDITIONS[condition](left, right) == function(a, b)[0]
    assert CONDITIONS[Condition.always](left, right)


@given(st.integers(-99, 99), st.integers(-99, 99), st.integers(1, 9))
def test_a_loop_has_the_rounds_of_a_range(first: int, last: int, step: int) -> None:
    assert trips(first, last, step) == len(range(first, last, step))


@pytest.mark.parametrize("condition", [Condition.always, Condition.lt])
def test_what_is_loaded_is_not_known_nor_what_follows_from_it(condition: Condition) -> None:
    registers, (one, two) = Registers(), map(RegisterReference, (1, 2))
    registers.follow(control.RegisterMove, (one, (1 << 31) + 5))
    assert registers.value(one) == 5 - (1 << 31)
    registers.follow(control.RegisterLoad, (one, None))
    registers.follow(control.RegisterAlu, (two, RegisterOperation.add, one, 1))
    assert registers.value(one) is None and registers.value(two) is None
    assert registers.holds(condition, two, 0) is (True if condition is Condition.always else None)
