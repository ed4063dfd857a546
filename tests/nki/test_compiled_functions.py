"""Kernels inside functions that torch.compile compiles give what they give outside of them."""

import traceback

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

torch = pytest.importorskip("torch")


@nki.jit
def doubled(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(nl.load(a), 2.0))
    return out


A = torch.arange(24, dtype=torch.float32).reshape(4, 6) / 8

CALLED = {
    "kernel": lambda: doubled,
    "simulate": lambda: nki.simulate(doubled),
    "eager": lambda: nki.simulate(doubled, mode="eager", backend="numpy"),
    "compiled": lambda: nki.compile(doubled, A),
}


@pytest.mark.parametrize("name", CALLED)
def test_a_kernel_splits_the_graph(name):
    called = CALLED[name]()
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=backend)
    def function(a):
        return torch.sin(called(a + 1.0)) * 3.0

    for a in (A, A + 1.0):
        np.testing.assert_array_equal(function(a), torch.sin((a + 1.0) * 2.0) * 3.0)
    assert len(graphs) == 2


def test_an_error_in_a_compiled_function_ends_at_the_kernels_line():
    @nki.jit
    def kernel(a):
        nisa.memset(a, 1.0)

    @torch.compile(backend="eager")
    def function(a):
        return kernel(a + 1.0)

    with pytest.raises(nki.NeuronError) as caught:
        function(A)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "kernel"
    with pytest.raises(nki.NeuronError, match="unknown-argument") as caught:
        kernel(A, b=A)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename == __file__
