"""The native program loop: runs the instruction streams of a program over packed records.

One stream after the other runs until it waits in vain, as `simulator.streams.Stream.advance`, and
in the same order; so both give the same linearisation. A record names its waits and updates, the
operands whose addresses registers decide, those that have to be initialised and those that then
are, and the jobs, which are micro-kernels with their argument words. Where something is amiss, and
for instructions without native code, the loop calls back into Python, which executes the
instruction and says how to go on. `simulator.native.records` packs the records.

A job may come in parts for several threads. `Worker` waits for parts: it spins for a while, then
yields its time slice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isa.enums import Condition, RegisterOperation
from simulator.checks.marks import CLEAN, DEAD, EMPTY, INITIALISED, MIXED, UNWRITTEN
from simulator.native.structure import Record, Structure, StructureText
from simulator.native.text import WORD, FunctionText, Value
from simulator.streams import BLOCKED, HALTED

NEXT, FAILED = -3, -4
"""What the callback gives besides the index of an instruction, `BLOCKED` and `HALTED`: go on with
the next instruction; stop everything, an error was raised."""

RUNAWAY, LOOK = -1, -2
"""Indices for which the loop calls back where no instruction is to be executed: the stream has used
up its budget; a while has passed and there may be a signal to handle."""

LOOK_EVERY = 4096
"""Instructions between two looks."""

SPINS = 200
"""How often a thread looks before it yields its time slice; spinning alone was 45 to 110 times
slower with more threads than free CPUs."""

KINDS = (
    *("fallback", "compute", "nothing", "halt", "move", "alu"),
    *("loop_begin", "loop_end", "branch", "storage_begin"),
)
"""Kinds of record; a record's kind is the index."""

CONDITIONS = {
    Condition.eq: "eq",
    Condition.ne: "ne",
    Condition.lt: "slt",
    Condition.le: "sle",
    Condition.gt: "sgt",
    Condition.ge: "sge",
}
"""Predicates of icmp; the code of a condition is its index here, that of `always` comes last."""

OPERATIONS: dict[RegisterOperation, Callable[[FunctionText, Value, Value], Value]] = {
    RegisterOperation.add: lambda f, x, y: f.binary("add", x, y),
    RegisterOperation.subtract: lambda f, x, y: f.binary("sub", x, y),
    RegisterOperation.multiply: lambda f, x, y: f.binary("mul", x, y),
    RegisterOperation.minimum: lambda f, x, y: f.intrinsic("smin", x, y),
    RegisterOperation.maximum: lambda f, x, y: f.intrinsic("smax", x, y),
}
"""Arithmetic of registers; the code of an operation is its index here."""

PROGRAM = Structure(
    *("streams", "streams_count", "states", "fills", "no_space", "callback", "patience", "team"),
)
"""`no_space`: a `SPACE` without marks. `states` and `fills`: addresses of those of
`simulator.checks.marks.States`. `patience`: how many instructions until the next look. `team`: the
`TEAM` that runs parts, 0 for this thread alone."""

TEAM = Structure("function", "parts", "parts_count", "sequence", "quit", "yield", "members_count")
"""What the worker threads are to run. Raising `sequence` starts them; `yield` is sched_yield."""

MEMBER = Structure("team", "number", "seen")
"""One worker: which part it runs, and the last sequence number that it has finished."""

STREAM = Structure(
    *("number", "records", "pc", "issued", "halted", "budget", "registers", "semaphores"),
    *("events", "events_count", "events_limit"),
)

RECORD = Structure(
    *("kind", "waits", "waits_count", "updates", "updates_count", "jobs", "jobs_count"),
    *("moving", "moving_count", "reads", "reads_count", "writes", "writes_count"),
    *("apart", "apart_count", "patches", "patches_count", "event"),
    *("code", "to", "target", "left", "right", "step", "bound"),
)
"""`event` is what to leave in the control trace, -1 for nothing. `code` is that of an operation or
condition, `to` the index of the instruction to go to. `target`, `left` and `right` are addresses of
words: registers, or constants; `bound` is that of a loop's upper bound."""

AMOUNT = Structure("semaphore", "amount")

