"""The host executor on several threads: the same bits for any number of them."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conformance_models import MODELS, inputs_of, models
from random_graphs import seeded
from random_steps import random_graph

import graph_compiler
from graph_compiler import evaluate, execute, parse_text
from graph_compiler.execute.executable import Executable, planned
from graph_compiler.host_kernels.division import DividedDimension
from graph_compiler.schedule import parts
from graph_compiler.schedule.parts import divided_words
from graph_compiler.schedule.steps import Place
from graph_compiler.schedule.views import Buffer
from isa.errors import NeuronError
from isa.object_cache import Cache

teams = importlib.import_module("graph_compiler.execute.teams")

Array = np.ndarray[Any, Any]
THREADS = (1, 2, 3, 4)

ADD = """add { a = TYPE[] parameter(0)
  b = TYPE[] parameter(1)
  ROOT s = TYPE[] add(a, b) }
"""


@pytest.fixture
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is not cut to the CPUs that are there."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """All threads take part, however busy the machine is, and in small calls too."""
    monkeypatch.setattr(teams, "busy", lambda threads: False)
    monkeypatch.setattr(parts, "LEAST_WORK", 64)
    monkeypatch.setattr(parts, "LEAST_RUN", 64)


def dot(left: str, right: str, result: str, attributes: str) -> str:
    return f"""HloModule m
ENTRY e {{
  a = {left} parameter(0)
  b = {right} parameter(1)
  ROOT r = {result} dot(a, b), {attributes}
}}"""


def entry(operand: str, *lines: str, head: str = "") -> str:
    return "\n".join(
        ["HloModule m", head, "ENTRY e {", f"  x = {operand} parameter(0)", *lines, "}"]
    )


PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
TURNED = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"
BATCHED = "lhs_batch_dims={0}, rhs_batch_dims={0}, " + (
    "lhs_contracting_dims={2}, rhs_contracting_dims={1}"
)
SUM = "  zero = f32[] constant(1)\n  ROOT r = "

CASES = {
    "columns": dot("f32[21,70]", "f32[70,509]", "f32[21,509]", PLAIN),
    "columns of a vector": dot("f32[1,70]", "f32[70,997]", "f32[1,997]", PLAIN),
    "columns, transposed": dot("f32[9,70]", "f32[509,70]", "f32[9,509]", TURNED),
    "columns, deep": dot("f32[9,1100]", "f32[1100,301]", "f32[9,301]", PLAIN),
    "rows": dot("f32[331,70]", "f32[70,30]", "f32[331,30]", PLAIN),
    "rows, bf16": dot("bf16[331,70]", "bf16[70,30]", "bf16[331,30]", PLAIN),
    "rows, bf16, deep": dot("bf16[331,2200]", "bf16[2200,30]", "f32[331,30]", PLAIN),
    "batch": dot("f32[7,9,20]", "f32[7,20,11]", "f32[7,9,11]", BATCHED),
    "convolution": """HloModule m
