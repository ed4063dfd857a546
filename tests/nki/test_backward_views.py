"""Views that walk backwards, which tile IR has: what they touch is ordered like any other."""

import numpy as np
import pytest

from isa.binding import bind
from nki import reference
from nki.ir.text import parse_kernel
from nki.pipeline import compile_kernel
from simulator.checks.happens_before import check
from simulator.execute import run

HBM = """kernel flip target=trn2
tensor %t0 "a": shared_hbm float32[4] role=input
tensor %t1 "b": shared_hbm float32[4] role=output
tensor %t2 "c": private_hbm float32[4] role=local
input %t0 "a"
result %t1
core 0:
  dma_copy dst=%t2[4 : -1 @ 3] src=%t0[4 : 1 @ 0] engine=gpsimd
  dma_copy dst=%t1[2 : 1 @ 0] src=%t2[2 : 1 @ 0] engine=sync
  dma_copy dst=%t1[2 : 1 @ 2] src=%t2[2 : 1 @ 2] engine=sync
"""
SBUF = """kernel flip target=trn2
tensor %t0 "a": shared_hbm float32[4] role=input
tensor %t1 "b": shared_hbm float32[4] role=output
tensor %t2 "c": sbuf float32[1,4] role=local
input %t0 "a"
result %t1
core 0:
  storage_begin dst=%t2[1,4 : 4,1 @ 0]
  dma_copy dst=%t2[1,4 : 4,-1 @ 3] src=%t0[1,4 : 4,1 @ 0] engine=gpsimd
  dma_copy dst=%t1[1,2 : 4,1 @ 0] src=%t2[1,2 : 4,1 @ 0] engine=sync
  dma_copy dst=%t1[1,2 : 4,1 @ 2] src=%t2[1,2 : 4,1 @ 2] engine=sync
"""


@pytest.mark.parametrize("text", [HBM, SBUF], ids=["hbm", "sbuf"])
def test_what_a_backward_view_writes_is_waited_for(text):
    kernel = parse_kernel(text)
    a = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(reference.run(kernel, [a]).outputs[0], a[::-1])
    program = bind(compile_kernel(kernel), {})
    assert check(program) == []
    np.testing.assert_array_equal(run(program, [a]).outputs[0], a[::-1])
