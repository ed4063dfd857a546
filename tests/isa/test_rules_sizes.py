"""Rules on counts of partitions, elements and dimensions, on operands of given shapes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from isa.affine import Symbol, polynomial
from isa.rules import sizes
from isa.rules.form import OperationCall, Rule
from isa.target import TARGETS

ROWS = polynomial(Symbol("rows", 600, minimum=1))


def tensor(*shape: Any) -> SimpleNamespace:
    return SimpleNamespace(shape=shape, storage="a tensor")


def found(rule: Rule, **operands: Any) -> tuple[str, str | None] | None:
    """The code of what the rule finds, and the operand that it points at."""
    call = OperationCall(tuple(operands), tuple(operands.values()), TARGETS["trn2"])
    violation = rule.check(call)
    return violation and (violation.code, violation.operand)


@pytest.mark.parametrize(
    ("rule", "right", "wrong", "code"),
    [
        (sizes.partition_count("a", 1), (1, 9), (2, 9), "shape-mismatch"),
        (sizes.row_elements("a", 6), (5, 2, 3), (6, 1), "shape-mismatch"),
        (sizes.row_elements_multiple("a", 3), (2, 6), (2, 8), "shape-mismatch"),
        (sizes.row_elements_multiple("a", 3), (2, 3), (2, 0), "shape-mismatch"),
        (sizes.row_elements_between("a", 8, 16), (2, 8), (2, 7), "tile-limit"),
        (sizes.row_elements_between("a", 8, 16), (2, 4, 4), (2, 17), "tile-limit"),
        (sizes.dimensions_at_most("a", 3), (2, 5, 5), (2, 5, 5, 1), "view-not-allowed"),
        # The documents give bn_stats 512 elements a partition.
        (sizes.row_elements_within("a", "batch_norm_free_max"), (9, 512), (9, 513), "tile-limit"),
    ],
)
def test_one_operand(rule: Rule, right: Any, wrong: Any, code: str) -> None:
    assert found(rule, a=tensor(*right)) is None
    assert found(rule, a=tensor(*wrong)) == (code, "a")


def test_sizes_that_symbols_decide_are_right_for_every_value() -> None:
    within = sizes.row_elements_within("a", "batch_norm_free_max")
    assert found(within, a=tensor(4, ROWS)) == ("tile-limit", "a")  # up to 600
    between = sizes.row_elements_between("a", 1, 600)
    assert found(between, a=tensor(4, ROWS)) is None
    assert found(sizes.row_elements_between("a", 2, 600), a=tensor(4, ROWS)) is not None


def test_several_operands_point_at_the_one_that_differs() -> None:
    rule = sizes.same_partitions("a", "b", "c")
    assert found(rule, a=tensor(4, 2), b=None, c=tensor(4, 9)) is None
    assert found(rule, a=tensor(4, 2), b=tensor(4, 3), c=tensor(3, 2)) == ("shape-mismatch", "c")
    rule = sizes.same_row_elements("a", "b")
    assert found(rule, a=tensor(1, 6), b=tensor(7, 2, 3)) is None
    assert found(rule, a=tensor(7, 6), b=tensor(7, 5)) == ("shape-mismatch", "b")


def test_elements_may_follow_from_those_of_another_operand() -> None:
    rule = sizes.row_elements_of("a", "b", lambda count: count + 1, "one more than")
    assert found(rule, a=tensor(2, 7), b=tensor(9, 3, 2)) is None
    assert found(rule, a=tensor(2, 6), b=tensor(9, 3, 2)) == ("shape-mismatch", "a")
    assert rule.text == "a has one more than b's elements in each partition."


def test_an_operand_that_is_left_out_has_no_size() -> None:
    assert found(sizes.row_elements("a", 8), a=None) is None
