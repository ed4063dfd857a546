"""A queue that runs: threads take blocks of partitions, and each block goes through all jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simulator.native.codegen.structure import StructureAt, StructureText
from simulator.native.codegen.text import WORD, Value
from simulator.native.loop.partition_queue import (
    ARENAS,
    BLOCKS,
    EMPTY,
    ENTRY,
    FARTHEST_HINT,
    FETCHED,
    QUEUE,
    QUEUED,
    STEP,
)
from simulator.native.loop.queues import fetch_entries, take_turns
from simulator.native.plans.plan import HINT_WORDS
from simulator.native.threads.workers import start_parts


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
        for member, value in EMPTY.items():
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
