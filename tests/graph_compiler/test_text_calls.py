"""Computations that others call, as HLO text."""

from __future__ import annotations

import pytest
from hlo_texts import CALLEE, X, one

from graph_compiler import parse_text, print_text


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("y = f32[] reduce(x, x), dimensions={0,1}, to_apply=f", ["f"]),
        ("y = f32[4,6] while(x), condition=g, body=f", ["f", "g"]),
        ("y = f32[4,6] select-and-scatter(x, x, x), select=g, scatter=f", ["g", "f"]),
        ("y = f32[4,6] conditional(p, x, x), true_computation=g, false_computation=f", ["g", "f"]),
        ("y = f32[4,6] conditional(x, x, x), branch_computations={f, g, f}", ["f", "g", "f"]),
        (
            'y = f32[] custom-call(x), custom_call_target="t", called_computations={f, g}',
            ["f", "g"],
        ),
        ("y = f32[4,6] fusion(x), kind=kLoop, calls=f", ["f"]),
        ("y = f32[4,6] call(x), to_apply=f", ["f"]),
    ],
)
def test_called_computations_stand_in_their_places(line: str, names: list[str]) -> None:
    both = CALLEE + "\n" + CALLEE.replace("f {", "g {", 1)
    instruction = one(line, X, "p = pred[] parameter(1)", rest=both)
    assert [item.name for item in instruction.called] == names
    module = parse_text(
        f"HloModule m\n{both}\nENTRY main {{ {X}\n p = pred[] parameter(1)\n{line}}}"
    )
    assert [item.name for item in parse_text(print_text(module)).entry.root.called] == names


def test_long_and_short_forms_are_the_same() -> None:
    short = parse_text(
        "HloModule m\nENTRY e { x = f32[2]{0} parameter(0) ROOT y = f32[2]{0} add(x, x) }"
    )
    long = parse_text(
        """HloModule m, is_scheduled=true, entry_computation_layout={(f32[2]{0})->f32[2]{0}}
// a comment
ENTRY %e (x: f32[2]) -> f32[2] { /* another */
  %x = f32[2]{0} parameter(0)
  ROOT %y = f32[2]{0} add(f32[2]{0} %x, /*index=1*/f32[2]{0} %x), control-predecessors={%x}
}, execution_thread="main"
"""
    )
    assert [repr(item) for item in long.entry.instructions] == [
        repr(item) for item in short.entry.instructions
    ]
    assert long.entry.root.control_predecessors == [long.entry.instructions[0]]
    assert long.config == {"is_scheduled": "true"}
    assert long.entry.attributes == {"execution_thread": "main"}
    assert print_text(parse_text(print_text(long))) == print_text(long)
