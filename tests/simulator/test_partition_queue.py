"""Queued jobs that run strip by strip: the order of what meets in HBM or on chip stays."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from programs import Builder, contiguous, hbm, reg, sbuf

from isa.alu import ALU
from isa.enums import Engine, ReduceCommand
from isa.machine import accumulate, control, elementwise, vector
from isa.program import Program
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.native.loop import draft, partition_queue, queues
from simulator.native.loop import program as native_program

Array = np.ndarray[Any, Any]
E = Engine

pytestmark = pytest.mark.skipif(library() is None, reason="there is no native code here")

ROWS, COLUMNS = 12, 16
"""Of a tensor in HBM, and of the memory on chip in which a program works, in fp32 elements."""


class Traffic:
    """A program that moves rows between HBM and partitions in many ways, and computes on them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = Builder()
        self.tensors = [
            self.builder.tensor(name, "float32", (ROWS, COLUMNS), "inout") for name in "ab"
        ]

    def on_chip(self, start: int, count: int, width: int) -> Any:
        first = self.random.randrange(COLUMNS - width + 1)
        return sbuf("float32", 4 * first, count, width, start=start)

    def in_hbm(self, count: int, width: int, reads: bool, moves: bool) -> Any:
        """`count` rows of `width`, of which each has its own bytes if it is written."""
        steps = [COLUMNS] * 4 + [COLUMNS + 1, width, 8, *([0, 3] if reads else [])]
        step = self.random.choice([step for step in steps if reads or step >= width])
        size = ROWS * COLUMNS - (3 * COLUMNS if moves else 0)
        last = size - (count - 1) * step - width
        element = self.random.randrange(last + 1)
        if self.random.random() < 0.5:
            element -= element % COLUMNS
        registers = ((3, 4 * COLUMNS),) if moves else ()
        tensor = self.random.choice(self.tensors)
        return hbm(tensor, "float32", ((step, count), (1, width)), element, registers)

    def instruction(self, looped: bool) -> None:
        add, choose = self.builder.add, self.random.choice
        count, width = choose((1, 2, 3, 4)), choose((1, 2, 4, 8))
        start = self.random.randrange(ROWS - count + 1)
        first, second, third = (self.on_chip(start, count, width) for _ in range(3))
        moves = looped and self.random.random() < 0.5
        kind = self.random.randrange(8)
        if kind < 2:
            self.builder.dma(E.vector, first, self.in_hbm(count, width, True, moves))
        elif kind < 5:
            self.builder.dma(E.vector, self.in_hbm(count, width, False, moves), first)
        elif kind == 5:
            add(E.vector, elementwise.TensorTensor, first, second, third, ALU["add"])
        elif kind == 6:
            # From partition to partition, which waits for all that was before.
            other = self.random.randrange(ROWS - count + 1)
            add(E.vector, elementwise.TensorCopy, first, self.on_chip(other, count, width))
        else:
            values = (ALU["multiply"], 0.5, ALU["add"], ReduceCommand.reset_reduce, None)
            add(E.vector, accumulate.TensorScalarReduce, first, second, *values)
            one = self.on_chip(start, count, 1)
            add(E.vector, accumulate.VectorReadAccumulator, one, False, 0)
            add(E.vector, vector.TensorReduce, one, third, ALU["maximum"], 1, False)

    def finish(self) -> Program:
        b = self.builder
        whole = sbuf("float32", 0, ROWS, COLUMNS)
        b.begin(E.vector, whole)
        b.dma(E.vector, whole, hbm(self.tensors[0], "float32", contiguous((ROWS, COLUMNS))))
        for _ in range(self.random.randrange(1, 12)):
            self.instruction(False)
        begin = b.add(E.vector, control.LoopBegin, reg(3), 0, self.random.randrange(4), 1, 0)
        for _ in range(self.random.randrange(1, 9)):
            self.instruction(True)
        end = b.add(E.vector, control.LoopEnd, begin)
        loop = b.cores[0][E.vector][begin]
        loop.values = (*loop.values[:4], end + 1)
        for _ in range(self.random.randrange(8)):
            self.instruction(False)
        return b.finish()


def left(loaded: LoadedProgram, inputs: list[Array]) -> Any:
    """What two runs leave in the tensors."""
    return [[a.tobytes() for a in loaded.run(inputs).inputs_after] for _ in range(2)]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("first", [0, 10])
