"""Tells what is wrong with one execution of a program: unordered accesses, and signals amiss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from isa.access import UNBOUNDED, AccessPattern
from isa.columns import distinct, joined
from isa.errors import NeuronError
from isa.machine import control
from isa.spec import Instruction
from simulator.exchange import misfit
from simulator.races.accesses import StepAccesses
from simulator.races.clocks import Clocks, ExpansionSteps
from simulator.races.prepare import Prepared
from simulator.races.race import Bounds, Race, Site
from simulator.races.replicated import Key, replica_key
from simulator.races.same_writes import SameWrites, meetings_of

_KINDS = {(True, False): "RAW", (False, True): "WAR", (True, True): "WAW"}


class Findings:
    """The findings of one execution, at most `limit`, in the order in which it comes to them.

    They are in `found`, one for each pair of instructions; those in `in_step` are none if the cores
    run in step (`simulator.races.replicated`).
    """

    def __init__(
        self,
        prepared: Prepared,
        steps: ExpansionSteps,
        accesses: StepAccesses,
        clocks: Clocks,
        limit: int,
    ) -> None:
        self.prepared = prepared
        self.steps = steps
        self.accesses = accesses
        self.clocks = clocks
        self.limit = limit
        self.found: dict[Any, Race] = {}
        self.in_step: dict[Any, Race] = {}
        self._replicas: dict[Key, dict[int, list[int]]] | None = None
        self._numbers: SameWrites | None = None
        self._collect()

    def _collect(self) -> None:
        turn = self.clocks.by_step(self.clocks.turn)
        amiss = [*self._shared_queues(), *self._shared(), *self._partners()]
        amiss.sort(key=lambda one: (turn[one[0]], one[0]))
        for old, new in self._unordered():
            step = int(self.accesses.step[new])
            while amiss and (turn[amiss[0][0]], amiss[0][0]) <= (turn[step], step):
                self._add(*amiss.pop(0)[1:])
            if len(self.found) >= self.limit:
                return
            self._race(old, new)
        for _, key, race in amiss:
            self._add(key, race)
        blocked = self.clocks.stuck
        if blocked and len(self.found) < self.limit:
            self._deadlock(blocked)

    def _add(self, key: Any, race: Race) -> None:
        if len(self.found) < self.limit:
            self.found.setdefault(key, race)

    # -- accesses -----------------------------------------------------------------------------

    def _unordered(self) -> Iterator[tuple[int, int]]:
        """Unordered pairs of accesses, of those that are told alike the first."""
        accesses = self.accesses
        for pairs in accesses.unordered(self.clocks):
            columns = []
            for side in pairs:
                far = accesses.boxes.columns[accesses.box[side]][:, [2, 4]].max(axis=1)
                instruction = self.steps.instruction[accesses.step[side]]
                columns += [instruction, accesses.write[side] * 1, (far >= UNBOUNDED) * 1]
            first = np.sort(distinct(joined(columns)).first)
            yield from zip(pairs.earlier[first].tolist(), pairs.later[first].tolist())

    def _race(self, old: int, new: int) -> None:
        accesses, prepared = self.accesses, self.prepared
        steps = [int(accesses.step[access]) for access in (old, new)]
        writes = [bool(accesses.write[access]) for access in (old, new)]
        numbers = (self._number(steps[0]), self._number(steps[1]))
        if numbers in self.found or (numbers in self.in_step and not all(writes)):
            return
        twice = self._made_by_both(*numbers)
        boxes = [int(accesses.box[access]) for access in (old, new)]
        memory = int(accesses.boxes.columns[boxes[0], 0])
        if self._core(numbers[0]) != self._core(numbers[1]):
            anywhere = any(accesses.boxes.anywhere(box) for box in boxes)
            tensor = memory - prepared.layout.first_tensor
            picked = any(_picks(prepared.instruction(number), tensor) for number in numbers)
            if anywhere or (picked and (not any(twice) or (all(twice) and all(writes)))):
                return  # where is known in a run, which checks it (`dynamic_accesses`)
        made_twice = all(twice) and all(writes)
        if made_twice and all(map(self._writes_the_same, numbers)):
            return  # whichever comes last leaves the same bytes
        first, second = (self._site(step, write) for step, write in zip(steps, writes))
        if _author_order(second) < _author_order(first):
            first, second = second, first
        kind = _KINDS[first.writes, second.writes]
        partitions, shared_bytes = self._shared_bytes(memory, *boxes)
        race = Race(
            kind if first.core == second.core else "cross-core",
            first,
            second,
            prepared.layout.describe(memory),
            partitions,
            shared_bytes,
        )
        if made_twice:
            self.found[numbers] = race.differing()
        else:
            (self.in_step if any(twice) else self.found).setdefault(numbers, race)

    def _writes_the_same(self, number: int) -> bool:
        """Whether all cores that make the write of an instruction write the same, each time."""
        key = replica_key(self.prepared.instruction(number))
        same = self.accesses.same_writes
        if key not in same:
            if self._numbers is None:
                self._numbers = SameWrites(self.prepared, self.steps, self.clocks)
            assert self._replicas is not None and key is not None
            written = [self._numbers.written(numbers) for numbers in self._replicas[key].values()]
            same[key] = all(one == written[0] for one in written)
        return same[key]

    def _made_by_both(self, first: int, second: int) -> tuple[bool, bool]:
        """Of instructions of different cores, which are writes that both cores make."""
        if self._core(first) == self._core(second):
            return False, False
        if self._replicas is None:
            self._replicas = {}
            for core in range(self._cores):
                for number in self._may_be_replicas(core):
                    key = replica_key(self.prepared.instruction(number))
                    if key is not None:
                        self._replicas.setdefault(key, {}).setdefault(core, []).append(number)
        left, right = (replica_key(self.prepared.instruction(n)) for n in (first, second))
        return (
            left is not None and self._core(second) in self._replicas[left],
            right is not None and self._core(first) in self._replicas[right],
        )

    @property
    def _cores(self) -> int:
        return len(self.prepared.program.cores)

    def _may_be_replicas(self, core: int) -> list[int]:
        """The numbers of the instructions of a core that may be replicas."""
        prepared = self.prepared
        templates = prepared.templates
        may = [
            prepared.streams[stream][0] == core and replica_key(template) is not None
            for stream, template in zip(templates.stream, templates.instructions)
        ]
        found: list[int] = np.flatnonzero(np.array(may, np.bool_)[prepared.template]).tolist()
        return found

    def _shared_bytes(self, memory: int, *boxes: int) -> tuple[Bounds | None, Bounds]:
        """Partitions and bytes in which two boxes meet, or None and bytes of the tensor."""
        layout = self.prepared.layout
        columns = self.accesses.boxes.columns[list(boxes), 1:]
        row0, first = columns[:, [0, 2]].max(axis=0).tolist()
        row1, end = columns[:, [1, 3]].min(axis=0).tolist()
        if memory < layout.first_tensor:
            return (row0, row1), (first, None if end >= UNBOUNDED else end)
        if row1 >= UNBOUNDED or end >= UNBOUNDED:
            return None, (0, None)
        pitch = layout.pitch(memory - layout.first_tensor)
        return None, (row0 * pitch + first, (row1 - 1) * pitch + end)

    # -- signals ------------------------------------------------------------------------------

    def _shared_queues(self) -> list[tuple[int, Any, Race]]:
        """Queues that two engines feed: the step at which that shows, key, finding."""
        prepared, steps, found = self.prepared, self.steps, []
        turn = self.clocks.by_step(self.clocks.turn)
        feeders: dict[tuple[int, int], list[int]] = {}
        for number, (core, index, _) in enumerate(prepared.queues):
            feeders.setdefault((core, index), []).append(steps.engines + number)
        for (core, index), streams in feeders.items():
            if len(streams) < 2:
                continue
            fed = [np.flatnonzero((steps.stream == one) & (turn >= 0))[:1] for one in streams]
            at = sorted((turn[one], one) for one in np.concatenate(fed).tolist())
            if len(at) > 1:
                detail = f"queue {index} of core {core} is fed by two engines"
                found.append(self._shared_finding("queue-shared", at[0][1], at[1][1], detail))
        return found

    def _shared(self) -> list[tuple[int, Any, Race]]:
        """Semaphores whose units, and cores whose barriers, have no one order."""
        clocks, found = self.clocks, []
        names = [self._channel_name(channel) for channel in range(clocks.channels)]
        tables = (
            ("semaphore-shared", clocks.consumers, names, "is waited for by two engines"),
            ("semaphore-shared", clocks.producers, names, "is updated by two streams in no order"),
            (
                "barrier-shared",
                clocks.barriers,
                [f"core {core}" for core in range(self._cores)],
                "reaches two core barriers in no order",
            ),
        )
        for kind, pairs, whose, what in tables:
            for (first, second), name in zip(pairs.tolist(), whose):
                if second >= 0:
                    at = int(clocks.step[first]), int(clocks.step[second])
                    found.append(self._shared_finding(kind, *at, f"{name} {what}"))
        return found

    def _shared_finding(
        self, kind: str, first: int, second: int, detail: str
    ) -> tuple[int, Any, Race]:
        a, b = self._site(first, False, False), self._site(second, False, False)
        race = Race(kind, a, b, "", detail=f"{detail}: {a} and {b}")
        return second, (kind, detail), race

    def _partners(self) -> list[tuple[int, Any, Race]]:
        """Cores that exchange tiles must send what their partners expect."""
        found = []
        known: dict[tuple[int, ...], NeuronError | None] = {}
        for came in self._exchanges():
            numbers = tuple(map(self._number, came))
            if numbers not in known:
                known[numbers] = misfit(
                    {self._core(n): self.prepared.instruction(n) for n in numbers}
                )
            error = known[numbers]
            if error is not None:
                first, second = (self._site(came[at], False, False) for at in (0, -1))
                race = Race("partner", first, second, "", detail=error.what, code=error.code)
                found.append((came[-1], ("partner", error.what), race))
        return found

    def _exchanges(self) -> list[list[int]]:
        """The steps that meet to exchange tiles, each time in the order in which they come."""
        return [
            came
            for came in meetings_of(self.prepared, self.steps, self.clocks)
            if self._instruction(came[0]).row is control.SendReceive
        ]

    def _deadlock(self, blocked: list[int]) -> None:
        clocks = self.clocks
        at = [int(clocks.step[clocks.position[engine]]) for engine in blocked]
        cores = [self.prepared.streams[engine][0] for engine in blocked]
        meeting = [bool(clocks.at_meeting[engine]) for engine in blocked]
        stuck = set(cores) - {core for core, meets in zip(cores, meeting) if meets}
        if any(meeting) and not stuck:
            self._absent(at[meeting.index(True)])
            return
        lines, sites = [], []
        for engine, step in zip(blocked, at):
            sites.append(self._site(step, False))
            held = clocks.held.tolist()
            lacks = [
                f"{amount} of {self._channel_name(channel)}, which holds {held[channel]}"
                for channel, amount in clocks.waits[clocks.kind[clocks.position[engine]]]
                if held[channel] < amount
            ]
            lines.append(f"{sites[-1]} waits for " + (" and ".join(lacks) or "other cores"))
        detail = "no engine can go on: " + "; ".join(lines)
        self.found["deadlock"] = Race(
            "deadlock", sites[0], sites[-1], "", detail=detail, code="deadlock"
        )

    def _absent(self, step: int) -> None:
        """A core waits for another that never comes."""
        number = self._number(step)
        instruction, mine = self.prepared.instruction(number), self._core(number)
        place, cores = instruction.row.meeting(instruction.values, mine)
        others = ", ".join(str(core) for core in cores if core != mine)
        site = self._site(step, False)
        detail = f"{site} ({place}) waits for core {others}, which does not come as often"
        self.found["deadlock"] = Race("absent", site, site, "", detail=detail, code="deadlock")

    # -- names --------------------------------------------------------------------------------

    def _number(self, step: int) -> int:
        """The number of the instruction of a step."""
        return int(self.steps.instruction[step])

    def _instruction(self, step: int) -> Instruction:
        """The template of a step."""
        return self.prepared.templates.instructions[self.steps.template[step]]

    def _core(self, number: int) -> int:
        """The core of an instruction."""
        stream = self.prepared.templates.stream[self.prepared.template[number]]
        return self.prepared.streams[stream][0]

    def _channel_name(self, channel: int) -> str:
        core, semaphore = list(self.prepared.kinds.channels)[channel]
        return f"semaphore {semaphore} of core {core}"

    def _site(self, step: int, writes: bool, rounds: bool = True) -> Site:
        prepared = self.prepared
        number, template = self._number(step), int(self.steps.template[step])
        templates = prepared.templates
        stream = templates.stream[template]
        core, engine = prepared.streams[stream]
        queue = max(templates.queue[template], templates.drained[template])
        return Site(
            core,
            engine,
            number - int(prepared.begins[stream]),
            self.steps.expansion.iteration(step) if rounds else (),
            templates.instructions[template].row.name,
            list(prepared.queues)[queue][1] if queue >= 0 else -1,
            writes,
            prepared.location(number),
        )


def _picks(instruction: Instruction, tensor: int) -> bool:
    """Whether an instruction accesses rows of an HBM tensor that indices pick."""
    return any(
        isinstance(pattern, AccessPattern)
        and pattern.tensor == tensor
        and pattern.vector_offset is not None
        for pattern in instruction.values
    )


def _author_order(at: Site) -> tuple[Any, ...]:
    """What tells which of two unordered accesses the author meant to come first."""
    line = at.location.line if at.location else 0
    return (at.iteration[:1], line, at.iteration)
