"""What is printed may be seen: printing uninitialised elements is a finding."""

from __future__ import annotations

from isa.machine import debug
from simulator.checks.propagation import InstructionUse, propagates


@propagates(debug.PrintTensor)
def _print_tensor(use: InstructionUse) -> None:
    use.read(use.operand("tensor"))
