"""Waits of a program that could go: what tests ask of the compiler's and of hand-built programs."""

from __future__ import annotations

import numpy as np

from isa.enums import Engine
from isa.files.stream import Pairs
from isa.gc_pause import collection_paused
from isa.program import Program
from simulator.execute import ControlTrace
from simulator.races.happens_before import Analysis


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
        kinds = own.copy()
        ignored = kinds.change(number, own.waits[kind], own.updates[kind]), channel
        suppliers: dict[int, int] = {}
        for order in self.orders(iterations, trace, 1, kinds, ignored):
            if order.found:
                return False
            for taken in order.suppliers(*ignored):
                suppliers = suppliers or taken
                if taken != suppliers:
                    return False
        if not suppliers:
            return False
        kinds = own.copy()
        kinds.change(number, _reduced(own.waits[kind], channel, None), own.updates[kind])
        for supplier, units in suppliers.items():
            waits, updates = (pairs[kinds.of[supplier]] for pairs in (kinds.waits, kinds.updates))
            kinds.change(supplier, waits, _reduced(updates, channel, units))
        return not self.findings(iterations, trace, 1, kinds)


def _reduced(pairs: Pairs, channel: int, units: int | None) -> Pairs:
    """Amounts with so many units of a channel fewer, None: with none of it."""
    rest = ((c, a - (a if units is None else units) if c == channel else a) for c, a in pairs)
    return tuple(pair for pair in rest if pair[1] > 0)
