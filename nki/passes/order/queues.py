"""Spread the loads whose engine the author leaves open over the engines that may start them.

The sync engine triggers loads and GpSimd stores, so a store that waits does not hold up the loads
behind it. A trigger at a dynamic address takes 600 ns: where such loads keep the sync engine busier
than all others are, the scalar engine starts some of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import add

from isa.enums import SEQUENCERS
from nki.ir.nodes import Node, Op, TracedKernel
from nki.passes.analysis.steps import ENGINE_INDEX, ENGINES
from nki.passes.order.choices import EngineChoice, with_engines
from nki.passes.order.schedule import busy_ns

STRETCH = 256
"""Operations that are looked at before it is asked again whether others are busier."""


@dataclass(frozen=True)
class SpreadLoads:
    """Have the sync and the scalar engine take turns in starting loads at dynamic addresses.

    Hardware writes the descriptors of a transfer whose address a register decides, in some 600 ns.
    There are two such generators, which the sync and the scalar engine command. What the scalar
    engine has begun to compute goes on meanwhile (SDK nki/deep-dives/nki-dge.rst, "hwdge"; SDK
    nki/guides/architecture/trainium2_arch.rst, "Descriptor Generation Engine (DGE)"). Where no
    engine in a list of nodes is busier than the sync engine is with these loads, the two engines
    share them. Each load goes to the engine that has less to do by then, by the cost model. A load
    for which the author names an engine stays with that one.

    Before:

        dma_copy dst=%tile.0 src=%a[... @ 128*%r1] ... engine=unknown
        dma_copy dst=%tile.1 src=%a[... @ 128*%r1 + 128] ... engine=unknown

    After:

        dma_copy dst=%tile.0 src=%a[... @ 128*%r1] ... engine=sync
        dma_copy dst=%tile.1 src=%a[... @ 128*%r1 + 128] ... engine=scalar
    """

    name = "queues"

    def run(self, kernel: TracedKernel) -> TracedKernel:
        return with_engines(kernel, _Spread)


def spread(kernel: TracedKernel, nodes: list[Node]) -> list[Node]:
    """Nodes with the loads of every list of them spread; themselves where none moves."""
    return _Spread(kernel, nodes).level(nodes)


class _Spread(EngineChoice):
    def moved(self, own: list[Op]) -> dict[Op, Op]:
        """The loads that go to another engine than the first of those that may start them."""
        loads = [op for op in own if op.row.starters(op.values) and op not in self.named]
        if len(loads) < 2:
            return {}
        timings = self.timings(loads)
        triggers = busy_ns(timings.values())
        usual = next(engine for engine, ns in enumerate(triggers[:ENGINES]) if ns)
        named = [op for op in own if op.values[-1] is SEQUENCERS[usual]]
        most = triggers[usual] + busy_ns(self.timings(named).values())[usual]
        others = [0.0] * len(triggers)
        rest = [op for op in own if op not in timings]
        for start in range(0, len(rest), STRETCH):
            stretch = self.timings(rest[start : start + STRETCH])
            others = list(map(add, others, busy_ns(stretch.values())))
            if max(others[:usual] + others[usual + 1 :]) > most:
                return {}  # others are busier than this one
        busy = list(map(add, triggers, others))
        if busy[usual] < max(busy):
            return {}
        moved = {}
        for load in loads:
            engines = load.row.starters(load.values)
            engine = min(engines, key=lambda one: others[ENGINE_INDEX[one]])
            others[ENGINE_INDEX[engine]] += timings[load][0][1]
            if ENGINE_INDEX[engine] != usual:
                values = load.row.started(load.values, engine)
                moved[load] = Op(load.row, values, load.location, load.name, load.after)
        return moved
