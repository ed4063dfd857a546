"""Limits that the pages of `nki.isa` state of patterns, gathers, random numbers, searches,
selections and sums, as in `test_documented_limits`."""

import pytest
from limit_calls import exponential, ranged
from limits import assert_limit, hbm, in_psum, tile
from surface import psum, sbuf

import nki.isa as nisa
import nki.language as nl


def gathered(indices_rows, per_index=1):
    source, indices = tile(16, 8), tile(16, indices_rows, dtype="uint16")
    out = sbuf((16, 16 * indices_rows * per_index), "float32")
    nisa.local_gather(out, source, indices, num_elem_per_idx=per_index)


def shuffled(partitions, start):
    whole = tile(128, 4)
    part = whole[start : start + partitions, :]
    nisa.nc_stream_shuffle(dst=part, src=part, shuffle_mask=[0] * 32)


LIMITS = {
    # name: (target, call, code of the refusal, allowed call or None)
    "iota pattern": (
        "trn2",
        lambda: nisa.iota(sbuf((4, 8), "int32"), [[1, 9]]),
        "shape-mismatch",
        lambda: nisa.iota(sbuf((4, 8), "int32"), [[1, 8]]),
    ),
    "affine_select in PSUM": (
        "trn2",
        lambda: nisa.affine_select(sbuf((4, 8), "float32"), [[1, 8]], 0, in_psum(4, 8), 0.0),
        "wrong-memory",
        None,
    ),
    "local_gather indices": (
        "trn2",
        lambda: gathered(257),
        "value-not-allowed",
        lambda: gathered(256),
    ),
    "local_gather elements of an index": (
        "trn2",
        lambda: gathered(1, 3),
        "value-not-allowed",
        lambda: gathered(1, 4),
    ),
    "bn_stats": (
        "trn2",
        lambda: nisa.bn_stats(sbuf((4, 6), "float32"), tile(4, 513)),
        "tile-limit",
        lambda: nisa.bn_stats(sbuf((4, 6), "float32"), tile(4, 512)),
    ),
    "bn_aggr": (
        "trn2",
        lambda: nisa.bn_aggr(sbuf((4, 2), "float32"), tile(4, 7)),
        "shape-mismatch",
        lambda: nisa.bn_aggr(sbuf((4, 2), "float32"), tile(4, 6)),
    ),
    "nc_stream_shuffle of 64": (
        "trn2",
        lambda: shuffled(64, 32),
        "view-not-allowed",
        lambda: shuffled(64, 64),
    ),
    "dropout probability": (
        "trn2",
        lambda: nisa.dropout(
            sbuf((4, 8), "int32"), tile(4, 8, dtype="int32"), tile(4, 1, dtype="bfloat16")
        ),
        "dtype-not-allowed",
        lambda: nisa.dropout(sbuf((4, 8), "float32"), tile(4, 8), tile(4, 1, dtype="bfloat16")),
    ),
    "set_rng_seed": (
        "trn2",
        lambda: nisa.set_rng_seed(tile(1, 1, dtype="uint16")),
        "dtype-not-allowed",
        lambda: nisa.set_rng_seed(tile(1, 1, dtype="uint32")),
    ),
    "rng gpsimd on trn1": (
        "trn1",
        lambda: nisa.rng(sbuf((4, 8), "uint32"), engine=nisa.engine.gpsimd),
        "generation",
        lambda: nisa.rng(sbuf((4, 8), "uint32")),
    ),
    "rng gpsimd in PSUM": (
        "trn2",
        lambda: nisa.rng(psum((4, 8), "uint32"), engine=nisa.engine.gpsimd),
        "engine-not-allowed",
        lambda: nisa.rng(psum((4, 8), "uint32")),
    ),
    "rand_set_state vector on trn2": (
        "trn2",
        lambda: nisa.rand_set_state(tile(4, 24, dtype="uint32"), engine=nisa.engine.vector),
        "generation",
        None,
    ),
    "rand_set_state words": (
        "trn3",
        lambda: nisa.rand_set_state(tile(4, 6, dtype="uint32"), engine=nisa.engine.vector),
        "shape-mismatch",
        lambda: nisa.rand_set_state(tile(4, 24, dtype="uint32"), engine=nisa.engine.vector),
    ),
    "rand_get_state gpsimd in PSUM": (
        "trn3",
        lambda: nisa.rand_get_state(psum((4, 6), "uint32")),
        "engine-not-allowed",
        lambda: nisa.rand_get_state(sbuf((4, 6), "uint32")),
    ),
    "rand2 limits": (
        "trn3",
        lambda: nisa.rand2(sbuf((4, 8), "float32"), 1.0, 1.0),
        "value-not-allowed",
        None,
    ),
    "exponential reset": ("trn3", lambda: exponential("reset"), "value-not-allowed", None),
    "exponential first value": (
        "trn3",
        lambda: exponential("reset_reduce", reduce_init=1.0),
        "value-not-allowed",
        lambda: exponential("load_reduce", reduce_init=1.0),
    ),
    "max8 few": (
        "trn2",
        lambda: nisa.max8(sbuf((4, 8), "float32"), tile(4, 7)),
        "tile-limit",
        lambda: nisa.max8(sbuf((4, 8), "float32"), tile(4, 8)),
    ),
    "max8 many": (
        "trn2",
        lambda: nisa.max8(sbuf((4, 8), "float32"), tile(4, 16385)),
        "tile-limit",
        lambda: nisa.max8(sbuf((4, 8), "float32"), tile(4, 16384)),
    ),
    "sequence_bounds partitions": (
        "trn2",
        lambda: nisa.sequence_bounds(sbuf((2, 2, 8), "int32"), tile(2, 8, dtype="int32")),
        "shape-mismatch",
        None,
    ),
    "scalar_tensor_tensor bits": (
        "trn2",
        lambda: nisa.scalar_tensor_tensor(
            *(sbuf((4, 8), "int32"), tile(4, 8, dtype="int32"), nl.bitwise_and, 1, nl.add),
            tile(4, 8, dtype="int32"),
        ),
        "operator-not-allowed",
        None,
    ),
    "tensor_scalar_reduce reversed": (
        "trn2",
        lambda: nisa.tensor_scalar_reduce(
            *(sbuf((4, 8), "float32"), tile(4, 8), nl.subtract, 1.0, nl.add),
            reduce_res=sbuf((4, 1), "float32"),
            reverse0=True,
        ),
        "value-not-allowed",
        None,
    ),
    "dma_compute operator": (
        "trn2",
        lambda: nisa.dma_compute(hbm(4, 8), [hbm(4, 8), hbm(4, 8)], nl.multiply),
        "operator-not-allowed",
        lambda: nisa.dma_compute(hbm(4, 8), [hbm(4, 8), hbm(4, 8)], nl.add),
    ),
    "dma_compute scales": (
        "trn2",
        lambda: nisa.dma_compute(hbm(4, 8), [hbm(4, 8), hbm(4, 8)], nl.add, scales=[1.0, 2.0]),
        "value-not-allowed",
        lambda: nisa.dma_compute(hbm(4, 8), [hbm(4, 8), hbm(4, 8)], nl.add, scales=[1.0, 1.0]),
    ),
    "quantize_mx partitions": (
        "trn3",
        lambda: nisa.quantize_mx(
            sbuf((16, 1), "float8_e5m2_x4"), tile(16, 4, dtype="bfloat16"), sbuf((4, 1), "uint8")
        ),
        "tile-limit",
        lambda: nisa.quantize_mx(
            sbuf((32, 1), "float8_e5m2_x4"), tile(32, 4, dtype="bfloat16"), sbuf((4, 1), "uint8")
        ),
    ),
    "range_select fill": (
        "trn2",
        lambda: ranged(on_false_value=0.0),
        "value-not-allowed",
        ranged,
    ),
    "range_select comparison": (
        "trn2",
        lambda: ranged(comp_op0=nl.not_equal),
        "operator-not-allowed",
        ranged,
    ),
    "nc_find_index8 few": (
        "trn2",
        lambda: nisa.nc_find_index8(sbuf((4, 8), "uint32"), tile(4, 7), tile(4, 8)),
        "tile-limit",
        lambda: nisa.nc_find_index8(sbuf((4, 8), "uint32"), tile(4, 8), tile(4, 8)),
    ),
    "topk partitions": (
        "trn2",
        lambda: nisa.topk(
            sbuf((8, 1), "bfloat16"), sbuf((8, 1), "uint32"), tile(8, 4, dtype="bfloat16"), 32
        ),
        "shape-mismatch",
        lambda: nisa.topk(
            sbuf((16, 1), "bfloat16"), sbuf((16, 1), "uint32"), tile(16, 4, dtype="bfloat16"), 64
        ),
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit(name):
    assert_limit(*LIMITS[name])
