"""Softmax between two products: what it divides by, and the factor of the scores, move to where
they cost least. NumPy in float64 says what results must be."""

from __future__ import annotations

from collections import Counter
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined

from graph_compiler import compile, parse_text
from graph_compiler.lower.assemble import assemble
from isa.target import TARGETS
from nki.ir.nodes import operations
from nki.ir.views.tensor import NkiTensor

Array = np.ndarray[Any, Any]

GRAPH = """HloModule attention
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 q = TYPE[HEADS,ROWS,DEPTH] parameter(0)
 k = TYPE[HEADS,KEYS,DEPTH] parameter(1)
 v = TYPE[HEADS,KEYS,DEPTH] parameter(2)
 mask = pred[ROWS,KEYS] parameter(3)
 masks = pred[HEADS,ROWS,KEYS] broadcast(mask), dimensions={1,2}
 least = f32[] constant(-inf)
 zero = f32[] constant(0)
 factor = f32[] constant(FACTOR)
 factors = f32[HEADS,ROWS,KEYS] broadcast(factor), dimensions={}
 low = f32[] constant(LOW)
 lows = f32[HEADS,ROWS,KEYS] broadcast(low), dimensions={}
 d = f32[HEADS,ROWS,KEYS] dot(q, k), lhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={2}
 x = f32[HEADS,ROWS,KEYS] multiply(d, factors)
 c = f32[HEADS,ROWS,KEYS] select(masks, x, lows)
 m = f32[HEADS,ROWS] reduce(c, least), dimensions={2}, to_apply=larger
 ms = f32[HEADS,ROWS,KEYS] broadcast(m), dimensions={0,1}
 a = f32[HEADS,ROWS,KEYS] subtract(c, ms)
 e = f32[HEADS,ROWS,KEYS] exponential(a)
 t = f32[HEADS,ROWS] reduce(e, zero), dimensions={2}, to_apply=plus
 ts = f32[HEADS,ROWS,KEYS] broadcast(t), dimensions={0,1}
 p = f32[HEADS,ROWS,KEYS] divide(e, ts)
 w = TYPE[HEADS,ROWS,KEYS] convert(p)
 ROOT r = TYPE[HEADS,ROWS,DEPTH] dot(w, v), lhs_batch_dims={0}, lhs_contracting_dims={2}, \
rhs_batch_dims={0}, rhs_contracting_dims={1}
}"""

HEADS, ROWS, KEYS, DEPTH = 8, 130, 200, 32


def graph(type: str, factor: float, low: str, keys: int = KEYS) -> str:
    sizes = {"HEADS": HEADS, "ROWS": ROWS, "KEYS": keys, "DEPTH": DEPTH}
    text = GRAPH.replace("TYPE", type).replace("FACTOR", str(factor)).replace("LOW", low)
    for name, size in sizes.items():
        text = text.replace(name, str(size))
    return text


def attended(q: Array, k: Array, v: Array, mask: Array, factor: float, low: float) -> Array:
    wide = [one.astype(np.float64) for one in (q, k, v)]
    with np.errstate(invalid="ignore"):
        scores = np.where(mask, wide[0] @ wide[1].swapaxes(1, 2) * factor, low)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True) @ wide[2]


def inputs(type: Any, keys: int = KEYS) -> list[Array]:
    random = np.random.default_rng(7)
    shapes = (HEADS, ROWS, DEPTH), (HEADS, keys, DEPTH), (HEADS, keys, DEPTH)
    found = [random.standard_normal(shape).astype(type) for shape in shapes]
    mask = random.random((ROWS, keys)) < 0.7
    mask[2] = True
    return [*found, mask]


@combined({"factor": [0.125, 0.2, 3.0, -0.125], "low": ["-1e30", "-inf", "-1e4"]})
def test_rows_agree_with_float64(low: str, factor: float) -> None:
    """One row is masked everywhere: its weights are alike, or no numbers where none is finite."""
    given = inputs(np.float32)
    given[3][5] = False
    (found,) = compile(parse_text(graph("f32", factor, low)), "trn2")(*given)
    wanted = attended(*given, factor, float(low))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, 2e-5, 1e-5)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_half_precision_rounds_weights_to_as_many_bits(target: str) -> None:
    """A weight is rounded by half a unit of 2**-8 at most, whatever all of a row are divided by."""
    given = inputs(ml_dtypes.bfloat16)
    (found,) = compile(parse_text(graph("bf16", 0.125, "-1e30")), target)(*given)
    wanted = attended(*given, 0.125, -1e30)
    size = attended(*given[:2], np.abs(given[2]), given[3], 0.125, -1e30)
    assert (np.abs(found.astype(np.float64) - wanted) <= 2.0**-8 * (size + np.abs(wanted))).all()


