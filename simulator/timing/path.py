"""What every executed instruction and transfer waited for last: the graph that the critical path is
walked in (`simulator.timing.critical`).

A node is an execution of an instruction, or a transfer. It begins when its predecessor hands over,
may be held up from there until it starts (by a table load, a shared port, the dispatch of a
transfer), and holds its engine until it is free. It also decides what it hands over later than
that: results that drain, units of a semaphore.

Units of a semaphore carry the node that gave them. An engine that does nothing is on no path, and
cannot be the bound. What lies between the end of an instruction's work and the next one on the path
is fill and drain where both are of one engine, and semaphores where they are not. Of a transfer,
what all DMA engines together would need for its descriptors and bytes counts as such; what it takes
longer because some of them have less to do counts as balance. Passes that compare orders time
without it.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from isa.enums import Engine

Moment = tuple[float, int]
"""A time, and the node that decides it (-1: the start of the program)."""

START: Moment = (0.0, -1)


class Node(NamedTuple):
    """An execution of an instruction, or a transfer.

    `place` indexes `Path.places`, `number` the stream there; `transfer` tells transfers from the
    instructions that trigger them. `predecessor` hands over at `begin`. Nothing but that, a table
    load or the dispatch of a transfer comes before `settled`; from there until `start` other
    engines occupy a port. `idle` is since when the engine had nothing to do.
    """

    place: int
    number: int
    transfer: bool
    predecessor: int
    begin: float
    settled: float
    start: float
    free: float
    idle: float


WIDTH, FREE = len(Node._fields), Node._fields.index("free")


class Path:
    """The nodes of one run, all their fields one after the other."""

    def __init__(self, dma_engines: int) -> None:
        self.places: list[tuple[int, Engine]] = []
        self.fields = array("d")
        self.count = 0
        self.end = START
        self.dma_engines = dma_engines

    def stream(self, core: int, engine: Engine, instructions: int) -> StreamPath:
        """The part of one stream, which is to be recorded."""
        self.places.append((core, engine))
        return StreamPath(self, len(self.places) - 1, instructions)

    def core(self, queues: int, apart: bool) -> DmaPath:
        """The part of the transfers of one core; `apart` where each queue has its own engines."""
        return DmaPath(self, queues, apart)

    def add(self, node: tuple[float, ...]) -> int:
        """Enter the fields of a node; its number."""
        self.fields.extend(node)
        self.count += 1
        return self.count - 1

    def add_transfer(self, trigger: int, rest: tuple[float, ...]) -> int:
        """Enter a transfer, by its trigger and the fields behind `transfer`; its number."""
        first = trigger * WIDTH
        return self.add((self.fields[first], self.fields[first + 1], 1, *rest))

    def freed(self, number: int) -> float:
        """When a node leaves its engine free."""
        return self.fields[number * WIDTH + FREE]

    def node(self, number: int) -> Node:
        """A node by its number."""
        place, index, transfer, before, *times = self.fields[number * WIDTH : (number + 1) * WIDTH]
        return Node(int(place), int(index), bool(transfer), int(before), *times)

    def ends(self, moment: Moment) -> None:
        """The program does not end before `moment`."""
        if moment > self.end:
            self.end = moment


class StreamPath:
    """The nodes of one stream while it runs. Times are those of `simulator.timing.stream`: `now` of
    the sequencer, `free` of the data path, `last` of what is complete."""

    def __init__(self, path: Path, place: int, instructions: int) -> None:
        self.path = path
        self.place = place
        self.now = self.free = self.last = self.tile = self.swapped = START
        self.executed = [-1] * instructions

    def compute(
        self,
        index: int,
        ready: Moment,
        results: Sequence[tuple[int, float]],
        loaded: float,
        settled: float,
        span: tuple[float, float, float],
        on_tile: bool = False,
    ) -> int:
        """An instruction that occupies the data path for `span`: start, free, done.

        `ready`: when its semaphores were there. `results`: (index, time) of what it needs of its
        own engine. `loaded`: when its activation table is there, 0 without one.
        """
        start, free, done = span
        idle = self.now if self.now[0] > self.free[0] else self.free
        cause = self.free
        if ready[0] > cause[0]:
            cause = ready
        if self.now[0] > cause[0]:
            cause = self.now
        if on_tile and self.tile[0] > cause[0]:
            cause = self.tile
        for needed, at in results:
            if at > cause[0]:
                cause = at, self.executed[needed]
        if loaded > cause[0]:
            cause = idle
        at, before = cause
        node = self.path.add((self.place, index, 0, before, at, settled, start, free, idle[0]))
        if on_tile and self.swapped[1] < 0:
            self.swapped = start, node
        self.now, self.free = (start, node), (free, node)
        self.executed[index] = node
        if done > self.last[0]:
            self.last = done, node
        return node

    def load_tile(self, index: int, ready: Moment, start: float, free: float, done: float) -> int:
        """A tile load of the tensor engine, beside the multiplication before."""
        idle = _later(self.now, self.free)
        cause = _later(_later(_later(self.tile, self.swapped), ready), self.now)
        at, before = cause
        node = self.path.add((self.place, index, 0, before, at, start, start, free, idle[0]))
        self.now, self.tile, self.swapped = (start, node), (free, node), START
        if done > self.last[0]:
            self.last = done, node
        return node

    def sequence(
        self, index: int, ready: Moment, held: Moment, free: float, on_data_path: bool = False
    ) -> int:
        """A control instruction or DMA trigger, which waits for its semaphores and for `held`."""
        idle = _later(self.now, self.free) if on_data_path else self.now
        cause = _later(_later(idle, ready), held)
        at, before = cause
        node = self.path.add((self.place, index, 0, before, at, at, at, free, idle[0]))
        self.now = free, node
        if on_data_path:
            self.free = self.now
        return node

    def result(self, index: int, at: float) -> Moment:
        """When an earlier instruction of the engine has its result."""
        return at, self.executed[index]

    def complete(self) -> Moment:
        """Everything issued so far is complete."""
        return _later(self.last, self.now)

    def finish(self) -> None:
        """The stream is at its end."""
        for moment in (self.now, self.free, self.last):
            self.path.ends(moment)


class DmaPath:
    """The transfers of one core: which one each DMA engine did last, and each queue."""

    def __init__(self, path: Path, queues: int, apart: bool) -> None:
        self.path = path
        shared = [START] * path.dma_engines
        self.engines = [[*shared] if apart else shared for _ in range(queues)]
        self.queues = [START] * queues

    def transfer(
        self,
        trigger: int,
        ready: float,
        work: tuple[tuple[int, float], ...],
        even: bool,
        done: tuple[int, float, float],
    ) -> int:
        """A transfer that its queue could start at `ready`: `done` is its queue, when the last of
        the DMA engines is at its end, and when its completion is seen. `even`: all engines start
        and end it together. The node whose completion counts as its own."""
        queue, last, complete = done
        path, engines = self.path, self.engines[queue]
        if even:
            begin, before = engines[0]
        else:
            _, critical = max([(max(engines[e][0], ready) + ns, e) for e, ns in work])
            begin, before = engines[critical]
        start = begin
        if begin <= ready:
            start, begin, before = ready, path.freed(trigger), trigger
        node = path.add_transfer(trigger, (before, begin, start, start, last, ready))
        if even:
            engines[:] = [(last, node)] * len(engines)
        else:
            for engine, ns in work:
                engines[engine] = max(engines[engine][0], ready) + ns, node
        if complete > self.queues[queue][0]:
            self.queues[queue] = complete, node
        path.ends(self.queues[queue])
        return self.queues[queue][1]


def _later(one: Moment, other: Moment) -> Moment:
    """The later moment; the first of two at the same time."""
    return other if other[0] > one[0] else one
