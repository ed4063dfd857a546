"""Cases of `nki.language` and `nki`."""

from functools import partial

import numpy as np
from language_references import BINARY, INTEGER, UNARY, assert_close
from surface import (
    CASES,
    FLOATS,
    INTEGERS,
    MOVED,
    NUMBERS,
    TRN3,
    Case,
    case,
    numpy_dtype,
    sbuf,
    values,
)

import nki
import nki.isa as nisa
import nki.language as nl
from nki.language.lowering.table import FUNCTIONS

language = partial(case, "nki.language")
SHAPE = (16, 24)
COPIED = (*NUMBERS, "bool", "float8_e8m0fnu")


# Element-wise functions: a table gives formula and bound


def element_wise(name, formula, dtypes):
    """The case of one function of the table."""
    row = FUNCTIONS[name]
    count = len(row.parameters)

    def build(dtype):
        inputs = tuple(values(dtype, SHAPE, seed, low=1) for seed in range(count))
        if name == "log":  # 32-bit results of small numbers stay exact integers elsewhere
            inputs = (np.ones(SHAPE, numpy_dtype(dtype)),)
        wide = [x if dtype in INTEGERS and name in INTEGER else x.astype(float) for x in inputs]

        def agrees(got):
            exact = np.asarray(formula(*wide), np.float64)
            if got.dtype.kind in "iu":
                limits = np.iinfo(got.dtype)
                clipped = np.clip(exact, limits.min, limits.max)
                assert np.all(np.abs(got.astype(float) - clipped) <= 0.5 + 2.0**-20), name
                return True
            # One rounding more in narrow dtypes; ten bits are kept of tfloat32.
            ulps = 2.0**13 + row.ulps if dtype == "tfloat32" else row.ulps
            if got.dtype != np.float32:
                ulps = 0.51 + (0.01 if name != "divide" else 0.5)
            assert_close(got, exact, ulps, row.absolute, name)
            return True

        return getattr(nl, name), inputs, agrees

    targets = ("trn3",) if row.target else ("trn1", "trn2", "trn3")
    return Case(f"nki.language.{name}", build, dtypes, targets, 1, 0)


WRAPPED = {"negative", "subtract"}  # which leave the range of unsigned numbers
for _name, _formula in (*UNARY.items(), *BINARY.items()):
    _dtypes = tuple(d for d in NUMBERS if d[0] != "u") if _name in WRAPPED else NUMBERS
    CASES[f"nki.language.{_name}"] = element_wise(_name, _formula, _dtypes)
for _name, _formula in INTEGER.items():
    CASES[f"nki.language.{_name}"] = element_wise(_name, _formula, INTEGERS)


# Reductions and normalisation


def reduction(name, formula):
    def build(dtype):
        x = values(dtype, (16, 4), low=1, high=3)
        expected = np.asarray(formula(x.astype(float), axis=1, keepdims=True), float)
        return (lambda a: getattr(nl, name)(a, 1)), (x,), expected

    return Case(f"nki.language.{name}", build, NUMBERS, ("trn1", "trn2", "trn3"), 1, 0)


for _name, _formula in {"sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod,
                        "all": np.all}.items():  # fmt: skip
    CASES[f"nki.language.{_name}"] = reduction(_name, _formula)


@language()
def mean(dtype):
    x = np.repeat(values(dtype, (16, 1)), 4, axis=1)
    return (lambda a: nl.mean(a, 1)), (x,), x[:, :1]


@language()
def var(dtype):
    x = np.tile(np.array([1, 3, 1, 3]), (16, 1)).astype(numpy_dtype(dtype))
    return (lambda a: nl.var(a, 1)), (x,), np.ones((16, 1))


@language(FLOATS)
def softmax(dtype):
    x = np.repeat(values(dtype, (16, 1)), 4, axis=1)
    return nl.softmax, (x,), np.full((16, 4), 0.25)


@language(FLOATS)
def rms_norm(dtype):
    x, w = np.full((16, 4), 2).astype(numpy_dtype(dtype)), values(dtype, (16, 4))
    return (lambda a, b: nl.rms_norm(a, b, 1, 4, epsilon=0.0)), (x, w), w


# Matrices


@language(FLOATS)
def matmul(dtype):
    x, y = values(dtype, (12, 32)), values(dtype, (32, 20), 1)
    return nl.matmul, (x, y), x.astype(float) @ y.astype(float)


@language(COPIED)
def transpose(dtype):
    x = values(dtype, (12, 32))
    return nl.transpose, (x,), x.T


@language(COPIED)
def load_transpose2d(dtype):
    x = values(dtype, (12, 32))

    def body(a):
        rows = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.private_hbm)
        nl.store(rows, a)
        return nl.load_transpose2d(rows)

    return body, (x,), x.T


@language(NUMBERS)
def shared_identity_matrix(dtype):
    def body():
        out = sbuf((8, 8), dtype)
        nl.store(rows := nl.ndarray((8, 8), dtype=dtype, buffer=nl.private_hbm), out_of(out))
        return nl.load(rows)

    def out_of(out):
        nl.shared_identity_matrix(8, dtype=dtype, dst=out)
        return out

    return body, (), np.eye(8)


