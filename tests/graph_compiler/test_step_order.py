"""Products, and the nests that read them, near one another. NumPy says what results are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graph_compiler import GraphOptions, compile, parse_text
from graph_compiler.host_kernels.loops import LoopNest
from graph_compiler.lower.control.flow import Barrier, Counted
from graph_compiler.lower.control.step_order import nests_at_products
from graph_compiler.lower.products.product import Contraction
from graph_compiler.schedule.steps import KernelCall
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


COMPUTED = """HloModule computed
ENTRY e {
 b = f32[2,7,11] parameter(0)
 c = f32[2,7,11] parameter(1)
 d = f32[2,7,7,3] parameter(2)
 x = f32[2,7,3,8] parameter(3)
 y = f32[2,3,7,8] parameter(4)
 s = f32[2,7,7] dot(b, c), lhs_batch_dims={0}, rhs_batch_dims={0},
  lhs_contracting_dims={2}, rhs_contracting_dims={2}
 ss = f32[2,7,7,3] broadcast(s), dimensions={0,1,2}
 e = f32[2,7,7,3] multiply(ss, d)
 z = f32[2,3,7,8] dot(e, x), lhs_batch_dims={0,3}, rhs_batch_dims={0,2},
  lhs_contracting_dims={1}, rhs_contracting_dims={1}
 ROOT r = f32[2,3,7,8] add(z, y)
}"""


def test_a_product_whose_operand_is_computed_stays_behind_what_it_reads() -> None:
    """The first product's result is an operand of the second one's operand; the second one went
    first, as a step reads its result and none the first one's."""
    random = np.random.default_rng(0)
    shapes = [(2, 7, 11), (2, 7, 11), (2, 7, 7, 3), (2, 7, 3, 8), (2, 3, 7, 8)]
    arguments = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    b, c, d, x, y = (one.astype(np.float64) for one in arguments)
    wanted = np.einsum("bjn,bin,bjih,bjhd->bhid", b, c, d, x) + y
    (found,) = compile(parse_text(COMPUTED), "trn2")(*arguments)
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-4)


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


LOOP = """HloModule loop
body { s = (s32[], f32[256,96]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 b = f32[256,96] get-tuple-element(s), index=1
 one = s32[] constant(1)
 n = s32[] add(i, one)
 c = f32[256,96] sine(b)
 ROOT r = (s32[], f32[256,96]) tuple(n, c)
}
below { s = (s32[], f32[256,96]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(5)
 ROOT r = pred[] compare(i, n), direction=LT
}
ENTRY e {
 x = f32[256,64] parameter(0)
 w = f32[64,96] parameter(1)
 b = f32[256,96] parameter(2)
 zero = s32[] constant(0)
 y = f32[256,96] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 s = (s32[], f32[256,96]) tuple(zero, b)
 f = (s32[], f32[256,96]) while(s), condition=below, body=body
 c = f32[256,96] get-tuple-element(f), index=1
 ROOT r = f32[256,96] add(y, c)
}"""


@pytest.mark.parametrize("cores", [1, 2])
def test_nests_stay_behind_loops_that_make_what_they_read(cores: int) -> None:
    random = np.random.default_rng(cores)
    x, w, b = (
        random.standard_normal(shape).astype(np.float32)
        for shape in ((256, 64), (64, 96), (256, 96))
    )
    (found,) = compile(parse_text(LOOP), "trn2", GraphOptions(logical_cores=cores))(x, w, b)
    c = b.astype(np.float64)
    for _ in range(5):
        c = np.sin(c)
    np.testing.assert_allclose(found, x.astype(np.float64) @ w + c, 1e-5, 1e-4)


def nest(reads: str, writes: str) -> KernelCall:
    """An element-wise step that reads one buffer and writes one."""
    one: Any = ("f32", (1,))
    kernel = LoopNest(output=one, leaves=(one,), counts=(8,), reduced=(False,), steps=(), fold=None)
    buffers: Any = [reads], [writes]
    return KernelCall(kernel, [], *buffers)


@pytest.mark.parametrize(
    ("between", "moves"), [(nest("a", "b"), True), (Barrier(), False), (Counted(Any, []), False)]
)
def test_nests_pass_no_barrier_and_no_loop(between: Any, moves: bool) -> None:
    """These say of themselves that they read and write nothing: what they order, or hold, does."""
    operands: Any = SimpleNamespace(
        left=SimpleNamespace(buffer="x"), right=SimpleNamespace(buffer="w")
    )
    target: Any = SimpleNamespace(buffer="y")
    product, reader = Contraction(operands, target, 1, ()), nest("y", "z")
    device: Any = SimpleNamespace(uses={"y": 1}, root=lambda one: one, sources=lambda some: some)
    found = nests_at_products(device, [product, between, reader])
    assert found == ([product, reader, between] if moves else [product, between, reader])
