"""Time of the happens-before check, an instruction: a matrix multiplication, and loops.

Run: python benchmarks/happens_before.py [INSTRUCTIONS ...]

Prints microseconds of CPU time an instruction for the whole check of a straight-line matrix
multiplication and, as the peer in the same run, for deriving the footprint of every operand once,
which any check has to do; medians of interleaved repeats. "from lists" is the check of streams that
are lists of instructions, and not in columns, as the compiler makes them.

Then programs of bodies of ten instructions on three engines, which work on tiles in turn: unrolled,
each a loop of its own, only the last a loop, unrolled on two cores alike. A step is an instruction
that the check follows: three rounds of each loop. "first" is the first check, which may load LLVM
and compiled walks; then the best of some.
"""

from __future__ import annotations

import multiprocessing
import platform
import resource
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from isa.access import AccessPattern, footprint
from isa.enums import SEQUENCERS, DgeMode, Memory, OobMode
from isa.files.stream import Stream, in_columns
from isa.machine import control, dma, elementwise, tensor
from isa.program import CoreProgram, Program, Queue, RegisterReference, TensorDeclaration
from isa.spec import Instruction
from simulator.races.expand import expand
from simulator.races.happens_before import check
from simulator.races.prepare import Prepared

REPEATS = 5
GOAL = 5.0
BUFFERS, BANKS, RESULTS = 4, 4, 2
LOADED, FREED, SUMMED, EMPTIED, COPIED, STORED = range(6)
TENSOR, _, GPSIMD, VECTOR, SYNC = SEQUENCERS


def sbuf(offset: int, columns: int) -> AccessPattern:
    return AccessPattern(Memory.sbuf, "bfloat16", offset, ((1, columns),), 0, 128)


def tile(matrix: int, row: int, column: int, pitch: int, columns: int) -> AccessPattern:
    offset = (row * pitch + column) * 2
    dims = ((pitch, 128), (1, columns))
    return AccessPattern(Memory.shared_hbm, "bfloat16", offset, dims, tensor=matrix)


def matmul(rows: int, columns: int, inner: int) -> Program:
    """c = a.T @ b by tiles of 128 x 512 x 128, four tiles of the inner dimension in flight."""
    streams: dict = {engine: [] for engine in SEQUENCERS}

    def add(engine, row, values, waits=(), updates=()):
        waits, updates = (tuple((s, 1) for s in group) for group in (waits, updates))
        streams[engine].append(Instruction(row, engine, values, waits, updates, 0))

    def copy(engine, dst, src, queue, waits, updates):
        values = (dst, src, queue, DgeMode.none, OobMode.error)
        add(engine, dma.DmaCopy, values, waits, updates)

    for engine, semaphore, count in (
        (TENSOR, FREED, BUFFERS),
        (VECTOR, EMPTIED, BANKS),
        (GPSIMD, STORED, RESULTS),
    ):
        for _ in range(count):
            add(engine, control.Nop, (), (), (semaphore,))
    step = done = 0
    for row in range(0, rows, 128):
        for column in range(0, columns, 512):
            psum = AccessPattern(Memory.psum, "float32", 2048 * (done % BANKS), ((1, 512),), 0, 128)
            for k in range(0, inner, 128):
                left = sbuf(256 * (step % BUFFERS), 128)
                right = sbuf(4096 + 1024 * (step % BUFFERS), 512)
                copy(SYNC, left, tile(0, k, row, rows, 128), 0, (FREED,), ())
                copy(SYNC, right, tile(1, k, column, columns, 512), 0, (), (LOADED,))
                waits = (LOADED, EMPTIED) if k == 0 else (LOADED,)
                add(TENSOR, tensor.LoadStationary, (left, 0, 0), waits)
                updates = (FREED, SUMMED) if k + 128 >= inner else (FREED,)
                add(TENSOR, tensor.MultiplyMoving, (psum, right, k > 0, 0, 0), (), updates)
                step += 1
            result = sbuf(16384 + 1024 * (done % RESULTS), 512)
            add(VECTOR, elementwise.TensorCopy, (result, psum), (SUMMED, STORED), (EMPTIED, COPIED))
            copy(GPSIMD, tile(2, row, column, columns, 512), result, 1, (COPIED,), (STORED,))
            done += 1
    tensors = [
        TensorDeclaration("a", "bfloat16", (inner, rows), "input"),
        TensorDeclaration("b", "bfloat16", (inner, columns), "input"),
        TensorDeclaration("c", "bfloat16", (rows, columns), "output"),
    ]
    core = CoreProgram(streams, [Queue("load", SYNC), Queue("store", GPSIMD)])
    return Program("matmul", "trn2", [core], tensors, [0, 1], ["a", "b"], [2])


SRC, DST = 0, 1
TILE = 128 * 512 * 2
TRIPS = 8


