"""Reductions go to `reduce_res` wherever that starts: registers belong to partitions of `dst`."""

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl

ROWS, COLUMNS = 20, 6
STARTS = [(0, 32), (96, 0), (32, 32)]
RESET = nisa.reduce_cmd.reset_reduce


def activation(dst, data, result):
    nisa.activation(dst, nl.square, data, reduce_op=nl.add, reduce_res=result, reduce_cmd=RESET)


def activation_reduce(dst, data, result):
    nisa.activation_reduce(dst, nl.square, data, reduce_op=nl.add, reduce_res=result)


def activate2(dst, data, result):
    nisa.activate2(
        *(dst, nl.square, data, 1.0, 0.0, nl.multiply, nl.add),
        reduce_op=nl.add,
        reduce_res=result,
        reduce_cmd=RESET,
    )


def tensor_scalar_reduce(dst, data, result):
    nisa.tensor_scalar_reduce(dst, data, nl.multiply, 2.0, nl.maximum, result)


def range_select(dst, data, result):
    bounds = nl.zeros((128, 1), dtype=nl.float32)[0:ROWS], nl.full((ROWS, 1), 4.0, nl.float32)
    nisa.range_select(dst, data, nl.greater_equal, nl.less, *bounds, reduce_res=result)


def select_reduce(dst, data, result):
    mask = nl.ones((ROWS, COLUMNS), dtype=nl.uint8)
    nisa.select_reduce(dst, mask, data, 0.0, result, reduce_cmd=RESET)


EXPECTED = {
    activation: lambda a: np.square(a).sum(1),
    activation_reduce: lambda a: np.square(a).sum(1),
    activate2: lambda a: np.square(a).sum(1),
    tensor_scalar_reduce: lambda a: (2 * a).max(1),
    range_select: lambda a: a[:, :4].max(1),
    select_reduce: lambda a: a.max(1),
}


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
@pytest.mark.parametrize("operation", EXPECTED)
def test_a_result_at_another_partition(operation, mode):
    @nki.jit(platform_target="trn3")
    def kernel(a):
        results = []
        for start, elsewhere in STARTS:
            tile = nl.zeros((128, COLUMNS), dtype=nl.float32)
            sums = nl.zeros((128, 1), dtype=nl.float32)
            rows = tile[start : start + ROWS]
            nisa.dma_copy(dst=rows, src=a)
            operation(rows, rows, sums[elsewhere : elsewhere + ROWS])
            out = nl.ndarray((128, 1), dtype=nl.float32, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=sums)
            results.append(out)
        return tuple(results)

    a = np.random.default_rng(0).integers(-9, 9, (ROWS, COLUMNS)).astype(np.float32)
    for out, (_, elsewhere) in zip(nki.simulate(kernel, mode=mode)(a), STARTS):
        expected = np.zeros((128, 1), np.float32)
        expected[elsewhere : elsewhere + ROWS, 0] = EXPECTED[operation](a)
        np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("mode", ["device", "reference", "eager"])
def test_a_chain_read_out_elsewhere(mode):
    """Only the last call of a chain has a result, in a tensor with an address of its own."""

    @nki.jit(platform_target="trn2")
    def kernel(a):
        tile = nl.load(a)
        sums = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.sbuf, address=(64, 4096))
        for column in range(COLUMNS):
            one = tile[:, column : column + 1]
            last = column == COLUMNS - 1
            nisa.tensor_scalar_reduce(
                *(one, one, nl.multiply, 3.0, nl.add, sums if last else None),
                reduce_cmd=nisa.reduce_cmd.reduce if column else RESET,
                reduce_res_negate=last,
            )
        out = nl.ndarray((ROWS, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=sums)
        return out

    a = np.random.default_rng(1).integers(-9, 9, (ROWS, COLUMNS)).astype(np.float32)
    expected = -3 * a.sum(1, keepdims=True)
    np.testing.assert_array_equal(nki.simulate(kernel, mode=mode)(a), expected)
