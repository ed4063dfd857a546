"""The programs that `native_speed` measures: kernels, and the same instructions on NumPy tiles.

The NumPy side has the shape of an eager simulator of tiles: compute in fp32, round to the tile's
dtype at each instruction, NaN in fresh tiles.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from flash_attention import copied, fresh, wide

import nki
import nki.isa as nisa
import nki.language as nl

Array = np.ndarray[Any, Any]

P = 128
BANK = 512
F32 = np.dtype(np.float32)
FP8 = np.dtype(ml_dtypes.float8_e4m3)


# The kernels ------------------------------------------------------------------------------------


@nki.jit
def matmul(lhsT, rhs):
    """lhsT.T @ rhs with everything loaded once: the right side stays, the left side passes by."""
    K, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    width = min(BANK, N)
    right = []
    for k in range(K // P):
        tile = nl.ndarray((P, N), dtype=rhs.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=rhs[nl.ds(k * P, P), :])
        right.append(tile)
    for m in range(M // P):
        left = []
        for k in range(K // P):
            tile = nl.ndarray((P, P), dtype=lhsT.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=lhsT[nl.ds(k * P, P), nl.ds(m * P, P)])
            left.append(tile)
        for n in range(N // width):
            total = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.psum)
            for k in range(K // P):
                nisa.nc_matmul(
                    dst=total, stationary=left[k], moving=right[k][:, nl.ds(n * width, width)]
                )
            tile = nl.ndarray((P, width), dtype=out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=total)
            nisa.dma_copy(dst=out[nl.ds(m * P, P), nl.ds(n * width, width)], src=tile)
    return out


@nki.jit
def softmax(a):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(rows // P):
        x = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        low = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=low, op=nl.maximum, data=x, axis=1, negate=True)
        e = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=e, op=nl.exp, data=x, reduce_op=nl.add, reduce_res=total, bias=low
        )
        inverse = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        y = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=e, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=y)
    return out


@nki.jit
def rmsnorm(a, gain):
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    g = nl.ndarray((P, columns), dtype=gain.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=g, src=gain)
    for i in range(rows // P):
        x = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        squares = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=total
        )
        nisa.tensor_scalar(
            dst=total,
            data=total,
            op0=nl.multiply,
            operand0=1.0 / columns,
            op1=nl.add,
            operand1=1e-6,
        )
        scale = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=scale, op=nl.rsqrt, data=total)
        y = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=y, data=x, op0=nl.multiply, operand0=scale)
        nisa.tensor_tensor(dst=y, data1=y, data2=g, op=nl.multiply)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=y)
    return out


@nki.jit
def gelu_chain(a, b):
    """gelu(a * b + 1.5)."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(rows // P):
        x = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        y = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        nisa.dma_copy(dst=y, src=b[nl.ds(i * P, P), :])
        z = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=z, data1=x, data2=y, op=nl.multiply)
        nisa.tensor_scalar(dst=z, data=z, op0=nl.add, operand0=1.5)
        w = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.activation(dst=w, op=nl.gelu_apprx_tanh, data=z)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=w)
    return out


