"""The queue of a native program: jobs that run together, one block of partitions after another.

A job is local if a partition's row of it touches nothing but what belongs to that partition, or
rows of HBM. Local jobs need not run at once: they are queued, and when something must see their
results, or the queue is full, the first block of partitions goes through all of them, then the next
block. So the rows of a block stay in the cache from one job to the next. Threads, each with
partitions of its own, meet once a queue and not once a job. In every partition the order stays that
of the instructions; rows of HBM that belong to other partitions are looked after by
`QueueText.add`.

The thread that walks the records fills the next queue while the others are still at work on this
one. An access to HBM that meets one of other partitions ends the queue. While an element-wise job
computes it fetches, by hints in its words, the rows of HBM that a later job of the block loads.
Large jobs that are not local are shared one by one. Any split gives the same bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simulator.memory import LINE
from simulator.native.codegen.structure import Structure, StructureAt, StructureText, WordMemory
from simulator.native.codegen.text import WORD, Value
from simulator.native.loop.operands import OPERAND
from simulator.native.loop.written import WrittenText
from simulator.native.plans.plan import HINT_WORDS
from simulator.native.threads.workers import start_parts

MOST_JOBS = 256
"""How many jobs a queue holds."""

MOST_WORDS = 64
"""Argument words that a job may have to be queued."""

BLOCK_BYTES = 1 << 17
"""What a block may touch on chip, so that it stays in a second-level cache."""

_WORDS_AHEAD = 2 * LINE
"""Bytes of the argument words of a job that are worth a hint."""

LEAST_WORK = 1 << 14
"""Elements below which a queue is not worth the time of sharing it."""

QUEUE = Structure(
    *("run", "team", "parts", "parts_count", "entries", "copies", "count", "epoch"),
    *("next_entries", "next_copies"),
    *("row_bytes", "block_bytes", "work", "least_work", "first", "last", "most_hints", "lockstep"),
    *("sbuf", "sbuf_end", "psum", "psum_end", "written"),
)
"""`run` is the address of a `PartitionBlocks` function, `parts` that of the addresses of `BLOCKS`
words, one for each thread. `entries` are `count` of `ENTRY`; `copies` is memory for words of each.
They take turns with `next_entries` and `next_copies`, so that jobs can be queued while others run.
`epoch` is raised when the queue has been started. In sum the queued jobs touch `row_bytes` of a
partition, all of them within `sbuf` to `sbuf_end` and `psum` to `psum_end`; a block may touch
`block_bytes`. The jobs compute `work` elements, of partitions `first` to `last`. Threads share no
less than `least_work`. `most_hints`: how many hints one of them takes; `lockstep`: of how many
partitions blocks are a multiple. `written` is the `WRITTEN` of SBUF."""

ENTRY = Structure("job", "words")

BLOCKS = Structure("number", "entries", "count", "most_hints", "first", "last", "block", "scratch")
"""What a thread runs: all jobs of a queue for these partitions, `block` of them at a time;
`scratch` is room for words. `number` is that of the thread; `entries`, `count` and `most_hints` are
those of the queue when it was started."""

QUEUED = Structure(
    *("function", "words", "words_count", "length", "steps", "steps_count"),
    *("first", "count", "row_bytes", "work", "sbuf", "sbuf_end", "psum", "psum_end"),
    *("hints", "hints_count", "fetched", "fetched_step", "fetched_too", "fetched_too_step"),
    *("lockstep", "wrote", "wrote_end"),
)
"""A job for partitions from `first` on, `count` of them: word `length` says how many, and `steps`
say how far pointers move from one to the next. `hints`: the word of the first of the hints that it
takes (`simulator.native.plans.plan.Job`). `fetched`: the word with the address of rows in HBM that
it reads, which are `fetched_step` bytes apart; 0 for none that are worth a hint. `fetched_too`: the
same of a second operand. `lockstep`: how many partitions it computes at once
(`simulator.native.plans.plan.Division`). `wrote` to `wrote_end`: the bytes of partitions of SBUF
that it writes. The other members are as of `QUEUE`."""

FETCHED = ("fetched", "fetched_too")

LEAST_FETCHED, LEAST_COMPUTED = 1024, 512
"""Bytes of a row that are worth a hint, and elements of one while which are computed hints help."""

FARTHEST_HINT = 32
"""Jobs between one that hints and the one that reads."""

STEP = Structure("word", "bytes")

ACCESS = Structure("operand", "tensor", "writes", "before", "step", "span")
"""An operand in HBM of jobs that are queued: row p, of `span` bytes, is `step` bytes behind row
p-1, and row 0 would be `before` bytes ahead of the operand."""

TENSOR = Structure(
    *("epoch", "step", "frame"),
    *("now_reads", "now_reads_end", "now_writes", "now_writes_end"),
    *("reads", "reads_end", "writes", "writes_end"),
)
"""What the queued jobs of `epoch` do with a tensor of HBM, as ranges of bytes. A frame is the bytes
from `frame * step` on, `step` of them for each partition: accesses within one and the same frame
meet only within a partition. `now_` is what was done within the latest frame (`step` 0: none),
the others what was done before."""

RANGES = ("now_reads", "now_writes", "reads", "writes")

FARTHEST = 1 << 62

ARENAS = ("sbuf", "psum")

_EMPTY = {
    **dict.fromkeys(
        ("count", "row_bytes", "work", "last", "sbuf_end", "psum_end", "most_hints"), 0
    ),
    **dict.fromkeys(("first", *ARENAS), FARTHEST),
    "lockstep": 1,
}
"""Members of a queue in which there is nothing."""


def new_queue(memory: WordMemory, run: int, threads: int, written: int) -> Any:
    """An empty `QUEUE` for this many threads, whose `PartitionBlocks` function is at `run`."""
    room = room_for(memory, BLOCKS, threads, ENTRY, MOST_JOBS)
    members = {"run": run, "epoch": 1, "block_bytes": BLOCK_BYTES, "written": written}
    return memory.words(QUEUE.words(**members, **room, **_EMPTY))


def room_for(
    memory: WordMemory, part: Structure, threads: int, entry: Structure, most: int
) -> dict[str, int]:
    """The members of a queue that say where the part of each thread is, up to `most` entries, and
    the words of each."""
    sizes = {"entries": most * len(entry.names), "copies": most * MOST_WORDS}
    found = {f"{turn}{name}": memory.room(n) for turn in ("", "next_") for name, n in sizes.items()}
    parts = [memory.room(len(part.names)) for _ in range(threads)]
    for number, place in enumerate(parts):
        words = part.words(number=number, scratch=memory.room(MOST_WORDS))
        (ctypes.c_int64 * len(words)).from_address(place)[:] = list[Any](words)
    return {
        **found,
        "parts": memory.table(parts),
        "parts_count": threads,
        "least_work": LEAST_WORK,
    }


def take_turns(queue: StructureAt) -> None:
    """What is queued from now on goes where it leaves alone what is queued already."""
    for name in ("entries", "copies"):
        here, there = queue.get(name), queue.get(f"next_{name}")
        queue.set(name, there)
        queue.set(f"next_{name}", here)


def new_entry(
    f: StructureText, queue: StructureAt, structure: Structure, job: StructureAt, moving: Value
) -> StructureAt:
    """A new entry of a queue, for a job and its words: a copy of these if they are `moving`, as
    registers may have moved them before it runs."""
    count, words = queue.get("count"), f.variable()
    words.set("value", job.get("words"))

    def copied() -> None:
        place = f.element_at(queue.get("copies", "ptr"), count, MOST_WORDS * WORD)
        size = job.get("words_count") * WORD
        f.copy_bytes(place, job.get("words", "ptr"), size)
        f.store(place, words.pointer)

    f.when(moving, copied)
    entry = StructureAt(
        f, structure, f.element_at(queue.get("entries", "ptr"), count, structure.size)
    )
    f.store(job.pointer, entry.pointer)
    entry.set("words", words.get("value"))
    queue.set("count", count + 1)
    return entry


def fetch_entries(f: StructureText, part: StructureAt, entry: Structure, job: Structure) -> None:
    """Hint at the jobs of a part and their words, unless this is the thread that queued them: it
    has them in its cache."""
    entries = part.get("entries", "ptr")

    def one(index: Value) -> None:
        each = StructureAt(f, entry, f.element_at(entries, index, entry.size))
        for member, size in (("job", job.size), ("words", _WORDS_AHEAD)):
            place = each.get(member, "ptr")
            for line in range(0, size + LINE, LINE):
                f.prefetch(place + line)

    first = f.compare("icmp eq", part.get("number"), f.integer(0))
    f.loop(f.integer(0), f.select(first, f.integer(0), part.get("count")), 1, one)


class FlushedQueue:
    """Writes into `f` what empties a queue of a program, by a call at `flush`. `settle` writes what
    waits for the jobs before."""

    def __init__(
        self, f: StructureText, queue: StructureAt, flush: Value, settle: Callable[[], None]
    ) -> None:
        self.f = f
        self.queue = queue
        self._flush = flush
        self._settle = settle

    def flush(self) -> None:
        """Run what is queued; threads may still be at work then."""
        f = self.f

        def run() -> None:
            self._settle()
            f.call_address(self._flush, self.queue.pointer)

        f.when(f.compare("icmp ne", self.queue.get("count"), f.integer(0)), run)


class QueueText(FlushedQueue):
    """Writes into `f` what fills the queue of a program and what empties it, by a call of `Flush`
    at `flush`. `settle` writes what waits for what was run before.

    The queue changes the order between partitions: job 2 on partition 0 runs before job 1 on
    partition 100. On chip a local job stays within its partition. In HBM the order is kept like
    this, with one `TENSOR` for each tensor:

        add(record):
            for each access of the record in HBM:
                if `_meets(access)`: flush the queue first
            for each: `_note(access)`, which adds its bytes to what the `TENSOR` knows
            push the jobs

    Two accesses in one *frame* never meet in different partitions. A tensor [512, 64] of fp32 has
    rows of 256 bytes. A tile of its rows 128 to 255 has step 256 and frame 128: partition p has
    row 128 + p.

    1. A load of that tile: nothing is known; `now_reads` become the bytes of rows 128 to 255.
    2. A store into columns 0 to 31 of the tile has the same frame: each partition writes rows that
       it has itself read, in the order of the jobs. It is queued.
    3. A load of rows 127 to 254 has frame 127, and meets `now_writes`: partition p would read what
       partition p - 1 writes. The queue is flushed before it is queued.

    Where the frame changes without such a meeting, what was `now_` joins `reads` and `writes`,
    which any access that meets them flushes. `epoch` spares clearing: a `TENSOR` of an earlier
    epoch than the queue's knows nothing.
    """

    def __init__(
        self, f: StructureText, queue: Value, flush: Value, settle: Callable[[], None]
    ) -> None:
        super().__init__(f, StructureAt(f, QUEUE, queue), flush, settle)

    def add(self, record: StructureAt) -> None:
        """Queue the local jobs of a record; before that run the queue if it is too full, or has
        accesses of HBM that must come before the record's."""
        f, queue = self.f, self.queue
        total = queue.get("count") + record.get("queued_count")
        reason = f.variable()
        full = f.compare("icmp sgt", total, f.integer(MOST_JOBS))
        reason.set("value", f.convert("zext", full, "i64"))

        def look(access: StructureAt) -> None:
            found = f.convert("zext", self._meets(access), "i64")
            reason.set("value", reason.get("value") | found)

        record.each("accesses", ACCESS, look)
        must = f.compare("icmp ne", reason.get("value"), f.integer(0))
        f.when(must, self.flush)
        record.each("accesses", ACCESS, self._note)
        moving = f.compare("icmp ne", record.get("moving_count"), f.integer(0))
        record.each("queued", QUEUED, lambda job: self._push(job, moving))

    def _push(self, job: StructureAt, moving: Value) -> None:
        f, queue = self.f, self.queue
        new_entry(f, queue, ENTRY, job, moving)
        queue.add("row_bytes", job.get("row_bytes"))
        queue.add("work", job.get("work"))
        times = WrittenText(f, queue.get("written", "ptr"))
        times.write(job.get("wrote"), job.get("wrote_end"))
        for largest, member in (("most_hints", "hints_count"), ("lockstep", "lockstep")):
            queue.set(largest, f.intrinsic("smax", queue.get(largest), job.get(member)))
        first = job.get("first")
        last = first + job.get("count")
        for low, high, begin, end in (
            ("first", "last", first, last),
            *((name, f"{name}_end", job.get(name), job.get(f"{name}_end")) for name in ARENAS),
        ):
            queue.set(low, f.intrinsic("smin", queue.get(low), begin))
            queue.set(high, f.intrinsic("smax", queue.get(high), end))

    # HBM

    def _range(self, access: StructureAt) -> tuple[Value, Value]:
        operand = StructureAt(self.f, OPERAND, access.get("operand", "ptr"))
        offset = operand.get("offset")
        low, high = (offset + operand.get(end) for end in ("low", "high"))
        return low, high

    def _frame(self, access: StructureAt) -> tuple[Value, Value]:
        """Number and step of the frame in which an access is, as if partition 0 took part. The step
        is 0 where a row of the access crosses a multiple of the step."""
        f = self.f
        low, _ = self._range(access)
        start, step = low - access.get("before"), access.get("step")
        # There may be fewer rows in front of the first one than it says.
        lift = step * (1 << 20)
        number = f.binary("sdiv", start + lift, step)
        column = f.binary("srem", start + lift, step)
        end = column + access.get("span")
        fits = f.compare("icmp sle", end, step)
        return number, f.select(fits, step, f.integer(0))

    def _same_frame(self, tensor: StructureAt, number: Value, step: Value) -> Value:
        f = self.f
        same = f.compare("icmp eq", tensor.get("frame"), number)
        same = same & f.compare("icmp eq", tensor.get("step"), step)
        return same & f.compare("icmp ne", step, f.integer(0))

    def _overlaps(self, tensor: StructureAt, name: str, low: Value, high: Value) -> Value:
        f = self.f
        before = f.compare("icmp slt", low, tensor.get(f"{name}_end"))
        behind = f.compare("icmp slt", tensor.get(name), high)
        return before & behind

    def _meets(self, access: StructureAt) -> Value:
        """Whether an access, and what is queued, may touch the same bytes by different partitions,
        and one of the two writes."""
        f = self.f
        tensor = StructureAt(f, TENSOR, access.get("tensor", "ptr"))
        low, high = self._range(access)
        other = self._same_frame(tensor, *self._frame(access)) ^ 1
        writes = f.compare("icmp ne", access.get("writes"), f.integer(0))
        now = self._overlaps(tensor, "now_reads", low, high)
        now = now & writes
        now = now | self._overlaps(tensor, "now_writes", low, high)
        older = self._overlaps(tensor, "reads", low, high) & writes
        older = older | self._overlaps(tensor, "writes", low, high)
        found = older | (now & other)
        current = f.compare("icmp eq", tensor.get("epoch"), self.queue.get("epoch"))
        return found & current

    def _note(self, access: StructureAt) -> None:
        """Add an access to what is queued."""
        f = self.f
        tensor = StructureAt(f, TENSOR, access.get("tensor", "ptr"))
        epoch = self.queue.get("epoch")
        number, step = self._frame(access)

        def nothing(names: tuple[str, ...]) -> None:
            for name in names:
                tensor.set(name, f.integer(FARTHEST))
                tensor.set(f"{name}_end", f.integer(-FARTHEST))

        def begin() -> None:
            nothing(RANGES)
            tensor.set("epoch", epoch)
            tensor.set("step", f.integer(0))

        def leave() -> None:
            """What was done within the latest frame was done before."""
            for name in ("reads", "writes"):
                low, high = f"now_{name}", f"now_{name}_end"
                self._extend(tensor, name, tensor.get(low), tensor.get(high))
            nothing(RANGES[:2])
            tensor.set("step", step)
            tensor.set("frame", number)

        f.when(f.compare("icmp ne", tensor.get("epoch"), epoch), begin)
        same = self._same_frame(tensor, number, step)
        f.when(same ^ 1, leave)
        writes = f.compare("icmp ne", access.get("writes"), f.integer(0))
        reads = writes ^ 1
        low, high = self._range(access)
        f.when(writes, lambda: self._extend(tensor, "now_writes", low, high))
        f.when(reads, lambda: self._extend(tensor, "now_reads", low, high))

    def _extend(self, tensor: StructureAt, name: str, low: Value, high: Value) -> None:
        f = self.f
        tensor.set(name, f.intrinsic("smin", tensor.get(name), low))
        tensor.set(f"{name}_end", f.intrinsic("smax", tensor.get(f"{name}_end"), high))


