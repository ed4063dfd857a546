"""Hostile graphs: catalogue errors that name the instruction, in bounded time and memory.

All run in one process with a limit on its memory and on the CPU time of each graph.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mutation_runs
import numpy as np
import pytest
import run_mutations
from conformance_cases import DATA, cases, protos
from graph_mutations import Mutator

import graph_compiler
from graph_compiler import parse_text, verify
from graph_compiler.hlo.proto import from_proto, to_proto
from isa.errors import CATALOGUE, NeuronError

HUGE = 1 << 38
"""Elements of one byte: a value that is only just allowed, and that no memory here holds."""

ADD = "add { a = s8[] parameter(0) b = s8[] parameter(1) ROOT c = s8[] add(a, b) }"
LESS = ADD.replace("add {", "less {").replace(
    "s8[] add(a, b)", "pred[] compare(a, b), direction=LT"
)


def graph(line: str, *more: str) -> str:
    """A graph whose root is `line`; it has a scalar `s`, a vector `v` of 4 and a matrix `m`."""
    parameters = ("s = s8[] parameter(0)", "v = s8[4] parameter(1)", "m = s8[4,4] parameter(2)")
    head = ("HloModule hostile", ADD, *more, "ENTRY e {")
    return "\n".join((*head, *parameters, f"ROOT r = {line}", "}"))


def doubling(levels: int) -> list[str]:
    """Computations of one scalar, each calling the one before it twice."""
    lines = ["c0 { p = s8[] parameter(0) ROOT r = s8[] negate(p) }"]
    for level in range(1, levels):
        called = f"to_apply=c{level - 1}"
        lines.append(
            f"c{level} {{\np = s8[] parameter(0)\na = s8[] call(p), {called}\n"
            f"ROOT r = s8[] call(a), {called}\n}}"
        )
    return lines


VERIFIED = {
    "value of 2^40 bytes": (graph(f"s8[{1 << 40}] iota(), iota_dimension=0"), "hlo-too-large"),
    "extent beside a size of 0": (
        graph(f"s8[0,{1 << 30},{1 << 30}] broadcast(s), dimensions={{}}"),
        "hlo-too-large",
    ),
    "40 dimensions": (
        graph(f"s8[{','.join(['1'] * 40)}] broadcast(s), dimensions={{}}"),
        "hlo-too-large",
    ),
    "padding to a negative size": (graph("s8[0] pad(v, s), padding=-9_4"), "hlo-shape-mismatch"),
    "groups of numbers that do not fit": (
        graph("s8[4] all-reduce(v), replica_groups=[2,2]<=[5], to_apply=add"),
        "hlo-shape-mismatch",
    ),
    "a window of no elements": (
        graph("s8[4] reduce-window(v, s), window={size=0}, to_apply=add"),
        "hlo-shape-mismatch",
    ),
    "a slice that begins behind its end": (
        graph("s8[1] slice(v), slice={[3:2]}"),
        "hlo-shape-mismatch",
    ),
    "a dimension twice": (graph("s8[4,4] transpose(m), dimensions={0,0}"), "hlo-shape-mismatch"),
    "a called computation of other types": (
        graph("s8[4] map(v), dimensions={0}, to_apply=add"),
        "hlo-shape-mismatch",
    ),
    "a dynamic size": (graph("s8[<=4] negate(v)"), "hlo-not-supported"),
    "data from the host": (graph("(s8[4], token[]) infeed(v)"), "hlo-not-supported"),
}
"""Graphs that the verifier refuses, and the code."""

RUN = {
    "memory of a value": (graph(f"s8[{HUGE}] iota(), iota_dimension=0"), "hlo-too-large"),
    "memory of padding inside": (
        graph(
            f"s8[5] reduce-window(v, s), window={{size=2 stride={HUGE} lhs_dilate={HUGE} "
            f"pad=1_{HUGE}}}, to_apply=add"
        ),
        "hlo-too-large",
    ),
    "a window with more elements than can be gone through": (
        graph(
            f"s8[4] select-and-scatter(v, v, s), window={{size={HUGE + 1} "
            f"pad={HUGE // 2}_{HUGE // 2}}}, select=less, scatter=add",
            LESS,
        ),
        "hlo-too-large",
    ),
    "groups of more ranks than there are": (
        graph(f"s8[4] all-reduce(v), replica_groups=[1,{HUGE}]<=[{HUGE}], to_apply=add"),
        "hlo-invalid",
    ),
    "calls that double": (graph("s8[] call(s), to_apply=c60", *doubling(61)), "loop-limit"),
    "lanes that double": (
        graph("s8[4] map(v), dimensions={0}, to_apply=c60", *doubling(61)),
        "loop-limit",
    ),
    "an endless loop": (
        graph(
            "s8[] while(s), condition=always, body=c0",
            "always { p = s8[] parameter(0) ROOT t = pred[] constant(true) }",
            *doubling(1),
        ),
        "loop-limit",
    ),
}
"""Graphs that are right and cannot run, and the code."""

CHILD = """
import json, resource, signal, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
import numpy as np
import graph_compiler
from isa.errors import NeuronError
from graph_compiler.sample_inputs import sample_inputs

