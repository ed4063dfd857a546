"""What is computed while a graph is made ready. NumPy says what the values are."""

from __future__ import annotations

import numpy as np

from graph_compiler import parse_text
from graph_compiler.schedule.nodes import Block
from graph_compiler.schedule.simplify import Simplifier


def simplified(text: str) -> Block:
    module = parse_text(
        "HloModule m\nplus { a = s32[] parameter(0)\n b = s32[] parameter(1)\n"
        " ROOT s = s32[] add(a, b) }\n" + text
    )
    return Simplifier(module).block(module.entry)


def test_running_sums_of_constants_are_computed() -> None:
    block = simplified("""ENTRY e {
 i = s32[1,300] iota(), iota_dimension=1
 zero = s32[] constant(0)
 ROOT r = s32[1,300] reduce-window(i, zero), window={size=1x300 pad=0_0x299_0}, to_apply=plus
}""")
    (result,) = block.results
    assert result.op == "constant"
    np.testing.assert_array_equal(result.value, np.cumsum(np.arange(300))[None])


def test_long_windows_are_left_to_the_run() -> None:
    block = simplified("""ENTRY e {
 i = s32[40000] iota(), iota_dimension=0
 zero = s32[] constant(0)
 ROOT r = s32[40000] reduce-window(i, zero), window={size=40000 pad=39999_0}, to_apply=plus
}""")
    assert [node.op for node in block.nodes] == ["reduce-window"]


def test_what_equal_constants_decide_is_no_operation() -> None:
    """A mask of sequences of which there is one: all its elements are true."""
    block = simplified("""ENTRY e {
 x = pred[500,400] parameter(0)
 y = f32[500,400] parameter(1)
 z = f32[500,400] parameter(2)
 i = s32[500] iota(), iota_dimension=0
 zeros = s32[500] subtract(i, i)
 first = s32[400] slice(zeros), slice={[0:400]}
 rows = s32[500,400] broadcast(zeros), dimensions={0}
 columns = s32[500,400] broadcast(first), dimensions={1}
 same = pred[500,400] compare(rows, columns), direction=EQ
 mask = pred[500,400] and(same, x)
 chosen = f32[500,400] select(same, y, z)
 none = pred[500,400] compare(rows, columns), direction=NE
 others = f32[500,400] select(none, y, z)
 some = pred[500,400] or(mask, none)
 ROOT r = (pred[500,400], f32[500,400], f32[500,400]) tuple(some, chosen, others)
}""")
    assert block.results == block.parameters
    assert block.nodes == []


def test_zeros_of_other_signs_are_not_equal() -> None:
    block = simplified("""ENTRY e {
 c = f32[2] constant({0, -0})
 one = f32[2] constant({1, 1})
 ROOT r = f32[2] multiply(c, one)
}""")
    assert np.signbit(block.results[0].value).tolist() == [False, True]


def test_a_weight_that_each_step_turns_is_turned_once() -> None:
    turned = "".join(f" t{n} = f32[3,200] transpose(w), dimensions={{1,0}}\n" for n in range(3))
    block = simplified(
        "ENTRY e {\n i = f32[600] iota(), iota_dimension=0\n w = f32[200,3] reshape(i)\n"
        f"{turned} ROOT r = (f32[3,200], f32[3,200], f32[3,200]) tuple(t0, t1, t2)\n}}"
    )
    assert len(set(block.results)) == 1
    np.testing.assert_array_equal(block.results[0].value, np.arange(600).reshape(200, 3).T)
