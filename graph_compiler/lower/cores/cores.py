"""The steps of a graph for two cores: which core does what, and where the cores meet.

A step is cut in two halves (`halves`), one for each core, or one core does all of it. Where a core
touches what the other one has written, or writes what the other one has touched (`extents` tells),
the cores meet at a barrier before. Steps that are cut alike need none: every core reads what it
has written itself. Steps are cut where that takes less time, barriers included. Which memory the
values are in follows from it (`homes`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from graph_compiler.lower.aliases import every
from graph_compiler.lower.control.counted import ArrayPart
from graph_compiler.lower.control.flow import Barrier, Counted
from graph_compiler.lower.cores.estimates import nanoseconds
from graph_compiler.lower.cores.extents import Since, Touch, touches
from graph_compiler.lower.cores.halves import halves
from graph_compiler.lower.cores.homes import Settled, settled
from graph_compiler.lower.draws import DrawStep
from graph_compiler.schedule.steps import KernelCall
from graph_compiler.schedule.views import Buffer

if TYPE_CHECKING:
    from graph_compiler.lower.device import DeviceProgram

BARRIER = 15000.0
"""About how many ns a barrier takes: the cores' meeting, and what they would do ahead without."""

LEAST = 2000.0
"""About how many ns a step takes that is worth cutting."""

SEGMENT = 32
"""Steps that are looked at together between two barriers."""

WAYS = 3
"""Dimensions along which a step is tried to be cut."""


Touches = tuple[list[Touch], list[Touch]]
"""What each core touches."""


class StepDivision(NamedTuple):
    """A way to do a step: the part of each core, None for nothing, and about how many ns each
    takes."""

    parts: tuple[Any, Any]
    ns: tuple[float, float]
    touched: Touches


class DividedSteps(NamedTuple):
    """Steps of each core, what they touch, and about how many ns they take."""

    steps: tuple[list[Any], list[Any]]
    touched: Touches
    ns: float


def shared_out(device: DeviceProgram, results: Collection[Buffer]) -> list[Settled]:
    """The steps of a device's two cores, with the buffers that they use."""
    windows = {
        step.buffer: step.array.buffer
        for step in every(device.steps)
        if isinstance(step, ArrayPart)
    }
    while any(root in windows for root in windows.values()):
        windows = {one: windows.get(root, root) for one, root in windows.items()}
    steps = Divider(device, windows).divided(device.steps).steps
    return settled(device, steps, windows, results)


class Divider:
    """Divides steps between two cores. `windows`: buffers that are parts of others."""

    def __init__(self, device: DeviceProgram, windows: Mapping[Buffer, Buffer]) -> None:
        self.device = device
        self.windows = windows

    def divided(self, steps: Sequence[Any]) -> DividedSteps:
        """Steps that run one after another."""
        ns, chosen = _cheapest([self._choices(step) for step in steps])
        found = DividedSteps(([], []), ([], []), ns)
        since = Since()
        for choice in chosen:
            if any(since.meets(core, choice.touched[core]) for core in (0, 1)):
                _meet(found)
                since = Since()
            for core in (0, 1):
                if choice.parts[core] is not None:
                    found.steps[core].append(choice.parts[core])
                found.touched[core].extend(choice.touched[core])
                since.add(core, choice.touched[core])
        return found

    def _choices(self, step: Any) -> list[StepDivision]:
        """The ways to do a step, by core 0 alone first."""
        if isinstance(step, ArrayPart):
            return [StepDivision((step, step), (0.0, 0.0), ([], []))]
        ns, found = nanoseconds(self.device, step), touches(step, self.windows)
        ways = [StepDivision((step, None), (ns, 0.0), (found, []))]
        if isinstance(step, Counted):
            return [*ways, *self._of_loop(step)]
        if isinstance(step, DrawStep):  # the generators of both cores begin alike
            return ways
        if not isinstance(step, KernelCall) and step.inner:
            return ways
        ways.append(StepDivision((None, step), (0.0, ns), ([], found)))
        for parts in [*halves(step)][:WAYS]:
            self.device.same_place(step, parts)
            times = [nanoseconds(self.device, part) for part in parts]
            one, other = (touches(part, self.windows) for part in parts)
            ways.append(StepDivision(parts, (times[0], times[1]), (one, other)))
        return ways

    def _of_loop(self, loop: Counted) -> list[StepDivision]:
        """A loop that both cores run, if its body has something for core 1."""
        body = self.divided(loop.body)
        if all(isinstance(step, ArrayPart) for step in body.steps[1]):
            return []
        since = Since()
        since.add(0, body.touched[0])
        ns = body.ns
        if since.meets(1, body.touched[1]):
            _meet(body)  # an iteration and the next one
            ns += BARRIER
        # Rows that the other core makes are not on chip here.
        one, other = (replace(loop, body=steps, carried=()) for steps in body.steps)
        self.device.same_place(loop, (one, other))
        ns *= loop.count.trips
        return [StepDivision((one, other), (ns, ns), body.touched)]


