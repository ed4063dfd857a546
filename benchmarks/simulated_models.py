"""How long whole models take to compile and to run on the simulated device, beside XLA on this CPU.

    python benchmarks/simulated_models.py [NAME...] [--target TARGET]

Models are those of `benchmarks/published_models.py`, of batch 1, their weights frozen, as they are
(fp32) and with `--auto-cast matmult`. `-O1` and `-O2` are seconds of compiling. `run` is a call of
the compiled model, whose results are compared with those of XLA; `timed` is one with its profile.
Both are the least of some calls, and so is XLA's run, in the same process; all use all CPUs. The
goals are for BERT-base on two idle CPUs: 6 and 15 seconds, and at most 5 times XLA's run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from published_models import MODELS, frozen

import graph_compiler
from graph_compiler.options import GraphOptions
from isa.target import TARGETS

_CALLS = 5


def _seconds(call: Callable[[], Any]) -> float:
    """The least time of some calls, behind one that loads what they run."""
    call()
    found = []
    for _ in range(_CALLS):
        start = time.perf_counter()
        call()
        found.append(time.perf_counter() - start)
    return min(found)


def measure(name: str, target: str, cast: str) -> None:
    """Print a line for a model."""
    import jax

    model, tree, inputs = MODELS[name](1)
    function, weights = jax.jit(model), jax.tree.map(jax.numpy.asarray, tree)
    expected = np.asarray(function(weights, *inputs))
    xla = _seconds(lambda: function(weights, *inputs).block_until_ready())
    module = frozen(name, 1)
    compiling = []
    for level in (1, 2):
        start = time.perf_counter()
        options = GraphOptions(auto_cast=cast, optimisation=level)
        compiled = graph_compiler.compile(module, target, options)
        compiling.append(time.perf_counter() - start)
    (result,) = compiled(*inputs)
    error = float(np.abs(result - expected).max() / np.abs(expected).max())
    run = _seconds(lambda: compiled(*inputs))
    timed = _seconds(lambda: compiled.profile(*inputs))
    times = "".join(f"{seconds:9.2f}" for seconds in (*compiling, xla, run, timed))
    print(f"{name:26s} {cast:8s}{times} {timed / xla:9.1f} {error:9.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("--target", default="trn2", choices=sorted(TARGETS))
    options = parser.parse_args()
    columns = ("-O1 s", "-O2 s", "XLA s", "run s", "timed s", "timed/XLA", "error")
    print(f"{'model':26s} {'cast':8s}" + "".join(f"{column:>9s}" for column in columns))
    for name in options.names or [next(iter(MODELS))]:
        for cast in ("none", "matmult"):
            measure(name, options.target, cast)


if __name__ == "__main__":
    main()
