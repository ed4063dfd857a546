"""Skips repeating code in the walk that finds waits.

Where the order repeats (`nki.passes.analysis.rerolled`), the walk goes on only until its clocks
repeat, too. All further periods have the waits of the last one.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from isa.columns import Integers
from isa.columns.repetition import Repetition, longest_run
from nki.passes.synchronise.events import Event

if TYPE_CHECKING:
    from nki.passes.synchronise.waits import Walk

_TRIES = 6
"""How often it is tried whether what is known comes again, before all is walked through."""


class LeftOut(NamedTuple):
    """`times` periods from the place `at` on that were left out, in which steps follow others at
    distances up to `reach`: what streams grow in each, and which edges are those of the period
    before."""

    at: int
    period: int
    times: int
    reach: int
    grown: list[int]
    edges: int
    until: int


def leave_out(walk: Walk, found: Repetition) -> None:
    """Walk into a repetition until the state comes again, and leave out the periods behind. In the
    first period engines learn of what all periods follow, so that is no one to compare."""
    start, period, _ = found
    starts, now = _follows(walk, start + period, start + 2 * period)
    _, then = _follows(walk, start, start + period)
    steps = walk.core.steps
    place = np.repeat(np.arange(start + period, start + 2 * period), np.diff(starts))
    # What comes again is a step, of this iteration, or its issue.
    reach = int((place - now % steps)[now != then].max(initial=period))
    walk.to(start + period)
    for _ in range(_TRIES):
        if walk.at + 2 * period > found.end:
            return
        before, knowledge, edges = walk.counts[:], walk.knowledge[:], len(walk.edges)
        walk.to(walk.at + period)
        grown = [count - earlier for count, earlier in zip(walk.counts, before)]
        if _recurs(walk, period, reach, knowledge, before, grown):
            break
        walk.to(min(walk.at + reach // period * period, found.end))
    else:
        return
    periods = (found.end - walk.at) // period
    part = LeftOut(walk.at, period, periods, reach, grown, edges, len(walk.edges))
    walk.left_out.append(part)
    walk.at += period * periods
    walk.completions[-1] += [None] * (period * periods)
    walk.counts[:] = [now + periods * more for now, more in zip(walk.counts, grown)]
    walk.knowledge[:] = [
        _moved(now, then, grown, periods) for now, then in zip(walk.knowledge, knowledge)
    ]


def _follows(walk: Walk, start: int, end: int) -> tuple[Integers, Integers]:
    """Between two places, what the steps follow, those of the n-th step from the n-th start on."""
    starts, events = walk.core.columns
    return starts[start : end + 1] - starts[start], events[starts[start] : starts[end]]


def _recurs(
    walk: Walk,
    period: int,
    reach: int,
    knowledge: list[Sequence[int]],
    counts: list[int],
    grown: list[int],
) -> bool:
    """Whether all that later steps look at is what it was a period before, when engines had
    `knowledge` and streams `counts`, but for what grew by one period.

    What is known of a stream grows by what the stream has grown (`grown`), or not at all, if it is
    from before. A walk compares what is known of a stream, and positions in it: two that grow
    compare alike in every period, and so do two that stay. Where one that stays is less than all
    that grow, it always is, as these become more. What has grown by chance, to what another has
    that stays, was less than that one. The next period therefore finds the same, and leaves behind
    a state that differs in the same way. (An event that steps of all periods follow is known to
    their engine from the first.)
    """
    at = walk.at - walk.base
    completions = walk.completions[-1]
    if at < period + reach:
        return False
    now, then = completions[at - reach : at], completions[at - period - reach : at - period]
    mine = [event for event in now if event is not None]
    earlier = [event for event in then if event is not None]
    if len(mine) < reach or len(earlier) < reach:
        return False
    growth = np.array(grown, np.int64)
    (stream, position, engine, issued), (its, first, source, before) = (
        [np.array([event[at] for event in events], np.int64) for at in range(4)]
        for events in (mine, earlier)
    )
    same = (stream == its) & (engine == source)
    same &= (position - first == growth[stream]) & (issued - before == growth[engine])
    if not same.all():
        return False
    known, old = (
        np.fromiter(chain.from_iterable(rows), np.int64).reshape(-1, growth.size)
        for rows in (
            [*walk.knowledge, *[event[4] for event in mine]],
            [*knowledge, *[event[4] for event in earlier]],
        )
    )
    grows = known - old == growth
    least = np.where(grows, old, np.array(counts) + 1).min(axis=0)
    np.minimum.at(least, stream, first)
    np.minimum.at(least, engine, before)
    return bool((grows | ((known == old) & (old < least))).all())


def restored(walk: Walk, place: int) -> Event:
    """The event of a step that was left out."""
    parts, completions, base = walk.left_out, walk.completions[-1], walk.base
    part = parts[bisect(parts, place, key=attrgetter("at")) - 1]
    periods, within = divmod(place - part.at, part.period)
    like = part.at - part.period + within
    now, then = completions[like - base], completions[like - part.period - base]
    assert now is not None and then is not None
    stream, position, engine, issued, known, _ = now
    event = completions[place - base] = (
        stream,
        position + (periods + 1) * part.grown[stream],
        engine,
        issued + (periods + 1) * part.grown[engine],
        _moved(known, then[4], part.grown, periods + 1),
        place,
    )
    return event


def with_left_out(
    walk: Walk, signals: list[tuple[int, int, int, int]]
) -> tuple[Integers, list[Repetition]]:
    """Rows of signals, one for each edge of a walk (`Walk.apply`), with those of the periods that
    it left out. And where these repeat, so that they need not be here."""
    found = np.array(signals, np.int64).reshape(-1, 4)
    pieces, repetitions = [found], []
    for part in reversed(walk.left_out):
        own = found[part.edges : part.until]
        # Later steps look back as far as those of the repetition, some behind it further.
        back = -(-part.reach // part.period)
        _, telling, _, consumer = np.concatenate(pieces).T
        told = telling[consumer >= part.at + part.period * part.times]
        period = (told - part.at) // part.period + 1
        told_from_behind = np.zeros(max(part.times + 1 - back, 0), np.bool_)
        told_from_behind[period[(period >= 0) & (period < told_from_behind.size)]] = True
        first, times = longest_run(~told_from_behind)
        number = np.arange(1, part.times + 1)
        if times > 2 * back + 4:
            number = number[(number <= first + back + 2) | (number >= first + times - back - 2)]
            start = part.at + (first - 1) * part.period
            repetitions.append(Repetition(start, part.period, times))
        moves = part.period * number[:, None, None] * np.array([1, 1, 0, 1])
        pieces.append((own + moves).reshape(-1, 4))
    return np.concatenate(pieces), repetitions[::-1]


def _moved(
    known: Sequence[int], before: Sequence[int], grown: Sequence[int], times: int
) -> list[int]:
    """What is known some periods later; `before` is what was known a period earlier."""
    return [
        now + times * more if now - then == more else now
        for now, then, more in zip(known, before, grown)
    ]
