"""PyTorch modules in: the graph computes what torch computes."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import graph_compiler
from graph_compiler.frontends import torch as from_torch
from isa.errors import NeuronError


@pytest.fixture
def torch() -> Any:
    pytest.importorskip("jax", exc_type=ImportError)
    found = pytest.importorskip("torch", exc_type=ImportError)
    pytest.importorskip("torchax", exc_type=ImportError)
    return found


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


def test_a_missing_library_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(NeuronError) as caught:
        from_torch.trace(object())
    assert caught.value.code == "missing-extra"
    assert "pip install 'opennki[torch]'" in caught.value.hint
