"""Finds unrolled loops: where the scheduled order of a basic block repeats.

Later stages look at one period of a repetition, and at what is between repetitions; the other
periods differ only in the addresses of operands.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from isa.columns import Flags, Integers, counted, joined, starts_of
from isa.columns.repetition import Repetition, longest_run, repetitions
from nki.passes.analysis.body import Body
from nki.passes.analysis.dependences import Dependences

REPEATING = 2000
"""Steps that a repetition must save for it to be looked for: a look at as many takes half as long
as to walk through them."""


def repeated(
    order: Integers, body: Body, dependences: Dependences, operand: Integers, alone: Flags
) -> list[Repetition]:
    """Repetitions in the order. Steps a period apart differ in addresses at most, and have the same
    markers of storage. They follow steps that are a period apart in all periods, or the same ones
    in all. `operand` numbers the operand of each of `body.accesses`, but for where it is. Steps
    that are `alone`, those of loops, and those that nothing moves across are like no others.
    """
    if order.size < REPEATING:
        return []
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    moves = np.diff(order, prepend=order[0])
    alone = (alone | body.fixed | (body.layer > 0))[order]
    unlike = np.where(alone, 1 + np.arange(order.size), 0)
    keys = joined([moves - moves.min(), body.kind[order], unlike])
    found = []
    for start, period, times in repetitions(keys, REPEATING):
        end = start + period * times
        distance = int(order[start + period] - order[start])
        later = order[start + period : end]
        low = int(later.min())
        steps = np.arange(low, int(later.max()) + 1)
        alike, steady = (
            flags[later - low]
            for flags in _alike(steps, distance, period, place, body, dependences, operand)
        )
        first, count = longest_run(alike[:-period] & alike[period:] & steady[period:])
        times = 2 + count // period
        if times > 2 and (times - 1) * period >= REPEATING:
            found.append(Repetition(start + first, period, times))
    return found


def _alike(
    steps: Integers,
    distance: int,
    period: int,
    place: Integers,
    body: Body,
    dependences: Dependences,
    operand: Integers,
) -> tuple[Flags, Flags]:
    """Two flags a step. The first: it is like the step of its kind whose number is `distance` less,
    and whose place in the order is `period` before. The second: what it follows comes again at the
    same places of its list."""
    kind = body.kind
    which, behind = body.accesses.which, int(body.starts[-1])
    starts, events = dependences.steps
    count = len(body.steps)
    comes_again = np.zeros(events.size, np.bool_)

    def same_operand(one: Integers, other: Integers) -> Flags:
        return operand[which[one]] == operand[which[other]]

    def same_marker(one: Integers, other: Integers) -> Flags:
        same: Flags = kind[count + one] == kind[count + other]
        return same & same_operand(behind + one, behind + other)

    def same_event(one: Integers, other: Integers) -> Flags:
        event, earlier = events[one], events[other]
        steps = (event < 2 * count) & (event // count == earlier // count)
        now, then = (place[code % count] for code in (event, earlier))
        comes_again[one] = steps & (now - then == period)
        same: Flags = comes_again[one] | (event == earlier)
        return same

    def as_before(one: Integers, other: Integers) -> Flags:
        same: Flags = comes_again[one] == comes_again[other]
        return same

    alike: Flags = np.ones(steps.size, np.bool_)
    marks = starts_of(body.begins)
    for lists, same in (
        (body.starts, same_operand),
        (marks, same_marker),
        (starts, same_event),
    ):
        alike &= _lists_alike(steps, distance, lists, same)
    return alike, _lists_alike(steps, distance, starts, as_before)


def _lists_alike(
    steps: Integers,
    distance: int,
    starts: Integers,
    same: Callable[[Integers, Integers], Flags],
) -> Flags:
    """Whether the lists of steps are as long as those of the steps before, and their elements the
    same: those of step n are from `starts[n]` on."""
    mine, earlier = starts[steps], starts[steps - distance]
    count = starts[steps + 1] - mine
    alike: Flags = count == starts[steps - distance + 1] - earlier
    step, within = counted(np.where(alike, count, 0))
    alike[step[~same(mine[step] + within, earlier[step] + within)]] = False
    return alike
