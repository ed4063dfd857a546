"""Measurements in other processes and threads give the same times."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
from matmul_kernels import blocked

import nki
import nki.language as nl
from nki.tuning import stored_times

pytestmark = pytest.mark.usefixtures("no_kept_times")


@pytest.mark.parametrize("parallel", ["threads", "spawned processes"])
def test_any_executor_gives_the_same_times(parallel):
    expected = nki.sweep(blocked, {"block_m": [1, 2]}, processes=1)
    spec = nki.TensorSpec((512, 256), nl.float32), nki.TensorSpec((512, 1024), nl.float32)
    expected = expected(*spec).measurements
    stored_times._TIMES.clear()
    for file in stored_times.Cache(stored_times._version()).folder.iterdir():
        file.unlink()
    executor = (
        ThreadPoolExecutor(2)
        if parallel == "threads"
        else ProcessPoolExecutor(1, mp_context=get_context("spawn"))
    )
    with executor:
        found = nki.sweep(blocked, {"block_m": [1, 2]}, executor=executor)(*spec).measurements
    assert found == expected
