"""Limits that the pages of `nki.isa` state, each with a call that breaks it and the refusal.

Where the next smaller call is allowed, `allowed` makes it: the limit is where it is documented.
"""

import numpy as np
import pytest
from limit_calls import activated
from limits import assert_limit, hbm, in_psum, product, tile, traced
from surface import psum, sbuf

import nki
import nki.isa as nisa
import nki.language as nl
from isa.errors import NeuronError


def pairs(**options):
    """A product in double_row mode."""
    nisa.nc_matmul(
        dst=psum((16, 32)), stationary=tile(32, 2, 16, dtype="float8_e5m2"),
        moving=tile(32, 2, 32, dtype="float8_e5m2"), perf_mode=nisa.matmul_perf_mode.double_row,
        **options,
    )  # fmt: skip


def exchange(columns, dtype):
    other = 1 - nl.program_id(0)
    source = tile(4, columns, dtype=dtype)
    nisa.sendrecv(
        source, sbuf((4, columns), dtype), other, other, 0, dma_engine=nisa.dma_engine.gpsimd_dma
    )


def exchange_shapes(source, destination):
    other = 1 - nl.program_id(0)
    nisa.sendrecv(tile(*source), sbuf(destination, "float32"), other, other, 0)


def reduced(reduce_op):
    nisa.activation_reduce(
        dst=sbuf((4, 8), "float32"), op=nl.exp, data=tile(4, 8), reduce_op=reduce_op,
        reduce_res=sbuf((4, 1), "float32"),
    )  # fmt: skip


def both(first, second):
    nisa.activate2(
        sbuf((4, 8), "float32"), nl.exp, tile(4, 8), tile(4, 1, dtype=first),
        tile(4, 1, dtype=second), nl.multiply, nl.add,
    )  # fmt: skip


def barrier(data, cores=(0, 1)):
    nisa.core_barrier(data, cores)


def shared():
    return nl.ndarray((2, 4), dtype=nl.float32, buffer=nl.shared_hbm)


