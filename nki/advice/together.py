"""Several pieces of advice at once: which can be followed together, and which are alternatives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from nki import progress
from nki.advice.changed import Line, line_of
from nki.advice.timed import Retimed, time_of
from nki.ir.nodes import TracedKernel
from simulator.profile.critical_lines import Advice, Together
from simulator.profile.dma import percent
from simulator.profile.what_if import LEAST_PERCENT

_LINES = re.compile(r"( with)? line \d+(, \d+)*")


def together(
    kernel: TracedKernel,
    values: Mapping[str, int],
    advice: list[Advice],
    made: Mapping[Advice, Retimed],
    total: float,
) -> Together | None:
    """Advice that is followed one piece after another, best first, where each still applies and
    saves time: all of it in one kernel, compiled and timed. None where only one piece applies.

    `made` has the changed kernels behind `advice`; changes that cost the author something, such as
    bits of precision, are left for the author to decide.
    """
    kept: list[int] = []
    no_more: list[int] = []
    best = total
    same_results = True
    for number, one in enumerate(advice, start=1):
        change = made.get(one)
        if change is None or _costs_precision(change):
            continue
        changed = _made(kernel, change)
        if changed is None:
            continue
        with progress.part(f"advice {number} beside others"):
            ns = time_of(changed, values) if kept else change.total_ns
        if ns is None:
            continue
        if best - ns < 0.01 * LEAST_PERCENT * total:
            no_more.append(number)
            continue
        kernel, best = changed, ns
        kept.append(number)
        same_results &= one.same_results
    if len(kept) + len(no_more) < 2:
        return None
    saved = total - best
    return Together(tuple(kept), best, saved, percent(saved, total), same_results, tuple(no_more))


def _costs_precision(change: Retimed | None) -> bool:
    return change is not None and change.changed.weight < 1


def _made(kernel: TracedKernel, change: Retimed) -> TracedKernel | None:
    """A kernel that others have changed with a change that was found before."""
    wanted = change.changed
    for line in sorted(_lines(change)):
        for changed in change.changes(kernel, line):
            if changed.bottleneck == wanted.bottleneck and _said(changed.text) == _said(
                wanted.text
            ):
                return changed.kernel
    return None


def _said(text: str) -> str:
    """What advice says, without the lines that are part of it, since others may have moved it."""
    return _LINES.sub("", text)


def _lines(change: Retimed) -> set[Line]:
    """The lines that a change is about."""
    here = change.place.file, change.place.line
    return {here, *(line for op in change.changed.of if (line := line_of(op)) is not None)}


def alternatives(
    advice: list[Advice], made: Mapping[Advice, Retimed], kept: Together | None
) -> list[Advice]:
    """The advice, where each piece names earlier ones about the same lines that it is followed
    instead of: both cannot be, or nobody has tried. Operands of fewer bits go with anything."""
    numbers = () if kept is None else kept.numbers + kept.no_more
    lines = [_lines(made[one]) if one in made else {(one.file, one.line)} for one in advice]
    narrow = [_costs_precision(made.get(one)) for one in advice]

    def instead(number: int) -> tuple[int, ...]:
        return tuple(
            other
            for other in range(1, number)
            if lines[other - 1] & lines[number - 1]
            and not (number in numbers and other in numbers)
            and not (narrow[other - 1] or narrow[number - 1])
        )

    return [replace(one, instead_of=instead(n)) for n, one in enumerate(advice, start=1)]
