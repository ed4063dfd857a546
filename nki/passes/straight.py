"""Semaphores for a body without control flow: every step waits for what it follows.

The scheduler has found what each step must follow, and its order keeps to that, so one walk with
vector clocks is enough: what an engine knows already, or what another wait implies, is not waited
for. What remains is the transitive reduction, the same that `nki.passes.synchronise` finds.

Where the order repeats, the walk goes on only until what is known repeats with it: the waits of all
further periods are those of the last one.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers, elements, starts_of
from isa.repetition import Repetition, longest_run
from nki.passes.channels import Context
from nki.passes.dependences import Dependences
from nki.passes.steps import ENGINES, Step
from nki.passes.stretch import Stretch

_TRIES = 6
"""How often it is tried whether what is known comes again, before all is walked through."""

Event = tuple[int, int, int, int, Sequence[int], int]
"""The `position`-th event of a stream, which an engine issued as its `issued`-th step when it knew
of the events up to `known[s]` of every other stream s: (stream, position, engine, issued, known,
place of the step in the order). Lists of what is known are shared, and never changed."""


class Signals(NamedTuple):
    """Who waits for whom, by places in the order, and with which semaphore.

    From the second period of `repetitions` on, places wait and tell as in the first; such signals
    need not be here.
    """

    waiting: Integers
    telling: Integers
    semaphore: Integers
    repetitions: list[Repetition]

    def enter(self, steps: Sequence[Step]) -> None:
        """Write them into the steps, which are in order, where nothing is left out."""
        for waiting, telling, semaphore in zip(*[column.tolist() for column in self[:3]]):
            steps[waiting].waits += ((semaphore, 1),)
            steps[telling].updates += ((semaphore, 1),)


def synchronise(
    order: Integers,
    stretch: Stretch,
    dependences: Dependences,
    context: Context,
    repeated: Sequence[Repetition] = (),
) -> Signals:
    """The waits of steps that engines take in the order of `order`, their numbers. In `repeated`
    places the order repeats (`nki.passes.rerolled`)."""
    walk = _Walk(order, stretch, dependences, context)
    for found in repeated:
        walk.leave_out(found)
    walk.to(order.size)
    return walk.signals()


class _Walk:
    """A walk through the steps in order, and what it has found up to the place `at`.

    By engine, `knowledge` is what it knows; by stream, `counts` its events; by place,
    `completions` the event that the step's end is, None where it was left out.
    """

    def __init__(
        self, order: Integers, stretch: Stretch, dependences: Dependences, context: Context
    ) -> None:
        self._semaphore = context.channels.semaphore
        self._order = order
        self._stretch = stretch
        self._dependences = dependences
        self._place = np.empty_like(order)
        self._place[order] = np.arange(order.size)
        self.at = 0
        self.counts = [0] * context.streams
        self.knowledge: list[Sequence[int]] = [tuple(self.counts)] * ENGINES
        self.completions: list[Any] = []
        self._left_out: list[_LeftOut] = []
        self._signals: list[tuple[int, int, int]] = []

    def _follows(self, start: int, end: int) -> tuple[Integers, Integers]:
        """Between two places, what the steps follow: places p, or ~p for their issue, those of the
        n-th step from the n-th start on."""
        steps = self._order[start:end]
        starts = self._dependences.starts
        events = self._dependences.events[elements(starts, steps)[1]]
        where = self._place[np.where(events < 0, ~events, events)]
        return starts_of(starts[steps + 1] - starts[steps]), np.where(events < 0, ~where, where)

    def to(self, end: int) -> None:
        """Walk on to a place."""
        counts, knowledge, completions = self.counts, self.knowledge, self.completions
        signals, semaphore = self._signals, self._semaphore
        steps = self._order[self.at : end]
        starts, follows = (column.tolist() for column in self._follows(self.at, end))
        issuers = self._stretch.engine[steps].tolist(), self._stretch.queue[steps].tolist()
        for place, engine, queue, (first, last) in zip(
            range(self.at, end), *issuers, pairwise(starts)
        ):
            known = knowledge[engine]
            wanted: dict[int, Event] = {}
            for name in follows[first:last]:
                event = completions[name if name >= 0 else ~name]
                if event is None:
                    event = self._restored(name if name >= 0 else ~name)
                if name < 0:
                    event = _issue(event)
                stream, position = event[0], event[1]
                if known[stream] >= position or stream == engine:
                    continue
                other = wanted.get(stream)
                if other is None or other[1] < position:
                    wanted[stream] = event
            if wanted:
                events = list(wanted.values())
                if len(events) > 1:
                    events = [event for event in events if not _implied(event, events)]
                for event in events:
                    # Nothing but its completion tells others of a transfer, nor that it was issued.
                    event = completions[event[5]]
                    signals.append((place, event[5], semaphore(0, event[0], engine)))
                    known = _joined(known, event)
                knowledge[engine] = known
            counts[engine] = issued = counts[engine] + 1
            if queue < 0:
                completions.append((engine, issued, engine, issued, known, place))
            else:
                counts[queue] = position = counts[queue] + 1
                completions.append((queue, position, engine, issued, known, place))
        self.at = end

    def leave_out(self, found: Repetition) -> None:
        """Walk into a repetition until the state comes again, and leave out the periods behind. In
        the first period engines learn of what all periods follow, so that is no one to compare."""
        start, period, _ = found
        starts, now = self._follows(start + period, start + 2 * period)
        _, then = self._follows(start, start + period)
        place = np.repeat(np.arange(start + period, start + 2 * period), np.diff(starts))
        reach = int((place - np.where(now < 0, ~now, now))[now != then].max(initial=period))
        self.to(start + period)
        for _ in range(_TRIES):
            if self.at + 2 * period > found.end:
                return
            before, knowledge, signals = self.counts[:], self.knowledge[:], len(self._signals)
            self.to(self.at + period)
            grown = [count - earlier for count, earlier in zip(self.counts, before)]
            if self._recurs(period, reach, knowledge, before, grown):
                break
            self.to(min(self.at + reach // period * period, found.end))
        else:
            return
        periods = (found.end - self.at) // period
        self._left_out.append(
            _LeftOut(self.at, period, periods, reach, grown, signals, len(self._signals))
        )
        self.at += period * periods
        self.completions += [None] * (period * periods)
        self.counts[:] = [now + periods * more for now, more in zip(self.counts, grown)]
        self.knowledge[:] = [
            _moved(now, then, grown, periods) for now, then in zip(self.knowledge, knowledge)
        ]

    def _recurs(
        self,
        period: int,
        reach: int,
        knowledge: list[Sequence[int]],
        counts: list[int],
        grown: list[int],
    ) -> bool:
        """Whether all that later steps look at is what it was a period before, when engines had
        `knowledge` and streams `counts`, but for what grew by one period.

        What is known of a stream grows by what the stream has grown (`grown`), or not at all, if
        it is from before. A walk compares what is known of a stream, and positions in it: two that
        grow compare alike in every period, and so do two that stay. Where one that stays is less
        than all that grow, it always is, as these become more. (And what has grown by chance, to
        what another has that stays, was less than that one.) So the next period finds the same,
        and leaves behind a state that differs in the same way. (An event that steps of all periods
        follow is known to their engine from the first.)
        """
        now = self.completions[self.at - reach : self.at]
        then = self.completions[self.at - period - reach : self.at - period]
        if None in then:
            return False
        growth = np.array(grown, np.int64)
        (stream, position, engine, issued), (its, first, source, earlier) = (
            np.array([event[:4] for event in events], np.int64).T for events in (now, then)
        )
        same = (stream == its) & (engine == source)
        same &= (position - first == growth[stream]) & (issued - earlier == growth[engine])
        if not same.all():
            return False
        known = np.array([*self.knowledge, *[event[4] for event in now]], np.int64)
        old = np.array([*knowledge, *[event[4] for event in then]], np.int64)
        grows = known - old == growth
        least = np.where(grows, old, np.array(counts) + 1).min(axis=0)
        np.minimum.at(least, stream, first)
        np.minimum.at(least, engine, earlier)
        return bool((grows | ((known == old) & (old < least))).all())

    def _restored(self, place: int) -> Event:
        """The event of a step that was left out."""
        parts = self._left_out
        part = parts[bisect(parts, place, key=attrgetter("at")) - 1]
        periods, within = divmod(place - part.at, part.period)
        like = part.at - part.period + within
        now, then = self.completions[like], self.completions[like - part.period]
        stream, position, engine, issued, known, _ = now
        event = self.completions[place] = (
            stream,
            position + (periods + 1) * part.grown[stream],
            engine,
            issued + (periods + 1) * part.grown[engine],
            _moved(known, then[4], part.grown, periods + 1),
            place,
        )
        return event

    def signals(self) -> Signals:
        """All that has been found."""
        found = np.array(self._signals, np.int64).reshape(-1, 3)
        pieces, repetitions = [found], []
        for part in reversed(self._left_out):
            own = found[part.signals : part.until]
            # Later steps look back as far as those of the repetition, some behind it further.
            back = -(-part.reach // part.period)
            waiting, telling, _ = np.concatenate(pieces).T
            told = telling[waiting >= part.at + part.period * part.times]
            period = (told - part.at) // part.period + 1
            told_from_behind = np.zeros(max(part.times + 1 - back, 0), np.bool_)
            told_from_behind[period[(period >= 0) & (period < told_from_behind.size)]] = True
            first, times = longest_run(~told_from_behind)
            number = np.arange(1, part.times + 1)
            if times > 2 * back + 4:
                number = number[(number <= first + back + 2) | (number >= first + times - back - 2)]
                start = part.at + (first - 1) * part.period
                repetitions.append(Repetition(start, part.period, times))
            moves = part.period * number[:, None, None] * np.array([1, 1, 0])
            pieces.append((own + moves).reshape(-1, 3))
        waiting, telling, semaphore = np.concatenate(pieces).T
        return Signals(waiting, telling, semaphore, repetitions[::-1])


class _LeftOut(NamedTuple):
    """`times` periods from the place `at` on that were left out, in which steps follow others at
    distances up to `reach`: what streams grow in each, and which signals are those of the period
    before."""

    at: int
    period: int
    times: int
    reach: int
    grown: list[int]
    signals: int
    until: int


def _moved(
    known: Sequence[int], before: Sequence[int], grown: Sequence[int], times: int
) -> list[int]:
    """What is known some periods later; `before` is what was known a period earlier."""
    return [
        now + times * more if now - then == more else now
        for now, then, more in zip(known, before, grown)
    ]


def _issue(transfer: Event) -> Event:
    """The moment at which an engine issues a transfer, as an event of the engine."""
    _, _, engine, issued, known, place = transfer
    return engine, issued, engine, issued, known, place


def _implied(event: Event, events: list[Event]) -> bool:
    """Whether another event comes only after this one."""
    stream, position = event[0], event[1]
    for other in events:
        if other is not event and (
            other[4][stream] >= position or (other[2] == stream and other[3] >= position)
        ):
            return True
    return False


def _joined(known: Sequence[int], event: Event) -> Sequence[int]:
    """What an engine knows once it has waited for an event."""
    stream, position, engine, issued, theirs, _ = event
    joined = list(map(max, known, theirs))
    if joined[engine] < issued:
        joined[engine] = issued
    joined[stream] = position
    return joined