@nki.jit
def casts(a):
    """To fp8 and back, tile by tile."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(rows // P):
        x = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x, src=a[nl.ds(i * P, P), :])
        small = nl.ndarray((P, columns), dtype=nl.float8_e4m3, buffer=nl.sbuf)
        nisa.tensor_copy(dst=small, src=x)
        y = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=y, src=small)
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=y)
    return out


SMALL_STEPS = 200


@nki.jit
def small_tiles(a, b):
    """Four instructions on one small tile, over and over."""
    x = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    y = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x, src=a)
    nisa.dma_copy(dst=y, src=b)
    low = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
    for _ in range(SMALL_STEPS):
        nisa.tensor_tensor(dst=x, data1=x, data2=y, op=nl.multiply)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.add, operand0=0.5)
        nisa.tensor_reduce(dst=low, op=nl.minimum, data=x, axis=1)
        nisa.tensor_scalar(dst=x, data=x, op0=nl.subtract, operand0=low)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


# The same instructions on NumPy tiles -------------------------------------------------------------


def eager_matmul(lhsT: Array, rhs: Array) -> Array:
    K, M = lhsT.shape
    N = rhs.shape[1]
    out = fresh((M, N), lhsT.dtype)
    width = min(BANK, N)
    right = [copied(rhs[k : k + P]) for k in range(0, K, P)]
    for m in range(0, M, P):
        left = [copied(lhsT[k : k + P, m : m + P]) for k in range(0, K, P)]
        for n in range(0, N, width):
            total = fresh((P, width), F32)
            for k, (a, b) in enumerate(zip(left, right)):
                product = wide(a).T @ wide(b[:, n : n + width])
                if k:
                    total += product
                else:
                    total[...] = product
            tile = fresh((P, width), out.dtype)
            tile[...] = total
            out[m : m + P, n : n + width] = tile
    return out


def eager_softmax(a: Array) -> Array:
    out = fresh(a.shape, a.dtype)
    for i in range(0, len(a), P):
        x = copied(a[i : i + P])
        low = fresh((P, 1), F32)
        low[...] = -np.maximum.reduce(wide(x), axis=1, keepdims=True)
        e, total = fresh(x.shape, a.dtype), fresh((P, 1), F32)
        result = np.exp(wide(x) + low)
        total[...] = result.sum(axis=1, keepdims=True)
        e[...] = result
        inverse = fresh((P, 1), F32)
        inverse[...] = np.float32(1) / total
        y = fresh(x.shape, a.dtype)
        y[...] = wide(e) * inverse
        out[i : i + P] = y
    return out


def eager_rmsnorm(a: Array, gain: Array) -> Array:
    out = fresh(a.shape, a.dtype)
    g = copied(gain)
    for i in range(0, len(a), P):
        x = copied(a[i : i + P])
        squares, total, scale = fresh(x.shape, F32), fresh((P, 1), F32), fresh((P, 1), F32)
        result = np.square(wide(x))
        total[...] = result.sum(axis=1, keepdims=True)
        squares[...] = result
        total[...] = total * np.float32(1.0 / a.shape[1]) + np.float32(1e-6)
        scale[...] = np.float32(1) / np.sqrt(total)
        y = fresh(x.shape, a.dtype)
        y[...] = wide(x) * scale
        y[...] = wide(y) * wide(g)
        out[i : i + P] = y
    return out


def eager_gelu_chain(a: Array, b: Array) -> Array:
    out = fresh(a.shape, a.dtype)
    for i in range(0, len(a), P):
        x, y = copied(a[i : i + P]), copied(b[i : i + P])
        z, w = fresh(x.shape, a.dtype), fresh(x.shape, a.dtype)
        z[...] = wide(x) * wide(y)
        z[...] = wide(z) + np.float32(1.5)
        v = wide(z)
        inner = np.float32(0.7978845608) * (v + np.float32(0.044715) * v * v * v)
        w[...] = np.float32(0.5) * v * (np.float32(1) + np.tanh(inner))
        out[i : i + P] = w
    return out


def eager_small_tiles(a: Array, b: Array) -> Array:
    x, y, low = copied(a), copied(b), fresh((P, 1), F32)
    for _ in range(SMALL_STEPS):
        x[...] = wide(x) * wide(y)
        x[...] = wide(x) + np.float32(0.5)
        low[...] = np.minimum.reduce(wide(x), axis=1, keepdims=True)
        x[...] = wide(x) - low
    return copied(x)


def eager_casts(a: Array) -> Array:
    out = fresh(a.shape, a.dtype)
    for i in range(0, len(a), P):
        x = copied(a[i : i + P])
        small, y = fresh(x.shape, FP8), fresh(x.shape, a.dtype)
        small[...] = wide(x)
        y[...] = wide(small)
        out[i : i + P] = y
    return out
