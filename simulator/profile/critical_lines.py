"""Where the time of a run goes, line by line and cause by cause, and what would shorten it.

The figures are sums over the critical path (`simulator.timing.critical`), so those of all causes,
like those of all lines, add up to 100 %.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isa.columns import Integers, by_first_use
from isa.enums import Engine
from isa.program import Program, SourceLocation
from simulator.profile.dma import percent
from simulator.profile.representatives import Representatives, needing, representatives
from simulator.timing.critical import CAUSES, DMA_CAUSES, Cause, PathStep
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
    return program.place(location) or NOWHERE


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
    if timeline.critical is None:
        return []
    columns = timeline.critical.columns
    streams, _, _ = columns.places(columns.step)
    sums: dict[tuple[Cause, str], float] = {}
    for (stream, number), ns in _sums((streams, columns.cause), columns.ns):
        cause, (_, engine) = CAUSES[number], columns.streams[stream]
        key = cause, "DMA" if cause in DMA_CAUSES else NAMES[engine]
        sums[key] = sums.get(key, 0.0) + ns
    total = timeline.total_ns
    found = [PathCause(c.value, e, ns, percent(ns, total)) for (c, e), ns in sums.items()]
    return sorted(found, key=lambda one: (-one.ns, one.name))


def path_lines(program: Program, timeline: Timeline) -> list[PathLine]:
    """The critical path by core and line, or call of a line that has several, largest first."""
    if timeline.critical is None:
        return []
    columns, texts = timeline.critical.columns, line_texts(program)
    streams, numbers, _ = columns.places(columns.step)
    locations = _Streams(program, columns.streams).locations(streams, numbers)
    sums: dict[tuple[int, str, int, str], dict[str, float]] = {}
    for (stream, at, number), ns in _sums((streams, locations, columns.cause), columns.ns):
        place, cause = place_at(program, at), CAUSES[number]
        key = columns.streams[stream][0], place.file, place.line, texts.get(place, "")
        entry = sums.setdefault(key, {})
        entry[cause.value] = entry.get(cause.value, 0.0) + ns
    found = []
    for (core, file, line, text), causes in sums.items():
        ns = sum(causes.values())
        largest = dict(sorted(causes.items(), key=lambda one: -one[1]))
        found.append(PathLine(core, file, line, text, ns, percent(ns, timeline.total_ns), largest))
    return sorted(found, key=lambda one: (-one.ns, one.core, one.file, one.line))


def waits(program: Program, timeline: Timeline) -> list[Wait]:
    """The waits that ended stalls of the critical path, longest first, line by line."""
    if timeline.critical is None:
        return []
    columns = timeline.critical.columns
    known = _Streams(program, columns.streams)
    streams, numbers, _ = columns.places(columns.waiting)
    numbers = known.needing(streams, numbers)
    others, ended, moves = columns.places(columns.ending)
    keys = (
        streams, known.locations(streams, numbers), known.triggers(streams, numbers),
        others, known.locations(others, ended), moves,
    )  # fmt: skip
    held = list(_sums(keys, columns.held))
    counts = [count for _, count in _sums(keys, np.ones(columns.held.size))]
    sums: dict[tuple[int, str, str, int, str, str, int], list[float]] = {}
    for ((stream, here, triggers, other, there, moved), ns), count in zip(held, counts):
        (core, engine), (_, ending) = columns.streams[stream], columns.streams[other]
        own, awaited = place_at(program, here), place_at(program, there)
        waiting = f"{TRIGGER} by {NAMES[engine]}" if triggers else NAMES[engine]
        of = "DMA" if moved else NAMES[ending]
        key = core, waiting, own.file, own.line, of, awaited.file, awaited.line
        entry = sums.setdefault(key, [0.0, 0])
        entry[0] += ns
        entry[1] += count
    total = timeline.total_ns
    found = [Wait(*key, ns, int(n), percent(ns, total)) for key, (ns, n) in sums.items()]
    return sorted(found, key=lambda one: (-one.ns, one.core, one.file, one.line))


class _Streams:
    """What instructions of the streams of a path are, for columns of (stream, number)."""

    def __init__(self, program: Program, streams: list[tuple[int, Engine]]) -> None:
        self.found = [
            representatives(program.cores[core].streams[engine]) for core, engine in streams
        ]

    def locations(self, streams: Integers, numbers: Integers) -> Integers:
        """Indices of locations; -1 where none is known."""

        def of(found: Representatives) -> Integers:
            rows = [one.location for one in found.instructions]
            return np.array([at if isinstance(at, int) else -1 for at in rows], np.int64)

        return self._taken(lambda found: of(found)[found.order], streams, numbers)

    def triggers(self, streams: Integers, numbers: Integers) -> Integers:
        """Whether they start transfers."""

        def of(found: Representatives) -> Integers:
            return np.array([int(one.row.asynchronous) for one in found.instructions], np.int64)

        return self._taken(lambda found: of(found)[found.order], streams, numbers)

    def needing(self, streams: Integers, numbers: Integers) -> Integers:
        """The instructions that waits are for."""
        return self._taken(needing, streams, numbers)

    def _taken(
        self, of: Callable[[Representatives], Integers], streams: Integers, numbers: Integers
    ) -> Integers:
        result = np.zeros(numbers.size, np.int64)
        for stream in np.unique(streams).tolist():
            mine = streams == stream
            result[mine] = of(self.found[stream])[numbers[mine]]
        return result


def _sums(
    keys: tuple[np.ndarray, ...], values: np.ndarray
) -> Iterator[tuple[tuple[int, ...], float]]:
    """The sums of values with equal keys, in the order in which keys come first."""
    one = np.zeros(values.size, np.int64)
    for key in keys:  # smallest numbers for pairs, so that they never overflow
        column = key.astype(np.int64) + 1
        one = by_first_use(one * (int(column.max(initial=0)) + 1) + column).which
    groups = by_first_use(one)
    sums = np.bincount(groups.which, values, minlength=groups.values.size).tolist()
    rows = zip(*(key[groups.first].tolist() for key in keys))
    yield from zip(rows, sums)


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
    name = "" if line.line else line.text.partition(" = ")[0]
    return name or shown_place(line.file, line.line)


def us(ns: float) -> str:
    """A time in us, as reports have it."""
    return f"{ns / 1e3:,.2f}"


def short(file: str) -> str:
    """The last part of a path."""
    return file.rpartition("/")[2]


def shown_place(file: str, line: int) -> str:
    """Where something comes from; of what is no line of a file, as in a graph, the file alone."""
    return f"{short(file)}:{line}" if line else short(file)