OPERAND = Structure(
    *("address", "offset", "base", "origin", "terms", "terms_count", "lowest", "highest"),
    *("region", "region_lowest", "region_highest", "full", "low", "high"),
    *("space", "unit", "buffer_offset", "outer", "middle", "inner", "outer_step", "middle_step"),
    *("box", "box_rows", "box_pitch", "box_width"),
)
"""`offset` is where the operand lies in its partition or tensor, `base` the address of offset 0;
`offset` is `origin` and the `terms`. Offsets from `lowest` to `highest` are inside the memory. The
operand lies in region number `region` (0: nobody knows) as long as its offset is between the
region's; it covers the region if `full`. It touches the bytes from `offset + low` to
`offset + high`.

Its marks are at `space`, a `SPACE` (0: Python has to look), as long as a mark there stands for
`unit` bytes: `outer` times `middle` times `inner` of them, those of `inner` adjacent, from that of
byte `buffer_offset + offset` on. Those of its region are `box_rows` times `box_width` from mark
`box` on."""

SPACE = Structure("marks", "unit")
"""`simulator.checks.marks.Space.cells`."""

TERM = Structure("register", "scale")
REFERENCE = Structure("operand")
PAIR = Structure("left", "right", "same")
"""Operands that must not share bytes, or with `same` be equal."""

PATCH = Structure("operand", "word", "delta")
"""The address of an operand plus `delta` goes to the word at address `word`."""

JOB = Structure("function", "parts", "parts_count")
PART = Structure("words")
RIVAL = Structure("region")

BEGIN = Structure("region", "fill", "rivals", "rivals_count")
"""An allocation: its region (0: nobody knows), the number of the view to fill, and the regions that
it takes memory from."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs a `PROGRAM`, whose address is the argument, until no stream can go on or one failed."""

    def text(self, name: str) -> str:
        return _Loop(name).text()