LIMITS = {
    # name: (target, call, code of the refusal, allowed call or None)
    "dma_copy priority": (
        "trn2",
        lambda: nisa.dma_copy(sbuf((4, 8), "float32"), hbm(4, 8), priority=1),
        "generation",
        lambda: nisa.dma_copy(sbuf((4, 8), "float32"), hbm(4, 8)),
    ),
    "dma_copy priority up to 3": (
        "trn3",
        lambda: nisa.dma_copy(sbuf((4, 8), "float32"), hbm(4, 8), priority=4),
        "value-not-allowed",
        lambda: nisa.dma_copy(sbuf((4, 8), "float32"), hbm(4, 8), priority=3),
    ),
    "dma_copy engine": (
        "trn3",
        lambda: nisa.dma_copy(sbuf((4, 8), "float32"), hbm(4, 8), engine=nisa.engine.scalar),
        "engine-not-allowed",
        lambda: nisa.dma_copy(
            sbuf((4, 8), "float32"),
            hbm(4, 8),
            engine=nisa.engine.scalar,
            dge_mode=nisa.dge_mode.hwdge,
        ),
    ),
    "tensor_copy scalar engine": (
        "trn1",
        lambda: nisa.tensor_copy(sbuf((4, 8), "float32"), tile(4, 8), engine=nisa.engine.scalar),
        "generation",
        None,
    ),
    "tensor_copy gpsimd in PSUM": (
        "trn2",
        lambda: nisa.tensor_copy(sbuf((4, 8), "float32"), in_psum(4, 8), engine=nisa.engine.gpsimd),
        "engine-not-allowed",
        lambda: nisa.tensor_copy(sbuf((4, 8), "float32"), tile(4, 8), engine=nisa.engine.gpsimd),
    ),
    "memset packed": (
        "trn3",
        lambda: nisa.memset(sbuf((4, 8), "float8_e5m2_x4"), 1),
        "value-not-allowed",
        lambda: nisa.memset(sbuf((4, 8), "float8_e5m2_x4"), 0),
    ),
    "nc_matmul double_row on trn1": ("trn1", pairs, "generation", None),
    "nc_matmul double_row and column tiles": (
        "trn2",
        lambda: pairs(tile_position=(0, 0), tile_size=(128, 64)),
        "value-not-allowed",
        pairs,
    ),
    "nc_matmul K": (
        "trn2",
        lambda: product(k=64, tile_position=(0, 0), tile_size=(32, 128)),
        "tile-limit",
        lambda: product(k=32, tile_position=(0, 0), tile_size=(32, 128)),
    ),
    "nc_matmul M": (
        "trn2",
        lambda: product(m=65, tile_position=(0, 0), tile_size=(128, 64)),
        "tile-limit",
        lambda: product(m=64, tile_position=(0, 0), tile_size=(128, 64)),
    ),
    "nc_matmul N": ("trn2", lambda: product(n=513), "tile-limit", lambda: product(n=512)),
    "nc_matmul row tiles of 32 on trn1": (
        "trn1",
        lambda: product(tile_position=(0, 0), tile_size=(32, 128)),
        "generation",
        None,
    ),
    "nc_matmul start row": (
        "trn2",
        lambda: product(tile_position=(16, 0), tile_size=(32, 128)),
        "value-not-allowed",
        None,
    ),
    "nc_matmul position without size": (
        "trn2",
        lambda: product(tile_position=(0, 0)),
        "value-not-allowed",
        None,
    ),
    "nc_matmul float32 with bfloat16": (
        "trn2",
        lambda: product(left="float32"),
        "dtype-not-allowed",
        lambda: product(left="float16"),
    ),
    "nc_matmul two e4m3": (
        "trn3",
        lambda: product(left="float8_e4m3", right="float8_e4m3fn"),
        "dtype-not-allowed",
        lambda: product(left="float8_e5m2", right="float8_e4m3fn"),
    ),
    "nc_matmul dst": (
        "trn2",
        lambda: product(dst="bfloat16"),
        "dtype-not-allowed",
        None,
    ),
    "nc_matmul dst on trn3": (
        "trn3",
        lambda: product(dst="float16"),
        "dtype-not-allowed",
        lambda: product(dst="bfloat16"),
    ),
    "tensor_tensor both in PSUM": (
        "trn2",
        lambda: nisa.tensor_tensor(
            sbuf((4, 8), "float32"), in_psum(4, 8), in_psum(4, 8), op=nl.add
        ),
        "wrong-memory",
        lambda: nisa.tensor_tensor(sbuf((4, 8), "float32"), in_psum(4, 8), tile(4, 8), op=nl.add),
    ),
    "tensor_tensor power in PSUM": (
        "trn2",
        lambda: nisa.tensor_tensor(sbuf((4, 8), "float32"), in_psum(4, 8), tile(4, 8), op=nl.power),
        "engine-not-allowed",
        None,
    ),
    "tensor_tensor bits of floats": (
        "trn2",
        lambda: nisa.tensor_tensor(
            sbuf((4, 8), "float32"), tile(4, 8), tile(4, 8), op=nl.bitwise_and
        ),
        "dtype-not-allowed",
        None,
    ),
    "tensor_scalar two kinds of operators": (
        "trn2",
        lambda: nisa.tensor_scalar(
            *(sbuf((4, 8), "int32"), tile(4, 8, dtype="int32"), nl.add, 1),
            op1=nl.bitwise_and,
            operand1=1,
        ),
        "operator-not-allowed",
        None,
    ),
    "tensor_scalar division": (  # release notes 0.4.0, Known Issues: no instruction divides
        "trn2",
        lambda: nisa.tensor_scalar(sbuf((4, 8), "float32"), tile(4, 8), nl.divide, 2.0),
        "operator-not-allowed",
        lambda: nisa.tensor_scalar(sbuf((4, 8), "float32"), tile(4, 8), nl.multiply, 0.5),
    ),
    "tensor_tensor division": (
        "trn3",
        lambda: nisa.tensor_tensor(sbuf((4, 8), "float32"), tile(4, 8), tile(4, 8), op=nl.divide),
        "operator-not-allowed",
        lambda: nl.divide(tile(4, 8), tile(4, 8)),
    ),
    "scalar_tensor_tensor modulo": (
        "trn2",
        lambda: nisa.scalar_tensor_tensor(
            sbuf((4, 8), "float32"), tile(4, 8), nl.mod, 2.0, nl.add, tile(4, 8)
        ),
        "operator-not-allowed",
        lambda: nl.mod(tile(4, 8), 2.0),
    ),
    "tensor_scalar_reduce remainder": (
        "trn2",
        lambda: nisa.tensor_scalar_reduce(
            sbuf((4, 8), "float32"), tile(4, 8), nl.fmod, 2.0, nl.add, sbuf((4, 1), "float32")
        ),
        "operator-not-allowed",
        lambda: nl.fmod(tile(4, 8), 2.0),
    ),
    "tensor_scalar operand": (
        "trn2",
        lambda: nisa.tensor_scalar(
            sbuf((4, 8), "float32"), tile(4, 8), nl.add, tile(4, 1, dtype="bfloat16")
        ),
        "dtype-not-allowed",
        lambda: nisa.tensor_scalar(sbuf((4, 8), "float32"), tile(4, 8), nl.add, tile(4, 1)),
    ),
    "tensor_scalar gpsimd": (
        "trn2",
        lambda: nisa.tensor_scalar(
            sbuf((4, 8), "float32"), tile(4, 8), nl.add, 1.0, engine=nisa.engine.gpsimd
        ),
        "engine-not-allowed",
        lambda: nisa.tensor_scalar(
            sbuf((4, 8), "float32"), tile(4, 8), nl.rsqrt, 0.0, engine=nisa.engine.gpsimd
        ),
    ),
    "tensor_reduce partitions": (
        "trn2",
        lambda: nisa.tensor_reduce(sbuf((4, 8), "float32"), nl.add, tile(4, 8), axis=0),
        "value-not-allowed",
        None,
    ),
    "tensor_reduce inner axis": (
        "trn2",
        lambda: nisa.tensor_reduce(sbuf((4, 3), "float32"), nl.add, tile(4, 2, 3), axis=1),
        "value-not-allowed",
        lambda: nisa.tensor_reduce(sbuf((4, 2), "float32"), nl.add, tile(4, 2, 3), axis=2),
    ),
    "tensor_reduce negated bits": (
        "trn2",
        lambda: nisa.tensor_reduce(
            sbuf((4, 1), "int32"), nl.bitwise_or, tile(4, 8, dtype="int32"), axis=1, negate=True
        ),
        "operator-not-allowed",
        None,
    ),
    "tensor_partition_reduce in PSUM": (
        "trn2",
        lambda: nisa.tensor_partition_reduce(sbuf((1, 8), "float32"), nl.add, in_psum(4, 8)),
        "wrong-memory",
        None,
    ),
    "tensor_scalar_cumulative int32": (
        "trn2",
        lambda: nisa.tensor_scalar_cumulative(
            sbuf((4, 8), "int32"), tile(4, 8, dtype="int32"), nl.multiply, nl.add, 1.0
        ),
        "dtype-not-allowed",
        None,
    ),
    "activation reduction": (
        "trn2",
        lambda: activated(
            reduce_op=nl.maximum,
            reduce_res=sbuf((4, 1), "float32"),
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        ),
        "operator-not-allowed",
        None,
    ),
    "activation bias tfloat32": (
        "trn2",
        lambda: activated(bias=tile(4, 1, dtype="tfloat32")),
        "dtype-not-allowed",
        lambda: activated(bias=tile(4, 1, dtype="bfloat16")),
    ),
    "activation bias number": (
        "trn1",
        lambda: activated(bias=1.0),
        "generation",
        lambda: activated(bias=tile(4, 1)),
    ),
    "activation scale": (
        "trn2",
        lambda: activated(scale=tile(4, 1, dtype="bfloat16")),
        "dtype-not-allowed",
        lambda: activated(scale=tile(4, 1)),
    ),
    "activation_reduce on trn1": (
        "trn1",
        lambda: reduced(nl.maximum),
        "operator-not-allowed",
        lambda: reduced(nl.add),
    ),
    "activate2 immediates": (
        "trn3",
        lambda: both("float32", "bfloat16"),
        "dtype-not-allowed",
        lambda: both("float32", "float32"),
    ),
}

