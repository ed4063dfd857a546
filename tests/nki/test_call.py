"""The arguments of a kernel."""

import dataclasses

import numpy as np
import pytest

import nki
import nki.language as nl
from isa.target import resolve
from nki.trace.call import arrays_in, bind_arguments
from nki.trace.tracer import trace


def test_arguments_that_are_no_tensors_pass_through():
    @dataclasses.dataclass
    class Options:
        weights: list
        scale: float = 2.0
        bias: np.ndarray | None = None

    class Config(nl.NKIObject):
        pass

    seen = {}

    def kernel(a, options, config, *rest, flag=None, table=None):
        seen.update(locals())

    arguments = bind_arguments(
        kernel,
        (
            np.zeros((4, 2), np.float32),
            Options([np.zeros(3, np.int8), 5]),
            Config(bias=nki.TensorSpec((7,), "int32"), mode=nl.exp),
            1,
            "two",
        ),
        {"table": {"k": np.zeros((1, 1), np.float16)}},
    )
    traced_kernel = trace(kernel, arguments, resolve("trn2"))
    assert traced_kernel.parameter_names == [
        "a",
        "options.weights[0]",
        "config.bias",
        "table['k']",
    ]
    assert [t.dtype for t in traced_kernel.parameters] == ["float32", "int8", "int32", "float16"]
    assert [t.shape for t in traced_kernel.parameters] == [(4, 2), (3,), (7,), (1, 1)]
    assert seen["options"].weights[1] == 5 and seen["options"].scale == 2.0
    assert seen["options"].weights[0].shape == (3,) and seen["config"].mode is nl.exp
    assert seen["rest"] == (1, "two") and seen["flag"] is None
    assert [a.shape for a in arrays_in(arguments)] == [(4, 2), (3,), (1, 1)]
    with pytest.raises(nki.NeuronError) as caught:
        bind_arguments(kernel, (1,), {"flags": 3})
    assert caught.value.code == "missing-argument" or "flag" in caught.value.hint
