"""A program made ready to be timed, in columns.

Streams, instructions, semaphores and queues are numbered over all cores; an instruction is its
place in all streams, one behind the other. A template holds what instructions have in common. An
instruction's own are its semaphores, the results that it needs, and the ports, which follow from
addresses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from isa.array_tiles import ArrayTile
from isa.columns import Integers
from isa.columns.jit import jit_when_long
from isa.enums import Engine
from isa.files.stream import Pairs, StreamColumns, in_columns
from isa.program import Program
from isa.target import Target
from simulator.timing import events as e
from simulator.timing.assumptions import Assumptions
from simulator.timing.boxes import TemplateBoxes
from simulator.timing.dependences import OwnResults, own_results
from simulator.timing.ports import occupied
from simulator.timing.templates import TemplateTimer, TimedTemplate


@dataclass(slots=True)
class TimingPlan:
    """A program ready to be timed.

    `streams` are (core, engine); `first` is the first instruction of each, and where the last ends,
    `first_templates` the same of its templates, `semaphores` and `queues` of each core. `of`: the
    template of each instruction, `kinds`: what the event loop does with it, `semaphores_of`: the
    place of its waits and updates in `pairs`. `uses`: what it takes from earlier ones of its
    engine. `ports`: mask of the ports that it occupies and another engine wants.
    """

    streams: list[tuple[int, Engine]]
    first: list[int]
    first_templates: list[int]
    semaphores: list[int]
    queues: list[int]
    templates: list[TimedTemplate]
    of: Integers
    kinds: Integers
    pairs: list[tuple[Pairs, Pairs]]
    semaphores_of: Integers
    uses: OwnResults
    ports: Integers

    def stream(self, instruction: int) -> int:
        """The stream that an instruction is in."""
        return int(np.searchsorted(self.first, instruction, "right")) - 1

    def slice(self, stream: int) -> slice:
        """The instructions of a stream."""
        return slice(self.first[stream], self.first[stream + 1])

    def templates_of(self, stream: int) -> list[TimedTemplate]:
        """The templates of a stream."""
        begin, end = self.first_templates[stream : stream + 2]
        return self.templates[begin:end]

    def loads_tiles(self, stream: int) -> bool:
        """Whether a stream loads stationary tiles."""
        return bool((self.kinds[self.slice(stream)] == e.LOAD_TILE).any())

    def parts(self, stream: int) -> list[ArrayTile]:
        """The parts of the tensor engine's array, less than all of it, that a stream uses."""
        return sorted({t.part for t in self.templates_of(stream) if t.part})


def plan_program(program: Program, target: Target, assume: Assumptions) -> TimingPlan:
    """A bound program ready to be timed; engines without instructions have no stream."""
    streams, columns = [], []
    for core, found in enumerate(program.cores):
        for engine, stream in found.streams.items():
            if len(stream):
                streams.append((core, engine))
                columns.append(in_columns(stream, encoded=False))
    sizes = [column.order.size for column in columns]
    first = running(sizes)
    made = TemplateTimer(target)
    templates = [made.template(one) for column in columns for one in column.templates]
    first_templates = running(len(column.templates) for column in columns)
    of = _joined(column.order + many for column, many in zip(columns, first_templates))
    numbers, base = _numbers(columns, of)
    semaphores, pairs, pairs_before = _semaphores(streams, columns, len(program.cores))
    semaphores_of = numbers[base] + np.repeat(np.array(pairs_before, np.int64), sizes)
    kinds = np.array([template.kind for template in templates], np.int64)[of]
    boxes = TemplateBoxes.of(templates)
    number = {place: stream for stream, place in enumerate(streams)}
    independent = [first[number[c, engine]] + at for c, engine, at in assume.independent]
    uses = own_results(
        templates, boxes, first, kinds, of, base, numbers, np.array(independent, np.int64)
    )
    ports = np.zeros(of.size, np.int64)
    if not assume.ports_apart:
        ports = occupied(templates, boxes, streams, first, of, base, numbers, target)
    _hold_up(kinds, templates, of, uses, ports)
    queues = running(len(core.queues) for core in program.cores)
    return TimingPlan(
        streams,
        first,
        first_templates,
        semaphores,
        queues,
        templates,
        of,
        kinds,
        pairs,
        semaphores_of,
        uses,
        ports,
    )


def running(sizes: Iterable[int]) -> list[int]:
    """Where each of several begins, and where the last ends."""
    found = [0]
    for size in sizes:
        found.append(found[-1] + size)
    return found


def _joined(columns: Iterable[Integers]) -> Integers:
    """Columns, one behind the other."""
    return np.concatenate([np.zeros(0, np.int64), *columns])


def _numbers(columns: list[StreamColumns], of: Integers) -> tuple[Integers, Integers]:
    """The numbers of all instructions, and where those of each begin."""
    rows = [numbers for column in columns for numbers in column.numbers]
    uses = np.array([numbers.shape[0] for numbers in rows], np.int64)
    widths = np.array([numbers.shape[1] for numbers in rows], np.int64)
    size = uses * widths
    base = np.zeros(of.size, np.int64)
    following = size.cumsum() - size
    _places(of.size, of, following, widths, base)
    return _joined(numbers.ravel() for numbers in rows), base


@jit_when_long("base")
def _places(of: Any, following: Any, widths: Any, base: Any) -> None:
    """Where the numbers of each instruction begin: `following` is where the next ones of each
    template do."""
    for place in range(len(of)):
        template = of[place]
        base[place] = following[template]
        following[template] += widths[template]


def _semaphores(
    streams: list[tuple[int, Engine]], columns: list[StreamColumns], cores: int
) -> tuple[list[int], list[tuple[Pairs, Pairs]], list[int]]:
    """The first semaphore of each core; the waits and updates of all streams with semaphores
    numbered over all cores; how many of these come before those of each stream."""
    most = [-1] * cores
    for (core, _), column in zip(streams, columns):
        named = (s for waits, updates in column.semaphores for s, _ in (*waits, *updates))
        most[core] = max(most[core], max(named, default=-1))
    first = running(highest + 1 for highest in most)
    found: list[tuple[Pairs, Pairs]] = []
    before = []
    for (core, _), column in zip(streams, columns):
        before.append(len(found))
        for waits, updates in column.semaphores:
            one, other = (
                tuple((first[core] + semaphore, amount) for semaphore, amount in pairs)
                for pairs in (waits, updates)
            )
            found.append((one, other))
    return first, found, before


def _hold_up(
    kinds: Integers, templates: list[TimedTemplate], of: Integers, uses: OwnResults, ports: Integers
) -> None:
    """Instructions of which something besides semaphores and their engine decides when they start,
    or that others name, become COMPUTE_EXTRA."""
    tables = np.array([template.table is not None for template in templates], np.bool_)
    held = (ports != 0) | uses.noted | tables[of]
    held |= np.diff(uses.results.starts) > 0
    held |= np.diff(uses.firsts.starts) > 0
    kinds[held & (kinds == e.COMPUTE)] = e.COMPUTE_EXTRA
