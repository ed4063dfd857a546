"""Cases of `nki.isa`: copies, the tensor engine, element-wise operations, reductions and scans."""

from functools import partial

import numpy as np
from surface import (
    FLOATS,
    MOVED,
    NUMBERS,
    PACKED,
    TRN3,
    case,
    psum,
    sbuf,
    values,
)

import nki.isa as nisa
import nki.language as nl

isa = partial(case, "nki.isa")
SHAPE = (16, 24)
SCAN = tuple(d for d in NUMBERS if d not in ("tfloat32", "int32", "uint32"))
PRODUCTS = tuple(d for d in FLOATS)


def wide(*arrays):
    return tuple(a.astype(np.float64) for a in arrays)


# Copies


@isa(MOVED)
def dma_copy(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        out = sbuf(a.shape, a.dtype)
        nisa.dma_copy(dst=out, src=a)
        return out

    return body, (x,), x


@isa(MOVED)
def tensor_copy(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        out = sbuf(a.shape, a.dtype)
        nisa.tensor_copy(dst=out, src=a)
        return out

    return body, (x,), x


@isa(NUMBERS)
def memset(dtype):
    def body():
        out = sbuf(SHAPE, dtype)
        nisa.memset(dst=out, value=3)
        return out

    return body, (), np.full(SHAPE, 3)


@isa((*NUMBERS, "bool", "float8_e8m0fnu"))
def tensor_copy_predicated(dtype):
    x, y, mask = values(dtype, SHAPE), values(dtype, SHAPE, 1), values("uint8", SHAPE, 2, high=2)

    def body(a, b, m):
        nisa.tensor_copy_predicated(dst=a, src=b, predicate=m)
        return a

    return body, (x, y, mask), np.where(mask, y.astype(float), x.astype(float))


# The tensor engine


@isa(PRODUCTS)
def nc_matmul(dtype):
    x, y = values(dtype, (32, 12)), values(dtype, (32, 20), 1)

    def body(a, b):
        product = psum((12, 20))
        nisa.nc_matmul(dst=product, stationary=a, moving=b)
        return product

    a, b = wide(x, y)
    return body, (x, y), a.T @ b


@isa(PACKED, TRN3)
def nc_matmul_mx(dtype):
    x, y = values(dtype, (32, 12)), values(dtype, (32, 20), 1)
    scales = [np.full((32, n), code, np.uint8) for n, code in ((12, 127), (20, 128))]

    def body(a, b, s, t):
        product = psum((12, 20))
        nisa.nc_matmul_mx(product, a, b, s, t)
        return product

    import neuron_dtypes

    a, b = (neuron_dtypes.static_cast(v, np.float32).reshape(32, -1, 4) for v in (x, y))
    return body, (x, y, *scales), 2 * np.einsum("pml,pnl->mn", a, b)


@isa(("float16", "bfloat16"), TRN3)
def quantize_mx(dtype):
    x = np.repeat([1.0, 2.0, 300.0, 0.0], 8)[:, None] * np.ones((1, 4))

    def body(a):
        data = sbuf((32, 1), nl.float8_e4m3fn_x4)
        scale = sbuf((4, 1), nl.uint8)
        nisa.quantize_mx(dst=data, src=a, dst_scale=scale)
        return scale

    return body, (x.astype(values(dtype, (1,)).dtype),), np.array([[120], [121], [128], [0]])


@isa((*NUMBERS, "float8_e8m0fnu", "bool"))
def nc_transpose(dtype):
    x = values(dtype, (32, 32))

    def body(a):
        out = sbuf((32, 32), a.dtype)
        nisa.nc_transpose(dst=out, data=a, engine=nisa.engine.vector)
        return out

    return body, (x,), x.T


@isa(MOVED)
def dma_transpose(dtype):
    x = values(dtype, (16, 24))

    def body(a):
        out = sbuf((24, 16), a.dtype)
        nisa.dma_transpose(dst=out, src=a)
        return out

    return body, (x,), x.T.copy()


# Element-wise


@isa()
def tensor_tensor(dtype):
    x, y = values(dtype, SHAPE), values(dtype, SHAPE, 1)

    def body(a, b):
        out = sbuf(a.shape, dtype)
        nisa.tensor_tensor(dst=out, data1=a, data2=b, op=nl.add)
        return out

    a, b = wide(x, y)
    return body, (x, y), a + b


@isa()
def tensor_scalar(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        out = sbuf(a.shape, dtype)
        nisa.tensor_scalar(out, a, nl.multiply, 2.0, op1=nl.add, operand1=1.0)
        return out

    return body, (x,), 2 * x.astype(float) + 1


@isa()
def scalar_tensor_tensor(dtype):
    x, y = values(dtype, SHAPE), values(dtype, SHAPE, 1)

    def body(a, b):
        out = sbuf(a.shape, dtype)
        nisa.scalar_tensor_tensor(out, a, nl.multiply, 2.0, nl.maximum, b)
        return out

    a, b = wide(x, y)
    return body, (x, y), np.maximum(2 * a, b)


@isa()
def reciprocal(dtype):
    x = values(dtype, SHAPE, high=2) + values(dtype, SHAPE, low=1, high=2)

    def body(a):
        out = sbuf(a.shape, nl.float32)
        nisa.reciprocal(dst=out, data=a)
        return out

    return body, (x,), 1 / x.astype(float)


@isa()
def activation(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        out = sbuf(a.shape, dtype)
        nisa.activation(dst=out, op=nl.square, data=a, scale=2.0)
        return out

    return body, (x,), np.square(2 * x.astype(float))


@isa()
def activation_reduce(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        out, total = sbuf(a.shape, dtype), sbuf((16, 1), nl.float32)
        nisa.activation_reduce(
            dst=out, op=nl.relu, data=a, reduce_op=nl.add, reduce_res=total, scale=2.0
        )
        return out, total

    doubled = 2 * x.astype(float)
    return body, (x,), (doubled, doubled.sum(axis=1, keepdims=True))


@isa(NUMBERS, TRN3)
def activate2(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        out, most = sbuf(a.shape, dtype), sbuf((16, 1), nl.float32)
        nisa.activate2(
            *(out, nl.square, a, 2.0, 1.0, nl.multiply, nl.add),
            reduce_op=nl.maximum,
            reduce_res=most,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return most

    return body, (x,), np.square(2 * x.astype(float) + 1).max(axis=1, keepdims=True)


@isa(("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2",
      "int8", "int16", "int32", "uint8", "uint16", "uint32"), TRN3)  # fmt: skip
def exponential(dtype):
    x = values(dtype, SHAPE, low=2, high=3)

    def body(a):
        out, total = sbuf(a.shape, nl.float32), sbuf((16, 1), nl.float32)
        nisa.exponential(
            out, a, max_value=2.0, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce
        )
        return out, total

    return body, (x,), (np.ones(SHAPE), np.full((16, 1), 24))


# Reductions and scans


@isa()
def tensor_reduce(dtype):
    x = values(dtype, (16, 4))

    def body(a):
        out = sbuf((16, 1), dtype)
        nisa.tensor_reduce(dst=out, op=nl.add, data=a, axis=1)
        return out

    return body, (x,), x.astype(float).sum(axis=1, keepdims=True)


@isa()
def tensor_partition_reduce(dtype):
    x = values(dtype, (4, 24))

    def body(a):
        out = sbuf((1, 24), dtype)
        nisa.tensor_partition_reduce(dst=out, op=nl.add, data=a)
        return out

    return body, (x,), x.astype(float).sum(axis=0, keepdims=True)


@isa()
def tensor_scalar_reduce(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        out, total = sbuf(a.shape, dtype), sbuf((16, 1), nl.float32)
        nisa.tensor_scalar_reduce(
            dst=out, data=a, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=total
        )
        return out, total

    doubled = 2 * x.astype(float)
    return body, (x,), (doubled, doubled.sum(axis=1, keepdims=True))


@isa(SCAN)
def tensor_scalar_cumulative(dtype):
    x = values(dtype, (16, 4))

    def body(a):
        out = sbuf(a.shape, dtype)
        nisa.tensor_scalar_cumulative(dst=out, src=a, op0=nl.multiply, op1=nl.add, imm0=1.0)
        return out

    return body, (x,), np.cumsum(x.astype(float), axis=1)


@isa()
def tensor_tensor_scan(dtype):
    x, y = values(dtype, (16, 4), high=2), values(dtype, (16, 4), 1)

    def body(a, b):
        out = sbuf(a.shape, dtype)
        nisa.tensor_tensor_scan(dst=out, data0=a, data1=b, initial=1.0, op0=nl.multiply, op1=nl.add)
        return out

    expected, carried = np.empty((16, 4)), np.ones(16)
    for i, (a, b) in enumerate(zip(x.astype(float).T, y.astype(float).T)):
        expected[:, i] = carried = a * carried + b
    return body, (x, y), expected


@isa()
def bn_stats(dtype):
    x = np.repeat(values(dtype, (16, 1)), 8, axis=1)

    def body(a):
        out = sbuf((16, 6), nl.float32)
        nisa.bn_stats(dst=out, data=a)
        return out

    column = x[:, :1].astype(float)
    triple = np.concatenate([np.full((16, 1), 4), column, np.zeros((16, 1))], axis=1)
    return body, (x,), np.concatenate([triple, triple], axis=1)


@isa(("float32",))
def bn_aggr(dtype):
    x = np.array([[2, 1, 0, 2, 3, 0], [4, 5, 8, 4, 5, 0]], np.float32)

    def body(a):
        out = sbuf((2, 2), nl.float32)
        nisa.bn_aggr(dst=out, data=a)
        return out

    return body, (x,), np.array([[2, 1], [5, 1]])


@isa()
def dma_compute(dtype):
    x, y = values(dtype, SHAPE), values(dtype, SHAPE, 1)

    def body(a, b):
        out = sbuf(a.shape, a.dtype)
        nisa.dma_compute(dst=out, srcs=[a, b], reduce_op=nl.add)
        return out

    a, b = wide(x, y)
    return body, (x, y), a + b
