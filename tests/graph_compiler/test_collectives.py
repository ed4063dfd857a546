"""Collectives over simulated ranks: forms of groups, partitions, ragged exchange, and jax."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks_of_graphs import ADD, EIGHT, run

from graph_compiler import evaluate_ranks, load, parse_text
from isa.errors import NeuronError


def test_the_text_of_a_module_may_state_its_partitions() -> None:
    line = "i = u32[] partition-id()\n  ROOT r = u32[] copy(i)"
    assert run(line, EIGHT[:4]) == [[0], [1], [2], [3]]
    assert run(line, EIGHT[:4], ", replica_count=2, num_partitions=2") == [[0], [1], [0], [1]]
    with pytest.raises(NeuronError) as caught:
        run(line, EIGHT[:3], ", num_partitions=2")
    assert caught.value.code == "input-mismatch" and "3 ranks" in caught.value.what


def test_several_arrays_are_reduced_and_scattered_together() -> None:
    line = (
        "y = f32[4] add(x, x)\n  "
        "ROOT r = (f32[2], f32[2]) reduce-scatter(x, y), replica_groups=[1,2]<=[2], "
        "dimensions={0}, to_apply=add"
    )
    found = run(line, [[1, 2, 3, 4], [10, 20, 30, 40]])
    assert found == [[[11, 22], [22, 44]], [[33, 44], [66, 88]]]


def test_collectives_in_loops_meet_once_an_iteration() -> None:
    """x becomes the sum over the ranks, three times: 2 ** 3 times the mean of a pair."""
    text = f"""HloModule m
{ADD}body {{
  s = (s32[], f32[1]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[1] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[1] all-reduce(x), replica_groups={{{{0,1}}}}, to_apply=add
  ROOT t = (s32[], f32[1]) tuple(n, y)
}}
condition {{
  s = (s32[], f32[1]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}}
ENTRY e {{
  x = f32[1] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[1]) tuple(zero, x)
  w = (s32[], f32[1]) while(s), body=body, condition=condition
  ROOT r = f32[1] get-tuple-element(w), index=1
}}
"""
    inputs = [[np.float32([1])], [np.float32([2])]]
    assert [out[0].tolist() for out in evaluate_ranks(parse_text(text), inputs)] == [[12.0]] * 2


def test_started_collectives_run_in_their_own_computation() -> None:
    text = f"""HloModule m
{ADD}wrapped {{
  p = f32[4] parameter(0)
  ROOT r = f32[2] reduce-scatter(p), replica_groups={{{{0,1}}}}, dimensions={{0}}, to_apply=add
}}
ENTRY e {{
  x = f32[4] parameter(0)
  s = ((f32[4]), f32[2], u32[]) async-start(x), calls=wrapped
  ROOT d = f32[2] async-done(s)
}}
"""
    inputs = [[np.arange(4, dtype=np.float32)], [10 * np.ones(4, np.float32)]]
    outputs = evaluate_ranks(parse_text(text), inputs)
    assert [out[0].tolist() for out in outputs] == [[10, 11], [12, 13]]


RAGGED = """HloModule m
ENTRY e {
  x = s32[3] parameter(0)
  out = s32[4] parameter(1)
  starts = s32[2] parameter(2)
  lengths = s32[2] parameter(3)
  targets = s32[2] parameter(4)
  received = s32[2] parameter(5)
  ROOT r = s32[4] ragged-all-to-all(x, out, starts, lengths, targets, received),
    replica_groups={{0,1}}
}
"""


def ragged(*rows: tuple[list[int], ...]) -> list[list[np.ndarray[Any, Any]]]:
    return [[np.array(part, np.int32) for part in row] for row in rows]


def test_a_ragged_exchange_puts_runs_where_their_senders_say() -> None:
    """The example in jax's documentation of `jax.lax.ragged_all_to_all`."""
    inputs = ragged(
        ([1, 2, 2], [0] * 4, [0, 1], [1, 2], [0, 0], [1, 1]),
        ([3, 4, 0], [0] * 4, [0, 1], [1, 1], [1, 2], [2, 1]),
    )
    outputs = evaluate_ranks(parse_text(RAGGED), inputs)
    assert [out[0].tolist() for out in outputs] == [[1, 3, 0, 0], [2, 2, 4, 0]]


def test_a_ragged_exchange_outside_the_rows_is_refused() -> None:
    inputs = ragged(
        ([1, 2, 2], [0] * 4, [0, 2], [1, 2], [0, 0], [1, 1]),
        ([3, 4, 0], [0] * 4, [0, 1], [1, 1], [1, 2], [2, 1]),
    )
    with pytest.raises(NeuronError, match="rows 2 to 4 of 3") as caught:
        evaluate_ranks(parse_text(RAGGED), inputs)
    assert caught.value.code == "hlo-invalid"


@pytest.mark.parametrize("words", ["replica_groups={{0,1}}", "channel_id=1, replica_groups={}"])
def test_global_ids_need_a_channel_and_groups(words: str) -> None:
    line = f"ROOT r = f32[1] all-reduce(x), {words}, use_global_device_ids=true, to_apply=add"
    with pytest.raises(NeuronError, match="global device ids") as caught:
        run(line, EIGHT[:2])
    assert caught.value.code == "hlo-invalid"


SHARD_MAPS = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp, numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P
mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
x = np.arange(64, dtype=np.float32).reshape(8, 8) ** 1.5
functions = {
    "sum": lambda x: lax.psum(x, "a"),
    "sum_all": lambda x: lax.psum(x, ("a", "b")),
    "max": lambda x: lax.pmax(x, "b"),
    "gather": lambda x: lax.all_gather(x, "b", axis=1, tiled=True)[:, :4],
    "scatter": lambda x: lax.psum_scatter(x, "a", scatter_dimension=0, tiled=True),
    "exchange": lambda x: lax.all_to_all(x, "b", 0, 0, tiled=True),
    "permute": lambda x: lax.ppermute(x, "a", [(0, 1), (1, 0)]),
    "index": lambda x: x + lax.axis_index("b") + 10.0 * lax.axis_index("a"),
}
arrays = {"x": x}
for name, function in functions.items():
    out = P("a", "b")
    mapped = jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=P("a", "b"), out_specs=out, check_vma=False)
    )
    proto = mapped.lower(x).compiler_ir("hlo").as_serialized_hlo_module_proto()
    with open(f"{sys.argv[1]}/{name}.pb", "wb") as file:
        file.write(proto)
    arrays[name] = np.asarray(mapped(x))
