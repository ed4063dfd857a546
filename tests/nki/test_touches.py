"""What steps and loops do to tensors."""

import numpy as np
from test_body import KERNEL
from tile_ir.parser import parse_kernel

from isa.target import TARGETS
from nki.passes.analysis.body import Body
from nki.passes.analysis.channels import Channels, CoreFacts
from nki.passes.analysis.steps import ENGINE_INDEX, expand
from nki.passes.analysis.touches import Touched


def touched(text=KERNEL):
    expanded = expand(parse_kernel(text).bodies[0], TARGETS["trn2"])
    body = Body(expanded.level)
    owners = [ENGINE_INDEX[owner] for owner in expanded.owners]
    return Touched(body, CoreFacts(owners, body.written, None, Channels(64)))


def shown(made, rows):
    """(item, tensor, what it does), in the order of what is done."""
    result = []
    for at in np.argsort(rows.moment, kind="stable").tolist():
        kind = "begins" if rows.begin[at] else "writes" if rows.write[at] else "reads"
        sure = "" if rows.sure[at] else "perhaps "
        result.append((int(rows.item[at]), made.tensors[rows.tensor[at]].name, sure + kind))
    return result


def test_steps_read_and_write_what_something_writes():
    """What nobody writes, `a`, has no order. That a tensor begins is left out where the same step
    fills it."""
    made = touched()
    assert shown(made, made.steps) == [
        (0, "x", "writes"),
        (1, "y", "writes"),
        (2, "y", "writes"),
        (2, "y", "reads"),
        (3, "x", "writes"),
        (3, "y", "reads"),
        (4, "out", "writes"),
        (4, "x", "reads"),
    ]
    assert shown(made, made.begins) == [(0, "x", "begins"), (1, "y", "begins")]


def test_loops_are_seen_from_outside_by_what_they_do():
    """~1 is the outer loop, ~2 the inner one, which runs for certain."""
    made = touched()
    assert shown(made, made.loops) == [
        (~1, "y", "writes"),
        (~1, "y", "begins"),
        (~1, "y", "writes"),
        (~1, "y", "reads"),
        (~1, "x", "writes"),
        (~1, "y", "reads"),
        (~2, "x", "writes"),
        (~2, "y", "reads"),
    ]
    assert made.iterates.tolist() == [False, True, True]
    assert made.runs.tolist() == [True, True, True]


def test_a_loop_that_may_not_run_does_nothing_for_certain():
    made = touched(KERNEL.replace("0 to 4 step", "0 to 0 step"))
    assert made.runs.tolist() == [True, False, True]
    assert not made.loops.sure[made.loops.item == ~1].any()


def test_copies_of_a_body_touch_from_outside_one_box_together():
    """Each of four copies writes 128 of the 512 rows that an iteration writes: 2,048 by all."""
    text = """kernel made_up target=trn2
tensor %t0 "x": sbuf float32[128, 16] core=0
tensor %t1 "out": shared_hbm float32[2048, 16] role=output
result %t1
core 0:
  register %r0 "i" from 0 to 3
  storage_begin dst=%t0[128, 16 : 16, 1 @ 0]
  memset dst=%t0[128, 16 : 16, 1 @ 0] value=1.0 engine=vector
  loop %r0 = 0 to 4 step 1:
"""
    for copy in range(4):
        text += (
            f"    dma_copy dst=%t1[128, 16 : 16, 1 @ 8192*%r0 + {2048 * copy}] "
            "src=%t0[128, 16 : 16, 1 @ 0] dge_mode=hwdge engine=sync\n"
        )
    made = touched(text)
    assert shown(made, made.loops) == [(~1, "out", "writes"), (~1, "x", "reads")]
    (number,) = made.loops.box[made.loops.write]
    assert made.boxes[number].spans == ((0, 2048), (0, 64))
