"""Semaphores of loops: waits for the iteration before, and what is told on the way in and out."""

import re
from itertools import count

import pytest
from test_body import KERNEL
from test_repeat import stacked
from tile_ir.parser import parse_kernel

from isa.errors import NeuronError
from nki.passes.lower import Expand, Schedule, Synchronise, lower
from nki.passes.place.allocate import Allocate
from nki.passes.synchronise import synchronise
from nki.pipeline import optimise
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


def without_one_wait(kernel):
    """Programs of a kernel, each without one of its waits."""
    apply = synchronise.Walk.apply
    for missing in count():
        gone = []
        before = [0]

        def fewer(walk, missing=missing, gone=gone, before=before):
            at = missing - before[0]
            before[0] += len(walk.edges)
            if 0 <= at < len(walk.edges):
                gone.append(walk.edges.pop(at))
            return apply(walk)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(synchronise.Walk, "apply", fewer)
            program = lower(kernel)
        if not gone:
            return
        yield program


KERNELS = {
    "nested loops": placed,
    "repeats in a loop": lambda: optimise(stacked(3, True, 4)),
    "repeats one by one": lambda: optimise(stacked(3, False, 4)),
}


@pytest.mark.parametrize(("name", "waits"), [*zip(KERNELS, (4, 12, 16))])
def test_no_wait_is_needless(name, waits):
    """The proof fails as soon as any one is taken away, in a loop, and where a region that is
    placed several times meets itself."""
    kernel = KERNELS[name]()
    verify_program(lower(kernel))
    found = 0
    for program in without_one_wait(kernel):
        found += 1
        with pytest.raises(NeuronError) as error:
            verify_program(program)
        assert error.value.code == "race"
    assert found >= waits


def test_what_only_the_loop_uses_tells_nobody_outside():
    text = KERNEL.replace("src=%t1[128, 16 : 16, 1 @ 0] dge_mode=none engine=gpsimd", "").replace(
        "  dma_copy dst=%t3[128, 16 : 16, 1 @ 0] \n", ""
    )
    assert "behind: vector +S3" not in signals(text)
    assert "behind: sync -S0" in signals(text)