def stop(*_):
    raise TimeoutError

signal.signal(signal.SIGPROF, stop)
for name, text in json.load(sys.stdin).items():
    signal.setitimer(signal.ITIMER_PROF, 20)
    try:
        module = graph_compiler.load(text.encode())
        stage = "run"
        graph_compiler.evaluate(module, *sample_inputs(module).values(), loop_limit=1000)
        outcome = ["", "it ran"]
    except NeuronError as error:
        outcome = [error.code, error.what]
    except BaseException as error:
        outcome = [type(error).__name__, str(error)]
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps([name, *outcome]), flush=True)
"""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, tuple[str, str]]:
    texts = {name: text for name, (text, _) in (VERIFIED | RUN).items()}
    result = subprocess.run(
        [sys.executable, "-c", CHILD],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parents[2],
    )
    assert result.returncode == 0, result.stderr[-2000:]
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    return {name: (code, what) for name, code, what in rows}


@pytest.mark.parametrize("name", VERIFIED | RUN)
def test_a_hostile_graph_ends_in_an_error_of_the_catalogue(
    name: str, outcomes: dict[str, tuple[str, str]]
) -> None:
    code, what = outcomes[name]
    assert code == (VERIFIED | RUN)[name][1], what
    assert "`r`" in what or "`c" in what or "'r'" in what, what


@pytest.mark.skipif(not DATA.exists(), reason=f"no conformance data in {DATA}")
def test_damaged_graphs_of_every_operator_are_refused_by_the_catalogue() -> None:
    """Written, read and verified without any other exception; most are refused."""
    mutator = Mutator(0)
    chosen = mutator.random.sample(cases(), 250)
    found: dict[str, int] = {}
    for _, data in protos(chosen):
        for _ in range(6):
            module = from_proto(data)
            mutator.graph(module)
            try:
                verify(from_proto(to_proto(module)))
                code = ""
            except NeuronError as error:
                code = error.code
                assert code in CATALOGUE
            found[code] = found.get(code, 0) + 1
    assert sum(found.values()) == 1500
    assert found[""] < 750 and min(found[c] for c in ("hlo-invalid", "hlo-too-large")) > 20
    assert found["hlo-shape-mismatch"] > 200 and found["hlo-type-mismatch"] > 20


def test_mutants_are_refused_or_computed_alike() -> None:
    """The first of those that `run_mutations.py` goes through: read, written, run by both."""
    reports: list[str] = []
    tally = mutation_runs.run_all(run_mutations.SUBJECT.script, 0, 150, 1, reports.append)
    assert not tally.failures, reports
    assert sum(tally.outcomes.values()) == 150
    assert tally.outcomes["ran"] > 10 and tally.outcomes["refused: hlo-invalid"] > 10


def test_what_a_mutant_must_not_do_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    for action in (lambda: 1 // 0, lambda: [].pop(), lambda: bytes(1 << 62)):
        with pytest.raises(mutation_runs.Failure):
            mutation_runs.within("loading", action)
    module = parse_text("HloModule m\nENTRY e { ROOT x = f32[2] parameter(0) }")
    assert run_mutations._run(module) == "ran"
    monkeypatch.setattr(graph_compiler, "execute", lambda *_, **__: [np.float32([1, 2])])
    with pytest.raises(mutation_runs.Failure, match="result 0"):
        run_mutations._run(module)
    monkeypatch.setattr(mutation_runs, "SECONDS", -1)
    with pytest.raises(mutation_runs.Failure, match="loading"):
        mutation_runs.within("loading", lambda: None)


def test_sums_that_cancel_are_bounded_by_their_terms() -> None:
    """2048 + 1 + 1 - 2050 in fp16 is -2 in this order, and 0 where 1 + 1 comes first."""
    terms = [np.float16([value]) for value in (2048, 1, 1, -2050)]
    parameters = [f"p{n} = f16[1] parameter({n})" for n in range(4)]
    sums = ["a = f16[1] add(p0, p1)", "b = f16[1] add(a, p2)", "ROOT c = f16[1] add(b, p3)"]
    module = parse_text("\n".join(["HloModule m", "ENTRY e {", *parameters, *sums, "}"]))
    in_order, other = (np.float16([value]) for value in (-2, 0))
    assert graph_compiler.evaluate(module, *terms)[0] == in_order
    assert run_mutations.differing(in_order, other)
    assert not any(run_mutations._lost(module, terms, 0, found) for found in (in_order, other))
    assert run_mutations._lost(module, terms, 0, other + 16)
