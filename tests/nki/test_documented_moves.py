"""Limits that the pages of `nki.isa` state on copies, products and transposes."""

import pytest
from limits import F32, empty, hbm, in_psum, matmul, picked, product, refused, tile, traced
from surface import psum

import nki.isa as nisa
import nki.language as nl


def matmul_mx(k=32, m=16, n=32, scale="uint8", dst=F32, d="float8_e5m2_x4", **options):
    rows = 4 if k <= 32 else k
    nisa.nc_matmul_mx(
        psum((m, n), dst), tile(k, m, dtype=d), tile(k, n, dtype=d), tile(rows, m, dtype=scale),
        tile(rows, n, dtype=scale), **options,
    )  # fmt: skip


def predicated(src=None, predicate=None, dst=F32):
    nisa.tensor_copy_predicated(
        empty(4, 8, dtype=dst),
        tile(4, 8) if src is None else src,
        tile(4, 8, dtype="uint8") if predicate is None else predicate,
    )


def turned(shape, dst, axes=None, dtype="bfloat16", **options):
    """A transpose by DMA."""
    nisa.dma_transpose(
        dst=empty(*dst, dtype=dtype), src=hbm(*shape, dtype=dtype), axes=axes, **options
    )


def gathered_turn(index=(128, 1), idt="uint32", dtype="bfloat16", pattern=128, dge="unknown"):
    """A transpose of rows by index."""
    src, indices = hbm(128, 128, dtype=dtype), tile(*index, dtype=idt)
    rows = src.ap([[128, pattern], [1, 128]], vector_offset=indices, indirect_dim=0)
    mode = getattr(nisa.dge_mode, dge)
    nisa.dma_transpose(dst=empty(128, pattern, dtype=dtype), src=rows, axes=(1, 0), dge_mode=mode)


def shuffled(source, rows, start, count):
    """A shuffle of partitions; those beyond the first quadrant of dst are left as they are."""
    dst = tile(128, 4)[start : start + count, :]
    mask = [255] * 32 if count > rows else [0] * 32
    nisa.nc_stream_shuffle(dst=dst, src=tile(128, 4)[source : source + rows, :], shuffle_mask=mask)


def gathered(src, index):
    nisa.local_gather(empty(index.shape[0], 16), src, index)


def test_what_the_limits_allow():
    """The calls next to refused ones."""

    def calls():
        shuffled(0, 64, 64, 64)
        shuffled(32, 32, 96, 32)
        shuffled(64, 64, 0, 32)
        turned((16, 128), (128, 16), (1, 0), dge_mode=nisa.dge_mode.none)
        turned((16, 128), (128, 16), (1, 0), dge_mode=nisa.dge_mode.hwdge)
        gathered_turn(pattern=16, index=(16, 1), dge="swdge")
        nisa.tensor_copy_predicated(tile(4, 8, dtype="int8"), 127, tile(4, 8, dtype="uint8"))
        nisa.tensor_copy_predicated(tile(4, 8), 7.5, tile(4, 8, dtype="uint8"))
        gathered(tile(128, 8)[32:64, :], tile(128, 1, dtype="uint16")[32:64, :])
        gathered(tile(128, 8)[32:64, :], tile(32, 1, dtype="uint16"))  # which can be put there
        nisa.nonzero_with_count(tile(64, 9, dtype="int32")[32:64, :], tile(64, 8)[32:64, :])
        index = tile(64, 1, dtype="uint32")[32:64, :]
        nisa.tensor_copy(empty(32, 4), tile(64, 8)[32:64, :].indirect(index, 4))

    traced(calls, "trn3")


