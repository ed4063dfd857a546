"""Random kernels with loops, placed several times by `repeat`, against the same in NumPy.

Each time has arrays of its own out of one stack. Times in a row that are equally far apart become a
loop around the kernel's own loops; the others are copies.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from test_random_loops_in_numpy import (
    BLOCKS,
    COLUMNS,
    COUNTS,
    ROWS,
    OnDevice,
    in_numpy,
    random_steps,
)

import nki
import nki.language as nl
from nki.ir.builder.builder import Builder
from nki.ir.builder.repeat import repeat
from nki.ir.nodes import TracedKernel
from nki.kernel import compile_traced, order_traced

BLOCK = BLOCKS, ROWS, COLUMNS


def picked_times(random: Random) -> tuple[int, list[int]]:
    """How many arrays there are, and which of them are taken in which order."""
    count = random.randint(2, 6)
    times = list(range(count))
    kind = random.randrange(4)
    if kind == 1:
        times.reverse()
    elif kind == 2:
        random.shuffle(times)
    elif kind == 3:
        times = [0, *times, count - 1]
    return count, times


def placed(steps: list[tuple], target: str, count: int, times: list[int]) -> TracedKernel:
    """A kernel of the steps, placed once for each of the times."""

    def kernel(a, counts):
        machine = OnDevice(a, counts)
        for _ in machine.run(steps):
            pass
        return machine.finish()

    specs = nki.TensorSpec(BLOCK, nl.float32), nki.TensorSpec((1, COUNTS), nl.int32)
    traced = nki.jit(kernel).trace(*specs, target=target)
    b = Builder(target, name="repeated")
    arrays = b.parameter((count, *BLOCK), "float32", "a")
    counts = b.parameter((count, 1, COUNTS), "int32", "counts")
    found = repeat(traced, [{"a": arrays[at], "counts": counts[at]} for at in times], b)
    b.result(*[result for results in found for result in results])
    return b.kernel()


def assert_repeats_do_what_they_do_in_numpy(seed: int) -> None:
    random, rng = Random(seed), np.random.default_rng(seed)
    steps = random_steps(random, alike=False)
    count, times = picked_times(random)
    kernel = placed(steps, ["trn2", "trn3"][seed % 2], count, times)
    arrays = rng.integers(-3, 4, (count, *BLOCK)).astype(np.float32)
    counts = rng.integers(0, 4, (count, 1, COUNTS)).astype(np.int32)
    expected = [want for at in times for want in in_numpy(steps, arrays[at], counts[at])]
    for run in (compile_traced(kernel), order_traced(kernel)):
        for result, want in zip(run(arrays, counts), expected, strict=True):
            np.testing.assert_array_equal(result, want)


@pytest.mark.parametrize("seed", range(8))
def test_repeats_do_what_they_do_in_numpy(seed: int) -> None:
    assert_repeats_do_what_they_do_in_numpy(seed)
