"""An operation on views of three dimensions does what it does on the same elements in two, also
where a part of them was never written: results, or the error and how many elements it counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError

P, A, B = 4, 2, 8
N = A * B


def column(value: float | None = None) -> Any:
    made = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    if value is not None:
        nisa.memset(made, value)
    return made


def range_select(dst: Any, a: Any, b: Any, predicate: Any) -> Any:
    result = column()
    nisa.range_select(
        dst=dst,
        on_true_tile=a,
        comp_op0=nl.greater_equal,
        comp_op1=nl.less,
        bound0=column(2.0),
        bound1=column(9.0),
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_res=result,
        reduce_op=nl.maximum,
        range_start=0,
        on_false_value=-3.4028235e38,
    )
    return result


def select_reduce(dst: Any, a: Any, b: Any, predicate: Any) -> Any:
    result = column()
    nisa.select_reduce(
        dst=dst,
        predicate=predicate,
        on_true=a,
        on_false=-3.0,
        reduce_res=result,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        reduce_op=nl.maximum,
    )
    return result


def affine_select(dst: Any, a: Any, b: Any, predicate: Any) -> None:
    nisa.affine_select(
        dst=dst,
        pattern=[[-B, A], [-1, B]] if len(dst.shape) == 3 else [[-1, N]],
        offset=10,
        channel_multiplier=1,
        on_true_tile=a,
        on_false_value=-2.0,
        cmp_op=nl.greater_equal,
    )


def activation_reduce(dst: Any, a: Any, b: Any, predicate: Any) -> Any:
    result = column()
    nisa.activation_reduce(dst=dst, op=nl.exp, data=a, reduce_op=nl.add, reduce_res=result)
    return result


def tensor_reduce(dst: Any, a: Any, b: Any, predicate: Any) -> Any:
    result = column()
    nisa.tensor_reduce(dst=result, data=a, op=nl.add, axis=tuple(range(1, len(a.shape))))
    return result


def max8(dst: Any, a: Any, b: Any, predicate: Any) -> Any:
    result = nl.ndarray((P, 8), dtype=nl.float32, buffer=nl.sbuf)
    nisa.max8(dst=result, src=a)
    return result


def nc_matmul(dst: Any, a: Any, b: Any, predicate: Any) -> Any:
    bank = nl.ndarray((N, N), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=bank.reshape((N, *a.shape[1:])), stationary=a, moving=b)
    return nl.copy(bank)


CASES: dict[str, Callable[..., Any]] = {
    "range_select": range_select,
    "range_select's elements": lambda *given: range_select(*given) and None,
    "select_reduce": select_reduce,
    "select_reduce's elements": lambda *given: select_reduce(*given) and None,
    "affine_select": affine_select,
    "activation_reduce": activation_reduce,
    "tensor_reduce": tensor_reduce,
    "max8": max8,
    "nc_matmul": nc_matmul,
    "tensor_copy": lambda dst, a, b, p: nisa.tensor_copy(dst=dst, src=a),
    "tensor_tensor": lambda dst, a, b, p: nisa.tensor_tensor(dst, a, b, op=nl.add),
    "tensor_copy_predicated": lambda dst, a, b, p: nisa.tensor_copy_predicated(
        dst=dst, src=a, predicate=p
    ),
    "tensor_tensor_scan": lambda dst, a, b, p: nisa.tensor_tensor_scan(
        dst=dst, data0=a, data1=b, initial=1.0, op0=nl.multiply, op1=nl.add
    ),
}


def compiled(operation: Callable[..., Any], dims: tuple[int, ...], filled: list[int]) -> Any:
    """A kernel with `operation` on views [P, *dims] of tiles whose first columns are written."""

    @nki.jit(platform_target="trn2")
    def kernel(x: Any, y: Any, predicate: Any) -> Any:
        tiles = []
        for source, columns in zip((x, y, predicate), filled):
            tile = nl.ndarray((P, N), dtype=source.dtype, buffer=nl.sbuf)
            if columns:
                nisa.dma_copy(dst=tile[:, :columns], src=source[:, :columns])
            tiles.append(tile.reshape((P, *dims)))
        dst = nl.ndarray((P, N), dtype=nl.float32, buffer=nl.sbuf)
        if filled[3]:
            nisa.memset(dst[:, : filled[3]], 5.0)
        result = operation(dst.reshape((P, *dims)), *tiles)
        result = dst if result is None else result
        out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=result)
        return out

    return kernel


def outcome(kernel: Any, inputs: list[Any]) -> Any:
    try:
        return kernel(*inputs).tolist()
    except NeuronError as error:
        return error.code, error.what


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", CASES)
@settings(max_examples=5, deadline=None)
@given(st.lists(st.sampled_from([0, 3, 8, 11, N, N]), min_size=4, max_size=4), st.integers(0, 99))
def test_dimensions_of_a_view_change_nothing(name: str, filled: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    values = [random.normal(size=(P, N)).astype(np.float32) for _ in range(2)]
    inputs = [*values, random.integers(0, 2, (P, N)).astype(np.uint8)]
    flat, deep = (outcome(compiled(CASES[name], dims, filled), inputs) for dims in ((N,), (A, B)))
    assert repr(deep) == repr(flat)
    if filled == [N] * 4:
        assert isinstance(flat, list)
