"""Matrix products with published latencies: [K, M].T @ [K, N] unless a name says otherwise."""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from latency.tiles import BANK, P, chip, loaded, on_scalar, output, psum, scalar_copy


def store(result: Any, row: int, column: int, tile: Any) -> None:
    rows, columns = tile.shape
    nisa.dma_copy(dst=result[nl.ds(row, rows), nl.ds(column, columns)], src=tile)


def copied(source: Any, dtype: Any, engine: Any) -> Any:
    if engine is nisa.engine.scalar:
        return on_scalar(source, dtype)
    tile = chip(source.shape, dtype)
    nisa.tensor_copy(dst=tile, src=source, engine=engine)
    return tile


@nki.jit
def loads_inside(lhs_t, rhs, engine=nisa.engine.vector):
    """Both tiles of every product loaded in the innermost loop."""
    depth, rows = lhs_t.shape
    columns = rhs.shape[1]
    result = output((rows, columns), lhs_t.dtype)
    for m in range(0, rows, P):
        for n in range(0, columns, BANK):
            total = psum((P, BANK))
            for k in range(0, depth, P):
                stationary = loaded(lhs_t[nl.ds(k, P), nl.ds(m, P)])
                moving = loaded(rhs[nl.ds(k, P), nl.ds(n, BANK)])
                nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
            store(result, m, n, copied(total, lhs_t.dtype, engine))
    return result


@nki.jit
def hoisted_columns(lhs_t, rhs):
    """A column of lhs tiles loaded for a row of output tiles, one of rhs tiles for each tile."""
    depth, rows = lhs_t.shape
    columns = rhs.shape[1]
    result = output((rows, columns), lhs_t.dtype)
    for m in range(0, rows, P):
        left = [loaded(lhs_t[nl.ds(k, P), nl.ds(m, P)]) for k in range(0, depth, P)]
        for n in range(0, columns, BANK):
            right = [loaded(rhs[nl.ds(k, P), nl.ds(n, BANK)]) for k in range(0, depth, P)]
            total = psum((P, BANK))
            for stationary, moving in zip(left, right):
                nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
            store(result, m, n, copied(total, lhs_t.dtype, nisa.engine.vector))
    return result


@nki.jit
def free_blocks(lhs_t, rhs, block_rows=8, block_columns=2):
    """Blocks over both free dimensions, loaded in tiles of 128 x 128 and 128 x 512."""
    depth, rows = lhs_t.shape
    columns = rhs.shape[1]
    result = output((rows, columns), lhs_t.dtype)
    depths = range(0, depth, P)
    for m in range(0, rows, block_rows * P):
        left = [
            [loaded(lhs_t[nl.ds(k, P), nl.ds(m + i * P, P)]) for k in depths]
            for i in range(block_rows)
        ]
        for n in range(0, columns, block_columns * BANK):
            right = [
                [loaded(rhs[nl.ds(k, P), nl.ds(n + j * BANK, BANK)]) for k in depths]
                for j in range(block_columns)
            ]
            for i in range(block_rows):
                for j in range(block_columns):
                    total = psum((P, BANK))
                    for stationary, moving in zip(left[i], right[j]):
                        nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
                    tile = copied(total, lhs_t.dtype, nisa.engine.vector)
                    store(result, m + i * P, n + j * BANK, tile)
    return result


@nki.jit
def transposed_tiles(lhs, rhs):
    """lhs [M, K]: each tile is transposed by TensorE in front of each product."""
    rows, depth = lhs.shape
    columns = rhs.shape[1]
    result = output((rows, columns), lhs.dtype)
    for m in range(0, rows, P):
        for n in range(0, columns, BANK):
            total = psum((P, BANK))
            for k in range(0, depth, P):
                tile = loaded(lhs[nl.ds(m, P), nl.ds(k, P)])
                turned = psum((P, P), lhs.dtype)
                nisa.nc_transpose(dst=turned, data=tile, engine=nisa.engine.tensor)
                stationary = copied(turned, lhs.dtype, nisa.engine.vector)
                moving = loaded(rhs[nl.ds(k, P), nl.ds(n, BANK)])
                nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
            store(result, m, n, copied(total, lhs.dtype, nisa.engine.vector))
    return result


