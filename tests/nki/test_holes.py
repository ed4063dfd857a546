"""The kernels of `holes.py`: every mode refuses them, with one code, at the line of the kernel."""

import warnings

import numpy as np
import pytest
from holes import HOLES
from test_mistakes import line_of

import nki

A = np.random.default_rng(0).uniform(-1, 1, (128, 64)).astype(np.float32)
B = np.ascontiguousarray(A.T)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("name", HOLES)
def test_nothing_passes_in_silence(name, mode):
    hole = HOLES[name]
    kernel = nki.jit(hole.kernel, target="trn2")[hole.cores]
    with warnings.catch_warnings(), pytest.raises(nki.NeuronError) as caught:
        warnings.simplefilter("ignore")
        nki.simulate(kernel, mode=mode)(A.copy(), B.copy())
    place = f"{hole.kernel.__code__.co_filename}:{line_of(hole.kernel)}"
    assert (caught.value.code, place in str(caught.value)) == (hole.code, True), caught.value
