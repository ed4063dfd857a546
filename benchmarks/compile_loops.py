"""Time to compile bodies with loops: passes and race proof, an operation.

Run: python benchmarks/compile_loops.py [OPERATIONS ...]      (10,000 without arguments)

Prints microseconds of CPU time an operation for tracing, the passes on tile IR, the stages behind
them and the race proof, and the peak memory of the process, for the same operations written
straight, with one loop behind them, and as loops of ten or a hundred operations; for two cores that
run one source, each on its own rows, an operation of one core (they are compiled once, so that
passes and stages are one figure). Each body is the first one that its process compiles; modules
that this loads are there as bytecode, as installed ones are. Loops of ten and of a hundred are
alike but for their rows, and what is alike is decided once. Those of "each loop another" are not
(at most ten loops of a hundred operations, 32 trips each), nor are those of "each of 10 another":
how many copies of its body pay is found for each of them. Long walks are on disk as machine code,
as they are once a machine has compiled a long body. `before` is what passes and proof
together took when one loop anywhere sent the whole body to passes over objects (measured at 10,000
operations).
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from itertools import pairwise
from multiprocessing import get_context
from tempfile import TemporaryDirectory
from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl
from isa.gc_pause import collection_paused
from nki.ir.nodes import Op, walk
from nki.passes.lower import lower
from nki.passes.order.list_schedule import list_schedule
from nki.pipeline import compile_kernel, optimise
from nki.verification import verify_program
from simulator.races.clocks import follow
from simulator.timing.events import advance

GOALS = {"straight": 20, "one loop": 30, "loops of 10": 30, "loops of 100": 30}
BEFORE = {"straight": 25, "one loop": 47, "loops of 10": 172, "loops of 100": 70}
"""Microseconds an operation, of passes and proof together."""

HEADS = "       trace  passes  stages   proof   compile  before    goal     MiB"

ROWS, WIDE = 4096, 64


def tile(a, out, start, operations, wide=WIDE):
    """Loads, computes and stores a tile."""
    one, other = (nl.ndarray((128, wide), dtype=a.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(dst=one, src=a[nl.ds(start, 128), :wide])
    for _ in range((operations - 4) // 2):
        nisa.activation(dst=other, op=nl.exp, data=one)
        nisa.tensor_scalar(dst=one, data=other, op0=nl.add, operand0=1.0)
    nisa.dma_copy(dst=out[nl.ds(start, 128), :wide], src=one)


@nki.jit
def different(a, loops, operations):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for number in range(loops):
        width = WIDE - 4 * number
        nl.fori_loop(0, ROWS, lambda row, w=width: tile(a, out, row, operations, w), 128)
    return out


@nki.jit
def tiles(a, straight, loops, operations):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    rows = ROWS // nl.num_programs()
    for number in range(straight):
        first = nl.program_id(0) * rows
        tile(a, out, first + number % (rows // 128) * 128, operations)
    for _ in range(loops):
        nl.fori_loop(0, 512, lambda row: tile(a, out, row, operations), 128)
    return out


def cases(operations):
    """By name: the kernel for some cores, and its arguments."""
    return {
        "straight": (tiles[1], (operations // 10, 0, 10)),
        "one loop": (tiles[1], (operations // 10, 1, 10)),
        "loops of 10": (tiles[1], (0, operations // 10, 10)),
        "loops of 100": (tiles[1], (0, operations // 100, 100)),
        "each loop another": (different[1], (min(operations // 100, 10), 100)),
        "each of 10 another": (different[1], (10, 10)),
        "two cores": (tiles[2], (operations // 10, 0, 10)),
    }


def measured(name, operations, bytecode):
    """(operations, seconds of each part, peak memory in MiB), in a process of its own. `bytecode`
    is the folder of that of modules."""
    warnings.simplefilter("ignore")
    sys.dont_write_bytecode, sys.pycache_prefix = False, bytecode
    kernel, arguments = cases(operations)[name]
    a = nki.TensorSpec((ROWS, WIDE), nl.float32)
    moments = [time.process_time()]
    with collection_paused():
        traced = kernel.trace(a, *arguments, target="trn2")
        moments.append(time.process_time())
        if len(traced.bodies) == 1:
            placed = optimise(traced)
            moments.append(time.process_time())
            program = lower(placed)
        else:
            program = compile_kernel(traced)
            moments.append(time.process_time())
        moments.append(time.process_time())
        verify_program(program)
        moments.append(time.process_time())
    count = sum(isinstance(node, Op) for node in walk(traced.bodies[0]))
    seconds = [after - before for before, after in pairwise(moments)]
    return count, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def alone(*arguments: Any) -> tuple[int, list[float], float]:
    """`measured` in a process of its own."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(measured, arguments)


def with_machine_code(*arguments: Any) -> None:
    """`measured` with all long walks compiled, whatever they have to do."""
    for function in (list_schedule, follow, advance):
        function.worth = 0
    measured(*arguments)


def main() -> None:
    sizes = list(map(int, sys.argv[1:])) or [10_000]
    with TemporaryDirectory() as folder:
        with get_context("spawn").Pool(1) as pool:
            pool.apply(with_machine_code, ("each of 10 another", 100, folder))
        alone("straight", 3000, folder)
        print(
            "us an operation        trace  passes  stages   proof   compile  before    goal     MiB"
        )
        for operations in sizes:
            print(f"{operations:,} operations")
            for name in cases(operations):
                count, seconds, peak = alone(name, operations, folder)
                each = [1e6 * second / count for second in seconds]
                row = f"  {name:18}" + "".join(f"{us:8.1f}" for us in each)
                row += f"{sum(each[1:]):10.1f}{BEFORE.get(name, ''):>8}{GOALS.get(name, ''):>8}"
                print(f"{row}{peak:8.0f}", flush=True)


if __name__ == "__main__":
    main()
