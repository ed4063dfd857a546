"""Graphs and arguments from strangers: files made to hang or to break, values of the wrong kind,
and several threads at once."""

from __future__ import annotations

import collections
import io
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graph_compiler
from graph_compiler import (
    evaluate,
    evaluate_ranks,
    execute,
    from_proto,
    load,
    parse_text,
    print_text,
    to_proto,
    verify,
)
from graph_compiler.execute import memory_plan as layout
from graph_compiler.execute import prepare
from graph_compiler.execute.executable import planned
from graph_compiler.frontends import stablehlo
from graph_compiler.frontends.sniff import sniff
from graph_compiler.hlo.proto_messages import message_class
from isa.errors import NeuronError

BOTH = pytest.mark.parametrize("run", [evaluate, execute])


def graph(*lines: str, head: str = "") -> graph_compiler.Module:
    module = parse_text("\n".join(("HloModule m", head, "ENTRY e {", *lines, "}")))
    verify(module)
    return module


@pytest.mark.parametrize(
    ("head", "form"),
    [
        (b"/**/" * 16384, ""),
        (b"/*" * 40000, ""),
        (b"/* * / */ " * 6000, ""),
        (b"// a\n" * 13000, ""),
        (b"#\n" * 40000, ""),
        (b"/**/ // x\n" * 300 + b"HloModule m", "text"),
        (b"/* HloModule", ""),
        (b"!a = b\n#c\n" * 300 + b"module @m {", "stablehlo"),
    ],
)
def test_the_format_of_any_bytes_is_known_in_one_pass(head: bytes, form: str) -> None:
    """Of 96 bytes of comments a pattern that tries every way takes a second, of 112 a minute."""
    assert sniff(head) == form


@pytest.mark.parametrize("name", ["f32", "bf16", "f16", "f64"])
@BOTH
def test_nan_stays_in_a_format_without_a_mantissa(run: Any, name: str) -> None:
    """XLA's operation semantics retain NaN, and its compiled code does so."""
    module = graph(
        f"x = {name}[4] parameter(0)",
        f"ROOT r = {name}[4] reduce-precision(x), exponent_bits=5, mantissa_bits=0",
    )
    dtype = module.result_shape.numpy_dtype()
    (result,) = run(module, np.array([np.nan, -np.nan, 5, -np.inf]).astype(dtype))
    assert np.isnan(result[:2].astype(np.float64)).all()
    assert result[2:].astype(np.float64).tolist() == [4, -np.inf]


BROADCAST = ("x = f32[] constant(1)", "ROOT r = f32[100000000000] broadcast(x), dimensions={}")


@BOTH
def test_a_result_beyond_the_memory_is_an_error_of_the_catalogue(run: Any) -> None:
    with pytest.raises(NeuronError) as caught:
        run(graph(*BROADCAST))
    assert caught.value.code == "hlo-too-large"


@pytest.mark.parametrize("line", [1 << 31, (1 << 63) - 1, -(1 << 31) - 1])
def test_a_source_line_beyond_its_field_is_refused_where_it_is_read(line: int) -> None:
    text = "HloModule m\nENTRY e { ROOT x = s8[] parameter(0), metadata={source_line=%d} }"
    with pytest.raises(NeuronError) as caught:
        parse_text(text % line)
    assert caught.value.code == "hlo-syntax" and "source_line" in caught.value.what
    module = parse_text(text % 7)
    module.entry.root.metadata = module.entry.root.metadata.replace(source_line=line)
    with pytest.raises(NeuronError) as caught:
        to_proto(module)
    assert caught.value.code == "hlo-invalid"


def test_a_host_shape_without_result_is_kept() -> None:
    module = graph("ROOT x = s8[] parameter(0)")
    module.attributes["host_program_shape"] = type(module.entry.program_shape())(
        "ProgramShapeProto"
    )
    data = to_proto(module)
    assert to_proto(parse_text(print_text(from_proto(data)))) == data


