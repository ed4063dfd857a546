"""The queue of the tensor engine: loads, products and transpositions that run together.

They read what is in SBUF and the tile that was loaded last, and write PSUM, each the partitions of
its results. So they need not run at once: they are queued until something else runs, and then
threads go through all of them, each for partitions of its own, and meet once a queue. Every thread
has an image of its own of the loaded tile (`simulator.native.matmul.gemm_image`). It is made of the
columns that the thread's partitions need, straight from the memory of the tile, which does not
change meanwhile. Behind the queue the last tile is copied, as it stays loaded, unless the next
instruction loads another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from simulator.native.codegen.structure import Structure, StructureAt, StructureText, WordMemory
from simulator.native.codegen.text import WORD, Value
from simulator.native.loop.partition_queue import FARTHEST, STEP
from simulator.native.loop.queues import (
    MOST_WORDS,
    FlushedQueue,
    fetch_entries,
    new_entry,
    room_for,
    take_turns,
)
from simulator.native.loop.written import WrittenText
from simulator.native.matmul.gemm import MOST_PARTS, ROWS_TOGETHER
from simulator.native.matmul.gemm import WORDS as MULTIPLY
from simulator.native.matmul.image_layout import Word, set_header_word
from simulator.native.plans.plan import Bound, TensorJob
from simulator.native.threads.workers import join, start_parts
from simulator.views import Window

MOST_PRODUCTS = 256
"""How many jobs a queue holds."""

PRODUCTS = Structure(
    *("run", "team", "parts", "parts_count", "entries", "copies", "count"),
    *("next_entries", "next_copies"),
    *("work", "least_work", "first", "last", "streaming", "replaced"),
    *("running_count", "running_replaced", "written"),
)
"""As `simulator.native.loop.partition_queue.QUEUE`; `streaming` is the last entry that streams, 0
for none. `replaced` is the `home` of the tile that the next instruction of the stream loads, 0 if
it is none that loads one: what is loaded there now, nothing will use. `running_count`: the number
of entries, at `next_entries`, that threads may be at work on; `running_replaced` is what was
`replaced` then. `written` is that of `simulator.native.loop.partition_queue.QUEUE`."""

ENTRY = Structure("job", "words", "next", "keep", "time")
"""`next` are the words of the following entry that streams, 0 for none. `keep`: whether the tile
that is loaded here is the last one at its place. `time`: when the tile that streams may have been
written last."""

PART = Structure("number", "entries", "count", "first", "last", "scratch")
"""What a thread runs: all jobs of a queue for these partitions. The other members are as of
`simulator.native.loop.partition_queue.BLOCKS`."""

PRODUCT = Structure(
    *("function", "words", "words_count", "length", "steps", "steps_count", "image", "apart"),
    *("streams", "first", "count", "work", "keep", "keep_words", "home", "moving", "moving_end"),
)
"""A job for partitions from `first` on, `count` of them: word `length` says how many, and `steps`
how far words move from one to the next; with a `count` of 0 every thread runs it as it is. Word
`image` is the address of the first thread's image; those of others are `apart` bytes apart.
`streams`: whether it is a `MultiplyKernel`, which takes hints; its moving tile is in the bytes
`moving` to `moving_end` of partitions. `keep`, if it is not 0, is the function that copies the
tile, of `keep_words`, and `home` is the first image."""


class PlacedProduct(NamedTuple):
    """A product with the partitions of its results, none where it has no results."""

    product: TensorJob
    first: int
    rows: int


def place_products(
    bound: Bound, windows: Mapping[int, Window], psum: Any
) -> list[PlacedProduct] | None:
    """The jobs of an instruction as the queue takes them; None where it does not. `windows` are its
    operands by position, `psum` is the memory in which results are."""
    found = []
    for product in bound.products:
        job = product.job
        if len(job.words) > MOST_WORDS:
            return None
        sources = [windows[position] for _, position in job.slots]
        first = count = 0
        if job.divisions:
            target = sources.pop(0)
            first, count = target.origin // target.strides[0], target.shape[0]
            if target.buffer is not psum or first % ROWS_TOGETHER:
                return None
        if any(not source.on_chip or source.buffer is psum for source in sources):
            return None
        found.append(PlacedProduct(product, first, count))
    return found or None


def new_products(memory: WordMemory, run: int, threads: int, written: int) -> Any:
    """An empty `PRODUCTS` for this many threads, whose `QueuedProducts` function is at `run`."""
    room = room_for(memory, PART, min(threads, MOST_PARTS), ENTRY, MOST_PRODUCTS)
    return memory.words(PRODUCTS.words(run=run, written=written, first=FARTHEST, **room))


class ProductsText(FlushedQueue):
    """Writes into `f` what fills the queue of a program and what empties it, by a call of
    `FlushProducts` at `flush`; `Settle`, at `settle`, waits for what was run."""

    def __init__(self, f: StructureText, queue: Value, flush: Value, settle: Value) -> None:
        super().__init__(f, StructureAt(f, PRODUCTS, queue), flush, self.settle)
        self._settling = settle

    def settle(self) -> None:
        """Wait for what was run, be it of this queue or of another one of the team."""
        self.f.call_address(self._settling, self.queue.pointer)

    def add(self, record: StructureAt) -> None:
        """Queue the products of a record; before that run the queue if it is too full."""
        f = self.f
        total = self.queue.get("count") + record.get("products_count")
        f.when(f.compare("icmp sgt", total, f.integer(MOST_PRODUCTS)), self.flush)
        moving = f.compare("icmp ne", record.get("moving_count"), f.integer(0))
        record.each("products", PRODUCT, lambda job: self._push(job, moving))
        self._look_ahead(record)

    def _look_ahead(self, record: StructureAt) -> None:
        """Note what the following record loads."""
        f = self.f
        self.queue.set("replaced", f.integer(0))
        place = record.pointer + record.structure.size
        following = StructureAt(f, record.structure, place)

        def look() -> None:
            job = StructureAt(f, PRODUCT, following.get("products", "ptr"))
            self.queue.set("replaced", job.get("home"))

        f.when(f.compare("icmp ne", following.get("products_count"), f.integer(0)), look)

    def _push(self, job: StructureAt, moving: Value) -> None:
        f, queue, zero = self.f, self.queue, self.f.integer(0)
        entry = new_entry(f, queue, ENTRY, job, moving)
        entry.set("next", zero)
        entry.set("keep", zero)
        queue.add("work", job.get("work"))

        def rows() -> None:
            first = job.get("first")
            last = first + job.get("count")
            queue.set("first", f.intrinsic("smin", queue.get("first"), first))
            queue.set("last", f.intrinsic("smax", queue.get("last"), last))

        def streams() -> None:
            before = queue.get("streaming", "ptr")

            def follow() -> None:
                StructureAt(f, ENTRY, before).set("next", entry.get("words"))

            f.when(f.compare("icmp ne", before, Value("null", "ptr")), follow)
            queue.set("streaming", entry.pointer)
            times = WrittenText(f, queue.get("written", "ptr"))
            entry.set("time", times.time(job.get("moving"), job.get("moving_end")))

        def keep() -> None:
            entry.set("keep", f.integer(1))
            place = _pending(f, job)
            before = f.load(place, "ptr")

            def instead() -> None:
                StructureAt(f, ENTRY, before).set("keep", zero)

            f.when(f.compare("icmp ne", before, Value("null", "ptr")), instead)
            f.store(entry.pointer, place)

        for name, body in (("count", rows), ("streams", streams), ("keep", keep)):
            f.when(f.compare("icmp ne", job.get(name), zero), body)


def _pending(f: StructureText, job: StructureAt) -> Value:
    """Where the entry is noted that will be kept as the loaded tile."""
    return f.element_at(job.get("home", "ptr"), f.integer(Word.pending), WORD)


@dataclass(frozen=True, slots=True)
class FlushProducts:
    """Starts what is in a `PRODUCTS`, whose address is the argument."""

    def text(self, name: str) -> str:
        f = StructureText(name)
        queue = StructureAt(f, PRODUCTS, f.words)
        first, last, zero, one = queue.get("first"), queue.get("last"), f.integer(0), f.integer(1)
        rows = last - first + (ROWS_TOGETHER - 1)
        groups = f.binary("ashr", rows, f.integer(ROWS_TOGETHER.bit_length() - 1))
        threads = queue.get("parts_count")
        shared = f.compare("icmp ne", queue.get("team"), zero)
        enough = f.compare("icmp sge", queue.get("work"), queue.get("least_work"))
        several = f.compare("icmp sgt", groups, one)
        shared = shared & enough & several
        count = f.select(shared, threads, one)
        parts = queue.get("parts", "ptr")

        def begin(number: Value) -> Value:
            group = f.binary("sdiv", groups * number, count)
            return first + group * ROWS_TOGETHER

        def part(number: Value) -> None:
            words = StructureAt(f, PART, f.load(f.element_at(parts, number, WORD), "ptr"))
            words.set("first", begin(number))
            words.set("last", begin(number + one))
            for member in ("entries", "count"):
                words.set(member, queue.get(member))

        f.loop(zero, count, 1, part)
        queue.set("running_count", queue.get("count"))
        queue.set("running_replaced", queue.get("replaced"))
        take_turns(queue)
        start_parts(f, queue.get("team", "ptr"), queue.get("run", "ptr"), parts, count)
        for member, value in (("count", 0), ("work", 0), ("first", FARTHEST), ("last", 0)):
            queue.set(member, f.integer(value))
        queue.set("streaming", zero)
        return f.text()


@dataclass(frozen=True, slots=True)
class Settle:
    """Waits until all threads have done what was started; keeps the tiles that stay loaded behind
    what a `PRODUCTS`, whose address is the argument, has run."""

    def text(self, name: str) -> str:
        f = StructureText(name)
        queue, zero = StructureAt(f, PRODUCTS, f.words), f.integer(0)
        join(f, queue.get("team", "ptr"))
        entries = queue.get("next_entries", "ptr")

        def forget(job: StructureAt) -> None:
            """The memory of the tile may change from now on."""
            home, apart = job.get("home", "ptr"), job.get("apart")

            def image(number: Value) -> None:
                place = home + number * apart
                set_header_word(f, place, Word.source, zero)

            f.loop(zero, queue.get("parts_count"), 1, image)

        def keep(index: Value) -> None:
            entry = StructureAt(f, ENTRY, f.element_at(entries, index, ENTRY.size))
            job = StructureAt(f, PRODUCT, entry.get("job", "ptr"))

            def copy() -> None:
                replaced = f.compare("icmp eq", job.get("home"), queue.get("running_replaced"))
                f.when(replaced, lambda: forget(job))
                f.when(
                    replaced ^ 1,
                    lambda: f.call_address(job.get("keep", "ptr"), job.get("keep_words", "ptr")),
                )
                f.store(zero, _pending(f, job))

            f.when(f.compare("icmp ne", entry.get("keep"), zero), copy)

        f.loop(zero, queue.get("running_count"), 1, keep)
        queue.set("running_count", zero)
        return f.text()


@dataclass(frozen=True, slots=True)
class QueuedProducts:
    """Runs all jobs of a queue for the partitions of a `PART`, whose address is the argument."""

    def text(self, name: str) -> str:
        f = StructureText(name)
        part = StructureAt(f, PART, f.words)
        entries, scratch = part.get("entries", "ptr"), part.get("scratch", "ptr")
        number, low, high = (part.get(member) for member in ("number", "first", "last"))

        def word(index: Value | int) -> Value:
            return f.element_at(
                scratch, f.integer(index) if isinstance(index, int) else index, WORD
            )

        def run(index: Value) -> None:
            entry = StructureAt(f, ENTRY, f.element_at(entries, index, ENTRY.size))
            job = StructureAt(f, PRODUCT, entry.get("job", "ptr"))
            own = job.get("first")
            begin = f.intrinsic("smax", low, own)
            end = f.intrinsic("smin", high, own + job.get("count"))
            rows = end - begin
            whole = f.compare("icmp eq", job.get("count"), f.integer(0))
            some = f.compare("icmp sgt", rows, f.integer(0))

            def call() -> None:
                size = job.get("words_count") * WORD
                f.copy_bytes(scratch, entry.get("words", "ptr"), size)
                _add(f, word(job.get("image")), number * job.get("apart"))
                divided = whole ^ 1
                f.when(divided, lambda: divide(job, rows, begin - own))
                streams = f.compare("icmp ne", job.get("streams"), f.integer(0))
                following = f.compare("icmp ne", entry.get("next"), f.integer(0))
                f.when(streams & following, lambda: hint(entry.get("next", "ptr")))
                f.when(streams, lambda: f.store(entry.get("time"), word(MULTIPLY.index("time"))))
                f.call_address(job.get("function", "ptr"), scratch)

            f.when(whole | some, call)

        def divide(job: StructureAt, rows: Value, skipped: Value) -> None:
            f.store(rows, word(job.get("length")))

            def step(each: StructureAt) -> None:
                moved = skipped * each.get("bytes")
                _add(f, word(each.get("word")), moved)

            job.each("steps", STEP, step)

        def hint(following: Value) -> None:
            for source, target in (("moving", "next"), ("along", "next_along")):
                place = f.element_at(following, f.integer(MULTIPLY.index(source)), WORD)
                f.store(f.load(place, "i64"), word(MULTIPLY.index(target)))

        def all_entries() -> None:
            fetch_entries(f, part, ENTRY, PRODUCT)
            f.loop(f.integer(0), part.get("count"), 1, run)

        f.when(f.compare("icmp slt", low, high), all_entries)
        return f.text()


def _add(f: StructureText, place: Value, amount: Value) -> None:
    f.store(f.load(place, "i64") + amount, place)
