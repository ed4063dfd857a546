"""Orders of graphs: operands before users, however deep a graph is; cycles are refused."""

from __future__ import annotations

import random

import pytest

from graph_compiler.hlo.graph import Computation, Instruction, Module
from graph_compiler.hlo.order import callees_first, operands_first
from graph_compiler.hlo.types import Shape
from isa.errors import NeuronError

SHAPE = Shape("f32", ())


def chain(length: int) -> list[Instruction]:
    """A parameter, and negations of one another."""
    made = [Instruction("parameter", SHAPE, name="x")]
    for number in range(length):
        made.append(Instruction("negate", SHAPE, [made[-1]], name=f"n{number}"))
    return made


def test_a_shuffled_chain_has_one_order() -> None:
    made = chain(20_000)  # deeper than Python's stack
    shuffled = random.Random(1).sample(made, len(made))
    assert operands_first(Computation("main", shuffled)) == made


def test_what_is_in_order_stays() -> None:
    x, y = (Instruction("parameter", SHAPE, name=name) for name in "xy")
    added = Instruction("add", SHAPE, [y, x], name="sum")
    assert operands_first(Computation("main", [x, y, added])) == [x, y, added]


def test_callees_come_before_callers() -> None:
    inner = Computation("inner", chain(1))
    call = Instruction("call", SHAPE, [], name="c", called=[inner])
    outer = Computation("outer", [call])
    assert callees_first(Module("m", [outer, inner])) == [inner, outer]


def test_a_cycle_is_refused_by_name() -> None:
    made = chain(2)
    made[1].operands[0] = made[2]
    with pytest.raises(NeuronError, match="depends on its own result") as caught:
        operands_first(Computation("main", made))
    assert caught.value.code == "hlo-cycle"
