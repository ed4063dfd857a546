"""Distributed graphs compiled for a device: every rank on a simulated core of its own."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conformance_models import FORMS, MODELS, inputs_of, models
from test_collectives import PARTITIONED, SHARD_MAPS
from test_conformance_models import tp_mlp_reasons

from graph_compiler import compile, evaluate_ranks, load, parse_text
from graph_compiler.options import GraphOptions
from isa.errors import NeuronError
from isa.target import TARGETS
from simulator.runtime import nrtpy

FOLDS = """add {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT c = TYPE[] add(a, b)
}
larger {
  a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT c = TYPE[] maximum(a, b)
}
"""


def module_of(lines: str, shape: str, header: str = "") -> Any:
    """A module whose entry has parameter `x`, and `lines`."""
    folds = FOLDS.replace("TYPE", shape.partition("[")[0])
    return parse_text(
        f"HloModule m{header}\n{folds}ENTRY e {{\n  x = {shape} parameter(0)\n{lines}\n}}"
    )


def arrays(shape: str, ranks: int) -> list[list[Any]]:
    """An input for each rank."""
    module = module_of(f"  ROOT r = {shape} copy(x)", shape)
    form = module.entry.root.shape
    random = np.random.default_rng(7)
    return [
        [random.integers(-9, 9, form.dimensions).astype(form.numpy_dtype())] for _ in range(ranks)
    ]


CASES = {
    "sum": ("all-reduce(x), replica_groups={{0,1,2}}, to_apply=add", "f32[4,6]", "", 3),
    "sum of bf16": ("all-reduce(x), replica_groups={{0,2},{1,3}}, to_apply=add", "bf16[9]", "", 4),
    "sum of integers": ("all-reduce(x), replica_groups={{0,1}}, to_apply=add", "s32[5,3]", "", 2),
    "maximum": ("all-reduce(x), replica_groups={{1,0}}, to_apply=larger", "f32[]", "", 2),
    "large sum": ("all-reduce(x), replica_groups=[1,4]<=[4], to_apply=add", "f32[256,256]", "", 4),
    "gather": ("all-gather(x), replica_groups={{2,0},{1,3}}, dimensions={1}", "s32[2,3,2]", "", 4),
    "scatter": (
        "reduce-scatter(x), replica_groups={{0,1}}, dimensions={1}, to_apply=add",
        "f32[2,6]",
        "",
        2,
    ),
    "parts": ("all-to-all(x), replica_groups={{0,1,2}}, dimensions={1}", "f32[2,6,2]", "", 3),
    "operands": ("all-to-all(x, x), replica_groups={{1,0}}", "f32[3]", "", 2),
    "partitions": (
        "all-to-all(x), channel_id=1, replica_groups={{1,0}}, dimensions={0}",
        "f32[4]",
        ", replica_count=2, num_partitions=2",
        4,
    ),
    "replicas": (
        "all-reduce(x), replica_groups={{0,1}}, to_apply=add",
        "f32[4]",
        ", replica_count=2, num_partitions=2",
        4,
    ),
    "ring": ("collective-permute(x), source_target_pairs={{0,1},{1,2},{2,0}}", "f32[7]", "", 3),
    "zeros": ("collective-permute(x), source_target_pairs={{0,2}}", "bf16[2,3]", "", 3),
    "broadcast": ("collective-broadcast(x), replica_groups={{1,0,2}}", "f32[8]", "", 3),
    "preds": ("all-gather(x), replica_groups={{0,1}}, dimensions={0}", "pred[5]", "", 2),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_collective_gives_what_the_reference_gives(name: str) -> None:
    line, shape, header, ranks = CASES[name]
    result = {
        "gather": "s32[2,6,2]",
        "scatter": "f32[2,3]",
        "operands": "(f32[3], f32[3])",
        "preds": "pred[10]",
    }.get(name, shape)
    module = module_of(f"  ROOT r = {result} {line}", shape, header)
    inputs = arrays(shape, ranks)
    compiled = compile(module, "trn2")
    assert compiled.ranks == ranks
    for found, wanted in zip(compiled.run_ranks(inputs), evaluate_ranks(module, inputs)):
        for one, other in zip(found, wanted, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_a_sum_of_bf16_is_rounded_once() -> None:
    """1 + 3 * 2**-8 is halfway between two numbers; each partial sum in bf16 would be 1."""
    line = "  ROOT r = bf16[1] all-reduce(x), replica_groups={{0,1,2,3}}, to_apply=add"
    module = module_of(line, "bf16[1]")
    dtype = module.entry.root.shape.numpy_dtype()
    inputs = [[np.full(1, value, dtype)] for value in (1, 2.0**-8, 2.0**-8, 2.0**-8)]
    for (found,) in compile(module, "trn2").run_ranks(inputs):
        assert float(found[0]) == 1 + 2.0**-6


COMPOSED = """HloModule m
fold {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  s = f32[] subtract(a, b)
  d = f32[] multiply(s, s)
  ROOT c = f32[] add(d, b)
}
ENTRY e {
  x = f32[3] parameter(0)
  ROOT r = f32[3] all-reduce(x), replica_groups={{0,1,2}}, to_apply=fold
}
"""


def test_any_computation_folds_in_the_order_of_the_group() -> None:
    module = parse_text(COMPOSED)
    inputs = [[np.float32([1, 2, 3])], [np.float32([4, 4, 1])], [np.float32([0, 2, 5])]]
    (first, second, third) = (given[0] for given in inputs)
    folded = (first - second) ** 2 + second
    expected = (folded - third) ** 2 + third
    for (found,) in compile(module, "trn2").run_ranks(inputs):
        np.testing.assert_array_equal(found, expected)


def test_started_collectives_give_their_results_when_they_are_done() -> None:
    lines = """  s = f32[4] all-reduce-start(x), replica_groups={{0,1}}, to_apply=add
  a = f32[4] all-reduce-done(s)
  g = (f32[4], f32[8]) all-gather-start(a), replica_groups={{0,1}}, dimensions={0}
  b = f32[8] all-gather-done(g)
  p = (f32[8], f32[8], u32[], u32[]) collective-permute-start(b), source_target_pairs={{0,1},{1,0}}
  ROOT c = f32[8] collective-permute-done(p)"""
    inputs = [[np.arange(4, dtype=np.float32)], [np.ones(4, np.float32)]]
    for (found,) in compile(module_of(lines, "f32[4]"), "trn2").run_ranks(inputs):
        assert found.tolist() == [1, 2, 3, 4] * 2


LOOP = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  n = s32[] add(i, one)
  y = f32[4] all-reduce(x), replica_groups={{0,1}}, to_apply=add
  ROOT t = (s32[], f32[4]) tuple(n, y)
}
condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  last = s32[] constant(5)
  ROOT c = pred[] compare(i, last), direction=LT
}
ENTRY e {
  x = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, x)
  w = (s32[], f32[4]) while(s), body=body, condition=condition
  ROOT r = f32[4] get-tuple-element(w), index=1
}
"""


