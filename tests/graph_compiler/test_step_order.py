"""Products, and the nests that read them, near one another. NumPy says what results are."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import compile, parse_text
from isa.enums import Memory
from nki.ir.nodes import operations

BIASES = """HloModule biases
ENTRY e {
 x = bf16[ROWS,64] parameter(0)
 w = bf16[64,96] parameter(1)
 v = bf16[64,96] parameter(2)
 b = f32[96] parameter(3)
 bs = f32[ROWS,96] broadcast(b), dimensions={1}
 y = f32[ROWS,96] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 z = f32[ROWS,96] dot(x, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 p = f32[ROWS,96] add(y, bs)
 q = f32[ROWS,96] multiply(z, bs)
 ROOT r = (f32[ROWS,96], f32[ROWS,96]) tuple(p, q)
}"""


@pytest.mark.parametrize("rows", [128, 300])
def test_nests_find_products_before_others_in_psum(rows: int) -> None:
    """Two products, then two nests: none of them reads a copy of a product's result."""
    stages: dict[str, Any] = {}
    compiled = compile(
        parse_text(BIASES.replace("ROWS", str(rows))),
        "trn1",
        observe=lambda stage, made: stages.setdefault(stage, made),
    )
    ops = [op for body in stages["trace"].bodies for op in operations(body)]
    nests = [op for op in ops if op.row.name == "tensor_tensor"]
    memories = [{op.fields[name].storage.memory for name in ("data1", "data2")} for op in nests]
    assert memories and all(Memory.psum in both for both in memories)
    random = np.random.default_rng(rows)
    x, w, v = (
        random.standard_normal(shape).astype(ml_dtypes.bfloat16)
        for shape in ((rows, 64), (64, 96), (64, 96))
    )
    b = random.standard_normal(96).astype(np.float32)
    p, q = compiled(x, w, v, b)
    y, z = (x.astype(np.float64) @ one.astype(np.float64) for one in (w, v))
    np.testing.assert_allclose(p, y + b, 1e-5, 1e-4)
    np.testing.assert_allclose(q, z * b, 1e-5, 1e-4)
