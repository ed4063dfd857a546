"""Where the time of a run goes, line by line and cause by cause, and what would shorten it.

The figures are sums over the critical path (`simulator.timing.critical`), so those of all causes,
like those of all lines, add up to 100 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from isa.enums import Engine
from isa.machine.control import StorageBegin
from isa.program import Program, SourceLocation
from simulator.timing.critical import DMA_CAUSES, Cause, PathStep
from simulator.timing.timeline import Timeline

NAMES = {
    Engine.tensor: "TensorE",
    Engine.vector: "VectorE",
    Engine.scalar: "ScalarE",
    Engine.gpsimd: "GpSimdE",
    Engine.sync: "SyncE",
}
"""Names of the engines in the documents."""

TRIGGER = "DMA trigger"
"""What a wait says of an engine that does not compute, but starts a transfer."""

NOWHERE = SourceLocation("", 0, 0, 0, "", "")


@dataclass(frozen=True, slots=True)
class PathCause:
    """What part of the critical path goes to one cause, on one engine or DMA."""

    cause: str
    engine: str
    ns: float
    percent: float

    @property
    def name(self) -> str:
        """The cause with its engine, as a bound is called."""
        if self.cause == Cause.COMPUTE.value:
            return self.engine
        return self.cause if self.engine == "DMA" else f"{self.cause} ({self.engine})"


@dataclass(frozen=True, slots=True)
class PathLine:
    """What part of the critical path a line of one core takes, and by what, in ns.

    `text` is the line, or one call where several calls of the line have instructions: each call
    then has its own `PathLine`.
    """

    core: int
    file: str
    line: int
    text: str
    ns: float
    percent: float
    causes: dict[str, float]


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait that ended stalls of the critical path: the line that waited, on its engine, and what
    it waited for, an engine or the transfers of a line."""

    core: int
    engine: str
    file: str
    line: int
    awaited: str
    awaited_file: str
    awaited_line: int
    ns: float
    count: int
    percent: float


@dataclass(frozen=True, slots=True)
class Limit:
    """The time of the same program if one limit of the machine were not there."""

    name: str
    total_ns: float
    saved_percent: float


@dataclass(frozen=True, slots=True)
class Advice:
    """A change of a line and the time of the program with it, found by timing the changed program.

    `bottleneck` names what the change takes away. `weight` is what of the gain counts in the order
    of advice: less than 1 where the author has to give something for it. `instead_of` are the
    numbers, from 1, of earlier advice about the same lines that cannot be followed as well."""

    bottleneck: str
    text: str
    file: str
    line: int
    source: str
    total_ns: float
    saved_ns: float
    saved_percent: float
    same_results: bool = True
    weight: float = 1.0
    instead_of: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Together:
    """The time of the program with pieces of advice at once, whose `numbers` count from 1. With
    these, those of `no_more` apply, too, but save less than a percent of the time."""

    numbers: tuple[int, ...]
    total_ns: float
    saved_ns: float
    saved_percent: float
    same_results: bool
    no_more: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIfs:
    """Times of changed programs: limits taken away; advice, best first, alone and `together`."""

    limits: list[Limit] = field(default_factory=list)
    advice: list[Advice] = field(default_factory=list)
    together: Together | None = None


Advisor = Callable[[], WhatIfs]
"""Times changed programs when somebody wants to know."""


def place_of(program: Program, step: PathStep) -> SourceLocation:
    """The line that an instruction comes from; `NOWHERE` where no line is known."""
    return place_at(program, program.cores[step.core].streams[step.engine][step.number].location)


def place_at(program: Program, location: Any) -> SourceLocation:
    """The line that a location of an instruction is; `NOWHERE` where no line is known."""
    if not isinstance(location, int) or location >= len(program.locations):
        return NOWHERE
    return program.locations[location]


def line_texts(program: Program) -> dict[SourceLocation, str]:
    """What rows of a report call the locations of a program: the text of the line, or of the call
    alone where several calls of one line have instructions."""
    calls: dict[tuple[str, int, str], set[tuple[int, int]]] = {}
    for place in program.locations:
        spans = calls.setdefault((place.file, place.line, place.text), set())
        spans.add((place.column, place.end_column))
    texts = {}
    for place in program.locations:
        several = len(calls[place.file, place.line, place.text]) > 1
        call = place.text[place.column : place.end_column] if several else ""
        texts[place] = call.strip() or place.text.strip()
    return texts


