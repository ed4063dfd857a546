"""Modules that public pages and frameworks import: some work, the rest say what to use instead."""

import importlib
import re

import pytest

import nki

ABSENT = {
    "nki.framework": "JAX",
    "nki.framework.kernel": "PyTorch",
    "nki.runtime": "nki.load",
    "nki.compiler.target": "NEURON_PLATFORM_TARGET_OVERRIDE",
    "nki.compiler.backends.neuron.FrameworkKernel": "nki.compile",
    "nki.compiler._internal": "frontend",
    "nki.experimental.while_loop": "nl.while_loop",
}


@pytest.mark.parametrize("name", ABSENT)
def test_an_absent_module_says_what_to_use(name):
    with pytest.raises(ModuleNotFoundError, match="NKI0699 not-supported") as caught:
        importlib.import_module(name)
    assert isinstance(caught.value, nki.NeuronError)
    assert ABSENT[name] in caught.value.hint and ABSENT[name] in str(caught.value)


def test_an_absent_module_by_from():
    with pytest.raises(nki.NeuronError, match=r"nki\.runtime"):
        from nki import runtime  # noqa: F401
    with pytest.raises(ImportError, match="nothing"):
        from nki import nothing  # noqa: F401


@pytest.mark.parametrize(
    ("module", "name", "instead"),
    [
        ("nki", "baremetal", "nki.jit"),
        ("nki.language", "par_dim", "partition dimension"),
        ("nki.language", "spmd_dim", r"kernel\[2\]"),
        ("nki.isa", "tensor_copy_dynamic_src", "nki.isa.tensor_copy .*scalar_offset"),
        ("nki.compiler", "sbuf", "address="),
        ("nki.kernels", "attention", "nki-library"),
    ],
)
def test_a_name_that_is_gone_by_from(module, name, instead):
    with pytest.raises(ImportError, match="is not part of this API") as caught:
        exec(f"from {module} import {name}", {})
    assert re.search(instead, caught.value.hint)


@pytest.mark.parametrize("name", ["framework", "runtime"])
def test_an_absent_module_as_an_attribute(name):
    with pytest.raises(AttributeError, match=r"has no attribute .*: [A-Z]"):
        getattr(nki, name)