class _Loop(StructureText):
    """The text of `Loop`. Labels: `fallback` lets Python execute the instruction, `next` goes on
    with the following one, `jump` with the one at index `target`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.program = Record(self, PROGRAM, self.words)
        self.index, self.progress, self.went, self.moved, self.target = (
            self.variable() for _ in range(5)
        )
        # Addresses of the current stream and record.
        self.at_stream, self.at_record = self.variable(), self.variable()
        names = (
            *("round", "advance", "look", "looked", "issue", "kind", "fallback", "next", "jump"),
            *("finish", "blocked", "halted", "failed", "following", "all_done", "end"),
        )
        self.labels = {label: self.label(label) for label in names}
        self.kinds = {kind: self.label(kind) for kind in KINDS[1:]}
        self._write()

    @property
    def stream(self) -> Record:
        return Record(self, STREAM, self.at_stream.get("value", "ptr"))

    @property
    def record(self) -> Record:
        return Record(self, RECORD, self.at_record.get("value", "ptr"))

    def go(self, label: str) -> None:
        self.jump(self.labels[label])

    def at(self, label: str) -> None:
        self.open(self.labels[label])

    def _write(self) -> None:
        self._rounds()
        self._instruction()
        self._fallback()
        self._finish()
        self._compute()
        self._registers()
        self._loops()
        self._storage_begin()
        self.at("end")

    def _rounds(self) -> None:
        """Streams in order, again and again while one of them gets on."""
        zero, one = self.integer(0), self.integer(1)
        self.go("round")
        self.at("round")
        self.progress.set("value", zero)
        self.index.set("value", zero)
        self.go("following")

        self.at("following")
        index = self.index.get("value")
        left = self.compare("icmp slt", index, self.program.get("streams_count"))
        self.branch(left, self.labels["advance"], self.labels["all_done"])
        self.at("all_done")
        again = self.compare("icmp ne", self.progress.get("value"), zero)
        self.branch(again, self.labels["round"], self.labels["end"])

        self.at("advance")
        place = self.element_at(self.program.get("streams", "ptr"), index, STREAM.size)
        self.store(place, self.at_stream.pointer)
        self.index.add("value", one)
        halted = self.compare("icmp ne", self.stream.get("halted"), zero)
        self.leave_if(halted, self.labels["following"])
        self.went.set("value", zero)
        self.go("issue")

    def _instruction(self) -> None:
        """The next instruction of the stream: its waits, then what its kind does."""
        self.at("issue")
        patience = self.program.add("patience", self.integer(-1))
        due = self.compare("icmp slt", patience, self.integer(0))
        self.branch(due, self.labels["look"], self.labels["looked"])
        self.at("look")
        self.program.set("patience", self.integer(LOOK_EVERY))
        result = self._call_back(self.integer(LOOK))
        failed = self.compare("icmp eq", result, self.integer(FAILED))
        self.branch(failed, self.labels["failed"], self.labels["looked"])

        self.at("looked")
        stream = self.stream
        place = self.element_at(stream.get("records", "ptr"), stream.get("pc"), RECORD.size)
        self.store(place, self.at_record.pointer)
        issued = self.compare("icmp ne", stream.get("issued"), self.integer(0))
        self.leave_if(issued, self.labels["kind"])
        semaphores = stream.get("semaphores", "ptr")

        def check(wait: Record) -> None:
            cell = self.element_at(semaphores, wait.get("semaphore"), WORD)
            held = self.load(cell, "i64")
            missing = self.compare("icmp slt", held, wait.get("amount"))
            self.leave_if(missing, self.labels["blocked"])

        def take(wait: Record) -> None:
            cell = self.element_at(semaphores, wait.get("semaphore"), WORD)
            self.store(self.binary("sub", self.load(cell, "i64"), wait.get("amount")), cell)

        self.record.each("waits", AMOUNT, check)
        self.record.each("waits", AMOUNT, take)
        self.go("kind")
        self.at("kind")
        cases = [(KINDS.index(kind), label) for kind, label in self.kinds.items()]
        self.switch(self.record.get("kind"), cases, self.labels["fallback"])

    def _call_back(self, index: Value) -> Value:
        function = self.program.get("callback", "ptr")
        number = self.stream.get("number")
        return self.value(f"call i64 {function.text}(i64 {number.text}, i64 {index.text})", "i64")

    def _fallback(self) -> None:
        self.at("fallback")
        result = self._call_back(self.stream.get("pc"))
        self.target.set("value", result)
        cases = [
            (NEXT, self.labels["next"]),
            (HALTED, self.labels["halted"]),
            (FAILED, self.labels["failed"]),
        ]
        on = self.label("on")
        self.switch(result, [*cases, (BLOCKED, on)], self.labels["jump"])
        self.open(on)
        self.stream.set("issued", self.integer(1))
        self.go("blocked")

    def _finish(self) -> None:
        """Behind an instruction: updates, then the next one; or the end of the stream's turn."""
        one = self.integer(1)
        self.at("next")
        self.target.set("value", self.binary("add", self.stream.get("pc"), one))
        self.go("finish")

        self.at("jump")
        target, pc = self.target.get("value"), self.stream.get("pc")
        back, within = self.label("back"), self.label("within")
        self.branch(self.compare("icmp sle", target, pc), back, self.labels["finish"])
        self.open(back)
        steps = self.binary("sub", target, self.binary("add", pc, one))
        left = self.stream.add("budget", steps)
        runaway = self.label("runaway")
        self.branch(self.compare("icmp slt", left, self.integer(0)), runaway, within)
        self.open(runaway)
        self._call_back(self.integer(RUNAWAY))
        self.go("failed")
        self.open(within)
        self.go("finish")

        self.at("finish")
        self.went.set("value", one)
        stream = self.stream
        stream.set("issued", self.integer(0))
        semaphores = stream.get("semaphores", "ptr")

        def update(change: Record) -> None:
            cell = self.element_at(semaphores, change.get("semaphore"), WORD)
            self.store(self.binary("add", self.load(cell, "i64"), change.get("amount")), cell)

        self.record.each("updates", AMOUNT, update)
        stream.set("pc", self.target.get("value"))
        self.go("issue")

        self.at("blocked")
        self.progress.set(
            "value", self.binary("or", self.progress.get("value"), self.went.get("value"))
        )
        self.go("following")
        self.at("halted")
        self.stream.set("halted", one)
        self.progress.set("value", one)
        self.go("following")
        self.at("failed")
        self.go("end")

    def begin(self, kind: str) -> Record:
        """The block of a kind of record begins."""
        self.open(self.kinds[kind])
        return self.record

    # Instructions that compute

    def _compute(self) -> None:
        record = self.begin("compute")
        fallback = self.labels["fallback"]
        registers = self.stream.get("registers", "ptr")
        states = self.program.get("states", "ptr")

        def move(reference: Record) -> None:
            operand = Record(self, OPERAND, reference.get("operand", "ptr"))
            offset = self.variable()
            offset.set("value", operand.get("origin"))

            def term(each: Record) -> None:
                cell = self.element_at(registers, each.get("register"), WORD)
                scaled = self.binary("mul", self.load(cell, "i64"), each.get("scale"))
                offset.add("value", scaled)

            operand.each("terms", TERM, term)
            found = offset.get("value")
            self._unless_between(found, operand, "lowest", "highest", fallback)
            operand.set("offset", found)
            operand.set("address", self.binary("add", operand.get("base"), found))

        def state_of(operand: Record) -> Value:
            self._unless_between(
                operand.get("offset"), operand, "region_lowest", "region_highest", fallback
            )
            return self.element_at(states, operand.get("region"), 1)

        def readable(reference: Record) -> None:
            operand = Record(self, OPERAND, reference.get("operand", "ptr"))
            place = state_of(operand)
            fine, look, within = self.label("fine"), self.label("look"), self.label("within")
            state = self.load(place, "i8")
            self.branch(self._is(state, CLEAN), fine, look)
            self.open(look)
            self.branch(self._is(state, MIXED), within, fallback)
            self.open(within)
            self._unless_marked(operand, fallback)
            covers = self.compare("icmp ne", operand.get("full"), self.integer(0))
            self.store(self.select(covers, self.constant("i8", CLEAN), state), place)
            self.jump(fine)
            self.open(fine)

        def writable(reference: Record) -> None:
            operand = Record(self, OPERAND, reference.get("operand", "ptr"))
            state = self.load(state_of(operand), "i8")
            full = self.compare("icmp ne", operand.get("full"), self.integer(0))
            whole = self.binary("and", self._is(state, EMPTY), full)
            partly = self.binary("or", self._is(state, EMPTY), self._is(state, MIXED))
            partly = self.binary("and", partly, self._has_marks(operand))
            fine = self.binary("or", self._is(state, CLEAN), self.binary("or", whole, partly))
            wrong = self.binary("xor", fine, self.constant("i1", 1))
            self.leave_if(wrong, fallback)

        def initialised(reference: Record) -> None:
            operand = Record(self, OPERAND, reference.get("operand", "ptr"))
            place = self.element_at(states, operand.get("region"), 1)
            state = self.load(place, "i8")
            part, mark, all_of_it, after = (self.label(n) for n in ("part", "mark", "all", "on"))
            full = self.compare("icmp ne", operand.get("full"), self.integer(0))
            self.branch(self.binary("or", self._is(state, CLEAN), full), all_of_it, part)
            self.open(part)
            clear = self.label("clear")
            self.branch(self._is(state, EMPTY), clear, mark)
            self.open(clear)
            self._clear(operand)
            self.store(self.constant("i8", MIXED), place)
            self.jump(mark)
            self.open(mark)
            self._mark(operand)
            self.jump(after)
            self.open(all_of_it)
            self.store(self.constant("i8", CLEAN), place)
            self.jump(after)
            self.open(after)

        def apart(pair: Record) -> None:
            left, right = (Record(self, OPERAND, pair.get(n, "ptr")) for n in ("left", "right"))
            ends = [
                [self.binary("add", side.get("offset"), side.get(end)) for end in ("low", "high")]
                for side in (left, right)
            ]
            before = self.compare("icmp sle", ends[0][1], ends[1][0])
            behind = self.compare("icmp sle", ends[1][1], ends[0][0])
            equal = self.compare("icmp eq", left.get("address"), right.get("address"))
            allowed = self.compare("icmp ne", pair.get("same"), self.integer(0))
            same = self.binary("and", equal, allowed)
            fine = self.binary("or", self.binary("or", before, behind), same)
            self.leave_if(self.binary("xor", fine, self.constant("i1", 1)), fallback)

        def patch(each: Record) -> None:
            operand = Record(self, OPERAND, each.get("operand", "ptr"))
            address = self.binary("add", operand.get("address"), each.get("delta"))
            self.store(address, each.get("word", "ptr"))

        record.each("moving", REFERENCE, move)
        record.each("apart", PAIR, apart)
        record.each("reads", REFERENCE, readable)
        record.each("writes", REFERENCE, writable)
        self._event(record.get("event"), fallback)
        record.each("writes", REFERENCE, initialised)
        record.each("patches", PATCH, patch)
        record.each("jobs", JOB, self._job)
        self.go("next")

    # Marks

    def _is(self, state: Value, number: int) -> Value:
        return self.compare("icmp eq", state, self.constant("i8", number))

    def _space(self, operand: Record) -> Record:
        return Record(self, SPACE, operand.get("space", "ptr"))

    def _has_marks(self, operand: Record) -> Value:
        """Whether the operand's marks are as they were when it was packed."""
        cells = self.program.get("no_space", "ptr")
        known = self.compare("icmp ne", operand.get("space"), self.integer(0))
        space = Record(self, SPACE, self.select(known, operand.get("space", "ptr"), cells))
        same = self.compare("icmp eq", space.get("unit"), operand.get("unit"))
        return self.binary("and", known, same)

    def _runs(self, operand: Record, body: Callable[[Value, Value], None]) -> None:
        """`body(pointer, count)` for the adjacent marks of an operand."""
        offset = self.binary("add", operand.get("buffer_offset"), operand.get("offset"))
        unit = operand.get("unit")
        first = self.offset(
            self._space(operand).get("marks", "ptr"), self.binary("sdiv", offset, unit)
        )
        zero, inner = self.integer(0), operand.get("inner")

        def outer(index: Value) -> None:
            step = self.binary("mul", index, operand.get("outer_step"))
            line = self.offset(first, step)

            def middle(number: Value) -> None:
                step = self.binary("mul", number, operand.get("middle_step"))
                body(self.offset(line, step), inner)

            self.loop(zero, operand.get("middle"), 1, middle)

        self.loop(zero, operand.get("outer"), 1, outer)

    def _fill(self, pointer: Value, mark: int, count: Value) -> None:
        function = "@llvm.memset.p0.i64"
        self._declarations[function] = f"declare void {function}(ptr, i8, i64, i1)"
        self.line(
            f"call void {function}(ptr {pointer.text}, i8 {mark}, i64 {count.text}, i1 false)"
        )

    def _mark(self, operand: Record) -> None:
        self._runs(operand, lambda place, count: self._fill(place, INITIALISED - 256, count))

    def _unless_marked(self, operand: Record, label: str) -> None:
        """Go to a label unless all marks of an operand say that it is initialised."""
        self.leave_if(self.binary("xor", self._has_marks(operand), self.constant("i1", 1)), label)

        def run(place: Value, count: Value) -> None:
            zero, eight = self.integer(0), self.integer(-WORD)
            whole = self.binary("and", count, eight)

            def word(index: Value) -> None:
                marks = self.load(self.offset(place, index), "i64")
                self.leave_if(self.compare("icmp ne", marks, self.integer(-1)), label)

            def byte(index: Value) -> None:
                mark = self.load(self.offset(place, index), "i8")
                self.leave_if(self.compare("icmp ne", mark, self.constant("i8", -1)), label)

            self.loop(zero, whole, WORD, word)
            self.loop(whole, count, 1, byte)

        self._runs(operand, run)

    def _clear(self, operand: Record) -> None:
        """Nothing of the operand's region is written."""
        first = self.offset(self._space(operand).get("marks", "ptr"), operand.get("box"))

        def row(index: Value) -> None:
            place = self.offset(first, self.binary("mul", index, operand.get("box_pitch")))
            self._fill(place, UNWRITTEN, operand.get("box_width"))

        self.loop(self.integer(0), operand.get("box_rows"), 1, row)

    def _unless_between(
        self, value: Value, record: Record, lowest: str, highest: str, label: str
    ) -> None:
        below = self.compare("icmp slt", value, record.get(lowest))
        above = self.compare("icmp sgt", value, record.get(highest))
        self.leave_if(self.binary("or", below, above), label)

    def _event(self, value: Value, full: str) -> None:
        """Leave a value that is not negative in the control trace; to `full` without space."""
        leave, after = self.label("event"), self.label("on")
        self.branch(self.compare("icmp sge", value, self.integer(0)), leave, after)
        self.open(leave)
        stream = self.stream
        count = stream.get("events_count")
        self.leave_if(self.compare("icmp sge", count, stream.get("events_limit")), full)
        self.store(value, self.element_at(stream.get("events", "ptr"), count, WORD))
        stream.set("events_count", self.binary("add", count, self.integer(1)))
        self.jump(after)
        self.open(after)

    def _job(self, job: Record) -> None:
        function, parts = job.get("function", "ptr"), job.get("parts", "ptr")
        run_parts(self, self.program.get("team", "ptr"), function, parts, job.get("parts_count"))

    # Control instructions

    def _operand(self, record: Record, name: str) -> Value:
        return self.load(record.get(name, "ptr"), "i64")

    def _wrap(self, value: Value) -> Value:
        """As a 32-bit register holds it."""
        return self.convert("sext", self.convert("trunc", value, "i32"), "i64")

    def _registers(self) -> None:
        self.begin("nothing")
        self.go("next")
        self.begin("halt")
        self.go("halted")

        record = self.begin("move")
        self.store(self._wrap(self._operand(record, "left")), record.get("target", "ptr"))
        self.go("next")

        record = self.begin("alu")
        left, right = self._operand(record, "left"), self._operand(record, "right")
        result = self.integer(0)
        for code, operation in enumerate(OPERATIONS.values()):
            chosen = self.compare("icmp eq", record.get("code"), self.integer(code))
            result = self.select(chosen, operation(self, left, right), result)
        self.store(self._wrap(result), record.get("target", "ptr"))
        self.go("next")

        record = self.begin("branch")
        left, right = self._operand(record, "left"), self._operand(record, "right")
        taken = self.constant("i1", 1)
        for code, predicate in enumerate(CONDITIONS.values()):
            chosen = self.compare("icmp eq", record.get("code"), self.integer(code))
            taken = self.select(chosen, self.compare(f"icmp {predicate}", left, right), taken)
        self._event(self.convert("zext", taken, "i64"), self.labels["fallback"])
        self.target.set("value", record.get("to"))
        self.branch(taken, self.labels["jump"], self.labels["next"])

    def _loops(self) -> None:
        record = self.begin("loop_begin")
        first, last = (self._operand(record, side) for side in ("left", "right"))
        step = record.get("step")
        span = self.binary("add", self.binary("sub", last, first), step)
        trips = self.binary("sdiv", self.binary("sub", span, self.integer(1)), step)
        empty = self.compare("icmp sge", first, last)
        self._event(self.select(empty, self.integer(0), trips), self.labels["fallback"])
        self.store(last, record.get("bound", "ptr"))
        self.store(first, record.get("target", "ptr"))
        self.target.set("value", record.get("to"))
        self.branch(empty, self.labels["jump"], self.labels["next"])

        record = self.begin("loop_end")
        register = record.get("target", "ptr")
        value = self.binary("add", self.load(register, "i64"), record.get("step"))
        self.store(value, register)
        self.target.set("value", record.get("to"))
        again = self.compare("icmp slt", value, self.load(record.get("bound", "ptr"), "i64"))
        self.branch(again, self.labels["jump"], self.labels["next"])

    def _storage_begin(self) -> None:
        record = self.begin("storage_begin")
        begin = Record(self, BEGIN, record.get("target", "ptr"))
        region, states = begin.get("region"), self.program.get("states", "ptr")
        unknown = self.compare("icmp eq", region, self.integer(0))
        self.leave_if(unknown, self.labels["fallback"])
        place = self.element_at(states, region, 1)
        dead = self.constant("i8", DEAD)
        take, after = self.label("take"), self.label("on")
        self.branch(self.compare("icmp eq", self.load(place, "i8"), dead), take, after)
        self.open(take)

        def kill(rival: Record) -> None:
            self.store(dead, self.element_at(states, rival.get("region"), 1))

        begin.each("rivals", RIVAL, kill)
        self.jump(after)
        self.open(after)
        self.store(self.constant("i8", EMPTY), place)
        fill = self.element_at(self.program.get("fills", "ptr"), region, WORD)
        self.store(begin.get("fill"), fill)
        self.go("next")


