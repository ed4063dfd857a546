"""64-bit integers whose values fit 32 bits."""

from __future__ import annotations

import numpy as np
import pytest
from on_device import TARGET, assert_as_evaluated

from graph_compiler import compile, parse_text
from graph_compiler.lower.rewrites.ranges import narrow
from graph_compiler.schedule.simplify import Simplifier
from isa.errors import NeuronError

_COUNTED = """HloModule counted
ENTRY e {
 i = u64[40,50] iota(), iota_dimension=0
 w = u64[] constant(FACTOR)
 ws = u64[40,50] broadcast(w), dimensions={}
 p = u64[40,50] multiply(i, ws)
 j = u64[40,50] iota(), iota_dimension=1
 k = u64[40,50] add(p, j)
 s = u64[] constant(32)
 ss = u64[40,50] broadcast(s), dimensions={}
 h = u64[40,50] shift-right-logical(k, ss)
 low = u32[40,50] convert(k)
 high = u32[40,50] convert(h)
 a = u32[40,50] parameter(0)
 x = u32[40,50] add(a, low)
 y = u32[40,50] add(a, high)
 ROOT t = (u32[40,50], u32[40,50]) tuple(x, y)
}"""


def test_64_bit_integers_that_fit_are_narrowed() -> None:
    a = np.arange(2000, dtype=np.uint32).reshape(40, 50)
    assert_as_evaluated(_COUNTED.replace("FACTOR", "50"), a)


def test_64_bit_integers_that_do_not_fit_are_refused() -> None:
    text = _COUNTED.replace("iota(), iota_dimension=0", "parameter(1)")
    with pytest.raises(NeuronError) as caught:
        compile(parse_text(text.replace("FACTOR", "50")), TARGET)
    assert caught.value.code == "hlo-not-compiled"


def test_ranges_leave_results_and_wide_values_alone() -> None:
    module = parse_text(
        "HloModule m\nENTRY e {\n x = s64[4] iota(), iota_dimension=0\n"
        " ROOT y = s64[4] add(x, x)\n}"
    )
    block = Simplifier(module).block(module.entry)
    narrow(block)
    assert [result.type for result in block.results] == ["s64"]
