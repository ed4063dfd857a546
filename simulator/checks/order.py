"""The order of events in an expanded program, by vector clocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from isa.access import UNBOUNDED, AccessPattern
from isa.spec import Meeting
from simulator.checks.prepare import Action, Node, Prepared, Step
from simulator.checks.race import Bounds, Race, Site
from simulator.checks.regions import OverlapCache, Region
from simulator.checks.replicated import Key, twin_key, twins
from simulator.checks.shadow import Record, Shadow
from simulator.exchange import misfit


class Event(NamedTuple):
    """The completion of an instruction or transfer: number `epoch` of `stream`.

    `engine` issued it as its instruction number `issued`; `known` are the events that came before
    it on other streams; `total` counts the units of a channel up to and including its own.
    """

    stream: int
    epoch: int
    engine: int
    issued: int
    known: Sequence[int]
    node: Node
    total: int = 0


class Order:
    """Follows one execution of expanded streams.

    Streams are numbered: the engines of core 0, of core 1, ..., then the queues. `known[e][s]` is
    how many events of stream s engine e knows to have completed; its own it knows all. The lists
    are shared between events and never changed. Findings are in `found`, one for each static pair;
    those in `in_step` are none if the cores run in step (`simulator.checks.replicated`).

    The wait `ignored` (node, channel) takes its units and orders nothing; `suppliers` tells, for
    each of its executions, which nodes produced how many of them.
    """

    def __init__(
        self,
        prepared: Prepared,
        cache: OverlapCache,
        steps: list[list[Step]],
        limit: int,
        ignored: tuple[Node, int] | None,
    ) -> None:
        self.prepared = prepared
        self.cache = cache
        self.steps = steps
        self.limit = limit
        self.ignored_node = ignored[0] if ignored else None
        self.ignored_channel = ignored[1] if ignored else -1
        self.suppliers: list[dict[Node, int]] = []
        self.found: dict[Any, Race] = {}
        self.in_step: dict[Any, Race] = {}
        self.stuck = False
        engines, queues, channels = len(steps), len(prepared.queues), len(prepared.channels)
        self.engines = engines
        self.position = [0] * engines
        self.known: list[list[int]] = [[0] * (engines + queues)] * engines
        self.transfers = [0] * queues
        self.feeders: list[Node | None] = [None] * queues
        self.last_transfer: dict[tuple[int, int], Event] = {}
        self.produced = [0] * channels
        self.consumed = [0] * channels
        self.events: list[deque[Event]] = [deque() for _ in range(channels)]
        self.last_event: list[Event | None] = [None] * channels
        self.consumers: list[Node | None] = [None] * channels
        self.waiting: list[list[int]] = [[] for _ in range(channels)]
        self.barriers = Barriers()
        self.twins: dict[Key, set[int]] | None = None
        self.shadows: dict[int, Shadow] = {}
        self.ready = deque(range(engines))
        for region in prepared.layout.found():
            if region.memory < prepared.layout.first_tensor:
                self._shadow(region.memory).expect(region)

    def follow(self) -> None:
        """Run every stream as far as it goes, or until enough has been found."""
        ready = self.ready
        while ready and len(self.found) < self.limit:
            self._run(ready.popleft())
        blocked = [e for e in range(self.engines) if self.position[e] < len(self.steps[e])]
        if blocked and len(self.found) < self.limit:
            self.stuck = True
            self._report_deadlock(blocked)
        self.shadows.clear()  # they report here: without them all of this goes when it is left

    def _run(self, engine: int) -> None:
        """Run one engine's stream until it has to wait or ends."""
        steps = self.steps[engine]
        met = self.barriers
        for position in range(self.position[engine], len(steps)):
            step = steps[position]
            node = step.node
            if node.waits and engine not in met.waiting and engine not in met.released:
                if not self._take(engine, node):
                    self.position[engine] = position
                    return
            action = node.action
            if action is Action.transfer:
                self._transfer(engine, position + 1, step)
                continue
            if action is Action.drain:
                event = self.last_transfer.get((engine, node.queue))
                if event is not None:
                    self._join(engine, event)
            elif (
                action is not Action.none
                and action in _MEETINGS
                and not self._meet(engine, position, node)
            ):
                self.position[engine] = position
                return
            if step.regions:
                self._access(step, engine, position + 1, engine)
            if node.updates:
                epoch = position + 1
                self._put(Event(engine, epoch, engine, epoch, self.known[engine], node))
        self.position[engine] = len(steps)

    def _access(self, step: Step, stream: int, epoch: int, engine: int) -> None:
        known = self.known[engine]
        for region, write in step.regions:
            shadow = self.shadows.get(region.memory) or self._shadow(region.memory)
            shadow.access(region, write, stream, epoch, engine, known, step)

    def _shadow(self, memory: int) -> Shadow:
        """The shadow of a memory, made when first asked for."""
        shadow = self.shadows.get(memory)
        if shadow is None:
            on_chip = memory < self.prepared.layout.first_tensor
            shadow = self.shadows[memory] = Shadow(on_chip, self.cache, self._report_race)
        return shadow

    def _transfer(self, engine: int, issued: int, step: Step) -> None:
        """Issue a transfer. Only a later wait or drain tells when it has completed."""
        node = step.node
        queue = node.queue
        number = self.transfers[queue] = self.transfers[queue] + 1
        feeder = self.feeders[queue]
        if feeder is None:
            self.feeders[queue] = node
        elif feeder.engine is not node.engine:
            core, index = self.prepared.queues[queue]
            self._report_shared(
                "queue-shared",
                feeder,
                node,
                f"queue {index} of core {core} is fed by two engines",
            )
        stream = self.engines + queue
        if step.regions:
            self._access(step, stream, number, engine)
        event = Event(stream, number, engine, issued, self.known[engine], node)
        self.last_transfer[engine, queue] = event
        if node.updates:
            self._put(event)

    def _take(self, engine: int, node: Node) -> bool:
        """Take the units that a node waits for; False, and none taken, when some are missing."""
        produced, consumed = self.produced, self.consumed
        for channel, amount in node.waits:
            if produced[channel] - consumed[channel] < amount:
                self.waiting[channel].append(engine)
                return False
        for channel, amount in node.waits:
            if amount <= 0:
                continue
            first = consumed[channel]
            last = consumed[channel] = first + amount
            events = self.events[channel]
            ignored = node is self.ignored_node and channel == self.ignored_channel
            if ignored:
                self.suppliers.append(_suppliers(events, first, last))
            while events[0].total < last:
                events.popleft()
            consumer = self.consumers[channel]
            if consumer is None:
                self.consumers[channel] = node
            elif consumer.engine is not node.engine:
                self._report_shared(
                    "semaphore-shared",
                    consumer,
                    node,
                    f"{self._channel_name(channel)} is waited for by two engines",
                )
            if not ignored:
                self._join(engine, events[0])
        return True

    def _join(self, engine: int, event: Event) -> None:
        """`engine` learns that `event` has happened, and all that came before it."""
        known = self.known[engine]
        stream = event.stream
        if stream == engine or known[stream] >= event.epoch:
            return
        joined = list(map(max, known, event.known))
        source = event.engine
        if joined[source] < event.issued:
            joined[source] = event.issued
        if joined[stream] < event.epoch:
            joined[stream] = event.epoch
        self.known[engine] = joined

    def _put(self, event: Event) -> None:
        """Add the units of a completed instruction or transfer to its channels."""
        for channel, amount in event.node.updates:
            if amount <= 0:
                continue
            last = self.last_event[channel]
            if last is not None and last.stream != event.stream:
                ordered = last.stream == event.engine or event.known[last.stream] >= last.epoch
                if not ordered:
                    self._report_shared(
                        "semaphore-shared",
                        last.node,
                        event.node,
                        f"{self._channel_name(channel)} is updated by two streams in no order",
                    )
            self.last_event[channel] = event
            total = self.produced[channel] = self.produced[channel] + amount
            self.events[channel].append(Event(*event[:-1], total))
            if self.waiting[channel]:
                self.ready.extend(self.waiting[channel])
                self.waiting[channel].clear()

    def _meet(self, engine: int, position: int, node: Node) -> bool:
        """Reach a core barrier; False as long as other cores are missing."""
        barriers = self.barriers
        if engine in barriers.released:
            barriers.released.remove(engine)
            return True
        if engine in barriers.waiting:
            return False
        instruction = node.instruction
        meeting = instruction.row.meeting(instruction.values, node.core)
        last = barriers.last.get((node.core, meeting))
        if last is not None and last[0] != engine and self.known[engine][last[0]] < last[1]:
            self._report_shared(
                "barrier-shared",
                last[2],
                node,
                f"core {node.core} reaches two core barriers in no order",
            )
        barriers.last[node.core, meeting] = (engine, position + 1, node)
        arrived = barriers.arrive(engine, position, node.core, meeting)
        if arrived is None:
            return False
        self._check_partners([self.steps[e][reached].node for e, reached in arrived.items()], node)
        joined = [max(column) for column in zip(*(self.known[e] for e in arrived))]
        for other, reached in arrived.items():
            joined[other] = max(joined[other], reached + 1)
        for other in arrived:
            self.known[other] = joined
            if other != engine:
                self.ready.append(other)
        return True

    def _check_partners(self, nodes: list[Node], last: Node) -> None:
        """Cores that exchange tiles must send what their partners expect."""
        if last.action is not Action.exchange:
            return
        error = misfit({node.core: node.instruction for node in nodes})
        if error is not None:
            first, second = self._site(nodes[0], (), False), self._site(last, (), False)
            race = Race("partner", first, second, "", detail=error.what, code=error.code)
            self.found.setdefault(("partner", error.what), race)

    def _report_race(self, old: Record, step: Step, region: Region, write: bool) -> None:
        nodes = (old.step.node, step.node)
        if nodes in self.found or nodes in self.in_step:
            return
        twice = self._made_by_both(*nodes)
        if all(twice) and old.write and write:
            return  # whichever comes last leaves the same bytes
        if nodes[0].core != nodes[1].core:
            anywhere = _anywhere(old.region) or _anywhere(region)
            tensor = region.memory - self.prepared.layout.first_tensor
            if anywhere or (not any(twice) and any(_picks(node, tensor) for node in nodes)):
                return  # where is known in a run, which checks it (`simulator.checks.claims`)
        first = self._site(nodes[0], old.step.iteration, old.write)
        second = self._site(nodes[1], step.iteration, write)
        if _author_order(second) < _author_order(first):
            first, second = second, first
        kind = _KINDS[first.writes, second.writes]
        partitions, shared_bytes = self._shared_bytes(old, region)
        found = self.in_step if any(twice) else self.found
        found[nodes] = Race(
            kind if first.core == second.core else "cross-core",
            first,
            second,
            self.prepared.layout.describe(region.memory),
            partitions,
            shared_bytes,
        )

    def _made_by_both(self, first: Node, second: Node) -> tuple[bool, bool]:
        """Of nodes of different cores, which are writes that both cores make."""
        if first.core == second.core:
            return False, False
        if self.twins is None:
            self.twins = twins(
                [node.instruction for nodes in core for node in nodes]
                for core in self.prepared.nodes
            )
        left, right = twin_key(first.instruction), twin_key(second.instruction)
        return (
            left is not None and second.core in self.twins[left],
            right is not None and first.core in self.twins[right],
        )

    def _shared_bytes(self, old: Record, region: Region) -> tuple[Bounds | None, Bounds]:
        """Partitions and bytes in which two accesses meet, or None and bytes of the tensor."""
        layout = self.prepared.layout
        row0, row1 = max(old.row0, region.row0), min(old.row1, region.row1)
        first, end = max(old.column0, region.column0), min(old.column1, region.column1)
        if region.memory < layout.first_tensor:
            return (row0, row1), (first, None if end >= UNBOUNDED else end)
        if row1 >= UNBOUNDED or end >= UNBOUNDED:
            return None, (0, None)
        pitch = layout.pitch(region.memory - layout.first_tensor)
        return None, (row0 * pitch + first, (row1 - 1) * pitch + end)

    def _report_shared(self, kind: str, first: Node, second: Node, detail: str) -> None:
        a, b = self._site(first, (), False), self._site(second, (), False)
        self.found.setdefault((kind, detail), Race(kind, a, b, "", detail=f"{detail}: {a} and {b}"))

    def _report_deadlock(self, blocked: list[int]) -> None:
        steps = [self.steps[engine][self.position[engine]] for engine in blocked]
        meeting = [s for e, s in zip(blocked, steps) if e in self.barriers.waiting]
        stuck = {step.node.core for step in steps} - {step.node.core for step in meeting}
        if meeting and not stuck:
            self._report_absent(meeting[0])
            return
        lines = []
        sites = []
        for engine in blocked:
            step = self.steps[engine][self.position[engine]]
            sites.append(self._site(step.node, step.iteration, False))
            lacks = [
                f"{amount} of {self._channel_name(channel)}, which holds "
                f"{self.produced[channel] - self.consumed[channel]}"
                for channel, amount in step.node.waits
                if self.produced[channel] - self.consumed[channel] < amount
            ]
            lines.append(f"{sites[-1]} waits for " + (" and ".join(lacks) or "other cores"))
        detail = "no engine can go on: " + "; ".join(lines)
        self.found["deadlock"] = Race(
            "deadlock", sites[0], sites[-1], "", detail=detail, code="deadlock"
        )

    def _report_absent(self, step: Step) -> None:
        """A core waits for another that never comes."""
        node = step.node
        instruction = node.instruction
        place, cores = instruction.row.meeting(instruction.values, node.core)
        others = ", ".join(str(core) for core in cores if core != node.core)
        site = self._site(node, step.iteration, False)
        detail = f"{site} ({place}) waits for core {others}, which does not come as often"
        self.found["deadlock"] = Race("absent", site, site, "", detail=detail, code="deadlock")

    def _channel_name(self, channel: int) -> str:
        core, semaphore = self.prepared.channels[channel]
        return f"semaphore {semaphore} of core {core}"

    def _site(self, node: Node, iteration: tuple[int, ...], writes: bool) -> Site:
        return Site(
            node.core,
            node.engine,
            node.index,
            iteration,
            node.instruction.row.name,
            self.prepared.queues[node.queue][1] if node.queue >= 0 else -1,
            writes,
            self.prepared.location(node),
        )


