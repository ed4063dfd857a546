"""Attributes of instructions as HLO text."""

from __future__ import annotations

from typing import Any

import pytest
from hlo_texts import FORMS, X, one

from graph_compiler import from_proto, parse_text, print_text, to_proto
from graph_compiler.hlo.text import attribute_words

INDEX = "i = s32[2]{0} parameter(1)"


@pytest.mark.parametrize(("call", "words", "expected"), FORMS, ids=lambda value: str(value)[:40])
def test_forms_of_attributes(call: str, words: str, expected: dict[str, Any]) -> None:
    instruction = one(f"y = f32[4,6]{{1,0}} {call}, {words}", X, INDEX)
    assert instruction.attributes == expected
    assert ", ".join(attribute_words(instruction)) == words


def test_an_attribute_without_text_ends_with_its_line() -> None:
    text = """HloModule scalar

ENTRY %e (x: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] pad(%x, %x), padding=
  ROOT %z = f32[] negate(%y)
}
"""
    module = parse_text(text)
    assert [item.opcode for item in module.instructions()] == ["parameter", "pad", "negate"]
    assert print_text(module, exact=False).partition("ENTRY")[2] == text.partition("ENTRY")[2]
    data = to_proto(module)
    assert to_proto(parse_text(print_text(from_proto(data)))) == data


def test_convolutions_state_what_text_leaves_out() -> None:
    line = (
        "y = f32[4,6]{1,0} convolution(x, x), window={size=3 pad=1_1}, "
        "dim_labels=b0f_0io->bf0, feature_group_count=2"
    )
    instruction = one(line, X)
    numbers = instruction.attributes["convolution_dimension_numbers"]
    assert (numbers.input_batch_dimension, numbers.input_spatial_dimensions) == (0, (1,))
    assert (numbers.input_feature_dimension, numbers.kernel_output_feature_dimension) == (2, 2)
    assert (numbers.output_feature_dimension, numbers.output_spatial_dimensions) == (1, (2,))
    assert instruction.attributes["feature_group_count"] == 2
    assert instruction.attributes["batch_group_count"] == 1
    assert instruction.attributes["precision_config"].operand_precision == ("DEFAULT", "DEFAULT")
    assert f"y = f32[4,6]{{1,0}} convolution(x, x), {', '.join(attribute_words(instruction))}" == (
        line
    )
