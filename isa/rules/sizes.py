"""Rules on how many partitions, elements and dimensions the operands of an operation have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from isa.affine import bounds
from isa.rules.form import (
    OWN_PAGE,
    OperationCall,
    Rule,
    Violation,
    at_most,
    free_elements,
    is_tensor,
    largest,
    listed,
    partitions,
    plural,
    shape_text,
)


def _same(kind: str, names: Sequence[str], count: Callable[[Any], Any], unit: str) -> Rule:
    """A rule on tensors that were given: all have as many `unit`s by `count`."""

    def check(call: OperationCall) -> Violation | None:
        tensors = [(n, call.field(n)) for n in names if is_tensor(call.field(n))]
        first, reference = tensors[0]
        for name, tensor in tensors[1:]:
            if count(tensor) != count(reference):
                return Violation(
                    "shape-mismatch",
                    f"{first} has {count(reference)} {unit}, {name} has {count(tensor)} "
                    f"({shape_text(reference)} and {shape_text(tensor)})",
                    operand=name,
                )
        return None

    return Rule(kind, OWN_PAGE, check, f"{listed(names)} have the same {unit}.")


def same_partitions(*names: str) -> Rule:
    """The tensors that were given have the same number of partitions."""
    return _same("same_partitions", names, partitions, "partitions")


def same_row_elements(*names: str) -> Rule:
    """The tensors have the same number of elements in each partition."""
    return _same("same_row_elements", names, free_elements, "elements in each partition")


def partition_count(name: str, count: int) -> Rule:
    """The operand has this many partitions."""

    def check(call: OperationCall) -> Violation | None:
        tensor = call.field(name)
        if partitions(tensor) == count:
            return None
        return Violation(
            "shape-mismatch",
            f"{name} {shape_text(tensor)} has {partitions(tensor)} partitions, expected {count}",
            operand=name,
        )

    return Rule("partition_count", OWN_PAGE, check, f"{name} has {plural(count, 'partition')}.")


def row_elements_of(name: str, other: str, expected: Callable[[Any], Any], words: str) -> Rule:
    """The elements per partition follow from those of another operand: `expected`, in `words`."""

    def check(call: OperationCall) -> Violation | None:
        tensor, source = call.field(name), call.field(other)
        count = expected(free_elements(source))
        if free_elements(tensor) == count:
            return None
        return Violation(
            "shape-mismatch",
            f"{name} {shape_text(tensor)} has {free_elements(tensor)} elements per partition, "
            f"{other} {shape_text(source)} needs {count}",
            operand=name,
        )

    text = f"{name} has {words} {other}'s elements in each partition."
    return Rule("row_elements_of", OWN_PAGE, check, text)


def _row_elements(kind: str, name: str, fits: Callable[[Any], bool], expected: str) -> Rule:
    """A rule on the elements per partition of an operand that is given: `expected`, in words."""

    def check(call: OperationCall) -> Violation | None:
        tensor = call.field(name)
        if not is_tensor(tensor) or fits(free_elements(tensor)):
            return None
        return Violation(
            "shape-mismatch",
            f"{name} {shape_text(tensor)} has {free_elements(tensor)} elements in a partition, "
            f"expected {expected}",
            operand=name,
        )

    return Rule(kind, OWN_PAGE, check, f"{name} has {expected} elements a partition.")


def row_elements(name: str, count: int) -> Rule:
    """The operand, if it is given, has this many elements in each partition."""
    return _row_elements("row_elements", name, lambda n: bool(n == count), str(count))


def row_elements_multiple(name: str, factor: int) -> Rule:
    """The elements of a partition are a multiple of `factor`, and some."""

    def fits(count: Any) -> bool:
        return bool(count % factor == 0 and count != 0)

    return _row_elements("row_elements_multiple", name, fits, f"a multiple of {factor}")


def row_elements_between(name: str, low: int, high: int) -> Rule:
    """The operand has at least `low` and at most `high` elements in each partition."""

    def check(call: OperationCall) -> Violation | None:
        tensor = call.field(name)
        least, most = bounds(free_elements(tensor))
        if least is not None and most is not None and low <= least and most <= high:
            return None
        return Violation(
            "tile-limit",
            f"{name} {shape_text(tensor)} has {free_elements(tensor)} elements in a partition, "
            f"expected {low} to {high}",
            hint=f"Pad {name} to {low} elements with values that do not matter."
            if most is not None and most < low
            else "",
            operand=name,
        )

    text = f"{name} has {low} to {high} elements a partition."
    return Rule("row_elements_between", OWN_PAGE, check, text)


def dimensions_at_most(name: str, most: int) -> Rule:
    """The operand has at most `most` dimensions, the partition dimension included."""

    def check(call: OperationCall) -> Violation | None:
        tensor = call.field(name)
        if len(tensor.shape) <= most:
            return None
        return Violation(
            "view-not-allowed",
            f"{name} {shape_text(tensor)} has {len(tensor.shape)} dimensions, expected at most "
            f"{most}",
            hint="Join free dimensions with reshape or flatten_dims.",
            operand=name,
        )

    text = f"{name} has at most {most} dimensions."
    return Rule("dimensions_at_most", OWN_PAGE, check, text)


def row_elements_within(name: str, figure: str) -> Rule:
    """The elements of a partition are within a figure of the target (`isa.target.Target`)."""

    def check(call: OperationCall) -> Violation | None:
        tensor, limit = call.field(name), getattr(call.target, figure).value
        if at_most(free_elements(tensor), limit):
            return None
        return Violation(
            "tile-limit",
            f"{name} {shape_text(tensor)} has {largest(free_elements(tensor))} elements in a "
            f"partition, the limit is {limit}",
            operand=name,
        )

    text = f"{name} has at most the target's {figure} elements a partition."
    return Rule("row_elements_within", OWN_PAGE, check, text)
