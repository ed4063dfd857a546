"""Notes for the report: decisions made when a graph became a kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graph_compiler.hlo.graph import Instruction


@dataclass(frozen=True, slots=True)
class LoopNote:
    """A loop on the device with known trips: a `while` that counts, or equal layers as one loop.
    `instruction` is the first one of it."""

    instruction: str
    kind: str
    trips: int
    operations: int


@dataclass(frozen=True, slots=True)
class Remark:
    """An instruction that the device runs in a form made for any operator; `schedule` describes the
    form."""

    instruction: str
    schedule: str


@dataclass(slots=True)
class LoweringNotes:
    """The loops of a graph, and what fell to a generic schedule. `recomputed`: how many
    convolutions are computed again where pixels are not finite (`products/finite`); `decided`: what
    data decide in all."""

    loops: list[LoopNote] = field(default_factory=list)
    remarks: dict[Remark, None] = field(default_factory=dict)
    recomputed: int = 0
    decided: int = 0

    def loop(self, item: Instruction | None, kind: str, trips: int, operations: int) -> None:
        self.loops.append(LoopNote("" if item is None else item.name, kind, trips, operations))

    @property
    def finite(self) -> bool:
        """Whether data decide nothing where all pixels are finite."""
        return 0 < self.recomputed == self.decided

    def remark(self, instruction: str, schedule: str) -> None:
        self.remarks[Remark(instruction, schedule)] = None
