"""The host executor on whole graphs: fusion, control flow, memory, the disk cache, errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_compiler import evaluate, execute, parse_text
from graph_compiler.execute.executable import Executable, planned
from graph_compiler.hlo import PRIMITIVE_TYPES
from graph_compiler.schedule import simplify
from graph_compiler.schedule.structure import structure_digest
from isa.errors import NeuronError
from isa.object_cache import Cache
from simulator.native.codegen.library import Library

Array = np.ndarray[Any, Any]

SOFTMAX = """HloModule softmax
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }
most { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b) }
ENTRY e {
  x = f32[6,50] parameter(0)
  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  top = f32[6] reduce(x, least), dimensions={1}, to_apply=most
  tops = f32[6,50] broadcast(top), dimensions={0}
  shifted = f32[6,50] subtract(x, tops)
  powers = f32[6,50] exponential(shifted)
  total = f32[6] reduce(powers, zero), dimensions={1}, to_apply=add
  totals = f32[6,50] broadcast(total), dimensions={0}
  shares = f32[6,50] divide(powers, totals)
  ROOT turned = f32[50,6] transpose(shares), dimensions={1,0}
}"""


def test_a_softmax_is_four_kernels() -> None:
    """Two reductions, of which one takes the exponentials along, and two maps."""
    module = parse_text(SOFTMAX)
    x = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    (found,) = execute(module, x)
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(found, (powers / powers.sum(1, keepdims=True)).T, rtol=1e-6)
    plan, kernels = planned(module)
    assert len(kernels) <= 5
    assert plan["hosts"] == {}


LOOP = """HloModule loop
body { s = (s32[], f32[1000,4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  rows = f32[1000,4] get-tuple-element(s), index=1
  x = f32[4] get-tuple-element(s), index=2
  one = s32[] constant(1)
  zero = s32[] constant(0)
  y = f32[4] add(x, x)
  line = f32[1,4] reshape(y)
  more = f32[1000,4] dynamic-update-slice(rows, line, i, zero)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[1000,4], f32[4]) tuple(next, more, y) }
condition { s = (s32[], f32[1000,4], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(5)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e {
  x = f32[4] parameter(0)
  rows = f32[1000,4] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[1000,4], f32[4]) tuple(zero, rows, x)
  ROOT w = (s32[], f32[1000,4], f32[4]) while(s), condition=condition, body=body
}"""


def test_a_loop_updates_its_state_in_place() -> None:
    module = parse_text(LOOP)
    x, rows = np.arange(4, dtype=np.float32), np.full((1000, 4), 7, np.float32)
    number, found, last = execute(module, x, rows)
    expected = rows.copy()
    expected[:5] = [x * 2 ** (i + 1) for i in range(5)]
    assert number == 5
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(last, x * 32)
    assert np.all(rows == 7), "inputs are left alone"
    # The rows are an output, and nothing else is as large: no copy of them is ever made.
    assert planned(module)[0]["arena"] < rows.nbytes


SWAP = """HloModule swap
body { s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[8] get-tuple-element(s), index=1
  b = f32[8] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  sum = f32[8] add(a, b)
  turned = f32[8] reverse(a), dimensions={0}
  ROOT r = (s32[], f32[8], f32[8]) tuple(next, sum, turned) }
condition { s = (s32[], f32[8], f32[8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e {
  a = f32[8] parameter(0)
  b = f32[8] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[8], f32[8]) tuple(zero, a, b)
  w = (s32[], f32[8], f32[8]) while(s), condition=condition, body=body
  x = f32[8] get-tuple-element(w), index=1
  y = f32[8] get-tuple-element(w), index=2
  ROOT r = (f32[8], f32[8]) tuple(x, y)
}"""


def test_a_loop_reads_its_whole_state_before_it_is_replaced() -> None:
    a, b = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    found = execute(parse_text(SWAP), a, b)
    for _ in range(6):
        a, b = a + b, a[::-1]
    np.testing.assert_array_equal(found[0], a)
    np.testing.assert_array_equal(found[1], b)


BRANCHES = """HloModule branches
double { x = f32[3] parameter(0)
  ROOT y = f32[3] add(x, x) }
same { ROOT x = f32[3] parameter(0) }
minus { x = f32[3] parameter(0)
  ROOT y = f32[3] negate(x) }
ENTRY e {
  i = s32[] parameter(0)
  x = f32[3] parameter(1)
  c = f32[3] conditional(i, x, x, x), branch_computations={double, same, minus}
  ROOT r = f32[3] add(c, x)
}"""


@pytest.mark.parametrize(("index", "factor"), [(0, 3), (1, 2), (2, 0), (-1, 0), (9, 0)])
def test_a_conditional_takes_its_last_branch_for_indices_outside(index: int, factor: int) -> None:
    x = np.float32([1, 2, 3])
    (found,) = execute(parse_text(BRANCHES), np.int32(index), x)
    np.testing.assert_array_equal(found, factor * x)


def test_results_have_memory_of_their_own() -> None:
    text = (
        "HloModule m\nENTRY e {\n x = f32[4] parameter(0)\n"
        " ROOT r = (f32[4], f32[4]) tuple(x, x)\n}"
    )
    module, x = parse_text(text), np.ones(4, np.float32)
    first = execute(module, x)
    first[0][:] = 5
    assert np.all(first[1] == 1)
    assert np.all(x == 1)
    assert np.all(execute(module, x)[0] == 1)


def test_inputs_need_not_be_contiguous() -> None:
    text = "HloModule m\nENTRY e {\n x = f32[3,4] parameter(0)\n ROOT r = f32[3,4] negate(x)\n}"
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2].T
    np.testing.assert_array_equal(execute(parse_text(text), x)[0], -x)


def test_what_has_no_native_form_runs_on_the_host() -> None:
    text = (
        "HloModule m\nENTRY e {\n x = f32[5] parameter(0)\n s = f32[5] sine(x)\n"
        " ROOT r = f32[5] add(s, x)\n}"
    )
    module, x = parse_text(text), np.linspace(0, 1e6, 5, dtype=np.float32)
    executable = Executable(module)
    assert executable.host_instructions == ["s"]
    np.testing.assert_allclose(executable([x])[0], np.sin(x.astype(np.float64)) + x, rtol=1e-6)


def test_custom_calls_run_what_is_registered() -> None:
    text = (
        "HloModule m\nENTRY e {\n x = f32[2] parameter(0)\n"
        ' ROOT r = f32[2] custom-call(x), custom_call_target="twice"\n}'
    )
    calls = {"twice": lambda instruction, operands, context: 2 * operands[0]}
    x = np.float32([1, 2])
    np.testing.assert_array_equal(execute(parse_text(text), x, custom_calls=calls)[0], 2 * x)


@pytest.fixture
def compile_in(tmp_path: Path) -> Iterator[Any]:
    """Compiles with a disk cache of the test's own, and nothing in memory."""

    def compiled(text: str) -> Executable:
        functions = Library(Cache("kernels", tmp_path))
        return Executable(parse_text(text), Cache("plans", tmp_path), functions)

    yield compiled


def test_plans_and_kernels_come_from_disk(compile_in: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    first, second = compile_in(SOFTMAX), compile_in(SOFTMAX)
    assert (first.from_disk, second.from_disk) == (False, True)
    np.testing.assert_array_equal(first([x])[0], second([x])[0])
    for path in (tmp_path / "kernels").iterdir():
        path.unlink()
    third = compile_in(SOFTMAX)  # the plan is there, its kernels are not
    np.testing.assert_array_equal(first([x])[0], third([x])[0])


def test_large_literals_stay_in_the_graph() -> None:
    """A plan with its weights inside would be as large as they are."""
    numbers = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
    text = (
        "HloModule m\nENTRY e {\n x = f32[200,300] parameter(0)\n"
        " w = f32[200,300] constant({...})\n y = f32[200,300] add(x, w)\n"
        " ROOT z = f32[300,200] transpose(y), dimensions={1,0}\n}"
    ).replace("{...}", str(numbers.tolist()).replace("[", "{").replace("]", "}"))
    module = parse_text(text)
    assert max(len(data) for data in planned(module)[0]["constants"]) < 100
    (found,) = execute(module, numbers)
    np.testing.assert_array_equal(found, (numbers + numbers).T)


def test_the_structure_of_a_graph_is_what_it_computes() -> None:
    renamed = SOFTMAX.replace("powers", "p").replace("totals", "t")
    assert structure_digest(parse_text(SOFTMAX)) == structure_digest(parse_text(renamed))
    for old, new in (
        ("constant(-inf)", "constant(-1)"),
        ("exponential", "logistic"),
        ("divide(powers, totals)", "divide(totals, powers)"),
        ("ROOT m = f32[] maximum", "ROOT m = f32[] minimum"),
    ):
        assert structure_digest(parse_text(SOFTMAX)) != structure_digest(
            parse_text(SOFTMAX.replace(old, new))
        ), new


def test_wrong_inputs_are_refused() -> None:
    module = parse_text(SOFTMAX)
    for inputs in ((), (np.zeros((6, 51), np.float32),), (np.zeros((6, 50)),)):
        with pytest.raises(NeuronError) as caught:
            execute(module, *inputs)
        assert caught.value.code == "input-mismatch"


@pytest.mark.parametrize(
    "line",
    [
        "iota(), iota_dimension=0",
        "broadcast(x), dimensions={}",
        "negate(b)",
    ],
)
def test_absurd_sizes_are_refused(line: str) -> None:
    size = 1 << 44
    text = (
        f"HloModule m\nENTRY e {{\n x = f32[] parameter(0)\n"
        f" b = f32[{size}] broadcast(x), dimensions={{}}\n ROOT r = f32[{size}] {line}\n}}"
    )
    with pytest.raises(NeuronError) as caught:
        execute(parse_text(text), np.float32(1))
    assert caught.value.code == "hlo-too-large"


def test_an_endless_loop_is_stopped() -> None:
    module = parse_text(LOOP.replace("constant(5)", "constant(2000000000)"))
    with pytest.raises(NeuronError) as caught:
        execute(module, np.ones(4, np.float32), np.ones((1000, 4), np.float32), loop_limit=1000)
    assert caught.value.code == "loop-limit"


def test_without_native_code_the_evaluator_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_BACKEND", "numpy")
    module = parse_text(SOFTMAX)
    x = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    np.testing.assert_array_equal(execute(module, x)[0], evaluate(module, x)[0])


def test_a_chain_of_small_operations_is_one_native_call() -> None:
    lines = [" x0 = f32[64] parameter(0)"]
    for number in range(300):
        op = ("add", "multiply", "maximum")[number % 3]
        lines.append(f" x{number + 1} = f32[64] {op}(x{number}, x{max(0, number - 1)})")
    lines[-1] = lines[-1].replace(" x300", " ROOT x300")
    module = parse_text("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}")
    x = np.linspace(0.5, 1, 64, dtype=np.float32)
    plan, kernels = planned(module)
    assert plan["hosts"] == {}
    assert len(kernels) < 30
    np.testing.assert_array_equal(execute(module, x)[0], evaluate(module, x)[0])


def test_a_result_survives_what_is_computed_from_it() -> None:
    """Memory of a value that is not needed again is used again, but not that of a result."""
    text = (
        SOFTMAX.replace(
            "ROOT turned = f32[50,6] transpose(shares), dimensions={1,0}",
            "again = f32[6,50] exponential(shares)\n"
            "  sums = f32[6] reduce(again, zero), dimensions={1}, to_apply=add\n"
            "  ROOT r = (f32[6,50], f32[6]) tuple(shares, sums)",
        )
        .replace("reduce(again", "reduce(more")
        .replace(
            "  sums =",
            "  twice = f32[6,50] multiply(again, again)\n"
            "  more = f32[6,50] add(again, twice)\n  sums =",
        )
    )
    module = parse_text(text)
    x = np.random.default_rng(0).standard_normal((6, 50)).astype(np.float32)
    for found, expected in zip(execute(module, x), evaluate(module, x)):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_calls_that_double_are_refused_in_bounded_time():
    text = "HloModule m\n\nf0 {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] add(x, x)\n}\n"
    for level in range(1, 60):
        text += (
            f"\nf{level} {{\n  x = f32[2] parameter(0)\n"
            f"  a = f32[2] call(x), to_apply=f{level - 1}\n"
            f"  ROOT r = f32[2] call(a), to_apply=f{level - 1}\n}}\n"
        )
    text += "\nENTRY e {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] call(x), to_apply=f59\n}\n"
    with pytest.raises(NeuronError) as caught:
        execute(parse_text(text), np.ones(2, np.float32))
    assert caught.value.code == "loop-limit"


def test_what_calls_inline_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simplify, "INLINED", 20)
    text = (
        "HloModule m\n\nf {\n  x = f32[2] parameter(0)\n  ROOT r = f32[2] add(x, x)\n}\n\n"
        "ENTRY e {\n  x0 = f32[2] parameter(0)\n"
        + "".join(f"  x{i} = f32[2] call(x{i - 1}), to_apply=f\n" for i in range(1, 10))
        + "  ROOT r = f32[2] call(x9), to_apply=f\n}\n"
    )
    with pytest.raises(NeuronError) as caught:
        execute(parse_text(text), np.ones(2, np.float32))
    assert caught.value.code == "hlo-too-many-instructions" and "`f`" in caught.value.what


@pytest.mark.parametrize("columns", [1, 2, 16, 17, 33, 65, 97])
@pytest.mark.parametrize("type", ["bf16", "f16", "s16", "s8", "pred", "f32"])
def test_rows_of_any_length_end_where_they_end(type: str, columns: int) -> None:
    """The last element of a row, in a narrow type, leaves the row behind it alone: LLVM 22 wrote it
    as wide as the number was before it was narrowed."""
    text = f"""HloModule m
ENTRY e {{
 a = {type}[3,{columns},20] parameter(0)
 ROOT r = {type}[3,20,{columns}] transpose(a), dimensions={{0,2,1}}
}}"""
    dtype = PRIMITIVE_TYPES[type].numpy
    numbers = np.random.default_rng(columns).integers(0, 100, (3, columns, 20))
    array = (numbers % 2 == 0) if type == "pred" else numbers.astype(dtype)
    (found,) = execute(parse_text(text), array)
    assert found.tobytes() == np.ascontiguousarray(array.transpose(0, 2, 1)).tobytes()
