"""NKI kernels that graphs call, compiled with them for a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conformance_models import FORMS, MODELS, inputs_of, models
from test_conformance_models import close, gelu, normalised

import graph_compiler
import nki
import nki.language as nl
from graph_compiler.kernels import TARGET, configuration
from isa.errors import NeuronError

Array = np.ndarray[Any, Any]


@nki.jit
def rmsnorm_kernel(x: Any, w: Any) -> Any:
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    weights = nl.load(w.reshape((1, w.shape[0])))
    total = nl.sum(nl.multiply(tile, tile), axis=1, keepdims=True)
    scale = nl.rsqrt(nl.add(nl.multiply(total, 1.0 / x.shape[1]), 1e-6))
    nl.store(out, nl.multiply(nl.multiply(tile, scale), nl.broadcast_to(weights, tile.shape)))
    return out


@nki.jit
def raised(a: Any, by: float = 1.0) -> Any:
    """Adds in place."""
    nl.store(a, nl.add(nl.load(a), by))
    return a


@nki.jit
def split(a: Any) -> Any:
    """Two results."""
    tile = nl.load(a)
    outs = [nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    nl.store(outs[0], nl.multiply(tile, 2.0))
    nl.store(outs[1], nl.negative(tile))
    return tuple(outs)


def graph(name: str, result: str, *lines: str) -> graph_compiler.Module:
    """x, `y` computed from it, and a kernel called as `k`; the last line is the root."""
    config = configuration(name, "trn2", ["a"], ["out"])
    call = f'k = {result} custom-call(y), custom_call_target="{TARGET}", backend_config="{config}"'
    body = ["x = f32[4,6] parameter(0)", "y = f32[4,6] multiply(x, x)", call, *lines]
    return graph_compiler.parse_text("HloModule m\nENTRY e {\n" + "\n".join(body) + "\n}")


@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize(("target", "cores"), FORMS)
def test_a_model_with_a_kernel_agrees_with_numpy(target: str, cores: int, level: int) -> None:
    model = models()["nki_customcall_block"]
    x, weight, down = inputs_of(model)
    module = graph_compiler.load(model.path)
    options = graph_compiler.GraphOptions(optimisation=level, logical_cores=cores)
    kernels = {"rmsnorm_kernel": rmsnorm_kernel}
    compiled = graph_compiler.compile(module, target, options, kernels=kernels)
    (output,) = compiled(x, weight, down)
    expected = gelu((normalised(x, 1e-6) * weight) @ down)
    assert close(output, expected, model.tolerance) == ""


def test_what_a_kernel_writes_in_place_stays_as_it_was_for_others() -> None:
    module = graph("raised", "f32[4,6]", "ROOT r = f32[4,6] subtract(k, y)")
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    (found,) = graph_compiler.compile(module, "trn2", kernels={"raised": raised})(x)
    assert np.array_equal(found, np.ones((4, 6), np.float32))


def test_a_kernel_gives_several_results() -> None:
    module = graph(
        "split",
        "(f32[4,6], f32[4,6])",
        "a = f32[4,6] get-tuple-element(k), index=0",
        "b = f32[4,6] get-tuple-element(k), index=1",
        "ROOT r = f32[4,6] add(a, b)",
    )
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    (found,) = graph_compiler.compile(module, "trn2", kernels={"split": split})(x)
    assert np.array_equal(found, x * x)


def test_a_kernel_that_was_not_given_is_named_with_its_call() -> None:
    module = graph("raisd", "f32[4,6]", "ROOT r = f32[4,6] add(k, y)")
    with pytest.raises(NeuronError, match="custom-call `k`") as caught:
        graph_compiler.compile(module, "trn2", kernels={"raised": raised})
    assert caught.value.code == "hlo-unknown-kernel"
    assert "raised" in caught.value.hint


def test_a_kernel_must_give_what_the_graph_states() -> None:
    module = graph("raised", "f32[6,4]", "ROOT r = f32[6,4] add(k, k)")
    with pytest.raises(NeuronError, match="custom-call `k`") as caught:
        graph_compiler.compile(module, "trn2", kernels={"raised": raised})
    assert caught.value.code == "hlo-shape-mismatch"


@pytest.mark.parametrize("config", ["", "no base64!", "bnVsbA==", "e30="])
def test_a_call_that_names_no_kernel_is_refused(config: str) -> None:
    text = (
        "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n ROOT r = f32[2] custom-call(x), "
        f'custom_call_target="{TARGET}", backend_config="{config}"\n}}'
    )
    with pytest.raises(NeuronError, match="custom-call `r`") as caught:
        graph_compiler.compile(graph_compiler.parse_text(text), "trn2", kernels={"k": raised})
    assert caught.value.code == "hlo-invalid"


def test_kernels_in_a_loop_of_a_jax_function_give_what_jax_gives() -> None:
    jax = pytest.importorskip("jax")
    from graph_compiler.frontends.jax import trace

    def function(x: Any, w: Any) -> Any:
        y = jax.lax.fori_loop(0, 3, lambda i, c: rmsnorm_kernel(c, w) * 2, x)
        z = raised(y, by=2.5)
        return y + z, raised(z)

    rng = np.random.default_rng(7)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((64, 32), (32,)))
    expected = jax.jit(function)(x, w)
    module = trace(function, x, w)
    assert sorted(module.kernels) == ["raised", "raised.1", "rmsnorm_kernel"]
    found = graph_compiler.compile(module, "trn2")(x, w)
    for one, other in zip(found, expected):
        assert np.array_equal(one, np.asarray(other))
    assert np.array_equal(np.asarray(jax.jit(function)(x, w)[0]), np.asarray(expected[0]))
