"""Copies out of PSUM, and conversions: who makes them."""

from __future__ import annotations

from collections import Counter

import ml_dtypes
import numpy as np
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from isa.alu import ACTIVATIONS, ALU
from isa.enums import Engine, Memory
from isa.target import TARGETS
from nki.ir.builder.builder import Builder
from nki.ir.nodes import TracedKernel, operations
from nki.kernel import compile_traced
from nki.transformations.copies import BalanceCopies


def products(target: str, dtype: str, functions: int = 0) -> TracedKernel:
    """Eight copies out of PSUM, and so many functions for the scalar engine."""
    builder = Builder(TARGETS[target], name="products")
    x = builder.parameter((128, 512), "float32", "x")
    out = builder.tensor((128, 512), dtype, Memory.shared_hbm, "out")
    with builder.at(None):
        tile = builder.tensor((128, 512), "float32", Memory.sbuf, "tile")
        builder.emit("dma_copy", dst=tile, src=x)
        weights = builder.tensor((128, 128), "float32", Memory.sbuf, "weights")
        builder.emit("tensor_copy", dst=weights, src=tile[:, :128])
        for _ in range(functions):
            made = builder.tensor((128, 512), "float32", Memory.sbuf, "made")
            builder.emit("tensor_scalar", dst=made, data=tile, op0=ALU["add"], operand0=1.0)
        for _ in range(8):
            bank = builder.tensor((128, 512), "float32", Memory.psum, "bank")
            builder.emit("nc_matmul", dst=bank, stationary=weights, moving=tile)
            done = builder.tensor((128, 512), dtype, Memory.sbuf, "done")
            view = bank if dtype == "float32" else bank.view(dtype)[:, :512]
            builder.emit("tensor_copy", dst=done, src=view)
            builder.emit("dma_copy", dst=out, src=done)
    builder.result(out)
    return builder.kernel()


def copiers(kernel: TracedKernel) -> Counter[Engine]:
    """How many copies out of PSUM each engine makes."""
    return Counter(
        op.values[-1]
        for body in kernel.bodies
        for op in operations(body)
        if op.row.name == "tensor_copy" and op.values[1].storage.memory is Memory.psum
    )


def test_two_engines_share_them() -> None:
    found = copiers(BalanceCopies().run(products("trn2", "float32")))
    assert found[Engine.vector] + found[Engine.scalar] == 8
    assert min(found.values()) >= 3


def test_what_else_an_engine_does_counts() -> None:
    """With six passes over as many elements by the vector engine most copies go elsewhere."""
    found = copiers(BalanceCopies().run(products("trn2", "float32", 6)))
    assert found[Engine.scalar] >= 6


def test_before_gen3_the_scalar_engine_copies_by_a_function() -> None:
    kernel = BalanceCopies().run(products("trn1", "float32"))
    ops = [op for body in kernel.bodies for op in operations(body)]
    functions = [op for op in ops if op.row.name == "activation"]
    assert 3 <= len(functions) <= 5
    assert all(op.values[1] is ACTIVATIONS["copy"] for op in functions)
    assert copiers(kernel)[Engine.vector] == 8 - len(functions)


def test_bits_stay_with_the_engine_that_keeps_them_all() -> None:
    """Before gen3 the scalar engine copies by a function, in fp32."""
    kernel = products("trn1", "uint32")
    assert BalanceCopies().run(kernel) is kernel


@pytest.mark.parametrize("dtype", ["uint16", "uint32"])
def test_two_engines_share_copies_of_bits(dtype: str) -> None:
    found = copiers(BalanceCopies().run(products("trn2", dtype)))
    assert min(found[Engine.vector], found[Engine.scalar]) >= 3


@pytest.mark.parametrize("engine", [Engine.vector, Engine.scalar, Engine.gpsimd])
@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "uint16"])
def test_every_engine_keeps_all_bits_from_gen3_on(engine: Engine, dtype: str) -> None:
    """SDK nki/guides/architecture/trainium2_arch.rst: copies without a cast to fp32."""

    @nki.jit(target="trn2")
    def kernel(a):
        tile, copy = nl.load(a), nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copy, src=tile, engine=engine)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, copy)
        return out

    whole = np.dtype(f"uint{8 * np.dtype(dtype).itemsize}")
    bits = np.random.default_rng(1).integers(0, np.iinfo(whole).max, (4, 64), whole, endpoint=True)
    for mode in ("eager", "reference", "device"):
        found = nki.simulate(kernel, mode=mode)(bits.view(dtype))
        np.testing.assert_array_equal(found.view(whole), bits)


def conversions(dtype: str, made: str) -> TracedKernel:
    """Eight conversions in SBUF."""
    builder = Builder(TARGETS["trn2"], name="conversions")
    x = builder.parameter((128, 4096), dtype, "x")
    out = builder.tensor((128, 4096), made, Memory.shared_hbm, "out")
    with builder.at(None):
        for start in range(0, 4096, 512):
            tile = builder.tensor((128, 512), dtype, Memory.sbuf, "tile")
            builder.emit("dma_copy", dst=tile, src=x[:, start : start + 512])
            done = builder.tensor((128, 512), made, Memory.sbuf, "done")
            builder.emit("tensor_copy", dst=done, src=tile)
            builder.emit("dma_copy", dst=out[:, start : start + 512], src=done)
    builder.result(out)
    return builder.kernel()


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float32"])
def test_engines_share_what_makes_floats_of_numbers_that_fp32_has(dtype: str) -> None:
    kernel = conversions(dtype, "bfloat16")
    balanced = BalanceCopies().run(kernel)
    engines = Counter(
        op.values[-1]
        for body in balanced.bodies
        for op in operations(body)
        if op.row.name == "tensor_copy"
    )
    assert min(engines[Engine.vector], engines[Engine.scalar]) >= 3
    random = np.random.default_rng(1)
    x = random.integers(0, 127, (128, 4096)).astype(dtype)
    if dtype == "float32":
        x = random.standard_normal((128, 4096), np.float32)
    wanted = x.astype(np.float32).astype(ml_dtypes.bfloat16)
    found = compile_traced(balanced)(x)
    np.testing.assert_array_equal(found.view(np.uint16), wanted.view(np.uint16))


@pytest.mark.parametrize(("dtype", "made"), [("int32", "float32"), ("float32", "int8")])
def test_other_conversions_stay(dtype: str, made: str) -> None:
    kernel = conversions(dtype, made)
    assert BalanceCopies().run(kernel) is kernel