np.savez(f"{sys.argv[1]}/outputs.npz", **arrays)
"""


def test_shard_maps_of_jax_give_what_they_give_on_devices(tmp_path: Path) -> None:
    """XLA:CPU with four devices, in a process of its own."""
    pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")
    subprocess.run([sys.executable, "-c", SHARD_MAPS, str(tmp_path)], check=True)
    with np.load(tmp_path / "outputs.npz") as stored:
        arrays = {name: stored[name] for name in stored}
    x = arrays.pop("x")
    assert len(arrays) == 8
    for name, expected in arrays.items():
        module = load(tmp_path / f"{name}.pb")
        for (output,) in evaluate_ranks(module, [[x]] * 4):
            np.testing.assert_allclose(output, expected, rtol=1e-6, err_msg=name)


PARTITIONED = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
rows, whole = NamedSharding(mesh, P("a", None)), NamedSharding(mesh, P())
x, w = (np.random.default_rng(0).standard_normal(s, np.float32) for s in ((4, 6), (6, 3)))
function = jax.jit(
    lambda x, w: jnp.tanh(x @ w).sum(0), in_shardings=(rows, whole), out_shardings=whole
)
compiled = function.lower(x, w).compile()
module = compiled.runtime_executable().hlo_modules()[0]
with open(f"{sys.argv[1]}/partitioned.pb", "wb") as file:
    file.write(module.as_serialized_hlo_module_proto())
with open(f"{sys.argv[1]}/partitioned.txt", "w") as file:
    file.write(compiled.as_text())
np.savez(f"{sys.argv[1]}/outputs.npz", x=x, w=w, output=np.asarray(compiled(x, w)))
"""


def test_what_jax_has_partitioned_gives_what_it_gives_on_devices(tmp_path: Path) -> None:
    """Parameters state the sharding that they had, in the shapes of one rank."""
    pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")
    subprocess.run([sys.executable, "-c", PARTITIONED, str(tmp_path)], check=True)
    with np.load(tmp_path / "outputs.npz") as stored:
        x, w, expected = (stored[name] for name in ("x", "w", "output"))
    for suffix in ("pb", "txt"):
        module = load(tmp_path / f"partitioned.{suffix}")
        for (output,) in evaluate_ranks(module, [[x[:2], w], [x[2:], w]]):
            np.testing.assert_allclose(output, expected, rtol=1e-5)