def bodies(count: int, looped: range, cores: int = 1) -> Program:
    """`count` times: load a tile, six copies of it back and forth, store it. Those `looped` are
    loops of `TRIPS` rounds."""
    bodies = []
    for core in range(cores):
        streams: dict = {engine: [] for engine in SEQUENCERS}

        def add(engine, row, values, waits=(), updates=(), streams=streams):
            waits, updates = (tuple((s, 1) for s in group) for group in (waits, updates))
            streams[engine].append(Instruction(row, engine, values, waits, updates, 0))

        def rows(tensor: int, number: int, moves: bool, core: int = core) -> AccessPattern:
            registers = ((0, TILE),) if moves else ()
            dims = ((512, 128), (1, 512))
            offset = (core * count + number) * TILE * TRIPS
            return AccessPattern(
                Memory.shared_hbm, "bfloat16", offset, dims, tensor=tensor, registers=registers
            )

        tiles = [sbuf(1024 * number, 512) for number in range(3)]
        add(VECTOR, control.Nop, (), (), (FREED,))
        add(GPSIMD, control.Nop, (), (), (STORED,))
        for number in range(count):
            moves = number in looped
            begins = {engine: len(streams[engine]) for engine in (SYNC, VECTOR, GPSIMD)}
            if moves:
                for engine in begins:
                    add(engine, control.LoopBegin, (RegisterReference(0), 0, TRIPS, 1, 0))
            fill = (tiles[0], rows(SRC, number, moves), 0, DgeMode.none, OobMode.error)
            add(SYNC, dma.DmaCopy, fill, (FREED,), (LOADED,))
            add(VECTOR, elementwise.TensorCopy, (tiles[1], tiles[0]), (LOADED, STORED))
            for turn in range(6):
                add(VECTOR, elementwise.TensorCopy, (tiles[2 - turn % 2], tiles[1 + turn % 2]))
            copy = (tiles[2], tiles[1])
            add(VECTOR, elementwise.TensorCopy, copy, (), (FREED, COPIED))
            store = (rows(DST, number, moves), tiles[2], 1, DgeMode.none, OobMode.error)
            add(GPSIMD, dma.DmaCopy, store, (COPIED,), (STORED,))
            if moves:
                for engine, begin in begins.items():
                    add(engine, control.LoopEnd, (begin,))
                    head = streams[engine][begin]
                    head.values = (*head.values[:-1], len(streams[engine]))
        for engine in SEQUENCERS:
            add(engine, control.Halt, ())
        bodies.append(CoreProgram(streams, [Queue("load", SYNC), Queue("store", GPSIMD)]))
    tensors = [
        TensorDeclaration(name, "bfloat16", (cores * count * TRIPS * 128, 512), role)
        for name, role in (("a", "input"), ("b", "output"))
    ]
    return Program("bodies", "trn2", bodies, tensors, [0], ["a"], [1])


CASES = {
    "straight": lambda count: bodies(count, range(0)),
    "every body a loop": lambda count: bodies(count, range(count)),
    "the last one a loop": lambda count: bodies(count, range(count - 1, count)),
    "straight, two cores": lambda count: bodies(count, range(0), 2),
}


def print_bodies(wanted: int) -> None:
    """Every case with so many instructions in bodies."""
    print(
        f"{wanted} instructions in bodies{'':10}steps   first s   us/instruction   us/step     MiB"
    )
    for name, make in CASES.items():
        program = in_columns_of(make(wanted // 10))
        runs = []
        for _ in range(3):
            start = time.process_time()
            assert check(program) == []
            runs.append(time.process_time() - start)
        steps = expand(Prepared(program), 3, 3).instruction.size
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        best, count = min(runs) * 1e6, program.instruction_count
        row = f"  {name:30}{steps:9}{runs[0]:10.2f}"
        print(f"{row}{best / count:17.2f}{best / steps:10.2f}{memory:8.0f}")


def in_columns_of(program: Program) -> Program:
    """The program with streams in columns, as the compiler makes them."""
    for core in program.cores:
        core.streams = {engine: Stream(in_columns(s)) for engine, s in core.streams.items()}
    return program


def footprints(program: Program) -> None:
    for core in program.cores:
        for stream in core.streams.values():
            for instruction in stream:
                for value in instruction.values:
                    if isinstance(value, AccessPattern):
                        footprint(value)


def timed(function, program: Program) -> float:
    start = time.process_time()
    function(program)
    return (time.process_time() - start) / program.instruction_count * 1e6


def print_matmul(wanted: int) -> None:
    """A matrix multiplication of about so many instructions."""
    program = matmul(2048, 4096, max(1, wanted // 512) * 128)
    assert check(program) == []
    runs = [(timed(check, program), timed(footprints, program)) for _ in range(REPEATS)]
    listed, derived = (statistics.median(column) for column in zip(*runs))
    in_columns_of(program)
    checked = statistics.median(timed(check, program) for _ in range(REPEATS))
    print(f"matrix multiplication of {program.instruction_count} instructions, us/instruction")
    print(f"  check      {checked:6.2f} (goal {GOAL:.0f}); from lists {listed:.2f}")
    print(f"  footprints {derived:6.2f}; from lists the check takes {listed / derived:.1f}x")


def main() -> None:
    wanted = [int(argument) for argument in sys.argv[1:]] or [10_000, 100_000, 1_000_000]
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print_matmul(min(max(wanted), 200_000))
    spawn = multiprocessing.get_context("spawn")
    for count in wanted:
        with ProcessPoolExecutor(1, spawn) as pool:
            pool.submit(print_bodies, count).result()


if __name__ == "__main__":
    main()
