"""Spread the loads whose engine the author leaves open over the engines that may start them."""

from __future__ import annotations

from dataclasses import dataclass
from operator import is_

from isa.operations.control import StorageBegin
from isa.target import TARGETS
from nki.ir.nodes import Kernel, Loop, Node, Op, While, operations
from nki.ir.rewrite import with_body
from nki.passes.analysis.steps import ENGINE_INDEX, ENGINES
from nki.passes.emit.addresses import Addresses
from nki.passes.order.clock import busy_ns
from nki.passes.order.precedence import body_of
from nki.passes.order.schedule import Costs, Timing


@dataclass(frozen=True)
class SpreadLoads:
    """Have the sync and the scalar engine take turns in starting loads at dynamic addresses.

    Hardware writes the descriptors of a transfer whose address a register decides, in some 600 ns.
    There are two such generators, which the sync and the scalar engine command, and what the scalar
    engine has begun to compute goes on meanwhile (SDK nki/deep-dives/nki-dge.rst, "hwdge"; SDK
    nki/guides/architecture/trainium2_arch.rst, "Descriptor Generation Engine (DGE)"). Where no
    engine in a list of nodes is busier than the sync engine is with these loads, each goes to the
    one of the two that has less to do by then, by the cost model. A load for which the author names
    an engine stays with that one.

    Before:

        dma_copy dst=%tile.0 src=%a[... @ 128*%r1] ... engine=unknown
        dma_copy dst=%tile.1 src=%a[... @ 128*%r1 + 128] ... engine=unknown

    After:

        dma_copy dst=%tile.0 src=%a[... @ 128*%r1] ... engine=sync
        dma_copy dst=%tile.1 src=%a[... @ 128*%r1 + 128] ... engine=scalar
    """

    name = "queues"

    def run(self, kernel: Kernel) -> Kernel:
        bodies = [spread(kernel, body) for body in kernel.bodies]
        if all(new is old for new, old in zip(bodies, kernel.bodies)):
            return kernel
        return kernel.with_bodies(bodies, kernel.tensors)


def spread(kernel: Kernel, nodes: list[Node]) -> list[Node]:
    """Nodes with the loads of every list of them spread; themselves where none moves."""
    return _Spread(kernel, nodes).level(nodes)


class _Spread:
    """Spreads the loads of one body. Those that others must follow by the author's word stay."""

    def __init__(self, kernel: Kernel, nodes: list[Node]) -> None:
        self.target = TARGETS[kernel.target]
        self.costs = Costs(self.target, Addresses.before_places(kernel))
        self.named = {other for op in operations(nodes) for other in op.after}

    def level(self, nodes: list[Node]) -> list[Node]:
        result = [node if isinstance(node, Op) else self._inside(node) for node in nodes]
        own = [node for node in nodes if isinstance(node, Op)]
        loads = [op for op in own if op.row.starters(op.values) and op not in self.named]
        if len(loads) > 1:
            moved = self._moved(loads, own)
            result = [moved.get(node, node) if isinstance(node, Op) else node for node in result]
        return nodes if all(map(is_, result, nodes)) else result

    def _inside(self, node: Loop | While) -> Loop | While:
        body = self.level(node.body)
        return node if body is node.body else with_body(node, body)

    def _moved(self, loads: list[Op], own: list[Op]) -> dict[Op, Op]:
        """The loads that go to another engine than the first of those that may start them."""
        timings = self._timings(own)
        busy = busy_ns(timings.values())
        triggers = busy_ns([timings[load] for load in loads])
        usual = next(engine for engine, ns in enumerate(triggers[:ENGINES]) if ns)
        if busy[usual] < max(busy):
            return {}
        others = [ns - trigger for ns, trigger in zip(busy, triggers)]
        moved = {}
        for load in loads:
            engines = load.row.starters(load.values)
            engine = min(engines, key=lambda one: others[ENGINE_INDEX[one]])
            others[ENGINE_INDEX[engine]] += timings[load][0][1]
            if ENGINE_INDEX[engine] != usual:
                values = load.row.started(load.values, engine)
                moved[load] = Op(load.row, values, load.location, load.name, load.after)
        return moved

    def _timings(self, own: list[Op]) -> dict[Op, Timing]:
        own = [op for op in own if op.row is not StorageBegin and not op.row.register_writes]
        timings, which = self.costs.of(body_of(own, self.target))
        return {op: timings[number] for op, number in zip(own, which.tolist())}