def test_random_traffic(first: int, check: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    monkeypatch.setattr(queues, "LEAST_WORK", 1)
    rng = np.random.default_rng(first)
    inputs = [rng.uniform(-1, 1, (ROWS, COLUMNS)).astype(np.float32) for _ in range(2)]
    for seed in range(first, first + 10):
        program = Traffic(seed).finish()
        expected = left(LoadedProgram(program, native=False, check=check), inputs)
        for threads in (1, 3):
            loaded = LoadedProgram(program, threads=threads, check=check)
            assert left(loaded, inputs) == expected, seed
            assert loaded._compiled is not None
            loaded._compiled._queue[partition_queue.QUEUE.indices["block_bytes"]] = 1
            assert left(loaded, inputs) == expected, seed


def queues_of(program: Program, inputs: list[Array]) -> int:
    """How many times the queue of a program runs."""
    loaded = LoadedProgram(program)
    assert loaded._compiled is not None
    queue, epoch = loaded._compiled._queue, partition_queue.QUEUE.indices["epoch"]
    before = queue[epoch]
    loaded.run(inputs)
    return int(queue[epoch] - before)


@pytest.mark.parametrize(
    ("element", "step", "queues"),
    [
        # The rows just written, by the same partitions.
        (0, COLUMNS, 1),
        # Other columns of these rows, and other rows.
        (4, COLUMNS, 1),
        (4 * COLUMNS, COLUMNS, 1),
        # The rows of other partitions; rows of another step.
        (COLUMNS, COLUMNS, 2),
        (0, COLUMNS - 1, 2),
    ],
)
def test_only_rows_of_other_partitions_wait(element: int, step: int, queues: int) -> None:
    b = Builder()
    a = b.tensor("a", "float32", (ROWS, COLUMNS), "inout")
    tile, other = (sbuf("float32", 16 * i, 4, 4) for i in range(2))
    for each in (tile, other):
        b.begin(E.vector, each)
    b.add(E.vector, elementwise.Memset, tile, 2.0)
    b.dma(E.vector, hbm(a, "float32", ((COLUMNS, 4), (1, 4))), tile)
    b.dma(E.vector, other, hbm(a, "float32", ((step, 4), (1, 4)), element))
    assert queues_of(b.finish(), [np.zeros((ROWS, COLUMNS), np.float32)]) == queues


def test_a_queue_that_is_full_runs() -> None:
    b = Builder()
    out = b.tensor("out", "float32", (4, 4), "output")
    tile = sbuf("float32", 0, 4, 4)
    b.begin(E.vector, tile)
    count = 2 * queues.MOST_JOBS + 5
    b.add(E.vector, elementwise.Memset, tile, 0.0)
    for _ in range(count):
        b.add(E.vector, elementwise.TensorScalar, tile, tile, ALU["add"], 1.0, False, *[None] * 3)
    b.dma(E.vector, hbm(out, "float32", contiguous((4, 4))), tile)
    program = b.finish()
    assert queues_of(program, []) == 3
    assert (LoadedProgram(program).run([]).outputs[0] == count).all()


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_tensors_that_fit_in_no_cache_are_written_past_it(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draft, "PAST_CACHES", 1)
    monkeypatch.setattr(queues, "LEAST_WORK", 1)
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    b = Builder()
    a = b.tensor("a", dtype, (8, 700), "input")
    out = b.tensor("out", dtype, (8, 700), "inout")
    data = np.random.default_rng(3).integers(0, 100, (8, 700)).astype(dtype)
    expected = np.zeros_like(data)
    # Rows of less than a line of cache, of a few lines, and that begin anywhere in a line.
    for first, width in ((0, 9), (10, 64), (75, 257), (333, 350), (690, 10)):
        rows = ((700, 8), (1, width))
        tile = sbuf(dtype, 1024, 8, width)
        b.begin(E.vector, tile)
        b.dma(E.vector, tile, hbm(a, dtype, rows, first))
        b.dma(E.vector, hbm(out, dtype, rows, first), tile)
        expected[:, first : first + width] = data[:, first : first + width]
    loaded = LoadedProgram(b.finish(), threads=2)
    (_, after) = loaded.run([data, np.zeros_like(data)]).inputs_after
    np.testing.assert_array_equal(after, expected)