@dataclass(frozen=True, slots=True)
class Flush:
    """Starts what is in a `QUEUE`, whose address is the argument."""

    def text(self, name: str) -> str:
        f = StructureText(name)
        queue = StructureAt(f, QUEUE, f.words)
        first, one = queue.get("first"), f.integer(1)
        span = queue.get("last") - first
        # Blocks of nearly the same size.
        extents = [queue.get(f"{n}_end") - queue.get(n) for n in ARENAS]
        within = f.binary("add", *(f.intrinsic("smax", e, f.integer(0)) for e in extents))
        touched = f.intrinsic("smin", queue.get("row_bytes"), within)
        most = f.binary("sdiv", queue.get("block_bytes"), f.intrinsic("smax", touched, one))
        most = f.intrinsic("smax", most, one)
        threads = queue.get("parts_count")
        shared = f.compare("icmp ne", queue.get("team"), f.integer(0))
        enough = f.compare("icmp sge", queue.get("work"), queue.get("least_work"))
        shared = shared & enough & f.compare("icmp sge", span, threads)
        count = f.select(shared, threads, one)
        parts = queue.get("parts", "ptr")

        def begin(number: Value) -> Value:
            return first + f.binary("sdiv", span * number, count)

        def part(number: Value) -> None:
            words = StructureAt(f, BLOCKS, f.load(f.element_at(parts, number, WORD), "ptr"))
            low, high = begin(number), begin(number + one)
            rows = high - low
            times = _up(f, rows, most)
            words.set("first", low)
            words.set("last", high)
            for member in ("entries", "count", "most_hints"):
                words.set(member, queue.get(member))
            block = f.intrinsic("smax", _up(f, rows, times), one)
            multiple = queue.get("lockstep")
            words.set("block", _up(f, block, multiple) * multiple)

        f.loop(f.integer(0), count, 1, part)
        take_turns(queue)
        start_parts(f, queue.get("team", "ptr"), queue.get("run", "ptr"), parts, count)
        for member, value in _EMPTY.items():
            queue.set(member, f.integer(value))
        queue.add("epoch", one)
        return f.text()


