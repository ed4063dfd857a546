"""Time of the happens-before check on a straight-line matrix multiplication, an instruction.

Run: python benchmarks/happens_before.py [INSTRUCTIONS]

Prints microseconds an instruction for the whole check and, as the peer in the same run, for
deriving the footprint of every operand once, which any check has to do; medians of interleaved
repeats.
"""

from __future__ import annotations

import platform
import statistics
import sys
import time

from isa.access import AccessPattern, footprint
from isa.enums import SEQUENCERS, DgeMode, Memory, OobMode
from isa.machine import control, dma, elementwise, tensor
from isa.program import CoreProgram, Program, Queue, TensorDeclaration
from isa.spec import Instruction
from simulator.checks.happens_before import check

REPEATS = 5
GOAL = 20.0
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


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    program = matmul(2048, 4096, max(1, wanted // 512) * 128)
    assert check(program) == []
    runs = [(timed(check, program), timed(footprints, program)) for _ in range(REPEATS)]
    checked, derived = (statistics.median(column) for column in zip(*runs))
    print(f"{platform.processor() or platform.machine()}, Python {platform.python_version()}")
    print(f"{program.instruction_count} instructions")
    print(f"check      {checked:6.1f} us/instruction (goal {GOAL:.0f})")
    print(f"footprints {derived:6.1f} us/instruction; the check takes {checked / derived:.1f}x")


if __name__ == "__main__":
    main()
