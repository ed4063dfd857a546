"""Kernels that must work end to end in all modes, each with its NumPy reference."""

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl

P = 128


def softmax_numpy(a):
    """Row softmax in float64."""
    x = a.astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@nki.jit
def softmax(a):
    """Softmax over rows, 128 rows a tile."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, P):
        height = min(P, rows - start)
        tile = nl.ndarray((height, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(start, height), :])
        lowest = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=lowest, op=nl.maximum, data=tile, axis=1, negate=True)
        total = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        exponentials = nl.ndarray((height, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            dst=exponentials, op=nl.exp, data=tile, reduce_op=nl.add, reduce_res=total, bias=lowest
        )
        inverse = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.reciprocal(dst=inverse, data=total)
        result = nl.ndarray((height, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=result, data=exponentials, op0=nl.multiply, operand0=inverse)
        nisa.dma_copy(dst=out[nl.ds(start, height), :], src=result)
    return out


def rmsnorm_numpy(a, weight):
    """x / sqrt(mean(x^2) + 1e-6) * weight in float64."""
    x = a.astype(np.float64)
    scale = np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)
    return x / scale * weight.astype(np.float64)


@nki.jit
def rmsnorm(a, weight):
    """RMSNorm over rows; `weight` [1, columns] is broadcast over partitions by DMA."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    weights = nl.ndarray((P, columns), dtype=weight.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weights, src=weight.ap(pattern=[[0, P], [1, columns]]))
    for start in range(0, rows, P):
        tile = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(start, P), :])
        squares = nl.ndarray((P, columns), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(
            dst=squares,
            op=nl.square,
            data=tile,
            reduce_op=nl.add,
            reduce_res=total,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        scale = nl.ndarray((P, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=total,
            data=total,
            op0=nl.multiply,
            operand0=1.0 / columns,
            op1=nl.add,
            operand1=1e-6,
        )
        nisa.activation(dst=scale, op=nl.rsqrt, data=total)
        result = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=result,
            data=tile,
            op0=nl.multiply,
            operand0=scale,
            op1=nl.multiply,
            operand1=weights,
        )
        nisa.dma_copy(dst=out[nl.ds(start, P), :], src=result)
    return out


@nki.jit
def scaled_rows(a):
    """2 * a + 1 over any multiple of 128 rows, in a loop over the launch symbol."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // P):
        tile = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(i * P, P), :])
        result = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=result, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0
        )
        nisa.dma_copy(dst=out[nl.ds(i * P, P), :], src=result)
    return out


@nki.jit
def scaled_rows_remainder(a):
    """2 * a + 1 over any number of rows: the last tile may be short."""
    rows, columns = a.shape
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range((rows + P - 1) // P):
        source = a[i * P : (i + 1) * P, :]
        height = source.shape[0]
        tile = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[0:height, :], src=source)
        result = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(
            dst=result[0:height, :],
            data=tile[0:height, :],
            op0=nl.multiply,
            operand0=2.0,
            op1=nl.add,
            operand1=1.0,
        )
        nisa.dma_copy(dst=out[i * P : (i + 1) * P, :], src=result[0:height, :])
    return out


def scaled_numpy(a):
    return a.astype(np.float64) * 2 + 1


@nki.jit
def symbolic_matmul(lhsT, rhs):
    """A matmul whose K is a launch symbol: the accumulation starts in the loop."""
    K, M = lhsT.shape
    _, N = rhs.shape
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    accumulator = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(K // P):
        stationary = nl.ndarray((P, M), dtype=lhsT.dtype, buffer=nl.sbuf)
        moving = nl.ndarray((P, N), dtype=rhs.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=stationary, src=lhsT[nl.ds(k * P, P), :])
        nisa.dma_copy(dst=moving, src=rhs[nl.ds(k * P, P), :])
        nisa.nc_matmul(dst=accumulator, stationary=stationary, moving=moving)
    tile = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=accumulator)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def dynamic_rows(a, counts):
    """For two halves of `a`: double the first counts[half] blocks of 8 rows, zero elsewhere."""
    rows, columns = a.shape
    half = rows // 2
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    zero = nl.ndarray((P, columns), dtype=a.dtype, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    nisa.dma_copy(dst=out[:, :], src=zero[0:rows, :])
    trips = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=trips, src=counts)
    for part in range(2):
        stop = nisa.register_alloc()
        nisa.register_load(stop, trips[0:1, nl.ds(part, 1)])
        for i in nl.dynamic_range(part * half, stop, 8):
            tile = nl.ndarray((8, columns), dtype=a.dtype, buffer=nl.sbuf)
            block = [[columns, 8], [1, columns]]
            nisa.dma_copy(dst=tile, src=a.ap(pattern=block, scalar_offset=i))
            nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
            nisa.dma_copy(dst=out.ap(pattern=block, scalar_offset=i), src=tile)
    return out


def dynamic_rows_numpy(a, counts):
    half = a.shape[0] // 2
    out = np.zeros_like(a)
    for part in range(2):
        low, high = part * half, int(counts[0, part])
        high = low + -(-(high - low) // 8) * 8 if high > low else low
        out[low:high] = 2 * a[low:high]
    return out


@nki.jit
def halve_until_small(a, steps):
    """Halve `a` while the counter in the tensor `steps` is not zero."""
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    counter = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=counter, src=steps)
    one = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=one, value=1)
    left = nisa.register_alloc()
    nisa.register_load(left, counter)
    while left:
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
        nisa.tensor_tensor(dst=counter, data1=counter, data2=one, op=nl.subtract)
        nisa.register_load(left, counter)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


@nki.jit
def exchange_halves(a):
    """Each core doubles its half into shared HBM, then writes the other core's half + 1."""
    rows, columns = a.shape
    half = rows // 2
    core = nl.program_id(0)
    shared = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    mine, theirs = nl.ds(core * half, half), nl.ds((1 - core) * half, half)
    tile = nl.ndarray((half, columns), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a[mine, :])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nisa.dma_copy(dst=shared[mine, :], src=tile)
    nisa.core_barrier(data=shared, cores=(0, 1))
    other = nl.ndarray((half, columns), dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=other, src=shared[theirs, :])
    nisa.tensor_scalar(dst=other, data=other, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out[mine, :], src=other)
    return out


def exchange_halves_numpy(a):
    half = a.shape[0] // 2
    return np.concatenate([2 * a[half:], 2 * a[:half]]) + 1


@nki.jit
def shared_bytes(a, b):
    """Two tensors at one address, one after the other: (a + 1) and (b * 3)."""
    shape = a.shape
    outs = []
    for source, op, operand in ((a, nl.add, 1.0), (b, nl.multiply, 3.0)):
        tile = nl.ndarray(shape, dtype=source.dtype, buffer=nl.sbuf, address=(0, 4096))
        nisa.dma_copy(dst=tile, src=source)
        nisa.tensor_scalar(dst=tile, data=tile, op0=op, operand0=operand)
        out = nl.ndarray(shape, dtype=source.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=tile)
        outs.append(out)
    return tuple(outs)


@nki.jit
def gather_scatter(table, indices, targets):
    """Gather rows table[indices], then scatter them to out[targets]; other rows are zero."""
    rows, columns = table.shape
    count = indices.shape[0]
    out = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
    zero = nl.ndarray((P, columns), dtype=table.dtype, buffer=nl.sbuf)
    nisa.memset(dst=zero, value=0.0)
    nisa.dma_copy(dst=out, src=zero[0:rows, :])
    index = nl.ndarray((count, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=index, src=indices)
    target = nl.ndarray((count, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=target, src=targets)
    tile = nl.ndarray((count, columns), dtype=table.dtype, buffer=nl.sbuf)
    pattern = [[columns, count], [1, columns]]
    nisa.dma_copy(dst=tile, src=table.ap(pattern=pattern, vector_offset=index, indirect_dim=0))
    nisa.dma_copy(dst=out.ap(pattern=pattern, vector_offset=target, indirect_dim=0), src=tile)
    return out


def gather_scatter_numpy(table, indices, targets):
    out = np.zeros_like(table)
    out[targets[:, 0]] = table[indices[:, 0]]
    return out
