"""The native program loop: runs the instruction streams of a program over packed records.

Streams take turns as by `simulator.streams.take_turns`, so that instructions are executed in the
same order. A record has the waits and updates of its instruction, and its jobs: micro-kernels with
their argument words. It also has the operands at addresses that registers decide, those that have
to be initialised, and those that become so. Where something is amiss, and for instructions without
native code, the loop calls back into Python, which executes the instruction and says how to go on.
`simulator.native.loop.records` packs the records.

Jobs that are local to partitions are queued (`simulator.native.loop.partition_queue`); what is
queued runs before anything else may see it. So are those of the tensor engine, in a queue of their
own (`simulator.native.loop.tensor_queue`). Other jobs run at once, and may come in parts for
several threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from isa.enums import Condition, RegisterOperation
from simulator.checks.regions import DEAD, EMPTY
from simulator.native.codegen.structure import Structure, StructureAt, StructureText
from simulator.native.codegen.text import WORD, FunctionText, Value
from simulator.native.loop.meetings import MeetingText
from simulator.native.loop.operands import OperandText
from simulator.native.loop.partition_queue import QueueText
from simulator.native.loop.tensor_queue import ProductsText
from simulator.native.loop.written import WrittenText
from simulator.native.threads.workers import run_parts
from simulator.streams import BLOCKED, HALTED
from simulator.watchdog import LOOK_EVERY

NEXT, FAILED, AGAIN = -3, -4, -5
"""What the callback gives besides the index of an instruction, `BLOCKED` and `HALTED`: go on with
the next instruction; stop everything, an error was raised; look at this instruction again, more is
known of its operands."""

RUNAWAY, LOOK = -1, -2
"""Indices for which the loop calls back where no instruction is to be executed: the stream has used
up its budget; a while has passed and there may be a signal to handle."""

EXECUTED = 1 << 31
"""Where all instructions are watched, the loop calls back behind each with this and its index."""

INDEX_BITS = 32
"""A callback has one argument: the stream's number times 2 to this power, and the index above
`LOOK`."""

KINDS = (
    *("fallback", "compute", "nothing", "halt", "move", "alu"),
    *("loop_begin", "loop_end", "branch", "storage_begin", "barrier", "exchange"),
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
    RegisterOperation.add: lambda f, x, y: x + y,
    RegisterOperation.subtract: lambda f, x, y: x - y,
    RegisterOperation.multiply: lambda f, x, y: x * y,
    RegisterOperation.minimum: lambda f, x, y: f.intrinsic("smin", x, y),
    RegisterOperation.maximum: lambda f, x, y: f.intrinsic("smax", x, y),
}
"""Arithmetic of registers; the code of an operation is its index here."""

PROGRAM = Structure(
    *("streams", "streams_count", "states", "fills", "no_space", "callback", "patience", "team"),
    *("queue", "flush", "products", "flush_products", "settle", "fetch", "following"),
    "watched",
)
"""`no_space`: a `SPACE` without marks. `states` and `fills`: addresses of those of
`simulator.checks.regions.States`. `patience`: how many instructions until the next look. `team`:
the `TEAM` that runs parts, 0 for this thread alone. `queue`: the `QUEUE`; `flush`: the function
that starts what is in it. `products` and `flush_products`: the same of `PRODUCTS`; `settle`: the
function that waits for all that was started. `fetch`: whether the stream that has the turn may
fetch; `following`: the number of the stream that gets the next such turn. `watched`: whether to
call back behind each instruction that computes."""

STREAM = Structure(
    *("number", "records", "pc", "issued", "halted", "budget", "registers", "semaphores"),
    *("events", "events_count", "events_limit"),
)

RECORD = Structure(
    *("kind", "waits", "waits_count", "updates", "updates_count", "jobs", "jobs_count"),
    *("moving", "moving_count", "reads", "reads_count", "writes", "writes_count"),
    *("apart", "apart_count", "patches", "patches_count", "event"),
    *("queued", "queued_count", "accesses", "accesses_count", "products", "products_count"),
    "fetches",
    *("code", "to", "target", "left", "right", "step", "bound"),
    *("guard", "guard_words"),
)
"""`guard` is the address of a function that looks at operands ahead of the jobs, or 0; where it
leaves no 0 in its first word, Python executes the instruction. `jobs` run at once, `queued` ones
and `products` later; the accesses of HBM of queued ones are listed. `event` is what to leave in the
control trace, -1 for nothing. `code` is that of an operation or condition, `to` the index of the
instruction to go to. `target`, `left` and `right` are addresses of words: registers, or constants;
`bound` is that of a loop's upper bound. Of a meeting `target` is the
address of its `MEETING`."""

AMOUNT = Structure("semaphore", "amount")

JOB = Structure("function", "parts", "parts_count")
PART = Structure("words")
RIVAL = Structure("region")

BEGIN = Structure("region", "fill", "rivals", "rivals_count")
"""An allocation: its region (0: nobody knows), the number of the view to fill, and the regions that
it takes memory from."""


@dataclass(frozen=True, slots=True)
class ProgramLoop:
    """Runs a `PROGRAM`, whose address is the argument, until no stream can go on or one failed."""

    def text(self, name: str) -> str:
        return LoopText(name).text()


class LoopText(StructureText):
    """The text of `ProgramLoop`. Labels: `fallback` lets Python execute the instruction, `next`
    goes on with the following one, `jump` with the one at index `target`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.program = StructureAt(self, PROGRAM, self.words)
        products, flush_products, settle, queue, flush = (
            self.program.get(name, "ptr")
            for name in ("products", "flush_products", "settle", "queue", "flush")
        )
        self.products = ProductsText(self, products, flush_products, settle)
        self.queue = QueueText(self, queue, flush, self.products.settle)
        self.written = WrittenText(self, self.queue.queue.get("written", "ptr"))
        self.index, self.place, self.progress, self.went, self.target = (
            self.variable() for _ in range(5)
        )
        # Addresses of the current stream and record.
        self.at_stream, self.at_record = self.variable(), self.variable()
        names = (
            *("round", "advance", "look", "looked", "issue", "kind", "fallback", "next", "jump"),
            *("finish", "fetched", "blocked", "halted", "failed", "following", "all_done", "fetch"),
            *("again", "end", "waits"),
        )
        self.labels = {label: self.label(label) for label in names}
        self.kinds = {kind: self.label(kind) for kind in KINDS[1:]}
        self._write()

    @property
    def stream(self) -> StructureAt:
        return StructureAt(self, STREAM, self.at_stream.get("value", "ptr"))

    @property
    def record(self) -> StructureAt:
        return StructureAt(self, RECORD, self.at_record.get("value", "ptr"))

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
        meetings = MeetingText(self, (RECORD, JOB), self.labels["waits"])
        meetings.barrier()
        meetings.exchange()
        self.at("end")
        self.flush()

    def flush(self) -> None:
        """Run what is queued, to its end, as ahead of all that is not queued; there is something in
        one queue at most."""
        self.queue.flush()
        self.products.flush()
        self.products.settle()
        self.written.write_anything()

    def _rounds(self) -> None:
        """Streams in order, again and again while one of them gets on."""
        zero, one = self.integer(0), self.integer(1)
        self.go("round")
        self.at("round")
        self.progress.set("value", zero)
        self.index.set("value", zero)
        self.go("following")

        self.at("following")
        index, count = self.index.get("value"), self.program.get("streams_count")
        left = self.compare("icmp slt", index, count)
        self.branch(left, self.labels["advance"], self.labels["all_done"])
        self.at("all_done")
        again = self.compare("icmp ne", self.progress.get("value"), zero)
        self.branch(again, self.labels["again"], self.labels["fetch"])
        self.at("again")
        self.program.set("fetch", zero)
        self.go("round")
        self.at("fetch")
        tried = self.compare("icmp ne", self.program.get("fetch"), zero)
        self.leave_if(tried, self.labels["end"])
        self.program.set("fetch", one)
        self.go("round")

        self.at("advance")
        self.index.add("value", one)
        # Only the stream that follows the last one to fetch is favoured, and only in such a round.
        first = self.program.get("fetch") * self.program.get("following")
        place = self.binary("srem", index + first, count)
        self.place.set("value", place)
        place = self.element_at(self.program.get("streams", "ptr"), place, STREAM.size)
        self.store(place, self.at_stream.pointer)
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
        fetches = self.compare("icmp sgt", self.record.get("fetches"), self.program.get("fetch"))
        self.leave_if(fetches, self.labels["blocked"])
        semaphores = stream.get("semaphores", "ptr")

        def check(wait: StructureAt) -> None:
            cell = self.element_at(semaphores, wait.get("semaphore"), WORD)
            held = self.load(cell, "i64")
            missing = self.compare("icmp slt", held, wait.get("amount"))
            self.leave_if(missing, self.labels["blocked"])

        def take(wait: StructureAt) -> None:
            cell = self.element_at(semaphores, wait.get("semaphore"), WORD)
            self.store(self.load(cell, "i64") - wait.get("amount"), cell)

        self.record.each("waits", AMOUNT, check)
        self.record.each("waits", AMOUNT, take)
        self.go("kind")
        self.at("kind")
        cases = [(KINDS.index(kind), label) for kind, label in self.kinds.items()]
        self.switch(self.record.get("kind"), cases, self.labels["fallback"])

    def _call_back(self, index: Value) -> Value:
        self.flush()
        function = self.program.get("callback", "ptr")
        number = self.stream.get("number") << INDEX_BITS
        call = number + (index - LOOK)
        return self.value(f"call i64 {function.text}(i64 {call.text})", "i64")

    def _fallback(self) -> None:
        self.at("fallback")
        result = self._call_back(self.stream.get("pc"))
        self.target.set("value", result)
        cases = [
            (NEXT, self.labels["next"]),
            (HALTED, self.labels["halted"]),
            (FAILED, self.labels["failed"]),
            (AGAIN, self.labels["kind"]),
        ]
        self.switch(result, [*cases, (BLOCKED, self.labels["waits"])], self.labels["jump"])
        self.at("waits")
        self.stream.set("issued", self.integer(1))
        self.go("blocked")

    def _finish(self) -> None:
        """Behind an instruction: updates, then the next one; or the end of the stream's turn."""
        one = self.integer(1)
        self.at("next")
        self.target.set("value", self.stream.get("pc") + one)
        self.go("finish")

        self.at("jump")
        target, pc = self.target.get("value"), self.stream.get("pc")
        back, within = self.label("back"), self.label("within")
        self.branch(self.compare("icmp sle", target, pc), back, self.labels["finish"])
        self.open(back)
        steps = target - (pc + one)
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

        def update(change: StructureAt) -> None:
            cell = self.element_at(semaphores, change.get("semaphore"), WORD)
            self.store(self.load(cell, "i64") + change.get("amount"), cell)

        self.record.each("updates", AMOUNT, update)
        stream.set("pc", self.target.get("value"))
        fetched = self.compare("icmp ne", self.record.get("fetches"), self.integer(0))
        self.branch(fetched, self.labels["fetched"], self.labels["issue"])

        self.at("fetched")
        self.program.set("following", self.place.get("value") + one)
        self.progress.set("value", one)
        self.go("all_done")

        self.at("blocked")
        self.progress.set("value", self.progress.get("value") | self.went.get("value"))
        self.go("following")
        self.at("halted")
        self.stream.set("halted", one)
        self.progress.set("value", one)
        self.go("following")
        self.at("failed")
        self.go("end")

    def begin(self, kind: str) -> StructureAt:
        """The block of a kind of record begins."""
        self.open(self.kinds[kind])
        return self.record

    # Instructions that compute

    def _compute(self) -> None:
        record = self.begin("compute")
        operands = OperandText(self, self.labels["fallback"], self.program)
        operands.place(record, self.stream.get("registers", "ptr"))
        operands.check(record)
        operands.patch(record)
        self._guard(record)
        self._event(record.get("event"), self.labels["fallback"])
        operands.write(record)

        def queue() -> None:
            self.products.flush()
            self.queue.add(record)

        def wait() -> None:
            self.queue.flush()
            self.products.add(record)

        def run() -> None:
            self.flush()
            record.each("jobs", JOB, self._job)

        for name, body in (("queued", queue), ("products", wait), ("jobs", run)):
            some = self.compare("icmp ne", record.get(f"{name}_count"), self.integer(0))
            self.when(some, body)
        watched = self.compare("icmp ne", self.program.get("watched"), self.integer(0))
        tell = self.label("tell")
        self.branch(watched, tell, self.labels["next"])
        self.open(tell)
        result = self._call_back(EXECUTED + self.stream.get("pc"))
        failed = self.compare("icmp eq", result, self.integer(FAILED))
        self.branch(failed, self.labels["failed"], self.labels["next"])

    def _guard(self, record: StructureAt) -> None:
        """To Python where what operands hold does not suit the jobs of a record."""
        guarded = self.compare("icmp ne", record.get("guard"), self.integer(0))
        look, after = self.label("guard"), self.label("on")
        self.branch(guarded, look, after)
        self.open(look)
        self.flush()
        words = record.get("guard_words", "ptr")
        self.call_address(record.get("guard", "ptr"), words)
        refused = self.compare("icmp ne", self.load(words, "i64"), self.integer(0))
        self.branch(refused, self.labels["fallback"], after)
        self.open(after)

    def _event(self, value: Value, full: str) -> None:
        """Leave a value that is not negative in the control trace; to `full` without space."""
        leave, after = self.label("event"), self.label("on")
        self.branch(self.compare("icmp sge", value, self.integer(0)), leave, after)
        self.open(leave)
        stream = self.stream
        count = stream.get("events_count")
        self.leave_if(self.compare("icmp sge", count, stream.get("events_limit")), full)
        self.store(value, self.element_at(stream.get("events", "ptr"), count, WORD))
        stream.set("events_count", count + 1)
        self.jump(after)
        self.open(after)

    def _job(self, job: StructureAt) -> None:
        function, parts = job.get("function", "ptr"), job.get("parts", "ptr")
        run_parts(self, self.program.get("team", "ptr"), function, parts, job.get("parts_count"))

    # Control instructions

    def _operand(self, record: StructureAt, name: str) -> Value:
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
        span = last - first + step
        trips = self.binary("sdiv", span - 1, step)
        empty = self.compare("icmp sge", first, last)
        self._event(self.select(empty, self.integer(0), trips), self.labels["fallback"])
        self.store(last, record.get("bound", "ptr"))
        self.store(first, record.get("target", "ptr"))
        self.target.set("value", record.get("to"))
        self.branch(empty, self.labels["jump"], self.labels["next"])

        record = self.begin("loop_end")
        register = record.get("target", "ptr")
        value = self.load(register, "i64") + record.get("step")
        self.store(value, register)
        self.target.set("value", record.get("to"))
        again = self.compare("icmp slt", value, self.load(record.get("bound", "ptr"), "i64"))
        self.branch(again, self.labels["jump"], self.labels["next"])

    def _storage_begin(self) -> None:
        record = self.begin("storage_begin")
        begin = StructureAt(self, BEGIN, record.get("target", "ptr"))
        region, states = begin.get("region"), self.program.get("states", "ptr")
        unknown = self.compare("icmp eq", region, self.integer(0))
        self.leave_if(unknown, self.labels["fallback"])
        place = self.element_at(states, region, 1)
        dead = self.constant("i8", DEAD)
        take, after = self.label("take"), self.label("on")
        self.branch(self.compare("icmp eq", self.load(place, "i8"), dead), take, after)
        self.open(take)

        def kill(rival: StructureAt) -> None:
            self.store(dead, self.element_at(states, rival.get("region"), 1))

        begin.each("rivals", RIVAL, kill)
        self.jump(after)
        self.open(after)
        self.store(self.constant("i8", EMPTY), place)
        fill = self.element_at(self.program.get("fills", "ptr"), region, WORD)
        self.store(begin.get("fill"), fill)
        self.go("next")
