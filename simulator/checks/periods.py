"""Periods of the walk over signals, which it can skip.

Between two turns the walk (`simulator.checks.clocks.Clocks`) stands at some signal of each engine;
there are units that nobody has taken, engines that wait or are ready, and what engines and events
know. Knowledge is a number of events of each stream. Let two moments differ in nothing but that,
from one to the other, engines have passed signals, and that some of the numbers have grown, each
by what its stream has counted: it moves. The others stay. And let behind the second moment the
signals of between them come again `times` times, and after them those with which they begin.

Then the walk does the same again `times` times, with the moving numbers moved further, provided
that of each stream that counts all numbers that move are above all that stay. Proof: the walk only
compares numbers of one stream, takes their maximum, or copies them. Two that move, or two that
stay, compare as they did a period before. One that moves and one that stays also do: the first was
above the second and has grown. So the maximum is that of the same two, and moves if one of them
does. New numbers come from the counting itself: they move, and are above all older ones. At the end
of the period those numbers have moved which are above the greatest that stays, as at its begin.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from isa.columns import Integers

if TYPE_CHECKING:
    from simulator.checks.clocks import Channel, Clocks, Event, Signals

_TRIES = 16
"""Moments that are compared with one before, before another one is kept."""

_DEEP = 1000
"""Events that nobody has heard of yet, from which on a moment is not kept: an engine runs ahead,
which does not come again, and looking at so many takes its time."""

LEAST = 500
"""Fewest signals that are worth skipping."""

PART = 4
"""Nor are fewer than one for so many signals that have been passed: so inner loops are left alone,
and little time goes into skipping."""


class Period(NamedTuple):
    """What comes `times` times again: each time every engine passes so many signals, so many units
    of each channel are produced, and so much is `counted` of each stream. Numbers of events grow by
    that, but those up to `settled` of their stream, which stay."""

    passed: list[int]
    produced: list[int]
    counted: Integers
    settled: Integers
    times: int


class Moment:
    """How a walk stands between two turns: who is `ready`, the units that are `left`, and the
    `form` of the channels, all of which have to come again; and `numbers` of events of `streams`,
    which may have moved."""

    def __init__(self, clocks: Clocks) -> None:
        self.next = clocks.next[:]
        self.began = len(clocks.began.engine)
        self.learned = len(clocks.learned.engine)
        self.produced = [channel.produced for channel in clocks.channels]
        self.ready = clocks.ready.copy()
        self.left = _left(clocks.channels)
        self.numbers: list[int] = []
        self.streams: list[int] = []
        for known in clocks.known:
            self._add(range(len(known)), known)
        self.form = [self._form(channel) for channel in clocks.channels]

    def _form(self, channel: Channel) -> tuple[Any, ...]:
        """What of a channel has to come again; its numbers are entered."""
        events = []
        for total, stream, epoch, engine, number, known in _untaken(channel):
            events.append((total - channel.taken, stream, engine))
            self._add((stream, engine), (epoch, number))
            self._add(range(len(known)), known)
        last = -1
        if channel.last is not None:
            last = channel.last[1]
            self._add((last,), channel.last[2:3])
        return channel.consumer, channel.waiting[:], events, last

    def _add(self, streams: Sequence[int], numbers: Sequence[int]) -> None:
        self.streams += streams
        self.numbers += numbers


def _left(channels: Sequence[Channel]) -> list[int]:
    """The units of channels that nobody has taken."""
    return [channel.produced - channel.taken for channel in channels]


def _untaken(channel: Channel) -> list[Event]:
    """The events of a channel that somebody may still come to know through it."""
    return [event for event in channel.events if event[0] > channel.taken]


class Watch:
    """Looks for periods from turn to turn, and skips them.

    Each moment is compared with a kept one, the last whose turn was a power of two since the
    watch began.
    """

    def __init__(self, clocks: Clocks, least: int) -> None:
        self._clocks = clocks
        self._least = least
        self._begin()

    def _begin(self) -> None:
        self._turns = 0
        self._due = 1
        self._tries = 0
        self._kept: Moment | None = None

    def look(self) -> None:
        """Look at the walk before its next turn."""
        self._turns += 1
        kept = self._kept
        if kept is not None and self._tries < _TRIES and self._resembles(kept):
            self._tries += 1
            now = Moment(self._clocks)
            period = _period(self._clocks.signals, kept, now)
            if period is not None and self._pays(period):
                self._skip(kept, period)
                self._begin()
        if self._turns == self._due:
            self._due *= 2
            self._tries = 0
            deep = sum(len(channel.events) for channel in self._clocks.channels) > _DEEP
            self._kept = None if deep else Moment(self._clocks)

    def _resembles(self, kept: Moment) -> bool:
        clocks = self._clocks
        return clocks.ready == kept.ready and _left(clocks.channels) == kept.left

    def _pays(self, period: Period) -> bool:
        skipped = period.times * sum(period.passed)
        return skipped >= max(self._least, sum(self._clocks.next) // PART)

    def _skip(self, since: Moment, period: Period) -> None:
        """Leave the walk where it comes after a period that began at a moment and comes again."""
        clocks, times = self._clocks, period.times
        clocks.began.repeat(since.began, period)
        clocks.learned.repeat(since.learned, period)
        moves = (times * period.counted).tolist()
        settled = period.settled.tolist()

        def moved(stream: int, number: int) -> int:
            return number + moves[stream] if number > settled[stream] else number

        def further(known: Sequence[int]) -> list[int]:
            return list(map(moved, every, known))

        def later(event: Event, units: int) -> Event:
            total, stream, epoch, engine, number, known = event
            epoch, number = moved(stream, epoch), moved(engine, number)
            return total + units, stream, epoch, engine, number, further(known)

        every = range(len(moves))
        clocks.next = [a + times * passed for a, passed in zip(clocks.next, period.passed)]
        clocks.known = list(map(further, clocks.known))
        for channel, produced in zip(clocks.channels, period.produced):
            units = times * produced
            channel.events = deque(later(event, units) for event in _untaken(channel))
            channel.produced += units
            channel.taken += units
            if channel.last is not None:
                channel.last = later(channel.last, units)


def _period(signals: Sequence[Signals], before: Moment, now: Moment) -> Period | None:
    """The period from one moment to another, if it comes again."""
    spans = list(zip(signals, before.next, now.next))
    passed = [here - there for _, there, here in spans]
    again = all(not p or here + p < len(s) for (s, _, here), p in zip(spans, passed))
    if not again or before.form != now.form:
        return None
    counted = _counted(spans, 1 + max(now.streams))
    settled = _settled(before, now, counted)
    if settled is None:
        return None
    times = min([_times(*span, counted, engine) for engine, span in enumerate(spans)])
    produced = [there - here for there, here in zip(now.produced, before.produced)]
    return Period(passed, produced, counted, settled, times)


Span = tuple["Signals", int, int]
"""The signals of an engine, and those of them at which it stood at two moments."""


def _counted(spans: Sequence[Span], streams: int) -> Integers:
    """What is counted of each stream in the period behind that of spans."""
    counted = np.zeros(streams, np.int64)
    for engine, (signals, there, here) in enumerate(spans):
        if here > there:
            again = here + here - there
            epochs = signals.epoch[here:again] - signals.epoch[there:here]
            counted[signals.stream[there:here]] = epochs
            counted[engine] = signals.number[here] - signals.number[there]
    return counted


def _settled(before: Moment, now: Moment, counted: Integers) -> Integers | None:
    """By stream the greatest number that stays, -1 without one; None unless the others are above
    it and have grown by what was counted."""
    old, new = np.array(before.numbers), np.array(now.numbers)
    stream = np.array(now.streams)
    settled = np.full(counted.size, -1)
    stays = old == new
    np.maximum.at(settled, stream[stays], old[stays])
    moved = counted[stream] * (old > settled[stream])
    return settled if (new - old == moved).all() else None


def _times(signals: Signals, there: int, here: int, counted: Integers, engine: int) -> int:
    """How often the signals from `there` to `here` come again behind, with all that is counted,
    and then the first of them."""
    period = here - there
    if not period:
        return sys.maxsize
    new, old = slice(here, None), slice(there, -period)
    stream = signals.stream[new]
    same = (signals.kind[new] == signals.kind[old]) & (stream == signals.stream[old])
    same &= signals.number[new] - signals.number[old] == counted[engine]
    same &= signals.epoch[new] - signals.epoch[old] == counted[stream]
    run = same.size if same.all() else int(np.argmin(same))
    return (run - 1) // period
