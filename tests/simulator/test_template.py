"""Instructions that differ only in where operands lie share what their records are made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from programs import Builder, contiguous, hbm, sbuf

from isa.alu import ALU
from isa.enums import Engine
from isa.machine import elementwise
from isa.program import Program
from simulator.execute import LoadedProgram
from simulator.native.codegen.library import library
from simulator.native.plans.plan import Plan
from simulator.tensors import LARGE

Array = np.ndarray[Any, Any]
E = Engine

pytestmark = pytest.mark.skipif(library() is None, reason="there is no native code here")

PARTITIONS, COLUMNS, WIDTH = 4, 64, 8


def sums(steps: list[tuple[int, int, int]]) -> Program:
    """For each (destination, left, right): columns of a tile become the sum of others."""
    b = Builder()
    a = b.tensor("a", "float32", (PARTITIONS, COLUMNS), "input")
    out = b.tensor("out", "float32", (PARTITIONS, COLUMNS), "output")
    tile = sbuf("float32", 0, PARTITIONS, COLUMNS)
    whole = contiguous((PARTITIONS, COLUMNS))
    b.begin(E.vector, tile)
    b.dma(E.vector, tile, hbm(a, "float32", whole))
    for step in steps:
        dst, left, right = (sbuf("float32", 4 * first, PARTITIONS, WIDTH) for first in step)
        b.add(E.vector, elementwise.TensorTensor, dst, left, right, ALU["add"])
    b.dma(E.vector, hbm(out, "float32", whole), tile)
    return b.finish()


def expected_sums(steps: list[tuple[int, int, int]], a: Array) -> Array:
    tile = a.copy()
    for step in steps:
        dst, left, right = (slice(first, first + WIDTH) for first in step)
        tile[:, dst] = tile[:, left] + tile[:, right]
    return tile


def random_input(seed: int, shape: tuple[int, ...] = (PARTITIONS, COLUMNS)) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


def test_overlaps_are_found_whatever_equal_layouts_came_before():
    """Operands apart, the same, and shifted by every distance at which they share bytes, in both
    directions and between each other, one after the other in one program."""
    steps = [(0, 16, 32), (8, 24, 40), (0, 0, 16), (16, 8, 16), (8, 8, 8)]
    for distance in range(1, WIDTH + 1):
        steps += [(20, 20 + distance, 40), (20, 20 - distance, 40), (20, 40, 20 + distance)]
        steps += [(32, 4, 4 + distance), (40 - distance, 40, 4), (0, 16, 32)]
    a = random_input(0)
    result = LoadedProgram(sums(steps)).run([a])
    np.testing.assert_array_equal(result.outputs[0], expected_sums(steps, a))


def test_equal_layouts_are_bound_once(monkeypatch: pytest.MonkeyPatch):
    """Sums of columns that lie apart are one case, those in place are another."""
    bound = []
    bind = Plan.bind

    def noted(self: Plan, state: Any, values: Any) -> Any:
        bound.append(len(values))
        return bind(self, state, values)

    monkeypatch.setattr(Plan, "bind", noted)
    steps = [(8 * i, 8 * (i + 1), 8 * (i + 2)) for i in range(6)]
    in_place = [(8 * i, 8 * i, 8 * (i + 2)) for i in range(6)]
    a = random_input(1)
    loaded = LoadedProgram(sums(steps + in_place))
    operands = len(elementwise.TensorTensor.field_names)
    assert bound.count(operands) == 2
    np.testing.assert_array_equal(loaded.run([a]).outputs[0], expected_sums(steps + in_place, a))


def test_addresses_follow_tensors_that_move():
    """An input is read where the caller has it, and a result's memory is the caller's: each run
    finds both elsewhere, for all copies of the record."""
    rows, columns, parts = 128, 256, 8
    assert 4 * rows * columns >= LARGE
    width = columns // parts
    b = Builder()
    a = b.tensor("a", "float32", (rows, columns), "input")
    out = b.tensor("out", "float32", (rows, columns), "output")
    for part in range(parts):
        tile = sbuf("float32", 4 * width * part, rows, width)
        dims = ((columns, rows), (1, width))
        b.begin(E.vector, tile)
        b.dma(E.vector, tile, hbm(a, "float32", dims, width * part))
        b.dma(E.vector, hbm(out, "float32", dims, width * (parts - 1 - part)), tile)
    loaded = LoadedProgram(b.finish())
    given = [random_input(seed, (rows, columns)) for seed in range(3)]
    results = [loaded.run([array]).outputs[0] for array in given]
    for array, result in zip(given, results, strict=True):
        pieces = np.split(array, parts, axis=1)
        np.testing.assert_array_equal(result, np.concatenate(pieces[::-1], axis=1))
