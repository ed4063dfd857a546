"""Rows that are the same for all partitions: biases and factors of norms."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from combinations import combined

import graph_compiler
from graph_compiler import compile, freeze, parse_text
from graph_compiler.lower.assemble import assemble
from graph_compiler.lower.limits import PlanLimits
from graph_compiler.timing import static_timeline
from isa.target import TARGETS
from nki.ir.nodes import operations

SHIFTED = """HloModule shifted
most { a = TYPE[] parameter(0)
 b = TYPE[] parameter(1)
 ROOT m = TYPE[] maximum(a, b)
}
ENTRY e {
 x = TYPE[128,768] parameter(0)
 b = TYPE[768] parameter(1)
 w = TYPE[768] parameter(2)
 least = TYPE[] constant(-inf)
 bs = TYPE[128,768] broadcast(b), dimensions={1}
 ws = TYPE[128,768] broadcast(w), dimensions={1}
 y = TYPE[128,768] add(x, bs)
 m = TYPE[128] reduce(y, least), dimensions={1}, to_apply=most
 ms = TYPE[128,768] broadcast(m), dimensions={0}
 d = TYPE[128,768] subtract(y, ms)
 ROOT r = TYPE[128,768] multiply(d, ws)
}"""

DTYPES = {"f32": np.dtype(np.float32), "bf16": np.dtype(ml_dtypes.bfloat16)}


@combined(
    {
        "target": ["trn1", "trn2"],
        "type": DTYPES,
    }
)
def test_rows_that_the_tensor_engine_spreads_are_exact(
    type: str, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(7)
    x, b, w = (
        random.standard_normal(shape).astype(DTYPES[type]) for shape in ((128, 768), (768,), (768,))
    )
    b[0] = -0.0
    w[:4] = np.inf, -np.inf, np.nan, -0.0
    w[-2:] = ml_dtypes.finfo(DTYPES[type]).max, ml_dtypes.finfo(DTYPES[type]).tiny
    module = parse_text(SHIFTED.replace("TYPE", type))
    expected = compile(module, target)(x, b, w)[0]
    monkeypatch.setattr(
        "graph_compiler.lower.limits.plans", lambda cores=1: (PlanLimits(loaded=255),)
    )
    compiled = compile(module, target)
    np.testing.assert_array_equal(
        compiled(x, b, w)[0].astype(np.float32), expected.astype(np.float32)
    )


def test_such_rows_are_loaded_once() -> None:
    module = parse_text(SHIFTED.replace("TYPE", "f32"))
    kernel = assemble(module, TARGETS["trn2"], limits=PlanLimits(loaded=255))
    products = [op for body in getattr(kernel, "kernel", kernel).bodies for op in operations(body)]
    assert sum(op.row.name == "nc_matmul" for op in products) == 4  # two rows, two banks each


LAYER = """ bX = f32[128,256] broadcast(cX), dimensions={1}
 sX = f32[128,256] add(IN, bX)
 eX = f32[128,256] tanh(sX)
 mX = f32[128,256] multiply(eX, bX)
 nX = f32[128,256] negate(mX)
 oX = f32[128,256] add(nX, eX)
