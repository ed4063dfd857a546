"""How long graphs take on the simulated device, beside what no program could beat.

    python benchmarks/graphs.py [NAME...] [--random COUNT] [--target TARGET] [--cores]

The bound is the larger of the floating-point operations at the peak rate of their type and the
bytes of arguments and results at the bandwidth of HBM. `--random` adds products, reductions,
normalised rows, transpositions and element-wise work of shapes drawn from a fixed seed. `--cores`
adds how much less time two cores take. Modelled
times are those of `Compiled.profile`; tests say that results are right.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

import graph_compiler
from graph_compiler.options import GraphOptions
from isa.target import TARGETS

_FOLDS = """plus { a = TYPE[] parameter(0)
 b = TYPE[] parameter(1)
 ROOT s = TYPE[] add(a, b) }
larger { a = TYPE[] parameter(0)
 b = TYPE[] parameter(1)
 ROOT m = TYPE[] maximum(a, b) }
"""

_ADD = " a = S parameter(0)\n b = S parameter(1)\n ROOT r = S add(a, b)"

_SILU = """ a = S parameter(0)
 one = TYPE[] constant(1)
 ones = S broadcast(one), dimensions={}
 n = S negate(a)
 e = S exponential(n)
 d = S add(ones, e)
 ROOT r = S divide(a, d)"""

_SOFTMAX = """ x = S parameter(0)
 least = TYPE[] constant(-inf)
 zero = TYPE[] constant(0)
 m = ROWS reduce(x, least), dimensions={1}, to_apply=larger
 ms = S broadcast(m), dimensions={0}
 d = S subtract(x, ms)
 y = S exponential(d)
 s = ROWS reduce(y, zero), dimensions={1}, to_apply=plus
 ss = S broadcast(s), dimensions={0}
 ROOT r = S divide(y, ss)"""

_NORM = """ x = S parameter(0)
 zero = TYPE[] constant(0)
 n = TYPE[] constant(COUNT)
 ns = ROWS broadcast(n), dimensions={}
 small = TYPE[] constant(1e-5)
 smalls = ROWS broadcast(small), dimensions={}
 t = ROWS reduce(x, zero), dimensions={1}, to_apply=plus
 m = ROWS divide(t, ns)
 ms = S broadcast(m), dimensions={0}
 d = S subtract(x, ms)
 q = S multiply(d, d)
 u = ROWS reduce(q, zero), dimensions={1}, to_apply=plus
 v = ROWS divide(u, ns)
 w = ROWS add(v, smalls)
 i = ROWS rsqrt(w)
 is = S broadcast(i), dimensions={0}
 ROOT r = S multiply(d, is)"""


@dataclass(frozen=True)
class Case:
    """A graph: its name, text, and floating-point operations on the tensor engine."""

    name: str
    text: str
    flops: int = 0
    type: str = "f32"


def element_wise(name: str, body: str, type: str, rows: int, columns: int) -> Case:
    """A graph of one shape."""
    for word, value in {
        "ROWS": f"{type}[{rows}]",
        "S ": f"{type}[{rows},{columns}] ",
        "TYPE": type,
        "COUNT": str(columns),
    }.items():
        body = body.replace(word, value)
    folds = _FOLDS.replace("TYPE", type)
    text = f"HloModule graph\n{folds}ENTRY e {{\n{body}\n}}"
    return Case(f"{name} {type} {rows}x{columns}", text, 0, type)


def product(type: str, rows: int, depth: int, columns: int) -> Case:
    """A matrix product."""
    text = (
        f"HloModule graph\nENTRY e {{\n x = {type}[{rows},{depth}] parameter(0)\n"
        f" y = {type}[{depth},{columns}] parameter(1)\n"
        f" ROOT r = {type}[{rows},{columns}] dot(x, y),"
        " lhs_contracting_dims={1}, rhs_contracting_dims={0}\n}"
    )
    return Case(f"dot {type} {rows}x{depth}x{columns}", text, 2 * rows * depth * columns, type)


def attention(tokens: int, width: int) -> Case:
    """One head with the true maximum, in bf16."""
    shape = f"bf16[{tokens},{width}]"
    scores = element_wise("attention", _SOFTMAX, "bf16", tokens, tokens).text
    operands = f" q = {shape} parameter(0)\n k = {shape} parameter(1)\n v = {shape} parameter(2)\n"
    text = scores.replace(
        f" x = bf16[{tokens},{tokens}] parameter(0)\n",
        f"{operands} x = bf16[{tokens},{tokens}] dot(q, k),"
        " lhs_contracting_dims={1}, rhs_contracting_dims={1}\n",
    ).replace(" ROOT r = ", " p = ")
    last = (
        f" ROOT r = {shape} dot(p, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}"
    )
    flops = 4 * tokens * tokens * width
    return Case(f"attention bf16 {tokens}x{width}", text[: text.rindex("}")] + last, flops, "bf16")


def fold(type: str, sizes: tuple[int, int, int], axis: int) -> Case:
    """A sum along a dimension."""
    kept = [str(size) for place, size in enumerate(sizes) if place != axis]
    shape = ",".join(map(str, sizes))
    body = (
        f" x = {type}[{shape}] parameter(0)\n zero = {type}[] constant(0)\n"
        f" ROOT r = {type}[{','.join(kept)}] reduce(x, zero), dimensions={{{axis}}}, to_apply=plus"
    )
    text = f"HloModule graph\n{_FOLDS.replace('TYPE', type)}ENTRY e {{\n{body}\n}}"
    return Case(f"sum over {axis} {type} {shape}", text, 0, type)


def transposition(type: str, sizes: tuple[int, ...], order: tuple[int, ...]) -> Case:
    """Dimensions in another order."""
    shape = ",".join(map(str, sizes))
    turned = ",".join(str(sizes[axis]) for axis in order)
    axes = ",".join(map(str, order))
    text = (
        f"HloModule graph\nENTRY e {{\n x = {type}[{shape}] parameter(0)\n"
        f" ROOT r = {type}[{turned}] transpose(x), dimensions={{{axes}}}\n}}"
    )
    return Case(f"transpose {axes} {type} {shape}", text, 0, type)


NAMED = (
    element_wise("add", _ADD, "f32", 4096, 4096),
    element_wise("silu", _SILU, "bf16", 4096, 4096),
    element_wise("softmax", _SOFTMAX, "f32", 4096, 4096),
    element_wise("norm", _NORM, "f32", 4096, 4096),
    transposition("bf16", (4096, 4096), (1, 0)),
    product("bf16", 1024, 1024, 1024),
    product("bf16", 2048, 2048, 2048),
    product("bf16", 4096, 4096, 4096),
    attention(4096, 128),
)


def random_cases(count: int, seed: int = 20) -> Iterator[Case]:
    """Cases of shapes that nobody chose."""
    rng = np.random.default_rng(seed)

    def size(low: int, high: int) -> int:
        return int(np.exp(rng.uniform(np.log(low), np.log(high))))

    for number in range(count):
        type = ("f32", "bf16")[number % 2]
        kind = number % 5
        if kind == 0:
            yield product(type, size(60, 3000), size(60, 3000), size(60, 3000))
        elif kind == 1:
            yield fold(type, (size(8, 300), size(8, 300), size(8, 300)), number // 5 % 3)
        elif kind == 2:
            body = (_SOFTMAX, _NORM)[number // 5 % 2]
            name = ("softmax", "norm")[number // 5 % 2]
            yield element_wise(name, body, type, size(60, 4000), size(60, 4000))
        elif kind == 3:
            order = tuple(int(axis) for axis in rng.permutation(4))
            yield transposition(type, tuple(size(4, 80) for _ in range(4)), order)
        else:
            yield element_wise("silu", _SILU, type, size(60, 4000), size(60, 4000))


def bound_us(case: Case, module: graph_compiler.Module, target: str) -> float:
    """The least time that the operations and the bytes of arguments and results take."""
    device = TARGETS[target]
    shapes = [item.shape for item in module.parameters] + [module.result_shape]
    moved = sum(shape.size * shape.primitive.bits // 8 for shape in shapes)
    peak = device.peak_tflops["bfloat16" if case.type == "bf16" else "float32"].value
    return max(moved / device.dma_bytes_per_ns / 1e3, case.flops / peak / 1e6)


def measure(case: Case, target: str, cores: bool = False) -> float:
    """Prints a line; the part of the bound that is reached. `cores`: on two cores as well."""
    module = graph_compiler.parse_text(case.text)
    rng = np.random.default_rng(0)
    inputs: list[Any] = [
        rng.standard_normal(item.shape.dimensions, np.float32).astype(item.shape.numpy_dtype())
        for item in module.parameters
    ]
    start = time.perf_counter()
    compiled = graph_compiler.compile(module, target)
    seconds = time.perf_counter() - start
    _, profile = compiled.profile(*inputs)
    bound = bound_us(case, module, target)
    reached = bound / (profile.total_ns / 1e3)
    both = ""
    if cores:
        together = graph_compiler.compile(module, target, GraphOptions(logical_cores=2))
        ns = together.profile(*inputs)[1].total_ns
        both = f"  two cores {ns / 1e3:10.1f} us {profile.total_ns / ns:5.2f}x"
    print(
        f"{case.name:34} {profile.total_ns / 1e3:10.1f} us  bound {bound:9.1f} us {reached:6.1%}"
        f"  {profile.bound:22} compiled in {seconds:.2f} s{both}"
    )
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases whose name holds one of these")
    parser.add_argument("--random", type=int, default=0, metavar="COUNT")
    parser.add_argument("--target", default="trn2")
    parser.add_argument("--cores", action="store_true")
    options = parser.parse_args()
    chosen = [
        case
        for case in NAMED
        if not options.names or any(name in case.name for name in options.names)
    ]
    for case in chosen:
        measure(case, options.target, options.cores)
    if options.random:
        reached = [
            measure(case, options.target, options.cores) for case in random_cases(options.random)
        ]
        print(
            f"{len(reached)} random graphs: median {median(reached):.1%}, least {min(reached):.1%}"
        )


if __name__ == "__main__":
    main()
