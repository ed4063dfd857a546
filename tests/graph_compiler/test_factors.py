"""Products whose operands are scaled, as PyTorch states attention's, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import compile, parse_text
from graph_compiler.lower.assemble import assemble
from isa.target import TARGETS
from nki.ir.nodes import operations

SCORES = """HloModule scores
ENTRY e {
 p = bf16[40,3,64] parameter(0)
 q = bf16[72,3,64] parameter(1)
 c = f32[] constant(0.35355339)
 k = f32[] constant(FACTOR)
 ps = bf16[3,40,64] transpose(p), dimensions={1,0,2}
 pw = f32[3,40,64] convert(ps)
 cs = f32[3,40,64] broadcast(c), dimensions={}
 left = f32[3,40,64] multiply(pw, cs)
 qw = f32[72,3,64] convert(q)
 qs = f32[3,64,72] transpose(qw), dimensions={1,2,0}
 ks = f32[3,64,72] broadcast(k), dimensions={}
 right = f32[3,64,72] multiply(ks, qs)
 d = f32[3,40,72] dot(left, right), lhs_batch_dims={0}, rhs_batch_dims={0},
   lhs_contracting_dims={2}, rhs_contracting_dims={1}
 ROOT r = f32[3,40,72] add(d, d)
}"""


def multiplied(text: str) -> set[str]:
    """The types that the tensor engine multiplies."""
    kernel = assemble(parse_text(text), TARGETS["trn2"])
    (body,) = kernel.bodies
    return {op.values[1].dtype for op in operations(body) if op.row.name == "nc_matmul"}


@pytest.mark.parametrize("factor", [0.35355339, -3.0])
def test_factors_of_numbers_of_few_bits_go_behind_the_product(factor: float) -> None:
    random = np.random.default_rng(1)
    p, q = (
        random.standard_normal((n, 3, 64)).astype(np.float32).astype(ml_dtypes.bfloat16)
        for n in (40, 72)
    )
    text = SCORES.replace("FACTOR", str(factor))
    assert multiplied(text) == {"bfloat16"}
    (found,) = compile(parse_text(text), "trn2")(p, q)
    left, right = p.astype(np.float64), q.astype(np.float64)
    scale = np.float64(np.float32(0.35355339)) * np.float32(factor)
    expected = 2 * np.einsum("nhd,mhd->hnm", left, right) * scale
    terms = 2 * np.einsum("nhd,mhd->hnm", abs(left), abs(right)) * abs(scale)
    assert (np.abs(found - expected) <= 66 * 2.0**-24 * terms).all()


def test_factors_that_could_make_sums_overflow_stay() -> None:
    assert multiplied(SCORES.replace("FACTOR", "1e-30")) == {"float32"}


def test_factors_of_numbers_of_many_bits_stay() -> None:
    text = SCORES.replace("FACTOR", "2").replace("q = bf16", "q = f32")
    assert multiplied(text) == {"float32"}
