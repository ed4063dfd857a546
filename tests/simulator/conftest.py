"""What tests of the native loop share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki
from isa.spec import Instruction

Array = np.ndarray[Any, Any]


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, executed: list[Instruction]) -> Any:
    """Runs a kernel twice; the second time nothing may call Python. Gives its outputs, which are
    those of the reference mode."""

    def run(kernel: Any, *arrays: Array, target: str = "trn2", cores: int = 1) -> list[Array]:
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
        launched = kernel if cores == 1 else kernel[cores]
        want = nki.simulate(launched, mode="reference")(*arrays)
        simulated = nki.simulate(launched)
        # The first call may have to learn where things are.
        simulated(*arrays)
        executed.clear()
        got = simulated(*arrays)
        assert not executed, executed
        got, want = ([*r] if isinstance(r, (list, tuple)) else [r] for r in (got, want))
        for one, other in zip(got, want):
            np.testing.assert_array_equal(one, other)
        return got

    return run