TWO_CORES = {
    "sendrecv float32": (lambda: exchange(257, "float32"), lambda: exchange(256, "float32")),
    "sendrecv bfloat16": (lambda: exchange(257, "bfloat16"), lambda: exchange(256, "bfloat16")),
    "sendrecv uint8": (lambda: exchange(257, "uint8"), lambda: exchange(256, "uint8")),
    "sendrecv shape": (
        lambda: exchange_shapes((4, 2, 4), (4, 8)),
        lambda: exchange_shapes((4, 2, 4), (4, 2, 4)),
    ),
    "core_barrier cores": (lambda: barrier(shared(), (0,)), lambda: barrier(shared())),
    "core_barrier data": (lambda: barrier(hbm(2, 4)), lambda: barrier(shared())),
}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit(name):
    assert_limit(*LIMITS[name])


@pytest.mark.parametrize("name", TWO_CORES)
def test_a_limit_of_two_cores(name):
    refused, allowed = TWO_CORES[name]
    with pytest.raises(NeuronError):
        traced(refused, "trn2", 2)
    traced(allowed, "trn2", 2)


def test_a_limit_that_only_a_run_can_see():
    """Indices that are outside (SDK nki.isa.dma_copy, oob_mode.error)."""

    def kernel(a, indices):
        out = nl.ndarray((4, 8), dtype=a.dtype, buffer=nl.shared_hbm)
        rows = sbuf((4, 8), a.dtype)
        nisa.dma_copy(dst=rows, src=a.vector_select(0, nl.load(indices)))
        nl.store(out, rows)
        return out

    a = np.arange(32, dtype=np.float32).reshape(4, 8)
    inside = np.array([[3], [0], [1], [1]], np.uint32)
    np.testing.assert_array_equal(nki.simulate(nki.jit(kernel))(a, inside), a[inside[:, 0]])
    with pytest.raises(NeuronError) as caught:
        nki.simulate(nki.jit(kernel))(a, inside + 1)
    assert caught.value.code == "dynamic-out-of-bounds"