def _up(f: StructureText, left: Value, right: Value) -> Value:
    """left / right, rounded up."""
    total = left + (right - 1)
    return f.binary("sdiv", total, right)


@dataclass(frozen=True, slots=True)
class PartitionBlocks:
    """Runs all jobs of a queue for the partitions of a `BLOCKS`, whose address is the argument."""

    def text(self, name: str) -> str:
        f = StructureText(name)
        part = StructureAt(f, BLOCKS, f.words)
        entries, count, zero = part.get("entries", "ptr"), part.get("count"), f.integer(0)
        first, last, block = (part.get(member) for member in ("first", "last", "block"))
        scratch = part.get("scratch", "ptr")

        fetch_entries(f, part, ENTRY, QUEUED)
        hints = _Hints(f, part)

        def one_block(number: Value) -> None:
            low = first + number * block
            high = f.intrinsic("smin", low + block, last)
            hints.told.set("value", zero)

            def run(index: Value) -> None:
                _run(f, _entry(f, entries, index), low, high, scratch, hints.of(index))

            f.loop(zero, count, 1, run)

        blocks = _up(f, last - first, block)
        f.loop(zero, blocks, 1, one_block)
        f.fence()
        return f.text()


def _entry(f: StructureText, entries: Value, index: Value) -> StructureAt:
    return StructureAt(f, ENTRY, f.element_at(entries, index, ENTRY.size))


