"""PyTorch modules in: the graph computes what torch computes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import graph_compiler
import nki
import nki.language as nl
from graph_compiler.frontends import torch as from_torch
from graph_compiler.frontends.extras import require
from isa.errors import NeuronError


@pytest.fixture
def torch() -> Any:
    pytest.importorskip("jax", exc_type=ImportError)
    try:
        require("torchax.export", "torch", "a test")
    except NeuronError as error:  # torchax does not know each torch
        pytest.skip(error.what)
    return require("torch", "torch", "a test")


def test_a_module_becomes_a_graph_and_its_weights(torch: Any) -> None:
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 4, 3, padding=1)
            self.norm = torch.nn.BatchNorm2d(4)
            self.encoder = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.head = torch.nn.Linear(64, 5)

        def forward(self, image: Any, words: Any) -> Any:
            features = torch.relu(self.norm(self.convolution(image))).flatten(1)
            return self.head(features), self.encoder(words)

    torch.manual_seed(0)
    network = Network().eval()
    arguments = (torch.randn(2, 3, 4, 4), torch.randn(2, 6, 16))
    module, weights = from_torch.trace(network, *arguments)
    inputs = [argument.numpy() for argument in arguments]
    outputs = graph_compiler.evaluate(module, *weights, *inputs)
    with torch.no_grad():
        expected = [output.numpy() for output in network(*arguments)]
    assert [output.shape for output in outputs] == [(2, 5), (2, 6, 16)]
    for output, wanted in zip(outputs, expected):
        np.testing.assert_allclose(output, wanted, rtol=1e-4, atol=1e-5)


@nki.jit
def scaled(a: Any, b: Any, factor: float = 2.0) -> Any:
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.add(nl.load(a), nl.load(b)), factor))
    return out


@nki.jit
def halves(a: Any) -> Any:
    """Two results of other shapes."""
    columns = a.shape[1] // 2
    parts = [
        nl.ndarray((a.shape[0], columns), dtype=a.dtype, buffer=nl.shared_hbm) for _ in range(2)
    ]
    for number, part in enumerate(parts):
        nl.store(part, nl.load(a[:, number * columns : (number + 1) * columns]))
    return tuple(parts)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_kernels_in_a_module_are_exported_lowered_compiled_and_run(torch: Any, target: str) -> None:
    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = torch.nn.Linear(16, 32)

        def forward(self, x: Any, y: Any) -> Any:
            hidden = scaled(torch.relu(self.up(x)), y, 3.0)
            for _ in range(2):
                hidden = scaled(torch.tanh(hidden), y)
            left, right = halves(hidden)
            return (left - right).sum(1), hidden.to(torch.bfloat16)

    torch.manual_seed(0)
    network = Network().eval()
    x, y = torch.randn(8, 16), torch.randn(8, 32)
    exported = torch.export.export(network, (x, y))
    with torch.no_grad():
        hidden = 3 * (torch.relu(network.up(x)) + y)
        for _ in range(2):
            hidden = 2 * (torch.tanh(hidden) + y)
        expected = (hidden[:, :16] - hidden[:, 16:]).sum(1)
        torch.testing.assert_close(exported.module()(x, y)[0], expected)
    module = graph_compiler.load(exported)
    assert len(module.kernels) == 4
    found, rounded = graph_compiler.compile(module, target)(x.numpy(), y.numpy())
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-5, atol=1e-5)
    wanted = hidden.to(torch.bfloat16).float().numpy()
    np.testing.assert_allclose(rounded.astype(np.float32), wanted, rtol=1e-2)


def test_a_kernel_that_writes_to_an_argument_is_refused_in_an_export(torch: Any) -> None:
    @nki.jit
    def cleared(a: Any) -> None:
        nl.store(a, nl.zeros(a.shape, dtype=a.dtype, buffer=nl.sbuf))

    class Network(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            cleared(x)
            return x + 1

    with pytest.raises(NeuronError) as caught:
        torch.export.export(Network(), (torch.ones(2, 3),))
    assert caught.value.code == "input-mismatch"


def assert_agrees(torch: Any, module: Any, *arguments: Any, **keywords: Any) -> None:
    """A module, and its export, give as graphs what torch gives; inputs are tensors of torch."""
    leaves = torch.utils._pytree.tree_leaves((arguments, keywords))
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*arguments, **keywords))
    graph, weights = from_torch.trace(module, *arguments, **keywords)
    exported = graph_compiler.load(torch.export.export(module, arguments, keywords))
    for found in (
        graph_compiler.evaluate(graph, *weights, *inputs),
        graph_compiler.evaluate(exported, *inputs),
    ):
        for output, tensor in zip(found, wanted, strict=True):
            expected = np.asarray(torch.as_tensor(tensor).float())
            np.testing.assert_allclose(output.astype(np.float32), expected, rtol=1e-2, atol=1e-5)


def test_arguments_come_in_the_order_of_torch_whatever_they_are_in(torch: Any) -> None:
    """jax sorts the keys of dicts, torch keeps their order; numbers are constants."""

    class Network(torch.nn.Module):
        def forward(self, pair: Any, number: int, *, bias: Any, scale: Any) -> Any:
            return {"first": pair["b"] - 2 * pair["a"] * number, "last": bias - 5 * scale}

    b, a = torch.ones(3), torch.arange(3.0)
    assert_agrees(torch, Network(), {"b": b, "a": a}, 3, bias=a, scale=b)
    assert_agrees(torch, Network(), {"a": a, "b": b}, 3, scale=b, bias=a)


def test_tensors_of_bfloat16_are_inputs(torch: Any) -> None:
    torch.manual_seed(0)
    assert_agrees(torch, torch.nn.Linear(8, 4).to(torch.bfloat16), torch.randn(3, 8).bfloat16())


def test_what_follows_attention_may_view_its_result(torch: Any) -> None:
    """As GPT-2 does; a decomposition of attention gives the result in other strides."""

    class Network(torch.nn.Module):
        def forward(self, q: Any, k: Any, v: Any) -> Any:
            heads = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            rows = heads.transpose(1, 2).reshape(2, 5, -1).contiguous()
            return rows.view(-1, rows.shape[-1])

    assert_agrees(torch, Network(), *(torch.randn(2, 4, 5, 8) for _ in "qkv"))


def test_parameters_have_the_names_of_the_module(torch: Any) -> None:
    graph, _ = from_torch.trace(torch.nn.Sequential(torch.nn.Linear(8, 4)), torch.ones(3, 8))
    assert [one.name for one in graph.parameters] == ["0.weight", "0.bias", "input"]


def test_an_operator_that_torchax_does_not_know_is_named_with_its_line(torch: Any) -> None:
    schema = "(Tensor x) -> Tensor"
    double = torch.library.custom_op(
        "strangers::doubled", lambda x: x * 2, mutates_args=(), schema=schema
    )
    double.register_fake(torch.empty_like)

    class Network(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return double(x) + 1

    with pytest.raises(NeuronError) as caught:
        from_torch.trace(Network(), torch.ones(3))
    assert caught.value.code == "hlo-not-supported"
    assert "strangers::doubled" in caught.value.what and "test_torch.py" in caught.value.what


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NeuronError) as caught:
        from_torch.trace(object())
    assert caught.value.code == "missing-extra"
    assert "pip install 'opennki[torch]'" in caught.value.hint
