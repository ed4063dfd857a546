"""Mistakes that authors of kernels make: each a kernel with the line `# here`, the code of the
error and words of its way out.

Kernels take `a`, float32[128, 64], `b`, float32[64, 128], and `rows`, int32[128, 1] from 0 on.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import nki
import nki.isa as nisa
import nki.language as nl


@dataclass(frozen=True)
class Mistake:
    """`target`, `cores`: of the launch. `modes`: those in which it is one."""

    kernel: Callable[..., Any]
    code: str
    way_out: str
    target: str = "trn2"
    modes: tuple[str, ...] = ("device", "reference", "eager")


MISTAKES: dict[str, Mistake] = {}


def mistake(code: str, way_out: str, **launch: Any) -> Callable[[Callable[..., Any]], Any]:
    """Put a kernel into the table."""

    def add(kernel: Callable[..., Any]) -> Callable[..., Any]:
        assert kernel.__name__ not in MISTAKES
        MISTAKES[kernel.__name__] = Mistake(kernel, code, way_out, **launch)
        return kernel

    return add


def sbuf(shape, dtype=nl.float32):
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)
    return tile


def psum(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def result(tile):
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


# Shapes


@mistake("partition-limit", "at most nl.tile_size.pmax")
def too_many_partitions(a, b, rows):
    tile = nl.ndarray((256, 64), dtype=a.dtype, buffer=nl.sbuf)  # here
    return result(tile)


@mistake("value-not-allowed", "Write int")
def truth_value_as_index(a, b, rows):
    tile = nl.load(a)
    return result(tile[:, True])  # here


@mistake("shape-mismatch", "Slice")
def copy_of_another_size(a, b, rows):
    tile = sbuf((128, 32))
    nisa.dma_copy(dst=tile, src=a)  # here
    return result(tile)


@mistake("shape-mismatch", "Slice")
def sum_of_two_widths(a, b, rows):
    tile, half = sbuf((128, 64)), sbuf((128, 32))
    nisa.tensor_tensor(dst=tile, data1=tile, data2=half, op=nl.add)  # here
    return result(tile)


@mistake("shape-mismatch", "nl.transpose")
def sum_of_other_partitions(a, b, rows):
    return result(nl.add(nl.load(a), nl.load(b)))  # here


@mistake("contraction-mismatch", "contraction dimension")
def product_with_another_contraction(a, b, rows):
    product = psum((64, 128))
    nisa.nc_matmul(dst=product, stationary=sbuf((128, 64)), moving=sbuf((64, 128)))  # here
    return result(nl.copy(product))


@mistake("reshape", "as many elements")
def reshape_to_another_size(a, b, rows):
    return result(nl.load(a).reshape((128, 65)))  # here


@mistake("view-not-allowed", "nisa.nc_transpose")
def reshape_across_partitions(a, b, rows):
    return result(nl.load(a).reshape((64, 128)))  # here


@mistake("view-not-allowed", "Remove an index")
def too_many_indices(a, b, rows):
    tile = nl.load(a)
    return result(tile[0, 0, 0])  # here


@mistake("view-not-allowed", "consecutive partitions")
def every_other_partition(a, b, rows):
    tile = nl.load(a)
    return result(tile[0:128:2, :])  # here


@mistake("out-of-bounds", "Shrink")
def an_index_past_the_end(a, b, rows):
    tile = nl.load(a)
    return result(tile[:, 64])  # here


@mistake("out-of-bounds", "Shrink")
def a_window_past_the_end(a, b, rows):
    tile = sbuf((128, 64))
    for start in range(0, 128, 64):
        nisa.dma_copy(dst=tile[:, nl.ds(0, 64)], src=a[:, nl.ds(start, 64)])  # here
    return result(tile)


@mistake("out-of-bounds", "loop range")
def a_dynamic_loop_that_runs_too_far(a, b, rows):
    tile = sbuf((128, 64))
    for i in nl.dynamic_range(65):
        nisa.tensor_copy(dst=tile[:, nl.ds(i, 1)], src=tile[:, 0:1])  # here
    return result(tile)


@mistake("out-of-bounds", "Shrink")
def rows_that_start_in_the_wrong_place(a, b, rows):
    tile = nl.load(a[128:256, :])  # here
    return result(tile)


# Memories


@mistake("wrong-memory", "nisa.tensor_copy between PSUM and SBUF")
def product_into_sbuf(a, b, rows):
    product = sbuf((64, 64))
    tile = nl.load(a)
    nisa.nc_matmul(dst=product, stationary=tile, moving=tile)  # here
    return result(product)


@mistake("wrong-memory", "nisa.dma_copy between HBM and SBUF")
def computing_in_hbm(a, b, rows):
    tile = sbuf((128, 64))
    nisa.tensor_scalar(dst=tile, data=a, op0=nl.add, operand0=1.0)  # here
    return result(tile)


@mistake("wrong-memory", "nisa.tensor_copy between PSUM and SBUF")
def transfer_from_psum(a, b, rows):
    product = psum((64, 64))
    tile = nl.load(a)
    nisa.nc_matmul(dst=product, stationary=tile, moving=tile)
    out = nl.ndarray((64, 64), dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=product)  # here
    return out


@mistake("wrong-memory", "nisa.dma_copy between HBM and SBUF")
def transpose_of_hbm(a, b, rows):
    turned = psum((64, 128))
    nisa.nc_transpose(dst=turned, data=a)  # here
    return result(nl.copy(turned))


@mistake("output-not-hbm", "buffer=nl.shared_hbm")
def result_on_chip(a, b, rows):
    tile = nl.load(a)
    return tile  # here


@mistake("output-not-hbm", "as a tuple")
def result_of_python(a, b, rows):
    nl.store(a, nl.load(a))
    return {"out": a}  # here


@mistake("output-not-hbm", "write views of it")
def a_part_as_the_result(a, b, rows):
    out = result(nl.load(a))
    return out[0:64, :]  # here


@mistake("engine-not-allowed", "SBUF first")
def gpsimd_on_psum(a, b, rows):
    tile, turned = nl.load(a), psum((64, 64))
    nisa.nc_matmul(dst=turned, stationary=tile, moving=tile)
    nisa.tensor_copy(dst=tile[0:64, :], src=turned, engine=nisa.engine.gpsimd)  # here
    return result(tile)


@mistake("engine-not-allowed", "Leave `engine` out")
def an_engine_that_cannot(a, b, rows):
    tile = nl.load(a)
    nisa.tensor_tensor(tile, tile, tile, op=nl.add, engine=nisa.engine.tensor)  # here
    return result(tile)


@mistake("tile-limit", "smaller tiles")
def more_than_sbuf_holds(a, b, rows):
    tile = nl.ndarray((128, 60_000), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=0)  # here
    return result(tile)


@mistake("psum-overflow", "smaller tiles", modes=("device",))
def more_than_psum_holds(a, b, rows):
    tile = nl.load(a)
    product = nl.ndarray((64, 8192), dtype=nl.float32, buffer=nl.psum)  # here
    nisa.nc_matmul(dst=product[:, 0:64], stationary=tile, moving=tile)
    return result(nl.copy(product[:, 0:64]))


@mistake("psum-bank", "where banks end")
def a_product_across_banks(a, b, rows):
    wide = sbuf((128, 512), nl.bfloat16)
    product = psum((128, 1024))
    nisa.nc_matmul(dst=product[:, 256:768], stationary=wide[:, 0:128], moving=wide)  # here
    return result(nl.copy(product[:, 256:768]))


# Data types and operators


@mistake("dtype-not-allowed", "nl.float32")
def a_numpy_dtype_that_no_engine_has(a, b, rows):
    tile = nl.ndarray((128, 64), dtype=np.float64, buffer=nl.sbuf)  # here
    return result(tile)


@mistake("dtype-not-allowed", "nisa.tensor_copy")
def integers_in_a_product(a, b, rows):
    tile, product = sbuf((128, 64), nl.int32), psum((64, 64))
    nisa.nc_matmul(dst=product, stationary=tile, moving=tile)  # here
    return result(nl.copy(product))


@mistake("operator-not-allowed", "nl.add")
def an_operator_as_text(a, b, rows):
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op="add")  # here
    return result(tile)


@mistake("operator-not-allowed", "nl.exp")
def an_operator_of_numpy(a, b, rows):
    tile = nl.load(a)
    nisa.activation(dst=tile, data=tile, op=np.exp)  # here
    return result(tile)


@mistake("operator-not-allowed", "nisa.activation takes op=nl.exp")
def an_activation_where_arithmetic_is_needed(a, b, rows):
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.exp)  # here
    return result(tile)


@mistake("operator-not-allowed", "two instructions")
def bits_and_arithmetic_mixed(a, b, rows):
    tile = sbuf((128, 64), nl.int32)
    nisa.tensor_scalar(tile, tile, nl.add, 1, op1=nl.bitwise_and, operand1=1)  # here
    return result(tile)


# Arguments and names


@mistake("shape-mismatch", "buffer=nl.sbuf), or write to dst[0:128, 0:1].")
def a_reduction_into_a_whole_tile(a, b, rows):
    tile = nl.load(a)
    nisa.tensor_reduce(dst=tile, op=nl.add, data=tile, axis=1)  # here
    return result(tile)


@mistake("missing-argument", "dst=")
def no_destination(a, b, rows):
    tile = nl.load(a)
    nisa.tensor_tensor(data1=tile, data2=tile, op=nl.add)  # here
    return result(tile)


@mistake("unknown-argument", "data1=?")
def a_misspelt_keyword(a, b, rows):
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data_1=tile, data2=tile, op=nl.add)  # here
    return result(tile)


@mistake("unknown-argument", "Did you mean op=?")
def a_keyword_of_another_library(a, b, rows):
    tile = nl.load(a)
    nisa.activation(dst=tile, data=tile, func=nl.exp)  # here
    return result(tile)


@mistake("unknown-argument", "Did you mean dtype=?")
def a_misspelt_keyword_of_the_language(a, b, rows):
    tile = nl.load(a, dtpye=nl.bfloat16)  # here
    return result(tile)


@mistake("missing-argument", "ndarray(shape, dtype")
def a_tensor_without_a_dtype(a, b, rows):
    tile = nl.ndarray((128, 64))  # here
    return result(tile)


@mistake("unknown-name", "'load'")
def a_misspelt_function(a, b, rows):
    return result(nl.laod(a))  # here


@mistake("unknown-name", "'tensor_tensor'")
def a_misspelt_operation(a, b, rows):
    nisa.tensor_tenser(dst=a, data1=a, data2=a, op=nl.add)  # here
    return a


@mistake("unknown-name", "'shape'")
def a_misspelt_attribute(a, b, rows):
    return result(sbuf(a.shpae))  # here


@mistake("not-a-tensor", "nl.ndarray")
def an_array_of_the_host(a, b, rows):
    tile = nl.load(a)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=np.ones((128, 64)), op=nl.add)  # here
    return result(tile)


@mistake("value-not-allowed", "")
def memset_with_text(a, b, rows):
    tile = nl.ndarray((128, 64), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value="zero")  # here
    return result(tile)


@mistake("value-not-allowed", "nl.sbuf")
def a_memory_as_text(a, b, rows):
    tile = nl.ndarray((128, 64), dtype=a.dtype, buffer="vmem")  # here
    return result(tile)


@mistake("value-not-allowed", "largest size")
def a_negative_size(a, b, rows):
    tile = nl.ndarray((128, -1), dtype=a.dtype, buffer=nl.sbuf)  # here
    return result(tile)


@mistake("generation", "Compile for a target that has it", target="trn1")
def an_operation_of_a_later_target(a, b, rows):
    tile = nl.load(a)
    nisa.activate2(tile, nl.exp, tile, imm0=1.0, imm1=0.0, op0=nl.multiply, op1=nl.add)  # here
    return result(tile)


# Python on tiles and registers


@mistake("not-supported", "nl.add")
def plus(a, b, rows):
    tile = nl.load(a) + 1.0  # here
    return result(tile)


@mistake("not-supported", "nl.matmul")
def at(a, b, rows):
    return result(nl.load(a) @ nl.load(b))  # here


@mistake("not-supported", "nl.equal")
def an_element_in_a_condition(a, b, rows):
    tile = nl.load(a)
    if tile[0, 0] == 0:  # here
        nisa.memset(dst=tile, value=1)
    return result(tile)


@mistake("not-supported", "nl.greater")
def a_comparison_of_a_tile(a, b, rows):
    tile = nl.load(a)
    if tile > 0:  # here
        nisa.memset(dst=tile, value=1)
    return result(tile)


@mistake("unknown-name", "nl.sum(tile")
def a_method_of_arrays(a, b, rows):
    return result(nl.load(a).sum())  # here


@mistake("unknown-name", "nl.transpose(tile)")
def dot_t(a, b, rows):
    return result(nl.load(a).T)  # here


@mistake("not-supported", "tile.shape[0]")
def the_length_of_a_tile(a, b, rows):
    for _ in range(len(a)):  # here
        nl.load(a)
    return a


@mistake("not-supported", "register_load")
def a_tile_as_a_bound(a, b, rows):
    count = nl.load(rows[0:1, :])
    for _ in range(count):  # here
        nl.load(a)
    return a


@mistake("not-supported", "nl.exp")
def numpy_on_a_tile(a, b, rows):
    return result(np.exp(nl.load(a)))  # here


@mistake("not-supported", "for i in range")
def iteration_over_rows(a, b, rows):
    for row in nl.load(a):  # here
        nl.exp(row)
    return a


@mistake("not-supported", "tile[start:stop]")
def a_part_that_is_deleted(a, b, rows):
    tile = nl.load(a)
    del tile[0:1, :]  # here
    return result(tile)


@mistake("not-a-tensor", "np.asarray")
def a_list_where_a_tensor_is_meant(a, b, rows):
    sizes = [1, 2]
    return result(nl.load(a)[0 : sizes.shape[0], :])  # here


@mistake("register-branch", "nl.while_loop")
def an_if_on_a_register(a, b, rows):
    count = nisa.register_alloc()
    nisa.register_load(count, nl.load(rows[0:1, :]))
    if count:  # here
        nl.store(a, nl.load(a))
    return a


@mistake("register-arithmetic", "nl.dynamic_range")
def arithmetic_with_a_register(a, b, rows):
    count = nisa.register_alloc(3)
    tile = nl.load(a)
    nisa.tensor_copy(dst=tile[:, nl.ds(count * 2, 1)], src=tile[:, 0:1])  # here
    return result(tile)


# Loops and stores


@mistake("loop-break", "while register")
def a_loop_that_is_left(a, b, rows):
    tile = nl.load(a)
    for _ in nl.dynamic_range(4):  # here
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        break
    return result(tile)


@mistake("loop-carried-state", "before the loop")
def a_tile_that_outlives_its_loop(a, b, rows):
    for _ in nl.dynamic_range(4):
        tile = nl.load(a)
    return result(tile)  # here: the tile


@mistake("output-not-written", "nisa.dma_copy")
def a_forgotten_store(a, b, rows):
    tile = nl.load(a)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)  # here
    return out


@mistake("output-not-written", "nisa.memset")
def a_store_of_half_of_the_rows(a, b, rows):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)  # here
    for start in range(0, 64, 32):
        nl.store(out[start : start + 32, :], nl.load(a[start : start + 32, :]))
    return out


@mistake("uninitialised-output", "nisa.memset")
def a_forgotten_load(a, b, rows):
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)  # here
    return result(tile)


@mistake("uninitialised-output", "Write the whole tensor")
def a_sum_that_does_not_start(a, b, rows):
    total = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
    for _ in range(4):
        nisa.tensor_tensor(dst=total, data1=total, data2=nl.load(a), op=nl.add)  # here
    return result(total)


# PSUM


@mistake("accumulation-not-started", "accumulate")
def accumulating_onto_a_memset(a, b, rows):
    tile, total = nl.load(a), psum((64, 64))
    nisa.memset(dst=total, value=0)
    nisa.nc_matmul(dst=total, stationary=tile, moving=tile, accumulate=True)  # here
    return result(nl.copy(total))


@mistake("psum-overlap", "same region")
def accumulating_onto_a_part(a, b, rows):
    tile, total = nl.load(a), psum((64, 64))
    nisa.nc_matmul(dst=total[:, 0:32], stationary=tile, moving=tile[:, 0:32])
    nisa.nc_matmul(dst=total, stationary=tile, moving=tile)  # here
    return result(nl.copy(total))


@mistake("accumulation-undecided", "accumulate=True", modes=("device", "reference"))
def accumulating_behind_a_loop_that_may_not_run(a, b, rows):
    tile, total = nl.load(a), psum((64, 64))
    count = nisa.register_alloc()
    nisa.register_load(count, nl.load(rows[0:1, :]))
    for _ in nl.dynamic_range(count):
        nisa.nc_matmul(dst=total, stationary=tile, moving=tile)
    nisa.nc_matmul(dst=total, stationary=tile, moving=tile)  # here
    return result(nl.copy(total))


@mistake("tile-limit", "smaller tiles")
def too_many_columns_in_a_product(a, b, rows):
    wide, product = sbuf((128, 1024), nl.bfloat16), psum((128, 1024))
    nisa.nc_matmul(dst=product, stationary=wide[:, 0:128], moving=wide)  # here
    return result(nl.copy(product))


# Indices and addresses


@mistake("indirect", "dtype=nl.int32")
def indices_of_another_dtype(a, b, rows):
    tile = sbuf((128, 64))
    nisa.dma_copy(dst=tile, src=a.vector_select(0, nl.load(a[:, 0:1])))  # here
    return result(tile)


@mistake("dynamic-out-of-bounds", "oob_mode")
def an_index_of_no_row(a, b, rows):
    tile = sbuf((128, 128))
    nisa.dma_copy(dst=tile, src=b.vector_select(0, nl.load(rows)))  # here
    return result(tile)


@mistake("address-overlap", "Move one", modes=("device",))
def two_tensors_at_one_address(a, b, rows):
    one = nl.ndarray((128, 64), nl.float32, nl.sbuf, address=(0, 0))
    two = nl.ndarray((128, 64), nl.float32, nl.sbuf, address=(0, 128))  # here
    nisa.memset(dst=one, value=1)
    nisa.memset(dst=two, value=2)
    nisa.tensor_tensor(dst=one, data1=one, data2=two, op=nl.add)
    return result(one)


@mistake("address-out-of-range", "smaller offset")
def an_address_outside(a, b, rows):
    tile = nl.ndarray((128, 64), nl.float32, nl.sbuf, address=(0, 1 << 20))  # here
    nisa.memset(dst=tile, value=1)
    return result(tile)


@mistake("value-not-allowed", "register_load")
def a_register_that_holds_nothing(a, b, rows):
    tile, count = nl.load(a), nisa.register_alloc()
    nisa.tensor_copy(dst=tile[:, nl.ds(count, 1)], src=tile[:, 0:1])  # here
    return result(tile)


A = np.arange(128 * 64, dtype=np.float32).reshape(128, 64)
INPUTS = (A, np.ones((64, 128), np.float32), np.arange(128, dtype=np.int32)[:, None])

__all__ = ["INPUTS", "MISTAKES", "Mistake", "nki"]


# What operations return


@mistake("unknown-name", "passed as dst")
def the_shape_of_an_instruction(a, b, rows):
    tile = nl.load(a)
    done = nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    return nl.zeros(done.shape, nl.float32)  # here


@mistake("not-a-tensor", "passed as dst")
def a_slice_of_an_instruction(a, b, rows):
    tile = nl.load(a)
    done = nisa.tensor_copy(dst=tile, src=tile)
    return result(done[:, 0:4])  # here


@mistake("not-a-tensor", "passed as dst")
def a_sum_with_an_instruction(a, b, rows):
    tile = nl.load(a)
    return result(1.0 + nisa.tensor_copy(dst=tile, src=tile))  # here


@mistake("value-not-allowed", "one parameter")
def a_body_without_a_parameter(a, b, rows):
    tile = nl.load(a)

    def body():
        nisa.tensor_copy(dst=tile, src=tile)

    nl.fori_loop(0, 4, body)  # here
    return result(tile)


# Words of the kernel in the way out


@mistake("partition-limit", "vector.reshape((1, n))")
def a_vector_over_partitions(a, b, rows):
    return result(nl.load(a.reshape((8192,))))  # here


@mistake("not-supported", "nl.subtract(tile, 1.0)")
def a_number_subtracted(a, b, rows):
    tile = nl.load(a)
    return result(tile - 1.0)  # here


@mistake("not-supported", "nl.divide(1.0, nl.exp(tile))")
def a_reciprocal(a, b, rows):
    tile = nl.load(a)
    return result(1.0 / nl.exp(tile))  # here


@mistake("not-supported", "nl.multiply(tile, 2)")
def a_product_in_place(a, b, rows):
    tile = nl.load(a)
    tile *= 2  # here
    return result(tile)


@mistake("not-supported", "nl.abs(tile)")
def an_absolute_value(a, b, rows):
    tile = nl.load(a)
    return result(abs(tile))  # here


@mistake("unknown-name", "nisa.tensor_reduce(op=nl.maximum)")
def a_maximum_by_its_operator(a, b, rows):
    nisa.tensor_max(nl.load(a))  # here


@mistake("unknown-name", "nisa.tensor_tensor(op=nl.multiply)")
def a_product_by_its_operator(a, b, rows):
    nisa.tensor_mul(nl.load(a))  # here