@pytest.mark.parametrize("far", [0, 1])
def test_a_straight_chain_is_laid_out_in_linear_time(
    far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted in lines of `layout` and in elements that it sorts, for chains of 500 and 2,000."""
    counts: list[int] = []

    def counted(values: Any, **options: Any) -> list[Any]:
        counts[-1] += len(values)
        return sorted(values, **options)

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename != layout.__file__:
            return None
        counts[-1] += event == "line"
        return trace

    monkeypatch.setattr(layout, "sorted", counted, raising=False)
    for length in (500, 2000):
        lines = ["x0 = f32[64] parameter(0)"]
        lines += [f"x{i + 1} = f32[64] add(x{i}, x{max(0, i - far)})" for i in range(length)]
        lines[-1] = "ROOT " + lines[-1]
        module = graph(*lines)
        counts.append(0)
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            planned(module)
        finally:
            sys.settrace(before)
    assert 1000 < counts[1] < 6 * counts[0]


COUNT = """body { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  ROOT r = (s32[], s32[]) tuple(next, n) }
condition { s = (s32[], s32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  ROOT c = pred[] compare(i, n), direction=LT }
same { s = (s32[], s32[]) parameter(0)
  ROOT r = (s32[], s32[]) copy(s) }
choice { s = (s32[], s32[]) parameter(0)
  p = pred[] constant(true)
  w = (s32[], s32[]) while(s), condition=condition, body=body
  i = s32[] get-tuple-element(w), index=0
  z = s32[] constant(0)
  q = pred[] compare(i, z), direction=GT
  ROOT r = (s32[], s32[]) conditional(q, w, s), true_computation=same, false_computation=same }"""


@pytest.mark.parametrize(("count", "limit"), [(5, 10), (5, 9), (0, 0), (3, 6), (3, 5), (1, 1)])
@BOTH
def test_iterations_of_all_loops_count_together(run: Any, count: int, limit: int) -> None:
    """Two loops of `count` iterations, the second behind a branch, of which nothing counts."""
    module = graph(
        "z = s32[] constant(0)",
        "n = s32[] parameter(0)",
        "t = (s32[], s32[]) tuple(z, n)",
        "a = (s32[], s32[]) while(t), condition=condition, body=body",
        "b = (s32[], s32[]) call(t), to_apply=choice",
        "i = s32[] get-tuple-element(a), index=0",
        "j = s32[] get-tuple-element(b), index=0",
        "ROOT r = s32[] add(i, j)",
        head=COUNT,
    )
    if 2 * count <= limit:
        assert run(module, np.int32(count), loop_limit=limit)[0] == 2 * count
    else:
        with pytest.raises(NeuronError) as caught:
            run(module, np.int32(count), loop_limit=limit)
        assert caught.value.code == "loop-limit" and "loop_limit" in caught.value.hint


@BOTH
def test_endless_loops_end_by_themselves(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same limit; of `evaluate` it is made shorter here, as it takes a minute and a half."""
    module = graph(
        "z = s32[] constant(0)",
        "n = s32[] constant(-1)",
        "t = (s32[], s32[]) tuple(n, z)",
        "ROOT a = (s32[], s32[]) while(t), condition=always, body=body",
        head=f"{COUNT}\nalways {{ s = (s32[], s32[]) parameter(0)\n ROOT c = pred[] constant(1) }}",
    )
    with pytest.raises(NeuronError) as caught:
        run(module, **({"loop_limit": 1000} if run is evaluate else {}))
    assert caught.value.code == "loop-limit"


def test_threads_execute_more_modules_than_are_kept() -> None:
    modules = [
        graph("x = s32[2] parameter(0)", f"ROOT r = s32[2] {op}(x, x)")
        for op in (
            "add",
            "subtract",
            "multiply",
            "maximum",
            "minimum",
            "and",
            "or",
            "xor",
            "power",
            "divide",
        )
    ]
    inputs = np.array([3, 5], np.int32)
    expected = [evaluate(module, inputs)[0].tolist() for module in modules]
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in np.random.default_rng(seed).integers(0, len(modules), 150):
                assert execute(modules[number], inputs)[0].tolist() == expected[number]
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures, failures[0]


def test_a_module_that_another_thread_displaces_is_still_executed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The other thread comes right after this one has found what it looked for."""
    execution = sys.modules["graph_compiler.execute"]
    module, other = (graph(f"ROOT x = s32[{size}] parameter(0)") for size in (2, 3))
    others: list[threading.Thread] = []

    class Interrupted(collections.OrderedDict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            found = super().get(key, default)
            if found is not None and not others:
                others.append(threading.Thread(target=prepare, args=(other,)))
                others[0].start()
                others[0].join(0.5)  # in vain, where it has to wait for this thread
            return found

    monkeypatch.setattr(execution, "_recent", Interrupted())
    monkeypatch.setattr(execution, "_KEPT", 1)
    executable = prepare(module)
    assert prepare(module) is executable
    others[0].join()
    assert [kept for kept, _ in execution._recent] == [other]


PARTITIONED = """HloModule f, is_scheduled=true, num_partitions=2

add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b) }

