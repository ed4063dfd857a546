"""Cases of `nki.isa`."""

from functools import partial

import numpy as np
from surface import (
    FLOATS,
    INTEGERS,
    MOVED,
    NUMBERS,
    PACKED,
    SINCE_TRN2,
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


# Random numbers

MARSAGLIA = np.array([[123456789, 362436069, 521288629, 88675123, 5783321, 6615241]], np.uint32)
XORWOW = np.array([[246875399, 3690007200, 1264581005]], np.uint32)
"""The first numbers of the state above (Marsaglia, Xorshift RNGs, 2003)."""


@isa(INTEGERS, SINCE_TRN2)
def rng(dtype):
    def body(state):
        out = sbuf((1, 3), dtype)
        nisa.rand_set_state(state)
        nisa.rng(out, engine=nisa.engine.gpsimd)
        return out

    return body, (MARSAGLIA,), XORWOW.astype(dtype)  # the low bits


@isa(("uint32",), SINCE_TRN2)
def rand_get_state(dtype):
    def body(state):
        out = sbuf((1, 6), dtype)
        nisa.rand_set_state(state)
        nisa.rand_get_state(out)
        return out

    return body, (MARSAGLIA,), MARSAGLIA


@isa(("uint32", "int32", "float32"))
def set_rng_seed(dtype):
    def body(seed):
        pair = [sbuf((64, 32), nl.uint32) for _ in range(2)]
        for tile in pair:
            nisa.set_rng_seed(seed)
            nisa.rng(tile)
        return nl.bitwise_xor(*pair)

    return body, (np.array([[42]], dtype),), np.zeros((64, 32))


@isa(tuple(d for d in NUMBERS if d != "float8_e4m3fn"), TRN3)
def rand2(dtype):
    def body():
        out = sbuf((128, 200), dtype)
        nisa.rand2(dst=out, min=0.0, max=64.0)
        return out

    def uniform(got):
        sample = got.astype(float)
        return 0 <= sample.min() < 1 and 60 < sample.max() <= 64 and abs(sample.mean() - 32) < 1

    return body, (), uniform


@isa((*NUMBERS, "bool"))
def dropout(dtype):
    x = values(dtype, (128, 100), low=1, high=2)

    def body(a):
        out = sbuf(a.shape, a.dtype)
        nisa.dropout(dst=out, data=a, prob=0.25)
        return out

    return body, (x,), lambda got: abs(got.astype(float).mean() - 0.75) < 0.02


# Registers


@isa(("int32", "uint32"))
def register_load(dtype):
    x = np.array([[5]], dtype)

    def body(a):
        first, second = nisa.register_alloc(), nisa.register_alloc(3)
        nisa.register_load(first, a)
        out = sbuf((1, 3), dtype)
        nisa.register_store(out[:, 0:1], first)
        nisa.register_store(out[:, 1:2], second)
        nisa.register_move(second, first)
        nisa.register_store(out[:, 2:3], second)
        return out

    return body, (x,), np.array([[5, 3, 5]])


# Cores


@isa((*NUMBERS, "bool"), SINCE_TRN2, cores=2)
def sendrecv(dtype):
    x = values(dtype, (2, 24))

    def body(a):
        mine, other = nl.program_id(0), 1 - nl.program_id(0)
        received = sbuf((1, 24), a.dtype)
        row = nl.copy(nl.load(a_rows(a)[nl.ds(mine, 1), :]))
        nisa.sendrecv(src=row, dst=received, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        out = nl.ndarray((2, 24), dtype=received.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.ds(mine, 1), :], received)
        return out

    return body, (x,), x[::-1]


def a_rows(tile):
    """A tile's data in HBM, private to the core, so that rows of it can be loaded."""
    rows = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.private_hbm)
    nl.store(rows, tile)
    return rows


@isa((*NUMBERS, "bool"), SINCE_TRN2, cores=2)
def core_barrier(dtype):
    x = values(dtype, (2, 24))

    def body(a):
        mine, other = nl.program_id(0), 1 - nl.program_id(0)
        shared = nl.ndarray((2, 24), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(shared[nl.ds(mine, 1), :], nl.load(a_rows(a)[nl.ds(mine, 1), :]))
        nisa.core_barrier(shared, (0, 1))
        out = nl.ndarray((2, 24), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.ds(mine, 1), :], nl.load(shared[nl.ds(other, 1), :]))
        return out

    return body, (x,), x[::-1]


# What is known of the device

VERSIONS = {"trn1": 2, "trn2": 3, "trn3": 4}


@isa(("float32",))
def get_nc_version(dtype):
    def body():
        assert nisa.get_nc_sub_version() == 0  # the first revision
        version = nisa.get_nc_version()
        assert isinstance(version, nisa.nc_version)
        assert nisa.nc_version.gen2 <= version <= nisa.nc_version.gen4
        return nl.full((1, 1), version.value, nl.float32)

    return body, (), lambda got: got[0, 0] in VERSIONS.values()


@isa(("float32",), SINCE_TRN2)
def engine(dtype):
    names = ("vector", "scalar", "gpsimd", "unknown")

    def body(a):
        results = []
        for name in names:
            named = getattr(nisa, f"{name}_engine")
            assert named == getattr(nisa.engine, name)
            out = sbuf(a.shape, a.dtype)
            nisa.tensor_copy(dst=out, src=a, engine=named)
            results.append(out)
        return tuple(results)

    x = values(dtype, SHAPE)
    return body, (x,), (x,) * len(names)


USED_BY = {
    "nki.isa.rand_set_state": "nki.isa.rand_get_state",
    "nki.isa.register_alloc": "nki.isa.register_load",
    "nki.isa.register_move": "nki.isa.register_load",
    "nki.isa.register_store": "nki.isa.register_load",
    "nki.isa.VirtualRegister": "nki.isa.register_load",
    "nki.isa.nc_version": "nki.isa.get_nc_version",
    "nki.isa.get_nc_sub_version": "nki.isa.get_nc_version",
    "nki.isa.vector_engine": "nki.isa.engine",
    "nki.isa.scalar_engine": "nki.isa.engine",
    "nki.isa.gpsimd_engine": "nki.isa.engine",
    "nki.isa.unknown_engine": "nki.isa.engine",
}
"""Names whose use is in the case of another name."""
