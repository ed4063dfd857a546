"""The body of a core in columns."""

import numpy as np
from tile_ir.parser import parse_kernel

from isa.columns import Integers
from isa.target import TARGETS
from nki.passes.analysis.body import Accesses, Body
from nki.passes.analysis.steps import ENGINES, expand

KERNEL = """kernel made_up target=trn2
tensor %t0 "a": shared_hbm float32[512, 16] role=input
tensor %t1 "x": sbuf float32[128, 16] core=0
tensor %t2 "y": sbuf float32[128, 16] core=0
tensor %t3 "out": shared_hbm float32[512, 16] role=output
input %t0 "a"
result %t3
core 0:
  register %r0 "i" from 0 to 3
  register %r1 "j" from 0 to 1
  storage_begin dst=%t1[128, 16 : 16, 1 @ 0]
  memset dst=%t1[128, 16 : 16, 1 @ 0] value=1.0 engine=vector
  loop %r0 = 0 to 4 step 1:
    storage_begin dst=%t2[128, 16 : 16, 1 @ 0]
    dma_copy dst=%t2[128, 16 : 16, 1 @ 0] src=%t0[128, 16 : 16, 1 @ 2048*%r0] \
dge_mode=hwdge engine=sync
    activation dst=%t2[128, 16 : 16, 1 @ 0] op=exp data=%t2[128, 16 : 16, 1 @ 0]
    loop %r1 = 0 to 2 step 1:
      tensor_scalar dst=%t1[128, 8 : 16, 1 @ 8*%r1] data=%t2[128, 8 : 16, 1 @ 0] \
op0=add operand0=2.0 engine=vector
  dma_copy dst=%t3[128, 16 : 16, 1 @ 0] src=%t1[128, 16 : 16, 1 @ 0] \
dge_mode=none engine=gpsimd
"""


def body() -> Body:
    kernel = parse_kernel(KERNEL)
    return Body(expand(kernel.bodies[0], TARGETS["trn2"]).level)


def names(body: Body, numbers: Integers) -> list[str]:
    return [body.steps[number].op.row.name for number in numbers.tolist()]


def test_levels_say_from_where_to_where_loops_go():
    layers = [(one.parent, one.depth, one.first, one.end, one.inner) for one in body().layers]
    assert layers == [(0, 0, 0, 5, [1]), (0, 1, 1, 4, [2]), (1, 2, 3, 4, [])]


def test_steps_stand_in_the_authors_order():
    made = body()
    assert [step.op.row.name for step in made.steps] == [
        "memset",
        "dma_copy",
        "activation",
        "tensor_scalar",
        "dma_copy",
    ]
    assert made.layer.tolist() == [0, 1, 1, 2, 0]
    assert made.operations.tolist() == [0, 1, 2, 3, 4, 5]
    assert made.begins.tolist() == [1, 1, 0, 0, 0]
    assert (made.queue >= 0).tolist() == [False, True, False, False, True]
    assert (made.stream >= ENGINES).tolist() == (made.queue >= 0).tolist()


def test_accesses_are_listed_step_by_step():
    made = body()
    assert made.starts.tolist() == [0, 1, 3, 5, 7, 9]
    tensors = [tensor.name for tensor in made.accesses.tensors]
    used = [tensors[at] for at in made.accesses.tensor[made.accesses.which].tolist()]
    assert used == ["x", "y", "a", "y", "y", "x", "y", "out", "x", *("x", "y")]
    assert made.writes.tolist() == [True, True, False, True, False, True, False, True, False]
    assert {tensor.name for tensor in made.written} == {"x", "y", "out"}


def test_stretches_end_where_loops_begin_and_end():
    assert body().stretches.tolist() == [0, 1, 3, 4, 5]


def test_steps_that_mention_registers_are_known():
    made = body()
    assert names(made, made.mentioning) == ["dma_copy", "tensor_scalar"]
    assert {register.number for register in made.variables} == {0, 1}


def test_views_that_differ_in_their_place_only_are_of_one_form():
    kernel = parse_kernel(KERNEL)
    views = [value for op in kernel.bodies[0] if hasattr(op, "row") for value in op.values[:1]]
    accesses = Accesses([*views, views[0]], np.arange(len(views) + 1))
    assert accesses.which.tolist()[-1] == 0
    assert accesses.plain.all()
    assert len(accesses.views) == 1
