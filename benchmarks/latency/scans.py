"""The state space scan of Mamba, with the loop orders that have published latencies.

Inputs are delta and u [channels, length], a [channels, states], b and c [states, length].
"""

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
    psum,
    row_of_ones,
)


def _zeros(length: int) -> Any:
    tile = chip((P, length))
    nisa.memset(dst=tile, value=0.0)
    return tile


def _step(  # type: ignore[no-untyped-def]
    delta, u, column, b, c, ones, initial=0.0, product=None
):
    """One state of a tile of channels: (its part of the result, the scan)."""
    decay, scan = chip(delta.shape), chip(delta.shape)
    nisa.activation(dst=decay, op=nl.exp, data=delta, scale=column)
    if product is None:
        product = combined(nl.multiply, delta, u)
    driven = combined(nl.multiply, product, over_partitions(b, ones))
    nisa.tensor_tensor_scan(
        dst=scan, data0=decay, data1=driven, initial=initial, op0=nl.multiply, op1=nl.add
    )
    spread = over_partitions(c, ones)
    return combined(nl.multiply, scan, spread), scan


@nki.jit
def states_outside(delta, u, a, b, c):
    """Over states, then channels: delta and u are loaded again for each state."""
    channels, length = delta.shape
    result = output(delta.shape, delta.dtype)
    ones = row_of_ones()
    totals = [_zeros(length) for _ in range(channels // P)]
    for state in range(a.shape[1]):
        for tile, total in enumerate(totals):
            here = nl.ds(tile * P, P)
            part, _ = _step(
                loaded(delta[here, :]),
                loaded(u[here, :]),
                loaded(a[here, nl.ds(state, 1)]),
                loaded(b[nl.ds(state, 1), :]),
                loaded(c[nl.ds(state, 1), :]),
                ones,
            )
            nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    for tile, total in enumerate(totals):
        nisa.dma_copy(dst=result[nl.ds(tile * P, P), :], src=total)
    return result


@nki.jit
def channels_outside(delta, u, a, b, c, width=0):
    """Over channels, then states, with delta and u loaded once; `width` divides the scan into
    parts that hand on their last value."""
    channels, length = delta.shape
    width = width or length
    result = output(delta.shape, delta.dtype)
    ones = row_of_ones()
    for tile in range(channels // P):
        here = nl.ds(tile * P, P)
        total, d, v = _zeros(length), loaded(delta[here, :]), loaded(u[here, :])
        for state in range(a.shape[1]):
            column = loaded(a[here, nl.ds(state, 1)])
            initial: Any = 0.0
            if width < length:
                initial = _zeros(1)
            for start in range(0, length, width):
                part = nl.ds(start, width)
                added, scan = _step(
                    d[:, part],
                    v[:, part],
                    column,
                    loaded(b[nl.ds(state, 1), part]),
                    loaded(c[nl.ds(state, 1), part]),
                    ones,
                    initial,
                )
                if width < length:
                    nisa.tensor_copy(dst=initial, src=scan[:, nl.ds(width - 1, 1)])
                nisa.tensor_tensor(dst=total[:, part], data1=total[:, part], data2=added, op=nl.add)
        nisa.dma_copy(dst=result[here, :], src=total)
    return result


@nki.jit
def parts_in_psum(delta, u, a, b, c):
    """Over channels, parts of 512, then states; delta * u is computed once a tile of channels, and
    results are summed in PSUM."""
    channels, length = delta.shape
    result = output(delta.shape, delta.dtype)
    ones = row_of_ones()
    for tile in range(channels // P):
        here = nl.ds(tile * P, P)
        d, v, columns = loaded(delta[here, :]), loaded(u[here, :]), loaded(a[here, :])
        product, carried = combined(nl.multiply, d, v), _zeros(a.shape[1])
        for start in range(0, length, BANK):
            part = nl.ds(start, BANK)
            total = psum((P, BANK))
            nisa.memset(dst=total, value=0.0)
            for state in range(a.shape[1]):
                one = nl.ds(state, 1)
                added, scan = _step(
                    d[:, part],
                    v[:, part],
                    columns[:, one],
                    loaded(b[one, part]),
                    loaded(c[one, part]),
                    ones,
                    carried[:, one],
                    product[:, part],
                )
                nisa.tensor_copy(dst=carried[:, one], src=scan[:, nl.ds(BANK - 1, 1)])
                nisa.tensor_tensor(dst=total, data1=total, data2=added, op=nl.add)
            final = chip((P, BANK))
            nisa.tensor_copy(dst=final, src=total, engine=nisa.engine.vector)
            nisa.dma_copy(dst=result[here, part], src=final)
    return result