MEMBER_BYTES = 64 * 3
"""Bytes between members, so that no two share a cache line."""


def _wait(f: StructureText, holds: Callable[[], Value], team: Record) -> None:
    """Until a condition holds: spin for a while, then yield the time slice each time."""
    spins = f.variable()
    spins.set("value", f.integer(0))
    look, again, give_way, done = (f.label(n) for n in ("look", "again", "yield", "done"))
    f.jump(look)
    f.open(look)
    f.branch(holds(), done, again)
    f.open(again)
    tired = f.compare("icmp sgt", spins.add("value", f.integer(1)), f.integer(SPINS))
    f.branch(tired, give_way, look)
    f.open(give_way)
    f.value(f"call i32 {team.get('yield', 'ptr').text}()", "i32")
    f.jump(look)
    f.open(done)


def run_parts(f: StructureText, team: Value, function: Value, parts: Value, count: Value) -> None:
    """Call a function with the argument words of every part: `parts` points to their addresses.
    The members of a `TEAM` help where there is one and more than one part."""
    alone, shared, after = (f.label(name) for name in ("alone", "shared", "done"))
    whole = f.compare("icmp sle", count, f.integer(1))
    nobody = f.compare("icmp eq", team, Value("null", "ptr"))
    f.branch(f.binary("or", whole, nobody), alone, shared)
    f.open(alone)

    def part(index: Value) -> None:
        f.call_address(function, f.load(f.element_at(parts, index, WORD), "ptr"))

    f.loop(f.integer(0), count, 1, part)
    f.jump(after)
    f.open(shared)
    _share(f, Record(f, TEAM, team), function, parts, count)
    f.jump(after)
    f.open(after)


