"""Mistakes with tiles: their shapes, memories, data types and addresses."""

import numpy as np
from mistakes_table import mistake, psum, result, sbuf

import nki.isa as nisa
import nki.language as nl

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
