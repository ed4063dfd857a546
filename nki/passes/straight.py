"""Semaphores for a body without control flow: every step waits for what it follows.

The scheduler has found what each step must follow, and its order keeps to that, so one walk with
vector clocks is enough: what an engine knows already, or what another wait implies, is not waited
for. What remains is the transitive reduction, the same that `nki.passes.synchronise` finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nki.passes.channels import Context
from nki.passes.dependences import Dependences
from nki.passes.steps import ENGINES, Step

Event = tuple[int, int, int, int, Sequence[int], Step]
"""The `position`-th event of a stream, which an engine issued as its `issued`-th step when it knew
of the events up to `known[s]` of every other stream s: (stream, position, engine, issued, known,
step). Lists of what is known are shared, and never changed."""


def synchronise(steps: Iterable[Any], context: Context, dependences: Dependences) -> None:
    """Write waits and updates into the steps, which are in the order in which engines take them."""
    semaphore = context.channels.semaphore
    starts, follows = dependences.starts, dependences.events
    counts = [0] * context.streams
    knowledge: list[Sequence[int]] = [tuple(counts)] * ENGINES
    completions: list[Any] = [None] * len(starts)
    for step in steps:
        engine, number = step.engine, step.number
        known = knowledge[engine]
        wanted: dict[int, Event] = {}
        for name in follows[starts[number] : starts[number + 1]]:
            event = completions[name] if name >= 0 else _issue(completions[~name])
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
                event = completions[event[5].number]
                pair = semaphore(0, event[0], engine), 1
                step.waits += (pair,)
                event[5].updates += (pair,)
                known = _joined(known, event)
            knowledge[engine] = known
        counts[engine] = issued = counts[engine] + 1
        queue = step.queue
        if queue < 0:
            completions[number] = engine, issued, engine, issued, known, step
        else:
            counts[queue] = position = counts[queue] + 1
            completions[number] = queue, position, engine, issued, known, step


def _issue(transfer: Event) -> Event:
    """The moment at which an engine issues a transfer, as an event of the engine."""
    _, _, engine, issued, known, step = transfer
    return engine, issued, engine, issued, known, step


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
