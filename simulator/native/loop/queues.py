"""What the queues of a native program share: room for jobs and words, turns, hints and flushes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from simulator.memory import LINE
from simulator.native.codegen.structure import Structure, StructureAt, StructureText, WordMemory
from simulator.native.codegen.text import WORD, Value

MOST_JOBS = 256
"""How many jobs a queue holds."""

MOST_WORDS = 64
"""Argument words that a job may have to be queued."""

_WORDS_AHEAD = 2 * LINE
"""Bytes of the argument words of a job that are worth a hint."""

LEAST_WORK = 1 << 14
"""Elements below which a queue is not worth the time of sharing it."""


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