def path_causes(timeline: Timeline) -> list[PathCause]:
    """The critical path by cause and engine, largest first."""
    sums: dict[tuple[Cause, str], float] = {}
    for (step, cause), ns in _spent(timeline):
        key = cause, "DMA" if cause in DMA_CAUSES else NAMES[step.engine]
        sums[key] = sums.get(key, 0.0) + ns
    found = [PathCause(c.value, e, ns, _percent(ns, timeline)) for (c, e), ns in sums.items()]
    return sorted(found, key=lambda one: (-one.ns, one.name))


def path_lines(program: Program, timeline: Timeline) -> list[PathLine]:
    """The critical path by core and line, or call of a line that has several, largest first."""
    texts = line_texts(program)
    sums: dict[tuple[int, str, int, str], dict[str, float]] = {}
    for (step, cause), ns in _spent(timeline):
        place = place_of(program, step)
        entry = sums.setdefault((step.core, place.file, place.line, texts.get(place, "")), {})
        entry[cause.value] = entry.get(cause.value, 0.0) + ns
    found = []
    for (core, file, line, text), causes in sums.items():
        ns = sum(causes.values())
        largest = dict(sorted(causes.items(), key=lambda one: -one[1]))
        found.append(PathLine(core, file, line, text, ns, _percent(ns, timeline), largest))
    return sorted(found, key=lambda one: (-one.ns, one.core, one.file, one.line))


def waits(program: Program, timeline: Timeline) -> list[Wait]:
    """The waits that ended stalls of the critical path, longest first, line by line."""
    sums: dict[tuple[int, str, str, int, str, str, int], list[float]] = {}
    if timeline.critical is not None:
        for (step, other), stall in timeline.critical.stalls.items():
            step = _needing(program, step)
            here, there = place_of(program, step), place_of(program, other)
            awaited = "DMA" if other.transfer else NAMES[other.engine]
            row = program.cores[step.core].streams[step.engine][step.number].row
            engine = NAMES[step.engine]
            waiting = f"{TRIGGER} by {engine}" if row.asynchronous else engine
            ended = awaited, there.file, there.line
            entry = sums.setdefault((step.core, waiting, here.file, here.line, *ended), [0.0, 0])
            entry[0] += stall.ns
            entry[1] += stall.count
    found = [Wait(*key, ns, int(n), _percent(ns, timeline)) for key, (ns, n) in sums.items()]
    return sorted(found, key=lambda one: (-one.ns, one.core, one.file, one.line))


def _needing(program: Program, step: PathStep) -> PathStep:
    """The instruction that a wait is for: the next one, where an allocation begins."""
    stream = program.cores[step.core].streams[step.engine]
    number = step.number
    while stream[number].row is StorageBegin and number + 1 < len(stream):
        number += 1
    return step._replace(number=number)


def _spent(timeline: Timeline) -> Iterable[tuple[tuple[PathStep, Cause], float]]:
    return () if timeline.critical is None else timeline.critical.spent.items()


def _percent(ns: float, timeline: Timeline) -> float:
    return 100.0 * ns / timeline.total_ns if timeline.total_ns else 0.0


def reason(causes: list[PathCause], lines: list[PathLine], stalls: list[Wait]) -> str:
    """In a sentence: what most of the critical path goes to, where, and what waits."""
    if not causes:
        return "no critical path was kept, or the program takes no time."
    first = causes[0]
    text = f"{first.percent:.0f} % of the critical path"
    where = max(lines, key=lambda one: one.causes.get(first.cause, 0.0), default=None)
    if where is not None and where.file:
        share = where.causes.get(first.cause, 0.0) / first.ns
        text += f", {min(100.0, 100 * share):.0f} % of that at {_place(where)}"
    computing = (one for one in stalls if not one.engine.startswith(TRIGGER) and one.file)
    wait = next(computing, None)
    if wait is not None and wait.percent >= 5:
        here, there = (f" at line {n}" if n else "" for n in (wait.line, wait.awaited_line))
        text += f"; {wait.engine}{here} waits {wait.ns / 1e3:,.1f} us for {wait.awaited}{there}"
    return text + "."


def _place(line: PathLine) -> str:
    """The line of a file, or the instruction of a graph."""
    if line.line:
        return f"{short(line.file)}:{line.line}"
    return line.text.partition(" = ")[0] or short(line.file)


def short(file: str) -> str:
    """The last part of a path."""
    return file.rpartition("/")[2]
