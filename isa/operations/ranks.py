"""Operations of programs that several ranks run: of graphs, as kernels have `nki.collectives`."""

from __future__ import annotations

from isa import rules
from isa.enums import Engine
from isa.machine import ranks
from isa.spec import Operation


class RankExchange(Operation):
    """dst = blocks that ranks send, one behind the other, by a table (`isa.machine.ranks`)."""

    name = "rank_exchange"
    machine = ranks.RankExchange
    engines = (Engine.gpsimd,)
    public = False
    rules = (rules.operands.same_dtype("dst", "src"),)


class RankNumber(Operation):
    """The one element of dst = the number in a list, at the place of the rank that runs."""

    name = "rank_number"
    machine = ranks.RankNumber
    engines = (Engine.gpsimd,)
    public = False
