"""Events of streams, with what is known when they happen: vector clocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Event = tuple[int, int, int, int, Sequence[int], int]
"""The `position`-th event of a stream, which an engine issued as its `issued`-th step when it knew
of the events up to `known[s]` of every other stream s: (stream, position, engine, issued, known,
name). Lists of what is known are shared; who changes one makes its own."""


def issue(transfer: Event) -> Event:
    """The moment at which an engine issues a transfer, as an event of the engine."""
    _, _, engine, issued, known, name = transfer
    return engine, issued, engine, issued, known, name


def enter(latest: dict[int, Event], events: Iterable[Event]) -> None:
    """Enter events into the latest by stream."""
    for event in events:
        other = latest.get(event[0])
        if other is None or other[1] < event[1]:
            latest[event[0]] = event


def reduced(events: Iterable[Event]) -> list[Event]:
    """Without those that another one implies; of two that imply each other, as two engines' exits
    from a loop do, one stays."""
    latest: dict[int, Event] = {}
    enter(latest, events)
    kept = list(latest.values())
    for event in latest.values():
        stream, position = event[0], event[1]
        for other in kept:
            told = other[4][stream] >= position or (other[2] == stream and other[3] >= position)
            if told and other is not event:
                kept.remove(event)
                break
    return kept


def joined(known: Sequence[int], event: Event) -> Sequence[int]:
    """What an engine knows once it has waited for an event."""
    stream, position, engine, issued, theirs, _ = event
    both = [*known]
    for at, one in enumerate(theirs):  # twice as fast as a comprehension over both
        if one > both[at]:
            both[at] = one
    if both[engine] < issued:
        both[engine] = issued
    if both[stream] < position:
        both[stream] = position
    return both
