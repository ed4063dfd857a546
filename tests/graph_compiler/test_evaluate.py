"""The reference evaluator: calls, loops, lifetimes, ranks, and what it refuses."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from operator_values import module_text
from ranks_of_graphs import SUM, pieces, ranks_of

from graph_compiler import evaluate, parse_text
from graph_compiler.hlo import Computation, Instruction, Module, Shape
from isa.errors import NeuronError

COUNT_TO = """HloModule loop
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[4] add(x, x)
  ROOT t = (s32[], f32[4]) tuple(n, y)
}
condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  limit = s32[] constant(LIMIT)
  ROOT c = pred[] compare(i, limit), direction=LT
}
ENTRY entry {
  zero = s32[] constant(0)
  x = f32[4] parameter(0)
  s = (s32[], f32[4]) tuple(zero, x)
  ROOT w = (s32[], f32[4]) while(s), condition=condition, body=body
}
"""


def test_a_loop_runs_while_its_condition_holds() -> None:
    module = parse_text(COUNT_TO.replace("LIMIT", "5"))
    count, doubled = evaluate(module, np.ones(4, np.float32))
    assert count == 5 and doubled.tolist() == [32.0] * 4


def test_an_endless_loop_is_ended() -> None:
    module = parse_text(COUNT_TO.replace("LIMIT", str(2**31 - 1)))
    with pytest.raises(NeuronError) as caught:
        evaluate(module, np.ones(4, np.float32), loop_limit=100)
    assert caught.value.code == "loop-limit" and "`w`" in caught.value.what


@pytest.mark.parametrize(
    ("index", "expected"), [(0, -2.0), (1, 4.0), (2, 8.0), (-1, 8.0), (9, 8.0)]
)
def test_a_conditional_takes_one_branch_the_last_if_out_of_range(
    index: int, expected: float
) -> None:
    branches = "".join(
        f"b{number} {{\n  x = f32[] parameter(0)\n  ROOT r = f32[] {operation}\n}}\n"
        for number, operation in enumerate(("negate(x)", "add(x, x)", "multiply(q, x)"))
    ).replace("ROOT r = f32[] multiply", "q = f32[] multiply(x, x)\n  ROOT r = f32[] multiply")
    text = module_text(
        "conditional",
        "f32[]",
        ["s32[]", "f32[]", "f32[]", "f32[]"],
        "branch_computations={b0, b1, b2}",
        branches,
    )
    (found,) = evaluate(parse_text(text), np.int32(index), *[np.float32(2)] * 3)
    assert found == expected


def test_reducers_that_arrays_cannot_go_through_run_element_by_element() -> None:
    """A conditional inside of a reducer."""
    computations = (
        "up {\n  x = f32[] parameter(0)\n  ROOT r = f32[] copy(x)\n}\n"
        "reducer {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n"
        "  c = pred[] compare(a, b), direction=GT\n"
        "  ROOT r = f32[] conditional(c, a, b), true_computation=up, false_computation=up\n}\n"
    )
    attributes = "dimensions={1}, to_apply=reducer"
    text = module_text("reduce", "f32[3]", ["f32[3,5]", "f32[]"], attributes, computations)
    x = np.random.default_rng(0).standard_normal((3, 5)).astype(np.float32)
    (found,) = evaluate(parse_text(text), x, np.float32(-9))
    np.testing.assert_array_equal(found, x.max(1))


def test_values_are_freed_after_their_last_use() -> None:
    """Of a chain of 30 values, two are alive at a time."""
    lines = ["  v0 = f32[1000] parameter(0)"]
    lines += [f"  v{i + 1} = f32[1000] negate(v{i})" for i in range(30)]
    lines[-1] = lines[-1].replace("  v30", "  ROOT v30")
    text = "HloModule chain\nENTRY entry {\n" + "\n".join(lines) + "\n}\n"
    alive: list[Any] = []
    most = 0

    def observe(instruction: Instruction, value: Any) -> None:
        nonlocal most
        gc.collect(0)
        alive[:] = [reference for reference in alive if reference() is not None]
        alive.append(weakref.ref(value))
        most = max(most, len(alive))

    (found,) = evaluate(parse_text(text), np.ones(1000, np.float32), observe=observe)
    assert found.tolist() == [1.0] * 1000
    assert most <= 2


def test_outputs_own_their_memory() -> None:
    text = module_text("copy", "f32[3]", ["f32[3]"])
    x = np.ones(3, np.float32)
    (found,) = evaluate(parse_text(text), x)
    found[0] = 7
    assert x[0] == 1
    wide = module_text("broadcast", "f32[2,3]", ["f32[3]"], "dimensions={1}")
    assert evaluate(parse_text(wide), x)[0].flags.writeable


@pytest.mark.parametrize(
    "inputs",
    [
        (),
        (np.ones(4, np.float32), np.ones(4, np.float32)),
        (np.ones(3, np.float32),),
        (np.ones(4, np.float64),),
    ],
    ids=["none", "two", "shape", "type"],
)
def test_inputs_must_fit_the_parameters(inputs: tuple[Any, ...]) -> None:
    module = parse_text(module_text("negate", "f32[4]", ["f32[4]"]))
    with pytest.raises(NeuronError) as caught:
        evaluate(module, *inputs)
    assert caught.value.code == "input-mismatch"


def test_inputs_that_jax_leaves_out_are_named_as_the_likely_cause() -> None:
    module = parse_text(module_text("negate", "f32[4]", ["f32[4]"]))
    with pytest.raises(NeuronError, match=r"1 parameters \(\w+ f32\[4\]\).*keep_unused=True"):
        evaluate(module, np.ones(4, np.float32), np.ones(4, np.float32))


def test_a_computation_that_calls_itself_is_refused() -> None:
    parameter = Instruction("parameter", Shape("f32"), name="x")
    inner = Computation("inner", [parameter])
    inner.instructions.append(
        Instruction("call", Shape("f32"), [parameter], name="again", called=[inner])
    )
    inner.root = inner.instructions[-1]
    with pytest.raises(NeuronError) as caught:
        evaluate(Module("recursive", [inner]), np.float32(0))
    assert caught.value.code == "hlo-cycle"


def test_custom_calls_are_looked_up_by_target() -> None:
    text = module_text("custom-call", "f32[2]", ["f32[2]"], 'custom_call_target="twice"')
    module, x = parse_text(text), np.float32([1, 2])
    (found,) = evaluate(
        module, x, custom_calls={"twice": lambda instruction, operands, context: operands[0] * 2}
    )
    assert found.tolist() == [2, 4]
    with pytest.raises(NeuronError) as caught:
        evaluate(module, x)
    assert caught.value.code == "hlo-not-supported" and "twice" in caught.value.what


def test_channels_and_global_ids_choose_the_group() -> None:
    """Four ranks as two replicas of two partitions; rank = 2 replica + partition."""
    x = pieces(4, 1)
    sums = {
        "replica_groups={{0,1}}": [20, 40, 20, 40],
        "replica_groups={{0,1}}, channel_id=1": [60] * 4,
        "replica_groups={{0},{1}}, channel_id=1": [10, 10, 50, 50],
        "replica_groups={{0,3},{1,2}}, channel_id=1, use_global_device_ids=true": [30] * 4,
    }
    for groups, expected in sums.items():
        text = module_text("all-reduce", "f32[1]", ["f32[1]"], f"{groups}, to_apply=reducer", SUM)
        assert ranks_of(text, *x, partitions=2) == [[value] for value in expected], groups


def test_groups_that_do_not_fit_the_ranks_are_refused() -> None:
    text = module_text(
        "all-reduce", "f32[4]", ["f32[4]"], "replica_groups={{0,1,2,3}}, to_apply=reducer", SUM
    )
    with pytest.raises(NeuronError) as caught:
        ranks_of(text, *pieces(2))
    assert caught.value.code == "hlo-invalid"