# Tensors


@language(MOVED)
def ndarray(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf, name="tile")
        assert (tile.shape, tile.dtype, tile.buffer) == (SHAPE, dtype, nl.sbuf)
        assert isinstance(tile, nl.NkiTensor) and isinstance(tile, nl.NKIObject)
        assert isinstance(tile.buffer, nl.MemoryRegion)
        nisa.dma_copy(dst=tile, src=a)
        return tile

    return body, (x,), x


@language(MOVED)
def load(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        for memory, name in MEMORIES.items():
            assert getattr(nl, name)(a.buffer) == (memory is nl.sbuf)
        for memory in (nl.private_hbm, nl.hbm, nl.shared_hbm):
            assert nl.is_hbm(memory) and not nl.is_on_chip(memory)
        rows = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.hbm)
        nl.store(rows, a)
        assert nl.is_on_chip(a.buffer) and nl.is_hbm(rows.buffer)
        return nl.load(rows)

    return body, (x,), x


MEMORIES = {nl.sbuf: "is_sbuf", nl.psum: "is_psum"}


@language((*NUMBERS, "bool"))
def zeros(dtype):
    return (lambda: nl.zeros(SHAPE, dtype, buffer=nl.sbuf)), (), np.zeros(SHAPE)


@language((*NUMBERS, "bool"))
def ones(dtype):
    return (lambda: nl.ones(SHAPE, dtype, buffer=nl.sbuf)), (), np.ones(SHAPE)


@language((*NUMBERS, "bool"))
def full(dtype):
    return (lambda: nl.full(SHAPE, 1, dtype, buffer=nl.sbuf)), (), np.ones(SHAPE)


@language((*NUMBERS, "bool"))
def zeros_like(dtype):
    return nl.zeros_like, (values(dtype, SHAPE),), np.zeros(SHAPE)


@language(MOVED)
def empty_like(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        out = nl.empty_like(a)
        assert (out.shape, out.dtype) == (a.shape, a.dtype)
        nisa.dma_copy(dst=out, src=a)
        return out

    return body, (x,), x


@language(tuple(dtype for dtype in MOVED if dtype not in ("bool", "float8_e4m3")))
def shared_constant(dtype):
    x = values(dtype, SHAPE)
    return (lambda: nl.load(nl.shared_constant(x))), (), x


@language(COPIED)
def expand_dims(dtype):
    x = values(dtype, SHAPE)
    return (lambda a: nl.expand_dims(a, 1)), (x,), x[:, None]


@language(COPIED)
def broadcast_to(dtype):
    x = values(dtype, (1, 24))
    return (lambda a: nl.broadcast_to(a, SHAPE)), (x,), np.broadcast_to(x, SHAPE)


@language((*NUMBERS, "bool"))
def where(dtype):
    x, y, mask = values(dtype, SHAPE), values(dtype, SHAPE, 1), values("uint8", SHAPE, 2, high=2)
    return nl.where, (mask, x, y), np.where(mask, x.astype(float), y.astype(float))


@language((*NUMBERS, "bool", "float8_e8m0fnu"))
def gather_flattened(dtype):
    x, places = values(dtype, (8, 12)), values("uint32", (8, 5), 1, high=12)
    return nl.gather_flattened, (x, places), np.take_along_axis(x, places.astype(int), axis=1)


# Random numbers


@language(("float32", "bfloat16", "float16"))
def rand(dtype):
    def uniform(got):
        sample = got.astype(float)
        return 0 <= sample.min() < 0.01 and 0.99 < sample.max() <= 1 and len(np.unique(sample)) > 99

    return (lambda: nl.rand((128, 100), dtype)), (), uniform


@language(("uint32", "int32"))
def random_seed(dtype):
    def body(seed):
        pair = []
        for _ in range(2):
            nl.random_seed(seed)
            pair.append(nl.rand((64, 32), nl.float32))
        return nl.subtract(*pair)

    return body, (np.array([[42]], dtype),), np.zeros((64, 32))


@language(("float32", "bfloat16", "float16"))
def dropout(dtype):
    x = np.ones((128, 100), numpy_dtype(dtype))
    return (lambda a: nl.dropout(a, 0.25)), (x,), lambda got: 0.7 < np.mean(got != 0) < 0.8


# Loops, cores and the rest


def summed(loop):
    """Columns added up by a loop of four."""

    def build(dtype):
        x = values(dtype, (16, 4))

        def body(a):
            total = nl.zeros((16, 1), nl.float32, buffer=nl.sbuf)

            def add(i):
                column = nl.load(rows[:, nl.ds(i, 1)])
                nisa.tensor_tensor(dst=total, data1=total, data2=column, op=nl.add)

            rows = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.private_hbm)
            nl.store(rows, a)
            loop(add)
            return total

        return body, (x,), x.astype(float).sum(axis=1, keepdims=True)

    return build


