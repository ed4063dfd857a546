"""The order in which the instructions of a straight-line program run, in columns.

Streams take turns as by `simulator.streams.take_turns`. Only semaphores are followed here:
instructions with the same waits and updates, and alike in whether they fetch, share a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers, starts_of
from isa.columns.jit import jit_when_long
from isa.enums import STREAMS, Engine
from isa.machine.control import CoreBarrier, DrainQueue, Halt, Nop, SendReceive, StorageBegin
from isa.program import Program
from isa.spec import Meeting
from simulator.streams import fetches
from simulator.uses import Uses, uses_of

_STRAIGHT = frozenset({Nop, DrainQueue, Halt, StorageBegin, CoreBarrier, SendReceive})
"""Control instructions that are executed once each, where they stand."""


class StraightStream(NamedTuple):
    """A stream without control flow. By place in the stream, `turn` numbers the instructions in the
    order of their core, from 1 on. `ended` is the number of the last instruction that is over by
    then: an instruction that waits for other cores uses its operands until these have come."""

    core: int
    engine: Engine
    uses: Uses
    turn: Integers
    ended: Integers


class StreamTurns(NamedTuple):
    """The streams of a program without control flow, how many cores it has, and whether semaphores
    are 0 in the end (`balanced`)."""

    cores: int
    streams: list[StraightStream]
    balanced: bool


def turns_of(program: Program) -> StreamTurns | None:
    """How the streams of a bound program take turns; None where it has loops or branches, or ends
    before its last instruction, by a deadlock perhaps."""
    streams = [
        (number, engine, uses_of(core.streams[engine]))
        for number, core in enumerate(program.cores)
        for engine in STREAMS
        if core.streams.get(engine)
    ]
    rows = {template.row for _, _, uses in streams for template in uses.templates}
    if not streams or any(row.control and row not in _STRAIGHT for row in rows):
        return None
    kinds = _Kinds()
    steps = [kinds.of(core, engine, uses) for core, engine, uses in streams]
    begins = starts_of(np.array([column.size for column in steps]))
    semaphores = np.zeros(len(kinds.semaphores) + 1, np.int64)
    order, passed = np.zeros((2, int(begins[-1])), np.int64)
    count = take_turns_in_columns(
        *(order.size, begins[:-1].copy(), begins[1:], np.concatenate(steps)),
        *(np.array(kinds.fetching), *kinds.waits.columns(), *kinds.updates.columns()),
        *(np.array(kinds.meeting), *kinds.meetings.columns(), semaphores),
        *np.zeros((3, len(streams)), np.int64),
        *(np.zeros(kinds.visits + 1, np.int64), np.full(len(streams), -1), order, passed),
    )
    if count != order.size or kinds.halts_early:
        return None
    return StreamTurns(
        len(program.cores), list(_numbered(streams, begins, order, passed)), not semaphores.any()
    )


def _numbered(
    streams: Sequence[tuple[int, Engine, Uses]], begins: Integers, order: Integers, passed: Integers
) -> Iterator[StraightStream]:
    """Streams with the turns of their instructions, which are counted core by core."""
    core = np.repeat([number for number, _, _ in streams], np.diff(begins))
    turn, ended = np.zeros((2, order.size), np.int64)
    for number in {number for number, _, _ in streams}:
        mine = core[order] == number
        turn[order[mine]] = np.arange(1, np.count_nonzero(mine) + 1)
        before = np.append(0, np.cumsum(mine))
        its = core == number
        ended[its] = np.maximum(turn[its], before[passed[its]])
    for number, (start, stop) in enumerate(zip(begins.tolist(), begins[1:].tolist())):
        yield StraightStream(*streams[number], turn[start:stop], ended[start:stop])


class _Table:
    """Lists of pairs of integers, in columns."""

    def __init__(self) -> None:
        self._starts, self._pairs = [0], list[tuple[int, int]]()

    def add(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._pairs += pairs
        self._starts.append(len(self._pairs))

    def columns(self) -> tuple[Integers, Integers, Integers]:
        first, second = np.array([*self._pairs, (0, 0)], np.int64).T
        return np.array(self._starts, np.int64), first.copy(), second.copy()


class _Kinds:
    """What steers instructions, by number: the (semaphore, amount) pairs that it `waits` for and
    `updates`, and the `meeting` at which it waits for other cores, -1 for none. Number 0 is for
    instructions that nothing steers.

    Semaphores have numbers of their own in the whole program. By a meeting and the core that comes,
    `meetings` are pairs for each of the cores: where the visits of a core are counted, and whether
    that is the core itself. There are `visits` of such counts.
    """

    def __init__(self) -> None:
        self.fetching, self.meeting = [0], [-1]
        self.waits, self.updates, self.meetings = _Table(), _Table(), _Table()
        self.waits.add([])
        self.updates.add([])
        self.semaphores: dict[tuple[int, int], int] = {}
        self.halts_early = False
        self._known: dict[Any, int] = {}
        self._counts: dict[tuple[Meeting, int], int] = {}
        self._met: dict[tuple[Meeting, int], int] = {}

    @property
    def visits(self) -> int:
        return len(self._counts)

    def of(self, core: int, engine: Engine, uses: Uses) -> Integers:
        """By place in a stream, the number of what steers the instruction."""
        found = np.zeros(len(uses), np.int64)
        columns = uses.columns
        for template, numbers, places in zip(uses.templates, columns.numbers, uses.places):
            row = template.row
            self.halts_early |= row is Halt and int(places[0]) != len(uses) - 1
            fetching = engine is not Engine.unknown and fetches(template)
            met = self._meeting(row.meeting(template.values, core), core) if row.meets else -1
            pairs = numbers[:, 0]
            kinds = np.zeros(len(columns.semaphores), np.int64)
            for pair in np.flatnonzero(np.bincount(pairs)).tolist():
                kinds[pair] = self._kind(core, *columns.semaphores[pair], fetching, met)
            found[places] = kinds[pairs]
        return found

    def _kind(self, core: int, waits: Any, updates: Any, fetching: bool, met: int) -> int:
        if not (waits or updates or fetching or met >= 0):
            return 0
        key = core, waits, updates, fetching, met
        number = self._known.setdefault(key, len(self.fetching))
        if number == len(self.fetching):
            self.fetching.append(int(fetching))
            self.meeting.append(met)
            for table, pairs in ((self.waits, waits), (self.updates, updates)):
                table.add([(self._semaphore(core, one), amount) for one, amount in pairs])
        return number

    def _semaphore(self, core: int, number: int) -> int:
        return self.semaphores.setdefault((core, number), len(self.semaphores))

    def _meeting(self, meeting: Meeting, core: int) -> int:
        if (meeting, core) not in self._met:
            self._met[meeting, core] = len(self._met)
            counts = [self._counts.setdefault((meeting, c), len(self._counts)) for c in meeting[1]]
            self.meetings.add([(at, int(c == core)) for at, c in zip(counts, meeting[1])])
        return self._met[meeting, core]


@jit_when_long("semaphores", "order", "passed")
def take_turns_in_columns(
    positions: Any,
    ends: Any,
    steps: Any,
    fetching: Any,
    wait_starts: Any,
    wait_semaphores: Any,
    wait_amounts: Any,
    update_starts: Any,
    update_semaphores: Any,
    update_amounts: Any,
    meeting: Any,
    meeting_starts: Any,
    meeting_visits: Any,
    meeting_own: Any,
    semaphores: Any,
    stuck: Any,
    stuck_amount: Any,
    stuck_fetching: Any,
    visits: Any,
    issued: Any,
    order: Any,
    passed: Any,
) -> Any:
    """Fill in `order`, the instructions as they run, and in `passed` how many had been begun when
    one that waits for other cores went on. Gives how many run.

    A stream is stuck while semaphore `stuck` has less than `stuck_amount`, and until it may fetch
    where `stuck_fetching`; nothing updates the last semaphore.
    """
    count = following = fetch = 0
    streams = len(ends)
    never = len(semaphores) - 1
    while True:
        progress = False
        for position in range(streams):
            stream = (position + fetch * following) % streams
            if stuck_fetching[stream] > fetch or semaphores[stuck[stream]] < stuck_amount[stream]:
                continue
            stuck_amount[stream] = 0
            at = start = positions[stream]
            end = ends[stream]
            while at < end:
                kind = steps[at]
                if kind == 0:
                    order[count] = at
                    count += 1
                    at += 1
                    continue
                if fetching[kind] > fetch:
                    stuck_fetching[stream] = 1
                    break
                met = meeting[kind]
                if issued[stream] < 0:
                    missing = -1
                    for wait in range(wait_starts[kind], wait_starts[kind + 1]):
                        if semaphores[wait_semaphores[wait]] < wait_amounts[wait]:
                            missing = wait
                    if missing >= 0:
                        stuck[stream] = wait_semaphores[missing]
                        stuck_amount[stream] = wait_amounts[missing]
                        break
                    for wait in range(wait_starts[kind], wait_starts[kind + 1]):
                        semaphores[wait_semaphores[wait]] -= wait_amounts[wait]
                    order[count] = at
                    count += 1
                    if met >= 0:
                        for one in range(meeting_starts[met], meeting_starts[met + 1]):
                            if meeting_own[one]:
                                visits[meeting_visits[one]] += 1
                                issued[stream] = visits[meeting_visits[one]]
                if met >= 0:
                    here = True
                    for one in range(meeting_starts[met], meeting_starts[met + 1]):
                        if visits[meeting_visits[one]] < issued[stream]:
                            here = False
                    if not here:
                        break
                    issued[stream] = -1
                    passed[at] = count
                for update in range(update_starts[kind], update_starts[kind + 1]):
                    semaphores[update_semaphores[update]] += update_amounts[update]
                at += 1
                if fetching[kind]:
                    stuck_fetching[stream] = 0
                    break
            positions[stream] = at
            if at == end:
                stuck[stream] = never
                stuck_amount[stream] = 1
            if at != start:
                progress = True
                if fetch:
                    following = position + following + 1
                    break
        if not progress and fetch:
            return count
        fetch = 0 if progress else 1
