"""Plans of graphs whose control flow data decide are timed as if all of it happened once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.timing import static_timeline
from isa.errors import NeuronError
from simulator.timing import simulate
from simulator.timing.assumptions import Assumptions

WHILE = """HloModule m
body {
 s = (f32[128,64], s32[]) parameter(0)
 x = f32[128,64] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=1
 one = s32[] constant(1)
 y = f32[128,64] add(x, x)
 m = s32[] subtract(n, one)
 ROOT r = (f32[128,64], s32[]) tuple(y, m)
}
goes_on {
 s = (f32[128,64], s32[]) parameter(0)
 n = s32[] get-tuple-element(s), index=1
 zero = s32[] constant(0)
 ROOT c = pred[] compare(n, zero), direction=GT
}
ENTRY e {
 x = f32[128,64] parameter(0)
 n = s32[] parameter(1)
 t = (f32[128,64], s32[]) tuple(x, n)
 ROOT w = (f32[128,64], s32[]) while(t), condition=goes_on, body=body
}"""

CONDITIONAL = """HloModule m
doubled { x = f32[128,64] parameter(0)
 ROOT y = f32[128,64] add(x, x) }
kept { x = f32[128,64] parameter(0)
 ROOT y = f32[128,64] copy(x) }
ENTRY e {
 x = f32[128,64] parameter(0)
 p = pred[] parameter(1)
 ROOT c = f32[128,64] conditional(p, x, x), true_computation=doubled, false_computation=kept
}"""


def traced(text: str, *inputs: Any) -> tuple[float, float]:
    """ns by the control trace of a run, and with all done once."""
    compiled = compile(parse_text(text), "trn2")
    _, profile = compiled.profile(*inputs)
    timeline = static_timeline(compiled.kernel.program, once=True)
    assert timeline is not None
    return profile.total_ns, timeline.total_ns


X = np.ones((128, 64), np.float32)


@pytest.mark.parametrize("text", [WHILE, CONDITIONAL])
def test_without_a_trace_nothing_is_assumed(text: str) -> None:
    program = compile(parse_text(text), "trn2").kernel.program
    assert static_timeline(program) is None
    with pytest.raises(NeuronError, match="control trace"):
        simulate(program)


def test_a_loop_has_one_trip() -> None:
    once, assumed = traced(WHILE, X, np.int32(1))
    assert assumed == once
    several, _ = traced(WHILE, X, np.int32(3))
    assert several > assumed


def test_conditions_hold() -> None:
    """Both branches, of which a run takes one."""
    taken, assumed = traced(CONDITIONAL, X, np.bool_(True))
    assert taken < assumed < 2 * taken


def test_what_is_known_is_as_before() -> None:
    text = "HloModule m\nENTRY e { x = f32[128,64] parameter(0) ROOT y = f32[128,64] add(x, x) }"
    program = compile(parse_text(text), "trn2").kernel.program
    assert simulate(program, assume=Assumptions(once=True)).total_ns == simulate(program).total_ns
