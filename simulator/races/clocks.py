"""Vector clocks of the engines, from one execution of the expanded streams.

They follow one execution of the expanded streams. Only signals matter for it: the steps that wait,
tell others, drain a queue, or meet other cores; the first step of every engine counts as one. A
stream of events is an engine's or that of the transfers that an engine puts on a queue. What an
engine knows is a row: how many events of each stream have completed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from isa.columns import Integers, starts_of
from isa.columns.jit import jit_when_long
from isa.files.stream import Pairs
from simulator.races.expand import Expansion
from simulator.races.prepare import Kinds, Prepared


class Amounts(NamedTuple):
    """Pairs of channels and amounts of each kind: kind n has those from `starts[n]` on."""

    starts: Integers
    channel: Integers
    amount: Integers

    @classmethod
    def of(cls, kinds: list[Pairs]) -> Amounts:
        pairs = np.array([pair for kind in kinds for pair in kind], np.int64).reshape(-1, 2)
        starts = starts_of(np.array([len(kind) for kind in kinds], np.int64))
        return cls(starts, np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1]))


class ExpansionSteps:
    """The steps of an expansion: by step its `engine`, the `stream` and `epoch` of its end, and its
    number `number` among those of its engine, from 1 on. Streams are numbered: the engines first,
    then the queues of `Prepared`."""

    def __init__(self, prepared: Prepared, expansion: Expansion) -> None:
        begins = expansion.begins
        self.expansion = expansion
        self.instruction = expansion.instruction
        self.template = prepared.template[self.instruction]
        self.engines = len(prepared.streams)
        self.streams = self.engines + len(prepared.queues)
        counts = np.diff(begins)
        self.engine = np.repeat(np.arange(self.engines), counts)
        self.number = np.arange(1, self.instruction.size + 1) - np.repeat(begins[:-1], counts)
        self.stream, self.epoch = self.engine.copy(), self.number.copy()
        queue = np.array(prepared.templates.queue, np.int64)
        drained = np.array(prepared.templates.drained, np.int64)
        self.learned_stream, self.learned_epoch = np.full((2, self.number.size), -1)
        queued = np.flatnonzero((queue[self.template] >= 0) | (drained[self.template] >= 0))
        of, by = queue[self.template[queued]], drained[self.template[queued]]
        for number in range(len(prepared.queues)):
            transfers, drains = queued[of == number], queued[by == number]
            self.stream[transfers] = self.engines + number
            self.epoch[transfers] = np.arange(1, transfers.size + 1)
            self.learned_stream[drains] = self.engines + number
            self.learned_epoch[drains] = np.searchsorted(transfers, drains)


class Clocks:
    """The walk over the signals of all engines.

    By signal: its `step`, the `turn` in which it was passed (-1: it never was), what its engine
    knew then, a row of `rows`, and the `arrival` at a meeting, if it is one. `position` is where
    each engine came to, and `at_meeting` whether it waits there for other cores. `consumers` and
    `producers` are, by channel, two signals that take its units or produce them in no order, -1
    without any. `barriers` are, by core, two meetings that it comes to in no order. Channel c has
    the events from `units_begin[c]` on: the signal that is `sender` of each, and the `units` up to
    and with those of it. `held` is what is left of them.

    Where `ignored` is a kind and a channel, that wait takes its units and orders nothing.
    """

    def __init__(
        self,
        prepared: Prepared,
        steps: ExpansionSteps,
        kinds: Kinds | None = None,
        ignored: tuple[int, int] = (-1, -1),
    ) -> None:
        kinds = prepared.kinds if kinds is None else kinds
        kind = kinds.of[steps.instruction]
        self.waits = kinds.waits
        waits, updates = Amounts.of(kinds.waits), Amounts.of(kinds.updates)
        orders = np.ones(waits.channel.size, np.int64)
        if ignored[0] >= 0:
            mine = slice(*waits.starts[ignored[0] : ignored[0] + 2])
            orders[mine] = waits.channel[mine] != ignored[1]
        meeting = np.array(prepared.templates.meeting, np.int64)[steps.template]
        signal = (kind != 0) | (steps.learned_stream >= 0) | (meeting >= 0)
        begins = steps.expansion.begins
        present = begins[:-1] < begins[1:]
        signal[begins[:-1][present]] = True
        self.signal = signal
        self.step = np.flatnonzero(signal)
        self.begins = np.searchsorted(self.step, begins)
        self.kind = kind[self.step]
        self.channels = len(kinds.channels)
        self._follow(prepared, steps, meeting[self.step], waits, orders, updates)

    def _follow(
        self,
        prepared: Prepared,
        steps: ExpansionSteps,
        meeting: Integers,
        waits: Amounts,
        orders: Integers,
        updates: Amounts,
    ) -> None:
        step, kind, signals = self.step, self.kind, self.step.size
        cores = len(prepared.program.cores)
        core = np.array([core for core, _ in prepared.streams], np.int64)
        learns = np.diff(waits.starts)[kind] > 0
        drains = steps.learned_stream[step] >= 0
        rows = 1 + int((learns | drains).sum()) + int((meeting >= 0).sum())
        events = np.diff(updates.starts)[kind]
        sent = np.zeros(self.channels, np.int64)
        often = np.bincount(kind, minlength=updates.starts.size - 1)
        np.add.at(sent, updates.channel, np.repeat(often, np.diff(updates.starts)))
        self.units_begin = starts_of(sent)
        self.turn, self.row, self.arrival = np.full((3, signals), -1)
        self.row[:] = 0
        self.rows = np.zeros((rows, steps.streams), np.int32)
        self.position = self.begins[:-1].copy()
        self.at_meeting = np.zeros(steps.engines, np.int64)
        self.consumers, self.producers = np.full((2, self.channels, 2), -1)
        self.barriers = np.full((cores, 2), -1)
        self.units, self.sender = np.zeros((2, int(events.sum())), np.int64)
        sizes = [len(cores) for _, cores in prepared.meetings]
        of_channel = np.zeros((6, self.channels + 1), np.int64)
        place = np.where(meeting >= 0, meeting * cores + core[steps.engine[step]], -1)
        follow(
            signals,
            kind,
            steps.stream[step],
            steps.epoch[step],
            steps.number[step],
            steps.engine[step],
            steps.learned_stream[step],
            steps.learned_epoch[step],
            meeting,
            place,
            self.begins,
            *waits,
            orders,
            *updates,
            np.array(sizes, np.int64),
            core,
            self.units_begin,
            of_channel,
            np.zeros((6, steps.engines), np.int64),
            np.full((3, len(sizes) * cores + 1), -1),
            self.turn,
            self.row,
            self.arrival,
            self.rows,
            self.position,
            self.at_meeting,
            self.consumers,
            self.producers,
            self.barriers,
            self.units,
            self.sender,
        )
        self.held = of_channel[0] - of_channel[1]

    @property
    def stuck(self) -> list[int]:
        """The engines that cannot go on."""
        return np.flatnonzero(self.position < self.begins[1:]).tolist()

    def by_step(self, column: Integers) -> Integers:
        """A column of signals by step: that of the last signal at or before it."""
        return column[np.cumsum(self.signal) - 1]


@jit_when_long(
    *("turn", "row", "arrival", "rows", "position", "at_meeting"),
    *("consumers", "producers", "barriers", "units", "sender", "of_channel"),
)
def follow(
    kind: Any,
    stream: Any,
    epoch: Any,
    number: Any,
    engine_of: Any,
    learned_stream: Any,
    learned_epoch: Any,
    meeting: Any,
    place: Any,
    begins: Any,
    wait_starts: Any,
    wait_channel: Any,
    wait_amount: Any,
    wait_orders: Any,
    update_starts: Any,
    update_channel: Any,
    update_amount: Any,
    sizes: Any,
    core: Any,
    units_begin: Any,
    of_channel: Any,
    of_engine: Any,
    of_place: Any,
    turn: Any,
    row: Any,
    arrival: Any,
    rows: Any,
    position: Any,
    at_meeting: Any,
    consumers: Any,
    producers: Any,
    barriers: Any,
    units: Any,
    sender: Any,
) -> None:
    """Run the engines by turns, each until it has to wait.

        for each engine that can go on, for each of its signals from `position[engine]` on:
            if a channel has less than it waits for: block until a producer adds enough
            take the units; known = max(known, row of the signal that produced them)
            if it drains a queue: known[queue] = the transfers issued so far
            at a meeting: wait until all have come; all go on with the maximum of their rows
            row[signal] = known
            add the units of its updates to their channels; unblock who waits for them

    `known` is a row of `rows`, the vector clock: by stream, how many of its events have completed.
    A row is never changed once a signal has it; who learns something begins a new one (`fresh`). On
    the way it notes what would make the match of waits and updates depend on the order of a run.
    One such case is two engines that take from one channel (`consumers`). The others are two
    signals that do not know of each other, and add to one channel (`producers`) or come to one
    meeting for a core (`barriers`).

    Columns from `kind` to `place` are by signal, `wait_` and `update_` by kind of signal (as in
    `Amounts`). `of_channel`, `of_engine` and `of_place` are room for what is named below. The last
    twelve are results (`Clocks`). A channel holds what has been `produced` and not `taken`. Its
    events are in `units` (a running sum) and `sender`: those before `head` are used up, the last is
    before `tail`. `first` is one more than the signal that took from it first, `waiters` how many
    engines wait for its units. `at_meeting` is 1 where an engine waits for other cores, and 2 where
    these have come.
    """
    engines, streams = len(begins) - 1, len(rows[0])
    produced, taken, head, tail = of_channel[0], of_channel[1], of_channel[2], of_channel[3]
    first, waiters = of_channel[4], of_channel[5]
    current, blocked, needed = of_engine[0], of_engine[1], of_engine[2]
    ready, met, meets = of_engine[3], of_engine[4], of_engine[5]
    attended, last_came, arrivals = of_place[0], of_place[1], 0
    for channel in range(len(units_begin) - 1):
        head[channel] = tail[channel] = units_begin[channel]
    for engine in range(engines):
        ready[engine] = engine
        blocked[engine] = -1
    oldest, waiting, now, next_row = 0, engines, -1, 1
    while waiting > 0:
        engine = ready[oldest]
        oldest = (oldest + 1) % engines
        waiting -= 1
        now += 1
        known = current[engine]
        at, end = position[engine], begins[engine + 1]
        while at < end:
            one = kind[at]
            fresh = -1
            if at_meeting[engine] != 0:  # it has been released
                at_meeting[engine] = 0
            else:
                begin, behind = wait_starts[one], wait_starts[one + 1]
                lacking = -1
                for w in range(begin, behind):
                    channel = wait_channel[w]
                    if produced[channel] - taken[channel] < wait_amount[w]:
                        lacking = channel
                        needed[engine] = wait_amount[w]
                        break
                if lacking >= 0:
                    blocked[engine] = lacking
                    waiters[lacking] += 1
                    break
                for w in range(begin, behind):
                    channel = wait_channel[w]
                    if first[channel] == 0:
                        first[channel] = at + 1
                    elif engine_of[first[channel] - 1] != engine and consumers[channel][1] < 0:
                        consumers[channel][0] = first[channel] - 1
                        consumers[channel][1] = at
                    taken[channel] += wait_amount[w]
                    event = head[channel]
                    while units[event] < taken[channel]:
                        event += 1
                    head[channel] = event
                    if wait_orders[w] == 0:
                        continue
                    signal = sender[event]
                    source, count = stream[signal], epoch[signal]
                    mine = rows[known]
                    if source == engine or mine[source] >= count:
                        continue
                    theirs = rows[row[signal]]
                    if fresh < 0:
                        fresh = next_row
                        next_row += 1
                    learned = rows[fresh]
                    for s in range(streams):
                        learned[s] = mine[s] if mine[s] >= theirs[s] else theirs[s]
                    issuer = engine_of[signal]
                    if learned[issuer] < number[signal]:
                        learned[issuer] = number[signal]
                    learned[source] = count
                    known = fresh
                source = learned_stream[at]
                if source >= 0 and rows[known][source] < learned_epoch[at]:
                    mine = rows[known]
                    if fresh < 0:
                        fresh = next_row
                        next_row += 1
                    learned = rows[fresh]
                    for s in range(streams):
                        learned[s] = mine[s]
                    learned[source] = learned_epoch[at]
                    known = fresh
                where = meeting[at]
                if where >= 0:
                    here = place[at]
                    last = last_came[here]
                    if last >= 0 and engine_of[last] != engine:
                        if rows[known][engine_of[last]] < number[last]:
                            if barriers[core[engine]][1] < 0:
                                barriers[core[engine]][0] = last
                                barriers[core[engine]][1] = at
                    last_came[here] = at
                    attended[here] += 1
                    arrival[at] = arrivals
                    arrivals += 1
                    meets[engine], met[engine] = where, attended[here]
                    there = 1
                    for other in range(engines):
                        if at_meeting[other] == 1 and meets[other] == where:
                            if met[other] == met[engine]:
                                there += 1
                    if there < sizes[where]:
                        at_meeting[engine] = 1
                        break
                    learned = rows[next_row]
                    mine = rows[known]
                    for s in range(streams):
                        learned[s] = mine[s]
                    for other in range(engines):
                        if at_meeting[other] == 1 and meets[other] == where:
                            if met[other] == met[engine]:
                                theirs = rows[current[other]]
                                for s in range(streams):
                                    if learned[s] < theirs[s]:
                                        learned[s] = theirs[s]
                    for other in range(engines):
                        if at_meeting[other] == 1 and meets[other] == where:
                            if met[other] == met[engine]:
                                if learned[other] < number[position[other]]:
                                    learned[other] = number[position[other]]
                                at_meeting[other] = 2
                                current[other] = next_row
                                ready[(oldest + waiting) % engines] = other
                                waiting += 1
                    if learned[engine] < number[at]:
                        learned[engine] = number[at]
                    known = next_row
                    next_row += 1
            turn[at] = now
            row[at] = known
            for u in range(update_starts[one], update_starts[one + 1]):
                channel = update_channel[u]
                if tail[channel] > units_begin[channel]:
                    last = sender[tail[channel] - 1]
                    source = stream[last]
                    if source != stream[at] and source != engine:
                        if rows[known][source] < epoch[last] and producers[channel][1] < 0:
                            producers[channel][0] = last
                            producers[channel][1] = at
                produced[channel] += update_amount[u]
                units[tail[channel]] = produced[channel]
                sender[tail[channel]] = at
                tail[channel] += 1
                if waiters[channel] > 0:
                    held = produced[channel] - taken[channel]
                    for other in range(engines):
                        if blocked[other] == channel and held >= needed[other]:
                            blocked[other] = -1
                            waiters[channel] -= 1
                            ready[(oldest + waiting) % engines] = other
                            waiting += 1
            at += 1
        position[engine], current[engine] = at, known
