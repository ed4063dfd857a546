"""Benchmarks against profiles."""

from __future__ import annotations

import numpy as np
import pytest
from tuned_kernels import A, shifted

import nki
import nki.isa as nisa
import nki.language as nl

pytestmark = pytest.mark.usefixtures("no_kept_times")


def test_a_benchmark_is_the_time_of_a_profile():
    found = nki.benchmark(shifted)(A, pieces=4)
    metrics = nki.profile(shifted)(A, pieces=4)[1]
    assert (found.total_ns, found.device_ns) == (metrics.total_ns, metrics.device_ns)
    assert found.hbm_bytes == 2 * A.nbytes


def test_a_kernel_whose_loop_depends_on_data_is_run():
    @nki.jit
    def repeated(a, count):
        tile, number = nl.load(a), nl.load(count)
        register = nisa.register_alloc(None)
        nisa.register_load(register, number)

        def body(_):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, register, body)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    def time(count):
        return nki.benchmark(repeated)(A, np.array([[count]], np.int32)).total_ns

    assert time(40) - time(20) == pytest.approx(time(20) - time(0), rel=0.1)
