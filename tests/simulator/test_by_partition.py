"""Rows that the table says go partition by partition: with the partitions of all operands in
another order, results and accumulate registers are those of before, in that order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_native_rows import GENERATORS
from tiles import State

from isa.machine import MACHINE_INSTRUCTIONS
from simulator.oracle import KERNELS, quiet
from simulator.views import bits

BY_PARTITION = [name for name, row in MACHINE_INSTRUCTIONS.items() if row.by_partition]


def executed(row: str, engine: Any, values: Any, order: Any) -> tuple[list[Any], Any]:
    """What an instruction leaves in its operands and registers, whose partitions are in an order
    first, put back into the first order."""
    state = State(engine)
    count = len(order)
    copies = {}
    for value in values:
        if isinstance(value, np.ndarray) and id(value) not in copies:
            assert len(value) == count, "operands have the same partitions"
            copies[id(value)] = value[order].copy()
    first = np.arange(max(count, 128), dtype=np.float32)
    for unit in state.accumulators:
        state.accumulators[unit] = np.concatenate([first[order], first[count:]])
    with quiet():
        KERNELS[row](state, *(copies.get(id(value), value) for value in values))
    back = np.argsort(order)
    left = [bits(copy)[back] for copy in copies.values()]
    return left, {unit: one[:count][back] for unit, one in state.accumulators.items()}


@pytest.mark.parametrize("row", BY_PARTITION)
def test_partitions_in_another_order(row: str) -> None:
    engine, generate = GENERATORS[row]
    rng = np.random.default_rng(len(row))
    tried = 0
    for source, target in (("float32", "float32"), ("bfloat16", "float32")):
        for values in generate(rng, source, target):
            arrays = [value for value in values if isinstance(value, np.ndarray)]
            count = len(arrays[0])
            order = rng.permutation(count)
            before, registers = executed(row, engine, values, np.arange(count))
            after, moved = executed(row, engine, values, order)
            for one, other in zip(before, after):
                np.testing.assert_array_equal(one, other)
            for unit, column in registers.items():
                np.testing.assert_array_equal(column, moved[unit])
            tried += count > 1
    assert tried


def test_rows_that_know_their_partition_are_none_of_these() -> None:
    for row in ("Iota", "AffineSelect", "PartitionReduce", "Transpose32", "StreamShuffle"):
        assert not MACHINE_INSTRUCTIONS[row].by_partition
