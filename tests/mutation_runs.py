"""Runs of mutants: many seeds, each in a process that may end, with limits of time and memory.

A program that has mutants states what becomes of one, and calls `main`. A mutant may be refused by
an error of the catalogue. Anything else that a `Failure` says is printed as it comes, with the seed
that gives it again (`--seeds N:N+1 --show`); the exit code is 1 if there are any. Ranges of seeds
are independent of each other, so that a run goes on where another ended.
"""

from __future__ import annotations

import argparse
import gc
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
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]

SECONDS = float(os.environ.get("MUTANT_SECONDS", "1"))
"""CPU time that each stage of a mutant may take; more is for emulated CPUs."""

SILENCE = 300
"""Seconds without an answer after which a process counts as one that hangs: its CPUs are shared."""

MEMORY = 4 << 30
"""Address space of a process, unless its subject says otherwise."""

COLLECTED = 64
"""Mutants after which cyclic garbage is collected: errors keep programs, with their memories."""

PROGRESS = 10_000
"""Seeds after which a process is said to have come so far."""

THOROUGH = 8
"""Of so many processes one compiles native code as for users, the others with little effort."""


class Subject(NamedTuple):
    """What is mutated: the `script` that calls `main`; `outcome_of(seed)` says what became of a
    mutant, or raises `Failure`; `warm_up` does once what is no mutant's time; `show(seed)` gives a
    mutant to look at; `count` are run unless the command says otherwise. A process runs `each`:
    what it compiled goes with it, and has an address space of `memory`. `arguments` are those of
    the command beside seeds."""

    script: Path
    outcome_of: Callable[[int], str]
    warm_up: Callable[[], object]
    show: Callable[[int], str]
    count: int = 1_000_000
    each: int = 2000
    memory: int = MEMORY
    arguments: tuple[str, ...] = ()


class Failure(Exception):
    """What a mutant must not do."""


def within(stage: str, action: Callable[[], Any]) -> Any:
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


def _work(subject: Subject, first: int, last: int) -> None:
    """In a process of its own: a line before each mutant, and one with what became of it."""
    resource.setrlimit(resource.RLIMIT_AS, (subject.memory, subject.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if first // subject.each % THOROUGH:
        _compile_quickly()
    subject.warm_up()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else is written among the answers
    for seed in range(first, last):
        print(seed, file=answers, flush=True)
        if (seed - first) % COLLECTED == 0:
            gc.collect()
            gc.freeze()  # what is kept is not looked at again
        try:
            said = {"outcome": subject.outcome_of(seed)}
        except Failure as failure:
            said = {"failure": str(failure)[:300]}
        print(json.dumps(said), file=answers)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    spent = {"peak": peak, "seconds": time.process_time()}
    print(json.dumps(spent), file=answers, flush=True)


def _compile_quickly() -> None:
    from simulator.native.codegen.library import Library

    Library.effort = 0


def _supervised(
    script: Path,
    first: int,
    last: int,
    report: Callable[[str], None],
    arguments: tuple[str, ...],
) -> Tally:
    """A range of seeds, by as many processes as it takes: one that ends is followed by another.
    How far it is and what failed is reported as it comes."""
    tally = Tally()
    while first < last:
        with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as complaints:
            environment = {
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(script.parent)]),
                "XDG_CACHE_HOME": folder,
                "NKI_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "OPENBLAS_NUM_THREADS": "1",
            }
            process = subprocess.Popen(
                [sys.executable, str(script), "--worker", f"{first}:{last}", *arguments],
                stdout=subprocess.PIPE,
                stderr=complaints,
                env=environment,
            )
            try:
                first = _answers(process, tally, first, last, complaints, report)
            finally:
                process.kill()
                process.wait()
    return tally


def _answers(
    process: Any,
    tally: Tally,
    first: int,
    last: int,
    complaints: Any,
    report: Callable[[str], None],
) -> int:
    """Reads what a process says; the seed with which to go on."""
    seed, pending = first - 1, b""

    def fail(reason: str) -> None:
        tally.failures[seed] = reason
        report(f"seed {seed}: {reason}")

    while select.select([process.stdout], [], [], SILENCE)[0]:
        read = os.read(process.stdout.fileno(), 1 << 16)
        if not read:
            code = process.wait()
            complaints.seek(max(0, complaints.tell() - 400))
            said = complaints.read().decode(errors="replace").strip()
            if seed < first:
                raise SystemExit(f"the process for seeds from {first} on ends with {code}: {said}")
            if code or seed < last - 1:
                fail(f"the process ended with code {code}: {said}")
            return seed + 1
        *lines, pending = (pending + read).split(b"\n")
        for line in lines:
            said = json.loads(line)
            if isinstance(said, int):
                seed = said
                if seed % PROGRESS == 0:
                    report(f"at seed {seed}")
            elif "failure" in said:
                fail(said["failure"])
            elif "outcome" in said:
                tally.outcomes[said["outcome"]] += 1
            else:
                tally.peak_bytes = max(tally.peak_bytes, said["peak"])
                tally.cpu_seconds += said["seconds"]
    fail(f"no answer for {SILENCE} s")
    return seed + 1


def run_all(
    script: Path,
    first: int,
    last: int,
    processes: int,
    report: Callable[[str], None],
    each: int = Subject._field_defaults["each"],
    arguments: tuple[str, ...] = (),
) -> Tally:
    """All mutants of a range of seeds; failures are reported as they come."""
    total, done, begun = Tally(), 0, time.monotonic()
    ranges = [(start, min(start + each, last)) for start in range(first, last, each)]
    with ThreadPoolExecutor(processes) as pool:
        for (start, end), tally in zip(
            ranges, pool.map(lambda r: _supervised(script, *r, report, arguments), ranges)
        ):
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


def main(subject: Subject, description: str, choices: argparse.ArgumentParser | None = None) -> int:
    """The command line of a program that has mutants; `choices` has options of its own."""
    parser = argparse.ArgumentParser(
        description=description.partition("\n")[0], parents=[choices] if choices else []
    )
    parser.add_argument("--seeds", type=_range, default=(0, subject.count), metavar="FIRST:LAST")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", action="store_true", help="one mutant here, with its traceback")
    parser.add_argument("--worker", type=_range, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(subject, *options.worker)
        return 0
    if options.show:
        for seed in range(*options.seeds):
            print(subject.show(seed))
            print(subject.outcome_of(seed))
        return 0
    report = partial(print, flush=True)
    tally = run_all(
        subject.script,
        *options.seeds,
        options.processes,
        report,
        subject.each,
        subject.arguments,
    )
    print(table(tally))
    return 1 if tally.failures else 0
