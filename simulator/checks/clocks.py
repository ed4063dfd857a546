"""What every engine knows, and from which instruction on, in a program without control flow.

Vector clocks follow one execution. Unrolled loops make it periodic: what comes again is skipped
(`simulator.checks.periods`), so that the time of the walk hardly grows with trip counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain

import numpy as np

from isa.columns import Integers
from simulator.checks.periods import LEAST, PART, Period, Watch

_CHUNK = 1024
"""Signals of an engine that become Python objects at a time."""

Event = tuple[int, int, int, int, int, Sequence[int]]
"""Units of a channel up to and with those of an event, its stream and epoch, the engine that
started it and as which of its instructions, and what that engine knew."""


class Channel:
    """A semaphore: what has been produced and taken, by whom, and who waits for more."""

    __slots__ = ("consumer", "events", "last", "produced", "taken", "waiting")

    def __init__(self) -> None:
        self.produced = 0
        self.taken = 0
        self.events: deque[Event] = deque()
        self.last: Event | None = None
        self.consumer = -1
        self.waiting: list[int] = []


Amounts = Sequence[tuple[Channel, int]]
"""Channels, with what is taken from or added to each."""

Signal = tuple[int, tuple[Amounts, Amounts], int, int]
"""An instruction that waits or tells others: its number, what it takes and adds, the stream and
epoch of its end."""


class Signals:
    """The signals of an engine in columns; `kind` says which of `kinds` each takes and adds."""

    __slots__ = ("_begin", "_chunk", "epoch", "kind", "kinds", "number", "stream")

    def __init__(
        self,
        number: Integers,
        kind: Integers,
        stream: Integers,
        epoch: Integers,
        kinds: Sequence[tuple[Amounts, Amounts]],
    ) -> None:
        self.number = number
        self.kind = kind
        self.stream = stream
        self.epoch = epoch
        self.kinds = kinds
        self._begin = 0
        self._chunk: list[Signal] = []

    def __len__(self) -> int:
        return self.number.size

    def around(self, index: int) -> tuple[int, list[Signal]]:
        """Some signals, that at `index` among them, and the index of their first."""
        if not self._begin <= index < self._begin + len(self._chunk):
            part = slice(index, index + _CHUNK)
            number, kind, stream, epoch = (
                column[part].tolist()
                for column in (self.number, self.kind, self.stream, self.epoch)
            )
            self._begin = index
            self._chunk = list(zip(number, map(self.kinds.__getitem__, kind), stream, epoch))
        return self._begin, self._chunk


class Notes:
    """What is noted on the way: engines, numbers of their instructions, and what they know; before
    the first of each engine, nothing of `width` streams."""

    def __init__(self, engines: int, width: int) -> None:
        self.engine = list(range(engines))
        self.number = [0] * engines
        self.known: list[Sequence[int]] = [[0] * width] * engines
        self._width = width
        self._before: list[tuple[Integers, Integers, Integers]] = []

    def columns(self) -> tuple[Integers, Integers, Integers]:
        """All engines, numbers, and a row of knowledge for each."""
        self._close()
        engine, number, known = zip(*self._before)
        return np.concatenate(engine), np.concatenate(number), np.concatenate(known)

    def repeat(self, begin: int, period: Period) -> None:
        """Note again, for each time of a period, what has been noted from place `begin` on."""
        self._close()
        engine, number, known = (column[begin:] for column in self._before[-1])
        times = np.arange(1, period.times + 1)[:, None]
        numbers = number + times * period.counted[engine]
        width = slice(self._width)
        moves = period.counted[width] * (known > period.settled[width])
        rows = known + times[:, :, None] * moves
        shape = numbers.size, self._width
        again = np.tile(engine, period.times), numbers.ravel(), rows.reshape(shape)
        self._before.append(again)

    def _close(self) -> None:
        shape = len(self.engine), self._width
        known = np.fromiter(chain.from_iterable(self.known), np.int64).reshape(shape)
        self._before.append((np.array(self.engine), np.array(self.number), known))
        self.engine, self.number, self.known = [], [], []


class Clocks:
    """The walk over the signals of all engines: by turns, each runs until it has to wait.

    `began` are the instructions with which turns were taken, one after the other; `learned` those
    with which engines came to know more: how many events of each stream.
    """

    def __init__(
        self, signals: Sequence[Signals], channels: Sequence[Channel], streams: int
    ) -> None:
        engines = len(signals)
        self.signals = signals
        self.channels = channels
        self.next = [0] * engines
        self.known: list[Sequence[int]] = [[0] * streams] * engines
        self.ready = deque(range(engines))
        self.began = Notes(engines, 0)
        self.learned = Notes(engines, streams)

    def follow(self, least: int = LEAST) -> bool:
        """Whether all streams come to their end, with one producer at a time and one consumer of
        each semaphore. At least so many signals are skipped, if any."""
        lengths = list(map(len, self.signals))
        watch = Watch(self, least) if sum(lengths) // PART >= least else None
        if not all(self._run(self.ready.popleft()) for _ in lengths):
            return False
        while self.ready:
            if watch is not None:
                watch.look()
            engine = self.ready.popleft()
            self.began.engine.append(engine)
            self.began.number.append(int(self.signals[engine].number[self.next[engine]]))
            if not self._run(engine):
                return False
        return self.next == lengths

    def _run(self, engine: int) -> bool:
        """Run an engine until it has to wait; False for semaphores that are not used in one
        order."""
        signals, known, learned = self.signals[engine], self.known[engine], self.learned
        index, end = self.next[engine], len(self.signals[engine])
        while index < end:
            begin, chunk = signals.around(index)
            for place in range(index - begin, len(chunk)):
                number, (waits, updates), stream, epoch = chunk[place]
                if waits:
                    for channel, amount in waits:
                        if channel.produced - channel.taken < amount:
                            channel.waiting.append(engine)
                            self.next[engine] = begin + place
                            return True
                        if channel.consumer not in (-1, engine):
                            return False
                    before = known
                    for channel, amount in waits:
                        channel.consumer = engine
                        channel.taken += amount
                        while channel.events[0][0] < channel.taken:
                            channel.events.popleft()
                        known = _joined(engine, known, channel.events[0])
                    if known is not before:
                        self.known[engine] = known
                        learned.engine.append(engine)
                        learned.number.append(number)
                        learned.known.append(known)
                for channel, amount in updates:
                    last = channel.last
                    if last is not None and last[1] != stream and last[1] != engine:
                        if known[last[1]] < last[2]:
                            return False
                    channel.produced += amount
                    channel.last = channel.produced, stream, epoch, engine, number, known
                    channel.events.append(channel.last)
                    if channel.waiting:
                        self.ready.extend(channel.waiting)
                        channel.waiting.clear()
            index = begin + len(chunk)
        self.next[engine] = end
        return True


def _joined(engine: int, known: Sequence[int], event: Event) -> Sequence[int]:
    """What an engine knows once an event has happened."""
    _, stream, epoch, source, issued, theirs = event
    if stream == engine or known[stream] >= epoch:
        return known
    joined = list(map(max, known, theirs))
    joined[source] = max(joined[source], issued)
    joined[stream] = epoch
    return joined
