"""Tile IR made by calls: it runs, and is what the same kernel is traced to."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tile_ir.parser import parse_kernel
from tile_ir.verify import verify

import nki
import nki.isa as nisa
import nki.language as nl
from isa.alu import ACTIVATIONS, ALU
from isa.enums import Memory
from isa.errors import NeuronError
from isa.program import SourceLocation
from nki.ir.builder.builder import Builder
from nki.ir.nodes import operations, walk
from nki.ir.text import print_kernel
from nki.ir.views.indexing import ds
from nki.kernel import compile_traced, order_traced

RNG = np.random.default_rng(7)

PLACE = SourceLocation("graph.hlo", 12, 2, 9, "fusion.3", "  %add = f32[4,8] add(%a, %b)")


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def outputs(kernel, *arrays):
    """What a kernel returns, which its program on the device and the reference agree on."""
    verify(kernel)
    verify(parse_kernel(print_kernel(kernel)))
    device = compile_traced(kernel)(*[array.copy() for array in arrays])
    ordered = order_traced(kernel)(*[array.copy() for array in arrays])
    np.testing.assert_array_equal(device, ordered)
    return device


def hbm(b, name, *shape):
    return b.tensor(shape, "float32", Memory.shared_hbm, name)


def products(b, a, w, out, tiles):
    """out = a.T @ w, summed over `tiles` blocks of 128 rows."""
    total = b.tensor(out.shape, "float32", Memory.psum, "total")
    with b.loop(0, tiles) as k:
        rows = ds(k * 128, 128)
        left = b.tensor((128, a.shape[1]), "float32", name="left")
        right = b.tensor((128, w.shape[1]), "float32", name="right")
        b.emit("dma_copy", dst=left, src=a[rows, :])
        b.emit("dma_copy", dst=right, src=w[rows, :])
        b.emit("nc_matmul", dst=total, stationary=left, moving=right)
    result = b.tensor(out.shape, "float32", name="result")
    b.emit("tensor_copy", dst=result, src=total)
    b.emit("dma_copy", dst=out, src=result)


@pytest.mark.parametrize("rolled", [1, 3])
def test_an_accumulation_over_a_loop_that_is_built_once(rolled):
    b = Builder("trn2")
    a, w = (
        b.parameter((rolled * 128, 64), "float32", "a"),
        b.parameter((rolled * 128, 32), "float32", "w"),
    )
    out = hbm(b, "out", 64, 32)
    products(b, a, w, out, rolled)
    b.result(out)
    left, right = normal(rolled * 128, 64), normal(rolled * 128, 32)
    np.testing.assert_allclose(
        outputs(b.kernel(), left, right), left.T @ right, rtol=1e-4, atol=1e-4
    )


def text(kernel):
    """The text of a kernel without its lines, which are others in Python and in a builder."""
    lines = print_kernel(kernel).splitlines()
    kept = [line for line in lines if not line.startswith("location ")]
    return [re.sub(r" loc=[0-9]+", "", line).replace('"_"', '"i"') for line in kept]


@nki.jit
def nested(a, w, count):
    """Sums over two loops, into a tile of both and into one that begins in the outer loop."""
    out = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.shared_hbm, name="out")
    left = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf, name="left")
    right = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.sbuf, name="right")
    held = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf, name="held")
    nisa.dma_copy(dst=held, src=count)
    stop = nisa.register_alloc()
    nisa.register_load(stop, held)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=w)
    total = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.psum, name="total")
    result = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.sbuf, name="result")
    for _ in nl.dynamic_range(2, stop, 3):
        part = nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.psum, name="part")
        nisa.nc_matmul(dst=total, stationary=left, moving=right)
        for _ in nl.dynamic_range(4):
            nisa.nc_matmul(dst=part, stationary=left, moving=right)
            nisa.nc_matmul(dst=total, stationary=left, moving=right)
        nisa.tensor_copy(dst=result, src=part)
    nisa.tensor_tensor(dst=result, data1=result, data2=total, op=nl.add)
    nisa.dma_copy(dst=out, src=result)
    return out


def built_nested():
    b = Builder("trn2", name="nested")
    a, w = b.parameter((128, 64), "float32", "a"), b.parameter((128, 32), "float32", "w")
    count = b.parameter((1, 1), "int32", "count")
    out = hbm(b, "out", 64, 32)
    left = b.tensor((128, 64), "float32", name="left")
    right = b.tensor((128, 32), "float32", name="right")
    held = b.tensor((1, 1), "int32", name="held")
    b.emit("dma_copy", dst=held, src=count)
    stop = b.register(held, "stop")
    b.emit("dma_copy", dst=left, src=a)
    b.emit("dma_copy", dst=right, src=w)
    total = b.tensor((64, 32), "float32", Memory.psum, "total")
    result = b.tensor((64, 32), "float32", name="result")
    with b.loop(2, stop, 3):
        part = b.tensor((64, 32), "float32", Memory.psum, "part")
        b.emit("nc_matmul", dst=total, stationary=left, moving=right)
        with b.loop(0, 4):
            b.emit("nc_matmul", dst=part, stationary=left, moving=right)
            b.emit("nc_matmul", dst=total, stationary=left, moving=right)
        b.emit("tensor_copy", dst=result, src=part)
    b.emit("tensor_tensor", dst=result, data1=result, data2=total, op=ALU["add"])
    b.emit("dma_copy", dst=out, src=result)
    b.result(out)
    return b.kernel()


def test_a_body_that_is_built_once_gets_the_flags_of_one_that_is_traced_twice():
    specs = [nki.TensorSpec(shape, nl.float32) for shape in ((128, 64), (128, 32))]
    count = nki.TensorSpec((1, 1), nl.int32)
    built = built_nested()
    assert text(built) == text(nested.trace(*specs, count, target="trn2"))
    assert len([line for line in text(built) if "accumulate=[" in line]) == 2
    a, w = normal(128, 64), normal(128, 32)
    product = a.T @ w
    for stop in (3, 9):
        found = outputs(built, a, w, np.array([[stop]], np.int32))
        iterations = len(range(2, stop, 3))
        np.testing.assert_allclose(found, (4 + 5 * iterations) * product, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("value", [0, 1, -5])
def test_a_condition_runs_its_block_once_or_not_at_all(value):
    b = Builder("trn2")
    a, flag = b.parameter((4, 8), "float32", "a"), b.parameter((1, 1), "int32", "flag")
    out = hbm(b, "out", 4, 8)
    tile, held = b.tensor((4, 8), "float32"), b.tensor((1, 1), "int32")
    b.emit("dma_copy", dst=tile, src=a)
    b.emit("dma_copy", dst=held, src=flag)
    register = b.register(held)
    with b.when(register):
        b.emit("activation", dst=tile, data=tile, op=ACTIVATIONS["square"])
    with b.when(register):
        b.emit("tensor_scalar", dst=tile, data=tile, op0=ALU["add"], operand0=1.0)
    b.emit("dma_copy", dst=out, src=tile)
    b.result(out)
    data = normal(4, 8)
    expected = data**2 + 1 if value else data
    found = outputs(b.kernel(), data, np.array([[value]], np.int32))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_while_runs_as_long_as_its_register_is_not_zero():
    b = Builder("trn2")
    a, times = b.parameter((4, 8), "float32", "a"), b.parameter((1, 1), "int32", "times")
    tile, left = b.tensor((4, 8), "float32"), b.tensor((1, 1), "int32")
    b.emit("dma_copy", dst=tile, src=a)
    b.emit("dma_copy", dst=left, src=times)
    register = b.register(left, "left")
    with b.while_(register):
        b.emit("tensor_tensor", dst=tile, data1=tile, data2=tile, op=ALU["add"])
        b.emit("tensor_scalar", dst=left, data=left, op0=ALU["subtract"], operand0=1)
        b.emit("register_load", dst=register, src=left)
    b.emit("dma_copy", dst=a, src=tile)
    kernel = b.kernel()
    assert [tensor.role for tensor in kernel.parameters] == ["inout", "input"]
    data = normal(4, 8)
    given = data.copy()
    compile_traced(kernel)(given, np.array([[3]], np.int32))
    np.testing.assert_array_equal(given, data * 8)


def test_a_pattern_may_begin_where_a_loop_says():
    b = Builder("trn2")
    a, out = b.parameter((6, 4), "float32", "a"), hbm(b, "out", 6, 4)
    with b.loop(0, 6) as row:
        tile = b.tensor((1, 4), "float32", name="tile")
        b.emit("dma_copy", dst=tile, src=a.ap([[4, 1], [1, 4]], row * -4 + 20))
        b.emit("dma_copy", dst=out.ap([[4, 1], [1, 4]], row * 4), src=tile)
    b.result(out)
    rows = normal(6, 4)
    np.testing.assert_array_equal(outputs(b.kernel(), rows), rows[::-1])


def test_tiles_of_a_size_over_a_launch_symbol():
    rows = nki.symbol("M", max=512)
    b = Builder("trn2")
    a = b.parameter((rows, 16), "float32", "a")
    out = b.tensor((rows, 16), "float32", Memory.shared_hbm, "out")
    general = 0
    for first in b.tiles(0, rows, 128, PLACE):
        general += 1
        with b.at(PLACE):
            part = slice(first, first + 128)
            tile = nl.load(a[part, :])
            nl.store(out[part, :], nl.multiply(tile, tile))
    b.result(out)
    assert general == 2  # and one that is left over
    kernel = b.kernel()
    assert all(op.location == PLACE for op in walk(kernel.bodies[0]))
    compiled = compile_traced(kernel)
    for size in (1, 128, 300):
        data = normal(size, 16)
        np.testing.assert_array_equal(compiled(data), data * data)


def test_cores_of_one_kernel():
    b = Builder("trn2", cores=2)
    a = b.parameter((8, 16), "float32", "a")
    out = hbm(b, "out", 8, 16)
    for core in range(2):
        own = b.on(core)
        rows = slice(core * 4, core * 4 + 4)
        tile = own.tensor((4, 16), "float32")
        own.emit("dma_copy", dst=tile, src=a[rows, :])
        own.emit("tensor_scalar", dst=tile, data=tile, op0=ALU["add"], operand0=core + 1)
        own.emit("dma_copy", dst=out[rows, :], src=tile)
    b.result(out)
    data = normal(8, 16)
    np.testing.assert_array_equal(
        outputs(b.kernel(), data), data + np.repeat([[1], [2]], 4, axis=0).astype(np.float32)
    )


def test_constants_and_order():
    table = np.arange(32, dtype=np.float32).reshape(4, 8)
    b = Builder("trn2")
    out = hbm(b, "out", 4, 8)
    tile = b.tensor((4, 8), "float32")
    with b.in_order():
        first = b.emit("dma_copy", dst=tile, src=b.constant(table))
        second = b.emit("tensor_scalar", dst=tile, data=tile, op0=ALU["add"], operand0=1.0)
    assert second.after == (first,)
    b.emit("dma_copy", dst=out, src=tile)
    b.result(out)
    np.testing.assert_array_equal(outputs(b.kernel()), table + 1)


PIECES = st.one_of(
    st.tuples(st.just("sum"), st.integers(0, 2)),
    st.tuples(st.just("clear"), st.integers(0, 2)),
    st.tuples(st.just("tile"), st.just(0)),
)

PROGRAMS = st.recursive(
    st.lists(PIECES, min_size=1, max_size=4),
    lambda inner: st.lists(
        st.one_of(PIECES, st.tuples(st.just("loop"), inner)), min_size=1, max_size=4
    ),
    max_leaves=8,
)


def play(pieces, tiles, parts, loop):
    """Walk a program of matmuls into tiles, other writes, new tiles and loops. `parts` is how to
    make a tile, sum into one and clear one; `tiles` are those that there are."""
    tiles = list(tiles)
    make, add, clear = parts
    for kind, argument in pieces:
        if kind == "tile":
            tiles.append(make())
        elif kind == "sum":
            add(tiles[argument % len(tiles)])
        elif kind == "clear":
            clear(tiles[argument % len(tiles)])
        else:
            for _ in loop():
                play(argument, tiles, parts, loop)


def flags_or_code(make):
    """The flags of a kernel's matmuls, or the code of the error that making it ends with."""
    try:
        kernel = make()
    except NeuronError as error:
        return error.code
    verify(kernel)
    ops = [op for op in operations(kernel.bodies[0]) if op.row.name == "nc_matmul"]
    position = ops[0].row.field_names.index("accumulate") if ops else 0
    return [str(op.values[position]) for op in ops]


