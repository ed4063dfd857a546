"""Changes that a profile advises: what they keep, and whether they take as long as is predicted."""

from __future__ import annotations

import numpy as np
import planted_kernels as planted
import pytest

import nki
import nki.isa as nisa
import nki.language as nl
from nki.advice.advise import CHANGES, retimed
from nki.advice.changed import line_of
from nki.ir.nodes import operations
from nki.pipeline import compile_kernel
from nki.verification import verify_program
from simulator.timing import simulate


@pytest.mark.parametrize("case", planted.PLANTED, ids=lambda case: case.name)
def test_changed_kernels_compile_to_programs_without_races(case):
    """What is timed is a program that could run: also the changes that no advice comes of."""
    kernel = case.before.trace(*case.shapes, target="trn2")
    lines = {line for body in kernel.bodies for op in operations(body) if (line := line_of(op))}
    for change in CHANGES:
        for line in lines:
            for changed in change(kernel, line):
                verify_program(compile_kernel(changed.kernel))


def test_a_prediction_is_the_time_of_the_changed_program():
    case = next(case for case in planted.PLANTED if case.name == "hoistable")
    kernel = case.before.trace(*case.shapes, target="trn2")
    program = compile_kernel(kernel)
    timeline = simulate(program)
    found = list(retimed(kernel, {}, program, timeline))
    assert len(found) > 2
    for one in found:
        assert one.total_ns == simulate(compile_kernel(one.changed.kernel)).total_ns


def test_changes_keep_what_they_say_they_keep():
    """A hoisted load and buffers of their own leave results as they are."""
    for name in ("hoistable", "buffer", "late"):
        case = next(case for case in planted.PLANTED if case.name == name)
        rows = min(spec.shape[0] for spec in case.shapes)
        shapes = [(max(rows, 256), 64) if s.shape[0] > 128 else (128, 64) for s in case.shapes]
        arrays = [np.random.default_rng(0).normal(size=s).astype(np.float32) for s in shapes]
        kernel = case.before.trace(*arrays, target="trn2")
        expected = nki.compile(case.before, *arrays, target="trn2")(*arrays)
        lines = {line_of(op) for op in operations(kernel.bodies[0])} - {None}
        changed = [c for line in lines for f in CHANGES for c in f(kernel, line) if c.same_results]
        kept = [c for c in changed if c.bottleneck in ("hoistable load", "one buffer", "late load")]
        assert kept
        for one in kept:
            result = nki.compiled.CompiledKernel(compile_kernel(one.kernel))(*arrays)
            np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_changes_are_found_at_lines_that_use_registers(change) -> None:
    def at_register(rows):
        register = nisa.register_alloc()
        nisa.register_load(register, rows)
        return register

    @nki.jit(target="trn2")
    def kernel(a, rows):
        out = nl.ndarray((16, 64), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((16, 64), dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=a[nl.ds(at_register(nl.load(rows)), 16), :])
        nl.store(out, nl.exp(tile))
        return out

    traced = kernel.trace(nki.TensorSpec((128, 64), nl.float32), nki.TensorSpec((1, 1), nl.int32))
    ops = [op for body in traced.bodies for op in operations(body)]
    assert any(op.row.register_writes for op in ops)
    for line in {line_of(op): None for op in ops if line_of(op) is not None}:
        for changed in change(traced, line):
            verify_program(compile_kernel(changed.kernel))
