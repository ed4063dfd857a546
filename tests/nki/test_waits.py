"""Semaphores of loops: waits for the iteration before, and what is told on the way in and out."""

import re

import pytest
from test_body import KERNEL

from nki.ir.text import parse_kernel
from nki.passes.lower import Expand, Schedule, Synchronise, lower
from nki.passes.place.allocate import Allocate
from nki.verification import verify_program


def placed(text=KERNEL):
    return Allocate().run(parse_kernel(text))


def signals(text=KERNEL):
    """Of each line what it does, without operands."""
    listed = str(Synchronise().run(Schedule().run(Expand().run(placed(text)))))
    return [re.sub(r"(?<! on) [a-z]\w*=.*", "", line).rstrip() for line in listed.splitlines()]


NESTED = """\
       StorageBegin
vector Memset
ahead: vector +S0
for %r0 in 0 to 4 step 1 on scalar, vector, sync
         StorageBegin
  sync   DmaCopy -S0 +S1
  scalar Activate -S1 +S2
  ahead: vector -S2
  for %r1 in 0 to 2 step 1 on vector
    vector TensorScalar
  behind: vector +S0
behind: sync -S0
behind: vector +S3
gpsimd DmaCopy -S3
"""


def test_a_buffer_is_loaded_again_when_the_inner_loop_has_read_it():
    """The vector engine gives S0 ahead of the loop, for the first load, and the queue's engine
    takes behind it what the last iteration gave."""
    assert signals() == NESTED.splitlines()


def test_the_program_is_proven_and_no_wait_is_needless(monkeypatch):
    """The proof fails as soon as any one wait is taken away."""
    from nki.passes.synchronise import synchronise

    verify_program(lower(placed()))
    apply = synchronise.Walk.apply
    found = []
    for level in range(3):
        for missing in range(3):
            edges = []

            def fewer(walk, level=level, missing=missing, edges=edges):
                if walk.layer.number == level and missing < len(walk.edges):
                    edges.append(walk.edges.pop(missing))
                return apply(walk)

            monkeypatch.setattr(synchronise.Walk, "apply", fewer)
            program = lower(placed())
            if edges:
                found.append(edges[0])
                with pytest.raises(Exception, match=r"race|order|semaphore"):
                    verify_program(program)
    assert len(found) == 4


def test_what_only_the_loop_uses_tells_nobody_outside():
    text = KERNEL.replace("src=%t1[128, 16 : 16, 1 @ 0] dge_mode=none engine=gpsimd", "").replace(
        "  dma_copy dst=%t3[128, 16 : 16, 1 @ 0] \n", ""
    )
    assert "behind: vector +S3" not in signals(text)
    assert "behind: sync -S0" in signals(text)
