"""Records with the fields of protobuf messages."""

from __future__ import annotations

import pytest

from graph_compiler import Instruction, Shape
from graph_compiler.hlo import Record


def test_records_have_the_defaults_of_their_message() -> None:
    window = Record("WindowDimension", size=3)
    assert (window.size, window.stride, window.window_reversal) == (3, 0, False)
    assert window == Record("WindowDimension", size=3) != Record("WindowDimension", size=4)
    assert window.replace(stride=2).stride == 2 and window.stride == 0
    assert Record("PrecisionConfig").algorithm == "ALG_UNSET"
    with pytest.raises(AttributeError, match="no field"):
        _ = window.sise
    instruction = Instruction("broadcast", Shape("f32"))
    assert instruction.attribute("dimensions") == () and instruction.attribute("window") is None
    with pytest.raises(KeyError):
        instruction.attribute("no_such_field")
