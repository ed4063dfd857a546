"""What a rank sends leaves its program: sending uninitialised elements is a finding."""

from __future__ import annotations

from isa.machine import ranks
from simulator.checks.propagation import InstructionUse, propagates


@propagates(ranks.RankExchange)
def _rank_exchange(use: InstructionUse) -> None:
    use.read(use.operand("src"))
    use.operand("dst").write(None)


@propagates(ranks.RankNumber)
def _rank_number(use: InstructionUse) -> None:
    use.operand("dst").write(None)
