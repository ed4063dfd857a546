"""Cases of `nki.isa`: selections, searches, gathers, and operands with dtypes of their own."""

from functools import partial

import numpy as np
from surface import FLOATS, NUMBERS, SINCE_TRN2, TRN3, case, psum, sbuf, values

import nki.isa as nisa
import nki.language as nl

isa = partial(case, "nki.isa")
SHAPE = (16, 24)


# Selections and searches


@isa()
def iota(dtype):
    def body():
        out = sbuf((4, 6), dtype)
        nisa.iota(dst=out, pattern=[[1, 6]], offset=1, channel_multiplier=2)
        return out

    return body, (), 1 + np.arange(6) + 2 * np.arange(4)[:, None]


@isa()
def affine_select(dtype):
    x = values(dtype, (8, 8))

    def body(a):
        out = sbuf(a.shape, dtype)
        nisa.affine_select(
            dst=out, pattern=[[-1, 8]], channel_multiplier=1, cmp_op=nl.greater_equal,
            on_true_tile=a, on_false_value=3.0,
        )  # fmt: skip
        return out

    return body, (x,), np.where(np.tri(8, dtype=bool), x.astype(float), 3)


@isa((*FLOATS, "float8_e8m0fnu"), SINCE_TRN2)
def range_select(dtype):
    x = values(dtype, (4, 6))
    first, last = np.full((4, 1), 1, np.float32), np.full((4, 1), 4, np.float32)

    def body(a, b, c):
        out, most = sbuf(a.shape, nl.float32), sbuf((4, 1), nl.float32)
        nisa.range_select(
            dst=out, on_true_tile=a, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=b,
            bound1=c, reduce_res=most,
        )  # fmt: skip
        return out, most

    inside = (np.arange(6) >= 1) & (np.arange(6) < 4)
    lowest = np.finfo(np.float32).min
    kept = np.where(inside, x.astype(float), lowest)
    return body, (x, first, last), (kept, kept.max(axis=1, keepdims=True))


@isa((*(d for d in NUMBERS if d not in ("tfloat32", "int32", "uint32")), "bool", "float8_e8m0fnu"))
def select_reduce(dtype):
    x, mask = values(dtype, (4, 6)), values("uint8", (4, 6), 1, high=2)

    def body(a, m):
        out, most = sbuf(a.shape, dtype), sbuf((4, 1), nl.float32)
        nisa.select_reduce(
            dst=out, predicate=m, on_true=a, on_false=1.0, reduce_res=most,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )  # fmt: skip
        return out, most

    kept = np.where(mask, x.astype(float), 1)
    return body, (x, mask), (kept, kept.max(axis=1, keepdims=True))


def distinct(dtype, columns=12):
    """Rows of numbers that differ, which every dtype holds."""
    rows = np.stack([np.random.default_rng(i).permutation(columns) for i in range(4)])
    return rows.astype(values(dtype, (1,)).dtype)


@isa()
def max8(dtype):
    x = distinct(dtype)

    def body(a):
        out = sbuf((4, 8), dtype)
        nisa.max8(dst=out, src=a)
        return out

    return body, (x,), -np.sort(-x.astype(float), axis=1)[:, :8]


@isa()
def nc_find_index8(dtype):
    x = distinct(dtype)
    wanted = np.sort(x.astype(float), axis=1)[:, :8].astype(x.dtype)

    def body(a, v):
        out = sbuf((4, 8), nl.uint32)
        nisa.nc_find_index8(dst=out, data=a, vals=v)
        return out

    return body, (x, wanted), np.argsort(x.astype(float), axis=1)[:, :8]


@isa()
def nc_match_replace8(dtype):
    x = distinct(dtype)
    wanted = np.sort(x.astype(float), axis=1)[:, :8].astype(x.dtype)

    def body(a, v):
        out, places = sbuf(a.shape, dtype), sbuf((4, 8), nl.uint32)
        nisa.nc_match_replace8(dst=out, data=a, vals=v, imm=15.0, dst_idx=places)
        return out, places

    x64 = x.astype(float)
    return body, (x, wanted), (np.where(x64 < 8, 15, x64), np.argsort(x64, axis=1)[:, :8])


