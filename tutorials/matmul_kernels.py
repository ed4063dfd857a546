"""The matrix-multiplication ladder: one kernel, step by step closer to what the engines can do.

All take `lhsT` [K, M] (the left matrix, transposed, because the tensor engine contracts over
partitions) and `rhs` [K, N], and return [M, N] in the dtype of `lhsT`.
"""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

P = 128  # partitions: rows of the PE array
FREE = 512  # fp32 columns of a PSUM bank


def matmul_numpy(lhsT, rhs):
    """What the kernels compute, in fp32 NumPy."""
    return lhsT.astype(np.float32).T @ rhs.astype(np.float32)


def _sizes(lhsT, rhs, k, m, n):
    """K, M and N, which must be multiples of the sizes that a kernel works in."""
    K, M = lhsT.shape
    rows, N = rhs.shape
    assert rows == K, f"lhsT has {K} rows to contract over, rhs has {rows}"
    assert K % k == 0 and M % m == 0 and N % n == 0, f"{K, M, N} are no multiples of {k, m, n}"
    return K, M, N


@nki.jit
def one_tile(lhsT, rhs):
    """Step 1: a single tile, K <= 128, M <= 128, N <= 512."""
    K, M, N = _sizes(lhsT, rhs, 1, 1, 1)
    stationary = nl.ndarray((K, M), dtype=lhsT.dtype, buffer=nl.sbuf)
    moving = nl.ndarray((K, N), dtype=rhs.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=stationary, src=lhsT)
    nisa.dma_copy(dst=moving, src=rhs)

    accumulator = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=accumulator, stationary=stationary, moving=moving)

    tile = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=accumulator)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=result, src=tile)
    return result


@nki.jit
def tiled(lhsT, rhs):
    """Step 2: any multiple of the tile; both tiles are loaded for every product."""
    K, M, N = _sizes(lhsT, rhs, P, P, FREE)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in range(M // P):
        for n in range(N // FREE):
            accumulator = nl.ndarray((P, FREE), dtype=nl.float32, buffer=nl.psum)
            for k in range(K // P):
                rows = nl.ds(k * P, P)
                stationary = nl.ndarray((P, P), dtype=lhsT.dtype, buffer=nl.sbuf)
                moving = nl.ndarray((P, FREE), dtype=rhs.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=stationary, src=lhsT[rows, nl.ds(m * P, P)])
                nisa.dma_copy(dst=moving, src=rhs[rows, nl.ds(n * FREE, FREE)])
                nisa.nc_matmul(dst=accumulator, stationary=stationary, moving=moving)
            tile = nl.ndarray((P, FREE), dtype=lhsT.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=accumulator)
            nisa.dma_copy(dst=result[nl.ds(m * P, P), nl.ds(n * FREE, FREE)], src=tile)
    return result


def _load_columns(matrix, start, width):
    """All K rows of `width` columns, as one [128, width] tile for every 128 rows."""
    tiles = []
    for k in range(matrix.shape[0] // P):
        tile = nl.ndarray((P, width), dtype=matrix.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=matrix[nl.ds(k * P, P), nl.ds(start, width)])
        tiles.append(tile)
    return tiles


@nki.jit
def hoisted(lhsT, rhs):
    """Step 3: the column of lhsT is loaded once a row of tiles, that of rhs once a tile."""
    K, M, N = _sizes(lhsT, rhs, P, P, FREE)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in range(M // P):
        stationary = _load_columns(lhsT, m * P, P)
        for n in range(N // FREE):
            moving = _load_columns(rhs, n * FREE, FREE)
            accumulator = nl.ndarray((P, FREE), dtype=nl.float32, buffer=nl.psum)
            for k in range(K // P):
                nisa.nc_matmul(dst=accumulator, stationary=stationary[k], moving=moving[k])
            tile = nl.ndarray((P, FREE), dtype=lhsT.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=tile, src=accumulator)
            nisa.dma_copy(dst=result[nl.ds(m * P, P), nl.ds(n * FREE, FREE)], src=tile)
    return result


@nki.jit
def blocked_free(lhsT, rhs, block_m=2, block_n=2):
    """Step 4: blocks of `block_m` x `block_n` tiles, so that a loaded column serves several."""
    K, M, N = _sizes(lhsT, rhs, P, P * block_m, FREE * block_n)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in range(M // (P * block_m)):
        stationary = _load_columns(lhsT, m * P * block_m, P * block_m)
        for n in range(N // (FREE * block_n)):
            moving = _load_columns(rhs, n * FREE * block_n, FREE * block_n)
            for bm in range(block_m):
                tile = nl.ndarray((P, FREE * block_n), dtype=lhsT.dtype, buffer=nl.sbuf)
                for bn in range(block_n):
                    accumulator = nl.ndarray((P, FREE), dtype=nl.float32, buffer=nl.psum)
                    columns = nl.ds(bn * FREE, FREE)
                    for k in range(K // P):
                        nisa.nc_matmul(
                            dst=accumulator,
                            stationary=stationary[k][:, nl.ds(bm * P, P)],
                            moving=moving[k][:, columns],
                        )
                    nisa.tensor_copy(dst=tile[:, columns], src=accumulator)
                rows = nl.ds((m * block_m + bm) * P, P)
                columns = nl.ds(n * FREE * block_n, FREE * block_n)
                nisa.dma_copy(dst=result[rows, columns], src=tile)
    return result


@nki.jit
def blocked(lhsT, rhs, block_m=4, block_n=2, block_k=4):
    """Step 5: K in blocks too; partial sums wait in SBUF, so SBUF use no longer grows with K."""
    K, M, N = _sizes(lhsT, rhs, P * block_k, P * block_m, FREE * block_n)
    result = nl.ndarray((M, N), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    width_m, width_n = P * block_m, FREE * block_n
    for n in range(N // width_n):
        for m in range(M // width_m):
            sums = [
                nl.ndarray((P, width_n), dtype=nl.float32, buffer=nl.sbuf) for _ in range(block_m)
            ]
            for k in range(K // (P * block_k)):
                rows = nl.ds(k * P * block_k, P * block_k)
                stationary = _load_columns(lhsT[rows, :], m * width_m, width_m)
                moving = _load_columns(rhs[rows, :], n * width_n, width_n)
                for bm in range(block_m):
                    for bn in range(block_n):
                        columns = nl.ds(bn * FREE, FREE)
                        accumulator = nl.ndarray((P, FREE), dtype=nl.float32, buffer=nl.psum)
                        for bk in range(block_k):
                            nisa.nc_matmul(
                                dst=accumulator,
                                stationary=stationary[bk][:, nl.ds(bm * P, P)],
                                moving=moving[bk][:, columns],
                            )
                        total = sums[bm][:, columns]
                        if k == 0:
                            nisa.tensor_copy(dst=total, src=accumulator)
                        else:
                            nisa.tensor_tensor(dst=total, data1=total, data2=accumulator, op=nl.add)
            for bm in range(block_m):
                tile = nl.ndarray((P, width_n), dtype=lhsT.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=tile, src=sums[bm])
                rows = nl.ds(m * width_m + bm * P, P)
                nisa.dma_copy(dst=result[rows, nl.ds(n * width_n, width_n)], src=tile)
    return result


LADDER = (tiled, hoisted, blocked_free, blocked)
