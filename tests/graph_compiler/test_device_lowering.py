"""Graphs on the simulated device, part by part: groups, folds, sorts, control flow, copies. The
evaluator of the operator table, or NumPy, says what results must be."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from on_device import TARGET, assert_as_evaluated, on_device

from graph_compiler import compile, evaluate, parse_text
from graph_compiler.lower.control import flow
from isa.errors import NeuronError
from isa.target import TARGETS

# Groups

SOFTMAX = """HloModule softmax
larger { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT m = f32[] maximum(a, b) }
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 x = f32[ROWS,COLUMNS] parameter(0)
 least = f32[] constant(-inf)
 zero = f32[] constant(0)
 m = f32[ROWS] reduce(x, least), dimensions={1}, to_apply=larger
 ms = f32[ROWS,COLUMNS] broadcast(m), dimensions={0}
 d = f32[ROWS,COLUMNS] subtract(x, ms)
 y = f32[ROWS,COLUMNS] exponential(d)
 s = f32[ROWS] reduce(y, zero), dimensions={1}, to_apply=plus
 ss = f32[ROWS,COLUMNS] broadcast(s), dimensions={0}
 ROOT r = f32[ROWS,COLUMNS] divide(y, ss)
}"""


def softmax(rows: int, columns: int) -> str:
    return SOFTMAX.replace("ROWS", str(rows)).replace("COLUMNS", str(columns))


@pytest.mark.parametrize(
    "rows, columns, last_places", [(300, 50, 0), (64, 130, 0), (7, 9, 0), (128, 2000, 16)]
)
def test_a_group_computes_what_its_nests_do(
    rows: int, columns: int, last_places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit; where a group cuts long rows in two and a nest does not, the order in which a
    row is added up differs, and with it the last places (of n additions about sqrt(n) / 2)."""
    x = np.random.default_rng(0).standard_normal((rows, columns), np.float32) * 4
    (together,) = assert_as_evaluated(softmax(rows, columns), x, tolerance=1e-6)
    monkeypatch.setattr(flow, "grouped", lambda device, steps, uses: steps)
    (apart,) = on_device(softmax(rows, columns), x)
    np.testing.assert_array_max_ulp(together, apart, last_places)


def test_a_group_loads_and_stores_once() -> None:
    """Softmax of whole rows moves its operand in and its result out, and nothing else."""
    x = np.zeros((512, 1024), np.float32)
    _, profile = compile(parse_text(softmax(512, 1024)), TARGET).profile(x)
    assert sum(profile.dma.bytes.values()) <= 1.05 * 2 * x.nbytes


@pytest.mark.parametrize("columns", [64, 512, 1024])
def test_rows_that_a_group_makes_in_part_are_loaded(columns: int) -> None:
    """A product reads rows of which another step has made one half."""
    text = f"""HloModule halves
ENTRY e {{
 a = f32[128,32] parameter(0)
 w = f32[32,{columns}] parameter(1)
 t = f32[128,{columns}] parameter(2)
 v = f32[{2 * columns},16] parameter(3)
 y = f32[128,{columns}] dot(a, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 back = f32[128,{columns}] reverse(t), dimensions={{0}}
 z = f32[128,{columns}] multiply(y, y)
 c = f32[128,{2 * columns}] concatenate(back, z), dimensions={{1}}
 ROOT r = f32[128,16] dot(c, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
    rng = np.random.default_rng(3)
    shapes = [(128, 32), (32, columns), (128, columns), (2 * columns, 16)]
    inputs = [rng.standard_normal(shape, np.float32) for shape in shapes]
    assert_as_evaluated(text, *inputs, tolerance=2e-6)


@settings(max_examples=12, deadline=None)
@given(
    st.tuples(*[st.sampled_from([1, 7, 64, 130, 257])] * 3),
    st.sets(st.integers(0, 2), min_size=1),
    st.sampled_from(["plus", "larger"]),
    st.sampled_from(["0", "2.5"]),
)
def test_folds_along_any_dimensions(
    sizes: tuple[int, int, int], axes: set[int], fold: str, initial: str
) -> None:
    kept = ",".join(str(size) for place, size in enumerate(sizes) if place not in axes)
    gone = ",".join(map(str, sorted(axes)))
    head, _ = SOFTMAX.split("ENTRY")
    text = f"""{head}ENTRY e {{
 x = f32[{",".join(map(str, sizes))}] parameter(0)
 i = f32[] constant({initial})
 ROOT r = f32[{kept}] reduce(x, i), dimensions={{{gone}}}, to_apply={fold}
}}"""
    x = np.random.default_rng(len(axes)).standard_normal(sizes, np.float32)
    tolerance = {"plus": 1e-5, "larger": 0.0}[fold]
    (found,) = on_device(text, x)
    wanted = x.sum(tuple(axes), np.float64) + float(initial)
    if fold == "larger":
        wanted = np.maximum(x.max(tuple(axes)), np.float32(initial))
    scale = np.abs(x).sum(tuple(axes)) + abs(float(initial))
    assert np.all(np.abs(found - wanted) <= tolerance * scale)


# Sorts, control flow, moved blocks


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 99))
def test_sorts_are_stable(rows: int, count: int, seed: int) -> None:
    text = f"""HloModule sorted
