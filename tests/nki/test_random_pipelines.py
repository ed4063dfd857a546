"""Random kernels of the usual shape, tiles as large as public kernels have them: all modes give the
same bits on two threads.

A kernel loads parts of its inputs, computes with slices of what it has got so far, writes some of
it back into its second input and returns the rest. Stretches that repeat, chains of products and
tiles that are half overwritten are what a loaded program treats in ways of its own: places close
together, one record for many operations, products that wait for each other.
"""

from __future__ import annotations

from random import Random

import ml_dtypes
import numpy as np
from combinations import seeded

import nki
import nki.isa as nisa
import nki.language as nl

KERNELS = 24
ROWS, COLUMNS = 256, 1024
DTYPES = [nl.float32, nl.bfloat16, nl.bfloat16, nl.float16]
FUNCTIONS = [nl.exp, nl.copy, nl.square, nl.relu, nl.tanh, nl.sigmoid, nl.gelu]
OPERATORS = [nl.add, nl.multiply, nl.subtract, nl.maximum, nl.minimum]
SHAPES = [(128, 512), (128, 128), (64, 128), (32, 64), (128, 33), (128, 1)]
LIVE = 14
"""Tiles that later steps may read; some of the older ones are forgotten beyond that."""


class Pipeline:
    def __init__(self, a, b, random):
        self.a, self.b, self.random = a, b, random
        self.live = []
        for _ in range(3):
            self.load(*random.choice(SHAPES))

    def tile(self, rows, columns, dtype=None, buffer=nl.sbuf):
        dtype = dtype or self.random.choice(DTYPES)
        return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)

    def kept(self, tile):
        self.live.append(tile)
        return tile

    def part(self, array, rows, columns):
        """A random part of an input."""
        row = self.random.randrange(ROWS - rows + 1)
        column = self.random.randrange(COLUMNS - columns + 1)
        return array[row : row + rows, column : column + columns]

    def load(self, rows, columns):
        dtype = self.a.dtype if self.random.random() < 0.7 else None
        tile = self.kept(self.tile(rows, columns, dtype))
        source = self.part(self.random.choice([self.a, self.b]), rows, columns)
        nisa.dma_copy(dst=tile, src=source)
        return tile

    def view(self, rows, columns):
        """Some rows and columns, perhaps with a step, of a tile that has so many."""
        wide = [t for t in self.live if t.shape[0] >= rows and t.shape[1] >= columns]
        tile = self.random.choice(wide) if wide else self.load(max(rows, 32), columns)
        starts = [0, 32, 64, 96] if rows <= 32 else [0, 64] if rows == 64 else [0]
        start = self.random.choice([start for start in starts if start + rows <= tile.shape[0]])
        step = self.random.choice([1, 1, 1, 2, 3])
        if (columns - 1) * step >= tile.shape[1]:
            step = 1
        length = (columns - 1) * step + 1
        first = self.random.randrange(tile.shape[1] - length + 1)
        return tile[start : start + rows, first : first + length : step]

    def column(self, rows):
        """A column of float32 values, one for each row, or a number."""
        columns = [t for t in self.live if t.shape == (rows, 1) and t.dtype == nl.float32]
        return self.random.choice(columns) if columns else self.random.choice([0.5, 2.0, -1.0])

    # Steps

    def activation(self, rows, columns):
        data, dst = self.view(rows, columns), self.kept(self.tile(rows, columns))
        scale = self.random.choice([1.0, 0.5, -0.25])
        nisa.activation(dst=dst, op=self.random.choice(FUNCTIONS), data=data, scale=scale)

    def two_tensors(self, rows, columns):
        one, other = self.view(rows, columns), self.view(rows, columns)
        dst = self.kept(self.tile(rows, columns))
        nisa.tensor_tensor(dst=dst, data1=one, data2=other, op=self.random.choice(OPERATORS))

    def two_operators(self, rows, columns):
        data, other = self.view(rows, columns), self.view(rows, columns)
        first, second = self.random.choices(OPERATORS, k=2)
        factor, dst = self.column(rows), self.kept(self.tile(rows, columns))
        if self.random.random() < 0.5:
            nisa.tensor_scalar(dst, data, first, factor, op1=second, operand1=0.75)
        else:
            nisa.scalar_tensor_tensor(dst, data, first, factor, second, other)

    def reduction(self, rows, columns):
        data, dst = self.view(rows, columns), self.kept(self.tile(rows, 1, nl.float32))
        if self.random.random() < 0.5:
            operator = self.random.choice([nl.add, nl.maximum])
            nisa.tensor_reduce(dst=dst, op=operator, data=data, axis=1)
        else:
            values = self.kept(self.tile(rows, columns))
            nisa.activation_reduce(values, nl.square, data, reduce_op=nl.add, reduce_res=dst)

    def product(self, rows, columns):
        """A chain of products, and its result in SBUF by one of three ways."""
        total = self.tile(min(rows, 128), columns, nl.float32, nl.psum)
        for _ in range(self.random.choice([1, 2, 3, 5])):
            depth = self.random.choice([128, 64, 32])
            stationary, moving = self.view(depth, total.shape[0]), self.view(depth, columns)
            if (stationary.dtype == nl.float32) != (moving.dtype == nl.float32):
                same = self.tile(depth, columns, stationary.dtype)
                nisa.tensor_copy(dst=same, src=moving)
                moving = same
            nisa.nc_matmul(dst=total, stationary=stationary, moving=moving)
        dst, way = self.kept(self.tile(*total.shape)), self.random.randrange(3)
        if way == 0:
            nisa.tensor_copy(dst=dst, src=total)
        elif way == 1:
            nisa.activation(dst=dst, op=nl.tanh, data=total, scale=0.01)
        else:
            nisa.tensor_scalar(dst=dst, data=total, op0=nl.multiply, operand0=0.01)

    def transpose(self, rows, columns):
        columns = min(columns, 128)
        data = self.view(rows, columns)
        turned = self.tile(columns, rows, data.dtype, nl.psum)
        nisa.nc_transpose(dst=turned, data=data)
        nisa.tensor_copy(dst=self.kept(self.tile(columns, rows)), src=turned)

    def overwrite(self, rows, columns):
        """Some columns of a tile that is there already."""
        tile = self.random.choice(self.live)
        width = self.random.randint(1, tile.shape[1])
        first = self.random.randrange(tile.shape[1] - width + 1)
        dst = tile[:, first : first + width]
        if self.random.random() < 0.3:
            nisa.memset(dst=dst, value=self.random.choice([0.0, 1.5]))
        else:
            data = self.view(tile.shape[0], width)
            nisa.tensor_scalar(dst=dst, data=data, op0=nl.minimum, operand0=3.0)

    def by_hbm(self, rows, columns):
        data = self.view(rows, columns)
        away = self.tile(rows, columns, data.dtype, nl.private_hbm)
        nisa.dma_copy(dst=away, src=data)
        nisa.dma_copy(dst=self.kept(self.tile(rows, columns)), src=away)

    def update(self, rows, columns):
        """Part of the second input changes, which later loads may read."""
        data = self.tile(rows, columns, self.b.dtype)
        nisa.tensor_copy(dst=data, src=self.view(rows, columns))
        nisa.dma_copy(dst=self.part(self.b, rows, columns), src=data)

    STEPS = [
        load, activation, two_tensors, two_operators, reduction, product, product, transpose,
        overwrite, by_hbm, update,
    ]  # fmt: skip

    def step(self):
        self.random.choice(self.STEPS)(self, *self.random.choice(SHAPES))
        while len(self.live) > LIVE:
            self.live.pop(self.random.randrange(LIVE - 4))

    def run(self, steps):
        for _ in range(steps):
            choices = self.random.getstate()
            for _ in range(self.random.choice([1, 1, 2, 9])):
                self.random.setstate(choices)
                self.step()


