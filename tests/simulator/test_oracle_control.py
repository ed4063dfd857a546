"""Registers to and from memory, and what uninitialised memory reads as."""

from __future__ import annotations

import numpy as np
from tiles import INTEGERS, empty

from simulator.numerics.conversion import load_fp32
from simulator.oracle import fill_sentinel, load_register, store_register
from simulator.views import dtype_name


def test_registers_and_sentinels() -> None:
    for dtype in ("int32", "uint32", "int8", "float32", "bfloat16"):
        view = empty(dtype, 1, 1)
        store_register(view, 100)
        assert load_register(view) == 100
    view = empty("uint32", 1, 1)
    store_register(view, -1)
    assert int(view[0, 0]) == 2**32 - 1 and load_register(view) == -1
    for dtype in ("float32", "bfloat16", "float8_e4m3", "float8_e5m2", "float8_e4m3fn", "tfloat32"):
        view = empty(dtype, 2, 3)
        fill_sentinel(view)
        assert dtype_name(view) == dtype and np.isnan(load_fp32(view)).all()
    for dtype in INTEGERS:
        view = empty(dtype, 2, 3)
        fill_sentinel(view)
        assert set(view.reshape(-1).tolist()) == {4}
