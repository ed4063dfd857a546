"""What an operation returns is no tensor, and says so."""

from __future__ import annotations

import copy

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


def refused(use) -> NeuronError:
    """The error of a kernel that uses what nisa.tensor_copy returns."""

    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        use(nisa.tensor_copy(dst=tile, src=tile), tile)

    with pytest.raises(NeuronError) as caught:
        kernel(np.ones((1, 2), np.float32))
    return caught.value


@pytest.mark.parametrize(
    "use",
    [
        lambda made, tile: made + 1,
        lambda made, tile: 2 * made,
        lambda made, tile: made[0:1, :],
        lambda made, tile: -made,
        lambda made, tile: len(made),
        lambda made, tile: float(made),
        lambda made, tile: bool(made),
        lambda made, tile: [*made],
    ],
)
def test_it_cannot_be_computed_with(use) -> None:
    error = refused(use)
    assert error.code == "not-a-tensor" and "nisa.tensor_copy" in error.what
    assert error.hint == "Use the tensor that was passed as dst."


def test_it_has_no_attributes_of_tensors() -> None:
    error = refused(lambda made, tile: made.shape)
    assert error.code == "unknown-name" and "shape of what nisa.tensor_copy returns" in error.what


def test_it_can_be_shown_copied_and_compared() -> None:
    seen = []

    @nki.jit
    def kernel(a):
        tile = nl.load(a)
        made = nisa.tensor_copy(dst=tile, src=tile)
        seen.extend([repr(made), made == made, copy.copy(made) is not None, hash(made) is not None])

    kernel(np.ones((1, 2), np.float32))
    assert seen == ["<what nisa.tensor_copy returns>", True, True, True]
