"""Matrix products with RMSNorm in front of or behind them, with published latencies (NKIBench)."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from latency.matmuls import identity, store
from latency.tiles import (
    BANK,
    P,
    chip,
    combined,
    loaded,
    on_scalar,
    output,
    over_partitions,
    psum,
    row_of_ones,
    scalar_copy,
)

EPSILON = 1e-5


def _normed(tile: Any, weight: Any) -> Any:
    """tile / sqrt(mean of squares) * weight: squares by ScalarE, the rest by VectorE (NB008: 14.8 %
    of the time are 6.2 times N cycles a tile, which sum, scale and the two products make)."""
    squares = chip(tile.shape)
    nisa.activation(dst=squares, op=nl.square, data=tile)
    total = nl.sum(squares, axis=1, keepdims=True)
    scale = nl.rsqrt(nl.add(nl.multiply(total, 1.0 / tile.shape[1]), EPSILON))
    scaled = chip(tile.shape)
    nisa.tensor_scalar(
        dst=scaled, data=tile, op0=nl.multiply, operand0=scale, engine=nisa.engine.vector
    )
    return combined(nl.multiply, scaled, weight)


def _turned(tile: Any, one: Any) -> list[Any]:
    """The blocks of 128 columns of a tile, each transposed by a product with the identity."""
    found = []
    for k in range(0, tile.shape[1], P):
        product = psum((P, P))
        nisa.nc_matmul(dst=product, stationary=tile[:, nl.ds(k, P)], moving=one)
        found.append(on_scalar(product))
    return found


def _tiles(w: Any) -> Any:
    """Tiles of a matrix, each loaded once."""
    depth, columns = w.shape
    return {
        (k, n): loaded(w[nl.ds(k, P), nl.ds(n, BANK)])
        for n in range(0, columns, BANK)
        for k in range(0, depth, P)
    }


@nki.jit
def norm_then_product(x, w, z, g):
    """RMSNorm(x + z) @ w, with w on chip."""
    rows, depth = x.shape
    columns = w.shape[1]
    result = output((rows, columns), x.dtype)
    one, right = identity(x.dtype), _tiles(w)
    weight = over_partitions(loaded(g[:, :]), row_of_ones())
    for m in range(0, rows, P):
        here = nl.ds(m, P)
        left = _turned(
            _normed(combined(nl.add, loaded(x[here, :]), loaded(z[here, :])), weight), one
        )
        for n in range(0, columns, BANK):
            total = psum((P, BANK))
            for k, stationary in zip(range(0, depth, P), left):
                nisa.nc_matmul(dst=total, stationary=stationary, moving=right[k, n])
            store(result, m, n, on_scalar(total))
    return result


@nki.jit
def product_then_norm(x, w, z, g):
    """RMSNorm(x @ w + z), with w on chip."""
    rows, depth = x.shape
    columns = w.shape[1]
    result = output((rows, columns), x.dtype)
    one, right = identity(x.dtype), _tiles(w)
    weight = over_partitions(loaded(g[:, :]), row_of_ones())
    for m in range(0, rows, P):
        left = _turned(loaded(x[nl.ds(m, P), :]), one)
        whole = chip((P, columns))
        for n in range(0, columns, BANK):
            total = psum((P, BANK))
            for k, stationary in zip(range(0, depth, P), left):
                nisa.nc_matmul(dst=total, stationary=stationary, moving=right[k, n])
            scalar_copy(whole[:, nl.ds(n, BANK)], total)
        summed = combined(nl.add, whole, loaded(z[nl.ds(m, P), :]))
        nisa.dma_copy(dst=result[nl.ds(m, P), :], src=_normed(summed, weight))
    return result
