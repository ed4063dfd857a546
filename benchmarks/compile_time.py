"""Time to trace and to lower the kernels of the matrix-multiplication ladder, an operation.

Run: python benchmarks/compile_time.py [SIZE]

Prints microseconds an operation (a call of a `nki.isa` function) for tracing and for the whole
lowering, medians of interleaved repeats, and, as the peer in the same run, how long NumPy needs to
run the ladder's operations one by one eagerly (the mode that skips compilation).
"""

from __future__ import annotations

import platform
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tutorials"))

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from matmul_kernels import LADDER  # noqa: E402

import nki  # noqa: E402
from isa.operations.control import StorageBegin  # noqa: E402
from nki.ir.nodes import Op, walk  # noqa: E402
from nki.pipeline import compile_kernel  # noqa: E402

REPEATS = 5
TRACE_GOAL, LOWER_GOAL = 5.0, 50.0


def operations(traced) -> int:
    """Calls of public operations in a traced kernel (storage markers are not calls)."""
    nodes = (node for body in traced.bodies for node in walk(body))
    return sum(isinstance(node, Op) and node.row is not StorageBegin for node in nodes)


def timed(function, *args):
    start = time.process_time()
    result = function(*args)
    return time.process_time() - start, result


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 2048
    arrays = [np.zeros((size, size), ml_dtypes.bfloat16) for _ in range(2)]
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print(f"{'kernel':14}{'ops':>8}{'trace us/op':>13}{'lower us/op':>13}{'eager us/op':>13}")
    worst = {"trace": 0.0, "lower": 0.0}
    for kernel in LADDER:
        trace_times, lower_times = [], []
        for _ in range(REPEATS):
            seconds, traced = timed(lambda kernel=kernel: kernel.trace(*arrays, target="trn2"))
            trace_times.append(seconds)
            seconds, _ = timed(compile_kernel, traced)
            lower_times.append(seconds)
        small = [array[:1024, :1024] for array in arrays]
        few = operations(kernel.trace(*small, target="trn2"))
        seconds, _ = timed(nki.simulate(kernel, mode="eager"), *small)
        count = operations(traced)
        trace_us = statistics.median(trace_times) / count * 1e6
        lower_us = statistics.median(lower_times) / count * 1e6
        worst = {"trace": max(worst["trace"], trace_us), "lower": max(worst["lower"], lower_us)}
        name = kernel.__name__
        print(f"{name:14}{count:8}{trace_us:13.2f}{lower_us:13.2f}{seconds / few * 1e6:13.1f}")
    print(
        f"goal: trace {TRACE_GOAL} (worst is {worst['trace'] / TRACE_GOAL:.2f} of it), "
        f"lower {LOWER_GOAL} ({worst['lower'] / LOWER_GOAL:.2f})"
    )


if __name__ == "__main__":
    main()
