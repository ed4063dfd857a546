"""Operands that a nest reads backward: columns are loaded as memory has them, and turned on chip.
NumPy says what they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import GraphOptions, compile, parse_text
from graph_compiler.hlo.types import PRIMITIVE_TYPES
from simulator.timing import simulate

AFTER = {
    "copy": ("ROOT r = TYPE[SHAPE] copy(b)", lambda back, x: back),
    "with itself": ("ROOT r = TYPE[SHAPE] maximum(b, x)", np.maximum),
}


@settings(max_examples=25)
@given(data=st.data())
def test_reversed_operands_are_what_numpy_turns(data: Any) -> None:
    shape = data.draw(st.lists(st.sampled_from([1, 3, 16, 40, 129, 130]), min_size=1, max_size=4))
    while np.prod(shape) > 40_000:
        shape[int(np.argmax(shape))] = 5
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True))
    type = data.draw(st.sampled_from(["f32", "bf16", "s32", "u8", "pred"]))
    target, cores = data.draw(st.sampled_from([("trn2", 1), ("trn1", 1), ("trn2", 2)]))
    line, function = AFTER[data.draw(st.sampled_from(sorted(AFTER)))]
    if type == "pred":
        line = line.replace("maximum", "or")
    dims = ",".join(map(str, axes))
    text = (
        "HloModule m\nENTRY e {\n x = TYPE[SHAPE] parameter(0)\n"
        f" b = TYPE[SHAPE] reverse(x), dimensions={{{dims}}}\n {line}\n}}"
    )
    text = text.replace("TYPE", type).replace("SHAPE", ",".join(map(str, shape)))
    x = np.random.default_rng(1).integers(0, 2 if type == "pred" else 200, shape)
    x = x.astype(PRIMITIVE_TYPES[type].numpy)
    (found,) = compile(parse_text(text), target, GraphOptions(logical_cores=cores))(x)
    np.testing.assert_array_equal(found, function(np.flip(x, axes), x))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("type", ["f32", "bf16"])
def test_what_is_reversed_moves_about_as_fast_as_what_is_copied(type: str, axis: int) -> None:
    """Columns are turned on chip, rows are gathered by their places."""
    text = "HloModule m\nENTRY e { x = TYPE[512,1024] parameter(0)\n ROOT r = TYPE[512,1024] LINE }"
    times = [
        simulate(
            compile(
                parse_text(text.replace("TYPE", type).replace("LINE", line)), "trn2"
            ).kernel.program
        ).total_ns
        for line in (f"reverse(x), dimensions={{{axis}}}", "negate(x)")
    ]
    assert times[0] < 1.5 * times[1]
