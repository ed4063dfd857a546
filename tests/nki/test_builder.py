"""Tile IR made by calls: it runs, and bad calls raise what kernels raise."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.alu import ALU
from isa.enums import Memory
from isa.program import SourceLocation
from nki.ir.builder import Builder
from nki.ir.text import parse_kernel, print_kernel
from nki.ir.verify import verify
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
