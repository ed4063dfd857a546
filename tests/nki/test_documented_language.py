"""Limits that the pages of `nki.language` state, with calls that break them."""

import numpy as np
import pytest
from limits import F32, empty, hbm, in_psum, refused, tile, traced

import nki.isa as nisa
import nki.language as nl


def rows():
    """A tensor whose rows indices pick."""
    return hbm(8, 4, 6).vector_select(0, tile(4, 1, dtype="uint32"))


def index():
    return tile(1, 1, dtype="uint32")


def reg(value):
    return nisa.register_alloc(value)


def apart():
    """A tile with gaps in dimension 1."""
    return tile(4, 8, 6)[:, 0:8:2]


def use(view):
    nisa.tensor_copy(empty(*view.shape, dtype=view.dtype), view)


def loop(step=1):
    for _ in nl.dynamic_range(0, reg(3), step):
        tile(4, 4)


def written(i):
    nisa.register_move(i, 3)


def ordered(body):
    with nl.no_reorder():
        body()


# fmt: off
LIMITS = {
    # name: (target, code of the refusal, call)
    "permute not a permutation": ("trn3", "view-not-allowed",
        lambda: tile(4, 2, 3).permute((0, 1, 1))),
    "permute partitions": ("trn3", "view-not-allowed", lambda: tile(4, 2, 3).permute((1, 0, 2))),
    "permute indexed rows": ("trn3", "view-not-allowed", lambda: rows().permute((1, 0, 2))),
    "permute too few": ("trn3", "view-not-allowed", lambda: tile(4, 2, 3).permute((0, 1))),
    "broadcast size": ("trn3", "view-not-allowed", lambda: tile(4, 2, 3).broadcast(1, 4)),
    "broadcast partitions": ("trn3", "view-not-allowed", lambda: tile(1, 2).broadcast(0, 4)),
    "expand partitions": ("trn3", "view-not-allowed", lambda: tile(4, 2).expand_dim(0)),
    "expand indexed rows": ("trn3", "view-not-allowed", lambda: rows().expand_dim(0)),
    "expand beyond": ("trn3", "out-of-bounds", lambda: tile(4, 2).expand_dim(4)),
    "squeeze size": ("trn3", "view-not-allowed", lambda: tile(4, 2).squeeze_dim(1)),
    "squeeze partitions": ("trn3", "view-not-allowed", lambda: tile(1, 2).squeeze_dim(0)),
    "squeeze indexed": ("trn3", "view-not-allowed",
        lambda: hbm(8, 4, 6).vector_select(0, tile(1, 1, dtype="uint32")).squeeze_dim(0)),
    "reshape_dim product": ("trn3", "reshape", lambda: tile(4, 6).reshape_dim(1, (4, 2))),
    "reshape_dim partitions": ("trn3", "view-not-allowed",
        lambda: tile(4, 6).reshape_dim(0, (2, 2))),
    "reshape_dim indexed": ("trn3", "view-not-allowed", lambda: rows().reshape_dim(0, (2, 2))),
    "reshape_dim two": ("trn3", "reshape", lambda: tile(4, 6).reshape_dim(1, (-1, -1))),
    "reshape_dim inferred": ("trn3", "reshape", lambda: tile(4, 6).reshape_dim(1, (4, -1))),
    "flatten apart": ("trn3", "reshape", lambda: apart().flatten_dims(1, 2)),
    "flatten permuted": ("trn3", "reshape",
        lambda: tile(4, 2, 3).permute((0, 2, 1)).flatten_dims(1, 2)),
    "flatten partitions": ("trn3", "view-not-allowed", lambda: tile(4, 2, 3).flatten_dims(0, 1)),
    "flatten indexed": ("trn3", "view-not-allowed", lambda: rows().flatten_dims(0, 1)),
    "flatten backwards": ("trn3", "reshape", lambda: tile(4, 2, 3).flatten_dims(2, 1)),
    "reshape count": ("trn3", "reshape", lambda: tile(4, 6).reshape((4, 5))),
    "reshape partitions": ("trn3", "view-not-allowed", lambda: tile(4, 6).reshape((8, 3))),
    "reshape apart": ("trn3", "reshape", lambda: apart().reshape((4, 24))),
    "reshape indexed": ("trn3", "view-not-allowed", lambda: rows().reshape((2, 2, 4, 6))),
    "rearrange names": ("trn3", "reshape", lambda: tile(4, 6).rearrange(("b", "f"), ("b", "g"))),
    "rearrange sizes": ("trn3", "reshape",
        lambda: tile(4, 6).rearrange(("b", ("h", "w")), ("b", "w", "h"),{"h":5})),
    "rearrange unknown": ("trn3", "reshape",
        lambda: tile(4, 6).rearrange(("b", ("h", "w")), ("b", "w", "h"))),
    "rearrange rank": ("trn3", "reshape", lambda: tile(4, 6).rearrange(("b",), ("b",))),
    "slice empty": ("trn3", "out-of-bounds", lambda: tile(4, 6).slice(1, 3, 3)),
    "slice beyond": ("trn3", "out-of-bounds", lambda: tile(4, 6).slice(1, 0, 7)),
    "slice step": ("trn3", "view-not-allowed", lambda: tile(4, 6).slice(1, 0, 6, 0)),
    "slice backwards": ("trn3", "view-not-allowed", lambda: tile(4, 6).slice(1, 6, 0, -1)),
    "slice negative": ("trn3", "out-of-bounds", lambda: tile(4, 6).slice(1, -1, 3)),
    "slice indexed": ("trn3", "indirect", lambda: rows().slice(0, 0, 2)),
    "slice dim": ("trn3", "out-of-bounds", lambda: tile(4, 6).slice(2, 0, 1)),
    "select beyond": ("trn3", "out-of-bounds", lambda: tile(4, 6, 2).select(1, 6)),
    "select negative": ("trn3", "out-of-bounds", lambda: tile(4, 6, 2).select(1, -1)),
    "select twice": ("trn3", "indirect",
        lambda: hbm(2, 4, 8).select(0, index()).select(0, index())),
    "select partitions": ("trn3", "view-not-allowed", lambda: tile(4, 6).select(0, index())),
    "select indexed": ("trn3", "indirect", lambda: rows().select(0, 1)),
    "select index shape": ("trn3", "indirect",
        lambda: hbm(2, 4, 8).select(0, tile(2, 1, dtype="uint32"))),
    "vector_select dim": ("trn3", "indirect",
        lambda: hbm(8, 4, 6).vector_select(1, tile(4, 1, dtype="uint32"))),
    "vector_select tile": ("trn3", "indirect",
        lambda: tile(8, 4).vector_select(0, tile(4, 1, dtype="uint32"))),
    "vector_select twice": ("trn3", "indirect",
        lambda: rows().vector_select(0, tile(4, 1, dtype="uint32"))),
    "vector_select after select": ("trn3", "indirect",
        lambda: hbm(2, 8, 4).select(0, index()).vector_select(0, tile(4, 1, dtype="uint32"))),
    "vector_select columns": ("trn3", "indirect",
        lambda: hbm(8, 4).vector_select(0, tile(4, 2, dtype="uint32"))),
    "vector_select floats": ("trn3", "indirect", lambda: hbm(8, 4).vector_select(0, tile(4, 1))),
    "vector_select in HBM": ("trn3", "indirect",
        lambda: hbm(8, 4).vector_select(0, hbm(4, 1, dtype="uint32"))),
    "view apart": ("trn3", "view-not-allowed", lambda: tile(4, 8)[:, 0:8:2].view("uint8")),
    "view ratio": ("trn3", "view-not-allowed", lambda: tile(4, 3, dtype="uint8").view(F32)),
    "view indexed": ("trn3", "indirect", lambda: rows().view("uint8")),
    "view indexed of one size": ("trn3", "indirect", lambda: rows().view("int32")),
    "view after select": ("trn3", "indirect",
        lambda: hbm(2, 4, 8).select(0, index()).view("uint8")),
    "view dtype": ("trn3", "dtype-not-allowed", lambda: tile(4, 4).view("float64")),
    "indirect trn2": ("trn2", "generation",
        lambda: nisa.tensor_copy(empty(16, 4), tile(16, 8).indirect(tile(16, 1, dtype="uint32"),
            4))),
    "indirect partitions": ("trn3", "indirect",
        lambda: tile(16, 8).indirect(tile(32, 1, dtype="uint32"), 4)),
    "indirect many": ("trn3", "indirect",
        lambda: use(tile(16, 8).indirect(tile(16, 1, dtype="uint32"), 17))),
    "indirect index dtype": ("trn3", "indirect",
        lambda: use(tile(16, 8).indirect(tile(16, 1), 4))),
    "indirect index PSUM": ("trn3", "indirect",
        lambda: use(tile(16, 8).indirect(in_psum(16, 1, dtype="uint32"), 4))),
    "indirect HBM": ("trn3", "indirect",
        lambda: hbm(16, 8).indirect(tile(16, 1, dtype="uint32"), 4)),
    "ap beyond": ("trn3", "out-of-bounds", lambda: use(tile(4, 6).ap([[6, 4], [1, 7]]))),
    "ap partitions": ("trn3", "out-of-bounds", lambda: use(tile(4, 6).ap([[6, 5], [1, 6]]))),
    "ap step": ("trn3", "view-not-allowed", lambda: tile(4, 6).ap([[3, 4], [1, 3]])),
    "ap rows down": ("trn3", "view-not-allowed",
        lambda: hbm(4, 6).ap([[-6, 4], [1, 6]], offset=18)),
    "ap below": ("trn3", "out-of-bounds",
        lambda: use(tile(4, 6).ap([[6, 4], [-1, 6]], offset=4))),
    "ap offset": ("trn3", "out-of-bounds", lambda: use(tile(4, 6).ap([[6, 4], [1, 6]], offset=1))),
    "index beyond": ("trn3", "out-of-bounds", lambda: tile(4, 6)[:, 6]),
    "index many": ("trn3", "view-not-allowed", lambda: tile(4, 6)[:, 0, 0]),
    "index ds": ("trn3", "out-of-bounds", lambda: tile(4, 6)[:, nl.ds(3, 4)]),
    "index two ellipses": ("trn3", "view-not-allowed", lambda: tile(4, 6)[...,...]),
    "index float": ("trn3", "value-not-allowed", lambda: tile(4, 6)[:, 1.5]),
    "ndarray partitions": ("trn3", "partition-limit", lambda: empty(129, 4)),
    "ndarray text": ("trn3", "value-not-allowed", lambda: nl.ndarray((4, 4), F32, buffer="sbuf")),
    "ndarray address in HBM": ("trn3", "value-not-allowed",
        lambda: nl.ndarray((4, 4), F32, buffer=nl.shared_hbm, address=(0, 0))),
    "ndarray size": ("trn3", "value-not-allowed", lambda: empty(4, 0)),
    "ndarray negative": ("trn3", "value-not-allowed", lambda: empty(4, -1)),
    "ndarray dtype": ("trn3", "dtype-not-allowed", lambda: empty(4, 4, dtype="float64")),
    "ndarray address beyond": ("trn3", "partition-limit",
        lambda: nl.ndarray((4, 4), F32, buffer=nl.sbuf, address=(126, 0))),
    "ndarray shape float": ("trn3", "value-not-allowed", lambda: empty(4, 2.5)),
    "zeros text": ("trn3", "value-not-allowed", lambda: nl.zeros((4, 4), F32, buffer="psum")),
    "load of a tile": ("trn3", "wrong-memory", lambda: nl.load(tile(4, 4))),
    "load dtype": ("trn3", "dtype-not-allowed", lambda: nl.load(hbm(4, 4), dtype="float64")),
    "store to a tile": ("trn3", "wrong-memory", lambda: nl.store(tile(4, 4), tile(4, 4))),
    "store of HBM": ("trn3", "wrong-memory", lambda: nl.store(hbm(4, 4), hbm(4, 4))),
    "store shape": ("trn3", "shape-mismatch", lambda: nl.store(hbm(4, 4), tile(4, 5))),
    "load_transpose2d of a tile": ("trn3", "view-not-allowed",
        lambda: nl.load_transpose2d(tile(4, 4))),
    "load_transpose2d 3d": ("trn3", "value-not-allowed",
        lambda: nl.load_transpose2d(hbm(2, 3, 4))),
    "unary of HBM": ("trn3", "wrong-memory", lambda: nl.exp(hbm(4, 4))),
    "unary of a number": ("trn3", "not-a-tensor", lambda: nl.exp(1.0)),
    "binary of numbers": ("trn3", "not-a-tensor", lambda: nl.add(1.0, 2.0)),
    "binary of HBM": ("trn3", "wrong-memory", lambda: nl.add(tile(4, 4), hbm(4, 4))),
    "binary shapes": ("trn3", "shape-mismatch", lambda: nl.add(tile(4, 4), tile(4, 5))),
    "binary partitions": ("trn3", "shape-mismatch", lambda: nl.add(tile(4, 4), tile(8, 4))),
    "equal of numbers": ("trn3", "not-a-tensor", lambda: nl.equal(1.0, 1.0)),
    "abs_max on trn2": ("trn2", "generation", lambda: nl.abs_max(tile(4, 4), tile(4, 1))),
    "abs_min on trn2": ("trn2", "generation", lambda: nl.abs_min(tile(4, 4), tile(4, 1))),
    "bitwise_and of floats": ("trn3", "dtype-not-allowed",
        lambda: nl.bitwise_and(tile(4, 4), tile(4, 4))),
    "bitwise_or of floats": ("trn3", "dtype-not-allowed", lambda: nl.bitwise_or(tile(4, 4), 1)),
    "bitwise_xor of floats": ("trn3", "dtype-not-allowed",
        lambda: nl.bitwise_xor(tile(4, 4), tile(4, 4))),
    "invert of floats": ("trn3", "dtype-not-allowed", lambda: nl.invert(tile(4, 4))),
    "left_shift of floats": ("trn3", "dtype-not-allowed", lambda: nl.left_shift(tile(4, 4), 1)),
    "right_shift of floats": ("trn3", "dtype-not-allowed", lambda: nl.right_shift(tile(4, 4), 1)),
    "bitwise_and with a float": ("trn3", "dtype-not-allowed",
        lambda: nl.bitwise_and(tile(4, 4, dtype="int32"), 1.5)),
    "rsqrt in PSUM": ("trn3", "wrong-memory", lambda: nl.rsqrt(in_psum(4, 4))),
    "copy of HBM": ("trn3", "wrong-memory", lambda: nl.copy(hbm(4, 4))),
    "sum over partitions": ("trn3", "value-not-allowed", lambda: nl.sum(tile(4, 4), axis=0)),
    "sum inner": ("trn3", "value-not-allowed", lambda: nl.sum(tile(4, 2, 3), axis=1)),
    "max over partitions": ("trn3", "value-not-allowed", lambda: nl.max(tile(4, 4), axis=0)),
    "min inner": ("trn3", "value-not-allowed", lambda: nl.min(tile(4, 2, 3), axis=[1])),
    "mean over partitions": ("trn3", "value-not-allowed", lambda: nl.mean(tile(4, 4), axis=0)),
    "prod apart": ("trn3", "value-not-allowed", lambda: nl.prod(tile(4, 2, 3, 4), axis=(1, 3))),
    "var over partitions": ("trn3", "value-not-allowed", lambda: nl.var(tile(4, 4), axis=0)),
    "all over partitions": ("trn3", "value-not-allowed", lambda: nl.all(tile(4, 4), axis=0)),
    "softmax over partitions": ("trn3", "value-not-allowed",
        lambda: nl.softmax(tile(4, 4), axis=0)),
    "softmax inner": ("trn3", "value-not-allowed", lambda: nl.softmax(tile(4, 2, 3), axis=1)),
    "sum beyond": ("trn3", "value-not-allowed", lambda: nl.sum(tile(4, 4), axis=2)),
    "rms_norm over partitions": ("trn3", "value-not-allowed",
        lambda: nl.rms_norm(tile(4, 4), tile(4, 4), axis=0, n=4)),
    "rms_norm weights": ("trn3", "shape-mismatch",
        lambda: nl.rms_norm(tile(4, 4), tile(4, 5), axis=1, n=4)),
    "where shapes": ("trn3", "shape-mismatch", lambda: nl.where(tile(4, 4), tile(4, 5), 0.0)),
    "where condition": ("trn3", "not-a-tensor", lambda: nl.where(True, tile(4, 4), 0.0)),
    "random_seed number": ("trn3", "not-a-tensor", lambda: nl.random_seed(42)),
    "random_seed shape": ("trn3", "shape-mismatch",
        lambda: nl.random_seed(tile(1, 2, dtype="int32"))),
    "random_seed 16 bits": ("trn3", "dtype-not-allowed",
        lambda: nl.random_seed(tile(1, 1, dtype="int16"))),
    "expand_dims partitions": ("trn3", "view-not-allowed", lambda: nl.expand_dims(tile(4, 4), 0)),
    "expand_dims beyond": ("trn3", "out-of-bounds", lambda: nl.expand_dims(tile(4, 4), 4)),
    "broadcast_to rank": ("trn3", "shape-mismatch",
        lambda: nl.broadcast_to(tile(4, 1), (4, 2, 3))),
    "broadcast_to size": ("trn3", "shape-mismatch", lambda: nl.broadcast_to(tile(4, 2), (4, 4))),
    "broadcast_to HBM": ("trn3", "wrong-memory", lambda: nl.broadcast_to(hbm(4, 1), (4, 4))),
    "transpose 3d": ("trn3", "value-not-allowed", lambda: nl.transpose(tile(4, 2, 3))),
    "transpose HBM": ("trn3", "wrong-memory", lambda: nl.transpose(hbm(4, 4))),
    "transpose size": ("trn3", "partition-limit", lambda: nl.transpose(tile(4, 129))),
    "matmul contraction": ("trn3", "contraction-mismatch",
        lambda: nl.matmul(tile(4, 8), tile(4, 8))),
    "matmul transposed": ("trn3", "contraction-mismatch",
        lambda: nl.matmul(tile(4, 8), tile(8, 4), transpose_x=True)),
    "matmul x": ("trn3", "partition-limit",
        lambda: nl.matmul(tile(4, 129), tile(4, 8), transpose_x=True)),
    "matmul y": ("trn2", "tile-limit",
        lambda: nl.matmul(tile(4, 8), tile(4, 513), transpose_x=True)),
    "matmul PSUM": ("trn3", "wrong-memory",
        lambda: nl.matmul(in_psum(4, 8), tile(4, 8), transpose_x=True)),
    "matmul HBM": ("trn3", "wrong-memory",
        lambda: nl.matmul(hbm(4, 8), tile(4, 8), transpose_x=True)),
    "loop in no_reorder": ("trn3", "not-supported", lambda: ordered(loop)),
    "fori_loop in no_reorder": ("trn3", "not-supported",
        lambda: ordered(lambda: nl.fori_loop(0, reg(3), lambda i: None))),
    "while_loop in no_reorder": ("trn3", "not-supported",
        lambda: ordered(lambda: nl.while_loop(reg(1), lambda r: r))),
    "dynamic step 0": ("trn3", "value-not-allowed", lambda: loop(0)),
    "dynamic step negative": ("trn3", "value-not-allowed", lambda: loop(-1)),
    "dynamic step register": ("trn3", "value-not-allowed", lambda: loop(reg(1))),
    "fori step": ("trn3", "value-not-allowed", lambda: nl.fori_loop(0, 3, lambda i: None, step=0)),
    "fori writes": ("trn3", "value-not-allowed", lambda: nl.fori_loop(0, 3, written)),
    "fori bound": ("trn3", "value-not-allowed", lambda: nl.fori_loop(0, 2.5, lambda i: None)),
    "while init": ("trn3", "value-not-allowed", lambda: nl.while_loop(1, lambda r: r)),
    "while body": ("trn3", "value-not-allowed", lambda: nl.while_loop(reg(1), lambda r: None)),
    "register as bool": ("trn3", "register-branch", lambda: bool(reg(1))),
    "register in range": ("trn3", "register-arithmetic", lambda: range(reg(3))),
    "register as int": ("trn3", "register-arithmetic", lambda: int(reg(3))),
    "program_id axis": ("trn3", "value-not-allowed", lambda: nl.program_id(1)),
    "num_programs axis": ("trn3", "value-not-allowed", lambda: nl.num_programs(1)),
    "shared_constant float64": ("trn3", "dtype-not-allowed",
        lambda: nl.shared_constant(np.zeros((2, 2)))),
    "shared_constant int64": ("trn3", "dtype-not-allowed",
        lambda: nl.shared_constant(np.zeros((2, 2), np.int64))),
    "shared_constant path": ("trn3", "file-not-found",
        lambda: nl.shared_constant("/nowhere/x.npy")),
    "shared_constant list": ("trn3", "dtype-not-allowed", lambda: nl.shared_constant([1, 2])),
    "shared_constant complex": ("trn3", "dtype-not-allowed",
        lambda: nl.shared_constant(np.zeros(2, np.complex64))),
    "shared_constant bool": ("trn3", "dtype-not-allowed",
        lambda: nl.shared_constant(np.zeros((2, 2), bool))),
    "identity size": ("trn3", "partition-limit", lambda: nl.shared_identity_matrix(129)),
    "identity dst": ("trn3", "shape-mismatch",
        lambda: nl.shared_identity_matrix(4, dtype=F32, dst=empty(4, 5))),
    "device_print prefix": ("trn3", "value-not-allowed", lambda: nl.device_print(5, tile(4, 4))),
    "device_print tensor": ("trn3", "not-a-tensor", lambda: nl.device_print("x", 5)),
    "device_print PSUM": ("trn3", "wrong-memory", lambda: nl.device_print("x", in_psum(4, 4))),
    "full int": ("trn3", "value-not-allowed", lambda: nl.full((4, 4), 1.5, "int32")),
    "gather axis": ("trn3", "out-of-bounds",
        lambda: nl.gather_flattened(tile(4, 4), tile(4, 4, dtype="uint32"), axis=2)),
    "dropout rate": ("trn3", "value-not-allowed", lambda: nl.dropout(tile(4, 4), 1.5)),
    "depends_on": ("trn3", "value-not-allowed",
        lambda: nisa.memset(empty(4, 4), 1.0).depends_on(5)),
}

ALLOWED = {
    "indirect": lambda: use(tile(16, 8).indirect(tile(16, 1, dtype="uint32"), 16)),
    "ap": lambda: use(tile(4, 6).ap([[6, 4], [1, 5]], offset=1)),
    "reshape_dim trivial": lambda: tile(4, 6).reshape_dim(0, (4,)),
    "reshape_dim inferred": lambda: tile(4, 6).reshape_dim(1, (3, -1)),
    "slice": lambda: tile(4, 6).slice(1, 5, 6, 1),
    "select": lambda: tile(4, 6, 2).select(1, 5),
    "matmul": lambda: nl.matmul(tile(4, 128), tile(4, 512), transpose_x=True),
    "identity": lambda: nl.shared_identity_matrix(128),
    "shared_constant": lambda: nl.shared_constant(np.zeros((2, 2), np.uint32)),
    "random_seed": lambda: nl.random_seed(tile(1, 1, dtype="int32")),
    "range in no_reorder": lambda: ordered(lambda: [tile(4, 4) for _ in nl.static_range(2)]),
}
# fmt: on


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit(name):
    target, code, call = LIMITS[name]
    assert refused(call, target).code == code


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_limit_allows(name):
    traced(ALLOWED[name], "trn3")