@settings(max_examples=60, deadline=None)
@given(program=PROGRAMS)
def test_flags_are_those_of_bodies_that_are_traced_twice(program):
    @nki.jit
    def kernel():
        left = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.sbuf)
        right = nl.ndarray((128, 32), dtype=nl.float32, buffer=nl.sbuf)
        parts = (
            lambda: nl.ndarray((64, 32), dtype=nl.float32, buffer=nl.psum),
            lambda tile: nisa.nc_matmul(dst=tile, stationary=left, moving=right),
            lambda tile: nisa.memset(dst=tile, value=0.0),
        )
        play(program, [parts[0]()], parts, lambda: nl.dynamic_range(3))

    def built():
        b = Builder("trn2")
        left, right = b.tensor((128, 64), "float32"), b.tensor((128, 32), "float32")
        parts = (
            lambda: b.tensor((64, 32), "float32", Memory.psum),
            lambda tile: b.emit("nc_matmul", dst=tile, stationary=left, moving=right),
            lambda tile: b.emit("memset", dst=tile, value=0.0),
        )

        def loop():
            with b.loop(0, 3):
                yield

        play(program, [parts[0]()], parts, loop)
        return b.kernel()

    assert flags_or_code(built) == flags_or_code(lambda: kernel.trace(target="trn2"))
