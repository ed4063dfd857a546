"""How long graphs take on the simulated device, beside what no program could beat.

    python benchmarks/graphs.py [NAME...] [--random COUNT] [--seed SEED] [--target TARGET] [--cores]

The bound is the largest of the floating-point operations at the peak rate of their type, the bytes
of arguments and results at the bandwidth of HBM, and exponentials at the rate of the scalar engine.
`--random` adds graphs of shapes drawn from a seed: products, also of a batch, sums over the first,
middle and last dimension, softmax, normalised rows, transpositions of four dimensions, element-wise
work, convolutions with strides and dilation, attention of many short heads. Their bounds are
between 40 and 400 us: a load and a store alone take some 4 us, which no roofline knows. Each is
compared with the goal of the named graph of its kind. `--cores` adds how much less time two cores
take, and how much less they could take at most: half of the bound, and a load, a product and a
store of one tile, which follow one another on any number of cores. Modelled times are those of
`Compiled.profile`. Results are compared with the host's: a wrong one ends the run.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

import numpy as np

import graph_compiler
from graph_compiler.options import GraphOptions
from isa.enums import Engine
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
    """A graph: its name, text, floating-point operations on the tensor engine, the part of the
    bound that is wanted, and the exponentials that only the scalar engine computes."""

    name: str
    text: str
    flops: int = 0
    type: str = "f32"
    goal: float = 0.93
    exponentials: int = 0


def graph(body: str, type: str = "f32") -> str:
    """The text of a graph whose entry has these instructions."""
    return f"HloModule graph\n{_FOLDS.replace('TYPE', type)}ENTRY e {{\n{body}\n}}"


def element_wise(
    name: str, body: str, type: str, rows: int, columns: int, goal: float = 0.93
) -> Case:
    """A graph of one shape."""
    for word, value in {
        "ROWS": f"{type}[{rows}]",
        "S ": f"{type}[{rows},{columns}] ",
        "TYPE": type,
        "COUNT": str(columns),
    }.items():
        body = body.replace(word, value)
    return Case(f"{name} {type} {rows}x{columns}", graph(body, type), 0, type, goal)


def norm(type: str, rows: int, columns: int) -> Case:
    """Rows less their mean, over their deviation, as frameworks compute it: in fp32."""
    goal = {"f32": 0.8, "bf16": 0.72}[type]
    if type == "f32":
        return element_wise("norm", _NORM, type, rows, columns, goal)
    shape = f"[{rows},{columns}]"
    inner = element_wise("norm", _NORM, "f32", rows, columns).text
    text = inner.replace(
        f" x = f32{shape} parameter(0)",
        f" narrow = {type}{shape} parameter(0)\n x = f32{shape} convert(narrow)",
    ).replace(" ROOT r = ", " wide = ")
    text = text[: text.rindex("}")] + f" ROOT r = {type}{shape} convert(wide)\n}}"
    return Case(f"norm {type} {rows}x{columns}", text, 0, type, goal)


def product(type: str, rows: int, depth: int, columns: int, batch: int = 0) -> Case:
    """A matrix product, of a batch where there is one."""
    sizes = f"{batch}," if batch else ""
    dims = ", lhs_batch_dims={0}, rhs_batch_dims={0}" if batch else ""
    left, right = (2, 1) if batch else (1, 0)
    body = (
        f" x = {type}[{sizes}{rows},{depth}] parameter(0)\n"
        f" y = {type}[{sizes}{depth},{columns}] parameter(1)\n"
        f" ROOT r = {type}[{sizes}{rows},{columns}] dot(x, y){dims},"
        f" lhs_contracting_dims={{{left}}}, rhs_contracting_dims={{{right}}}"
    )
    flops = 2 * rows * depth * columns * (batch or 1)
    name = f"dot {type} {f'{batch} of ' if batch else ''}{rows}x{depth}x{columns}"
    goal = next(part for least, part in _PRODUCTS if flops >= least)
    return Case(name, graph(body), flops, type, goal)


_PRODUCTS = ((2 * 4096**3, 0.95), (2 * 2048**3, 0.9), (0, 0.75))
"""Goals of products, by the floating-point operations from which on they hold."""


def attention(tokens: int, width: int, heads: int = 0) -> Case:
    """Heads, or one, with the true maximum, in bf16."""
    sizes = f"{heads}," if heads else ""
    own, scores = f"bf16[{sizes}{tokens},{width}]", f"bf16[{sizes}{tokens},{tokens}]"
    rows = f"bf16[{sizes}{tokens}]"
    dims = ", lhs_batch_dims={0}, rhs_batch_dims={0}" if heads else ""
    last, kept = (2, "0,1") if heads else (1, "0")
    softmax = _SOFTMAX.replace("ROWS", rows).replace("S ", f"{scores} ").replace("TYPE", "bf16")
    softmax = softmax.replace("dimensions={1}", f"dimensions={{{last}}}")
    softmax = softmax.replace("dimensions={0}", f"dimensions={{{kept}}}")
    operands = "".join(f" {name} = {own} parameter({i})\n" for i, name in enumerate("qkv"))
    body = softmax.replace(
        f" x = {scores} parameter(0)\n",
        f"{operands} x = {scores} dot(q, k){dims},"
        f" lhs_contracting_dims={{{last}}}, rhs_contracting_dims={{{last}}}\n",
    ).replace(" ROOT r = ", " p = ")
    body += (
        f"\n ROOT r = {own} dot(p, v){dims}, lhs_contracting_dims={{{last}}},"
        f" rhs_contracting_dims={{{last - 1}}}"
    )
    flops = 4 * tokens * tokens * width * (heads or 1)
    name = f"attention bf16 {f'{heads} of ' if heads else ''}{tokens}x{width}"
    exponentials = tokens * tokens * (heads or 1)
    return Case(name, graph(body, "bf16"), flops, "bf16", 0.42, exponentials)


def fold(type: str, sizes: tuple[int, int, int], axis: int) -> Case:
    """A sum along a dimension."""
    kept = [str(size) for place, size in enumerate(sizes) if place != axis]
    shape = ",".join(map(str, sizes))
    body = (
        f" x = {type}[{shape}] parameter(0)\n zero = {type}[] constant(0)\n"
        f" ROOT r = {type}[{','.join(kept)}] reduce(x, zero), dimensions={{{axis}}}, to_apply=plus"
    )
    return Case(f"sum over {axis} {type} {shape}", graph(body, type), 0, type)


def transposition(type: str, sizes: tuple[int, ...], order: tuple[int, ...]) -> Case:
    """Dimensions in another order."""
    shape = ",".join(map(str, sizes))
    turned = ",".join(str(sizes[axis]) for axis in order)
    axes = ",".join(map(str, order))
    body = (
        f" x = {type}[{shape}] parameter(0)\n"
        f" ROOT r = {type}[{turned}] transpose(x), dimensions={{{axes}}}"
    )
    return Case(f"transpose {axes} {type} {shape}", graph(body), 0, type, 0.85)


def convolution(
    type: str,
    image: tuple[int, int, int],
    channels: tuple[int, int],
    window: int,
    stride: int = 1,
    dilation: int = 1,
    channels_first: bool = False,
) -> Case:
    """A square window over images (how many, rows, columns), padded by half of what it spans."""
    count, *sizes = image
    inputs, outputs = channels
    reach = dilation * (window - 1)
    padding = reach // 2
    ends = [(size + 2 * padding - reach - 1) // stride + 1 for size in sizes]

    def shape(own: Sequence[int], features: int) -> str:
        dims = [count, features, *own] if channels_first else [count, *own, features]
        return f"{type}[{','.join(map(str, dims))}]"

    labels = "bf01_oi01->bf01" if channels_first else "b01f_01io->b01f"
    kernel = [window, window, inputs, outputs]
    if channels_first:
        kernel = [outputs, inputs, window, window]
    wide = f"size={window}x{window} pad={padding}_{padding}x{padding}_{padding}"
    wide += f" stride={stride}x{stride}" if stride > 1 else ""
    wide += f" rhs_dilate={dilation}x{dilation}" if dilation > 1 else ""
    body = (
        f" x = {shape(sizes, inputs)} parameter(0)\n"
        f" k = {type}[{','.join(map(str, kernel))}] parameter(1)\n"
        f" ROOT r = {shape(ends, outputs)} convolution(x, k), window={{{wide}}},"
        f" dim_labels={labels}"
    )
    flops = 2 * count * math.prod(ends) * inputs * outputs * window**2
    name = f"conv {type} {count}x{sizes[0]}x{sizes[1]} {inputs}-{outputs} {window}x{window}"
    name += f" /{stride}" if stride > 1 else ""
    name += f" *{dilation}" if dilation > 1 else ""
    name += " NCHW" if channels_first else ""
    return Case(name, graph(body), flops, type, 0.78)


NAMED = (
    element_wise("add", _ADD, "f32", 4096, 4096),
    element_wise("silu", _SILU, "bf16", 4096, 4096),
    element_wise("softmax", _SOFTMAX, "f32", 4096, 4096),
    norm("f32", 4096, 4096),
    norm("bf16", 4096, 4096),
    transposition("bf16", (4096, 4096), (1, 0)),
    product("bf16", 1024, 1024, 1024),
    product("bf16", 2048, 2048, 2048),
    product("bf16", 4096, 4096, 4096),
    convolution("bf16", (1, 64, 64), (320, 320), 3),
    attention(4096, 128),
)


def _drawn(rng: np.random.Generator, kind: int, type: str, turn: int) -> Case:
    """A case of a kind, and of the variants that the kind has by turns."""

    def size(low: int, high: int) -> int:
        return int(np.exp(rng.uniform(np.log(low), np.log(high))))

    def chosen(*values: int) -> int:
        return int(rng.choice(values))

    if kind == 0:
        return product(type, size(200, 5000), size(200, 5000), size(200, 5000))
    if kind == 1:
        return product(type, size(60, 800), size(30, 800), size(60, 800), size(3, 64))
    if kind == 2:
        return fold(type, (size(8, 3000), size(8, 1000), size(8, 3000)), turn % 3)
    if kind == 3:
        rows, columns = size(200, 16000), size(100, 10000)
        if turn % 2:
            return norm(type, rows, columns)
        return element_wise("softmax", _SOFTMAX, type, rows, columns)
    if kind == 4:
        order = tuple(int(axis) for axis in rng.permutation(4))
        return transposition(type, tuple(size(4, 400) for _ in range(4)), order)
    if kind == 5:
        name, body = (("silu", _SILU), ("add", _ADD))[turn % 2]
        return element_wise(name, body, type, size(100, 20000), size(100, 20000))
    if kind == 6:
        edge = size(7, 120)
        image = (size(1, 16), edge, edge + chosen(0, 0, 3))
        channels = (size(17, 600), size(17, 600))
        variant = chosen(1, 1, 2), chosen(1, 1, 2)
        return convolution(type, image, channels, chosen(1, 3, 3, 5), *variant, bool(turn % 2))
    return attention(chosen(77, 128, 197, 512, 577), chosen(40, 64, 80, 128), size(8, 256))


_KINDS = 8


def random_cases(count: int, target: str, seed: int = 20) -> Iterator[Case]:
    """Cases of shapes that nobody chose, of every kind by turns, whose bounds are of some size."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        kind, turn = number % _KINDS, number // _KINDS
        type = ("f32", "bf16")[(kind + turn) % 2]
        while True:
            case = _drawn(rng, kind, type, turn)
            bound = bound_us(case, graph_compiler.parse_text(case.text), target)
            if _LEAST_US <= bound <= _MOST_US:
                yield case
                break


