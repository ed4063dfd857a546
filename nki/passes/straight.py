"""Semaphores for a body without control flow: every step waits for what it follows.

The scheduler has found what each step must follow, and its order keeps to that, so one walk with
vector clocks is enough: what an engine knows already, or what another wait implies, is not waited
for. What remains is the transitive reduction, the same that `nki.passes.synchronise` finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nki.passes.channels import Context
from nki.passes.dependences import Event
from nki.passes.steps import ENGINES


def synchronise(steps: Iterable[Any], context: Context) -> None:
    """Write waits and updates into the steps, which are in the order in which engines issue them.

    Lists of what engines know are shared between steps, and never changed.
    """
    semaphore = context.channels.semaphore
    counts = [0] * context.streams
    knowledge: list[Sequence[int]] = [tuple(counts)] * ENGINES
    for step in steps:
        engine = step.engine
        known = knowledge[engine]
        wanted: dict[int, Event] = {}
        for event in step.follows:
            stream, position = event.stream, event.position
            if known[stream] >= position or stream == engine:
                continue
            other = wanted.get(stream)
            if other is None or other.position < position:
                wanted[stream] = event
        if wanted:
            events = list(wanted.values())
            if len(events) > 1:
                events = [event for event in events if not _implied(event, events)]
            for event in events:
                pair = semaphore(0, event.stream, engine), 1
                step.waits.append(pair)
                event.updates.append(pair)
                known = _joined(known, event)
            knowledge[engine] = known
        counts[engine] += 1
        step.issued = step.position = counts[engine]
        if step.queue >= 0:
            counts[step.queue] += 1
            step.position = counts[step.queue]
        step.known = known


def _implied(event: Event, events: list[Event]) -> bool:
    """Whether another event comes only after this one."""
    stream, position = event.stream, event.position
    for other in events:
        if other is not event and (
            other.known[stream] >= position or (other.engine == stream and other.issued >= position)
        ):
            return True
    return False


def _joined(known: Sequence[int], event: Event) -> list[int]:
    """What an engine knows once it has waited for an event."""
    joined = list(map(max, known, event.known))
    if joined[event.engine] < event.issued:
        joined[event.engine] = event.issued
    joined[event.stream] = event.position
    return joined
