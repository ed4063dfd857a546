"""Waits of a program that could go: what tests ask of the compiler's and of hand-built programs."""

from __future__ import annotations

import numpy as np

from isa.enums import Engine
from isa.files.stream import Pairs
from isa.gc_pause import collection_paused
from isa.program import Program
from simulator.execute import ControlTrace
from simulator.races.findings import Findings
from simulator.races.happens_before import Analysis
from simulator.races.prepare import Kinds


def superfluous_waits(
    program: Program, iterations: int | None = 3, trace: ControlTrace | None = None
) -> list[tuple[int, Engine, int, tuple[int, int]]]:
    """The waits that could each be taken away without a race: (core, engine, index, wait).

    A wait goes together with the units it takes: those are no longer produced either. A wait whose
    units have no instruction to themselves (it takes what a loop leaves over, say) has to stay,
    as have waits that never run here. Each is tried alone: of two superfluous waits that make up
    for each other only one can go. The program must pass `check`. For a program with launch
    symbols, what is superfluous for every size is superfluous.
    """
    found = []
    with collection_paused():
        analysis = WaitAnalysis(program)
        prepared = analysis.prepared
        channels = list(prepared.kinds.channels)
        for number, kind in enumerate(prepared.kinds.of.tolist()):
            for channel, amount in prepared.kinds.waits[kind]:
                if analysis.superfluous(number, channel, iterations, trace):
                    stream = int(np.searchsorted(prepared.begins, number, "right")) - 1
                    index = number - int(prepared.begins[stream])
                    found.append((*prepared.streams[stream], index, (channels[channel][1], amount)))
    return found


class WaitAnalysis(Analysis):
    """A program prepared for checking, from which waits are taken away one by one."""

    def superfluous(
        self, number: int, channel: int, iterations: int | None, trace: ControlTrace | None
    ) -> bool:
        """Whether a program that passes also passes without the wait of an instruction for units
        of a channel, and without these."""
        own = self.prepared.kinds
        kind = own.of[number]
        kinds = copied(own)
        ignored = change(kinds, number, own.waits[kind], own.updates[kind]), channel
        known: dict[int, int] = {}
        for order in self.orders(iterations, trace, 1, kinds, ignored):
            if order.found:
                return False
            for taken in suppliers(order, *ignored):
                known = known or taken
                if taken != known:
                    return False
        if not known:
            return False
        kinds = copied(own)
        change(kinds, number, _reduced(own.waits[kind], channel, None), own.updates[kind])
        for supplier, units in known.items():
            waits, updates = (pairs[kinds.of[supplier]] for pairs in (kinds.waits, kinds.updates))
            change(kinds, supplier, waits, _reduced(updates, channel, units))
        return not self.findings(iterations, trace, 1, kinds)


def _reduced(pairs: Pairs, channel: int, units: int | None) -> Pairs:
    """Amounts with so many units of a channel fewer, None: with none of it."""
    rest = ((c, a - (a if units is None else units) if c == channel else a) for c, a in pairs)
    return tuple(pair for pair in rest if pair[1] > 0)


def suppliers(findings: Findings, kind: int, channel: int) -> list[dict[int, int]]:
    """For each step of a kind, which instructions produced how many of the units that it takes
    of a channel."""
    clocks, steps = findings.clocks, findings.steps
    amounts = [dict(pairs).get(channel, 0) for pairs in clocks.waits]
    takes = np.array(amounts, np.int64)[clocks.kind] * (clocks.turn >= 0)
    last = np.cumsum(takes)
    part = slice(*clocks.units_begin[channel : channel + 2].tolist())
    units, sender = clocks.units[part], clocks.sender[part]
    found = []
    for signal in np.flatnonzero((clocks.kind == kind) & (takes > 0)).tolist():
        first, end = int(last[signal] - takes[signal]), int(last[signal])
        at = int(np.searchsorted(units, first, "right"))
        taken: dict[int, int] = {}
        while first < end:
            number = int(steps.instruction[clocks.step[sender[at]]])
            upto = min(int(units[at]), end)
            taken[number] = taken.get(number, 0) + upto - first
            first, at = upto, at + 1
        found.append(taken)
    return found


def copied(kinds: Kinds) -> Kinds:
    """The same, to be changed."""
    same = Kinds()
    same.channels, same.of = kinds.channels, kinds.of.copy()
    same.waits, same.updates = kinds.waits[:], kinds.updates[:]
    return same


def change(kinds: Kinds, instruction: int, waits: Pairs, updates: Pairs) -> int:
    """Give an instruction a kind of its own, with these channels and amounts."""
    kinds.of[instruction] = number = len(kinds.waits)
    kinds.waits.append(waits)
    kinds.updates.append(updates)
    return number
