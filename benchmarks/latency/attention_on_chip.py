"""Attention with published latencies whose softmax stays on chip: softmax(q.T @ k) @ v.T.

Three ways to go about the products of 128 columns of q with all of k: they stay in PSUM, they are
made anew for each of three passes, or SBUF keeps them in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from latency.tiles import BANK, P, chip, combined, loaded, on_scalar, output, psum

VECTOR = nisa.engine.vector
Blocks = Callable[[int], Any]
"""The product of a block of `BANK` columns of k, in PSUM, by the number of the block."""


def _product(q: Any, k: Any, number: int) -> Any:
    product = psum((P, BANK))
    nisa.nc_matmul(dst=product, stationary=q, moving=k[:, nl.ds(number * BANK, BANK)])
    return product


def _reduced(op: Any, data: Any) -> Any:
    column = chip((P, 1))
    nisa.tensor_reduce(dst=column, op=op, data=data, axis=1)
    return column


def _negative(column: Any) -> Any:
    result = chip((P, 1))
    nisa.tensor_scalar(dst=result, data=column, op0=nl.multiply, operand0=-1.0, engine=VECTOR)
    return result


def _power(block: Any, highest: Any, dtype: Any) -> Any:
    """exp(block - highest)."""
    result = chip(block.shape, dtype)
    nisa.activation(dst=result, op=nl.exp, data=block, bias=_negative(highest))
    return result


def _turned(block: Any, dtype: Any) -> Any:
    """A block of 128 x 128, transposed by TensorE and copied by ScalarE."""
    product = psum((P, P), block.dtype)
    nisa.nc_transpose(dst=product, data=block, engine=nisa.engine.tensor)
    return on_scalar(product, dtype)


def _highest(blocks: Blocks, count: int) -> Any:
    """The largest of each row, block after block."""
    found = _reduced(nl.maximum, blocks(0))
    for number in range(1, count):
        found = combined(nl.maximum, found, _reduced(nl.maximum, blocks(number)))
    return found


def _inverse(blocks: Blocks, count: int, highest: Any, dtype: Any) -> Any:
    """1 over the sum of each row's powers, block after block."""
    total, inverse = chip((P, 1)), chip((P, 1))
    nisa.memset(dst=total, value=0.0)
    negative = _negative(highest)
    for number in range(count):
        power = chip((P, BANK), dtype)
        nisa.activation(dst=power, op=nl.exp, data=blocks(number), bias=negative)
        total = combined(nl.add, total, _reduced(nl.add, power))
    nisa.reciprocal(dst=inverse, data=total)
    return inverse


def _attended(
    blocks: Blocks, count: int, highest: Any, inverse: Any, values: Any, dtype: Any
) -> Any:
    """The scores times the values, in PSUM; both are transposed, a block at a time."""
    total = psum((P, P))
    for number in range(count):
        power, score = _power(blocks(number), highest, dtype), chip((P, BANK), dtype)
        nisa.tensor_scalar(dst=score, data=power, op0=nl.multiply, operand0=inverse, engine=VECTOR)
        for start in range(0, BANK, P):
            stationary = _turned(score[:, nl.ds(start, P)], dtype)
            moving = _turned(values[:, nl.ds(number * BANK + start, P)], dtype)
            nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
    return total


def _kept(total: Any, place: Any, steps: tuple[Any, ...]) -> None:
    """Copied out of PSUM, by way of all these dtypes, and stored."""
    for dtype in steps:
        total = on_scalar(total, dtype)
    nisa.dma_copy(dst=place, src=total)


@nki.jit
def products_in_psum(q, k, v):
    """All products of all tiles are kept in PSUM, more than it holds: they wait elsewhere."""
    rows, count = q.shape[1], k.shape[1] // BANK
    result = output((rows, P), q.dtype)
    left, right, values = loaded(q[:, :]), loaded(k[:, :]), loaded(v[:, :])
    tiles = range(0, rows, P)
    products = [[_product(left[:, nl.ds(m, P)], right, n) for n in range(count)] for m in tiles]
    highest = []
    for blocks in products:
        maxima = chip((P, count))
        for n, product in enumerate(blocks):
            nisa.tensor_reduce(dst=maxima[:, nl.ds(n, 1)], op=nl.maximum, data=product, axis=1)
        highest.append(_reduced(nl.maximum, maxima))
    inverse = [
        _inverse(blocks.__getitem__, count, top, nl.float32)
        for blocks, top in zip(products, highest)
    ]
    for m, blocks, top, below in zip(tiles, products, highest, inverse):
        total = _attended(blocks.__getitem__, count, top, below, values, nl.float32)
        _kept(total, result[nl.ds(m, P), :], (nl.float32, q.dtype))
    return result


@nki.jit
def products_anew(q, k, v, dtype):
    """Products are made three times, for the maxima, the sums and the result; powers and scores
    are of `dtype`."""
    rows, count = q.shape[1], k.shape[1] // BANK
    result = output((rows, P), q.dtype)
    left, right, values = loaded(q[:, :]), loaded(k[:, :]), loaded(v[:, :])

    def blocks(m: int) -> Blocks:
        return lambda number: _product(left[:, nl.ds(m, P)], right, number)

    tiles = range(0, rows, P)
    highest = [_highest(blocks(m), count) for m in tiles]
    inverse = [_inverse(blocks(m), count, top, dtype) for m, top in zip(tiles, highest)]
    for m, top, below in zip(tiles, highest, inverse):
        total = _attended(blocks(m), count, top, below, values, dtype)
        _kept(total, result[nl.ds(m, P), :], tuple(dict.fromkeys((dtype, q.dtype))))
    return result


@nki.jit
def products_kept(q, k, v):
    """Products are kept in bfloat16, values are transposed once; the result is divided by the sums
    of the powers at the end."""
    rows, columns = q.shape[1], k.shape[1]
    result = output((rows, P), q.dtype)
    left, right = loaded(q[:, :]), loaded(k[:, :])
    values = [_turned(loaded(v[:, nl.ds(n, P)]), nl.bfloat16) for n in range(0, columns, P)]
    for m in range(0, rows, P):
        maxima, sums = chip((P, columns // BANK)), chip((P, columns // P))
        nisa.memset(dst=sums, value=0.0)
        kept = []
        for n in range(columns // BANK):
            product, copied = _product(left[:, nl.ds(m, P)], right, n), chip((P, BANK), nl.bfloat16)
            nisa.tensor_reduce(dst=maxima[:, nl.ds(n, 1)], op=nl.maximum, data=product, axis=1)
            nisa.tensor_copy(dst=copied, src=product, engine=VECTOR)
            kept.append(copied)
        highest, total = _reduced(nl.maximum, maxima), psum((P, P))
        for n, moving in enumerate(values):
            block = kept[n * P // BANK][:, nl.ds(n * P % BANK, P)]
            power = _power(block, highest, nl.bfloat16)
            nisa.tensor_reduce(dst=sums[:, nl.ds(n, 1)], op=nl.add, data=power, axis=1)
            stationary = _turned(power, nl.bfloat16)
            nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
        inverse = chip((P, 1))
        nisa.reciprocal(dst=inverse, data=_reduced(nl.add, sums))
        divided = psum((P, P))
        nisa.tensor_scalar(
            dst=divided, data=total, op0=nl.multiply, operand0=inverse, engine=VECTOR
        )
        _kept(divided, result[nl.ds(m, P), :], (q.dtype,))
    return result
