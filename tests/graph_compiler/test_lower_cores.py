"""Graphs for the two cores of a logical core: the results, and that both have work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from random_graphs import seeded
from random_steps import random_graph
from run_random_graphs import compared

import graph_compiler
from graph_compiler import parse_text
from graph_compiler.command import main
from graph_compiler.lower.cores import cores
from graph_compiler.options import GraphOptions
from simulator.runtime import nrtpy

TWO = GraphOptions(logical_cores=2)


def compiled(text: str, options: GraphOptions = TWO) -> graph_compiler.Compiled:
    return graph_compiler.compile(parse_text(f"HloModule m\n{text}"), "trn2", options)


def work(program: graph_compiler.Compiled) -> list[int]:
    """Instructions of each core."""
    found = program.kernel.program.cores
    return [sum(len(stream) for stream in core.streams.values()) for core in found]


SOFTMAX = """larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e { x = f32[4000,700] parameter(0)
 least = f32[] constant(-inf)
 zero = f32[] constant(0)
 m = f32[4000] reduce(x, least), dimensions={1}, to_apply=larger
 ms = f32[4000,700] broadcast(m), dimensions={0}
 d = f32[4000,700] subtract(x, ms)
 y = f32[4000,700] exponential(d)
 s = f32[4000] reduce(y, zero), dimensions={1}, to_apply=plus
 ss = f32[4000,700] broadcast(s), dimensions={0}
 ROOT r = f32[4000,700] divide(y, ss) }"""


def test_rows_of_softmax_are_shared_out_without_a_barrier() -> None:
    x = np.random.default_rng(0).standard_normal((4000, 700), np.float32)
    program = compiled(SOFTMAX)
    (found,), profile = program.profile(x)
    exact = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, exact / exact.sum(1, keepdims=True), rtol=1e-5)
    assert "CoreBarrier" not in str(program.kernel.program)
    _, alone = compiled(SOFTMAX, GraphOptions()).profile(x)
    assert profile.total_ns < 0.6 * alone.total_ns


def test_columns_of_products_and_the_barrier_between_them() -> None:
    """The second product reads all columns of the first one, and few rows are not worth cutting."""
    program = compiled("""ENTRY e { x = f32[64,1024] parameter(0)
 y = f32[1024,4096] parameter(1)
 z = f32[4096,1024] parameter(2)
 h = f32[64,4096] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT r = f32[64,1024] dot(h, z), lhs_contracting_dims={1}, rhs_contracting_dims={0} }""")
    rng = np.random.default_rng(1)
    x, y, z = (
        rng.integers(-3, 4, shape).astype(np.float32)
        for shape in ((64, 1024), (1024, 4096), (4096, 1024))
    )
    (found,) = program(x, y, z)
    np.testing.assert_array_equal(found, (x @ y) @ z)
    one, other = work(program)
    assert 0.8 < one / other < 1.25


def test_what_is_not_worth_it_stays_on_one_core() -> None:
    program = compiled("ENTRY e { x = f32[6] parameter(0)\n ROOT r = f32[6] negate(x) }")
    np.testing.assert_array_equal(program(np.arange(6, dtype=np.float32))[0], -np.arange(6.0))
    one, other = work(program)
    assert one > other


def test_a_loop_that_both_cores_run() -> None:
    """Every trip needs what both cores made in the one before."""
    program = compiled("""body { s = (s32[], f32[1024,1024]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[1024,1024] get-tuple-element(s), index=1
 one = s32[] constant(1)
 next = s32[] add(i, one)
 t = f32[1024,1024] transpose(x), dimensions={1,0}
 y = f32[1024,1024] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 scale = f32[] constant(0.0009765625)
 scales = f32[1024,1024] broadcast(scale), dimensions={}
 z = f32[1024,1024] multiply(y, scales)
 ROOT r = (s32[], f32[1024,1024]) tuple(next, z) }
test { s = (s32[], f32[1024,1024]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(3)
 ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[1024,1024] parameter(0)
 zero = s32[] constant(0)
 s = (s32[], f32[1024,1024]) tuple(zero, x)
 w = (s32[], f32[1024,1024]) while(s), condition=test, body=body
 ROOT r = f32[1024,1024] get-tuple-element(w), index=1 }""")
    x = np.random.default_rng(2).standard_normal((1024, 1024), np.float32)
    exact = x.astype(np.float64)
    for _ in range(3):
        exact = exact @ exact.T / 1024
    np.testing.assert_allclose(program(x)[0], exact, rtol=1e-4, atol=1e-5)
    assert min(work(program)) > 100


def test_the_command_line_and_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "HloModule m\nENTRY e { x = f32[512,2048] parameter(0)\n ROOT r = f32[512,2048] tanh(x) }"
    )
    (tmp_path / "m.hlo").write_text(text)
    neff = tmp_path / "m.neff"
    words = ["compile", str(tmp_path / "m.hlo"), "--framework", "XLA", "--target", "trn2"]
    assert main([*words, "--lnc", "2", "--output", str(neff)]) == 0
    x = np.random.default_rng(3).standard_normal((512, 2048), np.float32)
    nrtpy.reset()
    model = nrtpy.NrtpyModel.load_from_neff(neff)
    (name,) = model.input_tensors_info
    outputs = model(inputs={name: nrtpy.NrtpyTensor.from_numpy(x, name=name)})
    assert outputs is not None
    (found,) = [tensor.numpy() for tensor in outputs.values()]
    nrtpy.reset()
    np.testing.assert_allclose(found, np.tanh(x.astype(np.float64)), atol=1e-6)


@pytest.mark.parametrize("seed", [*range(100, 110), 238])
def test_random_graphs_of_which_all_is_cut(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "BARRIER", 10.0)
    monkeypatch.setattr(cores, "LEAST", 0.0)
    target = ("trn2", "trn3")[seed % 2]
    assert compared(random_graph(seeded(seed)), target, TWO) == "agrees"
