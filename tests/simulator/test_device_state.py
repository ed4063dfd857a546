"""The state of a core."""

from __future__ import annotations

import numpy as np
from tiles import State

from simulator.device_state import CoreState


def test_core_state_has_what_kernels_need() -> None:
    from isa.target import resolve

    state = CoreState(resolve("trn2"))
    assert all(np.isnan(registers).all() for registers in state.accumulators.values())
    for name in vars(State()):
        assert hasattr(state, name)
