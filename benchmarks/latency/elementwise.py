"""Element-wise kernels with published latencies."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from latency.tiles import BANK, P, chip, combined, loaded, output, scaled

WIDE = 2 * BANK


def _inverse(tile: Any) -> Any:
    result = chip(tile.shape)
    nisa.reciprocal(dst=result, data=tile)
    return result


@nki.jit
def silu(x):
    """x / (1 + exp(-x)): tiles of 1024 columns, in halves; exp on ScalarE, the rest on VectorE."""
    rows, columns = x.shape
    result = output(x.shape, x.dtype)
    for m in range(0, rows, P):
        for n in range(0, columns, WIDE):
            here = nl.ds(m, P), nl.ds(n, WIDE)
            tile, whole = loaded(x[here]), chip((P, WIDE))
            for j in range(0, WIDE, BANK):
                half, grown = nl.ds(j, BANK), chip((P, BANK))
                nisa.activation(dst=grown, op=nl.exp, data=tile[:, half], scale=-1.0)
                inverse = _inverse(scaled(grown, nl.add, 1.0))
                nisa.tensor_tensor(
                    dst=whole[:, half], data1=tile[:, half], data2=inverse, op=nl.multiply
                )
            nisa.dma_copy(dst=result[here], src=whole)
    return result


@nki.jit
def adamw(theta, gradient, first, second):
    """A step of AdamW, operation by operation, tiles of 1024 columns in halves."""
    rows, columns = theta.shape
    result = output(theta.shape, theta.dtype)
    for m in range(0, rows, P):
        for n in range(0, columns, WIDE):
            here = nl.ds(m, min(P, rows - m)), nl.ds(n, WIDE)
            weights, m1, m2, g = (loaded(x[here]) for x in (theta, first, second, gradient))
            whole = chip(weights.shape)
            for j in range(0, WIDE, BANK):
                half = nl.ds(j, BANK)
                w, g1 = weights[:, half], g[:, half]
                kept = combined(nl.subtract, w, scaled(w, nl.multiply, 1e-5))
                mean = combined(
                    nl.add, scaled(m1[:, half], nl.multiply, 0.9), scaled(g1, nl.multiply, 0.1)
                )
                step = scaled(mean, nl.multiply, 0.01)
                square = combined(nl.multiply, scaled(g1, nl.multiply, 0.001), g1)
                spread = combined(nl.add, scaled(m2[:, half], nl.multiply, 0.999), square)
                root = chip(spread.shape)
                nisa.activation(dst=root, op=nl.sqrt, data=spread, scale=1000.0)
                inverse = _inverse(scaled(root, nl.add, 1e-8))
                change = combined(nl.multiply, step, inverse)
                nisa.tensor_tensor(dst=whole[:, half], data1=kept, data2=change, op=nl.subtract)
            nisa.dma_copy(dst=result[here], src=whole)
    return result
