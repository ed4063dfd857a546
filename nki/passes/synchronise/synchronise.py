"""Inserts semaphore waits and updates: transitive reduction of dependences by vector clocks.

Streams are the five engines and the DMA queues; each completes in order. Which events a step must
follow is known (`nki.passes.analysis.dependences`), and so is the order of steps.

1. Loops are analysed from the innermost outwards. One walk through a level's items, in order, keeps
   a vector clock for each engine: how far it knows each other stream to have come
   (`nki.passes.synchronise.waits`). A step waits for an event only if its engine's clock does not
   cover it yet, and no other of its waits implies it.
2. A straight body is walked once, a loop body until two iterations have the same waits. To the
   level outside a loop is one item: what engines know when they leave it, and what they signal
   (`Outside`). Of equal loops one is walked.
3. Each wait gets a semaphore: one for each (loop depth, producer stream, consumer engine). It is a
   channel of tokens, first in, first out; an update adds tokens, a wait takes them away.
4. A wait for the iteration before finds no token in the first iteration. So the producer's engine
   adds one ahead of the loop (a *prime*), and the consumer takes the one left over after the loop.
   Counts are thus relative to the iteration, whatever the trip count.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers, Lists, elements, starts_of
from isa.columns.repetition import Repetition
from nki.passes.analysis.body import Body, Layer
from nki.passes.analysis.channels import CoreFacts
from nki.passes.analysis.dependences import Dependences
from nki.passes.synchronise.periods import with_left_out
from nki.passes.synchronise.waits import Edge, Walk

Amounts = list[tuple[int, int]]
"""Semaphores with their amounts."""


@dataclass(slots=True)
class LoopSignals:
    """What each engine does on the way into a loop and out of it: what it waits for and gives
    ahead (`primes`), what it takes and tells behind, and the queues that it drains there."""

    enter_waits: dict[int, Amounts] = field(default_factory=dict)
    primes: dict[int, Amounts] = field(default_factory=dict)
    exit_waits: dict[int, Amounts] = field(default_factory=dict)
    exit_updates: dict[int, Amounts] = field(default_factory=dict)
    drains: dict[int, list[int]] = field(default_factory=dict)


class Signals(NamedTuple):
    """Who waits for whom, by places in the order (-1 for a loop), and with which semaphore; and
    those of `loops`, by layer.

    From the second period of `repetitions` on, places wait and tell as in the first; such signals
    need not be here.
    """

    waiting: Integers
    telling: Integers
    semaphore: Integers
    repetitions: list[Repetition]
    loops: dict[int, LoopSignals]


class Outside(NamedTuple):
    """What a loop looks like from outside.

    `known` says which streams each engine knows to have finished the loop when it leaves, because
    of an event that each iteration has. What such a stream did ahead of the loop is over too. If
    the loop may not have run, what an engine knows says nothing. `certain` are the streams with
    such an event, `streams` those that touch something. `primed` maps (producer engine, consumer
    engine) to the moment at which the consumer first takes a token that the producer has given
    ahead.
    """

    streams: list[int]
    certain: set[int]
    known: dict[int, dict[int, bool]]
    primed: dict[tuple[int, int], int]


def synchronise(
    body: Body,
    order: Integers,
    dependences: Dependences,
    context: CoreFacts,
    repeated: Sequence[Repetition] = (),
) -> Signals:
    """The waits of steps that engines take in the order of `order`, their numbers. In `repeated`
    places the order repeats (`nki.passes.analysis.rerolled`)."""
    return CoreWaits(body, order, dependences, context).run(repeated)


class CoreWaits:
    """Facts for all levels of one core, and what has been found in them.

    `follows[starts[p] : starts[p + 1]]` must be over before the step at place p: events as in
    `Dependences`, but with places for the numbers of steps.
    """

    def __init__(
        self, body: Body, order: Integers, dependences: Dependences, context: CoreFacts
    ) -> None:
        self.body = body
        self.order = order
        self.context = context
        self.ready, self.space = dependences.ready, dependences.space
        self.steps = order.size
        self.reach = dependences.reach
        self.place = np.empty_like(order)
        self.place[order] = np.arange(order.size)
        starts, events = dependences.steps
        self.columns = Lists(
            starts_of(starts[order + 1] - starts[order]),
            self._at_places(events[elements(starts, order)[1]]),
        )
        self.starts, self.follows = (column.tolist() for column in self.columns)
        self.engine = body.engine[order].tolist()
        self.queue = body.queue[order].tolist()
        self.touching: dict[int, list[int]] = {}
        self.needs: dict[int, list[tuple[int, int, int, int]]] = {}
        self._enter_loops(dependences)
        self.runs = dependences.touched.runs.tolist()
        self.iterates = dependences.touched.iterates.tolist()
        self.loops: dict[int, LoopSignals] = {}
        self.outside: dict[int, Outside] = {}
        self._alike: dict[Any, tuple[int, list[Edge], Outside]] = {}
        self.transferred: dict[int, tuple[int, int]] = {}
        self.signals: list[tuple[int, int, int, int]] = []

    def _enter_loops(self, dependences: Dependences) -> None:
        """Note which streams touch something in each loop, and what its touches need: (row, stream,
        place at which a step, or a loop, first does it inside, event)."""
        loops = dependences.touched.loops
        for layer, stream in sorted(set(zip((~loops.item).tolist(), loops.stream.tolist()))):
            self.touching.setdefault(layer, []).append(stream)
        row, item = dependences.touched.inside
        firsts = np.array([layer.first for layer in self.body.layers], np.int64)
        place = np.where(item < 0, firsts[np.maximum(~item, 0)], self.place[np.maximum(item, 0)])
        first = np.full(loops.item.size, self.steps)
        np.minimum.at(first, row, place)
        for layer, needs in dependences.loops.items():
            rows, events = np.array(needs, np.int64).T
            columns = rows, loops.stream[rows], first[rows], self._at_places(events)
            self.needs[layer] = list(zip(*[column.tolist() for column in columns]))

    def first_place(self, name: int) -> int:
        """The place of a step, or where a loop begins, by its name."""
        return name if name < self.steps else self.body.layers[name - self.steps].first

    def _at_places(self, events: Integers) -> Integers:
        """Events with the places of steps instead of their numbers."""
        distance, event = np.divmod(events, max(self.space, 1))
        issued, step = np.divmod(event, max(self.steps, 1))
        of_step = issued < 2
        place = issued * self.steps + self.place[np.where(of_step, step, 0)]
        found: Integers = np.where(of_step, place, event) + distance * self.space
        return found

    def run(self, repeated: Sequence[Repetition]) -> Signals:
        """Go through all levels, innermost ones first."""
        body = self.body.layers[0]
        self._inside(body)
        walk = Walk(self, body)
        walk.run(repeated)
        signals, repetitions = with_left_out(walk, walk.apply())
        signals = np.concatenate([np.array(self.signals, np.int64).reshape(-1, 4), signals])
        waiting, telling, semaphore, _ = signals.T
        return Signals(waiting, telling, semaphore, repetitions, self.loops)

    def _inside(self, layer: Layer) -> set[int]:
        """Analyse the loops that stand in a level. Returns the semaphores whose primes are given
        inside, and that transfers tell others by."""
        primed: set[int] = set()
        for number in layer.inner:
            inner = self.body.layers[number]
            mine = self._inside(inner)
            if self.iterates[number]:
                self.settle(mine)
            self.loops[number] = LoopSignals()
            walk, self.outside[number] = self._walked(inner)
            self.signals += walk.apply()
            mine |= walk.connect()
            primed |= mine
        return primed

    def _walked(self, layer: Layer) -> tuple[Walk, Outside]:
        """A walk through a loop. One without loops inside that is like an earlier one has its
        edges, at other places."""
        walk = Walk(self, layer)
        key = None if layer.inner else self._form(layer)
        known = self._alike.get(key)
        if known is not None:
            base, edges, outside = known
            move = layer.first - base
            walk.edges = [(n + move, e, s, p + move, d) for n, e, s, p, d in edges]
            primed = {pair: place + move for pair, place in outside.primed.items()}
            return walk, outside._replace(primed=primed)
        walk.run()
        outside = walk.outside()
        if key is not None:
            self._alike[key] = layer.first, walk.edges, outside
        return walk, outside

    def _form(self, layer: Layer) -> Any:
        """Equal for loops without loops inside whose walks are alike."""
        first, end = layer.first, layer.end
        starts, events = self.columns
        events = events[starts[first] : starts[end]]
        distance, event = np.divmod(events, self.space)
        issued, place = np.divmod(event, max(self.steps, 1))
        columns = distance, issued, place - first, starts[first : end + 1] - starts[first]
        return (
            *(column.tobytes() for column in columns),
            tuple(self.engine[first:end]),
            tuple(self.queue[first:end]),
            tuple(self.touching.get(layer.number, ())),
            self.iterates[layer.number],
        )

    def settle(self, semaphores: Iterable[int]) -> None:
        """Have the last loop whose transfers give tokens of each semaphore drain its queue.

        The engine gives a prime at once. Tokens of transfers that it has issued before may still be
        on their way. Then the consumer could take the prime for one of them.
        """
        for semaphore in semaphores:
            if semaphore in self.transferred:
                self.drain(*self.transferred[semaphore])

    def drain(self, layer: int, queue: int) -> None:
        """A loop ends when the transfers of a queue are complete."""
        drains = self.loops[layer].drains.setdefault(self.context.owner[queue], [])
        if queue not in drains:
            drains.append(queue)
