"""Time to trace and to lower the kernels of the matrix-multiplication ladder, an operation.

Run: python benchmarks/compile_time.py [SIZE]

Prints microseconds of CPU time for tracing and for the whole lowering, an operation of the tile IR
(calls of `nki.isa` functions and storage markers of `nl.ndarray`), and beside it a call of a
`nki.isa` function alone: the best and the median of interleaved repeats. The peer in the same run
is the eager mode, which computes each operation as its line runs and compiles nothing.
"""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tutorials"))

import ml_dtypes
import numpy as np
from matmul_kernels import LADDER

import nki
from isa.operations.control import StorageBegin
from nki.ir.nodes import Op, walk
from nki.pipeline import compile_kernel

REPEATS = 9
TRACE_GOAL, LOWER_GOAL = 5.0, 50.0


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


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