def test_only_the_exponential_and_what_is_chosen_go_along_the_keys() -> None:
    """Scores are scaled by the scalar engine, and results divided: of the operations that have a
    tile of rows and keys in and out, two are left."""
    kernel = assemble(parse_text(graph("bf16", 0.125, "-1e30")), TARGETS["trn2"])
    wide: Counter[str] = Counter()
    for body in kernel.bodies:
        for op in operations(body):
            views = [value for value in op.values if isinstance(value, NkiTensor)][:2]
            computes = op.row.name != "dma_copy"
            if computes and [view.shape for view in views] == [(128, KEYS)] * 2:
                wide[op.row.name] += 1
    assert wide == {"select_reduce": HEADS, "activation": HEADS}


@pytest.mark.parametrize("keys", [200, 600])
def test_scores_are_compared_while_they_leave_psum(keys: int) -> None:
    """Without a mask the vector engine finds the largest scores of a row where it takes them out of
    PSUM, block by block. What is no number stays in its row."""
    q, k, v, mask = inputs(np.float32, keys)
    q[1, 3, 0] = np.nan
    mask[:] = True
    text = graph("f32", 0.125, "-inf", keys).replace("select(masks, x, lows)", "copy(x)")
    compiled = compile(parse_text(text), "trn2")
    streams = compiled.kernel.program.cores[0].streams.values()
    names = Counter(one.row.name for stream in streams for one in stream)
    assert names["TensorScalarReduce"] == 2 * HEADS * -(-keys // 512)
    (found,) = compiled(q, k, v, mask)
    wanted = attended(q, k, v, mask, 0.125, -np.inf)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, 2e-5, 1e-5)


def test_exponentials_that_are_read_elsewhere_are_kept() -> None:
    """As gradients of queries alone need them."""
    text = graph("f32", 0.125, "-1e30").replace("ROOT r", "r").removesuffix("\n}")
    text += f"""
 n = f32[{HEADS},{KEYS}] reduce(e, zero), dimensions={{1}}, to_apply=plus
 ROOT both = (f32[{HEADS},{ROWS},{DEPTH}], f32[{HEADS},{KEYS}]) tuple(r, n)
}}"""
    given = inputs(np.float32)
    found, sums = compile(parse_text(text), "trn2")(*given)
    np.testing.assert_allclose(found, attended(*given, 0.125, -1e30), 2e-5, 1e-5)
    q, k, _, mask = given
    scores = np.where(mask, q.astype(np.float64) @ k.swapaxes(1, 2) * 0.125, -1e30)
    wanted = np.exp(scores - scores.max(-1, keepdims=True)).sum(1)
    np.testing.assert_allclose(sums, wanted, 2e-5, 1e-5)


def as_torch_states_it() -> str:
    """The weights of bf16 scores stay fp32, rows that are masked wholly are zeros, and the results
    are rounded in another form."""
    text = graph("bf16", 0.125, "-inf")
    before, last = text.rsplit(" w = ", 1)
    last = last.partition("\n")[2].replace("ROOT r = bf16", "o = f32").replace("dot(w, v)", "D")
    size = f"{HEADS},{ROWS},{KEYS}"
    return (
        before.replace(
            "ENTRY",
            "some { a = pred[] parameter(0)\n b = pred[] parameter(1)\n"
            " ROOT s = pred[] or(a, b) }\nENTRY",
        )
        + f""" no = pred[] constant(false)
 nothing = f32[{size}] broadcast(zero), dimensions={{}}
 seen = pred[{size}] compare(c, lows), direction=NE
 any = pred[{HEADS},{ROWS}] reduce(seen, no), dimensions={{2}}, to_apply=some
 anys = pred[{size}] broadcast(any), dimensions={{0,1}}
 w = f32[{size}] select(anys, p, nothing)
 f = f32[1,{size}] reshape(w)
 g = f32[{size}] reshape(f)
 wide = f32[{HEADS},{KEYS},{DEPTH}] convert(v)
"""
        + last.replace("D,", "dot(g, wide),").rstrip("}\n")
        + f"""}}
 n = f32[1,{HEADS},{ROWS},{DEPTH}] reshape(o)
 ROOT r = bf16[1,{HEADS},{ROWS},{DEPTH}] convert(n)
}}"""
    )


def test_fp32_weights_of_which_results_are_rounded_are_not_divided() -> None:
    kernel = assemble(parse_text(as_torch_states_it()), TARGETS["trn2"])
    wide: Counter[str] = Counter()
    for body in kernel.bodies:
        for op in operations(body):
            views = [value for value in op.values if isinstance(value, NkiTensor)][:2]
            if op.row.name != "dma_copy" and [v.shape for v in views] == [(128, KEYS)] * 2:
                wide[op.row.name] += 1
    assert wide == {"select_reduce": HEADS, "activation": HEADS}


def test_fp32_weights_agree_with_float64() -> None:
    given = inputs(ml_dtypes.bfloat16)
    given[3][5] = False
    (found,) = compile(parse_text(as_torch_states_it()), "trn2")(*given)
    wanted = np.nan_to_num(attended(*given, 0.125, -np.inf))
    assert not found[0, :, 5].any()
    assert (np.abs(found[0].astype(np.float64) - wanted) <= 2.0**-8 * np.abs(wanted) + 2e-6).all()
