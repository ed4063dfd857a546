"""Programs of rows that go along partitions: native code runs them, and queues them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from operation_checks import load, normal, sbuf, store

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.native.codegen.library import library

pytestmark = pytest.mark.skipif(library() is None, reason="there is no LLVM")

Array = np.ndarray[Any, Any]


@nki.jit
def rows(a: Any, b: Any) -> Any:
    x, y = load(a), load(b)
    partitions, count = a.shape
    total, running = sbuf(a.shape, nl.float32), sbuf(a.shape, nl.float32)
    nisa.tensor_tensor_scan(total, x, y, 0.5, nl.multiply, nl.add)
    nisa.tensor_scalar_cumulative(running, total, nl.multiply, nl.maximum, 2.0)
    six, two = sbuf((partitions, 6), nl.float32), sbuf((partitions, 2), nl.float32)
    nisa.bn_stats(six, x)
    nisa.bn_aggr(two, six)
    largest, places = sbuf((partitions, 8), nl.float32), sbuf((partitions, 8), nl.uint32)
    nisa.max8(largest, y)
    nisa.nc_find_index8(places, y, largest)
    replaced, causal = sbuf(a.shape, nl.float32), sbuf(a.shape, nl.float32)
    nisa.nc_match_replace8(replaced, y, largest, -1.0)
    nisa.affine_select(causal, [[-1, count]], 0, x, -9.0, cmp_op=nl.greater_equal, offset=40)
    nisa.affine_select(causal, [[1, count]], -1, causal, -9.0, cmp_op=nl.less, offset=50)
    numbers = sbuf(a.shape, nl.float32)
    nisa.iota(numbers, [[-2, count]], 7, -3)
    ranged, maximum = sbuf(a.shape, nl.float32), sbuf((partitions, 1), nl.float32)
    nisa.range_select(
        ranged,
        x,
        nl.greater_equal,
        nl.less,
        two[:, 0:1],
        six[:, 0:1],
        range_start=-1,
        reduce_res=maximum,
    )
    dropped = sbuf(a.shape, nl.float32)
    nisa.dropout(dropped, x, 0.25)
    every = (total, running, six, two, largest, places, replaced, causal, numbers, ranged, maximum)
    return tuple(store(tile) for tile in (*every, dropped))


@nki.jit
def selected(a: Any, b: Any) -> Any:
    """Without reductions, which leave the registers undefined."""
    x, mask = load(a), sbuf(a.shape, nl.uint8)
    nisa.tensor_scalar(mask, load(b), nl.greater, 0.0)
    result = sbuf(a.shape, nl.float32)
    nisa.select_reduce(result, mask, x, -1.0)
    return (store(result),)


@pytest.mark.parametrize("kernel", [rows, selected])
def test_python_executes_none_of_them(kernel: Any, alone: Any) -> None:
    alone(kernel, normal(1, (128, 96)), normal(2, (128, 96)))
