"""Flows of semaphores: from each instruction that added units to the one that took the last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from isa.columns import Integers, elements, ordered, starts_of
from isa.files.stream import Pairs
from isa.program import CoreProgram
from isa.spec import Instruction
from simulator.timing.timeline import CoreTimeline


class Flows(NamedTuple):
    """Columns: the semaphore, the track and the number of the span that gave, and of the one that
    took."""

    semaphore: Integers
    giver_track: Integers
    giver: Integers
    taker_track: Integers
    taker: Integers


def flows(core: CoreProgram, timeline: CoreTimeline) -> Flows:
    """The flows of a core. Units are taken in the order in which they are given; a transfer gives
    at its end what its trigger's instruction says."""
    given: list[_Uses] = []
    taken: list[_Uses] = []
    for track, one in enumerate(timeline.tracks):
        if not one.spans:
            continue
        stream, of_queue = core.streams[one.engine], one.queue >= 0
        start, end, index = one.spans.columns()
        updates = [_updates(one, of_queue) for one in stream]
        given.append(_uses(updates, track, index, end))
        if not of_queue:
            taken.append(_uses([one.waits for one in stream], track, index, start))
    none = Flows(*[np.zeros(0, np.int64)] * len(Flows._fields))
    found = [_matched(*both) for both in _by_semaphore(given, taken)]
    return Flows(*map(np.concatenate, zip(none, *found)))


def _updates(instruction: Instruction, of_queue: bool) -> Pairs:
    """What an execution of an instruction, or its transfer, gives."""
    return instruction.updates if instruction.row.asynchronous == of_queue else ()


class _Uses(NamedTuple):
    """Columns of given, or taken, units: semaphore, amount, when, track, number of the span."""

    semaphore: Integers
    amount: Integers
    when: np.ndarray
    track: Integers
    span: Integers


def _uses(pairs: Sequence[Pairs], track: int, index: np.ndarray, when: np.ndarray) -> _Uses:
    executed = np.flatnonzero(index >= 0)
    starts = starts_of(np.array([len(one) for one in pairs], np.int64))
    flat = np.array([pair for one in pairs for pair in one], np.int64).reshape(-1, 2)
    place, element = elements(starts, index[executed])
    span = executed[place]
    tracks = np.full(span.size, track, np.int64)
    return _Uses(flat[element, 0], flat[element, 1], when[span], tracks, span)


def _by_semaphore(given: list[_Uses], taken: list[_Uses]) -> list[tuple[_Uses, _Uses]]:
    """The uses of each semaphore, in order of time."""
    if not given or not taken:
        return []
    both = []
    for uses in (given, taken):
        whole = _Uses(*map(np.concatenate, zip(*uses)))
        order = np.argsort(whole.when, kind="stable")
        order = order[ordered(whole.semaphore[order])]
        both.append(_Uses(*(column[order] for column in whole)))
    gives, takes = both
    found = []
    for semaphore in np.intersect1d(gives.semaphore, takes.semaphore).tolist():
        # Whole numbers: up to the next one.
        low, high = np.searchsorted(gives.semaphore, (semaphore, semaphore + 1))
        begin, end = np.searchsorted(takes.semaphore, (semaphore, semaphore + 1))
        mine = _Uses(*(column[low:high] for column in gives))
        theirs = _Uses(*(column[begin:end] for column in takes))
        found.append((mine, theirs))
    return found


def _matched(gives: _Uses, takes: _Uses) -> Flows:
    """From the giver of the last unit that each taker needs, to that taker."""
    place = np.searchsorted(np.cumsum(gives.amount), np.cumsum(takes.amount))
    known = place < gives.span.size
    place = place[known]
    return Flows(
        takes.semaphore[known],
        gives.track[place],
        gives.span[place],
        takes.track[known],
        takes.span[known],
    )
