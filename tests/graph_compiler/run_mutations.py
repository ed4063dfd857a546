"""Mutated graphs, each read, checked, written, evaluated and executed: what went wrong.

    python tests/graph_compiler/run_mutations.py --seeds 0:1000000 --processes 2

A mutant may be refused by an error of the catalogue. Anything else is a failure: a process that
ends, a stage of more than `SECONDS` of CPU time, another exception, a graph that is read and cannot
be written, and values that `evaluate` and `execute` compute differently. Failures are printed as
they come, with the seed that gives them again (`--seeds N:N+1 --show`); the exit code is 1 if there
are any. Ranges of seeds are independent of each other, so that a run goes on where another ended.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

SECONDS = 1.0
"""CPU time that each stage may take: reading, writing, evaluating and executing one mutant."""

SILENCE = 300
"""Seconds without an answer after which a process counts as one that hangs: its CPUs are shared."""

MEMORY = 4 << 30
"""Address space of a process."""

EACH = 2000
"""Mutants for one process: what it compiled goes with it."""

MOST_BYTES, MOST_WORK = 1 << 25, 1 << 26
"""Of a graph that is run: bytes of all its values, and operations. Larger ones are only read."""

ITERATIONS = 200
"""Limit of loops."""


class Failure(Exception):
    """What a mutant must not do."""


def _within(stage: str, action: Callable[[], Any]) -> Any:
    """An action's value. Raises NeuronError, or Failure for anything else and for its time.

    The clock of CPU time is asked for what takes long by the clock on the wall only, which costs
    less: such an action is done again.
    """
    begun = time.monotonic()
    try:
        return _without_surprise(stage, action)
    finally:
        if time.monotonic() - begun > SECONDS:
            spent = time.process_time()
            with suppress(Exception):
                action()
            if (spent := time.process_time() - spent) > SECONDS:
                raise Failure(f"{stage}: {spent:.1f} s of CPU time")


def _without_surprise(stage: str, action: Callable[[], Any]) -> Any:
    from isa.errors import CATALOGUE, NeuronError

    try:
        return action()
    except NeuronError as error:
        if error.code not in CATALOGUE or not error.what:
            raise Failure(f"{stage}: an error without a row: {error!r}") from error
        raise
    except Exception as error:
        raise Failure(f"{stage}: {type(error).__name__}: {error}") from error


def outcome_of(seed: int) -> str:
    """What became of a mutant: "ran", "large", or the code with which it was refused, and where.

    Raises Failure.
    """
    from graph_mutations import mutant

    from graph_compiler import load
    from isa.errors import NeuronError

    try:
        data = _within("making", lambda: mutant(seed))
        module = _within("loading", lambda: load(data))
    except NeuronError as error:
        return f"refused: {error.code}"
    _written(module)
    if _is_large(module):
        return "large"
    return _run(module)


def _written(module: Any) -> None:
    """The same from a proto and from a text. Raises Failure."""
    from graph_compiler import from_proto, parse_text, print_text, to_proto
    from isa.errors import NeuronError

    try:
        data = _within("writing", lambda: to_proto(module))
        if _within("reading again", lambda: to_proto(from_proto(data))) != data:
            raise Failure("another proto behind a proto")
        text = _within("printing", lambda: print_text(module))
        if _within("parsing again", lambda: to_proto(parse_text(text))) != data:
            raise Failure("another proto behind a text")
    except NeuronError as error:
        raise Failure(f"read, and cannot be written: {error}") from error


def _is_large(module: Any) -> bool:
    from graph_compiler.hlo.cost import work_of

    size = sum(item.shape.bytes for item in module.instructions())
    if size > MOST_BYTES:
        return True
    work = _within("counting", lambda: work_of(module))
    return work.flops + 10 * work.transcendentals > MOST_WORK


def _run(module: Any) -> str:
    from graph_compiler import evaluate, execute
    from graph_compiler.sample_inputs import sample_inputs
    from isa.errors import NeuronError

    inputs = list(sample_inputs(module).values())
    results = []
    for run in (evaluate, execute):
        try:
            found = _within(
                run.__name__, lambda run=run: run(module, *inputs, loop_limit=ITERATIONS)
            )
        except NeuronError as error:
            found = error
        results.append(found)
    expected, found = results
    refused = [result.code for result in results if isinstance(result, NeuronError)]
    if len(refused) == 1 and refused[0] not in _BOUNDS:
        error = next(result for result in results if isinstance(result, NeuronError))
        raise Failure(f"only one of evaluate and execute refuses: {error}")
    if refused:
        return f"refused to run: {refused[0]}"
    if len(expected) != len(found):
        raise Failure(f"{len(expected)} results of evaluate, {len(found)} of execute")
    if _order_is_open(module):
        return "ran in an order of its own"
    for number, (one, other) in enumerate(zip(expected, found)):
        if reason := differing(one, other):
            raise Failure(f"result {number}: {reason}")
    return "ran"


def _order_is_open(module: Any) -> bool:
    """Whether a computation that XLA applies in any order is none whose order does not matter."""
    return any(
        not (_COMMUTES.get(item.opcode, frozenset()) >= {called.root.opcode} and _is_plain(called))
        for item in module.instructions()
        if item.opcode in _COMMUTES
        for called in item.called
    )


def _is_plain(computation: Any) -> bool:
    """Whether the root takes the parameters, each once."""
    return sorted(map(id, computation.root.operands)) == sorted(map(id, computation.parameters))


_FOLDS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
_ORDERS = frozenset({"compare"})
_COMMUTES = {
    "reduce": _FOLDS,
    "reduce-window": _FOLDS,
    "scatter": _FOLDS,
    "select-and-scatter": _FOLDS | _ORDERS,
    "sort": _ORDERS,
}
"""By opcode, the roots of computations for which the order of elements does not matter."""

_BOUNDS = frozenset({"hlo-too-large", "loop-limit"})
"""Codes that depend on how something is computed."""


def differing(expected: Any, found: Any) -> str:
    """Why two results are not the same within what sums in another order explain; or ""."""
    import numpy as np
    from conformance_cases import differing as differing_closely

    from graph_compiler import Shape

    if (expected.dtype, expected.shape) == (found.dtype, found.shape):
        if not (Shape.of(expected).primitive.is_float or expected.dtype.kind == "c"):
            return "" if np.array_equal(expected, found) else f"{found} instead of {expected}"
    return differing_closely("expect_close", found, expected)


@dataclass
class Tally:
    """What became of the mutants so far."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: dict[int, str] = field(default_factory=dict)
    peak_bytes: int = 0
    cpu_seconds: float = 0.0

    def add(self, other: Tally) -> None:
        self.outcomes += other.outcomes
        self.failures |= other.failures
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)
        self.cpu_seconds += other.cpu_seconds


