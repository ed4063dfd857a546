"""Times of nodes by the event model, and what bounds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.target import TARGETS
from nki.passes.order.modelled import _measured
from simulator.timing import simulate


@pytest.mark.parametrize("part", [(128, 32), (32, 128)])
def test_products_in_parts_of_the_array_are_work_of_the_engine(part: tuple[int, int]) -> None:
    """They come before the first product that takes all of it."""

    @nki.jit(platform_target="trn2")
    def kernel(a: Any, b: Any) -> Any:
        left, right = nl.load(a), nl.load(b)
        rows, columns = part
        for _ in range(24):
            bank = nl.ndarray((columns, 512), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(
                bank,
                left[:rows, :columns],
                right[:rows],
                tile_position=(0, 0),
                tile_size=part,
            )
        last = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(last, left, right)
        out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=nl.copy(last))
        return out

    given = np.ones((128, 128), np.float32), np.ones((128, 512), np.float32)
    program = nki.compile(kernel, *given).program
    found = _measured(simulate(program, keep_path=False), TARGETS["trn2"])
    assert found.busiest_ns <= found.least_ns <= found.total_ns * (1 + 1e-9)
