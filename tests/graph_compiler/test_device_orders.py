"""What is never slower than what, by the timing model: more effort than less, two cores than one,
kernels inside a graph than apart, layers in a loop than one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from on_device import modelled_ns

import graph_compiler
import nki
import nki.language as nl
from graph_compiler import GraphOptions, Module, parse_text
from graph_compiler.kernels import TARGET, configuration
from graph_compiler.lower import rewritten

FOLDS = """plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
"""

PRODUCT = """ x = bf16[300,512] parameter(0)
 w = bf16[512,768] parameter(1)
 ROOT r = bf16[300,768] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""

ATTENTION = """ q = f32[4,128,64] parameter(0)
 k = f32[4,128,64] parameter(1)
 v = f32[4,128,64] parameter(2)
 s = f32[4,128,128] dot(q, k), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2},
  rhs_contracting_dims={2}
 least = f32[] constant(-inf)
 zero = f32[] constant(0)
 m = f32[4,128] reduce(s, least), dimensions={2}, to_apply=larger
 ms = f32[4,128,128] broadcast(m), dimensions={0,1}
 d = f32[4,128,128] subtract(s, ms)
 e = f32[4,128,128] exponential(d)
 t = f32[4,128] reduce(e, zero), dimensions={2}, to_apply=plus
 ts = f32[4,128,128] broadcast(t), dimensions={0,1}
 p = f32[4,128,128] divide(e, ts)
 ROOT r = f32[4,128,64] dot(p, v), lhs_batch_dims={0}, rhs_batch_dims={0},
  lhs_contracting_dims={2}, rhs_contracting_dims={1}"""

SUMS = """ x = f32[700,900] parameter(0)
 zero = f32[] constant(0)
 ROOT s = f32[900] reduce(x, zero), dimensions={0}, to_apply=plus"""

LAYERS = 4

FUNCTIONS = ("tanh", "logistic", "negate", "abs", "erf")


def layers(count: int, rows: int = 128, size: int = 256) -> str:
    """Products with a weight and a bias each, and a function between them."""
    row, weight, bias = f"f32[{rows},{size}]", f"f32[{size},{size}]", f"f32[{size}]"
    lines = [f" x0 = {row} parameter(0)"]
    for n in range(count):
        lines += [
            f" w{n} = {weight} parameter({1 + 2 * n})",
            f" b{n} = {bias} parameter({2 + 2 * n})",
            f" d{n} = {row} dot(x{n}, w{n}), lhs_contracting_dims={{1}},"
            " rhs_contracting_dims={0}",
            f" c{n} = {row} broadcast(b{n}), dimensions={{1}}",
            f" s{n} = {row} add(d{n}, c{n})",
            f" t{n} = {row} {FUNCTIONS[n % len(FUNCTIONS)]}(s{n})",
            f" x{n + 1} = {row} add(t{n}, x{n})",
        ]
    return "\n".join([*lines, f" ROOT r = {row} multiply(x{count}, x{count})"])


GRAPHS = {
    "product": PRODUCT,
    "attention": ATTENTION,
    "sums": SUMS,
    "layers": layers(LAYERS),
}


def module(body: str) -> Module:
    return parse_text(f"HloModule m\n{FOLDS}ENTRY e {{\n{body}\n}}")


def time(graph: Module, options: GraphOptions | None = None, **more: Any) -> float:
    return modelled_ns(graph_compiler.compile(graph, "trn2", options, **more))


@pytest.mark.parametrize("name", GRAPHS)
def test_more_effort_is_never_slower(name: str) -> None:
    graph = module(GRAPHS[name])
    times = [time(graph, GraphOptions(optimisation=level)) for level in (1, 2, 3)]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize("name", GRAPHS)
def test_two_cores_are_never_slower_than_one(name: str) -> None:
    graph = module(GRAPHS[name])
    one, two = (time(graph, GraphOptions(logical_cores=cores)) for cores in (1, 2))
    assert two <= one


def test_layers_in_a_loop_take_at_most_two_percent_more(monkeypatch: Any) -> None:
    graph = module(layers(6 * len(FUNCTIONS), size=512))
    rolled = graph_compiler.compile(graph, "trn2")
    assert rolled.notes.loops
    looped = time(graph)
    monkeypatch.setattr(rewritten, "roll", lambda block, kept: None)
    assert looped <= 1.02 * time(graph)


@nki.jit
def doubled(a: Any) -> Any:
    """Row by row, without the graph around it."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, a.shape[0], 128):
        nl.store(out[start : start + 128], nl.multiply(nl.load(a[start : start + 128]), 2.0))
    return out


@pytest.mark.parametrize("rows", [128, 512])
def test_a_kernel_in_a_graph_is_never_slower_than_apart(rows: int) -> None:
    """Apart, the graph before it, the kernel, and the graph behind it are programs one after
    another."""
    row = f"f32[{rows},256]"
    before = f" x = {row} parameter(0)\n ROOT y = {row} tanh(x)"
    behind = f" k = {row} parameter(0)\n ROOT r = {row} exponential(k)"
    config = configuration("doubled", "trn2", ["a"], ["out"])
    call = f'{row} custom-call(y), custom_call_target="{TARGET}", backend_config="{config}"'
    whole = f" x = {row} parameter(0)\n y = {row} tanh(x)\n k = {call}\n"
    whole += f" ROOT r = {row} exponential(k)"
    kernels = {"doubled": doubled}
    alone = time(module(f" y = {row} parameter(0)\n ROOT k = {call}"), kernels=kernels)
    fenced = time(module(before)) + alone + time(module(behind))
    assert time(module(whole), kernels=kernels) <= fenced
    x = np.linspace(-1, 1, rows * 256, dtype=np.float32).reshape(rows, 256)
    compiled = graph_compiler.compile(module(whole), "trn2", kernels=kernels)
    (found,) = compiled(x)
    np.testing.assert_allclose(found, np.exp(2 * np.tanh(x)), rtol=1e-4)