ENTRY main {
  p = f32[2,3]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
  q = f32[3]{0} parameter(1), sharding={replicated}
  z = f32[] constant(0)
  t = f32[3]{0} reduce(p, z), dimensions={0}, to_apply=add
  u = f32[3]{0} multiply(t, q)
  ROOT r = f32[3]{0} all-reduce(u), channel_id=1, replica_groups=[1,2]<=[2], \
use_global_device_ids=true, to_apply=add
}"""


def test_a_graph_that_jax_has_partitioned_runs_on_ranks() -> None:
    module = load(PARTITIONED.encode())
    p, q = np.arange(12, dtype=np.float32).reshape(2, 2, 3), np.array([1, 2, 3], np.float32)
    for outputs in evaluate_ranks(module, [[p[0], q], [p[1], q]]):
        np.testing.assert_array_equal(outputs[0], p.sum((0, 1)) * q)
    whole = load(PARTITIONED.replace("is_scheduled=true, ", "").encode())
    with pytest.raises(NeuronError) as caught:
        evaluate_ranks(whole, [[p[0], q], [p[1], q]])
    assert caught.value.code == "hlo-not-supported"


X = "ROOT x = f32[2] parameter(0)"
WRONG: dict[str, Any] = {
    "evaluate": lambda: evaluate("model.hlo"),
    "execute": lambda: execute(None),
    "execute a function": lambda: execute(np.tanh, np.ones(2)),
    "evaluate_ranks": lambda: evaluate_ranks(b"HloModule", []),
    "ranks": lambda: evaluate_ranks(graph(X), None),
    "verify": lambda: verify("HloModule m"),
    "load": lambda: load(graph(X)),
    "load an open file": lambda: load(io.BytesIO(b"HloModule m")),
    "load a number": lambda: load(3),
    "parse_text": lambda: parse_text(b"HloModule m"),
    "print_text": lambda: print_text(Path("m")),
    "from_proto": lambda: from_proto("HloModule m"),
    "to_proto": lambda: to_proto([]),
    "stablehlo": lambda: stablehlo.load(None),
    "seed": lambda: evaluate(graph(X), np.ones(2, np.float32), seed="1"),
    "loop_limit": lambda: execute(graph(X), np.ones(2, np.float32), loop_limit=1e9),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_of_another_kind_are_named(name: str) -> None:
    """They are TypeErrors, too, as Python has it."""
    with pytest.raises(TypeError) as caught:
        WRONG[name]()
    assert isinstance(caught.value, NeuronError) and caught.value.code == "argument-kind"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("shape", "value", "words"),
    [
        ("f32[]", 1.5, "np.asarray(value, np.float32)"),
        ("f32[]", 3, "np.asarray(value, np.float32)"),
        ("bf16[]", 1.5, "np.asarray(value, ml_dtypes.bfloat16)"),
        ("s32[3]", [1, 2, 3], "np.asarray(value, np.int32)"),
        ("f32[2,2]", [[1.0, 2], [3, 4]], "np.asarray(value, np.float32)"),
        ("f32[2,3]", 0.5, "np.full((2, 3), value, np.float32)"),
        ("f16[2]", np.ones(2), "array.astype(np.float16)"),
        ("f32[2]", [[1], [2, 3]], "array"),
        ("f32[2]", "12", "array"),
        ("f32[2]", None, "array"),
        ("(f32[2], s8[])", 1.0, "tuple of 2"),
    ],
)
@BOTH
def test_values_that_are_no_arrays_get_their_conversion(
    run: Any, shape: str, value: Any, words: str
) -> None:
    module = graph(f"x = {shape} parameter(0)", "ROOT r = s8[] constant(1)")
    with pytest.raises(NeuronError) as caught:
        run(module, value)
    assert caught.value.code == "input-mismatch" and words in caught.value.hint
    if words.startswith(("np.", "array.")):
        names = {"np": np, "ml_dtypes": ml_dtypes, "value": value, "array": value}
        run(module, eval(words, names))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("lapack_sgeqrf_ffi", "triangular-solve"),
        ("lapack_spotrf_ffi", "frontends.jax.trace"),
        ("Eigh", "cholesky"),
        ("xla_ffi_python_cpu_callback", "callback"),
        ("ApproxTopK", "top_k"),
        ("__onednn$matmul", ".lower("),
        ("of_nobody", "custom_calls="),
    ],
)
@BOTH
def test_unknown_targets_say_what_is_supported(run: Any, target: str, words: str) -> None:
    module = graph(f'ROOT r = f32[] custom-call(), custom_call_target="{target}"')
    with pytest.raises(NeuronError) as caught:
        run(module)
    error = caught.value
    assert error.code == "hlo-not-supported" and repr(target) in error.what
    assert words in error.why + error.hint and "AwsNeuronSilu" in error.notes[0]


@pytest.mark.parametrize(
    "given", [np.zeros(3), np.zeros(2, np.float32), np.complex64([1, 2, 3]), (np.zeros(3),), None]
)
@BOTH
def test_a_custom_call_gives_what_the_graph_states(run: Any, given: Any) -> None:
    module = graph('ROOT r = f32[3] custom-call(), custom_call_target="mine"')
    good = np.float32([1, 2, 3])
    np.testing.assert_array_equal(run(module, custom_calls={"mine": lambda *_: good})[0], good)
    with pytest.raises(NeuronError) as caught:
        run(module, custom_calls={"mine": lambda *_: given})
    assert caught.value.code == "hlo-shape-mismatch" and "f32[3]" in caught.value.what


@pytest.mark.parametrize(
    "call",
    [
        'f32[3] custom-call(), custom_call_target="AwsNeuronSilu"',
        'f32[3] custom-call(t), custom_call_target="AwsNeuronErf"',
        'f32[2] custom-call(x), custom_call_target="AwsNeuronTopK"',
        '(f32[], s32[]) custom-call(x), custom_call_target="AwsNeuronTopK"',
    ],
)
@BOTH
def test_targets_that_are_called_wrongly_are_refused(run: Any, call: str) -> None:
    module = graph("x = f32[3] parameter(0)", "t = (f32[3]) tuple(x)", f"ROOT r = {call}")
    with pytest.raises(NeuronError) as caught:
        run(module, np.ones(3, np.float32))
    assert caught.value.code in ("hlo-invalid", "hlo-shape-mismatch")


PAIR = "pair {{ a = s32[] parameter(0)\n  b = s32[] parameter(1)\n  ROOT r = {} }}".format


@pytest.mark.parametrize(
    ("lines", "head", "code"),
    [
        (
            ("x = s32[4] parameter(0)", "ROOT r = s32[4] sort(x), dimensions={0}, to_apply=pair"),
            PAIR("s32[] add(a, b)"),
            "hlo-type-mismatch",
        ),
        (
            (
                "x = s32[4] parameter(0)",
                "z = s32[] constant(0)",
                "ROOT r = s32[4] select-and-scatter(x, x, z), window={size=1}, select=pair, "
                "scatter=pair",
            ),
            PAIR("s32[] add(a, b)"),
            "hlo-type-mismatch",
        ),
        (
            ("x = s32[4] parameter(0)", "ROOT r = s32[] get-dimension-size(x)"),
            "",
            "hlo-shape-mismatch",
        ),
    ],
)
def test_what_only_a_run_would_notice_is_refused(
    lines: tuple[str, ...], head: str, code: str
) -> None:
    with pytest.raises(NeuronError) as caught:
        graph(*lines, head=head)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "root",
    [
        "(s32[4], s32[4]) all-to-all(x, x), replica_groups={}",
        "s32[8] all-gather(x), replica_groups={}, dimensions={0}",
        "s32[2] reduce-scatter(x), replica_groups={}, dimensions={0}, to_apply=pair",
    ],
)
@BOTH
def test_a_collective_for_more_ranks_than_there_are_is_refused(run: Any, root: str) -> None:
    module = graph("x = s32[4] parameter(0)", f"ROOT r = {root}", head=PAIR("s32[] add(a, b)"))
    with pytest.raises(NeuronError) as caught:
        run(module, np.arange(4, dtype=np.int32))
    assert caught.value.code == "hlo-invalid" and "1 ranks" in caught.value.what
    if run is evaluate:
        shapes = [part.dimensions for part in module.result_shape.tuple_shapes]
        outputs = run(module, np.arange(4, dtype=np.int32), ranks=2)
        assert [output.shape for output in outputs] == (shapes or [module.result_shape.dimensions])


@BOTH
def test_a_custom_call_that_gives_a_token_alone_is_not_left_out(run: Any) -> None:
    x = np.arange(4, dtype=np.int32)
    call = 'c = token[] custom-call(x), custom_call_target=""'
    for root in ("add-dependency(x, c)", "negate(x)"):
        with pytest.raises(NeuronError) as caught:
            run(graph("x = s32[4] parameter(0)", call, f"ROOT r = s32[4] {root}"), x)
        assert caught.value.code == "hlo-not-supported"


def test_a_literal_keeps_its_shape_where_the_instruction_has_another_layout() -> None:
    module = parse_text("HloModule m\nENTRY e { ROOT c = u8[2,2] constant({{1, 2}, {3, 4}}) }")
    message = message_class("HloModuleProto").FromString(to_proto(module))
    del message.computations[0].instructions[0].shape.layout.minor_to_major[:]
    message.computations[0].instructions[0].shape.layout.minor_to_major.extend([0, 1])
    data = to_proto(from_proto(message.SerializeToString()))
    assert to_proto(parse_text(print_text(from_proto(data)))) == data


@pytest.mark.parametrize("root", ["pred[] compare(a, b), direction=NE", "pred[] constant(true)"])
@BOTH
def test_a_comparator_that_is_no_order_gives_each_element_once(run: Any, root: str) -> None:
    module = graph(
        "x = s32[64] parameter(0)",
        "ROOT r = s32[64] sort(x), dimensions={0}, to_apply=pair",
        head=PAIR(root),
    )
    x = np.random.default_rng(0).permutation(64).astype(np.int32)
    assert sorted(run(module, x)[0].tolist()) == list(range(64))