def work(first: int, last: int) -> None:
    """In a process of its own: a line before each mutant, and one with what became of it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    from graph_mutations import sources

    from graph_compiler import evaluate, execute, from_proto

    evaluate(from_proto(sources()[0]))  # what is loaded once is no mutant's time
    execute(from_proto(sources()[0]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else is written among the answers
    for seed in range(first, last):
        print(seed, file=answers, flush=True)
        try:
            said = {"outcome": outcome_of(seed)}
        except Failure as failure:
            said = {"failure": str(failure)[:300]}
        print(json.dumps(said), file=answers)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    spent = {"peak": peak, "seconds": time.process_time()}
    print(json.dumps(spent), file=answers, flush=True)


def _supervised(first: int, last: int) -> Tally:
    """A range of seeds, by as many processes as it takes: one that ends is followed by another."""
    tally = Tally()
    while first < last:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as complaints:
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "graph_compiler")]),
                "XDG_CACHE_HOME": folder,
                "NKI_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            }
            process = subprocess.Popen(
                [sys.executable, __file__, "--worker", f"{first}:{last}"],
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
            )
            try:
                first = _answers(process, tally, first, last, complaints)
            finally:
                process.kill()
                process.wait()
    return tally


def _answers(process: Any, tally: Tally, first: int, last: int, complaints: Any) -> int:
    """Reads what a process says; the seed with which to go on."""
    seed, pending = first - 1, b""
    while select.select([process.stdout], [], [], SILENCE)[0]:
        read = os.read(process.stdout.fileno(), 1 << 16)
        if not read:
            code = process.wait()
            complaints.seek(max(0, complaints.tell() - 400))
            said = complaints.read().decode(errors="replace").strip()
            if seed < first:
                raise SystemExit(f"the process for seeds from {first} on ends with {code}: {said}")
            if code or seed < last - 1:
                tally.failures[seed] = f"the process ended with code {code}: {said}"
            return seed + 1
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if isinstance(said, int):
                seed = said
            elif "failure" in said:
                tally.failures[seed] = said["failure"]
            elif "outcome" in said:
                tally.outcomes[said["outcome"]] += 1
            else:
                tally.peak_bytes = max(tally.peak_bytes, said["peak"])
                tally.cpu_seconds += said["seconds"]
    tally.failures[seed] = f"no answer for {SILENCE} s"
    return seed + 1


def run_all(first: int, last: int, processes: int, report: Callable[[str], None]) -> Tally:
    """All mutants of a range of seeds; failures are reported as they come."""
    total, done, begun = Tally(), 0, time.monotonic()
    ranges = [(start, min(start + EACH, last)) for start in range(first, last, EACH)]
    with ThreadPoolExecutor(processes) as pool:
        for (start, end), tally in zip(ranges, pool.map(lambda r: _supervised(*r), ranges)):
            for seed, reason in sorted(tally.failures.items()):
                report(f"seed {seed}: {reason}")
            total.add(tally)
            done += end - start
            report(
                f"... up to seed {end}: {done} mutants, {time.monotonic() - begun:.0f} s, "
                f"CPU time {total.cpu_seconds:.0f} s, {len(total.failures)} failures"
            )
    return total


def table(tally: Tally) -> str:
    lines = [f"{count:9,}  {outcome}" for outcome, count in tally.outcomes.most_common()]
    lines.append(f"{len(tally.failures):9,}  failures")
    lines.append(f"CPU time {tally.cpu_seconds:,.0f} s; of a process {tally.peak_bytes >> 20} MiB")
    return "\n".join(lines)


def _range(text: str) -> tuple[int, int]:
    first, _, last = text.partition(":")
    return int(first), int(last)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=_range, default=(0, 1_000_000), metavar="FIRST:LAST")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="one mutant here, with its traceback")
    parser.add_argument("--worker", type=_range, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return 0
    if options.show:
        sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "graph_compiler")]
        from graph_mutations import mutant

        from graph_compiler import from_proto, print_text

        for seed in range(*options.seeds):
            data = mutant(seed)
            print(data.decode() if data.isascii() else print_text(from_proto(data)))
            print(outcome_of(seed))
        return 0
    tally = run_all(*options.seeds, options.processes, lambda line: print(line, flush=True))
    print(table(tally))
    return 1 if tally.failures else 0


if __name__ == "__main__":
    sys.exit(main())
