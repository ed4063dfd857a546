"""Loads, products and transpositions that wait and run together: the bits of NumPy, whatever comes
in between and however many threads take part."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from programs import Builder, contiguous, hbm, reg, sbuf

from isa.array_tiles import WHOLE_ARRAY, ArrayTile
from isa.enums import Engine, Memory
from isa.machine import control, elementwise, tensor
from isa.program import Program
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.native.loop import program as native_program
from simulator.native.loop import queues, tensor_queue

Array = np.ndarray[Any, Any]
E = Engine

pytestmark = pytest.mark.skipif(library() is None, reason="there is no native code here")

ROWS, COLUMNS = 128, 192
"""Partitions, and the elements of each: of bfloat16 in SBUF, of fp32 in PSUM."""


class Array2D:
    """A program that loads tiles of SBUF, multiplies by them and transposes them into PSUM, and
    copies results over what was loaded."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.builder = Builder()
        self.loaded: dict[tuple[int, int], tuple[int, int]] = {}

    def tile(self, count: int, width: int, moves: bool = False, **place: Any) -> Any:
        size = 4 if place else 2
        last = COLUMNS - width - (32 if moves else 0)
        start = self.random.choice(range(0, ROWS - count + 1, 32))
        first = self.random.randrange(last + 1)
        registers = ((3, 16 * size),) if moves else ()
        dtype = "float32" if place else "bfloat16"
        return sbuf(dtype, size * first, count, width, start=start, registers=registers, **place)

    def result(self, count: int, width: int, moves: bool = False) -> Any:
        return self.tile(count, width, moves, memory=Memory.psum)

    def instruction(self, looped: bool) -> None:
        add, choose = self.builder.add, self.random.choice
        moves = looped and self.random.random() < 0.5
        part = choose((WHOLE_ARRAY, WHOLE_ARRAY, ArrayTile(32, 64, 32, 64)))
        kind = self.random.randrange(9)
        if kind < 3 or part not in self.loaded:
            depth, columns = choose((32, 64, 128)), choose((8, 40, 64, 128))
            self.loaded[part] = depth, columns
            source = self.tile(depth, columns, moves)
            add(E.tensor, tensor.LoadStationary, source, part)
            return
        depth, columns = self.loaded[part]
        if kind < 6:
            width = choose((8, 64, 130))
            dst, moving = self.result(columns, width, moves), self.tile(depth, width, moves)
            accumulate = self.random.random() < 0.7
            add(E.tensor, tensor.MultiplyMoving, dst, moving, accumulate, part)
        elif kind == 6 and WHOLE_ARRAY in self.loaded:
            depth, columns = self.loaded[WHOLE_ARRAY]
            start = choose(range(0, ROWS - columns + 1, 32))
            offset = 2 * self.random.randrange(2 * COLUMNS - depth)
            dst = sbuf("bfloat16", offset, columns, depth, start=start, memory=Memory.psum)
            add(E.tensor, tensor.TransposeStationary, dst, 0, False)
        else:
            count, width = choose((32, 64, 128)), choose((16, 60))
            start = choose(range(0, ROWS - count + 1, 32))
            first, second = (4 * self.random.randrange(COLUMNS - width) for _ in range(2))
            src = sbuf("float32", first, count, width, start=start, memory=Memory.psum)
            dst = sbuf("bfloat16", second // 2, count, width, start=start)
            add(E.tensor, elementwise.TensorCopy, dst, src)

    def finish(self) -> Program:
        b = self.builder
        whole = sbuf("bfloat16", 0, ROWS, COLUMNS)
        sums = sbuf("float32", 0, ROWS, COLUMNS, memory=Memory.psum)
        a = b.tensor("a", "bfloat16", (ROWS, COLUMNS), "inout")
        c = b.tensor("c", "float32", (ROWS, COLUMNS), "inout")
        b.begin(E.tensor, whole)
        b.begin(E.tensor, sums)
        b.dma(E.tensor, whole, hbm(a, "bfloat16", contiguous((ROWS, COLUMNS))))
        b.add(E.tensor, elementwise.Memset, sums, 0.25)
        for _ in range(self.random.randrange(1, 16)):
            self.instruction(False)
        self.loaded.clear()
        begin = b.add(E.tensor, control.LoopBegin, reg(3), 0, self.random.randrange(1, 3), 1, 0)
        for _ in range(self.random.randrange(1, 9)):
            self.instruction(True)
        end = b.add(E.tensor, control.LoopEnd, begin)
        loop = b.cores[0][E.tensor][begin]
        loop.values = (*loop.values[:4], end + 1)
        for _ in range(self.random.randrange(12)):
            self.instruction(False)
        out = sbuf("float32", 4096, ROWS, COLUMNS)
        b.begin(E.tensor, out)
        b.add(E.tensor, elementwise.TensorCopy, out, sums)
        b.dma(E.tensor, hbm(c, "float32", contiguous((ROWS, COLUMNS))), out)
        b.dma(E.tensor, hbm(a, "bfloat16", contiguous((ROWS, COLUMNS))), whole)
        return b.finish()


class FewTiles(Array2D):
    """The same with few places, so that tiles are multiplied again, some of them changed."""

    def tile(self, count: int, width: int, moves: bool = False, **place: Any) -> Any:
        size = 4 if place else 2
        first = size * self.random.choice((0, 32, 60 if place else 64))
        dtype = "float32" if place else "bfloat16"
        registers = ((3, 32 * size),) if moves and width < 100 else ()
        return sbuf(dtype, first, count, min(width, 128), registers=registers, **place)

    def instruction(self, looped: bool) -> None:
        for _ in range(6):
            super().instruction(looped)


def left(loaded: LoadedProgram, inputs: list[Array]) -> Any:
    """What two runs leave in the tensors."""
    return [[a.tobytes() for a in loaded.run(inputs).inputs_after] for _ in range(2)]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("first", [0, 5])
def test_random_programs_of_the_array(
    first: int, check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    monkeypatch.setattr(queues, "LEAST_WORK", 1)
    rng = np.random.default_rng(first)
    inputs = [
        rng.uniform(-1, 1, (ROWS, COLUMNS)).astype(ml_dtypes.bfloat16),
        np.zeros((ROWS, COLUMNS), np.float32),
    ]
    for seed in range(first, first + 5):
        program = Array2D(seed).finish()
        expected = left(LoadedProgram(program, native=False, check=check), inputs)
        for threads in (1, 3):
            loaded = LoadedProgram(program, threads=threads, check=check)
            assert left(loaded, inputs) == expected, (seed, threads)


def test_tiles_that_are_multiplied_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed or not, they are what their memory holds then."""
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    monkeypatch.setattr(queues, "LEAST_WORK", 1)
    rng = np.random.default_rng(3)
    inputs = [
        rng.uniform(-1, 1, (ROWS, COLUMNS)).astype(ml_dtypes.bfloat16),
        np.zeros((ROWS, COLUMNS), np.float32),
    ]
    for seed in range(8):
        program = FewTiles(seed).finish()
        expected = left(LoadedProgram(program, native=False, check=False), inputs)
        for threads in (1, 3):
            loaded = LoadedProgram(program, threads=threads, check=False)
            assert left(loaded, inputs) == expected, (seed, threads)


def test_a_tile_that_is_loaded_again_is_what_its_memory_holds_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Loaded again in one queue it is the same tile; behind a copy to its place it is another."""
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    monkeypatch.setattr(queues, "LEAST_WORK", 1)
    b = Builder()
    a = b.tensor("a", "bfloat16", (128, 288), "input")
    out = b.tensor("out", "float32", (128, 96), "output")
    tiles, row = sbuf("bfloat16", 0, 128, 288), sbuf("float32", 8192, 128, 96)
    b.begin(E.tensor, tiles)
    b.begin(E.tensor, row)
    b.dma(E.tensor, tiles, hbm(a, "bfloat16", contiguous((128, 288))))
    first, second = (sbuf("bfloat16", 256 * i, 128, 128) for i in range(2))
    moving = sbuf("bfloat16", 512, 128, 32)
    sums = [sbuf("float32", 2048 * i, 128, 32, memory=Memory.psum) for i in range(3)]
    for number, place in enumerate(sums):
        b.begin(E.tensor, place)
        if number == 2:
            b.add(E.tensor, elementwise.TensorCopy, first, second)
        b.add(E.tensor, tensor.LoadStationary, first, WHOLE_ARRAY)
        b.add(E.tensor, tensor.MultiplyMoving, place, moving, False, WHOLE_ARRAY)
    for number, place in enumerate(sums):
        copied = sbuf("float32", 8192 + 128 * number, 128, 32)
        b.add(E.tensor, elementwise.TensorCopy, copied, place)
    b.dma(E.tensor, hbm(out, "float32", contiguous((128, 96))), row)
    program = b.finish()
    numbers = np.random.default_rng(0).integers(-3, 4, (128, 288))
    before, after = (numbers[:, at : at + 128].T @ numbers[:, 256:] for at in (0, 128))
    for threads in (1, 2, 4):
        loaded = LoadedProgram(program, threads=threads)
        for _ in range(2):
            found = loaded.run([numbers.astype(ml_dtypes.bfloat16)]).outputs[0]
            np.testing.assert_array_equal(found, np.hstack([before, before, after]))


def test_a_queue_that_is_full_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """More loads and products than fit, of exact numbers; more threads than can take part."""
    monkeypatch.setattr(native_program, "busy", lambda threads: False)
    b, products_count = Builder(), tensor_queue.MOST_PRODUCTS - 5
    a = b.tensor("a", "bfloat16", (64, 96), "input")
    out = b.tensor("out", "float32", (64, 32), "output")
    tiles, row = sbuf("bfloat16", 0, 64, 96), sbuf("float32", 8192, 64, 32)
    sums = sbuf("float32", 0, 64, 32, memory=Memory.psum)
    for place in (tiles, row, sums):
        b.begin(E.tensor, place)
    b.dma(E.tensor, tiles, hbm(a, "bfloat16", contiguous((64, 96))))
    stationary, moving = sbuf("bfloat16", 0, 64, 64), sbuf("bfloat16", 128, 64, 32)
    for number in range(products_count):
        b.add(E.tensor, tensor.LoadStationary, stationary, WHOLE_ARRAY)
        b.add(E.tensor, tensor.MultiplyMoving, sums, moving, number > 0, WHOLE_ARRAY)
    b.add(E.tensor, elementwise.TensorCopy, row, sums)
    b.dma(E.tensor, hbm(out, "float32", contiguous((64, 32))), row)
    program = b.finish()
    numbers = np.random.default_rng(0).integers(-3, 4, (64, 96))
    expected = products_count * (numbers[:, :64].T @ numbers[:, 64:])
    for threads in (1, 6):
        loaded = LoadedProgram(program, threads=threads)
        found = loaded.run([numbers.astype(ml_dtypes.bfloat16)]).outputs[0]
        np.testing.assert_array_equal(found, expected)
