"""A loaded program as native code runs it: its records, and the calls back into Python."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Generator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from isa.columns import Flags
from isa.spec import Meeting
from simulator.by_identity import ByIdentity
from simulator.checks.engine_marks import EngineMarks
from simulator.checks.initialised import Shadow
from simulator.checks.regions import MarkedBox
from simulator.exchange import Message
from simulator.native.codegen.structure import WordMemory
from simulator.native.loop.meetings import MeetingTable
from simulator.native.loop.partition_blocks import Flush, PartitionBlocks
from simulator.native.loop.partition_queue import QUEUE, new_queue
from simulator.native.loop.records import RecordPacking
from simulator.native.loop.shared import SharedTemplates
from simulator.native.loop.tensor_queue import (
    PRODUCTS,
    FlushProducts,
    QueuedProducts,
    Settle,
    new_products,
)
from simulator.native.loop.walk import (
    AGAIN,
    EXECUTED,
    FAILED,
    INDEX_BITS,
    LOOK,
    LOOK_EVERY,
    NEXT,
    PROGRAM,
    RUNAWAY,
    STREAM,
    ProgramLoop,
)
from simulator.native.loop.written import WRITTEN, new_written
from simulator.native.plans.plan import address_of
from simulator.native.plans.table import compiled
from simulator.native.threads.other_processes import busy
from simulator.native.threads.team import Team
from simulator.streams import RunningStream, runaway

if TYPE_CHECKING:
    from simulator.prepare import Preparation, Watch

_INDICES = (1 << INDEX_BITS) - 1

EVENTS = 1024
"""Events of a stream that native code leaves before Python takes them."""

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


class StoppedError(Exception):
    """A run was told to end."""


class NativeProgram:
    """The streams of all cores as records, in the order in which they take turns.

    `threads` share large jobs, unless the machine is busy. `boxes`: as of
    `SharedTemplates`, by core.
    `watch` is told of what the loop has executed, one instruction at a time; preparations tell it
    of the others. A run ends with StoppedError soon after somebody sets `stopped`.
    """

    def __init__(
        self,
        cores: Sequence[Sequence[Preparation]],
        shadow: Shadow,
        threads: int = 1,
        boxes: Sequence[Sequence[MarkedBox]] = (),
        watch: Watch | None = None,
    ) -> None:
        self._watch = watch
        self.stopped = False
        self._memory = WordMemory()
        self._threads = threads
        self._team: Team | None = None
        self._shadow = shadow
        self._states = shadow.states
        self._marks: list[EngineMarks] = []
        self._preparations: list[Preparation] = []
        self._packings: list[RecordPacking] = []
        self._shared: list[SharedTemplates] = []
        tensors: ByIdentity[int] = ByIdentity()
        meetings = MeetingTable(self._memory)
        self._error: BaseException | None = None
        for core, held in zip(cores, boxes):
            if not core:
                continue
            core[0].state.threads = threads
            templates = chain.from_iterable(one.uses.templates for one in core)
            marks = EngineMarks(shadow, core[0].state, templates)
            shared = SharedTemplates(self._memory, held)
            self._shared.append(shared)
            for preparation in core:
                self._marks.append(marks)
                self._preparations.append(preparation)
                packing = RecordPacking(
                    preparation,
                    self._memory,
                    self._states,
                    marks,
                    shared,
                    tensors,
                    threads,
                    meetings,
                )
                preparation.barriers.exchange.message_of = partial(_message_of, weakref.ref(self))
                self._packings.append(packing)
        self._streams = self._memory.words(
            [word for number in range(len(self._preparations)) for word in self._stream(number)]
        )
        answers = _answers(weakref.ref(self))
        next(answers)
        self._callback = _CALLBACK(answers.send)
        strips, flush = compiled(PartitionBlocks()), compiled(Flush())
        sizes = [core[0].state.sbuf.partition_bytes for core in cores if core]
        self._written = new_written(self._memory, max(sizes, default=0))
        written = ctypes.addressof(self._written)
        self._queue = new_queue(self._memory, address_of(strips), threads, written)
        products = compiled(QueuedProducts())
        flush_products = compiled(FlushProducts())
        self._products = new_products(self._memory, address_of(products), threads, written)
        self._program = self._memory.words(
            PROGRAM.words(
                streams=ctypes.addressof(self._streams),
                streams_count=len(self._preparations),
                callback=address_of(self._callback),
                no_space=ctypes.addressof(self._memory.words([0, 0])),
                queue=ctypes.addressof(self._queue),
                flush=address_of(flush),
                products=ctypes.addressof(self._products),
                flush_products=address_of(flush_products),
                settle=address_of(compiled(Settle())),
                watched=int(watch is not None),
            )
        )
        self._run = compiled(ProgramLoop())
        work = sum(packing.queued_work for packing in self._packings)
        self._shares = threads > 1 and (
            work >= self._queue[QUEUE.indices["least_work"]]
            or any(packing.shares for packing in self._packings)
        )
        shadow.states.native = True

    def mark(self) -> None:
        """Tell all operands where their marks are; the units of all tensors are known now."""
        for packing in self._packings:
            packing.control.expect_begins(self._shadow)
        for shared in self._shared:
            shared.name_all_rivals()
        for packing in self._packings:
            packing.mark(self._shadow)

    def computes(self, preparation: Preparation) -> Flags:
        """Of which instructions of a stream native code does all that they compute or move."""
        return self._packings[self._preparations.index(preparation)].native

    def move(self, old: Any, new: Any) -> None:
        """A tensor is in another buffer from now on."""
        for packing in self._packings:
            packing.move(old, new)

    @property
    def streams(self) -> list[RunningStream]:
        """The streams, in the order of their records."""
        return [preparation.stream for preparation in self._preparations]

    def _stream(self, number: int) -> list[int]:
        stream = self._preparations[number].stream
        events = self._memory.words([0] * EVENTS)
        return STREAM.words(
            number=number,
            records=self._packings[number].words.ctypes.data,
            registers=ctypes.addressof(stream.registers),
            semaphores=ctypes.addressof(stream.semaphores),
            events=ctypes.addressof(events),
            events_limit=EVENTS,
        )

    def _member(self, number: int, name: str) -> int:
        """Where a member of a stream is in the table."""
        return number * len(STREAM.names) + STREAM.indices[name]

    def run(self) -> None:
        """Run all streams until none can go on; they say where they stand. Raises what an
        instruction raised; its stream has `failed` then."""
        words, program = self._streams, self._program
        for number, stream in enumerate(self.streams):
            for name, value in (
                ("pc", 0),
                ("issued", 0),
                ("halted", int(stream.halted)),
                ("budget", stream.budget),
                ("events_count", 0),
            ):
                words[self._member(number, name)] = value
        program[PROGRAM.indices["patience"]] = LOOK_EVERY
        program[PROGRAM.indices["fetch"]] = program[PROGRAM.indices["following"]] = 0
        now = self._written[WRITTEN.indices["now"]] + 1
        for name in ("now", "anything"):  # since the last run
            self._written[WRITTEN.indices[name]] = now
        self._point_to_states()
        for space in self._shadow.spaces.values():
            space.allocate()
        for marks in self._marks:
            marks.ask()
        self._error = None
        team = self._take_team()
        address = 0 if team is None else team.address
        program[PROGRAM.indices["team"]] = self._queue[QUEUE.indices["team"]] = address
        self._products[PRODUCTS.indices["team"]] = address
        try:
            if team is not None:
                team.start()
            self._run(self._program)
            if team is not None:
                team.stop()
        except BaseException:
            # A signal, whose handler raised something.
            if team is not None:
                self._team = None
                team.end()
            raise
        for number, stream in enumerate(self.streams):
            stream.pc = words[self._member(number, "pc")]
            stream.issued = bool(words[self._member(number, "issued")])
            stream.halted = bool(words[self._member(number, "halted")])
            self._take_events(number)
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # else the error's traceback and this frame hold each other

    def _take_team(self) -> Team | None:
        """The threads that help with this run, if there are to be any."""
        if not self._shares or busy(self._threads):
            return None
        if self._team is None or self._team.process != os.getpid():
            self._team = Team(self._threads)
        return self._team

    def _point_to_states(self) -> None:
        states = (ctypes.c_char * len(self._states.states)).from_buffer(self._states.states)
        program = self._program
        program[PROGRAM.indices["states"]] = ctypes.addressof(states)
        program[PROGRAM.indices["fills"]] = self._states.fills.ctypes.data

    def look(self) -> None:
        """Called every now and then: as this is Python, signal handlers run."""
        if self.stopped:
            raise StoppedError
        self.streams[0].watchdog.look()

    def _call_back(self, call: int) -> int:
        """What the loop is told: `call` is what it packed of a stream's number and an index."""
        number, index = call >> INDEX_BITS, (call & _INDICES) + LOOK
        try:
            if index == LOOK:
                self.look()
                return NEXT
            preparation = self._preparations[number]
            stream = preparation.stream
            if index == RUNAWAY:
                stream.pc = self._streams[self._member(number, "pc")]
                raise runaway(stream)
            if index >= EXECUTED:
                self._tell(preparation, index - EXECUTED)
                return NEXT
            if self._packings[number].locate(index):
                return AGAIN
            return self._execute(number, preparation, index)
        except BaseException as error:
            self._error = error
            self._preparations[number].stream.failed = True
            return FAILED

    def _tell(self, preparation: Preparation, index: int) -> None:
        """Native code has executed the instruction at `index`."""
        assert self._watch is not None
        instruction = preparation.stream.instructions[index]
        operands = preparation.operands(instruction)
        operands.refresh()
        place = preparation.state.number, preparation.stream.engine, index
        self._watch(*place, instruction.row, operands.values)

    def _execute(self, number: int, preparation: Preparation, index: int) -> int:
        """Let Python execute an instruction; what the native loop is told."""
        stream = preparation.stream
        if index == len(stream.instructions):
            raise AssertionError("streams end natively")
        marks, state = self._marks[number], preparation.state
        stateful = bool(stream.instructions[index].row.state)
        stream.issued = bool(self._streams[self._member(number, "issued")])
        state.engine = stream.engine
        if stateful:
            marks.tell()
        self._take_events(number)
        target = preparation.action(index)()
        if stateful:
            marks.ask()
        self._packings[number].learn(index)
        self._point_to_states()
        return NEXT if target is None else target

    def _message_of(self, core: int, meeting: Meeting) -> Message:
        for number, preparation in enumerate(self._preparations):
            index = self._streams[self._member(number, "pc")]
            waits = self._streams[self._member(number, "issued")]
            if preparation.state.number == core and waits:
                instruction = preparation.stream.instructions[index]
                row = instruction.row
                if row.meets and row.meeting(instruction.values, core) == meeting:
                    return preparation.message(index)
        raise AssertionError(f"core {core} has come to {meeting}")

    def _take_events(self, number: int) -> None:
        """Move what native code left in the control trace of a stream to the stream, if it has
        one."""
        words, stream = self._streams, self._preparations[number].stream
        count, place = (self._member(number, name) for name in ("events_count", "events"))
        if stream.traced:
            stream.events.frombytes(ctypes.string_at(words[place], 8 * words[count]))
        else:
            del stream.events[:]
        words[count] = 0


def _message_of(reference: weakref.ref[NativeProgram], core: int, meeting: Meeting) -> Message:
    """What a core has brought to an exchange, at which native code lets its stream wait."""
    program = reference()
    assert program is not None, "it is running"
    return program._message_of(core, meeting)


def _answers(reference: weakref.ref[NativeProgram]) -> Generator[int, int, None]:
    """Answers the calls of a program, which it does not keep alive.

    Python handles signals when it enters a function, this one where it waits for a call: what a
    handler raises then is met by the `try`. It would get lost in a function that ctypes calls.
    """
    answer = NEXT
    while True:
        try:
            while True:
                call = yield answer
                program = reference()
                assert program is not None, "it is running"
                answer = program._call_back(call)
                del program
        except GeneratorExit:
            return
        except BaseException as error:
            answer = FAILED
            if (interrupted := reference()) is not None:
                interrupted._error = error
                del interrupted