def _meet(shared: DividedSteps) -> None:
    for steps in shared.steps:
        steps.append(Barrier())


class _ChosenWays(NamedTuple):
    """Choices for all steps up to one, in how many ns, linked to those before."""

    ns: float
    before: _ChosenWays | None
    chosen: tuple[StepDivision, ...]


_NOTHING = _ChosenWays(0.0, None, ())


def _cheapest(ways: Sequence[Sequence[StepDivision]]) -> tuple[float, list[StepDivision]]:
    """How every step is done in the least time, by dynamic programming over where cores meet.
    Steps of core 0 alone follow each other; all else is in segments between barriers."""
    alone = [_NOTHING] + [_ChosenWays(math.inf, None, ())] * len(ways)
    both = [_ChosenWays(math.inf, None, ())] * (1 + len(ways))
    for at, choices in enumerate(ways):
        best = min(alone[at], both[at], key=_ns)
        meeting = BARRIER if at else 0.0
        start = alone[at] if alone[at].ns <= both[at].ns + BARRIER else both[at]
        ns = start.ns + choices[0].ns[0] + (BARRIER if start is both[at] else 0.0)
        if ns < alone[at + 1].ns:
            alone[at + 1] = _ChosenWays(ns, start, (choices[0],))
        if max(choices[0].ns) < LEAST:
            continue
        for seed in choices[1:]:
            for end, ns, chosen in _segments(ways, at, seed):
                if best.ns + meeting + ns < both[end].ns:
                    both[end] = _ChosenWays(best.ns + meeting + ns, best, chosen)
    last: _ChosenWays | None = min(alone[-1], both[-1], key=_ns)
    assert last is not None
    ns, found = last.ns, []
    while last is not None:
        found.extend(reversed(last.chosen))
        last = last.before
    return ns, found[::-1]


def _ns(stretch: _ChosenWays) -> float:
    return stretch.ns


def _segments(
    ways: Sequence[Sequence[StepDivision]], start: int, seed: StepDivision
) -> Sequence[tuple[int, float, tuple[StepDivision, ...]]]:
    """Steps from one on between which cores need not meet, done each in the way that suits best
    behind the ones before: where they end, how many ns they take, and the choices."""
    since = Since()
    clocks = [0.0, 0.0]
    chosen: list[StepDivision] = []
    found = []
    for at in range(start, min(len(ways), start + SEGMENT)):
        fitting = [
            choice
            for choice in ([seed] if at == start else ways[at])
            if not any(since.meets(core, choice.touched[core]) for core in (0, 1))
        ]
        if not fitting:
            break
        best = min(fitting, key=lambda choice: _after(clocks, choice))
        for core in (0, 1):
            clocks[core] += best.ns[core]
            since.add(core, best.touched[core])
        chosen.append(best)
        found.append((at + 1, max(clocks), tuple(chosen)))
    return found


def _after(clocks: Sequence[float], choice: StepDivision) -> tuple[float, float]:
    """When both cores have done what they do, and how much that is."""
    return max(map(sum, zip(clocks, choice.ns))), sum(choice.ns)
