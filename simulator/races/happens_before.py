"""Proves that a finished program orders every two conflicting accesses.

Two accesses conflict when they touch the same byte, one of them writes, and nothing of itself
orders them: they belong to different streams (engines or DMA queues), or to two transfers of one
queue, which may be in flight together. What orders them (SDK
nki/guides/architecture/trainium_inferentia2_arch.rst, "Semaphores"; `isa.spec.Instruction`):

- an engine runs and completes its instructions in program order;
- a transfer starts when its engine issues it; transfers of a queue complete in order;
- a semaphore is a channel of units, the k-th consumed being the k-th produced: a wait comes after
  the completion of the instruction or transfer that produced its last unit;
- `DrainQueue` comes after the transfers that its engine has put on the queue;
- a core barrier joins what its cores know.

Vector clocks over all engines and queues follow one execution. Where the units of every semaphore
have one order of production and one consumer, which is checked too, any execution gives the same
order, so one is enough for all.

A program is expanded (`simulator.races.expand`), its clocks run (`clocks`), all its accesses are
compared at once (`accesses`), and what is wrong is told (`findings`): all in columns of integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from isa.gc_pause import collection_paused
from isa.program import Program
from simulator.races.accesses import StepAccesses
from simulator.races.clocks import Clocks, ExpansionSteps
from simulator.races.expand import expand
from simulator.races.findings import Findings
from simulator.races.prepare import Kinds, Prepared
from simulator.races.race import Race

if TYPE_CHECKING:
    from simulator.execute import ControlTrace


FINDING_LIMIT = 1000
"""Findings after which a check stops; a program with that many lacks its semaphores altogether."""

DYNAMIC_ROUNDS = 3
"""Rounds of data-dependent loops that are tried when counted loops run in full."""


def check(
    program: Program,
    iterations: int | None = 3,
    trace: ControlTrace | None = None,
    limit: int = FINDING_LIMIT,
    in_step: list[Race] | None = None,
) -> list[Race]:
    """Every pair of conflicting accesses of a bound program that nothing orders.

    An empty result is a proof for the rounds that were followed: counted loops run at most
    `iterations` rounds (None: all); loops and branches that depend on data run 0, 1, ...
    `iterations` rounds, the same everywhere, and with `trace` (the control trace of a run) also
    as they went. Accesses whose offsets were loaded may touch all of their tensor. A pair is
    reported once however often it occurs, at most `limit` pairs. Pairs of different cores that
    are ordered if these run in step (`simulator.races.replicated`) are appended to `in_step`.
    Raises NeuronError loop-limit for streams that do not end.

    >>> from isa.files.text import assemble
    >>> text = '''
    ... .program "race" target=trn2
    ... .core
    ... .storage "tile" sbuf float32[4,2] p0+4 offset=0 bytes=8 location=0
    ... .stream vector
    ...   Memset dst=float32@sbuf[p0+4]+0[1][2] value=0.0{update}
    ...   Halt
    ... .stream gpsimd
    ...   Memset{wait} dst=float32@sbuf[p0+4]+0[1][2] value=1.0
    ...   Halt
    ... '''
    >>> races = check(assemble(text.format(update="", wait="")))
    >>> [(race.kind, race.partitions, race.bytes) for race in races]
    [('WAW', (0, 4), (0, 8))]
    >>> check(assemble(text.format(update=" $S[0]+=1@complete", wait=" $S[0]-=1")))
    []
    """
    with collection_paused():
        analysis = Analysis(program)
        found = analysis.findings(iterations, trace, limit)
        if in_step is not None:
            in_step.extend(analysis.in_step.values())
        return found


class Analysis:
    """A program prepared for checking, with its expansions, so that checks can be repeated."""

    def __init__(self, program: Program) -> None:
        self.prepared = Prepared(program)
        self.expansions: dict[Any, tuple[ExpansionSteps, StepAccesses]] = {}
        self.in_step: dict[Any, Race] = {}

    def findings(
        self,
        iterations: int | None,
        trace: ControlTrace | None,
        limit: int,
        kinds: Kinds | None = None,
    ) -> list[Race]:
        """The findings of all expansions; with other semaphores than those of the program."""
        found: dict[Any, Race] = {}
        for order in self.orders(iterations, trace, limit, kinds):
            found = {**order.found, **found}
            self.in_step.update(order.in_step)
            if len(found) >= limit:
                break
        return list(found.values())[:limit]

    def orders(
        self,
        iterations: int | None,
        trace: ControlTrace | None,
        limit: int,
        kinds: Kinds | None,
        ignored: tuple[int, int] = (-1, -1),
    ) -> Iterator[Findings]:
        """An execution for every number of rounds that has to be tried, and that of the trace."""
        most = DYNAMIC_ROUNDS if iterations is None else iterations
        for rounds in range(most, -1, -1):
            steps, accesses = self._expand(iterations, rounds)
            clocks = Clocks(self.prepared, steps, kinds, ignored)
            if clocks.stuck and steps.expansion.capped:
                # Loops that belong together may have different counts (a peeled round on one
                # engine only): cut short alike, they no longer fit each other.
                steps, accesses = self._expand(None, rounds)
                clocks = Clocks(self.prepared, steps, kinds, ignored)
            yield Findings(self.prepared, steps, accesses, clocks, limit)
            if not steps.expansion.dynamic:
                break
        if trace is not None:
            steps, accesses = self._expand(None, most, trace)
            clocks = Clocks(self.prepared, steps, kinds, ignored)
            yield Findings(self.prepared, steps, accesses, clocks, limit)

    def _expand(
        self, iterations: int | None, rounds: int, trace: ControlTrace | None = None
    ) -> tuple[ExpansionSteps, StepAccesses]:
        key = (iterations, rounds, trace is not None)
        if key not in self.expansions:
            steps = ExpansionSteps(self.prepared, expand(self.prepared, iterations, rounds, trace))
            self.expansions[key] = steps, StepAccesses(self.prepared, steps)
        return self.expansions[key]