"""


def layers(count: int) -> Any:
    body, last = "", "x"
    for number in range(count):
        body += f" c{number} = f32[256] parameter({number + 1})\n"
        body += LAYER.replace("X", str(number)).replace("IN", last)
        last = f"o{number}"
    head = "HloModule l\nENTRY e {\n x = f32[128,256] parameter(0)\n"
    return parse_text(f"{head}{body} ROOT r = f32[128,256] negate({last})\n}}")


def test_constants_of_layers_keep_what_they_repeat_once() -> None:
    random = np.random.default_rng(8)
    x = random.standard_normal((128, 256)).astype(np.float32)
    biases = [random.standard_normal(256).astype(np.float32) for _ in range(8)]
    frozen = freeze(layers(8), {number + 1: bias for number, bias in enumerate(biases)})
    compiled = compile(frozen, "trn2")
    (found,) = compiled(x)
    (expected,) = graph_compiler.evaluate(frozen, x)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    sizes = [len(t.data) for t in compiled.kernel.program.tensors if t.data is not None]
    assert max(sizes) <= 8 * 256 * 4
    assert static_timeline(compiled.kernel.program) is not None


PERCEPTRON = """HloModule perceptron
ENTRY e {
 x = TYPE[ROWS,256] parameter(0)
 w = TYPE[256,HIDDEN] parameter(1)
 b = TYPE[HIDDEN] parameter(2)
 v = TYPE[HIDDEN,80] parameter(3)
 d = TYPE[ROWS,HIDDEN] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 bs = TYPE[ROWS,HIDDEN] broadcast(b), dimensions={1}
 s = TYPE[ROWS,HIDDEN] add(d, bs)
 h = TYPE[ROWS,HIDDEN] tanh(s)
 ROOT r = TYPE[ROWS,80] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}"""


@combined(
    {
        "type": DTYPES,
        "rows, hidden": [(128, 640), (77, 384), (200, 384), (100, 390)],
    }
)
def test_products_of_products(type: str, rows: int, hidden: int) -> None:
    """Of one tile of rows the first product is made turned where the second one's depth has tiles
    of one size, as multiples of 128 have: only x is turned, two blocks of 128 elements, which
    are two halves each in fp32."""
    random = np.random.default_rng(3)
    x, w, b, v = (
        random.standard_normal(shape).astype(DTYPES[type])
        for shape in ((rows, 256), (256, hidden), (hidden,), (hidden, 80))
    )
    w, v = (array * DTYPES[type].type(0.06) for array in (w, v))
    text = PERCEPTRON.replace("TYPE", type).replace("ROWS", str(rows))
    module = parse_text(text.replace("HIDDEN", str(hidden)))
    wide = [array.astype(np.float64) for array in (x, w, b, v)]
    expected = np.tanh(wide[0] @ wide[1] + wide[2]) @ wide[3]
    unit = 2.0**-22 if type == "f32" else 2.0**-8
    compiled = compile(module, "trn2")
    (found,) = compiled(x, w, b, v)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=unit, atol=16 * unit)
    names = [
        op.row.name for body in assemble(module, TARGETS["trn2"]).bodies for op in operations(body)
    ]
    turned = {"f32": 4, "bf16": 2}[type]
    assert rows > 128 or hidden % 128 or names.count("nc_transpose") == turned


SOFTMAX = """HloModule softmax
most { a = bf16[] parameter(0)
 b = bf16[] parameter(1)
 ROOT m = bf16[] maximum(a, b)
}
plus { a = bf16[] parameter(0)
 b = bf16[] parameter(1)
 ROOT m = bf16[] add(a, b)
}
ENTRY e {
 x = bf16[4200,356] parameter(0)
 least = bf16[] constant(-inf)
 zero = bf16[] constant(0)
 m = bf16[4200] reduce(x, least), dimensions={1}, to_apply=most
 ms = bf16[4200,356] broadcast(m), dimensions={0}
 d = bf16[4200,356] subtract(x, ms)
 y = bf16[4200,356] exponential(d)
 s = bf16[4200] reduce(y, zero), dimensions={1}, to_apply=plus
 ss = bf16[4200,356] broadcast(s), dimensions={0}
 ROOT r = bf16[4200,356] divide(y, ss)
}"""


def test_short_rows_are_on_chip_for_all_steps_and_share_what_each_has_once() -> None:
    """A reciprocal of several rows at a time, and no step by way of HBM."""
    x = (3 * np.random.default_rng(3).standard_normal((4200, 356))).astype(DTYPES["bf16"])
    compiled = compile(parse_text(SOFTMAX), "trn2")
    (found,), profile = compiled.profile(x)
    wide = np.exp(x.astype(np.float64) - x.astype(np.float64).max(1, keepdims=True))
    np.testing.assert_allclose(
        found.astype(np.float64), wide / wide.sum(1, keepdims=True), rtol=2.0**-6
    )
    moved = profile.dma.hbm_read_bytes + profile.dma.hbm_write_bytes
    assert moved < 1.1 * 2 * x.nbytes
    program = compiled.kernel.program
    rows = [i.row.name for stream in program.cores[0].streams.values() for i in stream]
    assert 0 < sum("eciprocal" in name for name in rows) < 4200 / 128


@combined(
    {
        "fold": ["add", "maximum"],
        "rows": [129, 255, 300],
    }
)
def test_rows_that_groups_leave_over_are_folded_beside_each_other(rows: int, fold: str) -> None:
    """Not one by one by the first group: they would take longer than all others."""
    text = f"""HloModule fold
f {{ a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] {fold}(a, b) }}
ENTRY e {{ x = f32[{rows},2100] parameter(0)
 start = f32[] constant({"0" if fold == "add" else "-inf"})
 ROOT r = f32[2100] reduce(x, start), dimensions={{0}}, to_apply=f }}"""
    x = np.random.default_rng(3).standard_normal((rows, 2100)).astype(np.float32)
    (found,), profile = compile(parse_text(text), "trn2").profile(x)
    wanted = x.astype(np.float64).sum(0) if fold == "add" else x.max(0)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 if fold == "add" else 0)
    if fold == "add":
        assert profile.total_ns < 25_000  # 27,434 with one column of partitions each
