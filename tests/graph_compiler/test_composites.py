"""Functions that graphs spell out are recognised."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from on_device import assert_as_evaluated

from graph_compiler import parse_text
from graph_compiler.lower.rewrites.composites import COMPOSITES, recognise
from graph_compiler.schedule.simplify import Simplifier

_FUNCTION = """HloModule function
ENTRY e {
 x = TYPE[5,7] parameter(0)
 one = TYPE[] constant(1)
 ones = TYPE[5,7] broadcast(one), dimensions={}
 c = TYPE[] constant(SCALE)
 cs = TYPE[5,7] broadcast(c), dimensions={}
 sx = TYPE[5,7] multiply(x, cs)
 n = TYPE[5,7] negate(sx)
 y = TYPE[5,7] exponential(n)
 d = TYPE[5,7] add(y, ones)
 q = TYPE[5,7] divide(ones, d)
 ROOT r = TYPE[5,7] multiply(x, q)
}"""


@pytest.mark.parametrize("type", ["f32", "bf16"])
@pytest.mark.parametrize(
    "scale, name", [("1", "silu"), ("1.702", "gelu_apprx_sigmoid"), ("1.4", "sigmoid")]
)
def test_functions_are_recognised_by_their_values(type: str, scale: str, name: str) -> None:
    """x * sigmoid(1.4 x) has no name, but what it multiplies by has."""
    module = parse_text(_FUNCTION.replace("TYPE", type).replace("SCALE", scale))
    block = Simplifier(module).block(module.entry)
    recognise(module, block)
    found = Counter(node.op for node in block.uses() if node.op in COMPOSITES)
    assert found == {name: 1}


def test_a_recognised_function_is_as_precise_as_its_operations() -> None:
    x = np.linspace(-30, 30, 35, dtype=np.float32).reshape(5, 7)
    text = _FUNCTION.replace("TYPE", "f32").replace("SCALE", "1")
    assert_as_evaluated(text, x, tolerance=1e-6)


def test_a_function_that_others_use_too_is_recognised() -> None:
    """A gate z and 1 - z, as a GRU has them, are two sigmoids."""
    gates = """ z = f32[5,7] divide(ones, d)
 w = f32[5,7] subtract(ones, z)
 u = f32[5,7] parameter(1)
 zu = f32[5,7] multiply(z, u)
 ROOT r = f32[5,7] add(zu, w)
}"""
    text = _FUNCTION.replace("TYPE", "f32").replace("SCALE", "1.4").split(" q = ")[0] + gates
    module = parse_text(text)
    block = Simplifier(module).block(module.entry)
    recognise(module, block)
    assert Counter(node.op for node in block.uses() if node.op in COMPOSITES) == {"sigmoid": 2}
    x, u = np.random.default_rng(0).standard_normal((2, 5, 7)).astype(np.float32)
    assert_as_evaluated(text, x, u, tolerance=1e-6)