class _Hints:
    """What jobs are told of memory that later ones will read, each job's memory to one of them:
    to those of the queue that take most. `told` is how much of the entries was looked at: so many
    times FETCHED."""

    def __init__(self, f: StructureText, part: StructureAt) -> None:
        self.f = f
        self._entries = part.get("entries", "ptr")
        self._count = part.get("count")
        self._most = part.get("most_hints")
        self.told = f.variable()

    def of(self, index: Value) -> Callable[[StructureAt, Value, Value], None]:
        """Writes the hint of the job of an entry into its words: `give(job, words, begin)`, where
        it runs for partitions from `begin` on."""

        def give(job: StructureAt, words: Value, begin: Value) -> None:
            f = self.f
            takes = f.compare("icmp ne", job.get("hints_count"), f.integer(0))
            most = f.compare("icmp eq", job.get("hints_count"), self._most)
            yes, on = f.label("hint"), f.label("on")
            f.branch(takes & most, yes, on)
            f.open(yes)
            first = f.element_at(words, job.get("hints"), WORD)
            size = len(HINT_WORDS) * WORD

            def one(number: Value) -> None:
                self._give(f.element_at(first, number, size), words, index, begin)

            f.loop(f.integer(0), job.get("hints_count"), 1, one)
            f.jump(on)
            f.open(on)

        return give

    def _give(self, address: Value, words: Value, index: Value, begin: Value) -> None:
        f, one = self.f, self.f.integer(1)
        step = f.element_at(address, one, WORD)
        # Where nobody reads, what is in a cache already.
        f.store(f.convert("ptrtoint", self._entries, "i64"), address)
        f.store(f.integer(0), step)
        each = f.integer(len(FETCHED))
        end = index + FARTHEST_HINT
        end = f.intrinsic("smin", end, self._count) * each
        ahead = (index + one) * each
        ahead = f.intrinsic("smax", self.told.get("value"), ahead)
        self.told.set("value", ahead)
        look, test, found, on = (f.label(name) for name in ("look", "test", "found", "on"))
        f.jump(look)
        f.open(look)
        at = self.told.get("value")
        f.branch(f.compare("icmp slt", at, end), test, on)
        f.open(test)
        self.told.set("value", at + one)
        entry = _entry(f, self._entries, f.binary("sdiv", at, each))
        later = StructureAt(f, QUEUED, entry.get("job", "ptr"))
        which = f.compare("icmp eq", f.binary("srem", at, each), f.integer(0))
        word, distance = (
            f.select(which, *(later.get(name + part) for name in FETCHED)) for part in ("", "_step")
        )
        f.branch(f.compare("icmp ne", word, f.integer(0)), found, look)
        f.open(found)
        rows = f.load(f.element_at(entry.get("words", "ptr"), word, WORD), "i64")
        skipped = (begin - later.get("first")) * distance
        f.store(rows + skipped, address)
        f.store(distance, step)
        f.jump(on)
        f.open(on)


