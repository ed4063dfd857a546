"""Attention with a published latency."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from latency.tiles import BANK, P, chip, loaded, on_scalar, output, psum


def _kept(tile: Any, place: Any) -> None:
    nisa.dma_copy(dst=place, src=tile)


def _turned(tile: Any) -> Any:
    """A block of 128 x 128, transposed by TensorE and copied by ScalarE, as fp32."""
    product = psum((P, P), tile.dtype)
    nisa.nc_transpose(dst=product, data=tile, engine=nisa.engine.tensor)
    return on_scalar(product, nl.float32)


def _softmax_through(q: Any, k: Any, differences: Any, powers: Any, scores: Any) -> None:
    """The softmax of the products of 128 columns of q with k, each of whose steps goes to HBM."""
    columns = k.shape[1]
    products = []
    maxima = chip((P, columns // BANK))
    for n in range(0, columns, BANK):
        product = psum((P, BANK))
        nisa.nc_matmul(dst=product, stationary=q, moving=k[:, nl.ds(n, BANK)])
        at = maxima[:, nl.ds(n // BANK, 1)]
        nisa.tensor_reduce(dst=at, op=nl.maximum, data=product, axis=1)
        products.append(product)
    highest = chip((P, 1))
    nisa.tensor_reduce(dst=highest, op=nl.maximum, data=maxima, axis=1)
    below = chip((P, columns))
    for number, product in enumerate(products):
        nisa.tensor_scalar(
            dst=below[:, nl.ds(number * BANK, BANK)], data=product, op0=nl.subtract,
            operand0=highest, engine=nisa.engine.vector,
        )  # fmt: skip
    _kept(below, differences)
    power = chip((P, columns))
    nisa.activation(dst=power, op=nl.exp, data=loaded(differences))
    _kept(power, powers)
    total, inverse = chip((P, 1)), chip((P, 1))
    nisa.tensor_reduce(dst=total, op=nl.add, data=loaded(powers), axis=1)
    nisa.reciprocal(dst=inverse, data=total)
    score = chip((P, columns))
    nisa.tensor_scalar(
        dst=score, data=loaded(powers), op0=nl.multiply, operand0=inverse,
        engine=nisa.engine.vector,
    )  # fmt: skip
    _kept(score, scores)


@nki.jit
def through_hbm(q, k, v):
    """softmax(q.T @ k) @ v.T of [128, n]: every step of the softmax, and both transposes, go to HBM
    and come back, in fp32."""
    rows, columns = q.shape[1], k.shape[1]
    result = output((rows, P), q.dtype)
    hbm = [
        nl.ndarray((P, columns), nl.float32, buffer=nl.private_hbm) for _ in range(3 * rows // P)
    ]
    turned = nl.ndarray((rows, columns), nl.float32, buffer=nl.private_hbm)
    values = nl.ndarray((columns, P), nl.float32, buffer=nl.private_hbm)
    left, right, other = (loaded(x[:, :]) for x in (q, k, v))
    for n in range(0, columns, P):
        _kept(_turned(other[:, nl.ds(n, P)]), values[nl.ds(n, P), :])
    for m in range(0, rows, P):
        differences, powers, scores = hbm[3 * m // P : 3 * m // P + 3]
        here = nl.ds(m, P)
        _softmax_through(left[:, here], right, differences, powers, scores)
        for n in range(0, columns, P):
            block = loaded(scores[:, nl.ds(n, P)])
            _kept(_turned(block), turned[here, nl.ds(n, P)])
        total = psum((P, P))
        for n in range(0, columns, P):
            stationary = loaded(turned[here, nl.ds(n, P)])
            nisa.nc_matmul(dst=total, stationary=stationary, moving=loaded(values[nl.ds(n, P), :]))
        nisa.dma_copy(dst=result[here, :], src=on_scalar(total, q.dtype))
    return result
