"""The dtype of results of operands of two dtypes."""

import numpy as np
from language_references import NUMPY, run

import nki.language as nl
from nki.language.lowering.promotion import promote


def test_promotion_and_dtype():
    x = np.array([[1, 2]], np.int16)
    half = np.array([[0.5, 0.25]], NUMPY["bfloat16"])
    assert run(nl.add, x, half).dtype == NUMPY["bfloat16"]
    assert run(nl.divide, x, x).dtype == np.float32
    assert run(lambda a: nl.add(a, 0.5), x).dtype == np.int16
    assert run(lambda a: nl.exp(a, nl.float16), x).dtype == np.float16
    assert run(lambda a: nl.less(a, 2, dtype=nl.uint8), x).tolist() == [[1, 0]]
    for one in NUMPY:
        for other in NUMPY:
            common = promote(one, other)
            assert common == promote(other, one)
            assert NUMPY[common].itemsize >= max(
                NUMPY[d].itemsize for d in (one, other) if NUMPY[d].kind == NUMPY[common].kind
            )
