"""One walk through a level of a body that finds its waits, with vector clocks.

        x: vector 1  writes tile a
        y: vector 2  writes tile b
        z: scalar 1  reads b          waits for y
        w: scalar 2  reads a          needs no wait: who knows of y knows of x

Each engine has a clock: how many events of each stream it knows to be over. After z the scalar
engine's clock says 2 for vector, so the dependence of w on x (event 1) is covered. Waiting for an
event also takes over the clock that its engine had when it issued the step, so knowledge is
transitive.

In a loop the walk goes round. In iteration i a step may follow an event of iteration i - 1 (a
*distance* of 1): the first iteration finds none, the second records the edge. Once two iterations
record the same edges, those hold for all further ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from isa.columns.repetition import Repetition
from isa.errors import NeuronError
from nki.ir.locations import resolve
from nki.passes.analysis.body import Layer
from nki.passes.analysis.steps import ENGINES
from nki.passes.synchronise.events import Event, enter, issue, joined, reduced
from nki.passes.synchronise.periods import LeftOut, leave_out, restored

if TYPE_CHECKING:
    from nki.passes.synchronise.synchronise import CoreWaits, Outside

ALTERNATING = 8
"""Iterations after which edges that are found once stay: two waits that imply each other may take
turns for ever, each in the iterations in which the other one is missing."""

MAX_ITERATIONS = 64

ITERATION = 1 << 40
"""An event's name is iteration * ITERATION + place, of a step by its place in the order, of loop n
by place = steps + n. So `divmod(name, ITERATION)` gives both, and place < steps says which."""

Edge = tuple[int, int, int, int, int]
"""(consumer's name, consumer engine, producer stream, producer's name, distance in iterations);
names are without iterations."""


class Walk:
    """A walk through the items of a level in order, iteration by iteration, and what it has found
    up to the place `at`.

        for each iteration, until its edges are those of the one before:
            for each step (`to`):
                wanted = the latest event, by stream, that it follows and its engine does not know
                _wait: drop those that others imply; record an edge for each; join their clocks
                count the step's own event, with the clock of its engine, in `completions`
            for each loop inside (`_loop`), as one item: entering waits like a step, and each stream
                that it touches has one event (`_enter`), with what is known outside (`Outside`)

    An `Event` is (stream, position, engine, issued, known, name): the position-th event of its
    stream, which `engine` issued as its issued-th, knowing `known`. For a step on an engine, stream
    and engine are the same; a transfer is an event of its queue, and its issue one of the engine.
    An `Edge` says which step of which engine waits for which.

    - `knowledge`: by engine, its clock; `counts`: by stream, how many events it has had.
    - `completions`: events of steps, by iteration and place from the level's first on; None where
      they were left out (`nki.passes.synchronise.periods`).
    - `loops`: events of loops, by iteration, loop and stream; `exits`: of engines that have left a
      loop; `awaited`: what a touch of a loop had to wait for, by iteration and row of
      `Touched.loops`.
    - `unsure`: (stream, position) of loops that may not have run. An engine that knows such an
      event is over knows nothing of what came before in that stream: `finished` has those engines,
      `before` the event before.
    - `latest`: the last event of each stream.
    - `kept`: edges that stay in all further iterations (`ALTERNATING`).
    """

    def __init__(self, core: CoreWaits, layer: Layer) -> None:
        self.core = core
        self.layer = layer
        self.base = layer.first
        self.at = layer.first
        streams = core.context.streams
        self.counts = [0] * streams
        self.knowledge: list[Sequence[int]] = [tuple(self.counts)] * ENGINES
        self.iteration = 0
        self.completions: list[list[Event | None]] = []
        self.loops: list[dict[tuple[int, int], Event]] = []
        self.exits: list[dict[tuple[int, int], Event]] = []
        self.awaited: list[dict[int, dict[int, Event]]] = []
        self.unsure: set[tuple[int, int]] = set()
        self.finished: dict[tuple[int, int], set[int]] = {}
        self.before: dict[tuple[int, int], Event | None] = {}
        self.latest: dict[int, Event] = {}
        self.edges: list[Edge] = []
        self.kept: dict[tuple[int, int], dict[tuple[int, int, int], None]] = {}
        self.left_out: list[LeftOut] = []

    def run(self, repeated: Sequence[Repetition] = ()) -> None:
        """Walk on until the waits of an iteration are those of the one before."""
        once = not self.core.iterates[self.layer.number]
        previous: list[Edge] | None = None
        while True:
            self.completions.append([])
            self.loops.append({})
            self.exits.append({})
            self.awaited.append({})
            self.edges = []
            self.at = self.base
            for number in self.layer.inner:
                inner = self.core.body.layers[number]
                self._steps(inner.first, repeated)
                self._loop(inner)
            self._steps(self.layer.end, repeated)
            if once or (self.edges == previous and self.iteration >= self.core.reach):
                return
            previous = self.edges
            if self.iteration >= ALTERNATING:
                for name, engine, *edge in self.edges:
                    kept = self.kept.setdefault((name, engine), {})
                    kept[edge[0], edge[1], edge[2]] = None
            self.iteration += 1
            if self.iteration == MAX_ITERATIONS:
                raise AssertionError("semaphores of a loop do not settle")

    # -- steps ------------------------------------------------------------------------------------

    def _steps(self, end: int, repeated: Sequence[Repetition]) -> None:
        """Walk to a place with no loop in between."""
        for found in repeated:
            if self.at <= found.start and found.end <= end:
                leave_out(self, found)
        first = self.at
        self.to(end)
        if self.layer.inner:
            self._note_latest(first)

    def _note_latest(self, first: int) -> None:
        """Find the last events of streams among those of steps since a place."""
        missing = {s for s, count in enumerate(self.counts) if count}
        missing -= {s for s, event in self.latest.items() if event[1] == self.counts[s]}
        for event in reversed(self.completions[-1][first - self.base :]):
            if not missing or event is None:
                break
            for one in (event, issue(event)):
                if one[0] in missing:
                    self.latest[one[0]] = one
                    missing.discard(one[0])

    def to(self, end: int) -> None:
        """Walk on to a place, step by step."""
        core, base = self.core, self.base
        counts, knowledge = self.counts, self.knowledge
        completions = self.completions[-1]
        kept, whole = self.kept, self.iteration * ITERATION
        starts, follows, steps = core.starts, core.follows, core.steps
        before = self.completions[-2] if self.iteration else []
        space = core.space + base
        end_of_before = space + len(before)
        first = starts[self.at]
        for place, engine, queue, last in zip(
            range(self.at, end),
            core.engine[self.at : end],
            core.queue[self.at : end],
            starts[self.at + 1 : end + 1],
        ):
            known = knowledge[engine]
            wanted: dict[int, Event] = {}
            unknown = False
            for name in follows[first:last]:
                if name < steps:
                    event = completions[name - base] or restored(self, name)
                    stream, position = event[0], event[1]
                    if known[stream] >= position or stream == engine:
                        continue
                    unknown = True
                elif space <= name < end_of_before and (found := before[name - space]) is not None:
                    event = found  # what the iteration before did at a place, as most are
                    stream, position = event[0], event[1]
                    unknown = unknown or (known[stream] < position and stream != engine)
                elif name < core.space or self.iteration:
                    enter(wanted, self._events(name))
                    unknown = True
                    continue
                else:
                    continue
                other = wanted.get(stream)
                if other is None or other[1] < position:
                    wanted[stream] = event
            first = last
            if unknown or (kept and (place, engine) in kept):
                known = knowledge[engine] = self._wait(place, engine, wanted)
            counts[engine] = issued = counts[engine] + 1
            if queue < 0:
                completions.append((engine, issued, engine, issued, known, whole + place))
            else:
                counts[queue] = position = counts[queue] + 1
                completions.append((queue, position, engine, issued, known, whole + place))
        self.at = end

    def _events(self, name: int) -> Iterable[Event]:
        """The events that a number of `Dependences` stands for: distance * space + n. Here n is the
        completion of a step, its issue, or a loop in one stream. From `ready` on it is all that a
        touch of a loop had to wait for. None where it was before the first iteration."""
        core = self.core
        distance, name = divmod(name, core.space)
        iteration = self.iteration - distance
        if iteration < 0:
            return ()
        if name < 2 * core.steps:
            issued, place = divmod(name, core.steps)
            event = self._completion(iteration, place)
            return (issue(event) if issued else event,)
        if name >= core.ready:
            return self.awaited[iteration].get(name - core.ready, {}).values()
        return (self.loops[iteration][divmod(name - 2 * core.steps, core.context.streams)],)

    # -- loops ------------------------------------------------------------------------------------

    def _loop(self, inner: Layer) -> None:
        """Go by a loop."""
        core, number = self.core, inner.number
        engines = inner.level.engines
        outside = core.outside[number]
        runs = core.runs[number]
        needs = self._loop_needs(number, outside)
        name = core.steps + number
        self.completions[-1] += [None] * (inner.end - inner.first)
        entry: dict[int, list[int]] = {}
        for engine in engines:
            self.knowledge[engine] = self._wait(name, engine, needs.get(engine, {}))
            entry[engine] = [*self.knowledge[engine]]
            entry[engine][engine] = self.counts[engine]
        queues = [stream for stream in outside.streams if stream >= ENGINES]
        positions = {stream: self.counts[stream] + 1 for stream in (*engines, *queues)}
        for producer, consumer in outside.primed:
            # Behind the loop the consumer takes what is left: a token, if only the prime.
            known = list(map(max, self.knowledge[consumer], entry[producer]))
            known[producer] = max(known[producer], positions[producer] - 1)
            self.knowledge[consumer] = known
        for engine in engines:
            known = list(self.knowledge[engine])
            for stream, certain in outside.known[engine].items():
                # A loop that may not run teaches nothing about what came before it.
                certain &= runs
                if certain:
                    known = list(map(max, known, entry[core.context.issuer(stream)]))
                if certain or known[stream] == positions[stream] - 1:
                    known[stream] = positions[stream]
                else:
                    self.finished.setdefault((stream, positions[stream]), set()).add(engine)
            self.knowledge[engine] = known
        for stream in queues:
            self._enter(number, stream, entry[core.context.owner[stream]], runs, outside)
        for engine in engines:
            self._enter(number, engine, self.knowledge[engine], runs, outside)
            self.counts[engine] += 1
            position = self.counts[engine]
            known = list(self.knowledge[engine])
            known[engine] = position
            self.knowledge[engine] = known
            named = self.iteration * ITERATION + name
            left = engine, position, engine, position, known, named
            self.exits[-1][number, engine] = self.latest[engine] = left
        self.at = inner.end

    def _enter(
        self, number: int, stream: int, known: Sequence[int], runs: bool, outside: Outside
    ) -> None:
        """What a loop does in a stream becomes an event of this level."""
        self.counts[stream] = position = self.counts[stream] + 1
        engine = self.core.context.issuer(stream)
        name = self.iteration * ITERATION + self.core.steps + number
        issued = position if stream < ENGINES else 0
        event = stream, position, engine, issued, tuple(known), name
        self.before[stream, position] = self.latest.get(stream)
        self.loops[-1][number, stream] = self.latest[stream] = event
        if not (runs and stream in outside.certain):
            self.unsure.add((stream, position))

    def _loop_needs(self, number: int, outside: Outside) -> dict[int, dict[int, Event]]:
        """By engine, what it must wait for ahead of a loop.

        What a producer's prime implies is not waited for, when the consumer takes the prime no
        later than what it does that needs it.
        """
        needs: dict[int, dict[int, Event]] = {}
        awaited = self.awaited[-1]
        for row, stream, place, name in self.core.needs.get(number, ()):
            engine = self.core.context.issuer(stream)
            events = self._events(name)
            enter(awaited.setdefault(row, {}), events)
            for event in events:
                primed = outside.primed.get((event[0], engine))
                if primed is None or primed > place:
                    enter(needs.setdefault(engine, {}), (event,))
        return needs

    # -- waits ------------------------------------------------------------------------------------

    def _wait(self, name: int, engine: int, wanted: dict[int, Event]) -> Sequence[int]:
        """Wait for what the engine does not know yet; what it knows then."""
        known = self.knowledge[engine]
        for stream, producer, distance in self.kept.get((name, engine), ()) if self.kept else ():
            event = self._tells(self.iteration - distance, stream, producer)
            self.edges.append((name, engine, stream, producer, distance))
            known = self.knowledge[engine] = joined(known, event)
        events: list[Event] = []
        steps, queue = self.core.steps, self.core.queue
        found: Event | None
        for found in wanted.values():
            if self.finished:
                found = self._unknown(found, engine)
            if found is None or found[0] == engine or known[found[0]] >= found[1]:
                continue
            if found[5] % ITERATION >= steps:
                found = self._left(found)
                known = self.knowledge[engine]
                if found[0] == engine or known[found[0]] >= found[1]:
                    continue
            events.append(found)
        for event in reduced(events) if len(events) > 1 else events:
            stream = event[0]
            iteration, producer = divmod(event[5], ITERATION)
            if stream < ENGINES and producer < steps and queue[producer] >= 0:
                # Nothing but its completion tells others of a transfer, nor that it was issued.
                event = self._completion(iteration, producer)
                stream = event[0]
            self.edges.append((name, engine, stream, producer, self.iteration - iteration))
            known = joined(known, event)
        return known

    def _unknown(self, event: Event, engine: int) -> Event | None:
        """An event, or what came before it in its stream, where an engine knows that the loop is
        over that it stands for."""
        found: Event | None = event
        while found is not None and engine in self.finished.get((found[0], found[1]), ()):
            found = self.before[found[0], found[1]]
        return found

    def _left(self, event: Event) -> Event:
        """What tells that a stream is done with a loop: that its engine has left it, having drained
        the queue where the stream is one."""
        stream, position, engine, _, _, name = event
        iteration, number = divmod(name, ITERATION)
        number -= self.core.steps
        exit_ = self.exits[iteration][number, engine]
        if stream != engine:
            self.core.drain(number, stream)
            known = exit_[4]
            assert isinstance(known, list)
            known[stream] = max(known[stream], position)
            for other, mine in enumerate(self.knowledge):
                if mine[engine] >= exit_[1] and mine[stream] < position:
                    self.knowledge[other] = [*mine[:stream], position, *mine[stream + 1 :]]
        return exit_

    def _completion(self, iteration: int, place: int) -> Event:
        """The event of a step's end."""
        return self.completions[iteration][place - self.base] or restored(self, place)

    def _tells(self, iteration: int, stream: int, producer: int) -> Event:
        """The event by which a producer tells others."""
        if producer < self.core.steps:
            return self._completion(iteration, producer)
        return self.exits[iteration][producer - self.core.steps, stream]

    # -- results ----------------------------------------------------------------------------------

    def apply(self) -> list[tuple[int, int, int, int]]:
        """Give each wait a semaphore: (waiting place, telling place, semaphore, place at which the
        consumer is). Places are -1 for loops, to whose signals they are added."""
        core, steps = self.core, self.core.steps
        found = []
        semaphores: dict[tuple[int, int], int] = {}
        for name, engine, stream, producer, _ in self.edges:
            semaphore = semaphores.get((stream, engine), -1)
            if semaphore < 0:
                semaphore = semaphores[stream, engine] = self._semaphore(stream, engine)
            place = name
            if name >= steps:
                place = core.first_place(name)
                waits = core.loops[name - steps].enter_waits
                waits.setdefault(engine, []).append((semaphore, 1))
                name = -1
            if producer >= steps:
                updates = core.loops[producer - steps].exit_updates
                updates.setdefault(stream, []).append((semaphore, 1))
                producer = -1
            found.append((name, producer, semaphore, place))
        return found

    def connect(self) -> set[int]:
        """Primes ahead of the loop and the tokens to take behind it. Returns the semaphores that
        transfers tell others by."""
        core, number = self.core, self.layer.number
        signals = core.loops[number]
        carried: dict[tuple[int, int], int] = {}
        for _, engine, stream, _, distance in self.edges:
            if distance:
                carried[stream, engine] = carried.get((stream, engine), 0) + distance
        primed: set[int] = set()
        for (stream, engine), count in carried.items():
            semaphore = self._semaphore(stream, engine)
            if stream >= ENGINES:
                core.settle([semaphore])
                primed.add(semaphore)
            producer = core.context.issuer(stream)
            signals.primes.setdefault(producer, []).append((semaphore, count))
            signals.exit_waits.setdefault(engine, []).append((semaphore, count))
        for _, engine, stream, _, _ in self.edges:
            if stream >= ENGINES:
                semaphore = self._semaphore(stream, engine)
                core.transferred[semaphore] = number, stream
        return primed

    def _semaphore(self, producer: int, consumer: int) -> int:
        """The semaphore of the level's channel between a stream and an engine. Raises NeuronError
        semaphore-overflow, at the deepest loop."""
        core = self.core
        try:
            return core.context.channels.semaphore(self.layer.depth, producer, consumer)
        except NeuronError as error:
            deepest = max(core.body.layers, key=lambda layer: layer.depth)
            error.what += f": it has {deepest.depth} levels of loops"
            if deepest.level.node is not None:
                error.location = resolve(deepest.level.node.location)
            raise

    def outside(self) -> Outside:
        """What the enclosing level must know of this loop."""
        from nki.passes.synchronise.synchronise import Outside

        core = self.core
        streams = core.touching.get(self.layer.number, [])
        knowledge = list(self.knowledge)
        primed: dict[tuple[int, int], int] = {}
        for name, engine, stream, producer, distance in self.edges:
            if distance:
                event = self._tells(self.iteration, stream, producer)
                knowledge[engine] = joined(knowledge[engine], event)
                pair = core.context.issuer(stream), engine
                place = core.first_place(name)
                primed[pair] = min(place, primed.get(pair, place))
        last: dict[int, int] = {}
        for (_, engine), event in self.exits[-1].items():
            last[engine] = event[1]
        final = {
            stream: self.counts[stream] - (last.get(stream) == self.counts[stream])
            for stream in streams
            if self.counts[stream]
        }
        certain = self._first_certain()
        known = {
            engine: {
                stream: mine[stream] >= certain.get(stream, math.inf)
                for stream, count in final.items()
                if stream != engine and mine[stream] >= count
            }
            for engine, mine in enumerate(knowledge)
        }
        return Outside(streams, final.keys() & certain, known, primed)

    def _first_certain(self) -> dict[int, int]:
        """By stream, the position of the first event in the last iteration that each one has."""
        found: dict[int, int] = {}
        for event in reversed(self.completions[-1]):
            if event is not None:
                found[event[0]] = event[1]
                found[event[2]] = event[3]
        for events in (self.loops[-1], self.exits[-1]):
            for stream, position, *_ in events.values():
                if (stream, position) not in self.unsure:
                    found[stream] = min(position, found.get(stream, position))
        return found
