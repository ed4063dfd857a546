"""Proves that a finished program orders every two conflicting accesses.

Two accesses conflict when they touch the same byte, one of them writes, and they belong to
different streams (engines or DMA queues) or to two transfers of one queue, which may be in flight
together. What orders them (SDK nki/guides/architecture/trainium_inferentia2_arch.rst, "Semaphores";
`isa.spec.Instruction`):

- an engine runs and completes its instructions in program order;
- a transfer starts when its engine issues it; transfers of a queue complete in order;
- a semaphore is a channel of units, the k-th consumed being the k-th produced: a wait comes after
  the completion of the instruction or transfer that produced its last unit;
- `DrainQueue` comes after the transfers that its engine has put on the queue;
- a core barrier joins what its cores know.

Vector clocks over all engines and queues follow one execution. Where the units of every semaphore
have one order of production and one consumer, which is checked too, any execution gives the same
order, so one is enough for all.

Most programs without control flow are proved at once (`simulator.checks.straight`). What follows
here looks at all others access by access, and says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from isa.collection import collection_paused
from isa.enums import Engine
from isa.program import Program
from simulator.checks.order import Order
from simulator.checks.race import Race, Site
from simulator.checks.regions import OverlapCache
from simulator.checks.straight import proved
from simulator.checks.unroll import Expansion, Node, Prepared, expand

if TYPE_CHECKING:
    from simulator.execute import ControlTrace

__all__ = ["Race", "Site", "check", "superfluous_waits"]

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
    are ordered if these run in step (`simulator.checks.replicated`) are appended to `in_step`.
    Raises NeuronError loop-limit for streams that do not end.

    >>> from isa.text import assemble
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
        if proved(program):
            return []
        analysis = Analysis(program)
        found = analysis.findings(iterations, trace, limit)
        if in_step is not None:
            in_step.extend(analysis.in_step.values())
        return found


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
        analysis = Analysis(program)
        for node in analysis.prepared.all_nodes():
            for channel, amount in node.waits:
                if analysis.superfluous(node, channel, iterations, trace):
                    _, semaphore = analysis.prepared.channels[channel]
                    found.append((node.core, node.engine, node.index, (semaphore, amount)))
    return found


class Analysis:
    """A program prepared for checking, with its expansions, so that checks can be repeated."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.prepared = Prepared(program)
        self.cache = OverlapCache(self.prepared.layout)
        self.expansions: dict[Any, Expansion] = {}
        self.in_step: dict[Any, Race] = {}

    def findings(
        self,
        iterations: int | None,
        trace: ControlTrace | None,
        limit: int,
        ignored: tuple[Node, int] | None = None,
    ) -> list[Race]:
        """The findings of all expansions, the wait `ignored` (node, channel) ordering nothing."""
        found: dict[Any, Race] = {}
        for order in self._orders(iterations, trace, limit, ignored):
            found = {**order.found, **found}
            self.in_step.update(order.in_step)
            if len(found) >= limit:
                break
        return list(found.values())[:limit]

    def superfluous(
        self, node: Node, channel: int, iterations: int | None, trace: ControlTrace | None
    ) -> bool:
        """Whether a program that passes also passes without one wait and its units."""
        suppliers: dict[Node, int] = {}
        for order in self._orders(iterations, trace, 1, (node, channel)):
            if order.found:
                return False
            for taken in order.suppliers:
                suppliers = suppliers or taken
                if taken != suppliers:
                    return False
        if not suppliers:
            return False
        changed = {other: other.updates for other in suppliers}
        waits = node.waits
        try:
            node.waits = tuple(wait for wait in waits if wait[0] != channel)
            for other, units in suppliers.items():
                other.updates = tuple(
                    (c, amount - units if c == channel else amount) for c, amount in other.updates
                )
            return not self.findings(iterations, trace, 1)
        finally:
            node.waits = waits
            for other, updates in changed.items():
                other.updates = updates

    def _orders(
        self,
        iterations: int | None,
        trace: ControlTrace | None,
        limit: int,
        ignored: tuple[Node, int] | None,
    ) -> Iterator[Order]:
        """An execution for every number of rounds that has to be tried, and that of the trace."""
        most = DYNAMIC_ROUNDS if iterations is None else iterations
        for rounds in range(most, -1, -1):
            expansion = self._expand(iterations, rounds)
            order = self._follow(expansion, limit, ignored)
            if order.stuck and expansion.capped:
                # Loops that belong together may have different counts (a peeled round on one
                # engine only): cut short alike, they no longer fit each other.
                order = self._follow(self._expand(None, rounds), limit, ignored)
            yield order
            if not expansion.dynamic:
                break
        if trace is not None:
            yield self._follow(self._expand(None, most, trace), limit, ignored)

    def _follow(self, expansion: Expansion, limit: int, ignored: tuple[Node, int] | None) -> Order:
        order = Order(self.prepared, self.cache, expansion.steps, limit, ignored)
        order.follow()
        return order

    def _expand(
        self, iterations: int | None, rounds: int, trace: ControlTrace | None = None
    ) -> Expansion:
        key = (iterations, rounds, trace is not None)
        expansion = self.expansions.get(key)
        if expansion is None:
            expansion = self.expansions[key] = expand(self.prepared, iterations, rounds, trace)
        return expansion