_LEAST_US, _MOST_US = 40.0, 400.0
"""Bounds of the graphs that are drawn."""


def bound_us(case: Case, module: graph_compiler.Module, target: str) -> float:
    """The least time that the operations and the bytes of arguments and results take."""
    device = TARGETS[target]
    shapes = [item.shape for item in module.parameters] + [module.result_shape]
    moved = sum(shape.size * shape.primitive.bits // 8 for shape in shapes)
    peak = device.peak_tflops["bfloat16" if case.type == "bf16" else "float32"].value
    lanes = device.partitions.value * device.clock_ghz(Engine.scalar) * 1e3
    transfers = moved / device.dma_bytes_per_ns / 1e3
    return max(transfers, case.flops / peak / 1e6, case.exponentials / lanes)


@cache
def one_tile_us(type: str, multiplied: bool, target: str) -> float:
    """What loading a tile, its product or sum with another one, and storing it take."""
    case = product(type, 128, 128, 128) if multiplied else element_wise("add", _ADD, type, 128, 1)
    module = graph_compiler.parse_text(case.text)
    inputs = [np.zeros(p.shape.dimensions, p.shape.numpy_dtype()) for p in module.parameters]
    return graph_compiler.compile(module, target).profile(*inputs)[1].total_ns / 1e3


def _check(case: Case, found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Ends with a message where results are not those of the host."""
    for one, other in zip(found, wanted):
        right = np.asarray(other, np.float32)
        error = np.abs(np.asarray(one, np.float32) - right).max() / np.abs(right).max()
        if not error < _TOLERANCE[case.type]:
            raise SystemExit(f"{case.name}: wrong by {error:.1e} of the largest number")


_TOLERANCE = {"f32": 1e-4, "bf16": 1e-1}
"""Differences of sums in another order, and of roundings in between: exponentials of scores of 30
in bf16 are known to a tenth."""


def measure(case: Case, target: str, cores: bool = False) -> float:
    """Prints a line; the part of the bound that is reached. `cores`: on two cores as well."""
    module = graph_compiler.parse_text(case.text)
    rng = np.random.default_rng(0)
    inputs: list[Any] = [
        rng.standard_normal(item.shape.dimensions, np.float32).astype(item.shape.numpy_dtype())
        for item in module.parameters
    ]
    start = time.process_time()
    compiled = graph_compiler.compile(module, target)
    seconds = time.process_time() - start
    outputs, profile = compiled.profile(*inputs)
    _check(case, outputs, graph_compiler.execute(module, *inputs))
    bound = bound_us(case, module, target)
    reached = bound / (profile.total_ns / 1e3)
    both = ""
    if cores:
        together = graph_compiler.compile(module, target, GraphOptions(logical_cores=2))
        on_both, profiled = together.profile(*inputs)
        _check(case, on_both, outputs)
        ns = profiled.total_ns
        least = bound / 2 + one_tile_us(case.type, case.flops > 0, target)
        both = f"  two cores {ns / 1e3:10.1f} us {profile.total_ns / ns:5.2f}x"
        both += f" of at most {profile.total_ns / 1e3 / least:5.2f}x"
    print(
        f"{case.name:44} {profile.total_ns / 1e3:8.1f} us  bound {bound:7.1f} us {reached:6.1%}"
        f" of {case.goal:4.0%}  {profile.bound:14} compiled in {seconds:6.2f} s{both}",
        flush=True,
    )
    return reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="cases whose name holds one of these")
    parser.add_argument("--random", type=int, default=0, metavar="COUNT")
    parser.add_argument("--seed", type=int, default=20)
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
        found = []
        for case in random_cases(options.random, options.target, options.seed):
            if any(name in case.name for name in options.names) or not options.names:
                found.append(measure(case, options.target, options.cores) - case.goal)
        print(
            f"{len(found)} random graphs, against the goals of their kinds: "
            f"median {100 * median(found):+.1f} points, least {100 * min(found):+.1f}"
        )


if __name__ == "__main__":
    main()
