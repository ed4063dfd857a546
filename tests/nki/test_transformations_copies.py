"""Copies out of PSUM that engines share: results keep their bits."""

from __future__ import annotations

import numpy as np
from transformed_kernels import SPEC, stored, tile

import nki
import nki.isa as nisa
import nki.language as nl
from isa.enums import Engine, Memory
from nki.ir.nodes import operations


def test_copies_are_shared():
    @nki.jit
    def products(a):
        x, parts = nl.load(a), []
        for _ in range(6):
            bank, copy = tile((96, 96), buffer=nl.psum), tile((96, 96))
            nisa.nc_matmul(dst=bank, stationary=x, moving=x)
            nisa.tensor_copy(dst=copy, src=bank)
            parts.append(copy)
        for part in parts[1:]:
            nisa.tensor_tensor(dst=parts[0], data1=parts[0], data2=part, op=nl.add)
        return stored(parts[0])

    traced = products.with_transformations("balance-copies").trace(SPEC, target="trn2")
    engines = {
        op.values[-1]
        for op in operations(traced.bodies[0])
        if op.row.name == "tensor_copy" and op.values[1].storage.memory is Memory.psum
    }
    assert engines >= {Engine.scalar}
    a = np.random.default_rng(0).standard_normal((64, 96), dtype=np.float32)
    shared = products.with_transformations("balance-copies").on("trn2")(a)
    np.testing.assert_array_equal(shared, products.on("trn2")(a))