@nki.jit
def resident(lhs, rhs, lhs_turned=False, rhs_turned=False):
    """Both matrices loaded as a whole, then all products, then all stores. A turned matrix comes
    with its free dimension first, and its tiles are transposed by the DMA engines."""
    depth = lhs.shape[1] if lhs_turned else lhs.shape[0]
    rows = lhs.shape[0] if lhs_turned else lhs.shape[1]
    columns = rhs.shape[0] if rhs_turned else rhs.shape[1]
    result = output((rows, columns), lhs.dtype)

    def tiles(matrix: Any, width: int, free: int, turned: bool) -> list[list[Any]]:
        return [
            [_tile(matrix, k, start, width, turned) for start in range(0, free, width)]
            for k in range(0, depth, P)
        ]

    if rhs_turned and not lhs_turned:
        right = tiles(rhs, BANK, columns, rhs_turned)
        left = tiles(lhs, P, rows, lhs_turned)
    else:
        left = tiles(lhs, P, rows, lhs_turned)
        right = tiles(rhs, BANK, columns, rhs_turned)
    results = []
    for m in range(rows // P):
        for n in range(columns // BANK):
            total = psum((P, BANK))
            nisa.memset(dst=total, value=0.0)
            for k in range(depth // P):
                nisa.nc_matmul(dst=total, stationary=left[k][m], moving=right[k][n])
            results.append((m * P, n * BANK, copied(total, lhs.dtype, nisa.engine.vector)))
    for row, column, tile in results:
        store(result, row, column, tile)
    return result


def _tile(matrix: Any, k: int, start: int, width: int, turned: bool) -> Any:
    if not turned:
        return loaded(matrix[nl.ds(k, P), nl.ds(start, width)])
    tile = chip((P, width), matrix.dtype)
    nisa.dma_transpose(dst=tile, src=matrix[nl.ds(start, width), nl.ds(k, P)])
    return tile


@nki.jit
def summed_blocks(lhs_t, rhs, packed=False):
    """Blocks of 512 rows and 1024 of K: sums of each block are added to tiles in SBUF. `packed`
    copies results once more before they are stored."""
    depth, rows = lhs_t.shape
    columns = rhs.shape[1]
    result = output((rows, columns), lhs_t.dtype)
    block = min(1024, depth)
    width = min(BANK, rows)
    for n in range(0, columns, BANK):
        sums = [chip((P, BANK), lhs_t.dtype) for _ in range(rows // P)]
        for tile in sums:
            nisa.memset(dst=tile, value=0.0)
        for k in range(0, depth, block):
            depths = range(k, k + block, P)
            right = [loaded(rhs[nl.ds(d, P), nl.ds(n, BANK)]) for d in depths]
            for m in range(0, rows, width):
                left = [loaded(lhs_t[nl.ds(d, P), nl.ds(m, width)]) for d in depths]
                for i in range(0, width, P):
                    total = psum((P, BANK))
                    nisa.memset(dst=total, value=0.0)
                    for stationary, moving in zip(left, right):
                        nisa.nc_matmul(
                            dst=total,
                            stationary=stationary[:, nl.ds(i, P)],
                            moving=moving,
                        )
                    part = copied(total, lhs_t.dtype, nisa.engine.vector)
                    goal = sums[(m + i) // P]
                    nisa.tensor_tensor(dst=goal, data1=goal, data2=part, op=nl.add)
        for index, tile in enumerate(sums):
            if packed:
                tile = copied(tile, lhs_t.dtype, nisa.engine.vector)
            store(result, index * P, n, tile)
    return result


@nki.jit
def eight_sums(lhs_t, rhs, wide=False):
    """Four by two output tiles at once, one in each PSUM bank; `wide` loads the four tiles of lhs
    and the two of rhs by one transfer each."""
    depth, rows = lhs_t.shape
    columns = rhs.shape[1]
    result = output((rows, columns), lhs_t.dtype)
    for m in range(0, rows, 4 * P):
        for n in range(0, columns, 2 * BANK):
            totals = [[psum((P, BANK)) for _ in range(2)] for _ in range(4)]
            for k in range(0, depth, P):
                if wide:
                    right_row = loaded(rhs[nl.ds(k, P), nl.ds(n, 2 * BANK)])
                    left_row = loaded(lhs_t[nl.ds(k, P), nl.ds(m, 4 * P)])
                    right = [right_row[:, nl.ds(j * BANK, BANK)] for j in range(2)]
                    left = [left_row[:, nl.ds(i * P, P)] for i in range(4)]
                else:
                    right = [loaded(rhs[nl.ds(k, P), nl.ds(n + j * BANK, BANK)]) for j in range(2)]
                    left = [loaded(lhs_t[nl.ds(k, P), nl.ds(m + i * P, P)]) for i in range(4)]
                for i in range(4):
                    for j in range(2):
                        nisa.nc_matmul(dst=totals[i][j], stationary=left[i], moving=right[j])
            for i in range(4):
                for j in range(2):
                    tile = copied(totals[i][j], lhs_t.dtype, nisa.engine.vector)
                    store(result, m + i * P, n + j * BANK, tile)
    return result


def identity(dtype: Any) -> Any:
    """128 x 128 ones on the diagonal."""
    tile = chip((P, P), dtype)
    nisa.memset(dst=tile, value=1.0)
    nisa.affine_select(
        dst=tile,
        pattern=[[-1, P]],
        channel_multiplier=1,
        on_true_tile=tile,
        on_false_value=0.0,
        cmp_op=nl.equal,
    )
    return tile


@nki.jit
def rows_turned(lhs, rhs):
    """lhs [M, K]: tiles of 1024 columns, each transposed by a product with the identity; tiles of
    rhs are loaded in front of each product (9.06 GB read: NB010), not kept."""
    rows, depth = lhs.shape
    columns = rhs.shape[1]
    result = output((rows, columns), lhs.dtype)
    wide = min(8 * P, depth)
    one = identity(lhs.dtype)
    for n in range(0, columns, 2 * BANK):
        for m in range(0, rows, P):
            turned = []
            for k in range(0, depth, wide):
                tile = loaded(lhs[nl.ds(m, P), nl.ds(k, wide)])
                for part in range(0, wide, P):
                    product = psum((P, P))
                    nisa.nc_matmul(dst=product, stationary=tile[:, nl.ds(part, P)], moving=one)
                    turned.append(on_scalar(product))
            tile = chip((P, 2 * BANK), lhs.dtype)
            for j in range(0, 2 * BANK, BANK):
                total = psum((P, BANK))
                for k, stationary in zip(range(0, depth, P), turned):
                    moving = loaded(rhs[nl.ds(k, P), nl.ds(n + j, BANK)])
                    nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
                scalar_copy(tile[:, nl.ds(j, BANK)], total)
            store(result, m, n, tile)
    return result


@nki.jit
def batched(lhs, rhs):
    """[B, M, 64] @ [B, 64, N]: tiles of lhs transposed by a product with the identity."""
    batch, rows, depth = lhs.shape
    columns = rhs.shape[2]
    result = output((batch, rows, columns), lhs.dtype)
    wide = 2 * BANK
    one = identity(lhs.dtype)
    for b in range(batch):
        for n in range(0, columns, wide):
            right = loaded(rhs[b, :, nl.ds(n, wide)])
            for m in range(0, rows, 8 * P):
                turned = chip((depth, 8 * P), lhs.dtype)
                for i in range(0, 8 * P, P):
                    product = psum((depth, P))
                    tile = loaded(lhs[b, nl.ds(m + i, P), :])
                    nisa.nc_matmul(dst=product, stationary=tile, moving=one)
                    scalar_copy(turned[:, nl.ds(i, P)], product)
                for i in range(0, 8 * P, P):
                    tile = chip((P, wide), lhs.dtype)
                    for j in range(0, wide, BANK):
                        total = psum((P, BANK))
                        nisa.nc_matmul(
                            dst=total,
                            stationary=turned[:, nl.ds(i, P)],
                            moving=right[:, nl.ds(j, BANK)],
                        )
                        scalar_copy(tile[:, nl.ds(j, BANK)], total)
                    nisa.dma_copy(dst=result[b, nl.ds(m + i, P), nl.ds(n, wide)], src=tile)
    return result
