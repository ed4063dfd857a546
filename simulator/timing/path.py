"""What every executed instruction and transfer waited for last: the graph that the critical path is
walked in (`simulator.timing.critical`).

A node is an execution of an instruction, or a transfer. It begins when its predecessor hands over,
may be held up from there until it starts (by a table load, a shared port, the dispatch of a
transfer), and holds its engine until it is free. It also decides what it hands over later than
that: results that drain, units of a semaphore.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from isa.enums import Engine


class Moment(NamedTuple):
    """A time, and the node that decides it (-1: the start of the program)."""

    at: float
    node: int


START = Moment(0.0, -1)


class Path:
    """The nodes of one run, in columns.

    `place` indexes `places`; `transfer` tells the transfers from the instructions that trigger
    them. `predecessor` hands over at `begin`. Nothing but the predecessor's hand-over, a table load
    or the dispatch of a transfer comes before `settled`; from there until `start` other engines
    occupy a port. `idle` is since when the engine had nothing to do.
    """

    def __init__(self, dma_engines: int) -> None:
        self.places: list[tuple[int, Engine]] = []
        self.place = array("l")
        self.index = array("l")
        self.transfer = array("b")
        self.predecessor = array("l")
        self.begin = array("d")
        self.settled = array("d")
        self.start = array("d")
        self.free = array("d")
        self.idle = array("d")
        self.end = START
        self.dma_engines = dma_engines

    def stream(self, core: int, engine: Engine, instructions: int) -> StreamPath:
        """The part of one stream, which is to be recorded."""
        self.places.append((core, engine))
        return StreamPath(self, len(self.places) - 1, instructions)

    def core(self, queues: int, apart: bool) -> DmaPath:
        """The part of the transfers of one core; `apart` where each queue has its own engines."""
        return DmaPath(self, queues, apart)

    def add(
        self,
        place: int,
        index: int,
        transfer: bool,
        predecessor: Moment,
        settled: float,
        start: float,
        free: float,
        idle: float,
    ) -> int:
        """Enter a node; its number."""
        self.place.append(place)
        self.index.append(index)
        self.transfer.append(transfer)
        self.predecessor.append(predecessor.node)
        self.begin.append(predecessor.at)
        self.settled.append(settled)
        self.start.append(start)
        self.free.append(free)
        self.idle.append(idle)
        return len(self.place) - 1

    def ends(self, moment: Moment) -> None:
        """The program does not end before `moment`."""
        if moment.at > self.end.at:
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
        idle = _later(self.now, self.free)
        cause = _later(_later(self.free, ready), self.now)
        if on_tile:
            cause = _later(cause, self.tile)
        for needed, at in results:
            cause = _later(cause, Moment(at, self.executed[needed]))
        if loaded > cause.at:
            cause = idle
        node = self.path.add(self.place, index, False, cause, settled, start, free, idle.at)
        if on_tile and self.swapped.node < 0:
            self.swapped = Moment(start, node)
        self.now, self.free = Moment(start, node), Moment(free, node)
        self.executed[index] = node
        self._done(done, node)
        return node

    def load_tile(self, index: int, ready: Moment, start: float, free: float, done: float) -> int:
        """A tile load of the tensor engine, beside the multiplication before."""
        idle = _later(self.now, self.free)
        cause = _later(_later(_later(self.tile, self.swapped), ready), self.now)
        node = self.path.add(self.place, index, False, cause, start, start, free, idle.at)
        self.now, self.tile, self.swapped = Moment(start, node), Moment(free, node), START
        self._done(done, node)
        return node

    def sequence(
        self, index: int, ready: Moment, held: Moment, free: float, on_data_path: bool = False
    ) -> int:
        """A control instruction or DMA trigger, which waits for its semaphores and for `held`."""
        idle = _later(self.now, self.free) if on_data_path else self.now
        cause = _later(_later(idle, ready), held)
        node = self.path.add(self.place, index, False, cause, cause.at, cause.at, free, idle.at)
        self.now = Moment(free, node)
        if on_data_path:
            self.free = self.now
        return node

    def result(self, index: int, at: float) -> Moment:
        """When an earlier instruction of the engine has its result."""
        return Moment(at, self.executed[index])

    def complete(self) -> Moment:
        """Everything issued so far is complete."""
        return _later(self.last, self.now)

    def finish(self) -> None:
        """The stream is at its end."""
        for moment in (self.now, self.free, self.last):
            self.path.ends(moment)

    def _done(self, done: float, node: int) -> None:
        if done > self.last.at:
            self.last = Moment(done, node)


class DmaPath:
    """The transfers of one core: which one each DMA engine did last, and each queue."""

    def __init__(self, path: Path, queues: int, apart: bool) -> None:
        self.path = path
        shared = [START] * path.dma_engines
        self.engines = [[*shared] if apart else shared for _ in range(queues)]
        self.queues = [START] * queues

    def transfer(
        self, trigger: int, ready: float, work: tuple[tuple[int, float], ...], done: Any
    ) -> int:
        """A transfer that its queue could start at `ready`: `done` is its queue and when its last
        byte is there, with its tail. The node whose completion counts as its own."""
        queue, last, complete = done
        path, engines = self.path, self.engines[queue]
        critical = max(work, key=lambda one: max(engines[one[0]].at, ready) + one[1])[0]
        before = engines[critical]
        issued = path.free[trigger]
        place, index = path.place[trigger], path.index[trigger]
        if before.at > ready:
            start, cause = before.at, before
        else:
            start, cause = ready, Moment(issued, trigger)
        node = path.add(place, index, True, cause, start, start, last, ready)
        for engine, ns in work:
            engines[engine] = Moment(max(engines[engine].at, ready) + ns, node)
        if complete > self.queues[queue].at:
            self.queues[queue] = Moment(complete, node)
        path.ends(self.queues[queue])
        return self.queues[queue].node


def _later(one: Moment, other: Moment) -> Moment:
    """The later moment; the first of two at the same time."""
    return other if other.at > one.at else one
