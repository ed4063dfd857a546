"""What rules ask of operands, and how messages show them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from isa.affine import Symbol, polynomial
from isa.rules import form
from isa.target import TARGETS

SIZE = polynomial(Symbol("M", 512, multiple_of=128))


def access(shape: tuple[Any, ...], strides: tuple[Any, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(shape=shape, strides=strides, storage=SimpleNamespace(name="x"))


@pytest.mark.parametrize("value", [0, -1.5, np.float32(2), np.int64(3)])
def test_numbers(value: Any) -> None:
    assert form.is_number(value) and not form.is_tensor(value)


@pytest.mark.parametrize("value", [None, "1", np.zeros(2), [1]])
def test_what_is_no_number(value: Any) -> None:
    assert not form.is_number(value)


@pytest.mark.parametrize(
    ("value", "fits"),
    [(2**63 - 1, True), (2**63, False), (-(2**63), True), (-(2**63) - 1, False), (1e30, True)],
)
def test_instructions_hold_integers_of_64_bits(value: Any, fits: bool) -> None:
    assert form.fits_word(value) == fits


def test_counts_of_an_access() -> None:
    tile = access((4, 3, 5), (1, 0, 1))
    assert form.partitions(tile) == 4
    assert (form.free_elements(tile), form.elements(tile)) == (15, 60)
    assert form.stored_elements(tile) == 5, "what is broadcast is stored once"
    assert form.shape_text(tile) == "[4, 3, 5]"
    assert form.partitions(access(())) == form.elements(access(())) == 1


def test_a_size_of_symbols_is_judged_by_its_largest_value() -> None:
    assert form.at_most(SIZE, 512) and not form.at_most(SIZE, 511)
    assert form.largest(SIZE) == "M (up to 512)" and form.largest(7) == "7"


@pytest.mark.parametrize(
    ("names", "text"), [(("a",), "a"), (("a", "b"), "a and b"), (("a", "b", "c"), "a, b and c")]
)
def test_names_in_a_sentence(names: tuple[str, ...], text: str) -> None:
    assert form.listed(names) == text


def test_counts_in_a_sentence() -> None:
    assert [form.plural(n, "row") for n in (0, 1, 2)] == ["0 rows", "1 row", "2 rows"]


def test_values_are_shown_in_short() -> None:
    assert form.shown(np.zeros((2, 3), np.int8)) == "an array int8[2, 3]"
    assert form.shown("x") == "'x'"
    assert len(form.shown([0] * 1000)) < 70


def test_a_call_has_its_values_by_name() -> None:
    tile = access((1,))
    call = form.OperationCall(("dst", "bias"), (tile, 0.5), TARGETS["trn2"])
    assert (call.dst, call.bias) == (tile, 0.5)
    assert (call.field("scale"), call.field("scale", 1.0), call.field(None)) == (None, 1.0, None)
    assert call.tensors() == [("dst", tile)]
    with pytest.raises(AttributeError):
        _ = call.scale


def test_a_rule_is_made_of_its_check() -> None:
    @form.rule("nki/page", "It is so.")
    def never(call: form.OperationCall) -> form.Violation | None:
        return form.Violation("shape-mismatch", "it is not so", operand="dst")

    assert (never.name, never.document, never.text) == ("never", "nki/page", "It is so.")
    found = never.check(form.OperationCall((), (), TARGETS["trn2"]))
    assert found is not None
    error = found.error()
    assert (error.code, error.what) == ("shape-mismatch", "it is not so")