before {{ a = s32[] parameter(0)
 b = s32[] parameter(1)
 c = s32[] parameter(2)
 d = s32[] parameter(3)
 ROOT r = pred[] compare(a, b), direction=GT }}
ENTRY e {{
 x = s32[{rows},{count}] parameter(0)
 i = s32[{rows},{count}] iota(), iota_dimension=1
 ROOT r = (s32[{rows},{count}], s32[{rows},{count}]) sort(x, i),
  dimensions={{1}}, is_stable=true, to_apply=before
}}"""
    x = np.random.default_rng(seed).integers(-4, 4, (rows, count)).astype(np.int32)
    values, places = on_device(text, x)
    order = np.argsort(-x, axis=1, kind="stable")
    assert np.array_equal(places, order)
    assert np.array_equal(values, np.take_along_axis(x, order, axis=1))


def test_a_loop_carries_its_state() -> None:
    text = """HloModule loop
body { s = (s32[], f32[5,3]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[5,3] get-tuple-element(s), index=1
 one = s32[] constant(1)
 n = s32[] add(i, one)
 y = f32[5,3] add(x, x)
 ROOT t = (s32[], f32[5,3]) tuple(n, y) }
test { s = (s32[], f32[5,3]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 m = s32[] constant(6)
 ROOT r = pred[] compare(i, m), direction=LT }
ENTRY e {
 i = s32[] parameter(0)
 x = f32[5,3] parameter(1)
 s = (s32[], f32[5,3]) tuple(i, x)
 ROOT w = (s32[], f32[5,3]) while(s), condition=test, body=body
}"""
    x = np.arange(15, dtype=np.float32).reshape(5, 3)
    for start in (0, 4, 9):
        assert_as_evaluated(text, np.array(start, np.int32), x)


def test_updates_of_one_place_come_one_after_another() -> None:
    text = """HloModule scattered
plus { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
 x = f32[6,4] parameter(0)
 i = s32[5,1] parameter(1)
 u = f32[5,4] parameter(2)
 ROOT r = f32[6,4] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={0},
  scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=plus
}"""
    x = np.ones((6, 4), np.float32)
    u = np.arange(20, dtype=np.float32).reshape(5, 4)
    assert_as_evaluated(text, x, np.array([[2], [2], [9], [-1], [0]], np.int32), u)


def test_what_has_no_form_is_refused_with_its_name() -> None:
    text = "HloModule m\nENTRY e {\n x = c64[4] parameter(0)\n ROOT sum = c64[4] add(x, x)\n}"
    with pytest.raises(NeuronError, match="c64") as caught:
        compile(parse_text(text), TARGET)
    assert caught.value.code == "hlo-not-compiled"


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_every_target_runs_graphs(target: str) -> None:
    x = np.random.default_rng(1).standard_normal((40, 30), np.float32)
    text = softmax(40, 30)
    (found,) = compile(parse_text(text), target)(x)
    (wanted,) = evaluate(parse_text(text), x)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


# Copies


@pytest.mark.parametrize("dims, axes", [("", ""), ("1024", "0"), ("1024", "1")])
def test_repeated_elements_are_stored_in_rows(dims: str, axes: str) -> None:
    text = f"""HloModule repeated
ENTRY e {{
 x = f32[{dims}] parameter(0)
 ROOT r = f32[1024,512] broadcast(x), dimensions={{{axes}}}
}}""".replace("1024,512", "1024,512" if axes != "1" else "512,1024")
    x = np.random.default_rng(1).standard_normal((1024,) if dims else (), np.float32)
    (found,), profile = compile(parse_text(text), "trn2").profile(x)
    wanted = np.broadcast_to(x[:, None] if axes == "0" else x, found.shape)
    np.testing.assert_array_equal(found, wanted)
    assert profile.dma.descriptors < found.size / 100


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("type", ["f32", "bf16", "s32", "u8"])
@pytest.mark.parametrize("rows, columns", [(300, 700), (33, 1500), (5, 9)])
def test_transpositions_keep_all_bits(target: str, type: str, rows: int, columns: int) -> None:
    text = f"""HloModule turned
ENTRY e {{
 x = {type}[{rows},{columns}] parameter(0)
 ROOT r = {type}[{columns},{rows}] transpose(x), dimensions={{1,0}}
}}"""
    module = parse_text(text)
    dtype = module.parameters[0].shape.numpy_dtype()
    bits = np.random.default_rng(rows).integers(0, 256, (rows, columns, dtype.itemsize), np.uint8)
    (found,) = compile(module, target)(bits.view(dtype)[..., 0])
    turned = np.swapaxes(bits, 0, 1)
    assert np.array_equal(found.view(np.uint8).reshape(turned.shape), turned)


def test_control_flow_may_end_with_copies_that_take_no_memory_on_chip() -> None:
    shape = "s32[257,1,16]"
    state = f"({shape}, {shape})"
    assert_as_evaluated(
        f"""
HloModule m
turned {{
  s = {state} parameter(0)
  a = {shape} get-tuple-element(s), index=0
  b = {shape} reverse(a), dimensions={{0,1,2}}
  ROOT r = {shape} maximum(b, a)
}}
first {{ s = {state} parameter(0) ROOT r = {shape} get-tuple-element(s), index=0 }}
second {{ s = {state} parameter(0) ROOT r = {shape} get-tuple-element(s), index=1 }}
ENTRY e {{
  p = {shape} parameter(0)
  q = {shape} parameter(1)
  i = s32[] constant(-2)
  t = {state} tuple(p, q)
  c = {shape} conditional(i, t, t, t), branch_computations={{turned, first, second}}
  ROOT r = ({shape}, {shape}) tuple(c, c)
}}""",
        *np.random.default_rng(0).integers(-9, 9, (2, 257, 1, 16)).astype(np.int32),
    )


def test_a_gather_may_take_its_indices_backwards() -> None:
    gather = (
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,4}"
    )
    assert_as_evaluated(
        f"""
HloModule m
ENTRY e {{
  p = s32[9,4] parameter(0)
  i = s32[5] parameter(1)
  back = s32[5] reverse(i), dimensions={{0}}
  ROOT r = s32[5,4] gather(p, back), {gather}
}}""",
        np.arange(36, dtype=np.int32).reshape(9, 4),
        np.array([3, -1, 99, 0, 5], np.int32),
    )


def test_a_gather_may_take_rows_of_an_array_that_lies_backwards() -> None:
    gather = (
        "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, "
        "slice_sizes={1,2}"
    )
    assert_as_evaluated(
        f"""
HloModule m
ENTRY e {{
  p = f32[3,2] parameter(0)
  i = s32[4] parameter(1)
  back = f32[3,2] reverse(p), dimensions={{0}}
  ROOT r = f32[4,2] gather(back, i), {gather}
}}""",
        np.arange(6, dtype=np.float32).reshape(3, 2),
        np.array([0, 2, 1, 9], np.int32),
    )