# fmt: off
LIMITS = {
    # name: (target, code of the refusal, call)
    "dma_copy elements": ("trn2", "shape-mismatch", lambda: nisa.dma_copy(empty(4, 8), hbm(4, 9))),
    "dma_copy from PSUM": ("trn2", "wrong-memory",
        lambda: nisa.dma_copy(empty(4, 8), in_psum(4, 8))),
    "dma_copy to PSUM": ("trn2", "wrong-memory",
        lambda: nisa.dma_copy(psum((4, 8), F32), hbm(4, 8))),
    "dma_copy hwdge dtypes": ("trn2", "dtype-not-allowed",
        lambda: nisa.dma_copy(empty(4, 8), hbm(4, 8, dtype="bfloat16"),
            dge_mode=nisa.dge_mode.hwdge)),
    "dma_copy hwdge trn1": ("trn1", "generation",
        lambda: nisa.dma_copy(empty(4, 8), hbm(4, 8), dge_mode=nisa.dge_mode.hwdge)),
    "dma_copy hwdge engine vector": ("trn2", "engine-not-allowed",
        lambda: nisa.dma_copy(empty(4, 8), hbm(4, 8), dge_mode=nisa.dge_mode.hwdge,
            engine=nisa.engine.vector)),
    "dma_copy vector_offset of SBUF": ("trn2", "indirect",
        lambda: nisa.dma_copy(empty(4, 8), tile(4, 8).ap([[8, 4], [1, 8]], vector_offset=tile(4,
            1, dtype="uint32"), indirect_dim=0))),
    "dma_copy two offsets": ("trn2", "indirect",
        lambda: hbm(4, 8).ap([[8, 4], [1, 8]], vector_offset=tile(4, 1, dtype="uint32"),
            scalar_offset=tile(1, 1, dtype="uint32"))),
    "dma_copy vector_offset shape": ("trn2", "indirect",
        lambda: nisa.dma_copy(empty(4, 8), hbm(4, 8).ap([[8, 4], [1, 8]], vector_offset=tile(4,
            2, dtype="uint32"), indirect_dim=0))),
    "dma_copy vector hwdge": ("trn2", "indirect",
        lambda: nisa.dma_copy(empty(4, 8), hbm(4, 8).vector_select(0, tile(4, 1,
            dtype="uint32")), dge_mode=nisa.dge_mode.hwdge)),
    "dma_copy vector none": ("trn2", "indirect",
        lambda: nisa.dma_copy(empty(4, 8), hbm(4, 8).vector_select(0, tile(4, 1,
            dtype="uint32")), dge_mode=nisa.dge_mode.none)),
    "dma_copy scalar_offset none dge": ("trn2", "indirect",
        lambda: nisa.dma_copy(empty(4, 8), hbm(2, 4, 8).select(0, tile(1, 1, dtype="uint32")),
            dge_mode=nisa.dge_mode.none)),
    "tensor_copy partitions": ("trn2", "shape-mismatch",
        lambda: nisa.tensor_copy(empty(4, 8), tile(8, 4))),
    "tensor_copy elements": ("trn2", "shape-mismatch",
        lambda: nisa.tensor_copy(empty(4, 8), tile(4, 9))),
    "tensor_copy from HBM": ("trn2", "wrong-memory",
        lambda: nisa.tensor_copy(empty(4, 8), hbm(4, 8))),
    "tensor_copy tensor engine": ("trn2", "engine-not-allowed",
        lambda: nisa.tensor_copy(empty(4, 8), tile(4, 8), engine=nisa.engine.tensor)),
    "tensor_copy indirect gpsimd": ("trn3", "engine-not-allowed",
        lambda: nisa.tensor_copy(empty(16, 4), picked(tile(16, 8)), engine=nisa.engine.gpsimd)),
    "tensor_copy indirect trn2": ("trn2", "generation",
        lambda: nisa.tensor_copy(empty(16, 4), picked(tile(16, 8)))),
    "tensor_copy scatter scalar PSUM": ("trn3", "indirect",
        lambda: nisa.tensor_copy(picked(in_psum(16, 8)), tile(16, 4), engine=nisa.engine.scalar)),
    "memset fraction into int": ("trn2", "value-not-allowed",
        lambda: nisa.memset(empty(4, 8, dtype="int32"), 2.5)),
    "memset scalar engine": ("trn2", "engine-not-allowed",
        lambda: nisa.memset(empty(4, 8), 2.0, engine=nisa.engine.scalar)),
    "memset gpsimd PSUM": ("trn2", "engine-not-allowed",
        lambda: nisa.memset(psum((4, 8), F32), 2.0, engine=nisa.engine.gpsimd)),
    "tensor_copy_predicated both PSUM": ("trn2", "wrong-memory",
        lambda: predicated(in_psum(4, 8), in_psum(4, 8, dtype="uint8"))),
    "tensor_copy_predicated predicate int8": ("trn2", "dtype-not-allowed",
        lambda: predicated(None, tile(4, 8, dtype="int8"))),
    "tensor_copy_predicated predicate float": ("trn2", "dtype-not-allowed",
        lambda: predicated(None, tile(4, 8))),
    "tensor_copy_predicated dtypes": ("trn2", "dtype-not-allowed",
        lambda: predicated(None, None, "bfloat16")),
    "tensor_copy_predicated elements": ("trn2", "shape-mismatch", lambda: predicated(tile(4, 9))),
    "tensor_copy_predicated indirect src": ("trn3", "indirect",
        lambda: nisa.tensor_copy_predicated(empty(16, 4), picked(tile(16, 8)), tile(16, 4,
            dtype="uint8"))),
    "nc_matmul stationary free": ("trn2", "tile-limit",
        lambda: matmul(psum((128, 32), F32), tile(32, 129), tile(32, 32))),
    "nc_matmul contraction": ("trn2", "contraction-mismatch",
        lambda: matmul(psum((16, 32), F32), tile(32, 16, dtype="bfloat16"), tile(16, 32,
            dtype="bfloat16"))),
    "nc_matmul dst in SBUF": ("trn2", "wrong-memory",
        lambda: matmul(empty(16, 32), tile(32, 16), tile(32, 32))),
    "nc_matmul moving in PSUM": ("trn2", "wrong-memory",
        lambda: matmul(psum((16, 32), F32), tile(32, 16), in_psum(32, 32))),
    "nc_matmul moving in HBM": ("trn2", "wrong-memory",
        lambda: matmul(psum((16, 32), F32), tile(32, 16), hbm(32, 32))),
    "nc_matmul dst shape": ("trn2", "shape-mismatch",
        lambda: matmul(psum((16, 31), F32), tile(32, 16), tile(32, 32))),
    "nc_matmul dst shape 2": ("trn2", "shape-mismatch",
        lambda: matmul(psum((32, 32), F32), tile(32, 16), tile(32, 32))),
    "nc_matmul int8": ("trn2", "dtype-not-allowed", lambda: product(left="int8", right="int8")),
    "nc_matmul N trn3 float32": ("trn3", "tile-limit", lambda: product(n=4097)),
    "nc_matmul N trn3 bfloat16": ("trn3", "tile-limit", lambda: product(n=8193, dst="bfloat16")),
    "nc_matmul double_row dtype": ("trn2", "dtype-not-allowed",
        lambda: matmul(psum((16, 32), F32), tile(32, 2, 16, dtype="bfloat16"), tile(32, 2, 32,
            dtype="bfloat16"), perf_mode=nisa.matmul_perf_mode.double_row)),
    "nc_matmul double_row first free": ("trn2", "shape-mismatch",
        lambda: matmul(psum((16, 32), F32), tile(32, 4, 16, dtype="float8_e5m2"), tile(32, 4, 32,
            dtype="float8_e5m2"), perf_mode=nisa.matmul_perf_mode.double_row)),
    "nc_matmul start_row beyond": ("trn2", "value-not-allowed",
        lambda: product(tile_position=(128, 0), tile_size=(32, 128))),
    "nc_matmul start_column": ("trn2", "value-not-allowed",
        lambda: product(tile_position=(0, 32), tile_size=(128, 64))),
    "nc_matmul tile size odd": ("trn2", "value-not-allowed",
        lambda: product(tile_position=(0, 0), tile_size=(48, 128))),
    "nc_matmul size without position": ("trn2", "value-not-allowed",
        lambda: product(tile_size=(32, 128))),
    "nc_matmul indirect tiled": ("trn3", "value-not-allowed",
        lambda: matmul(psum((4, 32), F32), picked(tile(32, 16, dtype="bfloat16")), tile(32, 32,
            dtype="bfloat16"), tile_position=(32, 0), tile_size=(32, 128))),
    "nc_matmul indirect transpose": ("trn3", "indirect",
        lambda: matmul(psum((32, 4), "bfloat16"), tile(32, 32, dtype="bfloat16"), picked(tile(32,
            16, dtype="bfloat16")), is_transpose=True)),
    "nc_matmul indirect float32": ("trn3", "dtype-not-allowed",
        lambda: matmul(psum((4, 32), F32), picked(tile(32, 16)), tile(32, 32))),
    "nc_matmul_mx trn2": ("trn2", "generation", matmul_mx),
    "nc_matmul_mx K": ("trn3", "tile-limit", lambda: matmul_mx(k=16)),
    "nc_matmul_mx odd M": ("trn3", "tile-limit", lambda: matmul_mx(m=15)),
    "nc_matmul_mx M": ("trn3", "shape-mismatch",
        lambda: nisa.nc_matmul_mx(psum((128, 32), F32), tile(32, 130, dtype="float8_e5m2_x4"),
            tile(32, 32, dtype="float8_e5m2_x4"), tile(4, 130, dtype="uint8"), tile(4, 32,
            dtype="uint8"))),
    "nc_matmul_mx scale": ("trn3", "dtype-not-allowed", lambda: matmul_mx(scale="int8")),
    "nc_matmul_mx dst": ("trn3", "dtype-not-allowed", lambda: matmul_mx(dst="float16")),
    "nc_matmul_mx column": ("trn3", "value-not-allowed",
        lambda: matmul_mx(tile_position=(0, 64), tile_size=(32, 64))),
    "nc_matmul_mx column size": ("trn3", "value-not-allowed",
        lambda: matmul_mx(tile_position=(0, 0), tile_size=(32, 64))),
    "nc_matmul_mx start row": ("trn3", "value-not-allowed",
        lambda: matmul_mx(tile_position=(16, 0), tile_size=(32, 128))),
    "nc_matmul_mx dtype": ("trn3", "dtype-not-allowed", lambda: matmul_mx(d="bfloat16")),
    "nc_matmul_mx N": ("trn3", "tile-limit", lambda: matmul_mx(n=4097)),
    "nc_transpose dtype": ("trn2", "dtype-not-allowed",
        lambda: nisa.nc_transpose(psum((8, 4), "bfloat16"), tile(4, 8),
            engine=nisa.engine.tensor)),
    "nc_transpose vector size": ("trn2", "tile-limit",
        lambda: nisa.nc_transpose(empty(33, 4), tile(4, 33), engine=nisa.engine.vector)),
    "nc_transpose tensor to SBUF": ("trn2", "wrong-memory",
        lambda: nisa.nc_transpose(empty(8, 4), tile(4, 8), engine=nisa.engine.tensor)),
    "nc_transpose tensor from PSUM": ("trn2", "wrong-memory",
        lambda: nisa.nc_transpose(psum((8, 4), F32), in_psum(4, 8), engine=nisa.engine.tensor)),
    "nc_transpose shape": ("trn2", "shape-mismatch",
        lambda: nisa.nc_transpose(empty(4, 8), tile(4, 8), engine=nisa.engine.vector)),
    "nc_transpose scalar engine": ("trn2", "engine-not-allowed",
        lambda: nisa.nc_transpose(empty(8, 4), tile(4, 8), engine=nisa.engine.scalar)),
    "dma_transpose axes": ("trn2", "value-not-allowed",
        lambda: turned((16, 128), (128, 16), (0, 1))),
    "dma_transpose axes 3d": ("trn2", "value-not-allowed",
        lambda: turned((16, 2, 128), (128, 16, 2), (2, 0, 1))),
    "dma_transpose rank": ("trn2", "shape-mismatch",
        lambda: turned((16, 1, 1, 128), (128, 1, 16), (3, 1, 2, 0))),
    "dma_transpose hwdge trn1": ("trn1", "generation",
        lambda: turned((16, 128), (128, 16), (1, 0), dge_mode=nisa.dge_mode.hwdge)),
    "dma_transpose hwdge rows": ("trn2", "value-not-allowed",
        lambda: turned((8, 128), (128, 8), (1, 0), dge_mode=nisa.dge_mode.hwdge)),
    "dma_transpose hwdge rows 3d": ("trn2", "value-not-allowed",
        lambda: turned((3, 16, 128), (128, 16, 3), (2, 1, 0), dge_mode=nisa.dge_mode.hwdge)),
    "dma_transpose hwdge product": ("trn2", "value-not-allowed",
        lambda: turned((2, 4, 128), (128, 4, 2), (2, 1, 0), dge_mode=nisa.dge_mode.hwdge)),
    "dma_transpose hwdge dtype": ("trn2", "value-not-allowed",
        lambda: turned((16, 128), (128, 16), (1, 0), dtype=F32, dge_mode=nisa.dge_mode.hwdge)),
    "dma_transpose dst HBM": ("trn2", "wrong-memory",
        lambda: nisa.dma_transpose(dst=nl.ndarray((128, 16), dtype="bfloat16",
            buffer=nl.private_hbm), src=hbm(16, 128, dtype="bfloat16"), axes=(1, 0))),
    "dma_transpose dtype": ("trn2", "dtype-not-allowed",
        lambda: nisa.dma_transpose(dst=empty(128, 16), src=hbm(16, 128, dtype="bfloat16"),
            axes=(1, 0))),
    "dma_transpose skip direct": ("trn2", "value-not-allowed",
        lambda: turned((16, 128), (128, 16), (1, 0), oob_mode=nisa.oob_mode.skip)),
    "dma_transpose priority": ("trn2", "generation",
        lambda: turned((16, 128), (128, 16), (1, 0), priority=1)),
    "dma_transpose indexed, trn1": ("trn1", "generation", gathered_turn),
    "dma_transpose indexed, none": ("trn2", "indirect",
        lambda: gathered_turn(dge="none")),
    "dma_transpose indexed, dtype": ("trn2", "indirect", lambda: gathered_turn(dtype=F32)),
    "dma_transpose indexed indices dtype": ("trn2", "indirect",
        lambda: gathered_turn(idt="int32")),
    "dma_transpose indexed rows not 16": ("trn2", "indirect",
        lambda: gathered_turn(pattern=24, index=(32, 1))),
    "dma_transpose indexed indices few": ("trn2", "indirect",
        lambda: gathered_turn(pattern=32, index=(16, 1))),
    "dma_transpose indexed indices rows": ("trn2", "indirect",
        lambda: gathered_turn(pattern=16, index=(24, 1))),
    "local_gather indices of other partitions": ("trn2", "view-not-allowed",
        lambda: gathered(tile(128, 8)[32:64, :], tile(128, 1, dtype="uint16")[64:96, :])),
    "nonzero_with_count into other partitions": ("trn2", "view-not-allowed",
        lambda: nisa.nonzero_with_count(tile(128, 9, dtype="int32")[32:64, :],
            tile(128, 8)[0:32, :])),
    "dma_transpose swdge of a whole": ("trn2", "value-not-allowed",
        lambda: turned((16, 128), (128, 16), (1, 0), dge_mode=nisa.dge_mode.swdge)),
    "dma_transpose indices of three dimensions": ("trn2", "indirect",
        lambda: gathered_turn(pattern=16, index=(16, 1, 1))),
    "tensor_copy_predicated fraction into int": ("trn2", "value-not-allowed",
        lambda: nisa.tensor_copy_predicated(tile(4, 8, dtype="int32"), 7.5, tile(4, 8,
            dtype="uint8"))),
    "tensor_copy_predicated number beyond int8": ("trn2", "value-not-allowed",
        lambda: nisa.tensor_copy_predicated(tile(4, 8, dtype="int8"), 128, tile(4, 8,
            dtype="uint8"))),
    "register_load of 64 bits": ("trn2", "dtype-not-allowed",
        lambda: nisa.register_load(nisa.register_alloc(), nl.ndarray((1, 1), dtype="int64",
            buffer=nl.private_hbm))),
    "register_store of 64 bits": ("trn2", "dtype-not-allowed",
        lambda: nisa.register_store(nl.ndarray((1, 1), dtype="int64", buffer=nl.private_hbm),
            nisa.register_alloc(1))),
    "nc_stream_shuffle dst as wide as src": ("trn2", "view-not-allowed",
        lambda: shuffled(0, 64, 32, 32)),
    "nc_stream_shuffle src as wide as dst": ("trn2", "view-not-allowed",
        lambda: shuffled(32, 32, 0, 33)),
    "nc_stream_shuffle three quadrants": ("trn2", "view-not-allowed",
        lambda: shuffled(0, 96, 64, 64)),
    "indirect indices in the middle of a quadrant": ("trn3", "view-not-allowed",
        lambda: nisa.tensor_copy(empty(16, 4), tile(16, 8).indirect(tile(32, 1,
            dtype="uint32")[16:32, :], 4))),
    "indirect indices of another quadrant": ("trn3", "view-not-allowed",
        lambda: nisa.tensor_copy(empty(32, 4), tile(64, 8)[0:32, :].indirect(tile(64, 1,
            dtype="uint32")[32:64, :], 4))),
    "dma_transpose indexed two columns": ("trn2", "indirect",
        lambda: gathered_turn(pattern=32, index=(64, 2))),
}
# fmt: on


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit(name):
    target, code, call = LIMITS[name]
    assert refused(call, target).code == code
