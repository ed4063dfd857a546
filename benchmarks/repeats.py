"""Compile time and modelled time of a layer, of twelve in a loop, and of twelve one by one.

Run: python benchmarks/repeats.py [LAYERS]

A transformer layer over 128 tokens, some 700 operations, is traced once. `repeat` places it on the
weights of each layer; "copies" inlines it as often. Compile time is CPU time of all passes and of
the race proof, tracing and placing apart, the best of three; "x" compares it with one layer.
"again" is the time where the process knows the orders that were found the first time. "before" are
"x" and "us" as they were: all copies compiled one by one, and no load ahead of the state's. The
last column says whether results are those of the copies, bit by bit, in a small model.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import ml_dtypes
import numpy as np
import overlap
from overlap import HIDDEN, WIDTH, P, chip, through_layer

import nki
import nki.isa as nisa
import nki.language as nl
from nki.compiled import CompiledKernel
from nki.ir.builder.builder import Builder
from nki.ir.builder.inline import inline
from nki.ir.builder.repeat import repeat
from nki.ir.nodes import TracedKernel, operations
from nki.kernel import compile_traced
from nki.passes.analysis.content import forget
from simulator.timing import simulate


@nki.jit
def layer(x, qkv, narrow, up, down):
    """One transformer layer; weights are [P, rows / P, columns]."""
    state = chip((P, WIDTH))
    nisa.dma_copy(dst=state, src=x)
    through_layer(state, (qkv, narrow, up, down))
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=state)
    return out


SHAPES = {
    "qkv": (P, WIDTH // P, 3 * WIDTH),
    "narrow": (P, WIDTH // P, WIDTH),
    "up": (P, WIDTH // P, HIDDEN),
    "down": (P, HIDDEN // P, WIDTH),
}


def model(traced: TracedKernel, layers: int, together: bool) -> TracedKernel:
    """Layers on a state in HBM, each with weights of its own."""
    b = Builder("trn2", name="model")
    state = b.parameter((P, WIDTH), "float32", "x")
    stacks = {
        name: b.parameter((layers, *shape), "bfloat16", name) for name, shape in SHAPES.items()
    }
    times = [
        {"x": state, "out": state} | {name: stack[number] for name, stack in stacks.items()}
        for number in range(layers)
    ]
    if together:
        repeat(traced, times, b)
    else:
        for bindings in times:
            inline(traced, bindings, b)
    b.result(state)
    return b.kernel()


def compiled(kernel: TracedKernel) -> tuple[CompiledKernel, float, float]:
    """The program, the CPU seconds it took, and those it took when it was compiled again."""
    spent: tuple[list[float], list[float]] = [], []
    for _ in range(3):
        forget()
        for kept in spent:
            start = time.process_time()
            program = compile_traced(kernel)
            kept.append(time.process_time() - start)
    return program, min(spent[0]), min(spent[1])


BEFORE = {"repeat": "1.40, 770", "copies": "4.70, 721"}


def main() -> None:
    layers = int(sys.argv[1]) if len(sys.argv) > 1 else overlap.LAYERS
    specs = [nki.TensorSpec((P, WIDTH), nl.float32)]
    specs += [nki.TensorSpec(shape, nl.bfloat16) for shape in SHAPES.values()]
    traced = layer.trace(*specs, target="trn2")
    count = sum(1 for _ in operations(traced.bodies[0]))
    print(f"a layer has {count} operations")
    rng = np.random.default_rng(1)
    inputs: list[Any] = [rng.standard_normal((P, WIDTH)).astype(np.float32)]
    for shape in SHAPES.values():
        data = rng.standard_normal((layers, *shape)) / np.sqrt(shape[0] * shape[1])
        inputs.append(data.astype(ml_dtypes.bfloat16))
    cases = {
        "one layer": model(traced, 1, False),
        f"{layers} layers, repeat": model(traced, layers, True),
        f"{layers} layers, copies": model(traced, layers, False),
    }
    heads = f"{'':24}{'compile ms':>11}{'x':>7}{'again':>7}{'us':>9}{'before':>11}"
    print(f"{heads}{'instructions':>14}  results")
    alone = 0.0
    found: dict[str, bytes] = {}
    for name, kernel in cases.items():
        program, seconds, again = compiled(kernel)
        alone = alone or seconds
        timeline = simulate(program.program, keep_spans=False)
        size = sum(len(s) for core in program.program.cores for s in core.streams.values())
        data = [array.copy() for array in inputs]
        if name != "one layer":
            program(*data)
            found[name] = data[0].tobytes()
        same = "" if len(found) < 2 else "equal" if len(set(found.values())) == 1 else "DIFFER"
        spent = timeline.total_ns / 1e3
        ratio = seconds / alone
        again *= 1e3
        row = f"{name:24}{seconds * 1e3:11.1f}{ratio:7.2f}{again:7.1f}{spent:9.1f}"
        print(f"{row}{BEFORE.get(name.split()[-1], ''):>11}{size:14}  {same}")


if __name__ == "__main__":
    main()
