"""Mistakes with Python: arguments and names, operators of numbers, loops, results."""

import numpy as np
from mistakes_table import mistake, result, sbuf

import nki.isa as nisa
import nki.language as nl

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
