"""Where the time of a run goes: the critical path, backwards from the end, cause by cause.

A node of the path (`simulator.timing.events`) has the time from its start until the next node can
start, and the time that it was held up before its start. These times follow one another without
gaps, so that they add up to the whole run.

An engine that does nothing is on no path, and cannot be the bound. What lies between the end of an
instruction's work and the next one on the path is fill and drain where both are of one engine. Else
it is semaphores. What all DMA engines together would need for a transfer's descriptors and bytes
counts as such. What it takes longer because some of them have less to do counts as balance. Passes
that compare orders time without the path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from isa.columns import by_first_use, jit
from isa.enums import Engine
from simulator.timing import events as e
from simulator.timing.events import TIMES
from simulator.timing.layout import INTEGER, NUMBER
from simulator.timing.plan import TimingPlan


class Cause(Enum):
    """What the time of a part of the critical path is spent on."""

    COMPUTE = "compute"
    TILE_LOAD = "stationary load"
    THROTTLING = "throttling"
    FILL_AND_DRAIN = "fill and drain"
    SEMAPHORE = "semaphores"
    TABLE_LOAD = "table loads"
    PORT = "shared port"
    BANDWIDTH = "DMA bandwidth"
    DESCRIPTORS = "DMA descriptors"
    CONVERSION = "DMA conversion"
    DMA_BALANCE = "DMA balance"
    TRIGGER = "DMA trigger"
    DMA_LATENCY = "DMA latency"
    CONTROL = "control"
    BARRIER = "core barrier"


DMA_CAUSES = frozenset(
    {Cause.BANDWIDTH, Cause.DESCRIPTORS, Cause.CONVERSION, Cause.DMA_BALANCE, Cause.DMA_LATENCY}
)
"""Time of the DMA engines and rings, which no engine of the core spends."""


class PathStep(NamedTuple):
    """An instruction of a stream, by its number there, or the transfers that it triggers."""

    core: int
    engine: Engine
    number: int
    transfer: bool


@dataclass(slots=True)
class Stall:
    """How long, and how often, one step of the path had nothing to do until another handed over."""

    ns: float = 0.0
    count: int = 0


Spent = dict[tuple[PathStep, Cause], float]
Stalls = dict[tuple[PathStep, PathStep], Stall]


class PathColumns(NamedTuple):
    """The critical path in columns: what `ns` of each (step, cause) are, in the order of the walk,
    and each stall, `held` for so long. A step is twice the number of its instruction, one more for
    the transfers that it triggers; the instructions of a stream begin at its `first`."""

    streams: list[tuple[int, Engine]]
    first: np.ndarray
    step: np.ndarray
    cause: np.ndarray
    ns: np.ndarray
    waiting: np.ndarray
    ending: np.ndarray
    held: np.ndarray

    def places(self, steps: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The streams of steps, their numbers there, and whether they are transfers."""
        instructions = steps // 2
        streams = np.searchsorted(self.first, instructions, "right") - 1
        return streams, instructions - self.first[streams], steps % 2 == 1


