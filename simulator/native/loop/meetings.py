"""Where cores meet, in the native loop: barriers, and exchanges of tiles.

A core that comes says so in the words of `simulator.exchange.Attendance`, and its stream is blocked
until all have come. With the last one of an exchange the tiles move: all of them into memory on
their way, then all from there. Where what cores bring does not fit, or is not initialised, Python
makes the exchange, also of what others brought in native code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from isa.machine import control
from isa.spec import Instruction, Meeting
from simulator.exchange import Attendance, form
from simulator.native.codegen.structure import Structure, StructureAt, WordMemory
from simulator.native.codegen.text import WORD, Value
from simulator.native.loop.operands import OperandText
from simulator.native.plans.iteration_space import dims
from simulator.native.plans.plan import Bound, inner_job
from simulator.native.rows.copy import bits_plan
from simulator.native.threads.workers import run_parts
from simulator.views import Array

if TYPE_CHECKING:
    from simulator.native.loop.walk import LoopText
    from simulator.prepare import Preparation


MEETING = Structure(
    *("counts", "state", "cores", "own", "sequence", "slots"),
    *("sender", "partner", "received", "sent"),
)
"""What a record says of a meeting: the addresses of the two arrays of its `Attendance`, how many
cores there are, and the place of its own among them; the number of the meeting that it has come to,
-1 where Python was told of it. Of an exchange also: the address of the records that cores have come
with, and the places of the core that it receives from and of the one that it sends to. Numbers
stand for the forms of both tiles."""

_PYTHON, _OVER = range(2)
"""Words of `Attendance.state`."""


class MeetingTable:
    """The meetings of a program while it is packed."""

    def __init__(self, memory: WordMemory) -> None:
        self._memory = memory
        self._slots: dict[Meeting, int] = {}
        self._forms: dict[tuple[Any, ...], int] = {}

    def barrier(self, attendance: Attendance, core: int) -> int:
        """The address of the `MEETING` of a core at a barrier."""
        return self._place(attendance, core)

    def exchange(
        self, meeting: Meeting, attendance: Attendance, core: int, values: Sequence[Any]
    ) -> int | None:
        """The address of the `MEETING` of a core at an exchange; None where a partner never
        comes."""
        dst, src, send_to, receive_from = values[:4]
        if send_to not in attendance.cores or receive_from not in attendance.cores:
            return None
        if meeting not in self._slots:
            self._slots[meeting] = self._memory.room(len(attendance.cores))
        return self._place(
            *(attendance, core),
            slots=self._slots[meeting],
            sender=attendance.cores.index(receive_from),
            partner=attendance.cores.index(send_to),
            received=self._form(dst),
            sent=self._form(src),
        )

    def _form(self, view: Array) -> int:
        return self._forms.setdefault(form(view), len(self._forms))

    def _place(self, attendance: Attendance, core: int, **members: int) -> int:
        self._memory.keep(attendance)
        words = MEETING.words(
            counts=ctypes.addressof(attendance.counts),
            state=ctypes.addressof(attendance.state),
            cores=len(attendance.cores),
            own=attendance.cores.index(core),
            **members,
        )
        return ctypes.addressof(self._memory.words(words))


@dataclass(frozen=True, slots=True)
class ExchangeBound:
    """The two jobs of a core at an exchange, and where its `MEETING` is."""

    bound: Bound
    place: int


def exchanged(
    preparation: Preparation,
    instruction: Instruction,
    values: Sequence[Any],
    meetings: MeetingTable,
) -> ExchangeBound | None:
    """What takes the tile of a core on its way, and what brings the other one; None where Python
    makes the exchange."""
    assert instruction.row is control.SendReceive
    core, exchange = preparation.state.number, preparation.barriers.exchange
    meeting = instruction.row.meeting(instruction.values, core)
    place = meetings.exchange(meeting, exchange.attendances[meeting], core, values)
    if place is None:
        return None
    dst, src, _, receive_from = values[:4]
    out, back = exchange.room(meeting, core, src), exchange.room(meeting, receive_from, dst)
    plans = [
        bits_plan(target, source, dims(source.shape, source.strides))
        for target, source in ((out, src), (dst, back))
    ]
    if plans[0] is None or plans[1] is None:
        return None
    jobs = (
        inner_job(plans[0], preparation.state, out, src, 1, 1),
        inner_job(plans[1], preparation.state, dst, back, 0, 0),
    )
    # They run when all cores have come, and so wait in no queue.
    return ExchangeBound(Bound([job._replace(by_row=False) for job in jobs], (out, back)), place)


class MeetingText:
    """Writes into `f` what the records of meetings do. Labels: `waits` blocks the stream until
    another one has gone on."""

    def __init__(self, f: LoopText, structures: tuple[Structure, Structure], waits: str) -> None:
        self.f = f
        self._record, self._job = structures
        self._waits = waits

    def _meeting(self, record: StructureAt) -> StructureAt:
        return StructureAt(self.f, MEETING, record.get("target", "ptr"))

    def _count(self, meeting: StructureAt, place: Value) -> Value:
        """Where it is counted how often a core has come."""
        return self.f.element_at(meeting.get("counts", "ptr"), place, WORD)

    def _state(self, meeting: StructureAt, word: int) -> Value:
        """Where a word of the state is."""
        return self.f.element_at(meeting.get("state", "ptr"), self.f.integer(word), WORD)

    def _each(self, meeting: StructureAt, body: Callable[[Value], None]) -> None:
        self.f.loop(self.f.integer(0), meeting.get("cores"), 1, body)

    def _unless_all(self, meeting: StructureAt, number: Value, label: str) -> None:
        """To a label unless all cores have come so often."""

        def one(place: Value) -> None:
            came = self.f.load(self._count(meeting, place), "i64")
            self.f.leave_if(self.f.compare("icmp slt", came, number), label)

        self._each(meeting, one)

    def barrier(self) -> None:
        """A core comes to a barrier, or looks again whether all have."""
        f = self.f
        meeting = self._meeting(f.begin("barrier"))
        come, look = f.label("come"), f.label("look")
        issued = f.compare("icmp ne", f.stream.get("issued"), f.integer(0))
        f.branch(issued, look, come)
        f.open(come)
        own = self._count(meeting, meeting.get("own"))
        number = f.load(own, "i64") + 1
        f.store(number, own)
        meeting.set("sequence", number)
        f.jump(look)
        f.open(look)
        self._unless_all(meeting, meeting.get("sequence"), self._waits)
        f.go("next")

    def exchange(self) -> None:
        """A core brings a tile, or looks again whether the tiles have moved."""
        f = self.f
        record = f.begin("exchange")
        meeting = self._meeting(record)
        come, look, first = f.label("come"), f.label("look"), f.label("first")
        fallback = f.labels["fallback"]
        issued = f.compare("icmp ne", f.stream.get("issued"), f.integer(0))
        f.branch(issued, look, come)

        f.open(look)
        sequence = meeting.get("sequence")
        f.leave_if(f.compare("icmp slt", sequence, f.integer(0)), fallback)
        over = f.load(self._state(meeting, _OVER), "i64")
        f.leave_if(f.compare("icmp slt", over, sequence), self._waits)
        f.go("next")

        f.open(come)
        meeting.set("sequence", f.integer(-1))
        python = f.load(self._state(meeting, _PYTHON), "i64")
        f.leave_if(f.compare("icmp ne", python, f.integer(0)), fallback)
        operands = OperandText(f, fallback, f.program)
        operands.place(record, f.stream.get("registers", "ptr"))
        operands.check(record)
        operands.patch(record)
        own = meeting.get("own")
        f.store(record.pointer, f.element_at(meeting.get("slots", "ptr"), own, WORD))
        before = f.load(self._count(meeting, own), "i64")
        number = before + 1

        def others(place: Value) -> None:
            came = f.load(self._count(meeting, place), "i64")
            missing = f.compare("icmp slt", came, number)
            other = f.compare("icmp ne", place, own)
            f.leave_if(missing & other, first)

        self._each(meeting, others)
        self._deliver(meeting, operands, fallback)
        f.store(number, self._state(meeting, _OVER))
        self._come(meeting, own, number)
        f.go("next")
        f.open(first)
        self._come(meeting, own, number)
        f.jump(self._waits)

    def _come(self, meeting: StructureAt, own: Value, number: Value) -> None:
        self.f.store(number, self._count(meeting, own))
        meeting.set("sequence", number)

    def _brought(self, meeting: StructureAt, place: Value) -> StructureAt:
        """The record that a core has come with."""
        pointer = self.f.load(self.f.element_at(meeting.get("slots", "ptr"), place, WORD), "ptr")
        return StructureAt(self.f, self._record, pointer)

    def _deliver(self, meeting: StructureAt, operands: OperandText, fallback: str) -> None:
        """Move the tiles of all cores; to `fallback` if they do not fit."""
        f = self.f

        def fits(place: Value) -> None:
            mine = self._meeting(self._brought(meeting, place))
            sender = self._meeting(self._brought(meeting, mine.get("sender")))
            wrong = [
                f.compare("icmp ne", sender.get("partner"), place),
                f.compare("icmp eq", mine.get("sender"), place),
                f.compare("icmp eq", mine.get("partner"), place),
                f.compare("icmp ne", sender.get("sent"), mine.get("received")),
            ]
            for condition in wrong:
                f.leave_if(condition, fallback)

        self._each(meeting, fits)
        f.flush()
        for number in range(2):

            def run(place: Value, number: int = number) -> None:
                jobs = self._brought(meeting, place).get("jobs", "ptr")
                job = StructureAt(
                    f, self._job, f.element_at(jobs, f.integer(number), self._job.size)
                )
                function, parts = job.get("function", "ptr"), job.get("parts", "ptr")
                team = f.program.get("team", "ptr")
                run_parts(f, team, function, parts, job.get("parts_count"))

            self._each(meeting, run)
        self._each(meeting, lambda place: operands.write(self._brought(meeting, place)))
