"""Which instruction, operator, layer and line of the model takes the time of a compiled graph."""

from __future__ import annotations

import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, parse_text
from graph_compiler.hot_spots import KINDS, hot_spots
from isa.errors import NeuronError

TEXT = """HloModule model
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY e {
  x = f32[512,512] parameter(0)
  y = f32[512,512] parameter(1)
  d = f32[512,512] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}, METADATA_D
  t = f32[512,512] tanh(d), METADATA_T
  zero = f32[] constant(0)
  ROOT r = f32[512] reduce(t, zero), dimensions={1}, to_apply=sum, METADATA_R
}
"""


def _text() -> str:
    text = TEXT
    for letter, (scope, line) in {
        "D": ("net/dense/dot_general", 7),
        "T": ("net/dense/tanh", 8),
        "R": ("net/loss/reduce_sum", 12),
    }.items():
        metadata = f'metadata={{op_name="{scope}" source_file="model.py" source_line={line}}}'
        text = text.replace(f"METADATA_{letter}", metadata)
    return text


def test_time_is_found_by_instruction_operator_layer_and_line() -> None:
    module = parse_text(_text())
    values = np.random.default_rng(0).standard_normal((2, 512, 512), np.float32) / 20
    (result,), profile = compile(module, "trn2").profile(*values)
    np.testing.assert_allclose(result, np.tanh(values[0] @ values[1]).sum(1), rtol=1e-4, atol=1e-3)
    found = {by: hot_spots(module, profile, by) for by in KINDS}
    for spots in found.values():
        assert sum(spot.path_ns for spot in spots) == pytest.approx(profile.total_ns)
    named = {by: {spot.name for spot in spots if spot.busy_ns} for by, spots in found.items()}
    assert {"d", "r"} <= named["instruction"] <= {"d", "t", "r"}
    assert {"dot", "reduce"} <= named["operator"]
    assert named["layer"] == {"net/dense", "net/loss"}
    assert {"model.py:7", "model.py:12"} <= named["source"] <= {f"model.py:{n}" for n in (7, 8, 12)}
    with pytest.raises(NeuronError, match="by is 'module'"):
        hot_spots(module, profile, "module")


SILU = """HloModule model
ENTRY e {
  x = f32[300,50] parameter(0)
  one = f32[] constant(1)
  ones = f32[300,50] broadcast(one), dimensions={}
  n = f32[300,50] negate(x)
  e = f32[300,50] exponential(n)
  d = f32[300,50] add(ones, e)
  ROOT r = f32[300,50] divide(x, d)
}
"""


def test_a_function_that_is_spelled_out_is_its_last_operation() -> None:
    """Its tensors too: no place of this compiler's files gets into a program."""
    module = parse_text(SILU)
    compiled = compile(module, "trn2")
    _, profile = compiled.profile(np.ones((300, 50), np.float32))
    names = {spot.name for spot in hot_spots(module, profile, "instruction") if spot.busy_ns}
    assert names == {"r"}
    files = {place.file for place in compiled.kernel.program.locations}
    assert files - {""} == {"model"}


@pytest.mark.parametrize("cores", [1, 2])
def test_a_convolution_is_the_instruction_that_it_is(cores: int) -> None:
    module = parse_text("""HloModule model
ENTRY e {
  x = f32[2,12,12,20] parameter(0)
  k = f32[3,3,20,30] parameter(1)
  ROOT r = f32[2,10,10,30] convolution(x, k), window={size=3x3}, dim_labels=b01f_01io->b01f
}""")
    compiled = compile(module, "trn2", GraphOptions(logical_cores=cores))
    shapes = [item.shape.dimensions for item in module.parameters]
    _, profile = compiled.profile(*(np.ones(shape, np.float32) for shape in shapes))
    spots = hot_spots(module, profile, "instruction")
    assert {spot.name for spot in spots if spot.busy_ns > 1000} == {"r"}
