"""What-ifs of published kernels."""

from __future__ import annotations

import pytest
from timing_programs import matmul_hoisted_loads, matmul_loads_inside

from simulator.timing import simulate


def test_published_kernels_in_full():
    for one in (matmul_loads_inside(4, 16), matmul_hoisted_loads(1, 4, 16)):
        timeline = simulate(one)
        assert sum(timeline.critical.spent.values()) == pytest.approx(timeline.total_ns)
