"""Every row has a NumPy kernel; what rows compute is tested in the files named after those of
`simulator.oracle`."""

from __future__ import annotations

from isa.machine import MACHINE_INSTRUCTIONS
from simulator.control import CONTROL
from simulator.oracle import KERNELS


def test_every_row_is_covered() -> None:
    control = {name for name, row in MACHINE_INSTRUCTIONS.items() if row.control}
    assert set(KERNELS) == set(MACHINE_INSTRUCTIONS) - control
    assert set(CONTROL) == control