def kernel(a, b, seed):
    random = Random(seed)
    pipeline = Pipeline(a, b, random)
    pipeline.run(random.choice([4, 8, 16]))
    results = []
    for tile in pipeline.live[-6:]:
        results.append(nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm))
        nisa.dma_copy(dst=results[-1], src=tile)
    return b, *results


def bits(array):
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def assert_modes_agree(seed):
    rng = np.random.default_rng(seed)
    dtype = [np.float32, ml_dtypes.bfloat16][seed % 2]
    a, b = rng.standard_normal((2, ROWS, COLUMNS)).astype(dtype)
    jitted = nki.jit(kernel, platform_target=["trn1", "trn2", "trn3"][seed % 3])
    results = {}
    for mode in ("eager", "reference", "device"):
        inputs = a.copy(), b.copy()
        results[mode] = [*nki.simulate(jitted, mode=mode)(*inputs, seed), *inputs]
    for mode in ("reference", "device"):
        for number, (one, other) in enumerate(zip(results["eager"], results[mode], strict=True)):
            np.testing.assert_array_equal(bits(one), bits(other), err_msg=f"{mode}, {number}")


@seeded("seed", range(KERNELS), 12)
def test_pipelines_agree_in_all_modes(seed, monkeypatch):
    monkeypatch.setenv("NKI_NUM_THREADS", "2")
    assert_modes_agree(seed)
