"""Ports of memories that engines share."""

from __future__ import annotations

import pytest
from timing_programs import ACT, DVE, POOL, Builder, psum, sbuf, spans

from isa.alu import ALU
from isa.machine import elementwise, gpsimd
from simulator.timing import simulate


@pytest.mark.parametrize(("target", "excluded"), [("trn1", True), ("trn2", False)])
def test_vector_and_gpsimd_in_sbuf(target, excluded):
    """Gen2: one of them at a time. Later both, unless VectorE runs in a fast mode."""
    b = Builder(target)
    for index in range(20):
        b.add(elementwise.TensorTensor, DVE, sbuf(512), sbuf(512, offset=4096),
              sbuf(512, offset=8192), ALU["add"])  # fmt: skip
        b.add(gpsimd.Iota, POOL, sbuf(512, "int32", offset=16384 + index), ((1, 512),), 0, 1)
    timeline = simulate(b.program())
    overlap = _overlap(spans(timeline, "vector"), spans(timeline, "gpsimd"))
    assert (overlap == 0) == excluded


def test_fast_vector_modes_share_the_bus_with_gpsimd():
    b = Builder("trn2")
    for _ in range(20):
        b.add(elementwise.TensorCopy, DVE, sbuf(512, "bfloat16"), sbuf(512, "bfloat16"))
        b.add(gpsimd.Iota, POOL, sbuf(512, "int32", offset=16384), ((1, 512),), 0, 1)
    timeline = simulate(b.program())
    assert _overlap(spans(timeline, "vector"), spans(timeline, "gpsimd")) == 0


@pytest.mark.parametrize(("target", "bank", "excluded"), [
    ("trn1", 1, True), ("trn2", 0, True), ("trn2", 1, False)
])  # fmt: skip
def test_vector_and_scalar_in_psum(target, bank, excluded):
    """Gen2: one of them at a time. Later both, unless they meet in one bank."""
    b = Builder(target)
    for _ in range(20):
        b.add(elementwise.TensorCopy, DVE, sbuf(512), psum(512))
        b.add(elementwise.TensorCopy, ACT, sbuf(512, offset=8192), psum(512, offset=2048 * bank))
    timeline = simulate(b.program())
    assert (_overlap(spans(timeline, "vector"), spans(timeline, "scalar")) == 0) == excluded


def _overlap(a, b):
    return sum(max(0.0, min(s[1], t[1]) - max(s[0], t[0])) for s in a for t in b)
