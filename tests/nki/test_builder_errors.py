"""Bad calls of a builder raise what kernels raise, at the location that they were given."""

from __future__ import annotations

import numpy as np
import pytest

from isa.alu import ALU
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import SourceLocation
from nki.ir.builder.builder import Builder

PLACE = SourceLocation("graph.hlo", 12, 2, 9, "fusion.3", "  %add = f32[4,8] add(%a, %b)")


def sbuf(b, *shape, dtype="float32"):
    return b.tensor(shape, dtype)


def wrong_memory(b):
    tile = sbuf(b, 128, 64)
    b.emit("nc_matmul", dst=tile, stationary=tile, moving=tile, location=PLACE)


def shapes_that_differ(b):
    one, other = sbuf(b, 4, 8), sbuf(b, 4, 9)
    b.emit("tensor_tensor", dst=one, data1=one, data2=other, op=ALU["add"], location=PLACE)


def no_operator(b):
    one = sbuf(b, 4, 8)
    b.emit("tensor_tensor", dst=one, data1=one, data2=one, op="add", location=PLACE)


def a_field_is_missing(b):
    b.emit("tensor_copy", dst=sbuf(b, 4, 8), location=PLACE)


def a_field_that_the_row_has_not(b):
    one = sbuf(b, 4, 8)
    b.emit("tensor_copy", dst=one, source=one, location=PLACE)


def no_such_operation(b):
    b.emit("tensor_cpoy", dst=sbuf(b, 4, 8), location=PLACE)


def too_many_partitions(b):
    b.tensor((129, 8), "float32", location=PLACE)


def outside(b):
    with b.at(PLACE):
        sbuf(b, 4, 8).slice(1, 4, 9)


def a_loop_without_iterations(b):
    with b.loop(4, 4, location=PLACE):
        pass


def a_step_of_zero(b):
    with b.loop(0, 4, 0, location=PLACE):
        pass


def a_while_that_never_ends(b):
    register = b.register(1)
    with b.while_(register, PLACE):
        pass


def a_sum_that_goes_on_in_a_while(b):
    left, right = sbuf(b, 128, 64), sbuf(b, 128, 32)
    total = b.tensor((64, 32), "float32", Memory.psum)
    register = b.register(1)
    with b.while_(register):
        b.emit("nc_matmul", dst=total, stationary=left, moving=right, location=PLACE)
        b.emit("register_move", dst=register, src=0)


def a_sum_that_covers_a_part_in_the_next_iteration(b):
    left, right = sbuf(b, 128, 64), sbuf(b, 128, 32)
    total = b.tensor((64, 32), "float32", Memory.psum)
    with b.loop(0, 4):
        b.emit("nc_matmul", dst=total, stationary=left, moving=right, location=PLACE)
        b.emit("memset", dst=total[:, 0:16], value=0.0)


def a_tensor_of_a_loop_behind_it(b):
    with b.loop(0, 4):
        tile = sbuf(b, 4, 8)
        b.emit("memset", dst=tile, value=0.0)
    b.emit("memset", dst=tile, value=1.0, location=PLACE)
    b.kernel()


def a_register_without_value(b):
    tile = sbuf(b, 1, 1, dtype="int32")
    b.emit("register_store", dst=tile, src=b.register(name="empty"), location=PLACE)
    b.kernel()


def a_tensor_of_another_kernel(b):
    other = sbuf(Builder("trn2"), 4, 8)
    b.emit("memset", dst=other, value=1.0, location=PLACE)
    b.kernel()


def a_constant_is_written(b):
    with b.at(PLACE):
        tile = sbuf(b, 4, 8)
        b.emit("memset", dst=tile, value=1.0)
        b.emit("dma_copy", dst=b.constant(np.zeros((4, 8), np.float32)), src=tile)
    b.kernel()


def a_tile_is_returned(b):
    b.result(sbuf(b, 4, 8), location=PLACE)


def an_order_of_loops(b):
    with b.in_order(), b.loop(0, 4, location=PLACE):
        pass


def an_edge_to_a_later_one(b):
    tile = sbuf(b, 4, 8)
    first = b.emit("memset", dst=tile, value=0.0, location=PLACE)
    first.depends_on(b.emit("memset", dst=tile, value=1.0))
    b.kernel()


def a_kernel_inside_a_loop(b):
    with b.loop(0, 4, location=PLACE):
        b.kernel()


@pytest.mark.parametrize(
    ("code", "mistake"),
    [
        ("wrong-memory", wrong_memory),
        ("shape-mismatch", shapes_that_differ),
        ("operator-not-allowed", no_operator),
        ("missing-argument", a_field_is_missing),
        ("unknown-argument", a_field_that_the_row_has_not),
        ("value-not-allowed", no_such_operation),
        ("partition-limit", too_many_partitions),
        ("out-of-bounds", outside),
        ("value-not-allowed", a_loop_without_iterations),
        ("value-not-allowed", a_step_of_zero),
        ("value-not-allowed", a_while_that_never_ends),
        ("loop-carried-state", a_sum_that_goes_on_in_a_while),
        ("psum-overlap", a_sum_that_covers_a_part_in_the_next_iteration),
        ("loop-carried-state", a_tensor_of_a_loop_behind_it),
        ("value-not-allowed", a_register_without_value),
        ("value-not-allowed", a_tensor_of_another_kernel),
        ("value-not-allowed", a_constant_is_written),
        ("output-not-hbm", a_tile_is_returned),
        ("not-supported", an_order_of_loops),
        ("value-not-allowed", an_edge_to_a_later_one),
        ("loop-break", a_kernel_inside_a_loop),
    ],
)
def test_a_bad_call_raises_what_a_kernel_raises(code, mistake):
    with pytest.raises(NeuronError) as caught:
        mistake(Builder("trn2"))
    assert caught.value.code == code, caught.value
    assert caught.value.location == PLACE


def test_a_target_has_so_many_cores():
    with pytest.raises(NeuronError, match="core-mismatch"):
        Builder("trn1", cores=2)


def test_a_result_of_one_of_several_cores():
    b = Builder("trn2", cores=2)
    with pytest.raises(NeuronError, match="core-mismatch"):
        b.result(b.tensor((4, 8), "float32", Memory.private_hbm))


def test_a_location_holds_for_all_cores():
    b = Builder("trn2", cores=2)
    with b.at(PLACE):
        tile = b.on(1).tensor((4, 8), "float32")
        clear = b.on(1).emit("memset", dst=tile, value=0.0)
    assert tile.storage.location == clear.location == PLACE
    assert b.on(1).emit("memset", dst=tile, value=1.0).location is None
    with pytest.raises(NeuronError, match="core-mismatch"):
        b.on(2)
