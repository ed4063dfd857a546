"""Where the time of a run goes: the critical path, backwards from the end, cause by cause.

Each node of the path (`simulator.timing.events`) is charged with the time from its start until it
hands over to the next one, and with what held it up before its start. These times follow one
another without gaps, so that they add up to the whole run.

An engine that does nothing is on no path, and cannot be the bound. What lies between the end of an
instruction's work and the next one on the path is fill and drain where both are of one engine, and
semaphores where they are not. Of a transfer, what all DMA engines together would need for its
descriptors and bytes counts as such; what it takes longer because some of them have less to do
counts as balance. Passes that compare orders time without the path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from isa.columns import by_first_use, walks
from isa.enums import Engine
from simulator.timing import events as e
from simulator.timing.layout import INTEGER, NUMBER
from simulator.timing.plan import Plan


class Cause(Enum):
    """What the time of a stretch of the critical path is spent on."""

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
    """Where the time of a run goes: in columns, and as tables made when somebody looks."""

    def __init__(self, columns: PathColumns) -> None:
        self.columns = columns

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
class Path:
    """The nodes of one run, as columns: stream, instruction, whether it is a transfer, the node
    that hands over to it, when that is (`begin`), until when a table load or the dispatch of a
    transfer holds it up (`settled`), its start, when it leaves its engine free, and since when its
    engine had nothing to do. `last`: the node that ends the run, at `until`."""

    columns: list[Any]
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

LONG = 100_000
"""Nodes from which on the walk is compiled."""


def walk(path: Path, plan: Plan, dma_engines: int) -> CriticalPath:
    """The critical path of a recorded run, from its end to its start."""
    count = plan.first[-1]
    causes = len(CAUSES)
    nodes = len(path.columns[0])
    most = min(nodes, 2 * count)
    columns = [
        *path.columns,
        plan.of,
        *_templates(plan, dma_engines),
        np.zeros(2 * count, INTEGER),
        np.zeros(most, INTEGER),
        np.zeros(most * causes, NUMBER),
        np.zeros(most * causes, INTEGER),
        np.zeros(nodes, INTEGER),
        np.zeros(nodes, INTEGER),
        np.zeros(nodes, NUMBER),
    ]
    numbers = [path.last, path.until, causes, *(_NUMBER[cause] for cause in _NAMED)]
    compiled = _walk.worthwhile(nodes)
    if compiled:
        steps, stalls = _walk.compiled(*map(np.asarray, columns), *numbers)
    else:
        columns = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns]
        steps, stalls = _walk.function(*columns, *numbers)
    step, spent, order, waiting, ending, held = (np.asarray(column) for column in columns[-6:])
    charged = np.flatnonzero(order[: steps * causes])
    charged = charged[np.argsort(order[charged])]
    return CriticalPath(
        PathColumns(
            list(plan.streams),
            np.array(plan.first, INTEGER),
            step[charged // causes],
            charged % causes,
            spent[charged],
            waiting[:stalls],
            ending[:stalls],
            held[:stalls],
        )
    )


_NAMED = (
    Cause.THROTTLING, Cause.FILL_AND_DRAIN, Cause.SEMAPHORE, Cause.TABLE_LOAD, Cause.PORT,
    Cause.BANDWIDTH, Cause.DESCRIPTORS, Cause.CONVERSION, Cause.DMA_BALANCE, Cause.DMA_LATENCY,
)  # fmt: skip
"""Causes as the walk has them for arguments."""


def _templates(plan: Plan, dma_engines: int) -> list[np.ndarray]:
    """Of every template: the cause that its work is, its time at full rate, whether the tensor
    engine may slow it down; of transfers the share of evenly spread work, of descriptors, and of
    what the DMA engines compute."""
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
        cause = _NUMBER[_WORK.get(template.kind, Cause.CONTROL)]
        slowable = int(template.kind == e.MULTIPLY)
        rows.append((cause, template.interval, slowable, even, share, computed))
    kinds = (INTEGER, NUMBER, INTEGER, NUMBER, NUMBER, NUMBER)
    values = zip(*rows, strict=True) if rows else [()] * len(kinds)
    return [np.array(column, kind) for column, kind in zip(values, kinds)]


@walks.walk(worth=LONG)
def _walk(
    place: Any, number: Any, transfer: Any, before: Any, begin: Any, settled: Any, start: Any,
    free: Any, idle: Any, of: Any, work: Any, interval: Any, slowable: Any, even: Any, share: Any,
    computed: Any, rows: Any, step: Any, spent: Any, order: Any, waiting: Any, ending: Any,
    held: Any, at: int, until: float, causes: int, throttling: int, draining: int, semaphore: int,
    table: int, port: int, bandwidth: int, descriptors: int, conversion: int, balance: int,
    latency: int,
) -> tuple[int, int]:  # fmt: skip
    """Charge every node from the end on; how many steps and stalls there are. `step` has the steps
    as they come, `rows` that place of each plus 1, `spent` the causes of one behind those of
    another, `order` counts its entries as they come, `waiting`, `ending` and `held` are the
    stalls."""
    steps = stalls = charged = 0
    following, following_transfer = -1, 0
    while at >= 0:
        here = 2 * number[at] + transfer[at]
        if not rows[here]:
            step[steps] = here
            steps += 1
            rows[here] = steps
        row = (rows[here] - 1) * causes
        template = of[number[at]]
        if transfer[at]:
            moving = max(0.0, min(free[at], until) - start[at])
            parts = (
                (descriptors, moving * even[template] * share[template]),
                (conversion, moving * even[template] * computed[template]),
                (bandwidth, moving * even[template] * (1.0 - share[template] - computed[template])),
                (balance, moving * (1.0 - even[template])),
                (latency, until - begin[at] - moving),
            )
        else:
            working = min(free[at], until) - start[at]
            slowed = 0.0
            if slowable[template]:
                slowed = max(0.0, working - interval[template])
            inside = following < 0 or (following == place[at] and not following_transfer)
            parts = (
                (throttling, slowed),
                (work[template], working - slowed),
                (draining if inside else semaphore, until - max(free[at], start[at])),
                (table, settled[at] - begin[at]),
                (port, start[at] - settled[at]),
            )
        for cause, ns in parts:
            if ns > 0.0:
                spent[row + cause] += ns
                if not order[row + cause]:
                    charged += 1
                    order[row + cause] = charged
        earlier = before[at]
        if earlier >= 0 and not transfer[at] and begin[at] > idle[at]:
            waiting[stalls] = here
            ending[stalls] = 2 * number[earlier] + transfer[earlier]
            held[stalls] = begin[at] - idle[at]
            stalls += 1
        following, following_transfer = place[at], transfer[at]
        until, at = begin[at], earlier
    return steps, stalls