def _share(f: StructureText, team: Record, function: Value, parts: Value, count: Value) -> None:
    """Start the workers, run the first part, wait for the others."""
    team.set("function", function)
    team.set("parts", parts)
    team.set("parts_count", count)
    sequence = f.binary("add", team.get("sequence"), f.integer(1))
    team.share("sequence", sequence)
    f.call_address(function, f.load(parts, "ptr"))
    first = f.element_at(team.pointer, f.integer(1), TEAM.size)

    def join(number: Value) -> None:
        member = Record(f, MEMBER, f.element_at(first, number, MEMBER_BYTES))
        _wait(f, lambda: f.compare("icmp eq", member.shared("seen"), sequence), team)

    f.loop(f.integer(0), team.get("members_count"), 1, join)


@dataclass(frozen=True, slots=True)
class Worker:
    """Runs the parts of one `MEMBER`, whose address is the argument, until `quit`."""

    def text(self, name: str) -> str:
        f = StructureText(name)
        member = Record(f, MEMBER, f.words)
        team = Record(f, TEAM, member.get("team", "ptr"))
        wait, work, run, skip, end = (f.label(n) for n in ("wait", "work", "run", "skip", "end"))
        f.jump(wait)
        f.open(wait)
        seen = member.get("seen")
        _wait(f, lambda: f.compare("icmp ne", team.shared("sequence"), seen), team)
        quits = f.compare("icmp ne", team.get("quit"), f.integer(0))
        f.branch(quits, end, work)
        f.open(work)
        sequence = team.shared("sequence")
        number = member.get("number")
        f.branch(f.compare("icmp slt", number, team.get("parts_count")), run, skip)
        f.open(run)
        words = f.load(f.element_at(team.get("parts", "ptr"), number, WORD), "ptr")
        f.call_address(team.get("function", "ptr"), words)
        f.jump(skip)
        f.open(skip)
        member.share("seen", sequence)
        f.jump(wait)
        f.open(end)
        return f.text()
