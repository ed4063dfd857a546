"""Values as text: what is printed is read again, and errors point at the column."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isa.alu import ALU
from isa.array_tiles import ARRAY_TILES
from isa.enums import Engine
from isa.errors import NeuronError
from isa.fields import Attribute, Kind, Read
from isa.files.value_text import Cursor, field_text
from isa.program import RegisterReference


def again(field: Any, value: Any) -> Any:
    text = field_text(field)
    cursor = Cursor(text.print(value), 1, {})
    found = text.read(cursor)
    assert cursor.at_end()
    return found


INTEGERS = st.integers(-(2**63), 2**63 - 1)
STRATEGIES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.flag: st.booleans(),
    Kind.integer: INTEGERS,
    Kind.number: INTEGERS | st.floats(allow_nan=False),
    Kind.float32: st.floats(width=32, allow_nan=False),
    Kind.alu: st.sampled_from(list(ALU.values())),
    Kind.array_tile: st.sampled_from(ARRAY_TILES),
    Kind.engine: st.sampled_from(list(Engine)),
    Kind.integers: st.lists(INTEGERS, max_size=5).map(tuple),
    Kind.pattern: st.lists(st.tuples(INTEGERS, st.integers(1, 99)), max_size=4).map(tuple),
    Kind.value: INTEGERS | st.integers(0, 63).map(RegisterReference),
    Kind.register: st.integers(0, 63).map(RegisterReference),
    Kind.target: st.integers(0, 10**6),
}


@pytest.mark.parametrize("kind", STRATEGIES, ids=lambda kind: kind.name)
@given(data=st.data())
def test_attributes_come_back(kind: Kind, data: Any) -> None:
    value = data.draw(STRATEGIES[kind])
    found = again(Attribute(kind=kind), value)
    assert found == value and type(found) is type(value)
    assert again(Attribute(kind=kind, optional=True), value) == value


def test_absent_values_and_those_of_which_none_equals_itself() -> None:
    assert again(Attribute(kind=Kind.alu, optional=True), None) is None
    assert math.isnan(again(Attribute(kind=Kind.number), math.nan))
    assert math.copysign(1, again(Attribute(kind=Kind.number), -0.0)) == -1
    assert again(Read(immediate=True), -math.inf) == -math.inf


@pytest.mark.parametrize(
    ("field", "text", "column"),
    [
        (Attribute(kind=Kind.flag), "yes", 1),
        (Attribute(kind=Kind.alu), "ad", 1),
        (Attribute(kind=Kind.integers), "[1,x]", 4),
        (Attribute(kind=Kind.target), "12", 1),
    ],
)
def test_errors_point_at_the_column(field: Any, text: str, column: int) -> None:
    with pytest.raises(NeuronError) as caught:
        field_text(field).read(Cursor(text, 7, {}))
    assert caught.value.code == "assembler-syntax"
    assert f"line 7, column {column}:" in caught.value.what
