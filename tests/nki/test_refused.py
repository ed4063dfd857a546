"""What Python does with numbers, and a tensor refuses with the function to call."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import nki
import nki.language as nl
from isa.errors import NeuronError


def refused(use) -> NeuronError:
    """The error of a kernel that uses a tile in this way."""

    @nki.jit
    def kernel(a):
        use(nl.load(a))

    with pytest.raises(NeuronError) as caught:
        kernel(np.ones((2, 2), np.float32))
    assert caught.value.code == "not-supported"
    return caught.value


@pytest.mark.parametrize(
    ("use", "function"),
    [
        (lambda t: t - 1, "nl.subtract(t, 1)"),
        (lambda t: t @ t, "nl.matmul(t, t)"),
        (lambda t: ~t, "nl.invert(t)"),
        (lambda t: t < 3, "nl.less(t, 3)"),
        (lambda t: np.exp(t), "nl.exp"),
        (lambda t: np.amax(t), "nl.max"),
        (lambda t: np.linalg.norm(t), ""),
    ],
)
def test_the_hint_names_the_function_with_the_operands(use, function: str) -> None:
    assert function in refused(use).hint


def test_functions_that_are_named_exist() -> None:
    from nki.ir.views import refused as module

    tables = (module._FUNCTIONS, module._UNARY, module._COMPARISONS)
    calls = [call for table in tables for _, call in table.values()]
    for call in calls:
        for name in call.replace("nl.", " nl.").replace("(", " ").split():
            if name.startswith("nl."):
                assert hasattr(nl, name[3:]), call
    assert all(hasattr(nl, name) for name in module._SHARED if name in nl.__all__)


def test_a_tensor_stays_as_it_is() -> None:
    def assigned(tile):
        tile.shape = (4,)

    def deleted(tile):
        del tile.dtype

    def cut(tile):
        del tile[0]

    assert "reshape" in refused(assigned).hint
    assert "nl.copy(tile, dtype=dtype)" in refused(deleted).hint
    assert "tile[start:stop]" in refused(cut).hint
    assert "save(path)" in refused(pickle.dumps).hint


def test_copies_are_the_view_itself() -> None:
    seen = []

    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        seen.extend([copy.copy(tile) is tile, copy.deepcopy([tile])[0] is tile, bool(tile)])

    kernel(np.ones((2, 2), np.float32))
    assert seen == [True, True, True]