def test_what_begins_asynchronously_is_a_call() -> None:
    """An all-to-all in a computation of its own, with its state passed on."""
    text = """HloModule m, replica_count=2
wrapped { x = f32[4] parameter(0)
 ROOT y = f32[4] all-to-all(x), dimensions={0}, replica_groups={{0,1}} }
ENTRY e { x = f32[4] parameter(0)
 s = ((f32[4]), f32[4], s32[]) async-start(x), calls=wrapped
 u = ((f32[4]), f32[4], s32[]) async-update(s)
 d = f32[4] async-done(u)
 ROOT r = f32[4] add(d, d) }"""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = compile(parse_text(text), "trn2").run_ranks([[x[0]], [x[1]]])
    np.testing.assert_array_equal(found[0][0], [0, 2, 8, 10])
    np.testing.assert_array_equal(found[1][0], [4, 6, 12, 14])


@pytest.mark.parametrize("cores", [1, 2])
def test_collectives_in_loops_meet_once_a_trip(cores: int) -> None:
    compiled = compile(parse_text(LOOP), "trn2", GraphOptions(logical_cores=cores))
    inputs = [[np.float32([1, 2, 3, 4])], [np.float32([1, 0, 1, 0])]]
    outputs, profiles = compiled.profile_ranks(inputs)
    for (found,) in outputs:
        assert found.tolist() == [32, 32, 64, 64]
    exchange = TARGETS["trn2"].collective_ns.value
    assert profiles[0].total_ns == profiles[1].total_ns > 5 * exchange


def test_ranks_that_are_missing_are_named() -> None:
    module = parse_text(LOOP)
    compiled = compile(module, "trn2")
    x = np.zeros(4, np.float32)
    with pytest.raises(NeuronError, match="is for 2") as caught:
        compiled.run_ranks([[x]])
    assert caught.value.code == "input-mismatch"
    with pytest.raises(NeuronError, match="2 ranks, and 1 run"):
        compiled(x)


