"""Accumulate registers in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from tiles import Array, State, canonical_sum, empty, run, same_bits, tile

from isa.alu import ACTIVATIONS
from isa.enums import Engine, ReduceCommand
from isa.errors import NeuronError


def test_accumulate_registers() -> None:
    rng = np.random.default_rng(5)
    state = State(Engine.scalar)
    state.start_partition = 3
    data, dst, out = tile(rng, "float32", 4, 37), empty("bfloat16", 4, 37), empty("float32", 4, 1)
    sums = np.array([canonical_sum(np.array(data)[p]) for p in range(4)])

    def activate(command: ReduceCommand) -> Array:
        run("Activate", dst, data, ACTIVATIONS["copy"], None, 1.0, command, state=state)
        run("ActReadAccumulator", out, 0, state=state)
        return np.array(out)[:, 0]

    # The fp32 values are summed, not the bfloat16 ones that are stored.
    assert same_bits(activate(ReduceCommand.reset_reduce), sums)
    assert same_bits(activate(ReduceCommand.idle), sums)
    assert same_bits(activate(ReduceCommand.reduce), sums + sums)
    assert same_bits(activate(ReduceCommand.reset), np.zeros(4, np.float32))
    registers = state.accumulators[Engine.scalar]
    assert np.isnan(registers[:3]).all() and np.isnan(registers[7:]).all()
    assert np.isnan(state.accumulators[Engine.vector]).all()
    with pytest.raises(NeuronError):
        activate(ReduceCommand.load_reduce)
