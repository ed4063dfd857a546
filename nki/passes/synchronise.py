"""Find which instruction must wait for which, and give each wait a semaphore.

Streams are the five engines and the DMA queues; each completes in order. An instruction needs the
latest conflicting event of every other stream. Vector clocks tell what an engine already knows;
what is known, or implied by another wait, is not waited for: what remains is the transitive
reduction. One semaphore serves one (loop depth, producer stream, consumer engine): a counting
channel of tokens, first in, first out.

A loop body is analysed as a sequence of iterations until the waits repeat. A wait for the iteration
before gets its first token from the producer ahead of the loop (a prime), and the consumer takes
the last one after it; so waits count relative to the iteration, whatever the trip count is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from isa.dtypes import DTYPES
from isa.enums import Memory
from isa.machine.control import CoreBarrier, StorageBegin
from nki.ir.nodes import Loop, Op, Register, Tensor, While
from nki.passes.access_state import Needs, Occupants, Record, TensorState
from nki.passes.channels import Context
from nki.passes.footprint import WHOLE, Box, may_overlap
from nki.passes.steps import ENGINES, Region, Step
from nki.passes.summary import RegionAccess, Summary, at_least_once, at_most_once

ALTERNATING = 8
"""Iterations after which edges that are found once stay: two waits that imply each other may take
turns for ever, each in the iterations in which the other one is missing."""

MAX_ITERATIONS = 64
Edge = tuple[int, int, int, int, int]
"""(consumer item, consumer engine, producer stream, producer's position in the body, distance)"""


class Event:
    """An entry of a stream: the item, its iteration, and what is complete once it is.

    A region has two entries in an engine's stream: its accesses, which others may know to be over
    from tokens they take inside, and the exit, behind the drains of its queues, which gives tokens.
    An event is `certain` unless it stands for accesses in a loop that may not run.
    """

    __slots__ = ("certain", "clock", "item", "iteration", "relative")

    def __init__(
        self, item: int, iteration: int, relative: int, clock: list[int], certain: bool
    ) -> None:
        self.item = item
        self.iteration = iteration
        self.relative = relative
        self.clock = clock
        self.certain = certain


class Level:
    """Analysis of one list of items: the body of the kernel (`node` None) or of a loop."""

    def __init__(
        self,
        items: list[Step | Region],
        context: Context,
        depth: int = 0,
        node: Loop | While | None = None,
        variables: frozenset[Register] = frozenset(),
    ) -> None:
        self.items = items
        self.context = context
        self.depth = depth
        self.node = node
        self.variables = variables
        streams = context.streams
        self.counts = [0] * streams
        self.base = [0] * streams
        self.knowledge = [[0] * streams for _ in range(ENGINES)]
        self.events: list[list[Event]] = [[] for _ in range(streams)]
        self.tensors: dict[Tensor, TensorState] = {}
        self.occupants = {Memory.sbuf: Occupants(), Memory.psum: Occupants()}
        self.edges: list[Edge] = []
        self.kept: dict[tuple[int, int], dict[tuple[int, ...], None]] = {}
        self.bases: list[list[int]] = []
        self.carried: dict[tuple[int, int], int] = {}
        self.iteration = 0
        self.by_op: dict[Op, list[tuple[int, int]]] = {}
        self.named = {op for item in items if isinstance(item, Step) for op in item.after}
        self.finished: dict[tuple[int, int], set[int]] = {}
        self.shift: dict[int, dict[Register, int]] = {}
        self.primed: set[int] = set()
        for item in items:
            if isinstance(item, Region):
                inner = variables
                if isinstance(item.node, Loop):
                    inner = variables | {item.node.variable}
                level = Level(item.body, context, depth + 1, item.node, inner)
                level.run()
                level.connect(item)
                item.summary = level.summarise()
                self.primed |= level.primed
        if node is not None and not at_most_once(node):
            context.settle(self.primed)

    def run(self) -> None:
        """Analyse, then write waits, updates, primes and drains into the items."""
        previous: list[Edge] | None = None
        once = self.node is None or at_most_once(self.node)
        while True:
            self.edges = []
            self.by_op.clear()
            self.base = list(self.counts)
            self.bases.append(self.base)
            for number, item in enumerate(self.items):
                if isinstance(item, Step):
                    self._step(number, item)
                else:
                    self._region(number, item)
            if once or self.edges == previous:
                break
            previous = self.edges
            if self.iteration >= ALTERNATING:
                for number, engine, *edge in self.edges:
                    self.kept.setdefault((number, engine), {})[tuple(edge)] = None
            self.iteration += 1
            if self.iteration == MAX_ITERATIONS:
                raise AssertionError("semaphores of a loop do not settle")
        self._apply()

    # -- one item ---------------------------------------------------------------------------

    def _step(self, number: int, step: Step) -> None:
        engine = step.engine
        needs: Needs = {}
        touched: list[tuple[TensorState, Box, bool]] = []
        row = step.instruction.row
        knowledge = self.knowledge[engine]
        tensors = self.tensors
        for _, tensor in step.begins:
            self._begin(tensor, knowledge, needs)
        if row is StorageBegin:
            tensor = step.accesses[0].storage
            self._begin(tensor, knowledge, needs)
            touched.append((self._state(tensor), WHOLE, True))
        elif row is CoreBarrier:
            for tensor in self.context.shared:
                state = self._state(tensor)
                self._conflicts(state, WHOLE, True, knowledge, needs)
                touched.append((state, WHOLE, True))
        else:
            boxes = step.boxes or self.context.boxes_of(step, self.variables)
            for access, writes, box in zip(step.accesses, step.writes, boxes):
                if box is None:
                    continue
                tensor = access.storage
                if tensor in tensors:
                    state = tensors[tensor]
                    if state.records:
                        self._conflicts(state, box, writes, knowledge, needs)
                else:
                    state = tensors[tensor] = TensorState()
                touched.append((state, box, writes))
        for op in step.after:
            for stream, position in self.by_op.get(op, ()):
                _raise_to(needs, stream, position)
        if needs or (number, engine) in self.kept:
            self._wait(number, engine, needs, knowledge)
        position = self._advance(engine, number, knowledge)
        for _, tensor in step.begins:
            self._record_begin(tensor, touched, engine, position)
        stream = engine
        if step.queue >= 0:
            stream = step.queue
            clock = list(knowledge)
            if self.events[stream]:
                _join(clock, self.events[stream][-1].clock)
            position = self._advance(stream, number, clock)
        if step.op in self.named:
            self.by_op.setdefault(step.op, []).append((stream, position))
        for state, box, writes in touched:
            self._record(state, box, writes, stream, position)

    def _record_begin(
        self,
        tensor: Tensor,
        touched: list[tuple[TensorState, Box, bool]],
        engine: int,
        position: int,
    ) -> None:
        """The marker of a tensor, as a write of all of it; needless when the step itself writes
        all of it."""
        state = self._state(tensor)
        for other, box, writes in touched:
            if other is state and writes and box.covers(tensor):
                return
        self._record(state, WHOLE, True, engine, position)

    def _region(self, number: int, region: Region) -> None:
        summary: Summary = region.summary
        needs = self._region_needs(region)
        owner = self.context.owner
        entered = at_least_once(region.node)
        entry: dict[int, list[int]] = {}
        for engine in region.engines:
            self._wait(number, engine, needs[engine], self.knowledge[engine])
            entry[engine] = list(self.knowledge[engine])
        positions = {engine: self.counts[engine] + 1 for engine in region.engines}
        positions |= {stream: self.counts[stream] + 1 for stream in summary.queues}
        for producer, consumer in summary.primed:
            # Behind the loop the consumer takes what is left: a token, if only the prime.
            knowledge = self.knowledge[consumer]
            _join(knowledge, entry[producer])
            knowledge[producer] = max(knowledge[producer], positions[producer] - 1)
        for engine in region.engines:
            knowledge = self.knowledge[engine]
            for stream, certain in summary.known[engine].items():
                # A loop that may not run teaches nothing about what came before it.
                certain &= entered
                if certain:
                    _join(knowledge, entry[owner.get(stream, stream)])
                if certain or knowledge[stream] == positions[stream] - 1:
                    knowledge[stream] = positions[stream]
                else:
                    self.finished.setdefault((stream, positions[stream]), set()).add(engine)
        for stream in summary.queues:
            clock = list(entry[owner[stream]])
            if self.events[stream]:
                _join(clock, self.events[stream][-1].clock)
            self._advance(stream, number, clock, entered and stream in summary.certain)
        for engine in region.engines:
            certain = entered and engine in summary.certain
            self._advance(engine, number, self.knowledge[engine], certain)
            self._advance(engine, number, self.knowledge[engine])
        for access in summary.accesses:
            self._record(
                self._state(access.tensor),
                access.box,
                access.writes,
                access.stream,
                positions[access.stream],
                entered and access.certain,
                positions,
            )

    def _region_needs(self, region: Region) -> dict[int, Needs]:
        """What each engine must wait for ahead of a loop.

        What a producer's prime implies is not waited for, when the consumer takes the prime no
        later than the access that needs it.
        """
        summary: Summary = region.summary
        needs: dict[int, Needs] = {engine: {} for engine in region.engines}
        entered = at_least_once(region.node)
        nothing = [0] * self.context.streams
        for tensor, box, writes, stream, begins, certain, at in summary.accesses:
            engine = self.context.owner.get(stream, stream)
            wanted: Needs = {}
            if begins:
                self._begin(tensor, nothing, wanted)
                if not (entered and certain):
                    # The tensor may never begin: what used its bytes counts on.
                    for other, position in wanted.items():
                        _raise_to(self._state(tensor).last, other, position)
            else:
                knowledge = self.knowledge[engine]
                self._conflicts(self._state(tensor), box, writes, knowledge, wanted)
            for other, position in wanted.items():
                primed = summary.primed.get((other, engine))
                if primed is None or primed > at:
                    _raise_to(needs[engine], other, position)
        return needs

    def _advance(self, stream: int, item: int, clock: list[int], certain: bool = True) -> int:
        """A new event of a stream; returns its position (from 1)."""
        self.counts[stream] += 1
        position = self.counts[stream]
        if stream < ENGINES:
            clock[stream] = position
            clock = list(clock)
        else:
            clock[stream] = position
        relative = position - self.base[stream]
        self.events[stream].append(Event(item, self.iteration, relative, clock, certain))
        return position

    # -- dependences ------------------------------------------------------------------------

    def _state(self, tensor: Tensor) -> TensorState:
        state = self.tensors.get(tensor)
        if state is None:
            state = self.tensors[tensor] = TensorState()
        return state

    def _begin(self, tensor: Tensor, knowledge: list[int], needs: Needs) -> None:
        """A tensor takes its bytes: whatever used them before must be done."""
        state = self.tensors.get(tensor)
        if state is not None:
            for stream, position in state.last.items():
                if knowledge[stream] < position and needs.get(stream, 0) < position:
                    needs[stream] = position
        self.tensors[tensor] = TensorState()
        if not tensor.memory.on_chip:
            return
        partition, low = self.context.placement[tensor]
        rows = partition + tensor.shape[0]
        high = low + tensor.pitch * DTYPES[tensor.dtype].size
        occupants = self.occupants[tensor.memory]
        for p0, p1, other in occupants.replace(low, high, partition, rows, tensor):
            if other is not tensor and p0 < rows and partition < p1:
                for stream, position in self.tensors[other].last.items():
                    if knowledge[stream] < position and needs.get(stream, 0) < position:
                        needs[stream] = position

    def _conflicts(
        self, state: TensorState, box: Box, writes: bool, knowledge: list[int], needs: Needs
    ) -> None:
        """Add what an access must wait for and `knowledge` does not have yet."""
        records = state.records
        if len(records) > 8:
            records = state.candidates(box)
        iteration = self.iteration
        for record in records:
            if not record.writes and not writes:
                continue
            if record.box is not box or record.iteration != iteration:
                if not may_overlap(record.box, box, self._shift(record.iteration)):
                    continue
            for stream, position in record.writes.items():
                if knowledge[stream] < position and needs.get(stream, 0) < position:
                    needs[stream] = position
            if writes:
                for stream, position in record.reads.items():
                    if knowledge[stream] < position and needs.get(stream, 0) < position:
                        needs[stream] = position

    def _shift(self, iteration: int) -> dict[Register, int] | None:
        """How far the loop variable has moved since `iteration`."""
        distance = self.iteration - iteration
        if distance == 0 or not isinstance(self.node, Loop):
            return None
        shift = self.shift.get(distance)
        if shift is None:
            shift = {self.node.variable: distance * self.node.step}
            self.shift[distance] = shift
        return shift

    def _record(
        self,
        state: TensorState,
        box: Box,
        writes: bool,
        stream: int,
        position: int,
        certain: bool = True,
        together: Needs | None = None,
    ) -> None:
        """Enter an access; one that is not `certain` to run hides no earlier one, and those of one
        loop, at the positions `together`, hide none of each other: they come in turns."""
        last = state.last
        if last.get(stream, 0) < position:
            last[stream] = position
        records = state.records
        if len(records) > 8:
            records = state.candidates(box)
        iteration = self.iteration
        for record in records:
            if record.box is box and (record.iteration == iteration or box.static):
                break
        else:
            record = Record(box, iteration)
            state.add(record)
        record.iteration = iteration
        if writes and certain:
            record.writes = {stream: position} | _at(together, record.writes)
            record.reads = _at(together, record.reads)
        elif writes:
            record.writes[stream] = position
        else:
            reads = record.reads
            if reads.get(stream, 0) < position:
                reads[stream] = position

    # -- waits ------------------------------------------------------------------------------

    def _wait(self, number: int, engine: int, needs: Needs, knowledge: list[int]) -> None:
        """Wait for what the engine does not know yet, and learn what that implies."""
        for stream, relative, distance in self.kept.get((number, engine), ()):
            position = self.bases[self.iteration - distance][stream] + relative
            self.edges.append((number, engine, stream, relative, distance))
            _join(knowledge, self.events[stream][position - 1].clock)
        wanted: list[tuple[int, int]] = []
        finished = self.finished
        for stream, needed in needs.items():
            position = needed
            # What it knows of a loop that may not have run says nothing about what came before.
            while finished and engine in finished.get((stream, position), ()):
                position -= 1
            if stream == engine or knowledge[stream] >= position:
                continue
            event = self.events[stream][position - 1]
            if isinstance(self.items[event.item], Region):
                if stream >= ENGINES:
                    stream, position = self._drain(stream, event)
                else:
                    position = self._last(stream, event)
                if stream == engine or knowledge[stream] >= position:
                    continue
            wanted.append((stream, position))
        if len(wanted) > 1:
            wanted = self._reduced(wanted)
        for stream, position in wanted:
            event = self.events[stream][position - 1]
            producer = self.items[event.item]
            if isinstance(producer, Step) and producer.queue >= 0 and stream < ENGINES:
                # Nothing but its completion tells others of a transfer, nor that it was issued.
                stream = producer.queue
                event = self.events[stream][self._last(stream, event) - 1]
            distance = self.iteration - event.iteration
            self.edges.append((number, engine, stream, event.relative, distance))
            _join(knowledge, event.clock)

    def _reduced(self, wanted: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Without those that another one implies; of two that imply each other, as two engines'
        exits from a loop do, one stays."""
        kept: dict[int, int] = {}
        for stream, position in wanted:
            _raise_to(kept, stream, position)
        for stream, position in list(kept.items()):
            if any(
                self.events[other][at - 1].clock[stream] >= position
                for other, at in kept.items()
                if other != stream
            ):
                del kept[stream]
        return list(kept.items())

    def _last(self, stream: int, event: Event) -> int:
        """The position at which a stream is done with the item of an event: an engine has left a
        region, a queue has completed a transfer."""
        own = self.events[stream]
        for index in range(len(own) - 1, -1, -1):
            if own[index].item == event.item and own[index].iteration == event.iteration:
                return index + 1
        raise AssertionError("an engine waits for an item that does not run on it")

    def _drain(self, queue: int, event: Event) -> tuple[int, int]:
        """The owner's exit from the region, after it has drained the queue."""
        region = self.items[event.item]
        assert isinstance(region, Region)
        owner = self.context.owner[queue]
        drains = region.drains.setdefault(owner, [])
        position = self._last(owner, event)
        if queue not in drains:
            drains.append(queue)
        queue_position = self.base_of(queue, event)
        clock = self.events[owner][position - 1].clock
        if clock[queue] < queue_position:
            clock[queue] = queue_position
        for other in range(ENGINES):
            if self.knowledge[other][owner] >= position:
                knowledge = self.knowledge[other]
                knowledge[queue] = max(knowledge[queue], queue_position)
        return owner, position

    def base_of(self, stream: int, event: Event) -> int:
        """The position of an event in its stream."""
        return next(
            index + 1 for index, candidate in enumerate(self.events[stream]) if candidate is event
        )

    # -- results ----------------------------------------------------------------------------

    def _apply(self) -> None:
        """Turn the settled waits into semaphore waits and updates."""
        carried: dict[tuple[int, int], int] = {}
        for number, engine, stream, relative, distance in self.edges:
            semaphore = self.context.channels.semaphore(self.depth, stream, engine)
            consumer = self.items[number]
            producer = self.items[self.events[stream][self.base[stream] + relative - 1].item]
            if isinstance(consumer, Step):
                consumer.waits += ((semaphore, 1),)
            else:
                consumer.enter_waits.setdefault(engine, []).append((semaphore, 1))
            if isinstance(producer, Step):
                producer.updates += ((semaphore, 1),)
            else:
                producer.exit_updates.setdefault(stream, []).append((semaphore, 1))
            if distance:
                key = (stream, engine)
                carried[key] = carried.get(key, 0) + distance
        self.carried = carried

    def connect(self, region: Region) -> None:
        """Primes ahead of the loop and the tokens to take behind it."""
        owner = self.context.owner
        for (stream, engine), count in self.carried.items():
            semaphore = self.context.channels.semaphore(self.depth, stream, engine)
            producer = owner.get(stream, stream)
            if stream in owner:
                self.context.settle([semaphore])
                self.primed.add(semaphore)
            region.primes.setdefault(producer, []).append((semaphore, count))
            region.exit_waits.setdefault(engine, []).append((semaphore, count))
        for _, engine, stream, _, _ in self.edges:
            if stream in owner:
                semaphore = self.context.channels.semaphore(self.depth, stream, engine)
                self.context.transferred[semaphore] = (region, stream)

    def summarise(self) -> Summary:
        """What the enclosing level must know of this loop; see `Summary`."""
        summary = Summary()
        seen: set[Any] = set()
        begun: set[tuple[Tensor, int]] = set()
        owner = self.context.owner
        for at, item in enumerate(self.items):
            for tensor, box, writes, stream, begins, certain in self._accesses(item):
                box = box.widened(self.node)
                spans = box if box.static and box.spans else id(box)
                if not begins and (tensor, stream) in begun:
                    continue
                key = (tensor, spans, writes, stream, begins, certain)
                if key in seen:
                    continue
                seen.add(key)
                if begins:
                    begun.add((tensor, stream))
                summary.accesses.append(
                    RegionAccess(tensor, box, writes, stream, begins, certain, at)
                )
        for access in summary.accesses:
            if access.stream in owner:
                summary.queues[access.stream] = owner[access.stream]
        for number, engine, stream, _, distance in self.edges:
            if distance:
                pair = (owner.get(stream, stream), engine)
                summary.primed[pair] = min(number, summary.primed.get(pair, number))
        self._exit_knowledge(summary)
        return summary

    def _accesses(self, item: Step | Region) -> Iterator[tuple[Tensor, Box, bool, int, bool, bool]]:
        """(tensor, box, writes, stream, begins, certain) of one item."""
        if isinstance(item, Region):
            entered = at_least_once(item.node)
            for access in item.summary.accesses:
                yield (*access[:-2], entered and access.certain)
            return
        stream = item.queue if item.queue >= 0 else item.engine
        row = item.instruction.row
        for _, tensor in item.begins:
            yield tensor, WHOLE, True, item.engine, True, True
        if row is StorageBegin:
            yield item.accesses[0].storage, WHOLE, True, stream, True, True
        elif row is CoreBarrier:
            for tensor in self.context.shared:
                yield tensor, WHOLE, True, stream, False, True
        else:
            boxes = self.context.boxes_of(item, self.variables)
            for access, writes, box in zip(item.accesses, item.writes, boxes):
                if box is not None:
                    yield access.storage, box, writes, stream, False, True

    def _exit_knowledge(self, summary: Summary) -> None:
        """Which streams' part of the loop each engine knows to be over, once it has taken the
        tokens that are left."""
        last = self.iteration
        position = {
            (stream, event.relative): index + 1
            for stream in range(self.context.streams)
            for index, event in enumerate(self.events[stream])
            if event.iteration == last
        }
        knowledge = [list(row) for row in self.knowledge]
        for _, engine, stream, relative, distance in self.edges:
            if distance:
                event = self.events[stream][position[stream, relative] - 1]
                _join(knowledge[engine], event.clock)
        final = {}
        for stream in {access.stream for access in summary.accesses}:
            if self.counts[stream]:
                event = self.events[stream][-1]
                exits = stream < ENGINES and isinstance(self.items[event.item], Region)
                final[stream] = self.counts[stream] - exits
        certain: dict[int, int] = {}
        for (stream, _), index in position.items():
            if stream in final and self.events[stream][index - 1].certain:
                certain[stream] = min(index, certain.get(stream, index))
        summary.certain = set(certain)
        for engine in range(ENGINES):
            known = knowledge[engine]
            summary.known[engine] = {
                stream: stream in certain and known[stream] >= certain[stream]
                for stream, count in final.items()
                if stream != engine and known[stream] >= count
            }


def _at(positions: Needs | None, needs: Needs) -> Needs:
    """Those of `needs` that are at the given positions."""
    if positions is None:
        return {}
    return {s: position for s, position in needs.items() if positions.get(s) == position}


def _raise_to(needs: Needs, stream: int, position: int) -> None:
    if needs.get(stream, 0) < position:
        needs[stream] = position


def _join(knowledge: list[int], clock: list[int]) -> None:
    for stream, position in enumerate(clock):
        if knowledge[stream] < position:
            knowledge[stream] = position
