"""Sums with a product take it last: what reads PSUM makes the result, and NumPy says which."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.lower.assemble import assemble
from isa.enums import Memory
from isa.target import TARGETS
from nki.ir.nodes import operations

ROWS, DEPTH, COLUMNS = 128, 256, 640

TEXT = """HloModule m
ENTRY e {
 x = f32[128,640] parameter(0)
 a = f32[128,256] parameter(1)
 w = f32[256,640] parameter(2)
 c = f32[640] parameter(3)
 t = f32[128,256] tanh(a)
 d = f32[128,640] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 cs = f32[128,640] broadcast(c), dimensions={1}
 s = f32[128,640] add(FIRST)
 y = f32[128,640] add(SECOND)
 ROOT r = f32[128,640] tanh(y)
}"""


def graph(first: str, second: str) -> Any:
    return parse_text(TEXT.replace("FIRST", first).replace("SECOND", second))


def reads_of_psum(module: Any) -> list[str]:
    """What is done with results of products: the other operands' types of sums, and other rows."""
    (body,) = assemble(module, TARGETS["trn2"]).bodies
    found = []
    for op in operations(body):
        memories = [view.storage.memory for view in op.read]
        if op.row.name == "tensor_tensor" and Memory.psum in memories:
            sums = {v.storage for v in op.written}
            readers = [o for o in operations(body) if sums & {v.storage for v in o.read}]
            found += [reader.row.name for reader in readers]
    return found


@pytest.mark.parametrize("first", ["d, cs", "cs, d"])
@pytest.mark.parametrize("second", ["s, x", "x, s"])
def test_a_product_is_added_last(first: str, second: str) -> None:
    module = graph(first, second)
    readers = reads_of_psum(module)
    assert readers and set(readers) == {"activation"}
    random = np.random.default_rng(6)
    shapes = (ROWS, COLUMNS), (ROWS, DEPTH), (DEPTH, COLUMNS), (COLUMNS,)
    x, a, w, c = (random.standard_normal(shape).astype(np.float32) / 8 for shape in shapes)
    (found,) = compile(module, "trn2")(x, a, w, c)
    wide = np.tanh(a.astype(float)) @ w + c + x
    terms = np.abs(np.tanh(a.astype(float))) @ np.abs(w) + np.abs(c) + np.abs(x)
    assert (np.abs(found - np.tanh(wide)) <= 2.0**-24 * (20 * terms + 8)).all()
