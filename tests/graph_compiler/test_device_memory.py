"""What graphs for the device take in HBM: values that live one after another, and donated
parameters. The evaluator says what results must be."""

from __future__ import annotations

import numpy as np
import pytest

from graph_compiler import Compiled, GraphOptions, compile, evaluate, parse_text

SIZE = 300 * 300 * 4


def as_evaluated(text: str, count: int, cores: int = 1) -> Compiled:
    """The graph compiled, after a run whose results are the evaluator's and whose arrays stay."""
    random = np.random.default_rng(count)
    arrays = [random.uniform(-0.1, 0.1, (300, 300)).astype(np.float32) for _ in range(count)]
    kept = [array.copy() for array in arrays]
    module = parse_text(text)
    compiled = compile(module, "trn2", GraphOptions(logical_cores=cores))
    for found, wanted in zip(compiled(*arrays), evaluate(module, *kept), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    for array, before in zip(arrays, kept):
        np.testing.assert_array_equal(array, before)
    return compiled


def test_values_that_live_one_after_another_share_bytes() -> None:
    lines = ["x0 = f32[300,300] parameter(0)"]
    for i in range(12):  # each product needs all of the one before
        dims = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
        lines.append(f"d{i} = f32[300,300] dot(x{i}, x0), {dims}")
        lines.append(f"x{i + 1} = f32[300,300] tanh(d{i})")
    lines.append("ROOT r = f32[300,300] negate(x12)")
    memory = as_evaluated("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}", 1).memory
    assert memory.intermediates <= memory.unshared / 2
    assert (memory.inputs, memory.outputs, memory.updated) == (SIZE, SIZE, 0)
    assert "without reuse" in str(memory)


_TWO = "(f32[300,300], f32[300,300])"
_DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


@pytest.mark.parametrize(
    "lines, updated",
    [
        # Element by element, from what was there.
        (f"n = f32[300,300] add(p, q)\n ROOT r = {_TWO} tuple(n, q)", 1),
        # The other result is what was there.
        (f"n = f32[300,300] add(p, q)\n ROOT r = {_TWO} tuple(n, p)", 0),
        (f"n = f32[300,300] add(p, q)\n ROOT r = {_TWO} tuple(p, n)", 1),
        # Element by element from elsewhere in it, and all of it read before.
        (
            f"t = f32[300,300] transpose(p), dimensions={{1,0}}\n"
            f"n = f32[300,300] add(p, t)\n ROOT r = {_TWO} tuple(n, q)",
            0,
        ),
        (
            f"d = f32[300,300] dot(p, q), {_DOT}\n e = f32[300,300] dot(d, d), {_DOT}\n"
            f"n = f32[300,300] tanh(e)\n ROOT r = {_TWO} tuple(n, q)",
            1,
        ),
        # Read again, behind the result.
        (
            f"m = f32[300,300] dot(q, q), {_DOT}\n n = f32[300,300] tanh(m)\n"
            f"d = f32[300,300] dot(n, p), {_DOT}\n"
            f" ROOT r = {_TWO} tuple(n, d)",
            0,
        ),
        # A row is new, and a product reads the result.
        (
            f"z = s32[] constant(0)\n i = s32[] bitcast-convert(o)\n"
            f"b = f32[1,300] slice(q), slice={{[0:1], [0:300]}}\n"
            f"n = f32[300,300] dynamic-update-slice(p, b, i, z)\n"
            f"d = f32[300,300] dot(q, n), {_DOT}\n ROOT r = {_TWO} tuple(n, d)",
            1,
        ),
    ],
)
@pytest.mark.parametrize("cores", [1, 2])
def test_donated_parameters_are_updated_in_place(lines: str, updated: int, cores: int) -> None:
    text = f"""HloModule m, input_output_alias={{ {{0}}: (0, {{}}, may-alias) }}
ENTRY e {{
 p = f32[300,300] parameter(0)
 q = f32[300,300] parameter(1)
 c = f32[1,1] slice(q), slice={{[2:3], [2:3]}}
 o = f32[] reshape(c)
 {lines}
}}"""
    memory = as_evaluated(text, 2, cores).memory
    assert memory.updated == updated * SIZE
    assert memory.outputs == (2 - updated) * SIZE


def test_what_a_loop_carries_takes_the_place_of_the_parameter_that_it_begins_with() -> None:
    text = """HloModule m, input_output_alias={ {}: (0, {}, must-alias) }
body {
 s = (s32[], f32[300,300], f32[300,300]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[300,300] get-tuple-element(s), index=1
 w = f32[300,300] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
 d = f32[300,300] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 y = f32[300,300] tanh(d)
 ROOT r = (s32[], f32[300,300], f32[300,300]) tuple(j, y, w)
}
condition {
 s = (s32[], f32[300,300], f32[300,300]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
 p = f32[300,300] parameter(0)
 q = f32[300,300] parameter(1)
 z = s32[] constant(0)
 t = (s32[], f32[300,300], f32[300,300]) tuple(z, p, q)
 l = (s32[], f32[300,300], f32[300,300]) while(t), condition=condition, body=body
 ROOT r = f32[300,300] get-tuple-element(l), index=1
}"""
    memory = as_evaluated(text, 2).memory
    assert (memory.updated, memory.outputs) == (SIZE, 0)
