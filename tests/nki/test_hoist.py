"""Work that leaves loops: results keep their bits."""

from __future__ import annotations

import numpy as np
from transformed_kernels import SPEC, stored, tile

import nki
import nki.isa as nisa
import nki.language as nl
from nki.ir.nodes import Loop, operations


@nki.jit
def looped(a):
    total = nl.zeros(a.shape, dtype=nl.float32)
    for _ in nl.dynamic_range(4):
        part, double = tile(), tile()
        nisa.dma_copy(dst=part, src=a)
        nisa.tensor_tensor(dst=double, data1=part, data2=part, op=nl.add)
        nisa.tensor_tensor(dst=total, data1=total, data2=double, op=nl.add)
    return stored(total)


def test_what_a_loop_repeats_comes_before_it():
    traced = looped.with_transformations("hoist").trace(SPEC, target="trn2")
    (loop,) = (node for node in traced.bodies[0] if isinstance(node, Loop))
    assert [op.row.name for op in operations(loop.body)] == ["tensor_tensor"]
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    wanted = looped.on("trn2")(a)
    np.testing.assert_array_equal(looped.with_transformations("hoist").on("trn2")(a), wanted)
    np.testing.assert_allclose(wanted, 8 * a, rtol=1e-6)


def test_a_named_tile_alone_leaves_a_loop():
    traced = looped.with_transformations("hoist:part").trace(SPEC, target="trn2")
    (loop,) = (node for node in traced.bodies[0] if isinstance(node, Loop))
    assert sum(op.row.name == "tensor_tensor" for op in operations(loop.body)) == 2