def ranged(name):
    def loop(add):
        for i in getattr(nl, name)(4):
            add(i)

    return loop


def while_loop(add):
    left = nl.full((1, 1), 4, nl.int32, buffer=nl.sbuf)
    register, place = nisa.register_alloc(4), nl.zeros((1, 1), nl.int32, buffer=nl.sbuf)
    here = nisa.register_alloc(0)

    def body(condition):
        nisa.register_load(here, place)
        add(here)
        nisa.tensor_scalar(dst=place, data=place, op0=nl.add, operand0=1)
        nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1)
        nisa.register_load(condition, left)
        return condition

    nl.while_loop(register, body)


LOOPS = {
    **{n: ranged(n) for n in ("affine_range", "sequential_range", "static_range", "dynamic_range")},
    "fori_loop": lambda add: nl.fori_loop(0, 4, add),
    "while_loop": while_loop,
}
for _name, _loop in LOOPS.items():
    CASES[f"nki.language.{_name}"] = Case(
        f"nki.language.{_name}", summed(_loop), ("float32", "bfloat16", "int16"),
        ("trn1", "trn2", "trn3"), 1, 0,
    )  # fmt: skip


@language(("float32",))
def no_reorder(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        with nl.no_reorder():
            return nl.add(nl.add(a, 1), a)

    return body, (x,), 2 * x + 1


@language(("float32",), ("trn2", "trn3"), cores=2)
def program_id(dtype):
    def body():
        assert (nl.num_programs(), nl.program_ndim()) == (2, 1)
        out = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        mine = nl.program_id(0)
        nl.store(out[nl.ds(mine, 1), :], nl.full((1, 1), mine, nl.float32, buffer=nl.sbuf))
        return out

    return body, (), np.array([[0], [1]])


@language(("float32",))
def device_print(dtype):
    x = values(dtype, SHAPE)

    def body(a):
        nl.device_print("a tile", a)
        return a

    return body, (x,), x


@language(("float32",))
def NKIObject_(dtype):
    class Sizes(nl.NKIObject):
        rows: int = 16

    assert Sizes().rows == 16 and isinstance(Sizes(), nl.NKIObject)
    return (lambda: nl.ones((Sizes().rows, 1), nl.float32, buffer=nl.sbuf)), (), np.ones((16, 1))


TILE_SIZES = {  # by target: SDK nki/api/nki.language.tile_size.rst and the architecture guides
    "pmax": 128,
    "psum_fmax": 512,
    "psum_bank_fmax": 512,
    "gemm_stationary_fmax": 128,
    "gemm_moving_fmax": 512,
    "bn_stats_fmax": 512,
}


@language(("float32",))
def tile_size(dtype):
    def body():
        for name, size in TILE_SIZES.items():
            assert getattr(nl.tile_size, name) == size, name
        return nl.ones((nl.tile_size.pmax, 1), nl.float32, buffer=nl.sbuf)

    return body, (), np.ones((128, 1))


@language(NUMBERS, TRN3)
def prelu(dtype):
    x = values(dtype, SHAPE, low=-3 if dtype[0] != "u" else 0)

    def body(a):
        out = sbuf(a.shape, nl.float32)
        nisa.activate2(out, nl.prelu, a, None, None, nl.bypass, nl.bypass, relu_param=0.5)
        return out

    wide = x.astype(float)
    return body, (x,), np.where(wide > 0, wide, wide / 2)


@language()
def average(dtype):
    x = np.repeat(values(dtype, (1, 16)), 4, axis=0)

    def body(a):
        out = sbuf((1, 16), dtype)
        nisa.tensor_partition_reduce(dst=out, op=nl.average, data=a)
        return out

    return body, (x,), x[:1]


@case("nki", ("float32", "bfloat16", "int32"))
def jit(dtype):
    x = values(dtype, SHAPE)
    inner = nki.jit(lambda a: nl.add(a, a))  # a kernel inside a kernel is a plain call
    return (lambda a: inner(a)), (x,), 2 * x.astype(float)


USED_BY = {
    "nki.simulate": "nki.jit",  # every case runs by it
    "nki.language.ds": "nki.language.fori_loop",
    "nki.language.store": "nki.language.load",
    "nki.language.num_programs": "nki.language.program_id",
    "nki.language.program_ndim": "nki.language.program_id",
    "nki.language.bypass": "nki.language.prelu",
    "nki.language.NKIObject": "nki.language.NKIObject",
    "nki.language.NkiTensor": "nki.language.ndarray",
    "nki.language.MemoryRegion": "nki.language.ndarray",
    **{
        f"nki.language.{name}": "nki.language.load"
        for name in ("is_hbm", "is_on_chip", "is_psum", "is_sbuf", "hbm", "private_hbm")
    },
    **{f"nki.language.{name}": "nki.language.ndarray" for name in ("sbuf", "psum", "shared_hbm")},
    **{f"nki.language.{name}": "nki.language.ndarray" for name in ("DType", *MOVED, "bool_")},
}
"""Names whose use is in the case of another name; a dtype's is a tensor of it."""
