"""Operations of programs that several ranks run: of graphs, as kernels have `nki.collectives`."""

from __future__ import annotations

from typing import Any

from isa import rules
from isa.enums import Engine
from isa.fields import HBM, Attribute, Kind, Read, Write
from isa.machine import ranks
from isa.spec import Instruction, Operation


class RankExchange(Operation):
    """dst = blocks that ranks send, one behind the other, by a table (`isa.machine.ranks`)."""

    name = "rank_exchange"
    engines = (Engine.gpsimd,)
    public = False
    dst = Write(HBM)
    src = Read(HBM)
    sources = Attribute(kind=Kind.integers)
    width = Attribute(kind=Kind.integer)
    parted = Attribute(kind=Kind.flag)
    rules = (rules.operands.same_dtype("dst", "src"),)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(ranks.RankExchange, Engine.gpsimd, values),)


class RankNumber(Operation):
    """The one element of dst = the number in a list, at the place of the rank that runs."""

    name = "rank_number"
    engines = (Engine.gpsimd,)
    public = False
    dst = Write(HBM)
    numbers = Attribute(kind=Kind.integers)

    @classmethod
    def expand(cls, values: tuple[Any, ...], target: Any) -> tuple[Instruction, ...]:
        return (Instruction(ranks.RankNumber, Engine.gpsimd, values),)
