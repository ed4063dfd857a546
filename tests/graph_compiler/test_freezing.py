"""Graphs in what jax and torch hand out; parameters made constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, execute, freeze, load, parse_text, verify
from graph_compiler.frontends.extras import require
from isa.errors import NeuronError

DOT = """HloModule product, input_output_alias={ {0}: (2, {}, may-alias), {1}: (1, {}, may-alias) }
ENTRY e {
  x = f32[4,8] parameter(0)
  w = f32[8,4] parameter(1)
  s = f32[4,4] parameter(2)
  d = f32[4,4] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[4,4] add(d, s)
  ROOT r = (f32[4,4], f32[8,4]) tuple(t, w)
}"""


def arguments() -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    shapes = (4, 8), (8, 4), (4, 4)
    return tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)


@pytest.mark.parametrize("key", [1, "w"])
def test_a_parameter_becomes_a_constant(key: int | str) -> None:
    x, w, s = arguments()
    module = parse_text(DOT)
    frozen = freeze(module, {key: w})
    verify(frozen)
    assert [(p.name, p.parameter_number) for p in frozen.parameters] == [("x", 0), ("s", 1)]
    assert [e.parameter_number for e in frozen.attributes["input_output_alias"].entries] == [1]
    for found in (execute(frozen, x, s), compile(frozen, "trn2")(x, s)):
        np.testing.assert_allclose(found[0], x @ w + s, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[1], w)
    assert len(module.parameters) == 3  # the graph itself stays


def test_weights_come_first() -> None:
    x, w, s = arguments()
    frozen = freeze(parse_text(DOT), [x, w])
    np.testing.assert_allclose(execute(frozen, s)[0], x @ w + s, rtol=1e-5, atol=1e-5)


def test_constants_are_cast_when_the_graph_is_compiled() -> None:
    w = arguments()[1]
    options = GraphOptions(auto_cast="matmult")
    program = compile(freeze(parse_text(DOT), {"w": w}), "trn2", options).kernel.program
    held = [tensor for tensor in program.tensors if tensor.role == "constant"]
    assert "bfloat16" in {tensor.dtype for tensor in held}


@pytest.mark.parametrize(
    "weights", [{"v": np.ones(1)}, {1: np.ones((8, 4))}, {3: 1}, [np.ones((8, 4), np.float32)]]
)
def test_weights_that_do_not_fit(weights: Any) -> None:
    with pytest.raises(NeuronError) as caught:
        freeze(parse_text(DOT), weights)
    assert caught.value.code == "input-mismatch"


def test_what_jax_hands_out() -> None:
    jax = pytest.importorskip("jax", reason="jax is not installed")
    pytest.importorskip("jax.export", reason="jax has no export")
    x, w, _ = arguments()

    def function(x: Any, w: Any) -> Any:
        return jax.numpy.tanh(x @ w)

    jitted = jax.jit(function)
    for source in (jitted.lower(x, w), jax.export.export(jitted)(x, w)):
        np.testing.assert_allclose(execute(load(source), x, w)[0], function(x, w), rtol=1e-5)


def test_what_torch_hands_out() -> None:
    pytest.importorskip("jax", reason="jax is not installed", exc_type=ImportError)
    torch = pytest.importorskip("torch", reason="torch is not installed", exc_type=ImportError)
    try:
        require("torchax.export", "torch", "a test")
    except NeuronError as error:  # torchax does not know each torch
        pytest.skip(error.what)
    layer = torch.nn.Linear(8, 4)
    x = torch.randn(2, 8)
    module = load(torch.export.export(layer, (x,)))
    (found,) = execute(module, x.numpy())
    np.testing.assert_allclose(found, layer(x).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_what_nobody_hands_out() -> None:
    with pytest.raises(NeuronError) as caught:
        load(3.5)
    assert caught.value.code == "argument-kind"