@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(("target", "cores"), FORMS)
def test_the_model_for_several_devices_agrees_with_numpy(
    target: str, cores: int, level: int, pytestconfig: pytest.Config
) -> None:
    """Two data-parallel halves of four tensor-parallel ranks."""
    quick = (target, cores, level) == ("trn2", 1, 1)
    if not quick and not pytestconfig.getoption("--all-conformance"):
        pytest.skip("slow: --all-conformance runs it")
    model = models()["tp_mlp_shardmap_bf16"]
    inputs = inputs_of(model)
    options = GraphOptions(logical_cores=cores, optimisation=level)
    compiled = compile(load(model.path), target, options)
    for outputs in compiled.run_ranks([inputs] * 8):
        assert tp_mlp_reasons(model, inputs, outputs) == [""] * 4


def test_shard_maps_of_jax_give_what_they_give_on_devices(tmp_path: Path) -> None:
    """XLA:CPU with four devices, in a process of its own."""
    pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")
    subprocess.run([sys.executable, "-c", SHARD_MAPS, str(tmp_path)], check=True)
    with np.load(tmp_path / "outputs.npz") as stored:
        expected = {name: stored[name] for name in stored}
    x = expected.pop("x")
    for name, wanted in expected.items():
        compiled = compile(load(tmp_path / f"{name}.pb"), "trn2")
        for (output,) in compiled.run_ranks([[x]] * 4):
            np.testing.assert_allclose(output, wanted, rtol=1e-6, err_msg=name)


def test_what_jax_has_partitioned_gives_what_it_gives_on_devices(tmp_path: Path) -> None:
    pytest.importorskip("jax", reason="jax is not installed (pip install 'opennki[jax]')")
    subprocess.run([sys.executable, "-c", PARTITIONED, str(tmp_path)], check=True)
    with np.load(tmp_path / "outputs.npz") as stored:
        x, w, expected = (stored[name] for name in ("x", "w", "output"))
    compiled = compile(load(tmp_path / "partitioned.pb"), "trn2")
    for (output,) in compiled.run_ranks([[x[:2], w], [x[2:], w]]):
        np.testing.assert_allclose(output, expected, rtol=1e-5)


def test_the_runtime_runs_a_rank_on_each_core(tmp_path: Path, monkeypatch: Any) -> None:
    """As the SDK's binding does it, with the ranks in threads; then with one that stays away."""
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    monkeypatch.setenv("NEURON_RT_EXEC_TIMEOUT", "1")
    nrtpy.reset()
    path = tmp_path / "loop.neff"
    compile(parse_text(LOOP), "trn2").save(path)
    models = [
        nrtpy.NrtpyModel.load_from_neff(path, core_id=r, cc_enabled=True, rank_id=r, world_size=2)
        for r in range(2)
    ]
    (name,) = models[0].input_tensors_info

    def run(rank: int) -> list[float]:
        x = nrtpy.NrtpyTensor.from_numpy(np.full(4, rank + 1, np.float32), name, rank)
        (output,) = models[rank]({name: x}).values()
        return output.numpy().tolist()

    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(run, range(2))) == [[48.0] * 4] * 2
        assert list(threads.map(run, range(2))) == [[48.0] * 4] * 2
    with pytest.raises(nrtpy.NrtError) as caught:
        run(0)
    assert caught.value.status_code.name == "NRT_EXEC_HW_ERR_COLLECTIVES"
    with pytest.raises(nrtpy.NrtError) as caught:
        nrtpy.NrtpyModel.load_from_neff(path, cc_enabled=True, rank_id=2, world_size=2)
    assert caught.value.status_code.name == "NRT_INVALID"
    nrtpy.reset()


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("f32[4] all-reduce(x), replica_groups={{0,1},{1,2}}, to_apply=add", "hlo-invalid"),
        ("f32[8] all-gather(x), replica_groups={{0,1},{2}}, dimensions={0}", "hlo-invalid"),
        ("f32[4] collective-permute(x), source_target_pairs={{0,-5}}", "hlo-invalid"),
        ("f32[4] collective-permute(x), source_target_pairs={{0,1234567}}", "hlo-too-large"),
        (
            "f32[4000000] all-gather(x), replica_groups=[1,1000000]<=[1000000], dimensions={0}",
            "hlo-too-large",
        ),
        (
            "f32[4] all-reduce(x), replica_groups=[1,4096]<=[4096], to_apply=add",
            "hlo-too-large",
        ),
    ],
)
def test_groups_that_cannot_be_are_refused(line: str, code: str) -> None:
    with pytest.raises(NeuronError) as caught:
        compile(module_of(f"  ROOT r = {line}", "f32[4]"), "trn2")
    assert caught.value.code == code and "`r`" in caught.value.what
