"""The reference evaluator: calls, loops, lifetimes, ranks, and what it refuses."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from operator_values import module_text
from random_operations import REDUCERS, reducer

from graph_compiler import evaluate, evaluate_ranks, parse_text
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


# Ranks.

SUM = reducer("f32", REDUCERS["add"])


def ranks_of(text: str, *inputs: np.ndarray[Any, Any], **options: Any) -> list[Any]:
    """Rank r gets inputs[r]; one output a rank."""
    results = evaluate_ranks(parse_text(text), [[array] for array in inputs], **options)
    return [result[0].tolist() for result in results]


def pieces(ranks: int, size: int = 4) -> list[np.ndarray[Any, Any]]:
    return [np.arange(size, dtype=np.float32) + 10 * rank for rank in range(ranks)]


def test_all_reduce_sums_over_groups_on_every_rank() -> None:
    text = module_text(
        "all-reduce", "f32[4]", ["f32[4]"], "replica_groups={{0,2},{1,3}}, to_apply=reducer", SUM
    )
    x = pieces(4)
    even, odd = (x[0] + x[2]).tolist(), (x[1] + x[3]).tolist()
    assert ranks_of(text, *x) == [even, odd, even, odd]


def test_all_gather_joins_in_the_order_of_the_group() -> None:
    text = module_text("all-gather", "f32[8]", ["f32[4]"], "replica_groups={{1,0}}, dimensions={0}")
    x = pieces(2)
    assert ranks_of(text, *x) == [[*x[1], *x[0]]] * 2


def test_reduce_scatter_keeps_the_part_of_the_rank() -> None:
    text = module_text(
        "reduce-scatter",
        "f32[2]",
        ["f32[4]"],
        "replica_groups={{0,1}}, dimensions={0}, to_apply=reducer",
        SUM,
    )
    x = pieces(2)
    total = (x[0] + x[1]).tolist()
    assert ranks_of(text, *x) == [total[:2], total[2:]]


def test_all_to_all_is_a_transposition_of_parts() -> None:
    text = module_text("all-to-all", "f32[4]", ["f32[4]"], "replica_groups={{0,1}}, dimensions={0}")
    x = pieces(2)
    assert ranks_of(text, *x) == [[*x[0][:2], *x[1][:2]], [*x[0][2:], *x[1][2:]]]


def test_collective_permute_gives_zeros_where_nobody_sends() -> None:
    text = module_text(
        "collective-permute", "f32[4]", ["f32[4]"], "source_target_pairs={{0,1},{1,2}}"
    )
    x = pieces(3)
    assert ranks_of(text, *x) == [[0.0] * 4, x[0].tolist(), x[1].tolist()]


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


def test_started_collectives_are_done() -> None:
    text = """HloModule start
ENTRY entry {
  x = f32[4] parameter(0)
  s = (f32[4], f32[8]) all-gather-start(x), replica_groups={{0,1}}, dimensions={0}
  ROOT d = f32[8] all-gather-done(s)
}
"""
    x = pieces(2)
    assert ranks_of(text, *x) == [[*x[0], *x[1]]] * 2


DIVERGENT = """HloModule divergent
reducer {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT z = f32[] add(a, b)
}
meets {
  x = f32[4] parameter(0)
  ROOT r = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=reducer
}
stays {
  x = f32[4] parameter(0)
  ROOT r = f32[4] negate(x)
}
ENTRY entry {
  x = f32[4] parameter(0)
  i = u32[] replica-id()
  s = s32[] convert(i)
  ROOT c = f32[4] conditional(s, x, x), branch_computations={meets, stays}
}
"""


def test_a_collective_that_a_rank_does_not_reach_is_a_deadlock() -> None:
    with pytest.raises(NeuronError) as caught:
        ranks_of(DIVERGENT, *pieces(2))
    assert caught.value.code == "deadlock" and "all-reduce `r`" in caught.value.what


def test_groups_that_do_not_fit_the_ranks_are_refused() -> None:
    text = module_text(
        "all-reduce", "f32[4]", ["f32[4]"], "replica_groups={{0,1,2,3}}, to_apply=reducer", SUM
    )
    with pytest.raises(NeuronError) as caught:
        ranks_of(text, *pieces(2))
    assert caught.value.code == "hlo-invalid"


def test_shard_maps_split_and_join_by_the_mesh() -> None:
    """Two dimensions over a 2 x 2 mesh, one of them over both axes on the way out."""
    mesh = r"{mesh = #sdy.mesh<[\"a\"=2, \"b\"=2]>}"

    def sharded(result: str, operand: str, direction: str, shardings: str) -> str:
        target = {"in": "GlobalToLocalShape", "out": "LocalToGlobalShape"}[direction]
        value = f"#sdy.sharding_per_value<[<@mesh, [{shardings}]>]>".replace('"', r"\"")
        return (
            f'{result} custom-call({operand}), custom_call_target="xla.sdy.{target}",'
            f' frontend_attributes={{xla.sdy.{direction}_shardings="{value}"}}'
        )

    lines = [
        f'HloModule shards, frontend_attributes={{xla.sdy.meshes="{mesh}"}}',
        "ENTRY entry {",
        "  x = f32[4,2] parameter(0)",
        "  l = " + sharded("f32[2,1]", "x", "in", '{"b"}, {"a"}'),
        "  n = f32[2,1] negate(l)",
        "  r = f32[2] reshape(n)",
        "  ROOT g = " + sharded("f32[8]", "r", "out", '{"b", "a"}'),
        "}",
    ]
    text = "\n".join([*lines, ""])
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    (found,) = evaluate(parse_text(text), x, ranks=4)
    parts = [-x[2 * b : 2 * b + 2, a] for b in range(2) for a in range(2)]
    assert found.tolist() == np.concatenate(parts).tolist()
