"""What instructions wait for that take data from earlier ones of their engine."""

from __future__ import annotations

import pytest
from timing_programs import ACT, DVE, Builder, hbm, sbuf, spans

from isa.alu import ALU
from isa.machine import elementwise, vector
from simulator.timing import simulate


def test_dependent_chain_on_the_scalar_engine():
    """Performance guide, figure 16: 189 ns between dependent one-element instructions on trn1."""
    b = Builder("trn1")
    for _ in range(10):
        b.add(elementwise.TensorCopy, ACT, sbuf(1), sbuf(1))
    starts = [start for start, *_ in spans(simulate(b.program()), "scalar")]
    assert starts[-1] - starts[-2] == pytest.approx(189, rel=0.03)


def test_long_dependent_instructions_stream_into_each_other():
    """Mamba tutorial (MB003): dependent 2 N instructions leave the vector engine 98.7 % busy."""
    b = Builder("trn1")
    for _ in range(160):
        b.add(elementwise.TensorTensor, DVE, sbuf(512), sbuf(512), sbuf(512), ALU["multiply"])
    timeline = simulate(b.program())
    assert timeline.cores[0].engines[DVE].busy / timeline.total_ns > 0.98
    assert timeline.total_ns == pytest.approx(148_990, rel=0.03)


def test_what_needs_the_last_element_waits_for_completion():
    b = Builder()
    total = sbuf(1, offset=8192)
    b.add(vector.TensorReduce, DVE, total, sbuf(2048), ALU["add"], 1, False)
    b.add(elementwise.TensorScalar, DVE, sbuf(2048), sbuf(2048), ALU["multiply"], total, False,
          None, None, False)  # fmt: skip
    (_, free, *_), (start, *_) = spans(simulate(b.program()), "vector")
    assert start - free == pytest.approx(155, rel=0.05)


def test_a_transfer_waits_for_what_its_engine_computes():
    b = Builder(queues=(("stores", ACT),))
    b.add(elementwise.TensorCopy, ACT, sbuf(512), sbuf(512, offset=8192))
    b.load(hbm(128, 512, 512), sbuf(512), engine=ACT)
    timeline = simulate(b.program())
    ((_, free, *_),) = spans(timeline, "scalar")
    ((issue, *_),) = spans(timeline, "scalar sequencer")
    assert issue == pytest.approx(free + 190, rel=0.01)
