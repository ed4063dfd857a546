"""Random nested loops of every kind, over launch symbols, registers and data, with tensors that are
allocated inside: no race for any size, and all three modes give the same bits.

A kernel is a tree of steps; `LoopKernel` runs it as a kernel's body. Tiles are so large that six
fill the SBUF, so that loops reuse bytes.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from combinations import seeded
from reference_run import run_reference

import nki
import nki.isa as nisa
import nki.language as nl
from simulator.races.happens_before import check

ROWS, COLUMNS, PITCH = 16, 24, 8000
M = nki.symbol("M", multiple_of=ROWS, max=512)
N = nki.symbol("N", multiple_of=ROWS, max=512)
SIZES = [(1, 1, 0), (2, 3, 3), (3, 1, 2), (5, 2, 1)]
"""Blocks of rows of the two inputs, and the trip count of loops that depend on data."""

LOOPS = ["first", "second", "reversed", "neighbours", "dynamic", "while", "static"]
STEPS = ["allocate", "load", "store", "gather", "compute", "compute", "matmul", "evict"]
KERNELS = 30

# Found by this test: an access after the loops that nothing waited for.
HISTORY = {
    "an engine that knows a loop's work does not know that its queue was drained": [
        ("while", [("load", 0.99, 0.0, 0.0)]),
        ("store", 0.5, 0.0, 0.0),
    ],
    "a loop that may not run teaches nothing, inside a loop that runs": [
        ("first", [("dynamic", [("store", 0.3, 0.0, 0.0), ("allocate", 0.45, 0.0, 0.0)])])
    ],
    "of a loop's writes the last in its body is not the last": [
        ("second", [("load", 0.3, 0.6, 0.7), ("gather", 0.2, 0.4, 0.1), ("load", 0.0, 0.8, 0.7)])
    ],
}


def random_steps(random, depth=0, left=None, loops=LOOPS):
    left = left if left is not None else [18]
    steps = []
    for _ in range(random.randint(1, 5)):
        left[0] -= 1
        if left[0] < 0:
            break
        if depth < 3 and random.random() < 0.35:
            kind = random.choice(loops)
            # One `while` statement in the source is one loop: it is not inside itself.
            inner = [loop for loop in loops if loop != "while"] if kind == "while" else loops
            steps.append((kind, random_steps(random, depth + 1, left, inner)))
        else:
            numbers = random.random(), random.random(), random.random()
            steps.append((random.choice(STEPS), *numbers))
    return steps


def chosen(items, number):
    return items[int(number * len(items))]


class LoopKernel:
    def __init__(self, a, b, trips):
        self.inputs = [a, b]
        self.blocks = [a.shape[0] // ROWS, b.shape[0] // ROWS]
        self.trips = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=self.trips, src=trips)
        self.one = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=self.one, value=1)
        self.index = nl.ndarray((ROWS, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.iota(dst=self.index, pattern=[[1, 1]], offset=0, channel_multiplier=1)
        zero = self.tile()
        nisa.memset(dst=zero, value=0.0)
        self.tiles, self.variables = [zero], []
        self.sums = [nl.ndarray((COLUMNS, COLUMNS), dtype=nl.float32, buffer=nl.psum)]
        zeros = nl.zeros((ROWS, COLUMNS), dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_matmul(dst=self.sums[0], stationary=zeros, moving=zeros)
        self.outputs = []
        for source, blocks in zip(self.inputs, self.blocks):
            out = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.shared_hbm)
            for i in nl.affine_range(blocks):
                rows = nl.ds(i * ROWS, ROWS)
                nisa.dma_copy(dst=out[rows, :], src=source[rows, :] if self.outputs else zero)
            self.outputs.append(out)

    def tile(self):
        return nl.ndarray((ROWS, PITCH), dtype=nl.float32, buffer=nl.sbuf)[:, 0:COLUMNS]

    def rows(self, tensors, number):
        """A block of rows that the loops around may choose."""
        views = [tensor[0:ROWS, :] for pair in tensors for tensor in pair]
        for which, start in self.variables:
            for pair in tensors:
                if which is None:
                    pattern = [[COLUMNS, ROWS], [1, COLUMNS]]
                    views.append(pair[0].ap(pattern=pattern, scalar_offset=start))
                else:
                    views.append(pair[which][nl.ds(start * ROWS, ROWS), :])
        return chosen(views, number)

    def run(self, steps):
        for kind, *rest in steps:
            if kind in LOOPS:
                self.loop(kind, rest[0])
            else:
                self.step(kind, *rest)

    def body(self, steps, *variables):
        kept = len(self.tiles), len(self.variables)
        self.variables.extend(variables)
        self.run(steps)
        del self.tiles[kept[0] :], self.variables[kept[1] :]

    def loop(self, kind, steps):
        first, second = self.blocks
        if kind == "first":
            for i in nl.affine_range(first):
                self.body(steps, (0, i))
        elif kind == "second":
            for i in nl.affine_range(second):
                self.body(steps, (1, i))
        elif kind == "reversed":
            for i in nl.affine_range(first):
                self.body(steps, (0, i), (0, first - 1 - i))
        elif kind == "neighbours":
            for i in nl.affine_range(first - 1):
                self.body(steps, (0, i), (0, i + 1))
        elif kind == "static":
            for _ in range(2):
                self.body(steps)
        elif kind == "dynamic":
            stop = nisa.register_alloc()
            nisa.register_load(stop, self.trips)
            for i in nl.dynamic_range(0, stop):
                self.body(steps, (None, i))
        else:
            counter = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.tensor_copy(dst=counter, src=self.trips)
            left = nisa.register_alloc()
            nisa.register_load(left, counter)
            while left:
                self.body(steps)
                nisa.tensor_tensor(dst=counter, data1=counter, data2=self.one, op=nl.subtract)
                nisa.register_load(left, counter)

    def step(self, kind, p, q, r):
        readable = [self.inputs, self.outputs]
        if kind == "allocate":
            self.tiles.append(self.tile())
            nisa.dma_copy(dst=self.tiles[-1], src=self.rows(readable, p))
        elif kind == "load":
            nisa.dma_copy(dst=chosen(self.tiles, q), src=self.rows(readable, p))
        elif kind == "store":
            nisa.dma_copy(dst=self.rows([self.outputs], p), src=chosen(self.tiles, q))
        elif kind == "gather":
            pattern = [[COLUMNS, ROWS], [1, COLUMNS]]
            source = chosen([*self.inputs, *self.outputs], p)
            view = source.ap(pattern=pattern, vector_offset=self.index, indirect_dim=0)
            nisa.dma_copy(dst=chosen(self.tiles, q), src=view)
        elif kind == "compute":
            x, y, z = (chosen(self.tiles, number) for number in (p, q, r))
            choice = int(p * 1000) % 4
            if choice == 0:
                nisa.tensor_tensor(dst=x, data1=y, data2=z, op=nl.add)
            elif choice == 1:
                nisa.activation(dst=x, op=nl.copy, data=y, scale=0.5)
            elif choice == 2:
                nisa.tensor_scalar(dst=x, data=y, op0=nl.add, operand0=1.0)
            else:
                nisa.tensor_copy(dst=x[:, 4:12], src=y[:, 0:8], engine=nisa.engine.gpsimd)
        elif kind == "matmul":
            stationary, moving = chosen(self.tiles, p), chosen(self.tiles, q)
            nisa.nc_matmul(dst=self.sums[0], stationary=stationary, moving=moving, accumulate=True)
        else:
            nisa.tensor_copy(dst=chosen(self.tiles, p), src=self.sums[0][0:ROWS, :])


def kernel_of(steps):
    def loops(a, b, trips):
        kernel = LoopKernel(a, b, trips)
        kernel.run(steps)
        result = kernel.tile()
        nisa.tensor_copy(dst=result, src=kernel.tiles[0])
        nisa.dma_copy(dst=kernel.outputs[0][0:ROWS, :], src=result)
        return tuple(kernel.outputs)

    return nki.jit(loops, platform_target="trn2")


def arrays(first, second, trips, seed):
    random = np.random.default_rng(seed)
    a, b = (random.integers(-2, 3, (n * ROWS, COLUMNS)).astype(np.float32) for n in (first, second))
    return [a, b, np.array([[trips]], np.int32)]


def assert_modes_agree(steps, seed):
    kernel = kernel_of(steps)
    specs = [nki.TensorSpec((size, COLUMNS), nl.float32) for size in (M, N)]
    specs.append(nki.TensorSpec((1, 1), nl.int32))
    # Checked here for each size; compiling would check, too, but tell less.
    compiled = nki.compile(kernel, *specs)
    traced = kernel.trace(*specs)
    for first, second, trips in SIZES:
        inputs = arrays(first, second, trips, seed)
        assert check(compiled.program_for(inputs), limit=1) == []
        with np.errstate(all="ignore"):
            results = [
                compiled(*inputs),
                run_reference(traced, inputs, {}).outputs,
                nki.simulate(kernel, mode="eager")(*inputs),
            ]
        for other in results[1:]:
            for one, two in zip(results[0], other):
                np.testing.assert_array_equal(one.view(np.uint32), two.view(np.uint32))


@pytest.mark.parametrize("name", HISTORY)
def test_kernels_that_had_a_race(name):
    assert_modes_agree(HISTORY[name], 0)


# 409: of what a tensor takes the bytes from only a loop without iterations has read.
@seeded("seed", [409, *range(KERNELS)], 16)
def test_random_loops_have_no_race_and_agree(seed):
    assert_modes_agree(random_steps(Random(seed)), seed)


def test_remainders_in_two_dimensions():
    """Also those of no rows or no columns, whose views begin at the tensor's end."""

    def copied(a):
        rows, columns = a.shape
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range((rows + 127) // 128):
            for j in nl.affine_range((columns + 63) // 64):
                here = slice(i * 128, (i + 1) * 128), slice(j * 64, (j + 1) * 64)
                tile = nl.ndarray((128, 64), dtype=a.dtype, buffer=nl.sbuf)
                part = tile[0 : a[here].shape[0], 0 : a[here].shape[1]]
                nisa.dma_copy(dst=part, src=a[here])
                nisa.dma_copy(dst=out[here], src=part)
        return out

    kernel = nki.jit(copied, platform_target="trn2")
    sizes = (nki.symbol("M", max=1024), nki.symbol("N", max=1024))
    compiled = nki.compile(kernel, nki.TensorSpec(sizes, nl.float32))
    for rows in (1, 127, 128, 129, 256):
        for columns in (1, 64, 65, 128):
            a = np.arange(rows * columns, dtype=np.float32).reshape(rows, columns)
            np.testing.assert_array_equal(compiled(a), a)