@isa(("bfloat16",))
def topk(dtype):
    x = np.arange(32).reshape(2, 16).T.astype(values(dtype, (1,)).dtype)  # element i is i

    def body(a):
        found, places = sbuf((16, 2), nl.bfloat16), sbuf((16, 2), nl.uint32)
        nisa.topk(val_dst=found, idx_dst=places, src=a, n=30)
        return found, places

    both = np.tile([[28, 29]], (16, 1))
    return body, (x,), (both, both)


@isa(("float32", "int32"), SINCE_TRN2)
def nonzero_with_count(dtype):
    x = np.array([[0, 1, 3, 0, 0, 1, 0, 0]]).astype(dtype)

    def body(a):
        out = sbuf((1, 9), nl.int32)
        nisa.nonzero_with_count(dst=out, src=a, index_offset=10, padding_val=-7)
        return out

    return body, (x,), np.array([[11, 12, 15, -7, -7, -7, -7, -7, 3]])


@isa(("float32", "int32"))
def sequence_bounds(dtype):
    ids = np.array([[1, 1, 1, 2, 2, 0]]).astype(dtype)

    def body(a):
        out = sbuf((1, 2, 6), dtype)
        nisa.sequence_bounds(dst=out, segment_ids=a)
        return out

    return body, (ids,), np.array([[[0, 0, 0, 3, 3, 6], [3, 3, 3, 5, 5, -1]]])


# Operands with dtypes of their own


@isa(("uint8", "uint16", "uint32"))
def tensor_copy_predicated__predicate(dtype):
    x, y, mask = values("int16", SHAPE), values("int16", SHAPE, 1), values(dtype, SHAPE, 2, high=2)

    def body(a, b, m):
        nisa.tensor_copy_predicated(dst=a, src=b, predicate=m)
        return a

    return body, (x, y, mask), np.where(mask, y, x)


@isa(("int8", "uint8", "int16", "uint16"))
def select_reduce__predicate(dtype):
    x, mask = values("bfloat16", (4, 6)), values(dtype, (4, 6), 1, high=2)

    def body(a, m):
        out = sbuf(a.shape, nl.bfloat16)
        nisa.select_reduce(dst=out, predicate=m, on_true=a, on_false=1.0)
        return out

    return body, (x, mask), np.where(mask, x.astype(float), 1)


@isa((*FLOATS, "float8_e8m0fnu"))
def select_reduce__reduce_res(dtype):
    x, mask = values("bfloat16", (4, 6)), values("uint8", (4, 6), 1, high=2)

    def body(a, m):
        out, most = sbuf(a.shape, nl.bfloat16), sbuf((4, 1), dtype)
        nisa.select_reduce(
            dst=out, predicate=m, on_true=a, on_false=4.0, reduce_res=most,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )  # fmt: skip
        return most

    return body, (x, mask), np.full((4, 1), 4)


@isa(("float32", "bfloat16", "float16", "tfloat32", "float8_e4m3", "float8_e5m2",
      "int8", "int16", "int32", "uint8", "uint16"), TRN3)  # fmt: skip
def exponential__dst(dtype):
    def body(a):
        out = sbuf(SHAPE, dtype)
        nisa.exponential(out, a, max_value=2.0)
        return out

    return body, (values("bfloat16", SHAPE, low=2, high=3),), np.ones(SHAPE)


@isa(("float32", "bfloat16", "float16", "tfloat32", "float8_e4m3", "float8_e5m2"), TRN3)
def exponential__reduce_res(dtype):
    def body(a):
        out, total = sbuf((4, 16), nl.float32), sbuf((4, 1), dtype)
        nisa.exponential(
            out, a, max_value=2.0, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reset_reduce
        )
        return total

    return body, (values("bfloat16", (4, 16), low=2, high=3),), np.full((4, 1), 16)


@isa(("uint16", "uint32"))
def nc_find_index8__dst(dtype):
    x = distinct("float32")

    def body(a):
        out = sbuf((4, 8), dtype)
        nisa.nc_find_index8(dst=out, data=a, vals=a[:, 4:12])
        return out

    return body, (x,), np.tile(np.arange(4, 12), (4, 1))


