"""Time to trace and to lower the kernels of the matrix-multiplication ladder, an operation.

Run: python benchmarks/compile_time.py [SIZE]

Prints microseconds of CPU time for tracing and for the whole lowering, an operation of the tile IR
(calls of `nki.isa` functions and storage markers of `nl.ndarray`), and beside it a call of a
`nki.isa` function alone: the best and the median of interleaved repeats. The peer in the same run
is the eager mode, which computes each operation as its line runs and compiles nothing.

Then, for each kernel of the ladder at 4096 x 8192 x 8192 (32,768 matmuls, unrolled by Python), in a
process of its own: seconds from Python to the finished container, race check included, the peak
memory of the process and the size of the container, against their goals. "behind" are those of the
seconds that come behind the scheduler, which re-rolling makes follow the source: semaphores,
streams in columns, the check and writing. "x" is how many times as long that, and all, takes as for
half of the rows, which are half of the operations. "templates" are the instructions that are left
behind re-rolling, for half of the rows and for all, and "encode" is the time that they take.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tutorials"))

import ml_dtypes
import numpy as np
from matmul_kernels import LADDER

import nki
import nki.language as nl
from isa.files.container import write
from isa.files.encoding import encode_stream
from isa.files.reroll import reroll
from isa.gc_pause import collection_paused
from isa.operations.control import StorageBegin
from nki.ir.nodes import Op, walk
from nki.pipeline import compile_kernel
from nki.verification import verify_program

REPEATS = 9
TRACE_GOAL, LOWER_GOAL = 5.0, 50.0
ROWS, INNER, COLUMNS = 4096, 8192, 8192
SECONDS_GOAL, MEMORY_GOAL, CONTAINER_GOAL = 5.0, 1024, 200
"""Seconds, MiB and KiB."""


def counts(traced) -> tuple[int, int]:
    """Operations of the tile IR, and those of them that are calls of `nki.isa` functions."""
    nodes = [node for body in traced.bodies for node in walk(body) if isinstance(node, Op)]
    return len(nodes), sum(node.row is not StorageBegin for node in nodes)


def timed(function, *args):
    start = time.process_time()
    result = function(*args)
    return (time.process_time() - start) * 1e6, result


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    arrays = [np.zeros((size, size), ml_dtypes.bfloat16) for _ in range(2)]
    small = [array[:1024, :1024] for array in arrays]
    load = os.getloadavg()[0]
    print(f"{cpu_name()}, Python {platform.python_version()}, load {load:.1f}, size {size}")
    print("us of CPU time:        trace an op   (a call)    lower an op   (a call)  eager")
    print(f"{'kernel':14}{'ops':>7}   best median      best     best median      best  a call")
    worst = {"trace": 0.0, "lower": 0.0}
    for kernel in LADDER:
        trace_times, lower_times = [], []
        for _ in range(REPEATS):
            spent, traced = timed(lambda kernel=kernel: kernel.trace(*arrays, target="trn2"))
            trace_times.append(spent)
            spent, _ = timed(compile_kernel, traced)
            lower_times.append(spent)
        ops, calls = counts(traced)
        _, few = counts(kernel.trace(*small, target="trn2"))
        eager, _ = timed(nki.simulate(kernel, mode="eager"), *small)
        row = f"{kernel.__name__:14}{ops:7}"
        for name, times in (("trace", trace_times), ("lower", lower_times)):
            best, middle = min(times), statistics.median(times)
            row += f"{best / ops:7.2f}{middle / ops:7.2f}{best / calls:10.2f}  "
            worst[name] = max(worst[name], best / ops)
        print(f"{row}{eager / few:6.0f}")
    print(
        f"worst against the goals: trace {worst['trace']:.2f} of {TRACE_GOAL:.0f} us "
        f"({worst['trace'] / TRACE_GOAL:.2f}x), lower {worst['lower']:.2f} of {LOWER_GOAL:.0f} us "
        f"({worst['lower'] / LOWER_GOAL:.2f}x)"
    )
    print_large()


class Large(NamedTuple):
    """One kernel of the ladder from Python to its container: `seconds` of wall time to trace,
    lower, check and write, and those `behind` the scheduler; `peak` memory in KiB, `size` of the
    container in bytes; and milliseconds to `encode` the templates."""

    seconds: list[float]
    behind: float
    peak: int
    size: int
    instructions: int
    templates: int
    encode: float


def large(number: int, rows: int) -> Large:
    specs = [nki.TensorSpec(shape, nl.bfloat16) for shape in ((INNER, rows), (INNER, COLUMNS))]
    moments = [time.perf_counter()]
    scheduled = 0.0

    def observe(stage: str, _: object) -> None:
        nonlocal scheduled
        if stage == "schedule":
            scheduled = time.perf_counter()

    with collection_paused():  # as `nki.compile` does
        traced = LADDER[number].trace(*specs, target="trn2")
        moments.append(time.perf_counter())
        program = compile_kernel(traced, observe)
        del traced
        moments.append(time.perf_counter())
        verify_program(program)
        moments.append(time.perf_counter())
        data = write(program)
    moments.append(time.perf_counter())
    seconds = [after - before for before, after in pairwise(moments)]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    behind = moments[-1] - scheduled
    rolled = [(e, s, reroll(s)) for core in program.cores for e, s in core.streams.items()]
    start = time.perf_counter()
    for engine, stream, found in rolled:
        encode_stream(found.templates, engine, len(stream))
    encode = (time.perf_counter() - start) * 1e3
    templates = sum(len(found.templates) for _, _, found in rolled)
    count = program.instruction_count
    return Large(seconds, behind, peak, len(data), count, templates, encode)


def print_large() -> None:
    """Every kernel of the ladder with 32,768 matmuls, each in a process of its own."""
    print(f"{ROWS} x {INNER} x {COLUMNS}, Python to container:")
    print(
        "kernel         instructions  trace  lower  check  write  behind     x  total s     x   MiB"
        "  container KiB  templates   encode ms"
    )
    spawn = multiprocessing.get_context("spawn")
    for number, kernel in enumerate(LADDER):
        with ProcessPoolExecutor(1, spawn) as pool:
            half = pool.submit(large, number, ROWS // 2).result()
        with ProcessPoolExecutor(1, spawn) as pool:
            whole = pool.submit(large, number, ROWS).result()
        times = "".join(f"{spent:7.2f}" for spent in whole.seconds)
        total = sum(whole.seconds)
        print(
            f"{kernel.__name__:14}{whole.instructions:13}{times}"
            f"{whole.behind:8.2f}{whole.behind / half.behind:6.2f}"
            f"{total:9.2f}{total / sum(half.seconds):6.2f}"
            f"{whole.peak / 1024:6.0f}{whole.size / 1024:15.1f}"
            f"{half.templates:11}{whole.templates:4}{half.encode:7.1f}{whole.encode:5.1f}"
        )
    print(f"goals{'':64}{SECONDS_GOAL:9.2f}{MEMORY_GOAL:12}{CONTAINER_GOAL:15}")


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
