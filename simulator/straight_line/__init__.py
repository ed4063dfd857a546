"""Optimises straight-line programs for execution on the host: order, addresses, dead transfers.

`prepare(program)` gives a `StraightLineProgram`, which computes the rest when asked, in this order:

1. `turns`: the order in which the streams' instructions run.
2. `live_ranges`, `engine_states`: which allocation each on-chip access belongs to; which engine
   state an instruction makes and uses.
3. `elision`: transfers that need not be executed (`Elision`, `UseKind`).
4. `places`, `first_fit`: new addresses that pack allocations close together (`HostProgram`).
5. `slices`: two independent halves of the program, which can run in parallel.

`shared_accesses` selects the instructions that access shared HBM. Facts of instructions are
columns, indexed by stream and by position in it.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import replace
from functools import cached_property

from isa.access import AccessPattern
from isa.enums import Engine, Memory
from isa.gc_pause import collection_paused
from isa.program import Program
from isa.spec import Instruction
from simulator.straight_line.elision import CoreElision, Elision, UseKind
from simulator.straight_line.live_ranges import CoreLives, walks_of
from simulator.straight_line.places import HostProgram, placed, unplaced
from simulator.straight_line.slices import halves
from simulator.straight_line.turns import StreamTurns, turns_of
from simulator.uses import chosen


class StraightLineProgram:
    """A bound program, and what is found out about it when somebody asks; or nothing, if that is
    not worth its time."""

    def __init__(self, program: Program, worthwhile: bool = True) -> None:
        self.program = program
        self._worthwhile = worthwhile

    @cached_property
    def _turns(self) -> StreamTurns | None:
        return turns_of(self.program) if self._worthwhile else None

    @cached_property
    def _walks(self) -> list[CoreLives] | None:
        return None if self._turns is None else walks_of(self._turns)

    def placed(self, ahead: bool = True) -> HostProgram:
        """The program with its allocations close together, and what is known of it. As it is, where
        it has loops or branches, or accesses that lie in no allocation or are moved by registers.
        Unless it looks `ahead`, all instructions do what they say."""
        with collection_paused():
            if self._walks is None:
                return unplaced(self.program)
            return placed(self.program, self._walks, ahead)

    def as_it_is(self) -> HostProgram:
        """The program itself, of which nothing is known."""
        return unplaced(self.program)

    def halves(self) -> tuple[StraightLineProgram, StraightLineProgram] | None:
        """Two slices that can run at the same time, if the program has them."""
        with collection_paused():
            if len(self.program.cores) != 1 or self._walks is None or self._turns is None:
                return None
            found = halves(self.program, self._walks[0]) if self._turns.balanced else None
        return (
            None
            if found is None
            else (StraightLineProgram(found[0]), StraightLineProgram(found[1]))
        )


def prepare(program: Program, worthwhile: bool = True) -> StraightLineProgram:
    """What the host makes of a bound program: nothing, unless it is worthwhile. That takes about as
    long as loading the program, so it pays where the program has much to do or runs often."""
    return StraightLineProgram(program, worthwhile)


def shared_accesses(placed: HostProgram) -> Program:
    """The instructions of a program that access shared HBM, in streams of their own."""
    cores = []
    for core, known in zip(placed.program.cores, placed.cores):
        streams: dict[Engine, MutableSequence[Instruction]] = {
            engine: chosen(known.stream(engine, stream).uses, _accesses_shared)
            for engine, stream in core.streams.items()
        }
        cores.append(replace(core, streams=streams))
    return replace(placed.program, cores=cores)


def _accesses_shared(template: Instruction) -> bool:
    patterns = [template.values[position] for position, _, _ in template.row.operands]
    return any(type(p) is AccessPattern and p.memory is Memory.shared_hbm for p in patterns)


__all__ = [
    "CoreElision",
    "Elision",
    "UseKind",
    "HostProgram",
    "StraightLineProgram",
    "prepare",
    "shared_accesses",
]