@isa(("uint16", "uint32"))
def nc_match_replace8__dst_idx(dtype):
    x = distinct("float32")

    def body(a):
        out, places = sbuf(a.shape, nl.float32), sbuf((4, 8), dtype)
        nisa.nc_match_replace8(dst=out, data=a, vals=a[:, 4:12], imm=15.0, dst_idx=places)
        return places

    return body, (x,), np.tile(np.arange(4, 12), (4, 1))


@isa(("float8_e5m2_x4", "float8_e4m3fn_x4"), TRN3)
def quantize_mx__dst(dtype):
    x = np.full((32, 4), 4, np.float16)  # 2**2 = 2**(2 - (Emax - 1)) * 2**(Emax - 1)
    largest = 15 if dtype == "float8_e5m2_x4" else 8

    def body(a):
        data, scale = sbuf((32, 1), dtype), sbuf((4, 1), nl.uint8)
        nisa.quantize_mx(dst=data, src=a, dst_scale=scale)
        return data, scale

    import neuron_dtypes

    element = np.full((32, 4), 2.0 ** (largest - 1), np.float32)
    code = 127 + 2 - (largest - 1)
    return body, (x,), (neuron_dtypes.static_cast(element, dtype), np.full((4, 1), code))


@isa(("uint8", "float8_e8m0fnu"), TRN3)
def quantize_mx__dst_scale(dtype):
    def body(a):
        data, scale = sbuf((32, 1), nl.float8_e4m3fn_x4), sbuf((4, 1), dtype)
        nisa.quantize_mx(dst=data, src=a, dst_scale=scale)
        return scale.view(nl.uint8)

    return body, (np.full((32, 4), 4, np.float16),), np.full((4, 1), 127 + 2 - 7)


@isa(("float32", "bfloat16"), TRN3)
def nc_matmul_mx__dst(dtype):
    ones = values("float8_e5m2_x4", (32, 8))
    scale = np.full((32, 8), 127, np.uint8)

    def body(a, s):
        product = psum((8, 8), dtype)
        nisa.nc_matmul_mx(product, a, a, s, s)
        return product

    import neuron_dtypes

    wide = neuron_dtypes.static_cast(ones, np.float32).reshape(32, -1, 4)
    return body, (ones, scale), np.einsum("pml,pnl->mn", wide, wide)


@isa(("uint8", "float8_e8m0fnu"), TRN3)
def nc_matmul_mx__scale(dtype):
    ones = values("float8_e5m2_x4", (32, 8))
    scale = np.full((32, 8), 128, np.uint8)

    def body(a, s):
        product = psum((8, 8))
        nisa.nc_matmul_mx(product, a, a, s.view(dtype), s.view(dtype))
        return product

    import neuron_dtypes

    wide = neuron_dtypes.static_cast(ones, np.float32).reshape(32, -1, 4)
    return body, (ones, scale), 4 * np.einsum("pml,pnl->mn", wide, wide)


# Gathers


@isa((*NUMBERS, "bool", "float8_e8m0fnu"))
def nc_stream_shuffle(dtype):
    x = values(dtype, (32, 6))

    def body(a):
        out = sbuf((32, 6), a.dtype)
        nisa.nc_stream_shuffle(dst=out, src=a, shuffle_mask=list(range(31, -1, -1)))
        return out

    return body, (x,), x[::-1]


@isa((*NUMBERS, "bool", "float8_e8m0fnu"))
def nc_n_gather(dtype):
    x, places = values(dtype, (8, 12)), values("uint32", (8, 5), 1, high=12)

    def body(a, i):
        out = sbuf((8, 5), a.dtype)
        nisa.nc_n_gather(dst=out, data=a, indices=i)
        return out

    return body, (x, places), np.take_along_axis(x, places.astype(int), axis=1)


@isa((*NUMBERS, "bool", "float8_e8m0fnu"))
def local_gather(dtype):
    x, places = values(dtype, (16, 12)), values("uint16", (16, 1), 1, high=12)

    def body(a, i):
        out = sbuf((16, 16), a.dtype)
        nisa.local_gather(dst=out, src_buffer=a, index=i)
        return out

    return body, (x, places), x[:, places[:, 0].astype(int)]


USED_BY = {"nki.isa.reduce_cmd": "nki.isa.select_reduce"}
"""Names whose use is in the case of another name."""
