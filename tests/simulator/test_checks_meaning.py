"""How marks pass through rows that state their meaning, whatever the dimensions of a view."""

from __future__ import annotations

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def chosen_from_half_a_tile(data, predicate):
    """dst [4, 2, 8] begins with half of it filled, and takes data where predicate is set."""
    dst = nl.ndarray((4, 2, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst[:, 0, :], 5.0)
    nisa.tensor_copy_predicated(dst=dst, src=nl.load(data), predicate=nl.load(predicate))
    out = nl.ndarray((4, 2, 8), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=dst)
    return out


def test_a_choice_into_three_dimensions_leaves_marks_of_its_elements():
    data = np.arange(64, dtype=np.float32).reshape(4, 2, 8)
    predicate = np.zeros((4, 2, 8), np.uint32)
    predicate[:, 1, :] = 1
    found = chosen_from_half_a_tile(data, predicate)
    assert (found[:, 0] == 5).all() and (found[:, 1] == data[:, 1]).all()
