"""Floating-point operations of programs: two for each product of a matrix multiplication."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
from isa.program import Program
from simulator.timing.flops import flops


def total(program: Program) -> float:
    """Of all instructions of a program without loops."""
    streams = (stream for core in program.cores for stream in core.streams.values())
    return sum(flops(instruction) for stream in streams for instruction in stream)


def product(left, right):  # type: ignore[no-untyped-def]
    stationary, moving = nl.load(left), nl.load(right)
    sums = nl.ndarray((left.shape[1], right.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=sums, stationary=stationary, moving=moving)
    out = nl.ndarray(sums.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(sums))
    return out


def transposed(a):  # type: ignore[no-untyped-def]
    out = nl.ndarray(a.shape[::-1], dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape[::-1], dtype=a.dtype, buffer=nl.psum)
    nisa.nc_transpose(dst=tile, data=nl.load(a), engine=nisa.engine.tensor)
    nl.store(out, nl.copy(tile))
    return out


def copied(a):  # type: ignore[no-untyped-def]
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a))
    return out


def test_a_product_has_two_for_each_of_its_terms() -> None:
    specs = nki.TensorSpec((96, 64), nl.bfloat16), nki.TensorSpec((96, 500), nl.bfloat16)
    program = nki.compile(product, *specs, target="trn2").program
    assert total(program) == 2 * 96 * 64 * 500


def test_a_transpose_counts_as_the_product_that_the_array_makes() -> None:
    """[128, 32] times an identity matrix of 128 rows."""
    program = nki.compile(transposed, nki.TensorSpec((128, 32), nl.bfloat16), target="trn2").program
    assert total(program) == 2 * 128 * 32 * 128


def test_copies_compute_nothing() -> None:
    program = nki.compile(copied, nki.TensorSpec((128, 32), nl.float32), target="trn2").program
    assert total(program) == 0
