"""Events of streams, with what is known when they happen: vector clocks."""

from __future__ import annotations

from collections.abc import Sequence

Event = tuple[int, int, int, int, Sequence[int], int]
"""The `position`-th event of a stream, which an engine issued as its `issued`-th step when it knew
of the events up to `known[s]` of every other stream s: (stream, position, engine, issued, known,
name). Lists of what is known are shared; who changes one makes its own."""


def issue(transfer: Event) -> Event:
    """The moment at which an engine issues a transfer, as an event of the engine."""
    _, _, engine, issued, known, name = transfer
    return engine, issued, engine, issued, known, name


def after(other: Event, event: Event) -> bool:
    """Whether an event comes only after another one."""
    stream, position = event[0], event[1]
    return other[4][stream] >= position or (other[2] == stream and other[3] >= position)


def joined(known: Sequence[int], event: Event) -> Sequence[int]:
    """What an engine knows once it has waited for an event."""
    stream, position, engine, issued, theirs, _ = event
    both = [one if one > other else other for one, other in zip(known, theirs)]
    if both[engine] < issued:
        both[engine] = issued
    if both[stream] < position:
        both[stream] = position
    return both