def _run(
    f: StructureText,
    entry: StructureAt,
    low: Value,
    high: Value,
    scratch: Value,
    hint: Callable[[StructureAt, Value, Value], None],
) -> None:
    """Run a queued job for those of its partitions that are between two; `hint(job, words, begin)`
    completes its words."""
    job = StructureAt(f, QUEUED, entry.get("job", "ptr"))
    words, own = entry.get("words", "ptr"), job.get("first")
    begin = f.intrinsic("smax", low, own)
    end = f.intrinsic("smin", high, own + job.get("count"))
    rows = end - begin
    whole, part, some, after = (f.label(label) for label in ("whole", "part", "some", "on"))
    f.branch(f.compare("icmp eq", rows, job.get("count")), whole, part)
    f.open(whole)
    hint(job, words, begin)
    f.call_address(job.get("function", "ptr"), words)
    f.jump(after)
    f.open(part)
    f.branch(f.compare("icmp sgt", rows, f.integer(0)), some, after)
    f.open(some)
    f.copy_bytes(scratch, words, job.get("words_count") * WORD)
    f.store(rows, f.element_at(scratch, job.get("length"), WORD))
    skipped = begin - own

    def step(each: StructureAt) -> None:
        place = f.element_at(scratch, each.get("word"), WORD)
        moved = skipped * each.get("bytes")
        f.store(f.load(place, "i64") + moved, place)

    job.each("steps", STEP, step)
    hint(job, scratch, begin)
    f.call_address(job.get("function", "ptr"), scratch)
    f.jump(after)
    f.open(after)
