"""The flash attention kernel that `native_speed` measures, and the same instructions on NumPy
tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki.isa as nisa
import nki.language as nl
from nki import jit

Array = np.ndarray[Any, Any]

P = 128
KEYS = 512
LOWEST = -1e30


def chip(shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


@jit
def flash_attention(q, k, v):
    """softmax(q.T @ k / sqrt(d)) @ v for one head; q and k are [d, S], v is [S, d], d = 128."""
    d, S = q.shape
    scale = d**-0.5
    out = nl.ndarray((S, d), dtype=q.dtype, buffer=nl.shared_hbm)
    keys, values = [], []
    for j in range(S // KEYS):
        block = chip((d, KEYS), k.dtype)
        nisa.dma_copy(dst=block, src=k[:, nl.ds(j * KEYS, KEYS)])
        keys.append(block)
        values.append([])
        for t in range(KEYS // P):
            block = chip((P, d), v.dtype)
            nisa.dma_copy(dst=block, src=v[nl.ds(j * KEYS + t * P, P), :])
            values[-1].append(block)
    for i in range(S // P):
        query = chip((d, P), q.dtype)
        nisa.dma_copy(dst=query, src=q[:, nl.ds(i * P, P)])
        highest, total, result = chip((P, 1)), chip((P, 1)), chip((P, d))
        nisa.memset(dst=highest, value=LOWEST)
        nisa.memset(dst=total, value=0.0)
        nisa.memset(dst=result, value=0.0)
        for j in range(S // KEYS):
            scores = chip((P, KEYS), buffer=nl.psum)
            nisa.nc_matmul(dst=scores, stationary=query, moving=keys[j])
            now = chip((P, 1))
            nisa.tensor_reduce(dst=now, op=nl.maximum, data=scores, axis=1)
            new = chip((P, 1))
            nisa.tensor_scalar(
                dst=new, data=now, op0=nl.multiply, operand0=scale, op1=nl.maximum, operand1=highest
            )
            low = chip((P, 1))
            nisa.tensor_scalar(dst=low, data=new, op0=nl.multiply, operand0=-1.0)
            shrink = chip((P, 1))
            nisa.activation(dst=shrink, op=nl.exp, data=highest, bias=low)
            weights, part = chip((P, KEYS), q.dtype), chip((P, 1))
            nisa.activation_reduce(
                dst=weights,
                op=nl.exp,
                data=scores,
                reduce_op=nl.add,
                reduce_res=part,
                bias=low,
                scale=scale,
            )
            nisa.tensor_scalar(
                dst=total, data=total, op0=nl.multiply, operand0=shrink, op1=nl.add, operand1=part
            )
            nisa.tensor_copy(dst=highest, src=new)
            product = chip((P, d), buffer=nl.psum)
            for t in range(KEYS // P):
                turned = chip((P, P), q.dtype, nl.psum)
                nisa.nc_transpose(dst=turned, data=weights[:, nl.ds(t * P, P)])
                tile = chip((P, P), q.dtype)
                nisa.tensor_copy(dst=tile, src=turned)
                nisa.nc_matmul(dst=product, stationary=tile, moving=values[j][t])
            nisa.tensor_scalar(dst=result, data=result, op0=nl.multiply, operand0=shrink)
            nisa.tensor_tensor(dst=result, data1=result, data2=product, op=nl.add)
        inverse = chip((P, 1))
        nisa.reciprocal(dst=inverse, data=total)
        final = chip((P, d), q.dtype)
        nisa.tensor_scalar(dst=final, data=result, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=final)
    return out


def fresh(shape: tuple[int, int], dtype: Any = np.float32, value: float = np.nan) -> Array:
    tile = np.empty(shape, dtype)
    tile.fill(value)
    return tile


def wide(tile: Array) -> Array:
    return tile if tile.dtype == np.float32 else tile.astype(np.float32)


def copied(source: Array) -> Array:
    tile = fresh(source.shape, source.dtype)
    tile[...] = source
    return tile


def eager_flash_attention(q: Array, k: Array, v: Array) -> Array:
    d, S = q.shape
    scale = np.float32(d**-0.5)
    out = fresh((S, d), q.dtype)
    keys = [copied(k[:, j : j + KEYS]) for j in range(0, S, KEYS)]
    values = [copied(v[j : j + P]) for j in range(0, S, P)]
    for i in range(0, S, P):
        query = copied(q[:, i : i + P])
        highest, total = fresh((P, 1), value=LOWEST), fresh((P, 1), value=0)
        result = fresh((P, d), value=0)
        for j, block in enumerate(keys):
            scores, now, new, low = fresh((P, KEYS)), fresh((P, 1)), fresh((P, 1)), fresh((P, 1))
            scores[...] = wide(query).T @ wide(block)
            now[...] = np.maximum.reduce(scores, axis=1, keepdims=True)
            new[...] = np.maximum(now * scale, highest)
            low[...] = new * np.float32(-1)
            shrink, part = fresh((P, 1)), fresh((P, 1))
            shrink[...] = np.exp(highest + low)
            weights = fresh((P, KEYS), q.dtype)
            powers = np.exp(scores * scale + low)
            part[...] = powers.sum(axis=1, keepdims=True)
            weights[...] = powers
            total[...] = total * shrink + part
            highest[...] = new
            product = fresh((P, d))
            for t in range(KEYS // P):
                turned, tile = fresh((P, P), q.dtype), fresh((P, P), q.dtype)
                turned[...] = weights[:, t * P : t * P + P].T
                tile[...] = wide(turned)
                partial = wide(tile).T @ wide(values[j * (KEYS // P) + t])
                if t:
                    product += partial
                else:
                    product[...] = partial
            result[...] = result * shrink
            result[...] = result + product
        inverse, final = fresh((P, 1)), fresh((P, d), q.dtype)
        inverse[...] = np.float32(1) / total
        final[...] = result * inverse
        out[i : i + P] = final
    return out
