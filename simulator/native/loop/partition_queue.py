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

from collections.abc import Callable
from typing import Any

from simulator.native.codegen.structure import Structure, StructureAt, StructureText, WordMemory
from simulator.native.codegen.text import Value
from simulator.native.loop.operands import OPERAND
from simulator.native.loop.queues import MOST_JOBS, FlushedQueue, new_entry, room_for
from simulator.native.loop.written import WrittenText

BLOCK_BYTES = 1 << 17
"""What a block may touch on chip, so that it stays in a second-level cache."""

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

EMPTY = {
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
    return memory.words(QUEUE.words(**members, **room, **EMPTY))


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
