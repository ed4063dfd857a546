"""Products of any layout on the device."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import assert_as_evaluated

from graph_compiler import compile, parse_text
from isa.target import TARGETS

_DOT = """HloModule dot
ENTRY e {
 x = TYPE[XS] parameter(0)
 y = TYPE[YS] parameter(1)
 ROOT r = RESULT dot(x, y), lhs_batch_dims={B}, rhs_batch_dims={B},
  lhs_contracting_dims={L}, rhs_contracting_dims={R}
}"""


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([None, 1, 3, 20]),
    st.tuples(*[st.sampled_from([1, 5, 64, 130, 200])] * 3),
    st.booleans(),
    st.booleans(),
)
def test_products_of_any_layout(
    batch: int | None, sizes: tuple[int, int, int], left: bool, right: bool
) -> None:
    rows, depth, columns = sizes
    rng = np.random.default_rng(rows + depth)
    before = [] if batch is None else [batch]
    xs = [*before, *((depth, rows) if left else (rows, depth))]
    ys = [*before, *((columns, depth) if right else (depth, columns))]
    first = len(before)
    text = _DOT.replace("RESULT", f"f32[{','.join(map(str, [*before, rows, columns]))}]")
    for name, value in {
        "TYPE": "f32",
        "XS": ",".join(map(str, xs)),
        "YS": ",".join(map(str, ys)),
        "{B}": "{0}" if before else "{}",
        "{L}": f"{{{first if left else first + 1}}}",
        "{R}": f"{{{first + 1 if right else first}}}",
    }.items():
        text = text.replace(name, value)
    x, y = rng.standard_normal(xs).astype(np.float32), rng.standard_normal(ys).astype(np.float32)
    assert_as_evaluated(text, x, y, tolerance=2e-6)


@pytest.mark.parametrize("inside", [False, True])
def test_columns_of_several_elements_are_loaded_in_long_runs(inside: bool) -> None:
    """Keys of heads, or of each position those of all heads: rows of 256 bytes alone take 1.7 times
    as long where heads are apart."""
    heads, count, width = 16, 2048, 128
    shape, batch = ((count, heads, width), 1) if inside else ((heads, count, width), 0)
    module = parse_text(
        f"HloModule scores\nENTRY e {{\n q = bf16[{heads},{width}] parameter(0)\n"
        f" k = bf16[{','.join(map(str, shape))}] parameter(1)\n"
        f" ROOT s = bf16[{heads},{count}] dot(q, k), lhs_batch_dims={{0}},"
        f" rhs_batch_dims={{{batch}}}, lhs_contracting_dims={{1}}, rhs_contracting_dims={{2}}\n}}"
    )
    rng = np.random.default_rng(0)
    q, k = (
        rng.standard_normal(dims).astype(ml_dtypes.bfloat16) for dims in ((heads, width), shape)
    )
    (found,), profile = compile(module, "trn2").profile(q, k)
    wide = k.astype(np.float64)
    wanted = np.einsum("hw,nhw->hn" if inside else "hw,hnw->hn", q.astype(np.float64), wide)
    np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2.0**-7, atol=0.2)
    bound = k.nbytes / TARGETS["trn2"].dma_bytes_per_ns
    assert profile.total_ns < 2 * bound + 8_000


def test_products_take_operands_that_lie_backwards() -> None:
    more = (
        "lhs_batch_dims={0}, lhs_contracting_dims={1}, rhs_batch_dims={0}, rhs_contracting_dims={1}"
    )
    assert_as_evaluated(
        f"""
HloModule m
ENTRY e {{
  p = f32[12,12] parameter(0)
  q = f32[12,2] slice(p), slice={{[0:12:1],[7:11:3]}}
  back = f32[12,2] reverse(q), dimensions={{1}}
  ROOT r = f32[12] dot(back, q), {more}
}}""",
        np.arange(144, dtype=np.float32).reshape(12, 12),
    )