ENTRY e {
  x = f32[2,13,13,8] parameter(0)
  k = f32[3,3,8,24] parameter(1)
  ROOT r = f32[2,13,13,24] convolution(x, k), window={size=3x3 pad=1_1x1_1}, """
    "dim_labels=b01f_01io->b01f\n}",
    "map of a row": entry(
        "f32[4099]", "  y = f32[4099] exponential(x)\n  ROOT r = f32[4099] add(y, x)"
    ),
    "map of a row, bf16": entry("bf16[1003]", "  ROOT r = bf16[1003] tanh(x)"),
    "map of rows": entry("f32[67,33]", "  ROOT r = f32[33,67] transpose(x), dimensions={1,0}"),
    "map of few rows": entry(
        "f32[2,1003]",
        "  n = f32[2,1003] negate(x)\n  s = f32[2,999] slice(n), slice={[0:2], [3:1002]}\n"
        "  ROOT r = f32[2,999] multiply(s, s)",
    ),
    "sums of rows": entry(
        "f32[53,301]",
        SUM + "f32[53] reduce(x, zero), dimensions={1}, to_apply=add",
        head=ADD.replace("TYPE", "f32"),
    ),
    "sums of columns": entry(
        "f32[301,530]",
        SUM + "f32[530] reduce(x, zero), dimensions={0}, to_apply=add",
        head=ADD.replace("TYPE", "f32"),
    ),
    "sums of the middle": entry(
        "f32[11,301,30]",
        SUM + "f32[11,30] reduce(x, zero), dimensions={1}, to_apply=add",
        head=ADD.replace("TYPE", "f32"),
    ),
    "loop": """HloModule m
body { s = (s32[], f32[40,40]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[40,40] get-tuple-element(s), index=1
  one = s32[] constant(1)
  y = f32[40,40] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  small = f32[] constant(0.02)
  smalls = f32[40,40] broadcast(small), dimensions={}
  v = f32[40,40] multiply(y, smalls)
  z = f32[40,40] add(v, x)
  next = s32[] add(i, one)
  ROOT r = (s32[], f32[40,40]) tuple(next, z) }
condition { s = (s32[], f32[40,40]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(7)
  ROOT p = pred[] compare(i, n), direction=LT }
ENTRY e {
  x = f32[40,40] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[40,40]) tuple(zero, x)
  end = (s32[], f32[40,40]) while(start), condition=condition, body=body
  ROOT r = f32[40,40] get-tuple-element(end), index=1
}""",
}


def values_of(module: graph_compiler.Module) -> list[Array]:
    rng = np.random.default_rng(3)
    found = []
    for item in module.entry.parameters:
        dtype = ml_dtypes.bfloat16 if item.shape.element_type == "bf16" else np.float32
        found.append(rng.uniform(-1, 1, item.shape.dimensions).astype(dtype))
    return found


def results(
    module: graph_compiler.Module, inputs: Sequence[Array], threads: int, folder: Path
) -> list[bytes]:
    """The outputs' bytes, equal in three runs."""
    executable = Executable(module, Cache("plans", folder), threads=threads)
    runs = [[out.tobytes() for out in executable(inputs)] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    return runs[0]


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("name", CASES)
def test_divided_calls_give_the_same_bits(name: str, tmp_path: Path) -> None:
    module = parse_text(CASES[name])
    inputs = values_of(module)
    plan, _ = planned(module, 2)
    assert plan["shared"] and not planned(module, 1)[0]["shared"]
    found = [results(module, inputs, threads, tmp_path) for threads in THREADS]
    assert all(outputs == found[0] for outputs in found)
    (expected,) = evaluate(module, *inputs)
    (out,) = (np.frombuffer(data, expected.dtype).reshape(expected.shape) for data in found[0])
    narrow = "bf16" in CASES[name]
    np.testing.assert_allclose(
        out.astype(np.float64),
        expected.astype(np.float64),
        rtol=2**-7 if narrow else 1e-4,
        atol=2**-5 if narrow else 1e-4,
    )


def generated(seed: int) -> str:
    """A graph of products, maps, moves and sums of random sizes."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(size) for size in rng.integers(20, 200, 2))
    lines = ["  zero = f32[] constant(0)"]
    last = "x"
    first = f"f32[{rows},{columns}]"
    for number in range(6):
        form, new = f"f32[{rows},{columns}]", f"y{number}"
        choice = int(rng.integers(5))
        if choice == 0:
            lines.append(f"  {new} = {form} tanh({last})")
        elif choice == 1:
            lines.append(f"  {new} = f32[{columns},{rows}] transpose({last}), dimensions={{1,0}}")
            rows, columns = columns, rows
        elif choice == 2:
            lines.append(
                f"  {new} = f32[{rows},{rows}] dot({last}, {last}), lhs_contracting_dims={{1}}, "
                "rhs_contracting_dims={1}"
            )
            columns = rows
        else:
            axis = choice - 3
            kept = (columns, rows)[axis]
            lines.append(
                f"  s{number} = f32[{kept}] reduce({last}, zero), dimensions={{{axis}}}, "
                "to_apply=add"
            )
            lines.append(
                f"  t{number} = {form} broadcast(s{number}), dimensions={{{1 - axis}}}\n"
                f"  {new} = {form} subtract({last}, t{number})"
            )
        last = new
    lines.append(f"  ROOT r = f32[{rows},{columns}] sine({last})")
    return entry(first, *lines, head=ADD.replace("TYPE", "f32"))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("seed", range(5))
def test_generated_graphs_give_the_same_bits(seed: int, tmp_path: Path) -> None:
    module = parse_text(generated(seed))
    inputs = values_of(module)
    found = [results(module, inputs, threads, tmp_path) for threads in (1, 2, 4)]
    assert found[0] == found[1] == found[2]
    assert np.isfinite(np.frombuffer(found[0][0], np.float32)).all()


@pytest.mark.usefixtures("always")
def test_random_graphs_give_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops, updates in place, sums of any order of work, their smallest calls divided. How well
    they agree with the reference is seen on one thread (`test_random_graphs`)."""
    monkeypatch.setattr(parts, "LEAST_WORK", 1)
    monkeypatch.setattr(parts, "LEAST_RUN", 1)
    shared = 0
    for seed in range(10):
        graph = random_graph(seeded(seed), 16)
        module = parse_text(graph.text)
        shared += bool(planned(module, 2)[0]["shared"])
        found = [results(module, graph.inputs, threads, tmp_path) for threads in (1, 2, 4)]
        assert found[0] == found[1] == found[2], seed
    assert shared > 5


@pytest.mark.usefixtures("eight_cpus")
@pytest.mark.skipif(not MODELS.exists(), reason=f"no model files in {MODELS}")
@pytest.mark.parametrize("name", ["mnist_cnn_train_nnx", "llama_prefill_bf16", "clip_infer_f32"])
def test_models_give_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teams, "busy", lambda threads: False)
    module = graph_compiler.load(models()[name].path.read_bytes())
    inputs = inputs_of(models()[name])
    found = []
    for threads in ("1", "2", "4"):
        monkeypatch.setenv("NKI_NUM_THREADS", threads)
        found.append([out.tobytes() for out in execute(module, *inputs)])
    assert found[0] == found[1] == found[2]


LARGE = dot("f32[256,256]", "f32[256,512]", "f32[256,512]", PLAIN)


@pytest.mark.usefixtures("eight_cpus")
def test_the_setting_says_how_many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Counted(teams.Team):  # type: ignore[misc, name-defined]
        def __init__(self, threads: int) -> None:
            super().__init__(threads)
            started.append(threads)

    monkeypatch.setattr(teams, "busy", lambda threads: False)
    monkeypatch.setattr(teams, "Team", Counted)
    teams._place.cache_clear()
    module = parse_text(LARGE)
    inputs = values_of(module)
    for threads in ("1", "3", "2", "3"):
        monkeypatch.setenv("NKI_NUM_THREADS", threads)
        execute(module, *inputs)
    assert started == [3, 2]
    monkeypatch.setenv("NKI_NUM_THREADS", "none")
    with pytest.raises(NeuronError) as caught:
        execute(module, *inputs)
    assert caught.value.code == "value-not-allowed"


def test_a_busy_machine_is_left_to_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One thread runs all parts."""
    module = parse_text(LARGE)
    inputs = values_of(module)
    expected = results(module, inputs, 1, tmp_path)
    monkeypatch.setattr(teams, "busy", lambda threads: True)
    monkeypatch.setattr(teams, "Team", None)
    assert results(module, inputs, 4, tmp_path) == expected


def test_the_decision_changes_no_result(
    always: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A run with threads, one without, and so on: the same bits."""
    decisions = [False, True, True, False, True, False]
    monkeypatch.setattr(teams, "busy", lambda threads: decisions.pop())
    for name in ("columns", "loop"):
        module = parse_text(CASES[name])
        inputs = values_of(module)
        executable = Executable(module, Cache("plans", tmp_path), threads=3)
        found = [[output.tobytes() for output in executable(inputs)] for _ in range(3)]
        assert found[0] == found[1] == found[2]
    assert not decisions


@pytest.mark.usefixtures("always")
def test_runs_at_once_share_one_team(tmp_path: Path) -> None:
    """One of them has it, the other computes by itself."""
    modules = [parse_text(CASES[name]) for name in ("loop", "rows")]
    expected = [results(module, values_of(module), 1, tmp_path) for module in modules]
    found: list[list[bytes]] = [[], []]

    def run(number: int) -> None:
        for _ in range(5):
            found[number] = results(modules[number], values_of(modules[number]), 2, tmp_path)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == expected


_CROWD = """
import importlib, os, sys
import numpy as np
os.sched_getaffinity = lambda process: set(range(64))
from graph_compiler import execute, parse_text
importlib.import_module("graph_compiler.execute.teams").busy = lambda threads: False
module = parse_text(sys.stdin.read())
inputs = [np.ones((256, 256), np.float32), np.ones((256, 512), np.float32)]
for _ in range(20):
    (out,) = execute(module, *inputs)
    assert (out == 256).all()
print("done")
"""


def test_more_threads_than_cpus_come_to_an_end() -> None:
    threads = min(64, 4 * (os.cpu_count() or 1) + 1)
    result = subprocess.run(
        [sys.executable, "-c", _CROWD],
        input=LARGE,
        text=True,
        capture_output=True,
        timeout=120,
        env={**os.environ, "NKI_NUM_THREADS": str(threads)},
    )
    assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
@pytest.mark.usefixtures("always")
def test_a_fork_has_threads_of_its_own(tmp_path: Path) -> None:
    """Those of its parent are not there: waiting for them would never end."""
    module = parse_text(CASES["rows"])
    inputs = values_of(module)
    executable = Executable(module, Cache("plans", tmp_path), threads=2)
    expected = executable(inputs)[0].tobytes()
    child = os.fork()
    if not child:
        os._exit(executable(inputs)[0].tobytes() != expected)
    deadline = time.monotonic() + 60
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.05)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_parts_cover_the_whole_once() -> None:
    buffer = Buffer(4096)
    words = [Place(buffer, 100), Place(buffer), 77, 5]
    found = divided_words(DividedDimension(2, 77, ((0, 4),), 8, ((1, 256),)), words, 4)
    assert [part[2] for part in found] == [16, 24, 16, 21]
    starts = [(part[0].offset - 100) // 4 for part in found if isinstance(part[0], Place)]
    assert starts == [0, 16, 40, 56]
    assert [part[1] for part in found] == [Place(buffer, 256 * i) for i in range(4)]
    assert all(part[3] == 5 for part in found)
    assert divided_words(DividedDimension(2, 8, (), 8), words, 4) == []
    assert [part[2] for part in divided_words(DividedDimension(2, 9, (), 8), words, 4)] == [8, 1]


def test_small_programs_wake_nobody() -> None:
    """Waking takes longer than a product of this size; one eight times as large is worth it."""
    small = dot("f32[128,256]", "f32[256,256]", "f32[128,256]", PLAIN)
    large = dot("f32[512,256]", "f32[256,512]", "f32[512,512]", PLAIN)
    assert [planned(parse_text(text), 2)[0]["shared"] for text in (small, large)] == [False, True]
