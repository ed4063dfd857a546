"""Element-wise kernels with published latencies."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from latency.tiles import (
    BANK,
    P,
    chip,
    combined,
    loaded,
    output,
    over_partitions,
    row_of_ones,
)

WIDE = 2 * BANK


def _on_scalar(tile: Any, scale: float = 1.0, bias: Any = None) -> Any:
    """tile * scale + bias by ScalarE, where the compiler puts operations with a number whose engine
    the author leaves open (NB036: 62 % of the time, of which the square root is 6 %; NB039)."""
    result = chip(tile.shape)
    nisa.activation(dst=result, op=nl.copy, data=tile, scale=scale, bias=bias)
    return result


def _column(value: float) -> Any:
    column = chip((P, 1))
    nisa.memset(dst=column, value=value)
    return column


def _inverse(tile: Any) -> Any:
    result = chip(tile.shape)
    nisa.reciprocal(dst=result, data=tile)
    return result


@nki.jit
def silu(x):
    """x / (1 + exp(-x)): tiles of 1024 columns, in halves; exp and the sum on ScalarE."""
    rows, columns = x.shape
    one = _column(1.0)
    result = output(x.shape, x.dtype)
    for m in range(0, rows, P):
        for n in range(0, columns, WIDE):
            here = nl.ds(m, P), nl.ds(n, WIDE)
            tile, whole = loaded(x[here]), chip((P, WIDE))
            for j in range(0, WIDE, BANK):
                half, grown = nl.ds(j, BANK), chip((P, BANK))
                nisa.activation(dst=grown, op=nl.exp, data=tile[:, half], scale=-1.0)
                inverse = _inverse(_on_scalar(grown, bias=one))
                nisa.tensor_tensor(
                    dst=whole[:, half], data1=tile[:, half], data2=inverse, op=nl.multiply
                )
            nisa.dma_copy(dst=result[here], src=whole)
    return result


@nki.jit
def adamw(theta, gradient, first, second):
    """A step of AdamW, operation by operation, tiles of 1024 columns in halves."""
    rows, columns = theta.shape
    small = _column(1e-8)
    result = output(theta.shape, theta.dtype)
    for m in range(0, rows, P):
        for n in range(0, columns, WIDE):
            here = nl.ds(m, min(P, rows - m)), nl.ds(n, WIDE)
            weights, m1, m2, g = (loaded(x[here]) for x in (theta, first, second, gradient))
            whole = chip(weights.shape)
            for j in range(0, WIDE, BANK):
                half = nl.ds(j, BANK)
                w, g1 = weights[:, half], g[:, half]
                kept = combined(nl.subtract, w, _on_scalar(w, 1e-5))
                mean = combined(nl.add, _on_scalar(m1[:, half], 0.9), _on_scalar(g1, 0.1))
                step = _on_scalar(mean, 0.01)
                square = combined(nl.multiply, _on_scalar(g1, 0.001), g1)
                spread = combined(nl.add, _on_scalar(m2[:, half], 0.999), square)
                root = chip(spread.shape)
                nisa.activation(dst=root, op=nl.sqrt, data=spread, scale=1000.0)
                inverse = _inverse(_on_scalar(root, bias=small[nl.ds(0, root.shape[0]), :]))
                change = combined(nl.multiply, step, inverse)
                nisa.tensor_tensor(dst=whole[:, half], data1=kept, data2=change, op=nl.subtract)
            nisa.dma_copy(dst=result[here], src=whole)
    return result


@nki.jit
def layer_norm(x, gamma, beta):
    """Layer normalisation of whole rows, the variance from the mean of squares; rows gamma and beta
    [1, n] in all partitions."""
    rows = x.shape[0]
    result, ones = output(x.shape, x.dtype), row_of_ones()
    weight, shift = (over_partitions(loaded(row[:, :]), ones) for row in (gamma, beta))
    for m in range(0, rows, P):
        tile = loaded(x[nl.ds(m, P), :])
        mean = nl.mean(tile, axis=1, keepdims=True)
        spread = nl.subtract(
            nl.mean(nl.square(tile), axis=1, keepdims=True), nl.multiply(mean, mean)
        )
        scaled = nl.multiply(nl.subtract(tile, mean), nl.rsqrt(nl.add(spread, 1e-5)))
        whole = nl.add(nl.multiply(scaled, weight), shift)
        nisa.dma_copy(dst=result[nl.ds(m, P), :], src=whole)
    return result


@nki.jit
def depthwise(x, weights, taps_in_psum=False):
    """Convolution of rows [channels, n] with a filter of three columns each, with a zero on both
    sides: for each column of the result a product of three columns and their sum."""
    rows, columns = x.shape
    width = weights.shape[1]
    result = output(x.shape, x.dtype)
    for m in range(0, rows, P):
        here = nl.ds(m, P)
        image, whole = chip((P, columns + width - 1)), chip((P, columns))
        taps = loaded(weights[here, :])
        if taps_in_psum:
            kept = chip(taps.shape, taps.dtype, nl.psum)
            nisa.tensor_copy(dst=kept, src=taps, engine=nisa.engine.vector)
            taps = kept
        nisa.memset(dst=image[:, nl.ds(0, 1)], value=0.0)
        nisa.memset(dst=image[:, nl.ds(columns + 1, 1)], value=0.0)
        nisa.dma_copy(dst=image[:, nl.ds(1, columns)], src=x[here, :])
        for column in range(columns):
            product = combined(nl.multiply, image[:, nl.ds(column, width)], taps, x.dtype)
            nisa.tensor_reduce(dst=whole[:, nl.ds(column, 1)], op=nl.add, data=product, axis=1)
        nisa.dma_copy(dst=result[here, :], src=whole)
    return result