def _anywhere(region: Region) -> bool:
    """Whether only a run can tell which part of its tensor an access touches."""
    return region.row1 >= UNBOUNDED or region.column1 >= UNBOUNDED


def _picks(node: Node, tensor: int) -> bool:
    """Whether an instruction accesses rows of an HBM tensor that indices pick."""
    return any(
        isinstance(pattern, AccessPattern)
        and pattern.tensor == tensor
        and pattern.vector_offset is not None
        for pattern in node.instruction.values
    )


_KINDS = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}


_MEETINGS = frozenset({Action.barrier, Action.exchange})


def _suppliers(events: deque[Event], first: int, last: int) -> dict[Node, int]:
    """Who produced the units of a channel after `first` and up to `last`."""
    units: dict[Node, int] = {}
    for event in events:
        upto = min(event.total, last)
        if upto > first:
            units[event.node] = units.get(event.node, 0) + upto - first
            first = upto
        if event.total >= last:
            break
    return units


def _author_order(at: Site) -> tuple[Any, ...]:
    """What tells which of two unordered accesses the author meant to come first."""
    line = at.location.line if at.location else 0
    return (at.iteration[:1], line, at.iteration)


class Barriers:
    """Which instructions belong together where cores meet: those of the same number at the same
    meeting on each of its cores.

    `waiting` are the engines that wait for other cores, `released` those that may go on; `last` is
    what came last of a core to a meeting, as (engine, its epoch, node).
    """

    def __init__(self) -> None:
        self.waiting: set[int] = set()
        self.released: set[int] = set()
        self.last: dict[tuple[int, Meeting], tuple[int, int, Node]] = {}
        self.numbers: dict[tuple[int, Meeting], int] = {}
        self.arrived: dict[tuple[Meeting, int], dict[int, int]] = {}

    def arrive(
        self, engine: int, position: int, core: int, meeting: Meeting
    ) -> dict[int, int] | None:
        """Note that `engine` has come to a meeting; when the last comes, where they all stand."""
        number = self.numbers[core, meeting] = self.numbers.get((core, meeting), 0) + 1
        arrived = self.arrived.setdefault((meeting, number), {})
        arrived[engine] = position
        if len(arrived) < len(meeting[1]):
            self.waiting.add(engine)
            return None
        others = arrived.keys() - {engine}
        self.waiting -= others
        self.released |= others
        return arrived