class CriticalPath:
    """Where the time of a run goes: as the walk leaves it, and in columns and tables, which are
    made when they are first asked for."""

    def __init__(self, walked: Walked) -> None:
        self._walked = walked

    @cached_property
    def columns(self) -> PathColumns:
        """All that the path is charged with."""
        plan, step, spent, *stalls = self._walked
        charged = np.flatnonzero(spent)
        steps, kind = np.divmod(charged, PARTS)
        step = step[steps].astype(INTEGER)
        causes = [_NUMBER[_WORK.get(one.kind, Cause.CONTROL)] for one in plan.templates]
        work = np.array(causes, INTEGER)
        cause = np.where(step % 2 == 1, _OF_TRANSFERS[kind], _OF_INSTRUCTIONS[kind])
        cause = np.where(cause < 0, work[plan.of[step // 2]], cause)
        first = np.array(plan.first, INTEGER)
        return PathColumns(list(plan.streams), first, step, cause, spent[charged], *stalls)

    @cached_property
    def spent(self) -> Spent:
        """Time by step and cause, which adds up to the run."""
        named = [CAUSES[cause] for cause in self.columns.cause.tolist()]
        return dict(zip(zip(self._steps(self.columns.step), named), self.columns.ns.tolist()))

    @cached_property
    def stalls(self) -> Stalls:
        """The waits that ended stalls: by (step that waited, step it waited for)."""
        waiting, ending, held = self.columns[-3:]
        pairs = by_first_use(waiting * (2 * int(self.columns.first[-1])) + ending)
        size = pairs.values.size
        sums = np.bincount(pairs.which, held, minlength=size).tolist()
        counts = np.bincount(pairs.which, minlength=size).tolist()
        keys = zip(*(self._steps(numbers[pairs.first]) for numbers in (waiting, ending)))
        return dict(zip(keys, map(Stall, sums, counts)))

    def _steps(self, numbers: np.ndarray) -> list[PathStep]:
        streams = self.columns.streams
        columns = (column.tolist() for column in self.columns.places(numbers))
        return [
            PathStep(core, engine, number, moves)
            for at, number, moves in zip(*columns)
            for core, engine in (streams[at],)
        ]


@dataclass(slots=True)
class RunNodes:
    """The nodes of one run, one behind the other. `links` has of each its step (see `PathColumns`)
    and the node that hands over to it. `moments` has of each when that is (`begin`), and until when
    a table load or the dispatch of a transfer holds it up (`settled`). Then its start, when it
    leaves its engine free, and since when its engine had nothing to do. `last`: the node that ends
    the run, at `until`."""

    links: Any
    moments: Any
    nodes: int
    last: int
    until: float = 0.0


EVEN = 1 - 1e-9
"""The part of the work of a full set of DMA engines from which nothing but rounding is missing."""

CAUSES = list(Cause)
"""Causes by their numbers in columns."""

_NUMBER = {cause: number for number, cause in enumerate(CAUSES)}
_WORK = {
    e.LOAD_TILE: Cause.TILE_LOAD,
    e.DMA: Cause.TRIGGER,
    e.BARRIER: Cause.BARRIER,
    e.COMPUTE: Cause.COMPUTE,
    e.MULTIPLY: Cause.COMPUTE,
}
"""What the time of an instruction goes to, by its kind; control for all others."""

PARTS = 6
"""How many parts the time of a step has, each of one cause."""

_OF_INSTRUCTIONS = np.array(
    [
        _NUMBER[Cause.THROTTLING], -1, _NUMBER[Cause.FILL_AND_DRAIN], _NUMBER[Cause.SEMAPHORE],
        _NUMBER[Cause.TABLE_LOAD], _NUMBER[Cause.PORT],
    ]
)  # fmt: skip
"""The causes of an instruction's parts; -1 is its work."""

_OF_TRANSFERS = np.array(
    [
        _NUMBER[Cause.DESCRIPTORS], _NUMBER[Cause.CONVERSION], _NUMBER[Cause.BANDWIDTH],
        _NUMBER[Cause.DMA_BALANCE], _NUMBER[Cause.DMA_LATENCY], -1,
    ]
)  # fmt: skip

LONG = 100_000
"""Nodes from which on the walk is compiled."""


class Walked(NamedTuple):
    """What the walk leaves: steps in the order in which it met them, the parts of their time one
    behind another, and the columns of the stalls."""

    plan: TimingPlan
    step: np.ndarray
    spent: np.ndarray
    waiting: np.ndarray
    ending: np.ndarray
    held: np.ndarray


def walk(run: RunNodes, plan: TimingPlan, dma_engines: int) -> CriticalPath:
    """The critical path of a recorded run, from its end to its start."""
    count, nodes = plan.first[-1], run.nodes
    most = min(nodes, 2 * count)
    streams = np.repeat(np.arange(len(plan.streams)), np.diff(plan.first)).astype(np.int16)
    columns = [
        run.links,
        run.moments,
        streams,
        plan.of,
        *_templates(plan, dma_engines),
        np.zeros(2 * count, np.int32),
        np.zeros(most, np.int32),
        np.zeros(most * PARTS, NUMBER),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, np.int32),
        np.zeros(nodes, NUMBER),
    ]
    numbers = [run.last, run.until]
    arrays = *map(np.asarray, columns), *numbers
    compiled = _walk.compiled(nodes, arrays)
    if compiled is None:
        columns = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns]
    steps, stalls = compiled(*arrays) if compiled else _walk.function(*columns, *numbers)
    step, spent, waiting, ending, held = (np.asarray(column) for column in columns[-5:])
    waits = (waiting[:stalls].astype(INTEGER), ending[:stalls].astype(INTEGER), held[:stalls])
    return CriticalPath(Walked(plan, step[:steps], spent[: steps * PARTS], *waits))


def _templates(plan: TimingPlan, dma_engines: int) -> list[np.ndarray]:
    """Of every template: its time at full rate where the tensor engine may slow it down, else a
    time that is never exceeded. Of transfers: the share of evenly spread work, of descriptors, and
    of what the DMA engines compute."""
    rows = []
    for template in plan.templates:
        even, share, computed = 1.0, 0.0, 0.0
        transfer = template.transfer
        if transfer is not None:
            longest = max((ns for _, ns in transfer.work), default=0.0)
            even = transfer.engine_ns / (dma_engines * longest) if longest else 1.0
            even = 1.0 if even > EVEN else even
            if transfer.engine_ns:
                share = transfer.overhead_ns / transfer.engine_ns
                computed = transfer.computed_ns / transfer.engine_ns
        full = template.interval if template.kind == e.MULTIPLY else np.inf
        rows.append((full, even, share, computed))
    values = zip(*rows, strict=True) if rows else [()] * 4
    return [np.array(column, NUMBER) for column in values]


@jit.jit_when_long(worth=LONG)
def _walk(
    links: Any, moments: Any, place: Any, of: Any, full: Any, even: Any, share: Any, computed: Any,
    rows: Any, step: Any, spent: Any, waiting: Any, ending: Any, held: Any, at: int, until: float,
) -> tuple[int, int]:  # fmt: skip
    """Charge every node from the end on; how many steps and stalls there are. `step` has the steps
    as they come, `rows` that place of each plus 1, `spent` the parts of one behind those of
    another, `waiting`, `ending` and `held` are the stalls."""
    steps = stalls = 0
    following, following_transfer = -1, 0
    while at >= 0:
        here, earlier = links[2 * at], links[2 * at + 1]
        moment = TIMES * at
        begin, start = moments[moment], moments[moment + 2]
        number, transfer = here // 2, here % 2
        row = rows[here]
        if not row:
            step[steps] = here
            steps += 1
            row = rows[here] = steps
        part = (row - 1) * PARTS
        template, stream = of[number], place[number]
        ended = moments[moment + 3]
        if transfer:
            moving = max(0.0, min(ended, until) - start)
            evenly = moving * even[template]
            described, converted = evenly * share[template], evenly * computed[template]
            spent[part] += described
            spent[part + 1] += converted
            spent[part + 2] += max(0.0, evenly - described - converted)
            spent[part + 3] += max(0.0, moving - evenly)
            spent[part + 4] += max(0.0, until - begin - moving)
        else:
            working = min(ended, until) - start
            slowed = max(0.0, working - full[template])
            inside = following < 0 or (following == stream and not following_transfer)
            settled, idle = moments[moment + 1], moments[moment + 4]
            spent[part] += slowed
            spent[part + 1] += max(0.0, working - slowed)
            spent[part + (2 if inside else 3)] += max(0.0, until - max(ended, start))
            spent[part + 4] += max(0.0, settled - begin)
            spent[part + 5] += max(0.0, start - settled)
            if earlier >= 0 and begin > idle:
                waiting[stalls] = here
                ending[stalls] = links[2 * earlier]
                held[stalls] = begin - idle
                stalls += 1
        following, following_transfer = stream, transfer
        until, at = begin, earlier
    return steps, stalls
