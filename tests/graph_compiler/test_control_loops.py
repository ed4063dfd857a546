"""Loops with known trips on the simulated device. The evaluator of the operator table says what
results must be; a loop whose bound is a parameter, with a condition on the device, says what bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_compiler import GraphOptions, compile, evaluate, parse_text
from isa.enums import Memory
from isa.operations.dma import DmaCopy
from nki.ir.nodes import Loop, While, operations, walk

SCAN = """HloModule scan
body {
 s = (s32[], f32[4,40], f32[9,4,40], f32[9,4,40], s32[]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 c = f32[4,40] get-tuple-element(s), index=1
 ys = f32[9,4,40] get-tuple-element(s), index=2
 xs = f32[9,4,40] get-tuple-element(s), index=3
 n = s32[] get-tuple-element(s), index=4
 step = s32[] constant(STEP)
 j = s32[] add(i, step)
 zero = s32[] constant(0)
 eight = s32[] constant(8)
 k = s32[] PLACE
 p = f32[1,4,40] dynamic-slice(xs, k, zero, zero), dynamic_slice_sizes={1,4,40}
 x = f32[4,40] reshape(p)
 v = f32[4,40] VALUE
 m = f32[4,40] multiply(c, v)
 e = f32[4,40] add(m, x)
 u = f32[1,4,40] reshape(e)
 d = f32[9,4,40] dynamic-update-slice(ys, u, k, zero, zero)
 ROOT r = (s32[], f32[4,40], f32[9,4,40], f32[9,4,40], s32[]) tuple(j, e, d, xs, n)
}
condition {
 s = (s32[], f32[4,40], f32[9,4,40], f32[9,4,40], s32[]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] get-tuple-element(s), index=4
 ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
 c = f32[4,40] parameter(0)
 xs = f32[9,4,40] parameter(1)
 ys = f32[9,4,40] parameter(2)
 n = s32[] BOUND
 z = s32[] constant(FIRST)
 t = (s32[], f32[4,40], f32[9,4,40], f32[9,4,40], s32[]) tuple(z, c, ys, xs, n)
 l = (s32[], f32[4,40], f32[9,4,40], f32[9,4,40], s32[]) while(t), condition=condition, body=body
 i = s32[] get-tuple-element(l), index=0
 o = f32[4,40] get-tuple-element(l), index=1
 y = f32[9,4,40] get-tuple-element(l), index=2
 ROOT r = (s32[], f32[4,40], f32[9,4,40]) tuple(i, o, y)
}"""

PLACES = ["add(i, zero)", "subtract(eight, i)", "multiply(i, i)", "add(i, i)"]
VALUES = ["multiply(x, x)", "broadcast(f32[] convert(i)), dimensions={}"]


def scan(place: str, value: str, first: int, step: int, bound: str) -> str:
    text = SCAN.replace("PLACE", place).replace("STEP", str(step)).replace("FIRST", str(first))
    if "convert" in value:
        text = text.replace(" v = f32[4,40] VALUE", " w = f32[] convert(i)\n v = f32[4,40] VALUE")
        value = "broadcast(w), dimensions={}"
    return text.replace("VALUE", value).replace("BOUND", bound)


def arrays() -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(3)
    shapes = (4, 40), (9, 4, 40), (9, 4, 40)
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def loops(text: str) -> tuple[Any, set[type]]:
    """The compiled graph, and the kinds of its loops."""
    kinds: set[type] = set()

    def observe(stage: str, product: Any) -> None:
        if stage == "trace":
            kinds.update(type(node) for node in walk(product.bodies[0]))

    return compile(parse_text(text), "trn2", observe=observe), kinds & {Loop, While}


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(PLACES),
    st.sampled_from(VALUES),
    st.integers(0, 3),
    st.integers(1, 3),
    st.integers(0, 11),
)
def test_counted_loops_do_what_tested_ones_do(
    place: str, value: str, first: int, step: int, bound: int
) -> None:
    text = scan(place, value, first, step, f"constant({bound})")
    compiled, kinds = loops(text)
    assert kinds <= {Loop}
    found = compiled(*arrays())
    for here, wanted in zip(found, evaluate(parse_text(text), *arrays()), strict=True):
        np.testing.assert_allclose(here, wanted, rtol=1e-5, atol=1e-5)
    tested, kinds = loops(scan(place, value, first, step, "parameter(3)"))
    assert While in kinds
    for here, wanted in zip(found, tested(*arrays(), np.int32(bound)), strict=True):
        assert here.tobytes() == wanted.tobytes()


def test_a_scan_reads_and_writes_where_its_count_says() -> None:
    """No register is loaded from a tile, and no array is copied."""
    compiled, _ = loops(scan("add(i, zero)", "multiply(x, x)", 0, 1, "constant(9)"))
    assert "RegisterLoad" not in str(compiled.kernel.program.cores[0])
    assert compiled.memory.intermediates < 9 * 4 * 40 * 4 * 2


INDICES = " q = f32[4,1] slice(c), slice={[0:4], [2:3]}\n w = s32[4,1] convert(q)\n"

PLUS = "plus {\n a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b)\n}\n"


@pytest.mark.parametrize(
    "value",
    [
        "reverse(x), dimensions={0,1}",
        "gather(x, w), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,40}",
        "scatter(x, w, c), update_window_dims={1}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus",
    ],
)
def test_rows_that_indices_choose_of_what_moves_with_a_loop(value: str) -> None:
    """The rows that there are do not depend on where the loop is."""
    text = scan("add(i, zero)", value, 0, 1, "constant(9)")
    text = text.replace(" v = f32[4,40]", INDICES + " v = f32[4,40]", 1)
    text = text.replace("body {", PLUS + "body {", 1)
    c, xs, ys = arrays()
    xs, ys = xs.round(), ys.round()
    inputs = c.round().clip(-1, 1), xs, ys
    for here, wanted in zip(
        compile(parse_text(text), "trn2")(*inputs), evaluate(parse_text(text), *inputs)
    ):
        np.testing.assert_allclose(here, wanted, rtol=1e-5)


def test_what_an_update_changes_is_not_changed_before_it_is_read() -> None:
    """The array of an iteration before is read beside its update: it is copied."""
    text = scan("add(i, zero)", "multiply(x, x)", 0, 1, "constant(5)")
    old = " e = f32[4,40] add(m, x)\n"
    assert old in text
    text = text.replace(
        old,
        " q = f32[1,4,40] slice(ys), slice={[0:1], [0:4], [0:40]}\n u2 = f32[4,40] reshape(q)\n"
        " f = f32[4,40] add(m, x)\n e = f32[4,40] add(f, u2)\n",
    )
    for here, wanted in zip(
        compile(parse_text(text), "trn2")(*arrays()), evaluate(parse_text(text), *arrays())
    ):
        np.testing.assert_allclose(here, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parameter, updated", [(2, 9 * 4 * 40 * 4), (1, 0)])
def test_what_a_scan_stacks_may_take_a_donated_parameter(parameter: int, updated: int) -> None:
    """In place where nothing else reads it, not where the loop reads it in later trips."""
    text = scan("subtract(eight, i)", "multiply(x, x)", 0, 1, "constant(7)")
    alias = f"HloModule scan, input_output_alias={{ {{2}}: ({parameter}, {{}}, may-alias) }}"
    module = parse_text(text.replace("HloModule scan", alias))
    compiled = compile(module, "trn2")
    assert compiled.memory.updated == updated
    for here, wanted in zip(compiled(*arrays()), evaluate(module, *arrays()), strict=True):
        np.testing.assert_allclose(here, wanted, rtol=1e-5, atol=1e-5)


SORTED = """HloModule sorted
less {
 a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=LT
}
body {
 s = (s32[], f32[130,64], f32[130,64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[130,64] get-tuple-element(s), index=1
 w = f32[130,64] get-tuple-element(s), index=2
 one = s32[] constant(1)
 j = s32[] add(i, one)
 y = f32[130,64] add(x, w)
 z = f32[130,64] sort(y), dimensions={1}, to_apply=less
 ROOT r = (s32[], f32[130,64], f32[130,64]) tuple(j, z, w)
}
condition {
 s = (s32[], f32[130,64], f32[130,64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 five = s32[] constant(5)
 ROOT c = pred[] compare(i, five), direction=LT
}
ENTRY e {
 x = f32[130,64] parameter(0)
 w = f32[130,64] parameter(1)
 zero = s32[] constant(0)
 t = (s32[], f32[130,64], f32[130,64]) tuple(zero, x, w)
 l = (s32[], f32[130,64], f32[130,64]) while(t), condition=condition, body=body
 o = f32[130,64] get-tuple-element(l), index=1
 ROOT r = f32[130,64] multiply(o, w)
}"""


def test_a_carried_value_that_its_last_step_leaves_in_memory() -> None:
    """Sorted rows are in memory; the next trip loads them from there."""
    random = np.random.default_rng(5)
    x, w = (random.standard_normal((130, 64)).astype(np.float32) for _ in range(2))
    (found,) = compile(parse_text(SORTED), "trn2")(x, w)
    for _ in range(5):
        x = np.sort(x + w, axis=1)
    np.testing.assert_array_equal(found, x * w)


RECURRENT = """HloModule recurrent
body {
 s = (s32[], f32[ROWS,64], f32[64,64], f32[5,ROWS,64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 h = f32[ROWS,64] get-tuple-element(s), index=1
 w = f32[64,64] get-tuple-element(s), index=2
 ys = f32[5,ROWS,64] get-tuple-element(s), index=3
 one = s32[] constant(1)
 zero = s32[] constant(0)
 j = s32[] add(i, one)
 d = f32[ROWS,64] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 u = f32[ROWS,64] tanh(d)
 v = f32[ROWS,64] multiply(u, h)
 t = f32[ROWS,64] subtract(h, v)
 g = f32[1,ROWS,64] reshape(t)
 e = f32[5,ROWS,64] dynamic-update-slice(ys, g, i, zero, zero)
 ROOT r = (s32[], f32[ROWS,64], f32[64,64], f32[5,ROWS,64]) tuple(j, t, w, e)
}
condition {
 s = (s32[], f32[ROWS,64], f32[64,64], f32[5,ROWS,64]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(5)
 ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
 h = f32[ROWS,64] parameter(0)
 w = f32[64,64] parameter(1)
 z = s32[] constant(0)
 q = f32[] constant(0)
 ys = f32[5,ROWS,64] broadcast(q), dimensions={}
 t = (s32[], f32[ROWS,64], f32[64,64], f32[5,ROWS,64]) tuple(z, h, w, ys)
 l = (s32[], f32[ROWS,64], f32[64,64], f32[5,ROWS,64]) while(t), condition=condition, body=body
 o = f32[ROWS,64] get-tuple-element(l), index=1
 y = f32[5,ROWS,64] get-tuple-element(l), index=3
 ROOT p = (f32[ROWS,64], f32[5,ROWS,64]) tuple(o, y)
}"""


@pytest.mark.parametrize("rows, stores", [(1, 1), (2, 2)])
def test_a_state_of_one_row_that_products_read_is_made_where_the_old_one_was(
    rows: int, stores: int
) -> None:
    """One of several rows is made on chip, together with what a product's results become, and
    stored as the new state and among the outputs."""
    module = parse_text(RECURRENT.replace("ROWS", str(rows)))
    stages: dict[str, Any] = {}
    options = GraphOptions(optimisation=1)
    compiled = compile(module, "trn2", options, lambda stage, made: stages.setdefault(stage, made))
    loops = [one for body in stages["trace"].bodies for one in walk(body) if isinstance(one, Loop)]
    moves = [op.fields for op in operations(loops) if op.row is DmaCopy]
    ends = [(one["src"].storage.memory, one["dst"].storage.memory) for one in moves]
    assert ends.count((Memory.sbuf, Memory.shared_hbm)) == stores
    random = np.random.default_rng(rows)
    h = random.uniform(-1, 1, (rows, 64)).astype(np.float32)
    w = (random.standard_normal((64, 64)) / 8).astype(np.float32)
    state, outputs = compiled(h, w)
    wanted = h.astype(np.float64)
    for output in outputs:
        wanted = wanted - np.tanh(wanted @ w) * wanted
        np.testing.assert_allclose(output, wanted, 1e-4, 1e-6)
    np.testing.assert_array_equal(state, outputs[-1])
